"""The settings of one topic's log: the topic's own configs, over the broker's values."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from config.declared import Declaration, Settings, field_name, setting
from config.errors import InvalidConfig, UnknownConfig
from config.similar import most_similar
from config.values import ConfigType

_NO_LIMIT: Final = "9223372036854775807"
_CODECS: Final = "[uncompressed, zstd, lz4, snappy, gzip, producer]"
_REPLICA_PAIRS: Final = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."


class LogConfig(Settings):
    """One value for each of the 37 topic settings of Kafka 4.4.0, and of ours; the defaults are Kafka's.

    Sizes are bytes and times milliseconds where the name says so. -1 in ``retention_ms``, ``retention_bytes`` and
    ``ottla_archive_max_bytes`` means no limit.
    """

    cleanup_policy: frozenset[str] = setting(ConfigType.LIST, "delete", "[compact, delete]", frozenset)
    compression_gzip_level: int = setting(ConfigType.INT, "-1", "[1,...,9] or -1")
    compression_lz4_level: int = setting(ConfigType.INT, "9", "[1,...,17]")
    compression_type: str = setting(ConfigType.STRING, "producer", _CODECS)
    compression_zstd_level: int = setting(ConfigType.INT, "3", "[-131072,...,22]")
    delete_retention_ms: int = setting(ConfigType.LONG, "86400000", "[0,...]")
    errors_deadletterqueue_group_enable: bool = setting(ConfigType.BOOLEAN, "false")
    file_delete_delay_ms: int = setting(ConfigType.LONG, "60000", "[0,...]")
    flush_messages: int = setting(ConfigType.LONG, _NO_LIMIT, "[1,...]")
    flush_ms: int = setting(ConfigType.LONG, _NO_LIMIT, "[0,...]")
    follower_replication_throttled_replicas: tuple[str, ...] = setting(ConfigType.LIST, "", _REPLICA_PAIRS)
    index_interval_bytes: int = setting(ConfigType.INT, "4096", "[0,...]")
    leader_replication_throttled_replicas: tuple[str, ...] = setting(ConfigType.LIST, "", _REPLICA_PAIRS)
    local_retention_bytes: int = setting(ConfigType.LONG, "-2", "[-2,...]")
    local_retention_ms: int = setting(ConfigType.LONG, "-2", "[-2,...]")
    max_compaction_lag_ms: int = setting(ConfigType.LONG, _NO_LIMIT, "[1,...]")
    max_decompressed_message_bytes: int = setting(ConfigType.INT, "2147483639", "[1,...,2147483639]")
    """Bytes of a record in a compressed batch, at most, without its length field."""
    max_message_bytes: int = setting(ConfigType.INT, "1048588", "[0,...]")
    message_timestamp_after_max_ms: int = setting(ConfigType.LONG, "3600000", "[0,...]")
    message_timestamp_before_max_ms: int = setting(ConfigType.LONG, _NO_LIMIT, "[0,...]")
    message_timestamp_type: str = setting(ConfigType.STRING, "CreateTime", "[CreateTime, LogAppendTime]")
    min_cleanable_dirty_ratio: float = setting(ConfigType.DOUBLE, "0.5", "[0,...,1]")
    min_compaction_lag_ms: int = setting(ConfigType.LONG, "0", "[0,...]")
    min_insync_replicas: int = setting(ConfigType.INT, "1", "[1,...]")
    ottla_archive_group: str = setting(ConfigType.STRING, "", "group name")
    """The group that retention waits for; empty: no group."""
    ottla_archive_max_bytes: int = setting(ConfigType.LONG, "-1", "[-1,...]")
    preallocate: bool = setting(ConfigType.BOOLEAN, "false")
    remote_copy_lag_bytes: int = setting(ConfigType.LONG, "-1", "[-1,...]")
    remote_copy_lag_ms: int = setting(ConfigType.LONG, "0", "[-1,...]")
    remote_log_copy_disable: bool = setting(ConfigType.BOOLEAN, "false")
    remote_log_delete_on_disable: bool = setting(ConfigType.BOOLEAN, "false")
    remote_storage_enable: bool = setting(ConfigType.BOOLEAN, "false")
    retention_bytes: int = setting(ConfigType.LONG, "-1")
    retention_ms: int = setting(ConfigType.LONG, "604800000", "[-1,...]")
    segment_bytes: int = setting(ConfigType.INT, "1073741824", "[1048576,...]")
    segment_index_bytes: int = setting(ConfigType.INT, "10485760", "[4,...]")
    segment_jitter_ms: int = setting(ConfigType.LONG, "0", "[0,...]")
    segment_ms: int = setting(ConfigType.LONG, "604800000", "[1,...]")
    unclean_leader_election_enable: bool = setting(ConfigType.BOOLEAN, "false")

    @property
    def is_compacted(self) -> bool:
        """Whether older values of a key are removed, so that every record must have a key."""
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        """Whether old segments are deleted by time and size."""
        return "delete" in self.cleanup_policy

    def required_in_sync(self, replicas: int) -> int:
        """How many of so many replicas must be in sync for a record to be committed, by ``min.insync.replicas``.

        Never more than there are: Kafka 4.4.0 takes acks=all for a topic of one replica whatever the setting.
        """
        return min(self.min_insync_replicas, replicas)

    def with_overrides(self, overrides: Mapping[str, str]) -> "LogConfig":
        """These values with a topic's own put over them, as texts under Kafka's names.

        A name that is no topic setting is passed over, since a data directory may come from another version.

        Raises:
            InvalidConfig: A text is not of its setting's type, or its value is not allowed.
        """
        known = tuple((key, text) for key, text in overrides.items() if topic_setting(key))
        return _put_over(self, known) if known else self


@lru_cache
def _put_over(config: LogConfig, overrides: tuple[tuple[str, str], ...]) -> LogConfig:
    """Remembered, so that the partitions of a topic share one."""
    texts = dict(overrides)
    segment_bytes = texts.pop(INTERNAL_SEGMENT_BYTES, None)
    values = {field_name(key): TOPIC_SETTINGS[key].parse(key, text) for key, text in texts.items()}
    if segment_bytes is not None:
        values["segment_bytes"] = INTERNAL_TOPIC_SETTINGS[INTERNAL_SEGMENT_BYTES].parse(
            INTERNAL_SEGMENT_BYTES, segment_bytes
        )
    return config.replace(**values)


TOPIC_SETTINGS: Final[Mapping[str, Declaration]] = LogConfig.declarations
"""Every topic setting by Kafka's name, in alphabetical order, as DescribeConfigs lists them."""

