"""Replicas move between data directories while stock clients write and read, also through kills (KIP-113)."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka.admin import KafkaAdminClient

from dev.broker_process import BrokerProcess
from dev.brokers import broker_for_tests
from dev.waiting import until

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("OTTLA_TEST_BOOTSTRAP") or os.environ.get("OTTLA_TEST_KAFKA_LIBS")),
    reason="a broker of our own is killed and started again",
)

DIRECTORIES = ("one", "two", "three")
SEGMENT_BYTES = 1 << 20


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    paths = [str(tmp_path / name) for name in DIRECTORIES]
    with broker_for_tests(
        tmp_path, settings={"log.dirs": ",".join(paths), "log.segment.delete.delay.ms": "1000"}
    ) as process:
        yield process


class Writing:
    """A producer with acks=all that numbers its records, on a thread of its own. ``with`` ends it."""

    def __init__(self, bootstrap: str, topic: str, size: int = 2_000) -> None:
        self.acknowledged: dict[int, int] = {}
        """The number of each acknowledged record by its offset."""
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 2, "enable.idempotence": True,
             "message.timeout.ms": 120_000, "reconnect.backoff.max.ms": 100}
        )  # fmt: skip
        self._topic = topic
        self._padding = b"." * size
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        number = 0

        def delivered(error: KafkaError | None, message: object, number: int) -> None:
            assert error is None, error
            self.acknowledged[message.offset()] = number  # type: ignore[attr-defined]

        while not self._is_over.is_set():
            for _ in range(20):
                self._producer.produce(
                    self._topic, b"%d " % number + self._padding, partition=0,
                    on_delivery=lambda error, message, number=number: delivered(error, message, number),
                )  # fmt: skip
                number += 1
            self._producer.poll(0.005)
        assert self._producer.flush(120) == 0

    def wait_for(self, more: int) -> None:
        """Wait until so many more records are acknowledged."""
        enough = len(self.acknowledged) + more
        until(lambda: len(self.acknowledged) >= enough, f"{more} more records")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()


def create(broker: BrokerProcess, topic: str, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    admin.create_topics([NewTopic(topic, 1, 1, config={"segment.bytes": str(SEGMENT_BYTES), **settings})])[
        topic
    ].result(60)


def places(broker: BrokerProcess, topic: str) -> set[str]:
    """The directories in which the partition's log stands."""
    return {name for name in DIRECTORIES if (broker.directory / name / f"{topic}-0").is_dir()}


def copies(broker: BrokerProcess, topic: str) -> set[str]:
    """The directories in which a copy of the partition's log is made."""
    return {name for name in DIRECTORIES if list((broker.directory / name).glob(f"{topic}-0.*-future"))}


def is_only_in(broker: BrokerProcess, topic: str, name: str) -> bool:
    """Whether the partition stands in this directory, and no copy of it is being made."""
    return places(broker, topic) == {name} and not copies(broker, topic)


def move(broker: BrokerProcess, topic: str, name: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        admin.alter_replica_log_dirs({(topic, 0, 1): str(broker.directory / name)})
    finally:
        admin.close()


def read_all(broker: BrokerProcess, topic: str) -> dict[int, int]:
    """The number of each record by its offset."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "reader", "auto.offset.reset": "earliest",
         "enable.partition.eof": True, "enable.auto.commit": False}
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: dict[int, int] = {}
    try:
        while True:
            message = consumer.poll(60)
            assert message is not None, "the consumer has got nothing"
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                return found
            found[message.offset()] = int(message.value().split(b" ")[0])
    finally:
        consumer.close()


def check(broker: BrokerProcess, topic: str, writing: Writing) -> None:
    """All that was acknowledged is there at its offset, and nothing twice."""
    found = read_all(broker, topic)
    assert {offset: found.get(offset) for offset in writing.acknowledged} == writing.acknowledged
    numbers = list(found.values())
    assert len(set(numbers)) == len(numbers)
    assert numbers == sorted(numbers)


def test_a_replica_moves_in_circles_below_a_producer_and_nothing_is_lost(broker: BrokerProcess) -> None:
    create(broker, "orders")
    with Writing(broker.bootstrap, "orders") as writing:
        writing.wait_for(1_000)
        here = min(places(broker, "orders"))
        for _ in range(6):
            here = DIRECTORIES[(DIRECTORIES.index(here) + 1) % len(DIRECTORIES)]
            move(broker, "orders", here)
            until(partial(is_only_in, broker, "orders", here), "the move")
            writing.wait_for(200)

    check(broker, "orders", writing)
    broker.stop()
    broker.start()
    check(broker, "orders", writing)


@pytest.mark.parametrize("seed", range(2))
def test_kills_in_the_middle_of_moves_lose_nothing(broker: BrokerProcess, seed: int) -> None:
    chance = random.Random(seed)
    create(broker, "orders")
    with Writing(broker.bootstrap, "orders") as writing:
        writing.wait_for(3_000)
        for _ in range(6):
            (here,) = places(broker, "orders")
            target = chance.choice([name for name in DIRECTORIES if name != here])
            move(broker, "orders", target)
            threading.Event().wait(chance.random() * 0.15)  # any moment of the move
            broker.kill()
            broker.start()
            until(lambda: len(places(broker, "orders")) == 1 and not copies(broker, "orders"), "the move goes on")

    check(broker, "orders", writing)
    assert "Traceback" not in broker.log_text(last_lines=100_000)
