"""Reassignment of partitions to other replicas (KIP-455): the checks, and the record that begins or calls off a move.

replicas [1 2] ─ asked: [2 3] ─► replicas [2 3 1], adding [3], removing [1] ─ 3 is in sync ─► replicas [2 3]
                                    └─ called off ─► replicas [2 1]

The end of a move comes with the ISR change that takes the last added replica in (`broker.controller.isr_alteration`).
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.controller.broker_changes import election_of
from broker.controller.cluster_view import ClusterView
from broker.controller.partition_change import Wanted, plan_change
from broker.controller.placement import Placement
from broker.metadata.image.records import Record
from broker.metadata.image.topics import PartitionImage, TopicImage
from broker.request.faults import (
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    NoReassignmentInProgress,
    UnknownTopicOrPartition,
)
from protocol.records.cluster_metadata import PartitionChangeRecord


class ReassignmentPlanner:
    """Plans reassignments against one image; the records to append are collected in ``records``."""

    def __init__(self, view: ClusterView, placement: Placement, *, may_change_replication_factor: bool = True) -> None:
        """``may_change_replication_factor``: whether a partition may get another number of replicas (KIP-860)."""
        self._view = view
        self._placement = placement
        self._may_change_replication_factor = may_change_replication_factor
        self.records: list[Record] = []

    def plan(self, topic: str, index: int, replicas: Sequence[int] | None) -> None:
        """Give a partition ``replicas``, or with None call off what moves it.

        Raises:
            UnknownTopicOrPartition: there is no such partition.
            NoReassignmentInProgress: nothing moves it that could be called off.
            InvalidReplicaAssignment: the replicas cannot be there; or the move cannot be called off without the loss of
                acknowledged records, and ``unclean.leader.election.enable`` is false.
            InvalidReplicationFactor: the number of replicas is another, and may not change.
        """
        known = self._view.image.topics.by_name.get(topic)
        partition = known.partition(index) if known is not None else None
        if known is None:
            raise UnknownTopicOrPartition(f"Unable to find a topic named {topic}.")
        if partition is None:
            raise UnknownTopicOrPartition(f"Unable to find partition {topic}:{index}.")
        if replicas is None:
            record = self._called_off(known, partition)
        elif self._placement.is_alone:
            self._placement.check_brokers(replicas)
            record = _reduced(known.topic_id, partition, replicas)
        else:
            record = self._begun(known, partition, replicas)
        if record is not None:
            self.records.append(record)

    def _begun(
        self, topic: TopicImage, partition: PartitionImage, replicas: Sequence[int]
    ) -> PartitionChangeRecord | None:
        """The record that begins the move; it also ends the move if replicas are only removed or put in order."""
        self._placement.check_brokers(replicas)
        before = _settled_replicas(partition)
        if not self._may_change_replication_factor and len(replicas) != len(before):
            raise InvalidReplicationFactor(f"The replication factor is changed from {len(before)} to {len(replicas)}")
        removing = sorted(broker for broker in partition.replicas if broker not in replicas)
        adding = [
            broker for broker in replicas if broker not in partition.replicas or broker in partition.adding_replicas
        ]
        return plan_change(
            self._view,
            topic,
            partition,
            Wanted(
                replicas=[*replicas, *removing],
                adding=sorted(adding),
                removing=removing,
                election=election_of(self._view, topic),
            ),
        )

    def _called_off(self, topic: TopicImage, partition: PartitionImage) -> PartitionChangeRecord | None:
        if not (partition.adding_replicas or partition.removing_replicas):
            raise NoReassignmentInProgress
        replicas = _settled_replicas(partition)
        if self._placement.is_alone:
            return _reduced(topic.topic_id, partition, replicas)
        isr = [broker for broker in partition.isr if broker in replicas]
        if not isr and not self._view.allows_unclean_leaders(topic):
            # Only added replicas are in sync.
            raise InvalidReplicaAssignment(
                f"Unable to revert partition assignment for {topic.name}:{partition.index} because it would require "
                "an unclean leader election."
            )
        return plan_change(
            self._view,
            topic,
            partition,
            Wanted(isr=isr, replicas=replicas, adding=[], removing=[], election=election_of(self._view, topic)),
        )


def _settled_replicas(partition: PartitionImage) -> list[int]:
    """The replicas without those that a move adds."""
    return [broker for broker in partition.replicas if broker not in partition.adding_replicas]


def _reduced(topic_id: bytes, partition: PartitionImage, replicas: Sequence[int]) -> PartitionChangeRecord | None:
    """The record that makes ``replicas`` all there is of the partition: an adopted directory had more. None if it is
    so."""
    is_moving = partition.adding_replicas or partition.removing_replicas
    if list(partition.replicas) == list(replicas) and not is_moving:
        return None
    return PartitionChangeRecord(
        partition_id=partition.index,
        topic_id=topic_id,
        replicas=list(replicas),
        isr=[broker for broker in partition.isr if broker in replicas],
        adding_replicas=[],
        removing_replicas=[],
        directories=[partition.directory_of(broker) for broker in replicas] if partition.directories else None,
    )
