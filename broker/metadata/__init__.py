"""The replayed ``__cluster_metadata`` log: topics, configs, features, producer ids and who this node is."""
