"""Partitions as handlers find them: on this node, or on other brokers of the cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from broker.metadata.brokers import Brokers
from broker.metadata.cache import ImageSource
from broker.replication.partition import Partition
from broker.replication.replica_manager import ReplicaManager
from broker.request.faults import NotLeaderOrFollower
from protocol.records.cluster_metadata import NO_LEADER
from storage.sentinels import NO_EPOCH

if TYPE_CHECKING:
    from broker.replication.replication import Replication


class _Endpoint(Protocol):
    node_id: int


E = TypeVar("E", bound=_Endpoint)
L = TypeVar("L")


def find_partition(replicas: ReplicaManager, metadata: ImageSource, topic: str, index: int) -> Partition:
    """The partition, led by this node or not.

    Raises `NotLeaderOrFollower` for a partition that only other brokers have, `UnknownTopicOrPartition`, and
    LogDirFailed for a partition of this node that is offline.
    """
    partition = replicas.find(topic, index)
    if partition is not None:
        return partition
    if not replicas.is_offline(topic, index) and metadata.image.topics.partition(topic, index) is not None:
        raise NotLeaderOrFollower(f"this node has no replica of {topic}-{index}")
    return replicas.partition(topic, index)


class PartitionLookup:
    """Finds partitions of this node, and tells those of other brokers from those that do not exist."""

    __slots__ = ("_brokers", "_find", "_metadata", "_replicas")

    def __init__(self, replicas: ReplicaManager, metadata: ImageSource, brokers: Brokers) -> None:
        self._replicas = replicas
        self._metadata = metadata
        self._brokers = brokers
        self._find = replicas.find

    def partition(self, topic: str, index: int) -> Partition:
        """As `find_partition`."""
        partition = self._find(topic, index)
        return find_partition(self._replicas, self._metadata, topic, index) if partition is None else partition

    @property
    def replication(self) -> Replication | None:
        """What this broker does with its followers; None where there are no other brokers."""
        return self._replicas.replication

    def topic_name(self, topic_id: bytes) -> str:
        """The name of the topic with this id; empty if there is none."""
        known = self._metadata.image.topics.by_id.get(topic_id)
        return "" if known is None else known.name

    def current_leader(
        self,
        topic: str,
        index: int,
        listener: str,
        make_leader: Callable[..., L],
        endpoints: list[E],
        make_endpoint: Callable[..., E],
    ) -> L:
        """Who leads a partition, for an answer that sends a client there (KIP-951).

        This node's replica knows it, or else the metadata; -1 if no broker leads it, or there is no such partition.

        Args:
            topic: the topic's name.
            index: the partition's index.
            listener: the listener on which the client has asked.
            make_leader: makes the answer's struct for the leader's id and epoch.
            endpoints: the endpoints of the answer. The leader's is added once, unless the leader is fenced or has no
                such listener.
            make_endpoint: makes a struct of ``endpoints``.
        """
        leader, epoch = NO_LEADER, NO_EPOCH
        hosted = self._find(topic, index)
        if hosted is not None:
            leader, epoch = hosted.leader, hosted.leader_epoch
        else:
            partition = self._metadata.image.topics.partition(topic, index)
            if partition is not None:
                leader, epoch = partition.leader, partition.leader_epoch
        broker = self._brokers.on(listener).find_alive(leader)
        if broker is not None and all(endpoint.node_id != leader for endpoint in endpoints):
            endpoints.append(make_endpoint(node_id=leader, host=broker.host, port=broker.port, rack=broker.rack))
        return make_leader(leader_id=leader, leader_epoch=epoch)
