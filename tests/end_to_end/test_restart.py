"""What was acknowledged is there after a stop and after a SIGKILL, under the same port, topics and offsets."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dev.broker_process import BrokerProcess
from tests.support.clients import Client, Record, connect, values

STOP: dict[str, Callable[[BrokerProcess], object]] = {"SIGTERM": lambda b: b.stop(), "SIGKILL": lambda b: b.kill()}


@pytest.fixture(params=list(STOP))
def end(request: pytest.FixtureRequest) -> Callable[[BrokerProcess], object]:
    return STOP[str(request.param)]


def test_records_topics_and_offsets_survive(
    client_name: str, own_broker: BrokerProcess, topic: str, end: Callable[[BrokerProcess], object]
) -> None:
    client: Client = connect(client_name, own_broker.bootstrap)
    client.create_topic(topic, partitions=2, configs={"retention.ms": "86400000"})
    first = [Record(value=str(number).encode(), key=b"k", headers=(("n", b"1"),), partition=0) for number in range(500)]
    client.produce(topic, first)
    client.produce(topic, [Record(value=b"compressed", partition=1)], codec="zstd")
    cluster = client.cluster()

    end(own_broker)
    own_broker.start()

    assert client.cluster() == cluster
    assert client.topic_configs(topic)["retention.ms"] == "86400000"
    assert client.offsets(topic) == {0: (0, 500), 1: (0, 1)}
    assert values(client.consume(topic, partition=0, offset=0, count=500)) == [record.value for record in first]
    (answer,) = client.produce(topic, [Record(value=b"after", partition=0)])
    assert answer.offset == 500
    assert values(client.consume(topic, partition=0, offset=499, count=2)) == [b"499", b"after"]
    assert values(client.consume(topic, partition=1, offset=0, count=1)) == [b"compressed"]


def test_a_broker_may_be_stopped_and_started_again_and_again(
    own_broker: BrokerProcess, topic: str, end: Callable[[BrokerProcess], object]
) -> None:
    client = connect("confluent-kafka", own_broker.bootstrap)
    sent = []
    for life in range(4):
        sent.append(b"life %d" % life)
        client.produce(topic, [Record(value=sent[-1])])
        end(own_broker)
        own_broker.start()

    assert values(client.consume_all(topic)) == sent
