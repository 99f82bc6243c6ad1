"""Transactions in a cluster of Kafka and this broker: each coordinates some of them, and leads a partition of each."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Final

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from dev.kafka_jars import KAFKA_VERSION
from tests.interop import programs
from tests.interop.clusters import Cluster
from tests.interop.conftest import installed
from tests.support.clusters import Admin

KAFKA: Final = 1
OTTLA: Final = 7
STATE: Final = "__transaction_state"
TOPIC: Final = "orders"
PARTITIONS: Final = (0, 1)


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A controller and a broker of Kafka, and this broker; each leads a partition of everything."""
    libraries = str(installed(lambda: programs.kafka_libraries(KAFKA_VERSION)))
    cluster = Cluster(tmp_path_factory.mktemp("cluster"), libraries)
    try:
        cluster.add_controller()
        cluster.add_kafka(KAFKA)
        cluster.add_member(OTTLA)
        admin = Admin(cluster.bootstrap)
        # Kafka wants as many partitions as its settings say.
        admin.create(STATE, [[KAFKA, OTTLA], [OTTLA, KAFKA], [OTTLA, KAFKA]], cleanup_policy="compact")
        admin.create(TOPIC, [[KAFKA, OTTLA], [OTTLA, KAFKA]])
        yield cluster
    finally:
        cluster.close()


class Transactions:
    """A producer in a thread, whose transactions write a value into both partitions; every third one is aborted."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._bootstrap = bootstrap
        self._transactional_id = transactional_id
        self.committed: list[str] = []
        self.aborted: list[str] = []
        self.unknown: list[str] = []
        """Whose end the producer was not told of."""
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ends.set()
        self._thread.join(120)
        assert not self._thread.is_alive(), f"{self._transactional_id} does not end"

    def _run(self) -> None:
        producer, number = self._begun(), 0
        while not self._ends.is_set():
            number += 1
            value = f"{self._transactional_id}:{number}"
            try:
                producer.begin_transaction()
                for partition in PARTITIONS:
                    producer.produce(TOPIC, value.encode(), partition=partition)
                if number % 3:
                    self._until_told(producer.commit_transaction)
                    self.committed.append(value)
                else:
                    producer.flush(60)
                    self._until_told(producer.abort_transaction)
                    self.aborted.append(value)
            except KafkaException as problem:
                if problem.args[0].txn_requires_abort():
                    self._until_told(producer.abort_transaction)
                    self.aborted.append(value)
                else:
                    self.unknown.append(value)
                    producer = self._begun()

    def _begun(self) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": self._transactional_id,
                "transaction.timeout.ms": 60_000,
                "log_level": 0,
            }
        )
        self._until_told(lambda: producer.init_transactions(60))
        return producer

    @staticmethod
    def _until_told(ask: object) -> None:
        while True:
            try:
                ask()  # type: ignore[operator]
            except KafkaException as problem:
                if not problem.args[0].retriable():
                    raise
            else:
                return


def committed_in(bootstrap: str, partition: int) -> list[str]:
    """The values that a reader of committed records sees, up to the end of the partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(TOPIC, partition, 0)])
    values: list[str] = []
    try:
        while (message := consumer.poll(60)) is not None and message.error() is None:
            values.append(message.value().decode())
    finally:
        consumer.close()
    return values


def check(cluster: Cluster, all_of_them: list[Transactions]) -> None:
    committed = {value for one in all_of_them for value in one.committed}
    aborted = {value for one in all_of_them for value in one.aborted}
    first, second = (committed_in(cluster.bootstrap, partition) for partition in PARTITIONS)
    assert len(set(first)) == len(first)
    assert set(first) == set(second)
    assert committed <= set(first)
    assert not aborted & set(first)


def wait_for(admin: Admin, all_of_them: list[Transactions], more: int) -> None:
    """Wait until each producer has committed so many more."""

    wanted = {id(one): len(one.committed) + more for one in all_of_them}
    admin.until(
        lambda: all(len(one.committed) >= wanted[id(one)] for one in all_of_them),
        f"{more} more transactions of each producer",
    )


@pytest.mark.timeout(290)
def test_transactions_are_whole_whoever_coordinates_them_and_whoever_dies(cluster: Cluster) -> None:
    admin = Admin(cluster.bootstrap)
    all_of_them = [Transactions(cluster.bootstrap, f"id-{number}") for number in range(4)]
    wait_for(admin, all_of_them, 10)
    for victim, is_killed in ((OTTLA, False), (OTTLA, True), (KAFKA, True)):
        node = cluster.nodes[victim]
        if is_killed:
            node.kill()
        else:
            node.stop()
        wait_for(admin, all_of_them, 5)
        node.start()
        admin.until(lambda: admin.isrs(TOPIC) + admin.isrs(STATE) == [{KAFKA, OTTLA}] * 5, f"{victim} is in sync again")
        wait_for(admin, all_of_them, 5)
    for one in all_of_them:
        one.end()
    check(cluster, all_of_them)
