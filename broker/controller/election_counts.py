"""ElectionCounts: how many leaders were elected that were not in sync, by what is known of them."""

from broker.metadata.image.metadata_image import MetadataImage
from protocol.records.cluster_metadata import NO_LEADER, PartitionChangeRecord


class ElectionCounts:
    """The elections of one run of a controller in which the new leader was not in sync before."""

    __slots__ = ("eligible", "last_in_sync", "out_of_sync")

    def __init__(self) -> None:
        self.out_of_sync = 0
        """The leader lagged behind when it left the ISR, or never was in it: it may lack acknowledged records."""
        self.last_in_sync = 0
        """The leader is back that was the last replica in sync, after a stop that was not in order. It lacks nothing
        but what its disk may have lost with the power of its machine."""
        self.eligible = 0
        """The leader was an eligible leader replica, which has all committed records (KIP-966)."""

    @property
    def unclean(self) -> int:
        """What Kafka counts as unclean elections."""
        return self.out_of_sync + self.last_in_sync

    def count(self, change: PartitionChangeRecord, before: MetadataImage) -> None:
        """Count the election in a change of a partition, if there is one; ``before`` is the image without it."""
        if change.leader <= NO_LEADER:
            return  # no leader, or the same as before
        topic = before.topics.by_id.get(change.topic_id)
        partition = None if topic is None else topic.partition(change.partition_id)
        if partition is None or change.leader in partition.isr:
            return
        eligible = partition.eligible_leader_replicas
        if change.leader in eligible:
            self.eligible += 1
        elif change.leader in partition.last_known_elr and not partition.isr and not eligible:
            self.last_in_sync += 1
        else:
            self.out_of_sync += 1
