"""Topic settings: Kafka's defaults, a topic's own values over them, and what is refused."""

import pytest

from config.errors import InvalidConfig, UnknownConfig
from config.log_config import (
    OUR_TOPIC_SETTINGS,
    TOPIC_SETTINGS,
    LogConfig,
    validate_topic_overrides,
)


def test_the_defaults_are_kafkas() -> None:
    config = LogConfig()

    assert (config.segment_bytes, config.retention_ms, config.max_message_bytes) == (1 << 30, 604_800_000, 1_048_588)
    assert config.cleanup_policy == {"delete"}
    assert config.deletes
    assert not config.is_compacted


def test_there_are_37_topic_settings_of_kafka_and_two_of_ours_in_alphabetical_order() -> None:
    names = list(TOPIC_SETTINGS)

    assert len(names) == 37 + len(OUR_TOPIC_SETTINGS) == 39
    assert names == sorted(names)


def test_every_default_is_among_the_values_allowed() -> None:
    for key, declaration in TOPIC_SETTINGS.items():
        assert declaration.default is not None
        declaration.parse(key, declaration.default)


def test_a_topics_own_values_lie_over_the_brokers() -> None:
    broker = LogConfig(retention_ms=1000, segment_bytes=2_000_000)

    topic = broker.with_overrides({"retention.ms": " -1 ", "cleanup.policy": "compact , delete", "preallocate": "TRUE"})

    assert (topic.retention_ms, topic.segment_bytes, topic.preallocate) == (-1, 2_000_000, True)
    assert topic.is_compacted
    assert topic.deletes


def test_the_segment_size_for_tests_wins_and_has_no_least_value() -> None:
    config = LogConfig().with_overrides({"internal.segment.bytes": "100", "segment.bytes": "2000000"})

    assert config.segment_bytes == 100
    assert validate_topic_overrides({"internal.segment.bytes": "100"}) == LogConfig(segment_bytes=100)
    with pytest.raises(InvalidConfig, match="expected a whole number from 1 to 2147483647"):
        validate_topic_overrides({"internal.segment.bytes": "0"})


def test_a_stored_name_that_is_no_topic_setting_is_passed_over() -> None:
    assert LogConfig().with_overrides({"from.the.future": "1"}) == LogConfig()


def test_configs_of_equal_values_are_one_key() -> None:
    own = {"retention.ms": "1000", "cleanup.policy": "delete,compact"}

    assert {LogConfig(): 0, LogConfig().with_overrides(own): 1}[LogConfig().with_overrides(dict(own))] == 1
    assert LogConfig().with_overrides(own) != LogConfig()


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ({"retention.ms": "soon"}, "retention.ms is 'soon', expected a whole number from -1 to 9223372036854775807"),
        (
            {"segment.bytes": "1048575"},
            "segment.bytes is '1048575', expected a whole number from 1048576 to 2147483647",
        ),
        ({"compression.gzip.level": "0"}, "compression.gzip.level is '0', expected a whole number from 1 to 9, or -1"),
        ({"min.cleanable.dirty.ratio": "1.1"}, "min.cleanable.dirty.ratio is '1.1', expected a number from 0 to 1"),
        (
            {"compression.type": "brotli"},
            "compression.type is 'brotli', expected one of uncompressed, zstd, lz4, snappy, gzip, producer",
        ),
        (
            {"cleanup.policy": "drop"},
            "cleanup.policy is 'drop', expected a comma-separated list of any of compact, delete",
        ),
        ({"preallocate": "yes"}, "preallocate is 'yes', expected true or false"),
        ({"retention.ms": None}, "retention.ms is no value, expected a value: a topic setting cannot be null"),
        (
            {"retention.mss": "5"},
            "retention.mss is not the name of a topic setting (its value is '5'); did you mean retention.ms?",
        ),
        (
            {"message.format.version": "2.8"},
            "message.format.version is not the name of a topic setting (its value is '2.8')",
        ),
        (
            {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"},
            "min.compaction.lag.ms is '10', expected at most max.compaction.lag.ms, which is 9",
        ),
        (
            {"remote.storage.enable": "true"},
            "remote.storage.enable is 'true', expected false: there is no tiered storage",
        ),
        (
            {"ottla.archive.group": "archive\norders"},
            "ottla.archive.group is 'archive\norders', expected the name of a group, of at most 32767 bytes without "
            "control characters",
        ),
        (
            {"ottla.archive.group": "\udcff"},
            "ottla.archive.group is '\udcff', expected the name of a group, of at most 32767 bytes without control "
            "characters",
        ),
        (
            {"ottla.archive.max.bytes": "-2"},
            "ottla.archive.max.bytes is '-2', expected a whole number from -1 to 9223372036854775807",
        ),
        (
            {"ottla.archive.max.bytes": "10GB"},
            "ottla.archive.max.bytes is '10GB', expected a whole number from -1 to 9223372036854775807",
        ),
        (
            {"ottla.archive.groups": "a"},
            "ottla.archive.groups is not the name of a topic setting (its value is 'a'); did you mean "
            "ottla.archive.group?",
        ),
    ],
)
def test_a_wrong_topic_setting_is_refused_in_one_sentence(overrides: dict[str, str | None], sentence: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        validate_topic_overrides(overrides)

    assert str(refused.value) == sentence
    assert refused.value.key in overrides


def test_a_client_that_misspells_a_setting_is_told_so_in_kafkas_words_first() -> None:
    with pytest.raises(UnknownConfig) as refused:
        validate_topic_overrides({"retention.mss": "5"})

    assert refused.value.answer == "Unknown topic config name: retention.mss (did you mean retention.ms?)"


def test_two_values_are_compared_even_if_one_is_the_brokers() -> None:
    with pytest.raises(InvalidConfig, match=r"at most max\.compaction\.lag\.ms, which is 9"):
        validate_topic_overrides({"min.compaction.lag.ms": "10"}, LogConfig(max_compaction_lag_ms=9))


def test_an_empty_cleanup_policy_and_one_named_twice_are_accepted_as_kafka_does() -> None:
    assert validate_topic_overrides({"cleanup.policy": ""}).cleanup_policy == frozenset()
    assert validate_topic_overrides({"cleanup.policy": "compact,compact"}).cleanup_policy == {"compact"}


def test_any_group_may_archive_that_can_commit_and_none_by_default() -> None:
    def group(name: str) -> str:
        return validate_topic_overrides({"ottla.archive.group": name}).ottla_archive_group

    assert LogConfig().ottla_archive_group == group("") == group("  ") == ""
    assert group(" archive.größe 1 ") == "archive.größe 1"
    assert group("ü" * 16_383)
    with pytest.raises(InvalidConfig, match="of at most 32767 bytes"):
        group("ü" * 16_384)
