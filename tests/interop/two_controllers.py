"""A controller of Apache Kafka and this broker's controller, asked the same, and what they write compared.

The brokers are requests only: nothing runs behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, Protocol

from broker.controller.topic_creation import NewTopic
from broker.metadata.image.metadata_image import EMPTY, MetadataDelta, MetadataImage
from broker.metadata.image.records import Record
from broker.metadata.loader import MetadataTransaction
from broker.raft.batches import decode_batches
from dev.waiting import until
from protocol.errors import ErrorCode as E
from protocol.messages.alter_partition import AlterPartitionRequest
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from protocol.messages.broker_lifecycle import BrokerHeartbeatRequest, BrokerRegistrationRequest
from protocol.messages.elections import ElectLeadersRequest
from protocol.messages.reassignments import AlterPartitionReassignmentsRequest
from protocol.messages.registrations import UnregisterBrokerRequest
from protocol.messages.topics import CreateTopicsRequest
from protocol.records.cluster_metadata import BrokerRegistrationChangeRecord, NoOpRecord, PartitionChangeRecord
from tests.interop.clusters import CLUSTER
from tests.support.raw_client import RawClient
from tests.unit.broker.controller.cluster import CLUSTER_ID, Cluster, directory

FAR: Final = 1 << 40
"""An offset up to which a broker says that it has applied the metadata log: all of it."""


class Side(Protocol):
    """One of the two controllers."""

    cluster_id: str
    epochs: dict[int, int]
    """The epoch of each broker that has registered."""

    @property
    def image(self) -> MetadataImage: ...

    def send(self, request: Any) -> Any:
        """The response, or for requests of clients what is told of each topic or partition."""

    def news(self) -> list[Record]:
        """The records since the last call."""

    def let_sessions_end(self, silent: Collection[int]) -> None:
        """Let the sessions of these brokers end; the others send heartbeats."""


@dataclass(frozen=True)
class Told:
    """What is told of one topic or partition."""

    error: E
    message: str | None


class Ours:
    """This broker's controller, on a metadata log in memory."""

    def __init__(self, *, has_elr: bool) -> None:
        self.cluster_id = CLUSTER_ID
        self.epochs: dict[int, int] = {}
        self._cluster = Cluster(elr=has_elr, metadata_version=33)
        self._read = self._cluster.log.end_offset

    @property
    def image(self) -> MetadataImage:
        image: MetadataImage = self._cluster.image
        return image

    def send(self, request: Any) -> Any:
        cluster, controller = self._cluster, self._cluster.controller
        results: list[Any] = []
        match request:
            case CreateTopicsRequest():
                wanted = [
                    NewTopic(
                        name=topic.name,
                        assignments=[(one.partition_index, one.broker_ids) for one in topic.assignments],
                        configs=[(config.name, config.value) for config in topic.configs],
                    )
                    for topic in request.topics
                ]
                controller.create_topics(wanted, timeout_ms=1_000, validate_only=False, then=results.extend)
                return [Told(E(one.error), one.message) for one in results]
            case AlterPartitionReassignmentsRequest():
                wishes = [
                    (topic.name, one.partition_index, one.replicas)
                    for topic in request.topics
                    for one in topic.partitions
                ]
                controller.reassign_partitions(wishes, then=results.extend)
                return [Told(E.NONE, None) if one is None else Told(one.code, str(one) or None) for one in results]
            case UnregisterBrokerRequest():
                controller.unregister_broker(request.broker_id, lambda: None)
                return None
        ask = {
            BrokerRegistrationRequest: cluster.requests.broker_registration,
            BrokerHeartbeatRequest: cluster.requests.broker_heartbeat,
            AlterPartitionRequest: cluster.requests.alter_partition,
            AssignReplicasToDirsRequest: cluster.requests.assign_replicas_to_dirs,
            ElectLeadersRequest: cluster.requests.elect_leaders,
        }[type(request)]
        return cluster.ask(ask, request)

    def news(self) -> list[Record]:
        records: list[Record] = self._cluster.log.records[self._read :]
        self._read += len(records)
        return records

    def let_sessions_end(self, silent: Collection[int]) -> None:
        for _ in range(3):
            self._cluster.clock.advance(3_001)
            keep_alive(self, silent)
        self._cluster.check_sessions()


