"""Settings that change while the broker runs: subscribers, values that are ignored, lines in the log."""

import logging

import pytest

from broker.controller.config_alteration import Alteration, ConfigChange, Resource
from broker.metadata.configs import ConfigView
from broker.metadata.dynamic_broker_config import DynamicBrokerConfig
from protocol.errors import ErrorCode
from protocol.records.cluster_metadata import ConfigRecord
from tests.unit.broker.metadata.metadata_node import MetadataNode

LOGGER = "broker.metadata.dynamic_broker_config"


def in_force(node):
    settings = DynamicBrokerConfig(ConfigView(node.metadata, node.settings))
    node.loader.publish_to(settings.apply)
    return settings


def say(node, name, value, broker="1"):
    """What another version of Kafka may have written: nobody has checked it."""
    record = ConfigRecord(resource_type=4, resource_name=broker, name=name, value=value)
    node.log.append([(record, 0)], lambda: None)
    node.worker.work()


def test_whoever_subscribes_is_told_the_settings_now_and_at_each_change(tmp_path):
    node = MetadataNode(tmp_path, num_io_threads=4)
    told = []
    in_force(node).subscribe(lambda settings: told.append(settings.num_io_threads))

    say(node, "num.io.threads", "6", broker="")
    say(node, "num.io.threads", "7")
    say(node, "num.io.threads", "8", broker="2")
    say(node, "my.own", "8")
    say(node, "num.io.threads", None)

    assert told == [4, 6, 7, 6]


def test_what_has_changed_before_anything_is_published_is_told_when_the_image_is_read_again(tmp_path):
    node = MetadataNode(tmp_path, num_io_threads=4)
    told = []
    settings = DynamicBrokerConfig(ConfigView(node.metadata, node.settings))
    settings.subscribe(lambda settings: told.append(settings.num_io_threads))
    say(node, "num.io.threads", "6")
    assert told == [4]

    settings.read_again()
    settings.read_again()

    assert told == [4, 6]


def in_the_file(value):
    """Settings of a process that was given ``min.insync.replicas``."""
    return {"min_insync_replicas": int(value), "given": {"min.insync.replicas": value}}


@pytest.mark.parametrize(
    ("broker", "who", "where"),
    [("", "the cluster", "--entity-default"), ("1", "this broker", "--entity-name 1")],
)
def test_a_start_warns_of_min_insync_replicas_that_has_no_effect_with_the_command(tmp_path, caplog, broker, who, where):
    node = MetadataNode(tmp_path, **in_the_file("1"))
    say(node, "min.insync.replicas", "2", broker=broker)

    in_force(node).warn_of_min_insync_replicas()

    assert [line.getMessage() for line in caplog.records if line.levelno == logging.WARNING] == [
        f"min.insync.replicas=1, as it is configured here, has no effect: {who} has 2 in the metadata. This changes "
        f"it: kafka-configs --bootstrap-server HOST:PORT --alter --entity-type brokers {where} --add-config "
        "min.insync.replicas=1"
    ]


@pytest.mark.parametrize("given", [{}, in_the_file("2")], ids=["not given", "the same value"])
def test_a_start_does_not_warn_of_min_insync_replicas_that_nobody_misses(tmp_path, caplog, given):
    node = MetadataNode(tmp_path, **given)
    say(node, "min.insync.replicas", "2", broker="")

    in_force(node).warn_of_min_insync_replicas()

    assert not [line for line in caplog.records if line.levelno == logging.WARNING]


def test_a_start_does_not_warn_of_min_insync_replicas_that_no_dynamic_config_has(tmp_path, caplog):
    node = MetadataNode(tmp_path, **in_the_file("3"))
    say(node, "min.insync.replicas", None, broker="")

    in_force(node).warn_of_min_insync_replicas()

    assert not [line for line in caplog.records if line.levelno == logging.WARNING]


def test_nobody_is_told_before_it_is_durable(tmp_path):
    node = MetadataNode(tmp_path)
    told, answers = [], []
    in_force(node).subscribe(lambda settings: told.append(settings.max_connections))
    change = ConfigChange("max.connections", 0, "9")
    node.controller.alter_configs(
        [Alteration(resource=Resource(4, "1"), changes=[change])],
        validate_only=False,
        then=lambda results: answers.append(([result.error for result in results], told[-1])),
    )
    assert (answers, told) == ([], [2**31 - 1])

    node.worker.work()

    # And those who are told have acted by the time that it is answered.
    assert answers == [([ErrorCode.NONE], 9)]


def test_of_two_requests_in_one_turn_the_second_sees_the_first(tmp_path):
    node = MetadataNode(tmp_path)
    errors = []
    for threads in ("16", "32"):
        node.controller.alter_configs(
            [Alteration(resource=Resource(4, "1"), changes=[ConfigChange("num.io.threads", 0, threads)])],
            validate_only=False,
            then=lambda results: errors.extend(result.error for result in results),
        )
    node.worker.work()

    assert errors == [ErrorCode.NONE, ErrorCode.NONE]
    assert node.image.configs.of(4, "1") == {"num.io.threads": "32"}


def test_what_is_invalid_here_is_passed_over_with_one_line_and_the_weaker_source_counts(tmp_path, caplog):
    node = MetadataNode(tmp_path, num_io_threads=4)
    say(node, "num.io.threads", "5", broker="")
    say(node, "num.io.threads", "none")
    say(node, "log.roll.ms", "0")
    say(node, "message.max.bytes", "77")

    with caplog.at_level(logging.INFO, LOGGER):
        settings = in_force(node)
        say(node, "message.max.bytes", "78")

    assert (settings.settings.num_io_threads, settings.settings.message_max_bytes) == (5, 78)
    assert settings.settings.log_roll_ms is None
    assert sorted(line.getMessage() for line in caplog.records if line.levelno == logging.WARNING) == [
        "a dynamic config of this broker is ignored: log.roll.ms is '0', expected a whole number of at least 1",
        "a dynamic config of this broker is ignored: num.io.threads is 'none', "
        "expected a whole number from 1 to 2147483647",
    ]


@pytest.mark.parametrize("key", ["listeners", "num.partitions"])
def test_what_takes_a_restart_is_passed_over(tmp_path, key):
    node = MetadataNode(tmp_path)
    settings = in_force(node)

    say(node, key, "7")

    assert settings.settings == node.settings


def test_a_listeners_own_limit_wins_over_what_the_file_says(tmp_path):
    node = MetadataNode(tmp_path)
    settings = in_force(node)

    say(node, "listener.name.plaintext.max.connections", "7", broker="")
    say(node, "listener.name.plaintext.max.connections", "9")
    say(node, "listener.name.plaintext.max.connection.creation.rate", "5")
    say(node, "listener.name.other.max.connections", "1")

    (listener,) = settings.settings.listeners
    assert (listener.max_connections, listener.max_connection_creation_rate) == (9, 5)
