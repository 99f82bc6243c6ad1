"""Reassignment of partitions to other replicas (KIP-455): the checks, and the record of the new replicas.

On one node no replica can move. What can be done is to reduce a partition of an adopted directory, which had several
replicas or was being reassigned, to this node.
"""

from collections.abc import Sequence

from broker.controller.placement import Placement
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.records import Record
from broker.metadata.image.topics import PartitionImage
from broker.request.faults import NoReassignmentInProgress, UnknownTopicOrPartition
from protocol.records.cluster_metadata import PartitionChangeRecord


class ReassignmentPlanner:
    """Plans reassignments against one image; the records to append are collected in ``records``."""

    def __init__(self, image: MetadataImage, placement: Placement) -> None:
        self._image = image
        self._placement = placement
        self.records: list[Record] = []

    def plan(self, topic: str, index: int, replicas: Sequence[int] | None) -> None:
        """Give a partition ``replicas``, or with None call off what moves it.

        Raises:
            UnknownTopicOrPartition: there is no such partition.
            NoReassignmentInProgress: nothing moves it that could be called off.
            InvalidReplicaAssignment: the replicas cannot be there.
        """
        known = self._image.topics.by_name.get(topic)
        partition = known.partition(index) if known is not None else None
        if known is None:
            raise UnknownTopicOrPartition(f"Unable to find a topic named {topic}.")
        if partition is None:
            raise UnknownTopicOrPartition(f"Unable to find partition {topic}:{index}.")
        if replicas is None:
            if not (partition.adding_replicas or partition.removing_replicas):
                raise NoReassignmentInProgress
            replicas = [broker for broker in partition.replicas if broker not in partition.adding_replicas]
        else:
            self._placement.check_brokers(replicas)
        if list(partition.replicas) != list(replicas) or partition.adding_replicas or partition.removing_replicas:
            self.records.append(_moved(known.topic_id, partition, replicas))


def _moved(topic_id: bytes, partition: PartitionImage, replicas: Sequence[int]) -> PartitionChangeRecord:
    return PartitionChangeRecord(
        partition_id=partition.index,
        topic_id=topic_id,
        replicas=list(replicas),
        isr=[broker for broker in partition.isr if broker in replicas],
        adding_replicas=[],
        removing_replicas=[],
        directories=[partition.directory_of(broker) for broker in replicas] if partition.directories else None,
    )
