"""How the topics of the coordinators are created: partitions, replicas and configs by the broker's settings."""

from typing import NamedTuple

from broker.metadata.topic_rules import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from config.broker_settings import BrokerSettings


class InternalTopic(NamedTuple):
    """What a topic of a coordinator is created with."""

    partitions: int
    replication_factor: int
    configs: tuple[tuple[str, str], ...]
    """Pairs (name, value)."""


def internal_topic(name: str, settings: BrokerSettings) -> InternalTopic | None:
    """What the topic is created with; None for a topic of no coordinator."""
    if name == CONSUMER_OFFSETS:
        return InternalTopic(
            partitions=settings.offsets_topic_num_partitions,
            replication_factor=settings.offsets_topic_replication_factor,
            configs=(
                ("compression.type", "producer"),
                ("cleanup.policy", "compact"),
                ("segment.bytes", str(settings.offsets_topic_segment_bytes)),
            ),
        )
    if name == TRANSACTION_STATE:
        return InternalTopic(
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
    if name == SHARE_GROUP_STATE:
        return InternalTopic(
            partitions=settings.share_coordinator_state_topic_num_partitions,
            replication_factor=settings.share_coordinator_state_topic_replication_factor,
            configs=(
                ("compression.type", "producer"),
                ("cleanup.policy", "delete"),
                ("min.insync.replicas", str(settings.share_coordinator_state_topic_min_isr)),
                ("segment.bytes", str(settings.share_coordinator_state_topic_segment_bytes)),
                ("retention.ms", "-1"),
            ),
        )
    return None
