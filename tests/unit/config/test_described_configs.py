"""The answers of DescribeConfigs: values, sources and synonyms as a running Kafka 4.4.0 showed them."""

from config.described import (
    NO_EFFECT,
    BrokerTexts,
    ConfigEntry,
    ConfigSource,
    describe_broker,
    describe_cluster_default,
    describe_topic,
)
from config.log_config import OUR_TOPIC_SETTINGS
from config.values import ConfigType

NOTHING_SAID = BrokerTexts(static={})


def shown(entry: ConfigEntry) -> str:
    """One entry, written in a line: value, then synonyms with their sources."""
    return f"{entry.value} <- " + ", ".join(f"{one.source.name}:{one.name}={one.value}" for one in entry.synonyms)


def topic(broker: BrokerTexts = NOTHING_SAID, **overrides: str) -> dict[str, ConfigEntry]:
    entries = describe_topic({key.replace("_", "."): text for key, text in overrides.items()}, broker)
    return {entry.name: entry for entry in entries}


def broker(static: dict[str, str]) -> dict[str, ConfigEntry]:
    return {entry.name: entry for entry in describe_broker(BrokerTexts(static))}


def test_a_topic_that_says_nothing_shows_the_brokers_values_and_who_gave_them() -> None:
    entries = topic()

    assert list(entries) == sorted(entries)
    assert len(entries) == 39
    assert shown(entries["cleanup.policy"]) == "delete <- DEFAULT:log.cleanup.policy=delete"
    assert shown(entries["min.cleanable.dirty.ratio"]) == "0.5 <- DEFAULT:log.cleaner.min.cleanable.ratio=0.5"
    assert shown(entries["retention.ms"]) == "604800000 <- "
    assert shown(entries["flush.ms"]) == "9223372036854775807 <- "
    assert shown(entries["remote.storage.enable"]) == "false <- "
    assert entries["retention.ms"].source == ConfigSource.DEFAULT


def test_a_topics_own_values_come_first_and_look_as_kafka_prints_them() -> None:
    entries = topic(
        cleanup_policy=" compact , delete", retention_ms="08", preallocate="TRUE", min_cleanable_dirty_ratio=".5"
    )

    assert shown(entries["cleanup.policy"]) == (
        "compact,delete <- DYNAMIC_TOPIC:cleanup.policy=compact,delete, DEFAULT:log.cleanup.policy=delete"
    )
    assert shown(entries["retention.ms"]) == "8 <- DYNAMIC_TOPIC:retention.ms=8"
    assert shown(entries["preallocate"]) == "true <- DYNAMIC_TOPIC:preallocate=true, DEFAULT:log.preallocate=false"
    assert entries["min.cleanable.dirty.ratio"].value == "0.5"
    assert entries["cleanup.policy"].source == ConfigSource.DYNAMIC_TOPIC


def test_the_segment_size_for_tests_is_shown_where_a_topic_has_a_value_of_its_own() -> None:
    entries = topic(internal_segment_bytes="200")

    assert list(entries) == sorted(entries)
    assert shown(entries["internal.segment.bytes"]) == "200 <- DYNAMIC_TOPIC:internal.segment.bytes=200"
    assert entries["internal.segment.bytes"].documentation


def test_a_list_is_told_with_each_entry_once_whoever_has_said_it() -> None:
    told = topic(BrokerTexts({"log.cleanup.policy": "compact,compact"}), cleanup_policy="delete,compact,delete")

    assert shown(told["cleanup.policy"]).startswith("delete,compact <- DYNAMIC_TOPIC:cleanup.policy=delete,compact, ")
    assert topic(BrokerTexts({"log.cleanup.policy": "compact,compact"}))["cleanup.policy"].value == "compact"
    assert broker({"log.dirs": "/a,/b,/a"})["log.dirs"].value == "/a,/b"
    assert broker({"process.roles": "broker,broker"})["process.roles"].value == "broker"


def test_hours_of_the_broker_become_the_topics_milliseconds() -> None:
    entries = topic(BrokerTexts({"log.retention.hours": "5", "log.roll.ms": "7000000", "log.roll.hours": "9"}))

    assert shown(entries["retention.ms"]) == "18000000 <- "
    assert shown(entries["segment.ms"]) == (
        "7000000 <- STATIC_BROKER:log.roll.ms=7000000, STATIC_BROKER:log.roll.hours=9, DEFAULT:log.roll.hours=168"
    )
    assert topic(BrokerTexts({"log.retention.minutes": "-1"}))["retention.ms"].value == "-1"


def test_dynamic_values_stand_before_static_ones() -> None:
    said = BrokerTexts(
        static={"message.max.bytes": "1"},
        dynamic_broker={"message.max.bytes": "3"},
        dynamic_default={"message.max.bytes": "2"},
    )

    assert shown(topic(said)["max.message.bytes"]) == (
        "3 <- DYNAMIC_BROKER:message.max.bytes=3, DYNAMIC_DEFAULT_BROKER:message.max.bytes=2, "
        "STATIC_BROKER:message.max.bytes=1, DEFAULT:message.max.bytes=1048588"
    )


def test_topic_settings_can_be_changed_and_are_no_secrets() -> None:
    entry = topic()["retention.ms"]

    assert (entry.type, entry.is_read_only, entry.is_sensitive) == (ConfigType.LONG, False, False)


