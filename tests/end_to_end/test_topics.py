"""Topics: made on first use or on request, listed, described, deleted; wrong requests refused with Kafka's codes."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from dev.broker_process import BrokerProcess
from tests.support.clients import TIMEOUT_S, Client, Record, RequestFailed, values


def test_producing_to_an_unknown_topic_creates_it(client: Client, topic: str) -> None:
    client.produce(topic, [Record(value=b"first"), Record(value=b"second")])

    assert topic in client.topics()
    assert client.partitions(topic) == [0]
    assert values(client.consume_all(topic)) == [b"first", b"second"]


def test_a_created_topic_has_the_partitions_and_configs_asked_for(client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=7, configs={"retention.ms": "3600000", "cleanup.policy": "compact,delete"})

    assert client.partitions(topic) == list(range(7))
    configs = client.topic_configs(topic)
    assert configs["retention.ms"] == "3600000"
    assert configs["cleanup.policy"] == "compact,delete"
    assert configs["segment.bytes"] == "1073741824"


def test_deleting_a_topic_takes_its_records_and_its_name_may_be_used_again(client: Client, topic: str) -> None:
    client.create_topic(topic)
    client.produce(topic, [Record(value=b"old")])

    client.delete_topic(topic)
    deadline = time.monotonic() + TIMEOUT_S
    while topic in client.topics():
        assert time.monotonic() < deadline, f"{topic} is still listed after {TIMEOUT_S} s"
    client.create_topic(topic)
    client.produce(topic, [Record(value=b"new")])

    assert values(client.consume_all(topic)) == [b"new"]


@pytest.mark.parametrize(
    ("name", "options", "code"),
    [
        ("bad/name", {}, 17),  # INVALID_TOPIC_EXCEPTION
        ("x" * 250, {}, 17),
        ("no-partitions", {"partitions": 0}, 37),  # INVALID_PARTITIONS
        ("two-replicas", {"replication": 2}, 38),  # INVALID_REPLICATION_FACTOR
        ("unknown-config", {"configs": {"no.such.config": "1"}}, 40),  # INVALID_CONFIG
        ("wrong-value", {"configs": {"retention.ms": "soon"}}, 40),
    ],
)
def test_a_wrong_topic_is_refused(client: Client, name: str, options: dict[str, object], code: int) -> None:
    create: Callable[..., None] = client.create_topic

    with pytest.raises(RequestFailed) as refused:
        create(name, **options)

    assert refused.value.code == code
    assert name not in client.topics()


def test_a_topic_cannot_be_created_twice(client: Client, topic: str) -> None:
    client.create_topic(topic)

    with pytest.raises(RequestFailed) as refused:
        client.create_topic(topic)

    assert refused.value.code == 36  # TOPIC_ALREADY_EXISTS


def test_the_cluster_is_one_broker_at_the_address_that_was_asked(client: Client, broker: BrokerProcess) -> None:
    cluster = client.cluster()

    host, _, port = broker.bootstrap.rpartition(":")
    assert cluster.brokers == ((cluster.controller_id, host, int(port)),)
    assert cluster.cluster_id
    assert cluster.cluster_id == (broker.cluster_id or cluster.cluster_id)
