"""Reassignments among the brokers of a cluster: begun, ended by the ISR, overridden, called off."""

import pytest

from protocol.errors import ErrorCode as E
from tests.unit.broker.controller.cluster import OWN, Cluster, directory

UNASSIGNED = (1).to_bytes(16, "big")


@pytest.fixture
def cluster():
    cluster = Cluster()
    for number in (2, 3):
        cluster.broker(number)
    cluster.broker(4, directories=2)
    cluster.topic("orders", [2, 3])
    return cluster


def moving(cluster):
    partition = cluster.partition()
    return list(partition.replicas), list(partition.adding_replicas), list(partition.removing_replicas)


def test_a_partition_moves_to_other_brokers(cluster):
    assert cluster.reassign(("orders", 0, [3, 4])) == [E.NONE]
    assert moving(cluster) == ([3, 4, 2], [4], [2])
    assert cluster.leader_and_isr() == (2, 0, [2, 3])
    assert cluster.partition().directories == (directory(3), UNASSIGNED, directory(2))

    cluster.alter_isr([2, 3, 4])

    assert moving(cluster) == ([3, 4], [], [])
    assert cluster.leader_and_isr() == (3, 1, [3, 4])
    assert cluster.partition().directories == (directory(3), UNASSIGNED)


def test_replicas_are_only_removed_at_once(cluster):
    assert cluster.reassign(("orders", 0, [2])) == [E.NONE]

    assert moving(cluster) == ([2], [], [])
    assert cluster.leader_and_isr() == (2, 1, [2])


def test_replicas_are_added(cluster):
    assert cluster.reassign(("orders", 0, [2, 3, 4])) == [E.NONE]
    assert moving(cluster) == ([2, 3, 4], [4], [])

    cluster.alter_isr([2, 3, 4])

    assert moving(cluster) == ([2, 3, 4], [], [])
    assert cluster.leader_and_isr() == (2, 0, [2, 3, 4])


def test_a_partition_that_is_where_it_shall_be_changes_nothing(cluster):
    end_offset = cluster.log.end_offset

    assert cluster.reassign(("orders", 0, [2, 3])) == [E.NONE]
    assert cluster.log.end_offset == end_offset


def test_a_reassignment_is_called_off(cluster):
    cluster.reassign(("orders", 0, [OWN, 4]))
    cluster.alter_isr([2, 3, 4])

    assert cluster.reassign(("orders", 0, None)) == [E.NONE]

    assert moving(cluster) == ([2, 3], [], [])
    assert cluster.leader_and_isr() == (2, 1, [2, 3])
    assert cluster.reassign(("orders", 0, None)) == [E.NO_REASSIGNMENT_IN_PROGRESS]


def test_a_reassignment_overrides_the_one_before(cluster):
    cluster.reassign(("orders", 0, [4, OWN]))

    assert cluster.reassign(("orders", 0, [OWN, 2])) == [E.NONE]
    assert moving(cluster) == ([OWN, 2, 3, 4], [OWN], [3, 4])
    cluster.alter_isr([2, 3, OWN])

    assert moving(cluster) == ([OWN, 2], [], [])


def test_back_to_where_it_was_is_calling_off(cluster):
    cluster.reassign(("orders", 0, [4, OWN]))

    assert cluster.reassign(("orders", 0, [2, 3])) == [E.NONE]

    assert moving(cluster) == ([2, 3], [], [])


def only_an_added_replica_in_sync(cluster):
    assert cluster.reassign(("orders", 0, [4, OWN])) == [E.NONE]
    cluster.alter_isr([2, 4])
    cluster.brokers[2].heartbeat(fence=True)
    assert cluster.leader_and_isr() == (4, 1, [4])


def test_calling_off_does_not_lose_the_only_replica_in_sync(cluster):
    only_an_added_replica_in_sync(cluster)

    assert cluster.reassign(("orders", 0, None)) == [E.INVALID_REPLICA_ASSIGNMENT]
    assert moving(cluster) == ([4, OWN, 2, 3], [OWN, 4], [2, 3])


def test_calling_off_may_be_unclean_where_that_is_allowed(cluster):
    cluster.config(2, "orders", "unclean.leader.election.enable", "true")
    only_an_added_replica_in_sync(cluster)

    assert cluster.reassign(("orders", 0, None)) == [E.NONE]

    assert moving(cluster) == ([2, 3], [], [])
    assert cluster.leader_and_isr() == (3, 2, [3])
    assert cluster.partition().leader_recovery_state == 1


@pytest.mark.parametrize(
    ("wish", "error"),
    [
        (("orders", 7, [2]), E.UNKNOWN_TOPIC_OR_PARTITION),
        (("nowhere", 0, [2]), E.UNKNOWN_TOPIC_OR_PARTITION),
        (("orders", 0, []), E.INVALID_REPLICA_ASSIGNMENT),
        (("orders", 0, [2, 2]), E.INVALID_REPLICA_ASSIGNMENT),
        (("orders", 0, [2, 9]), E.INVALID_REPLICA_ASSIGNMENT),
        (("orders", 0, None), E.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_a_reassignment_is_checked(cluster, wish, error):
    assert cluster.reassign(wish) == [error]


def test_each_partition_has_its_own_result(cluster):
    assert cluster.reassign(("orders", 0, [4]), ("orders", 1, [4])) == [E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert moving(cluster) == ([4, 2, 3], [4], [2, 3])


@pytest.mark.parametrize(
    ("replicas", "error"),
    [([2], E.INVALID_REPLICATION_FACTOR), ([2, 3, 4], E.INVALID_REPLICATION_FACTOR), ([3, 4], E.NONE)],
)
def test_the_number_of_replicas_may_be_kept(cluster, replicas, error):
    assert cluster.reassign(("orders", 0, replicas), may_change_replication_factor=False) == [error]


def test_a_partition_that_moves_has_as_many_replicas_as_before_it_moved(cluster):
    cluster.reassign(("orders", 0, [3, 4]))

    assert cluster.reassign(("orders", 0, [2, 4]), may_change_replication_factor=False) == [E.NONE]
    assert cluster.reassign(("orders", 0, [4]), may_change_replication_factor=False) == [E.INVALID_REPLICATION_FACTOR]
