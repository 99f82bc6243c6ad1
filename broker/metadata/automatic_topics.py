"""How a broker asks for topics that nobody has created: partitions, replicas and configs by the broker's settings."""

from typing import Final, NamedTuple

from broker.metadata.topic_rules import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from config.broker_settings import BrokerSettings

CONTROLLERS_DEFAULT: Final = -1
"""Stands for the setting of the controller that creates the topic."""


class AutomaticTopic(NamedTuple):
    """What a topic is created with that a client, a coordinator or an application needs."""

    partitions: int = CONTROLLERS_DEFAULT
    replication_factor: int = CONTROLLERS_DEFAULT
    configs: tuple[tuple[str, str], ...] = ()
    """Pairs (name, value)."""


def automatic_topic(name: str, settings: BrokerSettings) -> AutomaticTopic:
    """What a topic is created with that a client of the broker with these settings has asked about.

    Topics of coordinators are made as this broker's settings have them. For other topics the broker's own number of
    partitions and replication factor count where they are given, otherwise the controller's.
    """
    if name == CONSUMER_OFFSETS:
        return AutomaticTopic(
            partitions=settings.offsets_topic_num_partitions,
            replication_factor=settings.offsets_topic_replication_factor,
            configs=(
                ("compression.type", "producer"),
                ("cleanup.policy", "compact"),
                ("segment.bytes", str(settings.offsets_topic_segment_bytes)),
            ),
        )
    if name == TRANSACTION_STATE:
        return AutomaticTopic(
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
        return AutomaticTopic(
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
    return AutomaticTopic(
        partitions=settings.num_partitions if "num.partitions" in settings.given else CONTROLLERS_DEFAULT,
        replication_factor=settings.default_replication_factor
        if "default.replication.factor" in settings.given
        else CONTROLLERS_DEFAULT,
    )