class Kafkas:
    """A controller of Kafka, whose metadata log is read from its disk."""

    VERSIONS: Final = {
        BrokerRegistrationRequest: 4,
        BrokerHeartbeatRequest: 2,
        AlterPartitionRequest: 3,
        AssignReplicasToDirsRequest: 0,
        CreateTopicsRequest: 7,
        AlterPartitionReassignmentsRequest: 1,
        ElectLeadersRequest: 2,
        UnregisterBrokerRequest: 0,
    }

    def __init__(self, client: RawClient, log: Path) -> None:
        self.cluster_id = CLUSTER
        self.epochs: dict[int, int] = {}
        self.image = EMPTY
        self._client = client
        self._log = log
        self._transaction = MetadataTransaction()
        self._read_up_to = 0
        self._unseen: list[Record] = []
        until(lambda: self.read().image.cluster.controllers, "Kafka's controller has written its own registration")

    def send(self, request: Any) -> Any:
        response = self._client.ask(request, self.VERSIONS[type(request)])
        match request:
            case CreateTopicsRequest():
                return [Told(E(one.error_code), one.error_message) for one in response.topics]
            case AlterPartitionReassignmentsRequest():
                return [
                    Told(E(one.error_code), one.error_message)
                    for topic in response.responses
                    for one in topic.partitions
                ]
            case UnregisterBrokerRequest():
                return None
        return response

    def read(self) -> Kafkas:
        """Read what is new in the metadata log."""
        delta = MetadataDelta(self.image)
        for batch in decode_batches(memoryview(self._log.read_bytes())):
            if batch.base_offset >= self._read_up_to:
                self._read_up_to = batch.next_offset
                for record in batch.records:
                    for counts in self._transaction.pass_on(record):
                        delta.replay(counts)
                        self._unseen.append(counts)
        self.image = delta.apply(self._read_up_to)
        return self

    def news(self) -> list[Record]:
        self.read()
        records, self._unseen = self._unseen, []
        return records

    def let_sessions_end(self, silent: Collection[int]) -> None:
        def are_fenced() -> bool:
            keep_alive(self, silent)
            self.read()
            fenced = {
                record.broker_id
                for record in self._unseen
                if isinstance(record, BrokerRegistrationChangeRecord) and record.fenced == 1
            }
            return fenced >= {*silent}  # also brokers that were fenced before: Kafka fences them again

        until(are_fenced, f"Kafka has fenced {silent}")


# What is asked. Each function is called with both controllers.


def keep_alive(side: Side, silent: Collection[int] = ()) -> None:
    """Send heartbeats of the active brokers."""
    for broker in side.image.cluster.brokers.values():
        is_active = not (broker.fenced or broker.in_controlled_shutdown)
        if is_active and broker.broker_id in side.epochs and broker.broker_id not in silent:
            heartbeat(side, broker.broker_id)


def register(
    side: Side, number: int, *, run: int = 0, was_clean: bool = False, directories: int = 1, **changed: Any
) -> E:
    """A broker registers for a ``run`` of its process."""
    fields_ = {
        "broker_id": number,
        "cluster_id": side.cluster_id,
        "incarnation_id": (1_000 * number + run + 1).to_bytes(16, "big"),
        "listeners": [
            BrokerRegistrationRequest.Listener(
                name="PLAINTEXT", host="127.0.0.1", port=9000 + number, security_protocol=0
            )
        ],
        "features": [
            BrokerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, low, high in FEATURES
        ],
        "rack": None,
        "log_dirs": [directory(number, index) for index in range(directories)],
        "previous_broker_epoch": side.epochs[number] if was_clean else -1,
    }
    response = side.send(BrokerRegistrationRequest(**(fields_ | changed)))
    if response.error_code == E.NONE:
        side.epochs[number] = response.broker_epoch
    return E(response.error_code)


def heartbeat(
    side: Side,
    number: int,
    *,
    fence: bool = False,
    shutdown: bool = False,
    applied: int = FAR,
    offline: Sequence[bytes] = (),
    cordoned: list[bytes] | None = None,
) -> tuple[E, bool, bool, bool]:
    response = side.send(
        BrokerHeartbeatRequest(
            broker_id=number,
            broker_epoch=side.epochs.get(number, 1),
            current_metadata_offset=applied,
            want_fence=fence,
            want_shut_down=shutdown,
            offline_log_dirs=list(offline),
            cordoned_log_dirs=cordoned,
        )
    )
    return E(response.error_code), response.is_caught_up, response.is_fenced, response.should_shut_down


def end_sessions(side: Side, *numbers: int) -> None:
    side.let_sessions_end(numbers)


def unregister(side: Side, number: int) -> None:
    side.send(UnregisterBrokerRequest(broker_id=number))


def create(side: Side, name: str, *replicas: list[int], **configs: str) -> Any:
    Topic = CreateTopicsRequest.Topic
    topic = Topic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            Topic.Assignment(partition_index=index, broker_ids=brokers) for index, brokers in enumerate(replicas)
        ],
        configs=[Topic.Config(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )
    return side.send(CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=False))


