"""Elections are counted by what the new leader was before."""

from broker.controller.election_counts import ElectionCounts
from broker.metadata.image.metadata_image import MetadataDelta, MetadataImage
from protocol.records.cluster_metadata import PartitionChangeRecord, PartitionRecord
from tests.support.cluster import id_of, partition_record, topic_records


def counted(*changes: PartitionChangeRecord) -> tuple[int, int]:
    """How many unclean elections and elections of eligible replicas there are in changes of one image.

    Replica 1 is in sync, 2 is an eligible leader replica, 3 is neither.
    """
    counts = of_partition(partition_record(1, 2, 3, isr=[1], eligible=[2]), *changes)
    return counts.unclean, counts.eligible


def of_partition(partition: PartitionRecord, *changes: PartitionChangeRecord) -> ElectionCounts:
    delta = MetadataDelta(MetadataImage())
    for record in topic_records("orders", partition):
        delta.replay(record)
    image = delta.apply(10)
    counts = ElectionCounts()
    for change in changes:
        counts.count(change, image)
    return counts


def led_by(leader: int, topic: str = "orders") -> PartitionChangeRecord:
    return PartitionChangeRecord(topic_id=id_of(topic), partition_id=0, leader=leader)


def test_a_leader_that_was_in_sync_is_not_counted() -> None:
    assert counted(led_by(1)) == (0, 0)


def test_an_eligible_leader_replica_is_counted_apart() -> None:
    assert counted(led_by(2)) == (0, 1)


def test_a_leader_that_was_not_in_sync_is_an_unclean_election() -> None:
    assert counted(led_by(3), led_by(3)) == (2, 0)


def test_the_last_leader_in_sync_that_is_back_is_unclean_for_kafka_and_told_apart() -> None:
    nobody_in_sync = partition_record(1, 2, 3, leader=-1, isr=[], last_known=[1])
    counts = of_partition(nobody_in_sync, led_by(1), led_by(2), led_by(3))
    assert (counts.unclean, counts.last_in_sync, counts.out_of_sync) == (3, 1, 2)


def test_the_last_leader_may_lack_records_while_an_eligible_replica_is_away() -> None:
    """The last leader was not stopped in order and may have lost its power, and an unclean election makes it lead."""
    counts = of_partition(partition_record(1, 2, leader=-1, isr=[], eligible=[2], last_known=[1]), led_by(1))
    assert (counts.last_in_sync, counts.out_of_sync) == (0, 1)


def test_no_leader_and_an_unchanged_leader_are_no_elections() -> None:
    unchanged = PartitionChangeRecord(topic_id=id_of("orders"), partition_id=0, isr=[1, 3])
    assert counted(led_by(-1), unchanged) == (0, 0)


def test_a_partition_that_is_not_known_is_not_counted() -> None:
    assert counted(led_by(3, topic="payments")) == (0, 0)
