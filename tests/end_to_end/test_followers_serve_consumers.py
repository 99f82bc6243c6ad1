"""Consumers read from the replica in their rack (KIP-392): two brokers, and stock clients that know nothing of it but
their rack."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AiokafkaPartition
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition

from dev.broker_process import BrokerProcess
from dev.waiting import until
from tests.support.clusters import Admin, Cluster
from tests.support.metrics import Page, http_get

pytestmark = [
    pytest.mark.skipif(
        bool(os.environ.get("OTTLA_TEST_BOOTSTRAP") or os.environ.get("OTTLA_TEST_KAFKA_LIBS")),
        reason="another broker is not two of ours",
    ),
    pytest.mark.timeout(300),
]

LEADER, FOLLOWER = 1, 2
BY_RACK = {
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "broker.session.timeout.ms": "4000",
}


class Reader(Protocol):
    """A consumer of partition 0 of a topic, from its begin on."""

    def __init__(self, bootstrap: str, topic: str, rack: str) -> None: ...

    def poll(self) -> list[bytes]:
        """The values that have come, perhaps none."""

    def close(self) -> None: ...


class ConfluentReader:
    def __init__(self, bootstrap: str, topic: str, rack: str) -> None:
        settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": "readers", "client.rack": rack}
        self._consumer = Consumer({**settings, "enable.auto.commit": False, "log_level": 0})
        self._consumer.assign([TopicPartition(topic, 0, 0)])

    def poll(self) -> list[bytes]:
        found = []
        for message in self._consumer.consume(1_000, timeout=0.2):
            assert message.error() is None, message.error()
            found.append(message.value() or b"")
        return found

    def close(self) -> None:
        self._consumer.close()


class KafkaPythonReader:
    def __init__(self, bootstrap: str, topic: str, rack: str) -> None:
        self._consumer = KafkaConsumer(bootstrap_servers=bootstrap, client_rack=rack, auto_offset_reset="earliest")
        self._consumer.assign([KafkaPythonPartition(topic, 0)])

    def poll(self) -> list[bytes]:
        return [record.value for records in self._consumer.poll(timeout_ms=200).values() for record in records]

    def close(self) -> None:
        self._consumer.close()


class AiokafkaReader:
    def __init__(self, bootstrap: str, topic: str, rack: str) -> None:
        self._runner = asyncio.Runner()
        self._consumer = self._runner.run(self._open(bootstrap, topic, rack))

    async def _open(self, bootstrap: str, topic: str, rack: str) -> Any:
        # Sent to a broker that it does not know, it asks for no newer metadata, but the leader again and again.
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap, client_rack=rack, auto_offset_reset="earliest", metadata_max_age_ms=1000
        )
        consumer.assign([AiokafkaPartition(topic, 0)])
        await consumer.start()
        return consumer

    def poll(self) -> list[bytes]:
        found = self._runner.run(self._consumer.getmany(timeout_ms=200))
        return [record.value for records in found.values() for record in records]

    def close(self) -> None:
        self._runner.run(self._consumer.stop())
        self._runner.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker in rack a with its own controller, and a broker in rack b."""
    with Cluster(tmp_path_factory.mktemp("racks")) as cluster:
        cluster.add_primary(LEADER, {**BY_RACK, "broker.rack": "a"})
        cluster.add_member(FOLLOWER, {**BY_RACK, "broker.rack": "b"})
        yield cluster


Open = Callable[[str, str], Reader]


@pytest.fixture(
    params=[ConfluentReader, KafkaPythonReader, AiokafkaReader], ids=["confluent-kafka", "kafka-python", "aiokafka"]
)
def open_reader(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[Open]:
    readers: list[Reader] = []

    def opened(topic: str, rack: str) -> Reader:
        readers.append(request.param(cluster.bootstrap, topic, rack))
        return readers[-1]

    yield opened
    for reader in readers:
        reader.close()


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    """A topic that broker 1 leads and broker 2 follows, both in sync."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name).strip("-")
    admin = Admin(cluster.bootstrap)
    admin.create(name, [[LEADER, FOLLOWER]])
    admin.until(lambda: admin.isrs(name) == [{LEADER, FOLLOWER}], f"{name} is in sync")
    return name


def send(cluster: Cluster, topic: str, values: range) -> list[bytes]:
    lines = [b"line %d" % value for value in values]
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
    for line in lines:
        producer.produce(topic, line, partition=0)
    assert producer.flush(60) == 0
    return lines


def read(reader: Reader, count: int) -> list[bytes]:
    found: list[bytes] = []

    def enough() -> bool:
        found.extend(reader.poll())
        return len(found) >= count

    until(enough, f"{count} records")
    return found


def bytes_out(broker: BrokerProcess, topic: str) -> float:
    """Bytes of records of a topic that a broker has answered."""
    page = Page(http_get(broker.metrics_port, "/metrics").text)
    return page.get(f'kafka_server_brokertopicmetrics_bytesout_total{{topic="{topic}"}}') or 0


def bytes_in(broker: BrokerProcess, topic: str) -> float:
    """Bytes of records of a topic that clients have sent."""
    page = Page(http_get(broker.metrics_port, "/metrics").text)
    return page[f'kafka_server_brokertopicmetrics_bytesin_total{{topic="{topic}"}}']


def test_a_consumer_reads_from_the_broker_in_its_rack(cluster: Cluster, topic: str, open_reader: Open) -> None:
    leader, follower = cluster.nodes[LEADER], cluster.nodes[FOLLOWER]
    lines = send(cluster, topic, range(100))

    assert read(open_reader(topic, "a"), 100) == lines
    assert bytes_out(follower, topic) == 0, "the leader is in this consumer's rack"

    reader = open_reader(topic, "b")
    assert read(reader, 100) == lines
    assert bytes_out(follower, topic) >= bytes_in(leader, topic)
    assert read_on(cluster, topic, reader) == bytes_in(leader, topic)


def read_on(cluster: Cluster, topic: str, reader: Reader) -> float:
    """Send more, and read it with a consumer that has read all so far; the follower's bytes out afterwards."""
    lines = send(cluster, topic, range(100, 200))
    assert read(reader, 100) == lines
    return bytes_out(cluster.nodes[FOLLOWER], topic)


def test_when_the_follower_dies_the_leader_serves_until_it_is_back(
    cluster: Cluster, topic: str, open_reader: Open
) -> None:
    admin, follower = Admin(cluster.nodes[LEADER].bootstrap), cluster.nodes[FOLLOWER]
    lines = send(cluster, topic, range(100))
    reader = open_reader(topic, "b")
    assert read(reader, 100) == lines
    assert bytes_out(follower, topic) > 0

    follower.kill()
    lines = send(cluster, topic, range(100, 200))
    assert read(reader, 100) == lines

    follower.start()
    admin.until(lambda: admin.isrs(topic) == [{LEADER, FOLLOWER}], "the follower is in sync again")
    lines = send(cluster, topic, range(200, 300))
    assert read(reader, 100) == lines
    assert bytes_out(follower, topic) > 0
