"""Clusters of brokers of ours, and a load whose acknowledgements are remembered."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, Self

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from dev.broker_process import BrokerProcess, port_below_client_ports
from dev.waiting import until
from protocol.messages.metadata import MetadataRequest
from tests.support.raw_client import RawClient

PATIENCE_S: Final = 90.0


def member_settings(node_id: int, controllers: Sequence[int]) -> dict[str, str]:
    """The settings of a member of a cluster. ``controllers``: the ports of its controllers."""
    return {
        "process.roles": "broker",
        "node.id": str(node_id),
        "controller.quorum.bootstrap.servers": ",".join(f"127.0.0.1:{port}" for port in controllers),
        "offsets.topic.replication.factor": "2",
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.replication.factor": "2",
        "transaction.state.log.num.partitions": "3",
        "transaction.state.log.min.isr": "1",
    }


class Member(BrokerProcess):
    """This broker as a member of a cluster."""

    def __init__(
        self, directory: Path, *, node_id: int, controllers: Sequence[int], settings: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(directory, port=port_below_client_ports())
        self.id = node_id
        self.settings = {**member_settings(node_id, controllers), **(settings or {})}


class Primary(BrokerProcess):
    """This broker with its own controller, which other brokers can join."""

    def __init__(self, directory: Path, *, node_id: int = 1, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, port=port_below_client_ports())
        self.id = node_id
        self.controller_port = self.port + 1
        self.settings = {
            "node.id": str(node_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "offsets.topic.replication.factor": "2",
            "offsets.topic.num.partitions": "3",
            "transaction.state.log.replication.factor": "2",
            "transaction.state.log.num.partitions": "3",
            **(settings or {}),
        }


class Cluster:
    """Nodes by their ids, closed together: as the end of a `with`, or by `close`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.nodes: dict[int, BrokerProcess] = {}
        self.controllers: list[int] = []
        """Their ports."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def add_primary(self, node_id: int = 1, settings: Mapping[str, str] | None = None) -> Primary:
        """Start this broker with its own controller, which the other nodes join."""
        node = Primary(self.directory / f"primary-{node_id}", node_id=node_id, settings=settings)
        self.controllers.append(node.controller_port)
        self.nodes[node_id] = node
        node.start()
        return node

    def add_member(self, node_id: int, settings: Mapping[str, str] | None = None) -> Member:
        """Start this broker as a member."""
        node = Member(
            self.directory / f"member-{node_id}", node_id=node_id, controllers=self.controllers, settings=settings
        )
        self.nodes[node_id] = node
        node.start()
        return node

    @property
    def bootstrap(self) -> str:
        """The brokers, for clients."""
        return ",".join(node.bootstrap for node in self.nodes.values())

    def close(self) -> None:
        """Kill all nodes that run."""
        for node in self.nodes.values():
            node.close()


class Admin:
    """A client for administration, which sees the cluster from all its brokers."""

    def __init__(self, bootstrap: str) -> None:
        self.client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def create(self, topic: str, assignment: Sequence[Sequence[int]], **config: str) -> None:
        """Create a topic whose partitions have these replicas; the first replica of each leads."""
        wanted = NewTopic(
            topic,
            num_partitions=len(assignment),
            replica_assignment=[list(one) for one in assignment],
            config={key.replace("_", "."): value for key, value in config.items()},
        )
        self.client.create_topics([wanted])[topic].result(30)
        self.until(lambda: self.leaders(topic) == [one[0] for one in assignment], f"{topic} has its leaders")

    def partitions(self, topic: str) -> list[Any]:
        """The partitions as the brokers' Metadata has them."""
        topics = self.client.list_topics(topic, timeout=10).topics
        return [partition for _, partition in sorted(topics[topic].partitions.items())]

    def leaders(self, topic: str) -> list[int]:
        try:
            return [partition.leader for partition in self.partitions(topic)]
        except KafkaException:
            return []

    def isrs(self, topic: str) -> list[set[int]]:
        try:
            return [set(partition.isrs) for partition in self.partitions(topic)]
        except KafkaException:
            return []

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until a condition holds."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
            time.sleep(0.05)


