"""The replayed ``__cluster_metadata`` log: images, the cache for readers, configs, producer ids, registration."""
