"""A full disk: producing waits, everything else goes on, and nothing that was acknowledged is lost."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaProducer
from kafka.errors import KafkaStorageError, NotLeaderForPartitionError

from dev.waiting import until
from tests.support.clients import Client, RequestFailed, connect, values
from tests.support.small_disk import BrokerOnSmallDisk, NoSmallDisk

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("OTTLA_TEST_BOOTSTRAP") or os.environ.get("OTTLA_TEST_KAFKA_LIBS")),
    reason="another broker's way with a full disk is not ours to judge",
)

DISK_MEGABYTES = 64
RESERVE_BYTES = (DISK_MEGABYTES << 20) // 8
"""What the default comes to on a file system of this size."""

VALUE_BYTES = 200_000

STORAGE_ERROR = 56


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerOnSmallDisk]:
    try:
        broker = BrokerOnSmallDisk(tmp_path, megabytes=DISK_MEGABYTES, settings={"log.segment.delete.delay.ms": "0"})
    except NoSmallDisk as reason:
        pytest.skip(str(reason))
    try:
        broker.start()
        yield broker
    finally:
        broker.close()


@pytest.fixture
def client(client_name: str, broker: BrokerOnSmallDisk) -> Client:
    return connect(client_name, broker.bootstrap)


@contextlib.contextmanager
def producer(broker: BrokerOnSmallDisk) -> Iterator[KafkaProducer]:
    """A stock producer that does not try again by itself."""
    options = {"retries": 0, "enable_idempotence": False, "acks": "all"}
    with contextlib.closing(KafkaProducer(bootstrap_servers=broker.bootstrap, **options)) as producer:
        yield producer


def produce(broker: BrokerOnSmallDisk, topic: str, number: int) -> bytes | None:
    """Produce one record; its value if it was acknowledged, None if the broker has no room, or no log yet, for it."""
    value = (b"%d " % number).ljust(VALUE_BYTES, b"x")
    with producer(broker) as one:
        try:
            one.send(topic, value).get(timeout=60)
        except (KafkaStorageError, NotLeaderForPartitionError):
            return None
    return value


def fill(broker: BrokerOnSmallDisk, topic: str, *, most: int = 1000) -> list[bytes]:
    """Produce until the broker refuses, or ``most`` records; the values that were acknowledged."""
    acknowledged = []
    with producer(broker) as one:
        for number in range(most):
            value = (b"%d " % number).ljust(VALUE_BYTES, b"x")
            try:
                one.send(topic, value).get(timeout=60)
            except KafkaStorageError:
                break
            acknowledged.append(value)
    return acknowledged


def stored(client: Client, topic: str, count: int) -> list[bytes | None]:
    return values(client.consume(topic, partition=0, offset=0, count=count))


def create_many(client: Client) -> None:
    """Create topics until it is refused: a few still fit into the metadata log's last block."""
    for number in range(200):
        client.create_topic(f"topic-{number}", configs={"retention.ms": "1000"})


def lines(broker: BrokerOnSmallDisk, words: str) -> int:
    return broker.log_path.read_text().count(words)


def test_producing_stops_at_the_reserve_and_goes_on_once_there_is_room(
    broker: BrokerOnSmallDisk, client: Client
) -> None:
    client.create_topic("doomed")
    client.create_topic("orders")
    assert len(fill(broker, "doomed", most=100)) == 100

    acknowledged = fill(broker, "orders")

    assert 20 < len(acknowledged) < 1000
    assert RESERVE_BYTES * 3 // 4 < broker.disk.free_bytes < RESERVE_BYTES + 4 * VALUE_BYTES
    assert produce(broker, "doomed", 0) is None
    assert stored(client, "orders", len(acknowledged)) == acknowledged
    # What the broker itself has to write has its room.
    client.create_topic("another", partitions=3)
    client.alter_topic("orders", {"retention.ms": "86400000"})
    assert produce(broker, "another", 0) is None
    assert lines(broker, "is full") == 1, "one line, not one for each request"

    client.delete_topic("doomed")
    until(lambda: produce(broker, "another", 1) is not None)

    assert lines(broker, "takes records again") == 1
    more = produce(broker, "orders", len(acknowledged))
    assert more is not None
    broker.kill()
    broker.start()
    assert stored(client, "orders", len(acknowledged) + 1) == [*acknowledged, more]


def test_a_disk_that_others_have_filled_to_the_last_byte(broker: BrokerOnSmallDisk, client: Client) -> None:
    client.create_topic("orders")
    acknowledged = fill(broker, "orders", most=20)
    broker.disk.fill_up()
    assert broker.disk.free_bytes == 0

    assert produce(broker, "orders", 0) is None
    assert stored(client, "orders", 20) == acknowledged
    with pytest.raises(RequestFailed) as refused:
        create_many(client)
    assert refused.value.code == STORAGE_ERROR
    # Said when it begins and when it ends: what fails to be made gives back a few bytes.
    assert lines(broker, "metadata log cannot be written now") == lines(broker, "metadata log can be written again") + 1

    broker.disk.make_room()

    client.create_topic("after")
    until(lambda: produce(broker, "after", 0) is not None)
    more = produce(broker, "orders", 20)
    assert more is not None
    broker.kill()
    broker.start()
    assert stored(client, "orders", 21) == [*acknowledged, more]
    assert "after" in client.topics()


def test_a_stop_on_a_full_disk_ends_and_loses_nothing(broker: BrokerOnSmallDisk) -> None:
    client = connect("kafka-python", broker.bootstrap)
    client.create_topic("orders")
    acknowledged = fill(broker, "orders", most=20)
    broker.disk.fill_up()

    broker.stop()

    assert not (broker.disk.path / ".kafka_cleanshutdown").exists() or lines(broker, "stopped cleanly")
    broker.disk.make_room()
    broker.start()
    assert stored(client, "orders", 20) == acknowledged
    assert produce(broker, "orders", 20) is not None