INTERNAL_SEGMENT_BYTES: Final = "internal.segment.bytes"
INTERNAL_TOPIC_SETTINGS: Final = {INTERNAL_SEGMENT_BYTES: Declaration(ConfigType.INT, None, "[1,...]", None)}
"""Kafka's topic setting for tests, which no list of settings has: it wins over ``segment.bytes``, and may be below 1 MB
(KIP-1161)."""

OUR_TOPIC_SETTINGS: Final[Mapping[str, str]] = {
    "ottla.archive.group": "The consumer group that archives the topic: retention, by time and by size, waits until it "
    "has committed what would be deleted; empty is no group.",
    "ottla.archive.max.bytes": "The most bytes of each partition, in whole segments, that are kept for that group "
    "beyond what retention would have kept; the oldest go first, and -1 is no limit but the disk.",
}
"""The help texts of the topic settings that Kafka does not have."""


def topic_setting(key: str) -> Declaration | None:
    """The topic setting of this name, internal or not; None if there is none."""
    return TOPIC_SETTINGS.get(key) or INTERNAL_TOPIC_SETTINGS.get(key)


def validate_topic_overrides(overrides: Mapping[str, str | None], defaults: LogConfig | None = None) -> LogConfig:
    """Check the new configs of a topic, alone and together, and return the resulting settings.

    Args:
        overrides: Texts under Kafka's names, as CreateTopics and AlterConfigs carry them.
        defaults: The broker's values for configs that the topic does not have; Kafka's defaults if None.

    Raises:
        InvalidConfig: A name does not exist, a value is null, of the wrong type or not allowed, or two values
            contradict each other.
    """
    texts: dict[str, str] = {}
    for key, text in overrides.items():
        if topic_setting(key) is None:
            raise UnknownConfig(key, text, most_similar(key, TOPIC_SETTINGS), "topic")
        if text is None:
            raise InvalidConfig(key, None, "a value: a topic setting cannot be null")
        texts[key] = text
    config = (defaults or LogConfig()).with_overrides(texts)
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise InvalidConfig(
            "min.compaction.lag.ms",
            str(config.min_compaction_lag_ms),
            f"at most max.compaction.lag.ms, which is {config.max_compaction_lag_ms}",
            f"conflict topic config setting min.compaction.lag.ms ({config.min_compaction_lag_ms}) > "
            f"max.compaction.lag.ms ({config.max_compaction_lag_ms})",
        )
    if config.remote_storage_enable:
        raise InvalidConfig(
            "remote.storage.enable",
            texts["remote.storage.enable"],
            "false: there is no tiered storage",
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage. remote.storage.enable can only be false.",
        )
    return config