def test_the_broker_shows_every_setting_of_kafka_and_ours() -> None:
    entries = broker({"log.cleanup.policy": "compact, delete", "node.id": "3"})

    assert len(entries) == 365
    assert list(entries) == sorted(entries)
    assert shown(entries["log.cleanup.policy"]) == (
        "compact,delete <- STATIC_BROKER:log.cleanup.policy=compact, delete, DEFAULT:log.cleanup.policy=delete"
    )
    assert shown(entries["log.cleaner.io.max.bytes.per.second"]).startswith("1.7976931348623157E308 <- ")
    assert shown(entries["log.retention.ms"]) == "None <- "
    assert shown(entries["log.retention.hours"]) == "168 <- DEFAULT:log.retention.hours=168"
    assert entries["ottla.connection.max.in.flight"].value == "64"
    assert entries["broker.id"].value == entries["node.id"].value == "3"


def test_an_internal_setting_is_shown_once_it_is_given() -> None:
    key = "log.initial.task.delay.ms"
    assert key not in broker({})
    assert shown(broker({key: "5"})[key]) == f"5 <- STATIC_BROKER:{key}=5, DEFAULT:{key}=30000"


def test_our_own_defaults_are_shown_where_they_differ_from_kafkas() -> None:
    entries = broker({})

    assert shown(entries["queued.max.request.bytes"]) == "268435456 <- DEFAULT:queued.max.request.bytes=268435456"
    assert entries["listeners"].value == "PLAINTEXT://127.0.0.1:9092"
    assert entries["log.dirs"].value == "./data"


def test_hours_do_not_name_the_milliseconds_that_win_over_them() -> None:
    entries = broker({"log.roll.ms": "7000000", "log.roll.hours": "9"})

    assert shown(entries["log.roll.hours"]) == "9 <- STATIC_BROKER:log.roll.hours=9, DEFAULT:log.roll.hours=168"


def test_a_listeners_own_setting_is_shown_with_what_it_overrides() -> None:
    entries = broker({"listener.name.plaintext.max.connections": "55", "max.connections": "66"})

    assert shown(entries["listener.name.plaintext.max.connections"]) == (
        "55 <- STATIC_BROKER:listener.name.plaintext.max.connections=55, STATIC_BROKER:max.connections=66, "
        "DEFAULT:max.connections=2147483647"
    )
    assert (
        shown(entries["max.connections"])
        == "66 <- STATIC_BROKER:max.connections=66, DEFAULT:max.connections=2147483647"
    )


def test_a_secret_is_never_shown() -> None:
    entry = broker({"delegation.token.secret.key": "geheim"})["delegation.token.secret.key"]

    assert entry.is_sensitive
    assert shown(entry) == "None <- STATIC_BROKER:delegation.token.secret.key=None"


def test_a_listeners_key_of_a_sasl_mechanism_is_the_setting_itself_and_secret() -> None:
    key = "listener.name.plaintext.plain.sasl.jaas.config"
    (entry,) = (one for one in describe_broker(BrokerTexts({}, dynamic_broker={key: "geheim"})) if one.name == key)

    assert (entry.type, entry.value, entry.is_sensitive) == (ConfigType.PASSWORD, None, True)
    assert entry.source == ConfigSource.DYNAMIC_BROKER


def test_what_can_be_changed_at_run_time_is_not_read_only() -> None:
    entries = broker({})

    assert not entries["log.retention.ms"].is_read_only
    assert entries["log.retention.hours"].is_read_only
    assert entries["ottla.records.validation"].is_read_only


def test_every_setting_has_documentation_that_is_ours() -> None:
    entries = broker({})

    assert entries["num.partitions"].documentation == "Partitions of a topic that is created without a number."
    assert entries["background.threads"].documentation == NO_EFFECT
    assert topic()["remote.storage.enable"].documentation == NO_EFFECT
    assert all(entry.documentation for entry in (*entries.values(), *topic().values()))
    assert topic()["segment.bytes"].documentation == entries["log.segment.bytes"].documentation


def test_the_clusters_defaults_are_only_what_was_said_dynamically() -> None:
    (entry,) = describe_cluster_default(
        BrokerTexts(static={"min.insync.replicas": "3"}, dynamic_default={"min.insync.replicas": "1"})
    )

    assert shown(entry) == "1 <- DYNAMIC_DEFAULT_BROKER:min.insync.replicas=1"
    assert entry.source == ConfigSource.DYNAMIC_DEFAULT_BROKER


def test_topic_settings_of_ours_are_told_as_kafkas_are() -> None:
    entries = topic(BrokerTexts({"ottla.archive.max.bytes": "5"}), ottla_archive_group=" archive.orders ")

    assert shown(entries["ottla.archive.group"]) == "archive.orders <- DYNAMIC_TOPIC:ottla.archive.group=archive.orders"
    assert shown(entries["ottla.archive.max.bytes"]) == (
        "5 <- STATIC_BROKER:ottla.archive.max.bytes=5, DEFAULT:ottla.archive.max.bytes=-1"
    )
    assert shown(topic()["ottla.archive.group"]) == " <- "
    assert {key: entries[key].documentation for key in OUR_TOPIC_SETTINGS} == OUR_TOPIC_SETTINGS