def await_in_sync(brokers: Mapping[int, BrokerProcess], *topics: str) -> None:
    """Wait until each of these brokers itself knows that all partitions of the topics are in sync on all of them.

    A client is not enough: a client asks any broker, and a broker may not have heard yet that another had left the ISR.
    Only the broker that has come back is sure to know.
    """
    asked = MetadataRequest(
        topics=[MetadataRequest.Topic(name=topic) for topic in topics], allow_auto_topic_creation=False
    )

    def knows(broker: BrokerProcess) -> bool:
        with RawClient(broker.bootstrap) as raw:
            found = [topic.partitions for topic in raw.ask(asked, 12).topics]
        return all(found) and all(set(one.isr_nodes) == set(brokers) for partitions in found for one in partitions)

    for number, broker in brokers.items():
        until(lambda broker=broker: knows(broker), f"node {number} knows that {', '.join(topics)} are in sync")  # type: ignore[misc]


class Load:
    """A producer in a thread: it sends numbers, and remembers which were acknowledged, and when.

    Here it is an idempotent one of confluent-kafka; `tests.support.loads` has those of other clients.
    """

    _running: ClassVar[set[Load]] = set()

    @classmethod
    def abandon_all(cls) -> None:
        """Let no load go on that a failed test has left: the next test's broker may have the port of this one's."""
        while cls._running:
            load = cls._running.pop()
            load._is_abandoned = True
            load._ends.set()
            load._thread.join(10)

    def __init__(self, bootstrap: str, topic: str, *, partition: int = 0, rate_s: float = 500, **settings: Any) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._partition = partition
        self._pause_s = 1 / rate_s
        self._settings = settings
        self._ends = threading.Event()
        self._is_abandoned = False
        self.acknowledged: list[int] = []
        self.errors: list[str] = []
        self.times: list[float] = []
        """When each acknowledgement came."""
        self.sent = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._running.add(self)

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 120_000,
                "linger.ms": 2,
                "log_level": 0,
                **self._settings,
            }
        )
        while not self._ends.is_set():
            number = self.sent
            producer.produce(
                self._topic,
                str(number).encode(),
                partition=self._partition,
                on_delivery=lambda error, message: self._delivered(error, int(message.value())),
            )
            self.sent += 1
            next_at = time.monotonic() + self._pause_s
            while (left_s := next_at - time.monotonic()) > 0:
                producer.poll(left_s)  # it returns as soon as something was delivered
        if self._is_abandoned:
            producer.purge()
        else:
            producer.flush(130)

    def _delivered(self, error: object, number: int) -> None:
        if error is None:
            self.acknowledged.append(number)
            self.times.append(time.monotonic())
        else:
            self.errors.append(f"{number}: {error}")

    def wait_for(self, more: int) -> None:
        """Wait until so many more records are acknowledged."""
        wanted = len(self.acknowledged) + more
        deadline = time.monotonic() + PATIENCE_S
        while len(self.acknowledged) < wanted:
            assert time.monotonic() < deadline, f"{wanted - len(self.acknowledged)} acknowledgements are missing"
            assert not self.errors, self.errors[:3]
            time.sleep(0.01)

    def end(self) -> None:
        """Stop sending, and wait for the last acknowledgement."""
        self._ends.set()
        self._thread.join()
        self._running.discard(self)

    @property
    def longest_pause_s(self) -> float:
        """The longest time without an acknowledgement."""
        return max((after - before for before, after in zip(self.times, self.times[1:], strict=False)), default=0.0)


def numbers_in(bootstrap: str, topic: str, partition: int = 0) -> list[int]:
    """All numbers in a partition, in the order of the log."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    try:
        end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)[1]
        consumer.assign([TopicPartition(topic, partition, 0)])
        found: list[int] = []
        deadline = time.monotonic() + PATIENCE_S
        while True:
            position = consumer.position([TopicPartition(topic, partition)])[0].offset
            if position >= end:
                return found
            assert time.monotonic() < deadline, f"{topic} is read up to {position} of {end}"
            for message in consumer.consume(5_000, timeout=0.5):
                assert message.error() is None, message.error()
                value = message.value()
                assert value is not None
                found.append(int(value))
    finally:
        consumer.close()
