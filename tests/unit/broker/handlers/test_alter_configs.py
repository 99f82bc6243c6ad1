"""AlterConfigs and IncrementalAlterConfigs through the codec; codes and values are those of Apache Kafka 4.4.0."""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from config.errors import SettingsError
from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
)
from tests.support.batches import produced, record
from tests.support.broker import InProcessBroker
from tests.support.requests import produce_request

Incremental = IncrementalAlterConfigsRequest
Whole = AlterConfigsRequest
Change = tuple[str, int, str | None]

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
DYNAMIC_TOPIC, DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC, DEFAULT = 1, 2, 3, 4, 5
OF_CLIENT_METRICS, OF_GROUP = 7, 8


def resource(kind: int, name: str, *changes: Change) -> Incremental.Resource:
    """Changes of one resource."""
    return Incremental.Resource(
        resource_type=kind,
        resource_name=name,
        configs=[
            Incremental.Resource.Config(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ],
    )


def ask(
    broker: InProcessBroker, *resources: Incremental.Resource, version: int = 1, validate_only: bool = False
) -> list[E]:
    """Ask for changes, and return the code of each resource."""
    answer = broker.ask(Incremental(resources=list(resources), validate_only=validate_only), version)
    named = [(asked.resource_type, asked.resource_name) for asked in resources]
    assert [(result.resource_type, result.resource_name) for result in answer.responses] == named
    assert all(bool(result.error_message) == bool(result.error_code) for result in answer.responses)
    return [result.error_code for result in answer.responses]


def alter(broker: InProcessBroker, kind: int, name: str, *changes: Change, **fields: Any) -> E:
    """Ask for changes of one resource, and return its code."""
    (code,) = ask(broker, resource(kind, name, *changes), **fields)
    return code


def replace(
    broker: InProcessBroker,
    kind: int,
    name: str,
    *configs: tuple[str, str | None],
    version: int = 2,
    validate_only: bool = False,
) -> E:
    """Ask for all the configs of one resource, and return its code."""
    asked = Whole.Resource(
        resource_type=kind,
        resource_name=name,
        configs=[Whole.Resource.Config(name=key, value=value) for key, value in configs],
    )
    (result,) = broker.ask(Whole(resources=[asked], validate_only=validate_only), version).responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    assert bool(result.error_message) == bool(result.error_code)
    return E(result.error_code)


def described(broker: InProcessBroker, kind: int, name: str) -> dict[str, DescribeConfigsResponse.Result.Config]:
    """The configs of a resource by their names."""
    asked = DescribeConfigsRequest.Resource(resource_type=kind, resource_name=name, configuration_keys=None)
    (result,) = broker.ask(DescribeConfigsRequest(resources=[asked], include_synonyms=True), 4).results
    assert result.error_code == E.NONE
    return {config.name: config for config in result.configs}


def value(broker: InProcessBroker, kind: int, name: str, key: str) -> tuple[str | None, int]:
    """One config and its source."""
    config = described(broker, kind, name)[key]
    return config.value, config.config_source


def own(broker: InProcessBroker, kind: int, name: str, source: int) -> dict[str, str | None]:
    """What a resource has from one source."""
    configs = described(broker, kind, name)
    return {key: config.value for key, config in configs.items() if config.config_source == source}


# Operations


@serves(Incremental)
@every_version(Incremental)
def test_a_topic_gets_and_loses_configs(broker: InProcessBroker, version: int) -> None:
    broker.create_topic("orders")

    changes = ("retention.ms", SET, "1000"), ("flush.ms", SET, "7")
    assert alter(broker, TOPIC, "orders", *changes, version=version) == E.NONE
    assert own(broker, TOPIC, "orders", DYNAMIC_TOPIC) == {"retention.ms": "1000", "flush.ms": "7"}

    assert alter(broker, TOPIC, "orders", ("retention.ms", DELETE, None), version=version) == E.NONE
    assert own(broker, TOPIC, "orders", DYNAMIC_TOPIC) == {"flush.ms": "7"}


def test_lists_are_added_to_and_taken_from(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    for operation, parts, expected in (
        (APPEND, "compact", ("delete,compact", DYNAMIC_TOPIC)),  # to the default, since nothing was set
        (APPEND, "compact,delete", ("delete,compact", DYNAMIC_TOPIC)),
        (SUBTRACT, "delete", ("compact", DYNAMIC_TOPIC)),
        (SUBTRACT, "nothing", ("compact", DYNAMIC_TOPIC)),
        (SUBTRACT, "compact", ("", DYNAMIC_TOPIC)),
        (APPEND, "delete", ("delete", DYNAMIC_TOPIC)),
        (DELETE, None, ("delete", DEFAULT)),
    ):
        assert alter(broker, TOPIC, "orders", ("cleanup.policy", operation, parts)) == E.NONE
        assert value(broker, TOPIC, "orders", "cleanup.policy") == expected


@serves(Whole)
@every_version(Whole)
def test_alter_configs_replaces_all_that_a_topic_has(broker: InProcessBroker, version: int) -> None:
    broker.create_topic("orders", retention_ms=1000, flush_ms=7)

    assert replace(broker, TOPIC, "orders", ("flush.ms", "8"), ("flush.messages", "9"), version=version) == E.NONE
    assert own(broker, TOPIC, "orders", DYNAMIC_TOPIC) == {"flush.ms": "8", "flush.messages": "9"}

    assert replace(broker, TOPIC, "orders", version=version) == E.NONE
    assert own(broker, TOPIC, "orders", DYNAMIC_TOPIC) == {}


def test_what_is_only_validated_is_not_changed(broker: InProcessBroker) -> None:
    broker.create_topic("orders", flush_ms=7)

    assert alter(broker, TOPIC, "orders", ("retention.ms", SET, "1000"), validate_only=True) == E.NONE
    assert alter(broker, TOPIC, "orders", ("retention.ms", SET, "-2"), validate_only=True) == E.INVALID_CONFIG
    assert alter(broker, LOGGER, "1", ("root", SET, "FATAL"), validate_only=True) == E.NONE
    assert replace(broker, TOPIC, "orders", ("retention.ms", "1000"), validate_only=True) == E.NONE
    assert replace(broker, TOPIC, "orders", ("retention.ms", "x"), validate_only=True) == E.INVALID_CONFIG

    assert own(broker, TOPIC, "orders", DYNAMIC_TOPIC) == {"flush.ms": "7"}
    assert described(broker, LOGGER, "1")["root"].value != "FATAL"


def test_a_resource_is_changed_entirely_or_not_at_all_and_the_others_regardless(broker: InProcessBroker) -> None:
    broker.create_topic("orders")

    codes = ask(
        broker,
        resource(TOPIC, "orders", ("retention.ms", SET, "1000"), ("segment.bytes", SET, "12")),
        resource(TOPIC, "nowhere", ("retention.ms", SET, "1000")),
        resource(LOGGER, "1", ("broker.none", SET, "INFO")),
        resource(GROUP, "workers", ("consumer.session.timeout.ms", SET, "50000")),
        resource(BROKER, "1", ("num.partitions", SET, "3")),
    )

    assert codes == [E.INVALID_CONFIG, E.UNKNOWN_TOPIC_OR_PARTITION, E.INVALID_CONFIG, E.NONE, E.INVALID_REQUEST]
    assert own(broker, TOPIC, "orders", DYNAMIC_TOPIC) == {}
    assert own(broker, GROUP, "workers", OF_GROUP) == {"consumer.session.timeout.ms": "50000"}


def test_a_request_for_nothing_is_answered_with_nothing(broker: InProcessBroker) -> None:
    assert ask(broker) == []
    assert broker.ask(Whole(resources=[]), 2).responses == []


# Mistakes


@serves(
    Incremental,
    E.INVALID_REQUEST,
    E.INVALID_CONFIG,
    E.UNKNOWN_TOPIC_OR_PARTITION,
    E.INVALID_TOPIC_EXCEPTION,
    versions=[1],
)
@pytest.mark.parametrize(
    ("kind", "name", "changes", "code"),
    [
        (TOPIC, "orders", [("nope", SET, "1")], E.INVALID_CONFIG),
        (TOPIC, "orders", [("nope", APPEND, "1")], E.INVALID_CONFIG),
        (TOPIC, "orders", [("nope", DELETE, None)], E.NONE),
        (TOPIC, "orders", [("retention.ms", SET, "")], E.INVALID_CONFIG),
        (TOPIC, "orders", [("retention.ms", APPEND, "1")], E.INVALID_CONFIG),
        (TOPIC, "orders", [("retention.ms", SUBTRACT, "1")], E.INVALID_CONFIG),
        (TOPIC, "orders", [("cleanup.policy", APPEND, "nope")], E.INVALID_CONFIG),
        (TOPIC, "orders", [("retention.ms", SET, None)], E.INVALID_REQUEST),
        (TOPIC, "orders", [("cleanup.policy", APPEND, None)], E.INVALID_REQUEST),
        (TOPIC, "orders", [("retention.ms", SET, "1"), ("retention.ms", SET, "2")], E.INVALID_REQUEST),
        (TOPIC, "orders", [("retention.ms", 9, "1")], E.INVALID_REQUEST),
        (TOPIC, "orders", [("min.compaction.lag.ms", SET, "9"), ("max.compaction.lag.ms", SET, "8")], E.INVALID_CONFIG),
        (TOPIC, "orders", [("remote.storage.enable", SET, "true")], E.INVALID_CONFIG),
        (TOPIC, "nowhere", [("retention.ms", SET, "1")], E.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "nowhere", [], E.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "nowhere", [("nope", SET, "1")], E.INVALID_CONFIG),
        (TOPIC, "", [("retention.ms", SET, "1")], E.INVALID_REQUEST),
        (TOPIC, "a/b", [("retention.ms", SET, "1")], E.INVALID_TOPIC_EXCEPTION),
        (BROKER, "1", [("num.partitions", SET, "3")], E.INVALID_REQUEST),
        (BROKER, "1", [("num.partitions", DELETE, None)], E.NONE),
        (BROKER, "1", [("num.io.threads", SET, "x")], E.INVALID_REQUEST),
        (BROKER, "1", [("num.io.threads", SET, "0")], E.INVALID_REQUEST),
        (BROKER, "1", [("num.io.threads", SET, "17")], E.INVALID_REQUEST),
        (BROKER, "1", [("num.io.threads", SET, "3")], E.INVALID_REQUEST),
        (BROKER, "1", [("num.io.threads", APPEND, "9")], E.INVALID_CONFIG),
        (BROKER, "1", [("my.own", APPEND, "9")], E.INVALID_CONFIG),
        (BROKER, "1", [("log.retention.ms", SET, "0")], E.INVALID_REQUEST),
        (BROKER, "1", [("log.roll.ms", SET, "0")], E.INVALID_REQUEST),
        (BROKER, "1", [("log.cleaner.threads", SET, "0")], E.INVALID_REQUEST),
        (BROKER, "1", [("max.connections", SET, "0")], E.INVALID_REQUEST),
        (BROKER, "1", [("max.connections.per.ip", SET, "0")], E.INVALID_REQUEST),
        (BROKER, "1", [("max.connections.per.ip.overrides", SET, "127.0.0.1:x")], E.INVALID_REQUEST),
        (BROKER, "1", [("listener.name.plaintext.max.connections", SET, "x")], E.INVALID_REQUEST),
        (BROKER, "1", [("ssl.keystore.location", SET, "/x")], E.INVALID_REQUEST),
        (BROKER, "1", [("metric.reporters", SET, "my.Reporter")], E.INVALID_REQUEST),
        (BROKER, "1", [("group.consumer.assignment.interval.ms", SET, "999999")], E.INVALID_REQUEST),
        (BROKER, "", [("listeners", SET, "PLAINTEXT://:1")], E.INVALID_REQUEST),
        (BROKER, "", [("listener.name.plaintext.num.io.threads", SET, "4")], E.INVALID_REQUEST),
        (BROKER, "7", [("log.retention.ms", SET, "1")], E.INVALID_REQUEST),
        (BROKER, "abc", [("log.retention.ms", SET, "1")], E.INVALID_REQUEST),
        (LOGGER, "1", [("root", SET, "LOUD")], E.INVALID_CONFIG),
        (LOGGER, "1", [("root", SET, "info")], E.INVALID_CONFIG),
        (LOGGER, "1", [("no.such.logger", SET, "INFO")], E.INVALID_CONFIG),
        (LOGGER, "1", [("no.such.logger", DELETE, None)], E.INVALID_CONFIG),
        (LOGGER, "1", [("root", APPEND, "INFO")], E.INVALID_REQUEST),
        (LOGGER, "1", [("root", SUBTRACT, "INFO")], E.INVALID_REQUEST),
        (LOGGER, "1", [("root", DELETE, None)], E.INVALID_REQUEST),
        (LOGGER, "1", [("root", SET, None)], E.INVALID_REQUEST),
        (LOGGER, "2", [("root", SET, "INFO")], E.INVALID_REQUEST),
        (LOGGER, "", [("root", SET, "INFO")], E.INVALID_REQUEST),
        (GROUP, "", [("consumer.session.timeout.ms", SET, "50000")], E.INVALID_REQUEST),
        (GROUP, "g", [("nope", SET, "1")], E.INVALID_CONFIG),
        (GROUP, "g", [("consumer.session.timeout.ms", SET, "44999")], E.INVALID_CONFIG),
        (GROUP, "g", [("consumer.session.timeout.ms", SET, "60001")], E.INVALID_CONFIG),
        (GROUP, "g", [("streams.num.standby.replicas", SET, "3")], E.INVALID_CONFIG),
        (GROUP, "g", [("share.auto.offset.reset", SET, "by_duration:PT1H")], E.NONE),
        (GROUP, "g", [("share.auto.offset.reset", SET, "by_duration:-PT1H")], E.INVALID_CONFIG),
        (GROUP, "g", [("errors.deadletterqueue.topic.name", SET, "__dlq")], E.INVALID_CONFIG),
        (GROUP, "g", [("streams.assignor.name", SET, "sticky")], E.NONE),
        (GROUP, "g", [("streams.assignor.name", SET, "nope")], E.INVALID_CONFIG),
        (GROUP, "g", [("streams.rack.aware.assignment.tags", SET, "zone,zone")], E.INVALID_CONFIG),
        (GROUP, "g", [("streams.num.warmup.replicas", SET, "21")], E.INVALID_CONFIG),
        (CLIENT_METRICS, "", [("interval.ms", SET, "1000")], E.INVALID_REQUEST),
        (CLIENT_METRICS, "s", [("nope", SET, "1")], E.INVALID_REQUEST),
        (CLIENT_METRICS, "s", [("interval.ms", SET, "99")], E.INVALID_REQUEST),
        (CLIENT_METRICS, "s", [("interval.ms", SET, "x")], E.INVALID_CONFIG),
        (CLIENT_METRICS, "s", [("match", SET, "nope=x")], E.INVALID_CONFIG),
        (CLIENT_METRICS, "s", [("match", SET, "client_id=[x")], E.INVALID_CONFIG),
        (CLIENT_METRICS, "s", [("metrics", APPEND, "x")], E.INVALID_CONFIG),
        (0, "x", [("a", SET, "b")], E.INVALID_REQUEST),
        (64, "x", [("a", SET, "b")], E.INVALID_REQUEST),
    ],
)
def test_each_mistake_has_its_code(
    broker: InProcessBroker, kind: int, name: str, changes: Sequence[Change], code: E
) -> None:
    broker.create_topic("orders")
    # So that each of these tests sees all the codes that the mark above speaks of.
    for other, bad in ((TOPIC, ""), (TOPIC, "a/b"), (TOPIC, "nowhere")):
        alter(broker, other, bad, ("retention.ms", SET, "1"))
    alter(broker, TOPIC, "orders", ("retention.ms", SET, "x"))

    assert alter(broker, kind, name, *changes) == code


@serves(
    Whole, E.INVALID_REQUEST, E.INVALID_CONFIG, E.UNKNOWN_TOPIC_OR_PARTITION, E.INVALID_TOPIC_EXCEPTION, versions=[2]
)
def test_alter_configs_makes_the_same_mistakes(broker: InProcessBroker) -> None:
    broker.create_topic("orders", retention_ms=1000)
    for kind, name, configs, code in (
        (TOPIC, "orders", [("retention.ms", None)], E.INVALID_REQUEST),
        (TOPIC, "orders", [("retention.ms", "1"), ("retention.ms", "2")], E.INVALID_REQUEST),
        (TOPIC, "orders", [("nope", "1")], E.INVALID_CONFIG),
        (TOPIC, "nowhere", [("retention.ms", "1")], E.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a/b", [("retention.ms", "1")], E.INVALID_TOPIC_EXCEPTION),
        (BROKER, "1", [("num.partitions", "2")], E.INVALID_REQUEST),
        (LOGGER, "1", [("root", "INFO")], E.INVALID_REQUEST),
        (GROUP, "g", [("consumer.heartbeat.interval.ms", "1")], E.INVALID_CONFIG),
        (0, "x", [("a", "b")], E.INVALID_REQUEST),
    ):
        assert replace(broker, kind, name, *configs) == code, (kind, name, configs)
    assert own(broker, TOPIC, "orders", DYNAMIC_TOPIC) == {"retention.ms": "1000"}


def test_a_resource_that_comes_twice_is_refused_twice(broker: InProcessBroker) -> None:
    broker.create_topic("orders")

    codes = ask(
        broker,
        resource(TOPIC, "orders", ("retention.ms", SET, "1")),
        resource(BROKER, "1", ("log.retention.bytes", SET, "9")),
        resource(TOPIC, "orders", ("flush.ms", SET, "1")),
    )

    assert codes == [E.INVALID_REQUEST, E.NONE, E.INVALID_REQUEST]
    assert own(broker, TOPIC, "orders", DYNAMIC_TOPIC) == {}


# What is described afterwards


def test_this_broker_wins_over_all_brokers_and_those_over_the_default(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    key = "log.retention.ms"

    assert alter(broker, BROKER, "", (key, SET, "700000")) == E.NONE
    assert value(broker, BROKER, "1", key) == ("700000", DYNAMIC_DEFAULT)
    assert alter(broker, BROKER, "1", (key, SET, " 600000 ")) == E.NONE

    config = described(broker, BROKER, "1")[key]
    assert [(synonym.name, synonym.value, synonym.source) for synonym in config.synonyms] == [
        (key, " 600000 ", DYNAMIC_BROKER),
        (key, "700000", DYNAMIC_DEFAULT),
        ("log.retention.hours", "168", DEFAULT),
    ]
    assert value(broker, TOPIC, "orders", "retention.ms") == ("600000", DYNAMIC_BROKER)
    assert own(broker, BROKER, "", DYNAMIC_DEFAULT) == {key: "700000", "min.insync.replicas": "1"}

    assert alter(broker, BROKER, "1", (key, DELETE, None)) == E.NONE
    assert value(broker, TOPIC, "orders", "retention.ms") == ("700000", DYNAMIC_DEFAULT)
    assert alter(broker, BROKER, "", (key, SET, "-5")) == E.NONE
    assert value(broker, TOPIC, "orders", "retention.ms") == ("-1", DYNAMIC_DEFAULT)


def test_a_name_that_nobody_knows_is_kept_as_a_secret(broker: InProcessBroker) -> None:
    assert alter(broker, BROKER, "1", ("my.own", SET, "geheim")) == E.NONE

    config = described(broker, BROKER, "1")["my.own"]
    assert (config.value, config.is_sensitive, config.read_only) == (None, True, True)
    assert alter(broker, BROKER, "1", ("my.own", DELETE, None)) == E.NONE
    assert "my.own" not in described(broker, BROKER, "1")


def test_groups_and_client_metrics_are_kept_and_described(broker: InProcessBroker) -> None:
    assert alter(broker, GROUP, "workers", ("consumer.heartbeat.interval.ms", SET, "6000")) == E.NONE
    assert alter(broker, CLIENT_METRICS, "all", ("metrics", SET, "*"), ("interval.ms", SET, "100")) == E.NONE
    broker.restart()

    heartbeat = described(broker, GROUP, "workers")["consumer.heartbeat.interval.ms"]
    assert [(synonym.name, synonym.value, synonym.source) for synonym in heartbeat.synonyms] == [
        ("consumer.heartbeat.interval.ms", "6000", OF_GROUP),
        ("group.consumer.heartbeat.interval.ms", "5000", DEFAULT),
    ]
    assert own(broker, CLIENT_METRICS, "all", OF_CLIENT_METRICS) == {"metrics": "*", "interval.ms": "100"}
    assert own(broker, GROUP, "others", OF_GROUP) == {}


def test_an_internal_setting_of_a_group_is_described_where_it_was_set(broker: InProcessBroker) -> None:
    assert alter(broker, GROUP, "workers", ("streams.num.warmup.replicas", SET, "3")) == E.NONE

    warmup = described(broker, GROUP, "workers")["streams.num.warmup.replicas"]
    assert [(synonym.name, synonym.value, synonym.source) for synonym in warmup.synonyms] == [
        ("streams.num.warmup.replicas", "3", OF_GROUP),
        ("group.streams.num.warmup.replicas", "2", DEFAULT),
    ]
    assert "streams.num.warmup.replicas" not in described(broker, GROUP, "others")


@pytest.mark.settings(group_consumer_max_session_timeout_ms=90000)
def test_groups_keep_within_the_limits_of_the_broker(broker: InProcessBroker) -> None:
    assert alter(broker, GROUP, "g", ("consumer.session.timeout.ms", SET, "90000")) == E.NONE
    assert alter(broker, GROUP, "g", ("consumer.session.timeout.ms", SET, "90001")) == E.INVALID_CONFIG


@contextmanager
def level_kept(name: str) -> Iterator[logging.Logger]:
    """A logger whose level is its old one afterwards: loggers outlive a broker in a test."""
    logger = logging.getLogger(name)
    level = logger.level
    try:
        yield logger
    finally:
        logger.setLevel(level)


def test_a_logger_gets_its_level_at_once_and_follows_the_root_again(broker: InProcessBroker) -> None:
    with level_kept("broker.server.broker_server") as logger:
        for level, number in (("TRACE", 5), ("DEBUG", logging.DEBUG), ("FATAL", logging.CRITICAL)):
            assert alter(broker, LOGGER, "1", ("broker.server.broker_server", SET, level)) == E.NONE
            assert logger.level == number
            assert described(broker, LOGGER, "1")["broker.server.broker_server"].value == level

        assert alter(broker, LOGGER, "1", ("broker.server.broker_server", DELETE, None)) == E.NONE
        assert logger.level == logging.NOTSET


# What takes effect


def produce_code(broker: InProcessBroker, topic: str, size: int) -> int:
    """The code of a produced batch with one record of ``size`` bytes."""
    request = produce_request(topic, produced([record(b"x" * size)]))
    return int(broker.ask(request, 12).responses[0].partition_responses[0].error_code)


def test_a_smaller_max_message_bytes_refuses_the_next_produce(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    assert produce_code(broker, "orders", 2000) == E.NONE

    assert alter(broker, TOPIC, "orders", ("max.message.bytes", SET, "1000")) == E.NONE
    assert produce_code(broker, "orders", 2000) == E.MESSAGE_TOO_LARGE
    assert alter(broker, TOPIC, "orders", ("max.message.bytes", DELETE, None)) == E.NONE
    assert produce_code(broker, "orders", 2000) == E.NONE


def test_what_the_broker_says_holds_for_topics_old_and_new_and_after_a_restart(broker: InProcessBroker) -> None:
    broker.create_topic("old")
    broker.create_topic("own", max_message_bytes=5000)

    assert alter(broker, BROKER, "", ("message.max.bytes", SET, "1000")) == E.NONE
    broker.create_topic("new")
    for _ in range(2):
        assert produce_code(broker, "old", 2000) == E.MESSAGE_TOO_LARGE
        assert produce_code(broker, "new", 2000) == E.MESSAGE_TOO_LARGE
        assert produce_code(broker, "own", 2000) == E.NONE
        broker.restart()


def test_records_older_than_the_new_retention_go(broker: InProcessBroker) -> None:
    broker.create_topic("orders", segment_bytes=1 << 20)
    for _ in range(2):
        broker.produce("orders", b"x" * 900_000)
    assert len(broker.log("orders").segments) == 2

    assert alter(broker, BROKER, "1", ("log.retention.bytes", SET, "1000")) == E.NONE
    broker.advance(60_000)

    broker.wait_until(lambda: broker.log("orders").log_start_offset == 1)


@pytest.mark.settings(ottla_release_version="4.0")  # later ones have one min.insync.replicas for all brokers
def test_each_topic_setting_of_the_broker_reaches_the_logs(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    for key, text, field, expected in (
        ("compression.type", "gzip", "compression_type", "gzip"),
        ("compression.gzip.level", "3", "compression_gzip_level", 3),
        ("log.cleaner.delete.retention.ms", "5", "delete_retention_ms", 5),
        ("log.cleaner.min.cleanable.ratio", "0.25", "min_cleanable_dirty_ratio", 0.25),
        ("log.cleanup.policy", "compact", "cleanup_policy", frozenset({"compact"})),
        ("log.flush.interval.messages", "5", "flush_messages", 5),
        ("log.flush.interval.ms", "6", "flush_ms", 6),
        ("log.index.interval.bytes", "7", "index_interval_bytes", 7),
        ("log.index.size.max.bytes", "80", "segment_index_bytes", 80),
        ("log.message.timestamp.after.max.ms", "9", "message_timestamp_after_max_ms", 9),
        ("log.message.timestamp.type", "LogAppendTime", "message_timestamp_type", "LogAppendTime"),
        ("log.preallocate", "true", "preallocate", True),
        ("log.retention.ms", "11", "retention_ms", 11),
        ("log.roll.jitter.ms", "12", "segment_jitter_ms", 12),
        ("log.roll.ms", "13", "segment_ms", 13),
        ("log.segment.bytes", "1048577", "segment_bytes", 1048577),
        ("log.segment.delete.delay.ms", "14", "file_delete_delay_ms", 14),
        ("min.insync.replicas", "2", "min_insync_replicas", 2),
        ("unclean.leader.election.enable", "true", "unclean_leader_election_enable", True),
    ):
        assert alter(broker, BROKER, "1", (key, SET, text)) == E.NONE
        assert getattr(broker.log("orders").config, field) == expected, key


def handlers(broker: InProcessBroker) -> int:
    """How many request handlers are at work."""
    return sum(task.get_name().startswith("handler-") for task in broker.run(_all_tasks()))


def sending(broker: InProcessBroker) -> int:
    """How many network processors are at work."""
    return sum(task.get_name().startswith("processor-") for task in broker.run(_all_tasks()))


async def _all_tasks() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks()


@pytest.mark.settings(num_io_threads=4)
def test_there_are_as_many_handlers_as_num_io_threads_says(broker: InProcessBroker) -> None:
    assert handlers(broker) == 4
    for threads in ("8", "5", "3"):
        assert alter(broker, BROKER, "1", ("num.io.threads", SET, threads)) == E.NONE
        broker.settle()
        assert handlers(broker) == int(threads)
    broker.restart()
    broker.settle()
    assert handlers(broker) == 3
    assert alter(broker, BROKER, "1", ("num.io.threads", DELETE, None)) == E.NONE
    broker.settle()
    assert handlers(broker) == 4
    assert value(broker, BROKER, "1", "num.io.threads") == ("4", STATIC)


def test_there_are_as_many_processors_as_num_network_threads_says(broker: InProcessBroker) -> None:
    assert alter(broker, BROKER, "", ("num.network.threads", SET, "6")) == E.NONE
    broker.settle()
    assert (len(broker.server.socket_server.processors), sending(broker)) == (6, 6)
    broker.restart()
    assert len(broker.server.socket_server.processors) == 6


def test_a_processor_that_goes_answers_what_is_under_way(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    other = broker.connect(processor=2)
    other.send(produce_request("orders", produced([record(b"x")])), 12)

    assert alter(broker, BROKER, "1", ("num.network.threads", SET, "2")) == E.NONE

    assert other.receive().responses[0].partition_responses[0].error_code == E.NONE
    assert other.is_closed()
    broker.settle()
    assert sending(broker) == 2


def connect(broker: InProcessBroker) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A real connection to the first listener."""
    port = broker.server.socket_server.acceptors[0].port
    reader, writer = broker.run(asyncio.open_connection("127.0.0.1", port))
    return reader, writer


def accepted(broker: InProcessBroker) -> int:
    """How many real connections were let in."""
    return broker.server.socket_server.acceptors[0].stats.accepted


@pytest.mark.parametrize("key", ["max.connections", "listener.name.plaintext.max.connections"])
def test_above_its_limit_nobody_is_let_in_until_it_is_raised(broker: InProcessBroker, key: str) -> None:
    _, first = connect(broker)
    broker.wait_until(lambda: accepted(broker) == 1)
    assert alter(broker, BROKER, "1", (key, SET, "1")) == E.NONE

    _, second = connect(broker)
    broker.settle()
    assert accepted(broker) == 1
    assert alter(broker, BROKER, "1", (key, SET, "2")) == E.NONE
    broker.wait_until(lambda: accepted(broker) == 2)
    first.close()
    second.close()


def test_max_connections_per_ip_turns_the_next_connection_away_after_a_restart_too(broker: InProcessBroker) -> None:
    limits = ("max.connections.per.ip", SET, "1"), ("max.connections.per.ip.overrides", SET, "127.0.0.1:2")
    assert alter(broker, BROKER, "1", *limits) == E.NONE
    for allowed in (2, 1):
        clients = [connect(broker) for _ in range(allowed + 1)]
        assert broker.run(clients[-1][0].read(1)) == b""
        assert (accepted(broker), broker.server.socket_server.acceptors[0].stats.refused) == (allowed, 1)
        for _, writer in clients:
            writer.close()
        assert alter(broker, BROKER, "1", ("max.connections.per.ip.overrides", DELETE, None)) == E.NONE
        broker.restart()


def test_producers_are_forgotten_sooner(broker: InProcessBroker) -> None:
    assert alter(broker, BROKER, "1", ("producer.id.expiration.ms", SET, "5000")) == E.NONE
    assert broker.server.components.logs.producer_id_expiration_ms == 5000
    broker.restart()
    assert broker.server.components.logs.producer_id_expiration_ms == 5000


def test_one_line_says_what_has_changed(broker: InProcessBroker, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        alter(broker, BROKER, "1", ("num.io.threads", SET, "9"), ("listener.name.plaintext.max.connections", SET, "5"))

    assert [line.getMessage() for line in caplog.records if line.name == "broker.metadata.dynamic_broker_config"] == [
        "settings have changed: listener.name.plaintext.max.connections from None to 5, num.io.threads from 8 to 9"
    ]


def test_files_are_tried_only_where_a_setting_that_names_files_is_set(broker: InProcessBroker) -> None:
    """A certificate that has expired meanwhile does not keep the broker from being configured."""
    tried: list[Mapping[str, str]] = []

    def refuse(texts: Mapping[str, str]) -> None:
        tried.append(texts)
        raise SettingsError("it has expired")

    broker.server.components.configs.check_files = refuse
    location = "listener.name.plaintext.ssl.keystore.location"
    assert alter(broker, BROKER, "1", ("num.io.threads", SET, "9")) == E.NONE
    assert tried == []
    assert alter(broker, BROKER, "1", (location, SET, "/k")) == E.INVALID_REQUEST
    assert tried == [{"num.io.threads": "9", location: "/k"}]