def isr(
    side: Side,
    name: str,
    index: int,
    brokers: list[int],
    *,
    by: int | None = None,
    recovery: int = 0,
    leader_epoch: int = 0,
    partition_epoch: int = 0,
    epochs: dict[int, int] | None = None,
) -> Any:
    """The leader, or broker ``by``, asks for an ISR; epochs are relative to the partition's."""
    topic = side.image.topics.by_name[name]
    partition = topic.partition(index)
    assert partition is not None
    by = partition.leader if by is None else by
    Asked = AlterPartitionRequest.Topic.Partition
    asked = Asked(
        partition_index=index,
        leader_epoch=partition.leader_epoch + leader_epoch,
        partition_epoch=partition.partition_epoch + partition_epoch,
        leader_recovery_state=recovery,
        new_isr_with_epochs=[
            Asked.BrokerState(broker_id=broker, broker_epoch=(epochs or side.epochs).get(broker, side.epochs[broker]))
            for broker in brokers
        ],
    )
    response = side.send(
        AlterPartitionRequest(
            broker_id=by,
            broker_epoch=side.epochs[by],
            topics=[AlterPartitionRequest.Topic(topic_id=topic.topic_id, partitions=[asked])],
        )
    )
    (answer,) = response.topics[0].partitions
    return answer


def assign(side: Side, number: int, where: bytes, name: str, index: int) -> list[E]:
    Directory = AssignReplicasToDirsRequest.Directory
    topic = Directory.Topic(
        topic_id=side.image.topics.by_name[name].topic_id, partitions=[Directory.Topic.Partition(partition_index=index)]
    )
    response = side.send(
        AssignReplicasToDirsRequest(
            broker_id=number, broker_epoch=side.epochs[number], directories=[Directory(id=where, topics=[topic])]
        )
    )
    return [E(one.error_code) for found in response.directories for topic in found.topics for one in topic.partitions]


def elect(side: Side, election_type: int, *asked: tuple[str, int]) -> Any:
    partitions = [ElectLeadersRequest.TopicPartitions(topic=name, partitions=[index]) for name, index in asked]
    response = side.send(ElectLeadersRequest(election_type=election_type, topic_partitions=partitions or None))
    found = [
        (topic.topic, one.partition_id, E(one.error_code), one.error_message)
        for topic in response.replica_election_results
        for one in topic.partition_result
    ]
    return E(response.error_code), found if asked else sorted(found)


def move(side: Side, name: str, index: int, replicas: list[int] | None) -> Any:
    Topic = AlterPartitionReassignmentsRequest.Topic
    topic = Topic(name=name, partitions=[Topic.Partition(partition_index=index, replicas=replicas)])
    return side.send(AlterPartitionReassignmentsRequest(topics=[topic]))


FEATURES: Final = (
    ("metadata.version", 7, 33),
    ("kraft.version", 0, 1),
    ("transaction.version", 0, 2),
    ("eligible.leader.replicas.version", 0, 1),
    ("group.version", 0, 1),
    ("share.version", 0, 2),
    ("streams.version", 0, 1),
)


class Comparison:
    """Asks both controllers, and notes each step in which they differ."""

    def __init__(self, ours: Side, kafkas: Side) -> None:
        self._sides = (ours, kafkas)
        self.differences: dict[str, str] = {}

    def __call__(self, what: str, ask: Callable[..., Any], *words: Any, **options: Any) -> None:
        """``what`` names the step. ``ask`` is called with each controller and the other arguments."""
        seen = []
        for side in self._sides:
            side.news()
            keep_alive(side)
            side.news()
            answer = ask(side, *words, **options)
            seen.append((answer, comparable(side)))
        ours, kafkas = seen
        if ours != kafkas:
            self.differences[what] = f"ours: {ours}\nKafka's: {kafkas}"


def comparable(side: Side) -> list[str]:
    """The new records as text, without what every cluster has of its own; partitions in one order."""
    found = []
    for record in side.news():
        if isinstance(record, NoOpRecord):
            continue
        values: dict[str, Any] = {one.name: getattr(record, one.name) for one in fields(record)}  # type: ignore[arg-type]
        values |= {name: int(value) for name, value in values.items() if isinstance(value, IntEnum)}
        topic = side.image.topics.by_id.get(bytes(values.pop("topic_id", b"")))
        for name in ("broker_epoch", "incarnation_id"):
            values.pop(name, None)
        order = (topic.name, record.partition_id) if topic and isinstance(record, PartitionChangeRecord) else ("", 0)
        found.append((type(record).__name__, order, f"{topic.name if topic else ''} {values}"))
    return [f"{kind}: {text}" for kind, _, text in sorted(found, key=lambda one: (one[0], one[1]))]
