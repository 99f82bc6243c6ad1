"""The state that the records of ``__cluster_metadata`` add up to (KIP-500): immutable images by subject, and deltas.

    MetadataImage ─┬─ TopicsImage         topics and their partitions
                   ├─ ClusterImage        registered brokers and controllers
                   ├─ FeaturesImage       finalised feature levels
                   ├─ ConfigsImage        dynamic configs of topics and brokers
                   ├─ ProducerIdsImage    which producer ids have been handed out
                   ├─ acls, scram_credentials, delegation_tokens, client_quotas:
                   │                      records as they are, by key; who acts on them reads them here
                   └─ zk_migration, unknown:
                                          records that no part of this broker acts on

A delta takes records and makes the next image; subjects that no record touched are shared by both images.
"""
