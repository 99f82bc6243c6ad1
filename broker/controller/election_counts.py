"""ElectionCounts: how many leaders were elected that were not in sync."""

from broker.metadata.image.metadata_image import MetadataImage
from protocol.records.cluster_metadata import NO_LEADER, PartitionChangeRecord


class ElectionCounts:
    """The elections of one run of a controller in which the new leader was not in sync before."""

    __slots__ = ("eligible", "unclean")

    def __init__(self) -> None:
        self.unclean = 0
        """The leader may lack records that were acknowledged."""
        self.eligible = 0
        """The leader was an eligible leader replica, which has all committed records (KIP-966)."""

    def count(self, change: PartitionChangeRecord, before: MetadataImage) -> None:
        """Count the election in a change of a partition, if there is one; ``before`` is the image without it."""
        if change.leader <= NO_LEADER:
            return  # no leader, or the same as before
        topic = before.topics.by_id.get(change.topic_id)
        partition = None if topic is None else topic.partition(change.partition_id)
        if partition is None or change.leader in partition.isr:
            return
        if change.leader in (partition.eligible_leader_replicas or ()):
            self.eligible += 1
        else:
            self.unclean += 1
