"""New partitions of existing topics: every check of CreatePartitions, then the records of the partitions."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from broker.controller.placement import MAX_PARTITIONS_PER_REQUEST, Placement
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.records import Record
from broker.metadata.image.topics import partition_record
from broker.request.faults import (
    Fault,
    InvalidPartitions,
    InvalidReplicaAssignment,
    PolicyViolation,
    UnknownTopicOrPartition,
)
from broker.request.quota import MutationQuota
from protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class MorePartitions:
    """A topic that is to have more partitions."""

    topic: str
    count: int
    """How many partitions the topic shall have in all."""
    assignments: Sequence[Sequence[int]] | None = None
    """The brokers of each new partition where the client places the replicas itself."""


class GrowthResult(NamedTuple):
    """The result for one topic."""

    topic: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


class GrowthPlanner:
    """Plans new partitions against one image: the records to append, and what to answer once they are durable."""

    def __init__(self, image: MetadataImage, placement: Placement, mutations: MutationQuota | None = None) -> None:
        """``mutations`` is charged for each topic; None where nothing limits the client."""
        self._mutations = mutations
        self._image = image
        self._placement = placement
        self.records: list[Record] = []

    def plan(self, wishes: Sequence[MorePartitions]) -> list[GrowthResult]:
        """Check all topics of one request and collect the records of those that pass.

        A topic that is named more than once gets one result, before all others, and no partitions.
        """
        times = Counter(wish.topic for wish in wishes)
        results = [
            GrowthResult(
                topic=name,
                error=ErrorCode.INVALID_REQUEST,
                message="Duplicate topic name.",
            )
            for name, count in times.items()
            if count > 1
        ]
        results += [self._plan_one(wish) for wish in wishes if times[wish.topic] == 1]
        return results

    def _plan_one(self, wish: MorePartitions) -> GrowthResult:
        try:
            self._grow(wish)
        except Fault as fault:
            return GrowthResult(topic=wish.topic, error=fault.code, message=str(fault) or None)
        return GrowthResult(topic=wish.topic)

    def _grow(self, wish: MorePartitions) -> None:
        topic = self._image.topics.by_name.get(wish.topic)
        if topic is None:
            raise UnknownTopicOrPartition  # Kafka says no more, nor do we
        there = len(topic.partitions)
        if wish.count == there:
            raise InvalidPartitions(f"Topic already has {there} partition(s).")
        if wish.count < there:
            raise InvalidPartitions(
                f"The topic {wish.topic} currently has {there} partition(s); {wish.count} would not be an increase."
            )
        added = range(there, wish.count)
        if len(self.records) + len(added) > MAX_PARTITIONS_PER_REQUEST:
            raise PolicyViolation(
                f"Excessively large number of additional partitions per request. {len(added)} more are asked for, "
                f"{MAX_PARTITIONS_PER_REQUEST} are allowed in all."
            )
        if wish.assignments is not None and len(wish.assignments) != len(added):
            raise InvalidReplicaAssignment(
                f"Attempted to add {len(added)} additional partition(s), but only {len(wish.assignments)} "
                "assignment(s) were specified."
            )
        # A topic of an adopted directory may have more replicas than there are brokers.
        is_single = self._placement.is_alone or not topic.partitions
        replication_factor = 1 if is_single else len(topic.partitions[0].replicas)
        brokers: Sequence[Sequence[int]]
        if wish.assignments is None:
            brokers = self._placement.place(len(added), replication_factor)
        else:
            brokers = wish.assignments
            for index, replicas in zip(added, brokers, strict=True):
                self._placement.check_assignment(index, replicas, replication_factor)
        if self._mutations is not None:
            self._mutations.charge(len(added))
        self.records += [
            partition_record(topic.topic_id, self._placement.partition(index, replicas))
            for index, replicas in zip(added, brokers, strict=True)
        ]
