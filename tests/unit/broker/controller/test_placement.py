"""Where replicas of new partitions go, and Kafka's words where they can go nowhere."""

from collections import Counter
from random import Random

import pytest

from broker.controller.partition_creation import MorePartitions
from broker.controller.striping import StripedPlacer, UsableBroker
from broker.controller.topic_creation import NewTopic
from broker.request.faults import InvalidReplicationFactor
from protocol.errors import ErrorCode as E
from tests.unit.broker.controller.cluster import OWN, Broker, Cluster, directory

UNASSIGNED = (1).to_bytes(16, "big")
UNABLE = "Unable to replicate the partition"


def placer(racks, *, fenced=(), seed=1):
    """A placer on the brokers of ``racks``: rack names, and the ids of their brokers."""
    brokers = [
        UsableBroker(broker_id, rack, is_fenced=broker_id in fenced) for rack, ids in racks.items() for broker_id in ids
    ]
    return StripedPlacer(brokers, Random(seed).randrange)


@pytest.mark.parametrize("seed", range(20))
def test_each_partition_has_its_replicas_on_different_racks(seed):
    racks = {"a": [1, 2], "b": [3, 4], "c": [5, 6]}
    rack_of = {broker: rack for rack, ids in racks.items() for broker in ids}
    place = placer(racks, seed=seed).place

    for _ in range(30):
        assert len({rack_of[broker] for broker in place(3)}) == 3


@pytest.mark.parametrize("seed", range(20))
def test_leaders_and_replicas_are_spread_evenly(seed):
    place = placer({None: [1, 2, 3, 4]}, seed=seed).place
    placed = [place(2) for _ in range(40)]

    assert Counter(replicas[0] for replicas in placed) == {1: 10, 2: 10, 3: 10, 4: 10}
    assert Counter(broker for replicas in placed for broker in replicas) == {1: 20, 2: 20, 3: 20, 4: 20}


def test_no_partition_has_two_replicas_on_one_broker():
    place = placer({"a": [1, 2, 3], "b": [4]}).place

    for _ in range(50):
        replicas = place(4)
        assert sorted(replicas) == [1, 2, 3, 4]


def test_a_fenced_broker_leads_nothing_and_comes_last():
    place = placer({None: [1, 2, 3]}, fenced=[1]).place

    for _ in range(20):
        assert 1 not in place(2)
        assert place(3)[2] == 1


def test_a_fenced_broker_has_a_replica_where_its_rack_has_no_other():
    place = placer({"a": [1], "b": [2, 3]}, fenced=[1]).place

    for _ in range(20):
        assert 1 in place(2)[1:]


@pytest.mark.parametrize(
    ("racks", "fenced", "factor", "reason"),
    [
        ({None: [1, 2]}, [], 0, "Invalid replication factor 0: the replication factor must be positive."),
        ({None: [1, 2]}, [1, 2], 1, "All brokers are currently fenced, or have all their log directories cordoned."),
        (
            {None: [1, 2]},
            [1],
            3,
            "The target replication factor of 3 cannot be reached because only 2 broker(s) are registered or some "
            "brokers have all their log directories cordoned.",
        ),
    ],
)
def test_what_cannot_be_placed_is_refused_in_kafkas_words(racks, fenced, factor, reason):
    with pytest.raises(InvalidReplicationFactor) as refused:
        placer(racks, fenced=fenced).check(factor)

    assert str(refused.value) == reason


def create(cluster, **topic):
    answers = []
    cluster.controller.create_topics(
        [NewTopic(name="orders", **topic)], timeout_ms=1000, validate_only=False, then=answers.extend
    )
    return answers[0].error, answers[0].message


def grow(cluster, count, assignments=None):
    answers = []
    cluster.controller.create_partitions(
        [MorePartitions(topic="orders", count=count, assignments=assignments)],
        timeout_ms=1000,
        validate_only=False,
        then=answers.extend,
    )
    return answers[0].error, answers[0].message


def test_a_topic_is_placed_on_all_brokers_of_the_cluster():
    cluster = Cluster()
    cluster.broker(2)
    cluster.broker(3, directories=2)

    assert create(cluster, partitions=6, replication_factor=3) == (E.NONE, None)

    partitions = cluster.image.topics.by_name["orders"].partitions
    assert Counter(partition.leader for partition in partitions) == {OWN: 2, 2: 2, 3: 2}
    for partition in partitions:
        assert sorted(partition.replicas) == [OWN, 2, 3]
        assert partition.isr == partition.replicas
        assert [partition.directory_of(broker) for broker in (OWN, 2, 3)] == [
            directory(OWN),
            directory(2),
            UNASSIGNED,
        ]


def test_more_replicas_than_brokers_are_refused():
    cluster = Cluster()
    cluster.broker(2)

    assert create(cluster, replication_factor=3) == (
        E.INVALID_REPLICATION_FACTOR,
        f"{UNABLE} 3 time(s): The target replication factor of 3 cannot be reached because only 2 broker(s) are "
        "registered or some brokers have all their log directories cordoned.",
    )


def test_a_new_partition_has_the_replicas_of_the_topic():
    cluster = Cluster()
    cluster.broker(2)
    cluster.topic("orders", [OWN, 2])

    assert grow(cluster, 3) == (E.NONE, None)
    assert [sorted(partition.replicas) for partition in cluster.image.topics.by_name["orders"].partitions] == [
        [OWN, 2]
    ] * 3


def test_a_replica_on_a_fenced_broker_is_not_in_sync():
    cluster = Cluster()
    Broker(cluster, 2).register()

    assert create(cluster, assignments=[(0, [2, OWN])]) == (E.NONE, None)
    assert cluster.leader_and_isr() == (OWN, 0, [OWN])


def test_an_assignment_to_fenced_brokers_alone_is_refused():
    cluster = Cluster()
    Broker(cluster, 2).register()
    text = (
        "All brokers specified in the manual partition assignment for partition {} are fenced or in controlled "
        "shutdown."
    )

    assert create(cluster, assignments=[(0, [2])]) == (E.INVALID_REPLICA_ASSIGNMENT, text.format(0))
    cluster.topic("orders", [OWN])
    assert grow(cluster, 2, [[2]]) == (E.INVALID_REPLICA_ASSIGNMENT, text.format(1))


@pytest.mark.parametrize(
    ("assignments", "text"),
    [
        (
            [(0, [OWN]), (1, [OWN, 2])],
            "The manual partition assignment includes a partition with 2 replica(s), but this is not consistent with "
            "previous partitions, which have 1 replica(s).",
        ),
        ([(0, [9, 9])], "The manual partition assignment includes broker 9, but no such broker is registered."),
        ([(0, [2, OWN, 2])], "The manual partition assignment includes the broker 2 more than once."),
    ],
)
def test_an_assignment_is_checked(assignments, text):
    cluster = Cluster()
    cluster.broker(2)

    assert create(cluster, assignments=assignments) == (E.INVALID_REPLICA_ASSIGNMENT, text)


def test_a_broker_that_shuts_down_gets_no_new_replica():
    cluster = Cluster()
    second, third = cluster.broker(2), cluster.broker(3)
    cluster.topic("first", [2, 3])
    third.heartbeat(offset=0)
    assert not second.heartbeat(shutdown=True).should_shut_down

    assert create(cluster, partitions=4, replication_factor=2) == (E.NONE, None)
    assert {
        broker for partition in cluster.image.topics.by_name["orders"].partitions for broker in partition.replicas
    } == {
        OWN,
        3,
    }
