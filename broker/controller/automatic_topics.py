"""Topics that come into being without CreateTopics: with the broker's defaults, or as the coordinators need them."""

from broker.controller.topic_creation import NewTopic
from broker.metadata.topic_rules import CONSUMER_OFFSETS, TRANSACTION_STATE
from config.broker_settings import BrokerSettings


def automatic_topic(name: str, settings: BrokerSettings) -> NewTopic:
    """The topic to create for a client that has asked about ``name``."""
    if name == CONSUMER_OFFSETS:
        return NewTopic(
            name=name,
            partitions=settings.offsets_topic_num_partitions,
            replication_factor=settings.offsets_topic_replication_factor,
            configs=(
                ("compression.type", "producer"),
                ("cleanup.policy", "compact"),
                ("segment.bytes", str(settings.offsets_topic_segment_bytes)),
            ),
        )
    if name == TRANSACTION_STATE:
        return NewTopic(
            name=name,
            partitions=settings.transaction_state_log_num_partitions,
            replication_factor=settings.transaction_state_log_replication_factor,
            configs=(
                ("compression.type", "uncompressed"),
                ("cleanup.policy", "compact"),
                ("min.insync.replicas", str(settings.transaction_state_log_min_isr)),
                ("segment.bytes", str(settings.transaction_state_log_segment_bytes)),
                ("unclean.leader.election.enable", "false"),
            ),
        )
    return NewTopic(name=name)
