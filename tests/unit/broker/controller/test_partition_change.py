"""PartitionChangeRecords: who leads, who is in sync, when an epoch begins, and when a reassignment ends."""

import pytest

from broker.controller.cluster_view import ClusterView
from broker.controller.partition_change import Election, Wanted, plan_change
from broker.metadata.configs import ConfigView
from broker.metadata.image.topics import changed_partition
from config.broker_settings import BrokerSettings
from protocol.records.cluster_metadata import (
    NO_LEADER_CHANGE,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from tests.support.metadata import image_of

ORDERS = b"o" * 16
A, B, C, D = (bytes(15) + bytes([200 + number]) for number in range(4))
SECOND = bytes(15) + bytes([210])
DIRECTORIES = {1: A, 2: B, 3: C, 4: D}


class Source:
    def __init__(self, image):
        self.image = image


def situation(*, fenced=(), elr=False, level=25, min_isr=1, **partition):
    """The view of a cluster of the brokers 1 to 4, and the topic of one partition with replicas 1, 2 and 3."""
    brokers = [
        RegisterBrokerRecord(
            broker_id=number,
            incarnation_id=bytes(16),
            broker_epoch=number,
            end_points=[],
            features=[],
            fenced=number in fenced,
            log_dirs=[where, SECOND] if number == 4 else [where],
        )
        for number, where in DIRECTORIES.items()
    ]
    fields = {"replicas": [1, 2, 3], "isr": [1, 2, 3], "leader": 1} | partition
    fields.setdefault("directories", [DIRECTORIES[broker] for broker in fields["replicas"]])
    image = image_of(
        FeatureLevelRecord(name="metadata.version", feature_level=level),
        *([FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1)] if elr else []),
        *brokers,
        TopicRecord(name="orders", topic_id=ORDERS),
        ConfigRecord(resource_type=2, resource_name="orders", name="min.insync.replicas", value=str(min_isr)),
        PartitionRecord(partition_id=0, topic_id=ORDERS, leader_epoch=4, partition_epoch=9, **fields),
    )
    return ClusterView(image, ConfigView(Source(image), BrokerSettings())), image.topics.by_name["orders"]


def change(wanted, **given):
    """The fields of the record; None if there is no record."""
    view, topic = situation(**given)
    record = plan_change(view, topic, topic.partitions[0], wanted)
    if record is None:
        return None
    empty = PartitionChangeRecord(partition_id=0, topic_id=ORDERS)
    return {
        name: getattr(record, name)
        for name in PartitionChangeRecord.__dataclass_fields__
        if getattr(record, name) != getattr(empty, name)
    }


def test_a_partition_that_is_as_wanted_gets_no_record():
    assert change(Wanted()) is None
    assert change(Wanted(isr=[1, 2, 3], replicas=[1, 2, 3], directories={1: A}, leader_recovery_state=0)) is None


@pytest.mark.parametrize(
    ("given", "election", "leader"),
    [
        ({}, Election.ONLINE, NO_LEADER_CHANGE),
        ({"leader": 2}, Election.ONLINE, NO_LEADER_CHANGE),
        ({"leader": 2}, Election.PREFERRED, 1),
        ({"leader": 2, "isr": [2, 3]}, Election.PREFERRED, NO_LEADER_CHANGE),
        ({"leader": 2, "fenced": [1]}, Election.PREFERRED, NO_LEADER_CHANGE),
        ({"leader": -1}, Election.ONLINE, 1),
        ({"leader": -1, "isr": [3, 2]}, Election.ONLINE, 2),
        ({"leader": -1, "isr": [3, 2]}, Election.PREFERRED, 2),
        ({"leader": -1, "isr": [3], "fenced": [3]}, Election.ONLINE, NO_LEADER_CHANGE),
        ({"leader": 3, "isr": [3], "fenced": [3]}, Election.ONLINE, -1),
        ({"leader": 1, "isr": [1, 2], "directories": [D, B, C]}, Election.ONLINE, 2),
    ],
)
def test_the_leader_is_in_sync_and_active(given, election, leader):
    assert change(Wanted(election=election), **given) == (None if leader == NO_LEADER_CHANGE else {"leader": leader})


def test_an_unclean_leader_is_alone_in_sync_and_recovers():
    given = {"leader": -1, "isr": [3], "fenced": [3, 1]}

    assert change(Wanted(election=Election.ONLINE), **given) is None
    assert change(Wanted(election=Election.UNCLEAN), **given) == {"leader": 2, "isr": [2], "leader_recovery_state": 1}


def test_from_3_2_on_an_unclean_leader_recovers():
    given = {"leader": -1, "isr": [3], "fenced": [3, 1], "directories": []}

    assert change(Wanted(election=Election.UNCLEAN), level=2, **given) == {"leader": 2, "isr": [2]}
    recovering = {"leader": 2, "isr": [2], "leader_recovery_state": 1}
    assert change(Wanted(election=Election.UNCLEAN), level=3, **given) == recovering


def test_where_a_replica_in_sync_can_lead_no_election_is_unclean():
    assert change(Wanted(election=Election.UNCLEAN), leader=-1, isr=[3]) == {"leader": 3}


def test_an_isr_that_shrinks_begins_a_leader_epoch_before_3_6_only():
    assert change(Wanted(isr=[1, 2])) == {"isr": [1, 2]}
    assert change(Wanted(isr=[1, 2]), level=12) == {"isr": [1, 2]}
    assert change(Wanted(isr=[1, 2]), level=11, directories=[]) == {"isr": [1, 2], "leader": 1}
    assert change(Wanted(isr=[1, 2]), isr=[1], level=11, directories=[]) == {"isr": [1, 2]}


def test_without_eligible_leaders_the_last_replica_stays_in_sync():
    assert change(Wanted(isr=[]), isr=[1], fenced=[1]) == {"leader": -1}
    assert change(Wanted(isr=[]), isr=[1], leader=-1, fenced=[1]) is None


# Eligible leader replicas (KIP-966)


def test_who_leaves_an_isr_below_min_insync_replicas_is_eligible():
    assert change(Wanted(isr=[1, 2]), elr=True, min_isr=2) == {"isr": [1, 2]}
    assert change(Wanted(isr=[1]), elr=True, min_isr=2) == {"isr": [1], "eligible_leader_replicas": [2, 3]}
    assert change(Wanted(isr=[1]), elr=True, min_isr=3, isr=[1, 3], eligible_leader_replicas=[2]) == {
        "isr": [1],
        "eligible_leader_replicas": [2, 3],
    }


def test_an_isr_that_is_large_enough_again_leaves_no_eligible_leaders():
    given = {"elr": True, "min_isr": 2, "isr": [1], "eligible_leader_replicas": [2, 3]}

    assert change(Wanted(isr=[1, 3]), **given) == {"isr": [1, 3], "eligible_leader_replicas": []}


def test_min_insync_replicas_is_at_most_the_number_of_replicas():
    given = {"elr": True, "min_isr": 3, "replicas": [1, 2], "isr": [1, 2]}

    assert change(Wanted(isr=[1]), **given) == {"isr": [1], "eligible_leader_replicas": [2]}
    assert change(Wanted(isr=[1, 2]), **{**given, "isr": [1], "eligible_leader_replicas": [2]}) == {
        "isr": [1, 2],
        "eligible_leader_replicas": [],
    }


def test_the_last_leader_is_remembered_when_the_isr_becomes_empty():
    assert change(Wanted(isr=[]), elr=True, isr=[1], fenced=[1]) == {
        "isr": [],
        "leader": -1,
        "eligible_leader_replicas": [1],
        "last_known_elr": [1],
    }


LEADERLESS = {"elr": True, "min_isr": 2, "isr": [], "leader": -1, "last_known_elr": [3]}


def test_an_eligible_leader_leads_an_empty_isr_cleanly():
    assert change(Wanted(), **LEADERLESS, eligible_leader_replicas=[2, 3], fenced=[1, 3]) == {
        "isr": [2],
        "leader": 2,
        "eligible_leader_replicas": [3],
        "last_known_elr": [],
    }


def test_an_eligible_leader_does_not_replace_one_in_sync():
    given = {"elr": True, "min_isr": 2, "isr": [2], "leader": 2, "eligible_leader_replicas": [1]}

    assert change(Wanted(election=Election.PREFERRED), **given) is None


def test_a_broker_that_stopped_uncleanly_is_not_eligible():
    given = {**LEADERLESS, "eligible_leader_replicas": [2, 3]}

    assert change(Wanted(unclean_stops=[3]), **given, fenced=[2, 3]) == {"eligible_leader_replicas": [2]}
    assert change(Wanted(unclean_stops=[1], isr=[]), elr=True, isr=[1], fenced=[1]) == {
        "isr": [],
        "leader": -1,
        "last_known_elr": [1],
    }


def test_the_last_known_leader_leads_where_nobody_is_eligible():
    assert change(Wanted(), **LEADERLESS) == {
        "isr": [3],
        "leader": 3,
        "leader_recovery_state": 1,
        "last_known_elr": [],
    }
    assert change(Wanted(), **LEADERLESS, fenced=[3]) is None
    assert change(Wanted(), **{**LEADERLESS, "last_known_elr": [3, 2]}) is None


def test_levels_without_eligible_leaders_forget_them():
    assert change(Wanted(), eligible_leader_replicas=[2], isr=[1]) == {"eligible_leader_replicas": []}


# Reassignments


def test_a_reassignment_goes_on_until_all_added_replicas_are_in_sync():
    moving = {"replicas": [4, 2, 1], "isr": [1, 2], "adding_replicas": [4], "removing_replicas": [1]}

    assert change(Wanted(isr=[1]), **moving) == {"isr": [1]}
    assert change(Wanted(isr=[1, 2, 4]), **moving) == {
        "isr": [2, 4],
        "leader": 4,
        "replicas": [4, 2],
        "adding_replicas": [],
        "removing_replicas": [],
        "directories": [D, B],
    }


def test_a_partition_that_gets_fewer_replicas_needs_all_of_them_in_sync():
    moving = {"replicas": [2, 3, 1], "isr": [1, 2], "removing_replicas": [1]}

    assert change(Wanted(), **moving) is None
    assert change(Wanted(isr=[1, 2, 3]), **moving) == {
        "isr": [2, 3],
        "leader": 2,
        "replicas": [2, 3],
        "removing_replicas": [],
        "directories": [B, C],
    }


def test_a_replica_that_goes_begins_a_leader_epoch_of_the_same_leader():
    assert change(Wanted(replicas=[1, 2], isr=[1, 2])) == {
        "leader": 1,
        "isr": [1, 2],
        "replicas": [1, 2],
        "directories": [A, B],
    }


def test_another_order_of_replicas_begins_no_leader_epoch():
    assert change(Wanted(replicas=[3, 2, 1])) == {"replicas": [3, 2, 1], "directories": [C, B, A]}


def test_a_new_replica_gets_the_only_directory_of_its_broker_or_none_yet():
    view, topic = situation()
    record = plan_change(view, topic, topic.partitions[0], Wanted(replicas=[1, 2, 3, 4], adding=[4]))
    assert record is not None
    assert record.directories == [A, B, C, (1).to_bytes(16, "big")]

    assert change(Wanted(replicas=[1, 2], adding=[2]), replicas=[1], isr=[1]) == {
        "replicas": [1, 2],
        "adding_replicas": [2],
        "directories": [A, B],
    }


def test_every_record_begins_a_partition_epoch_and_a_leader_begins_a_leader_epoch():
    view, topic = situation(leader=2)
    partition = topic.partitions[0]
    preferred = plan_change(view, topic, partition, Wanted(election=Election.PREFERRED))
    shrunk = plan_change(view, topic, partition, Wanted(isr=[2]))
    assert preferred is not None
    assert shrunk is not None

    after = changed_partition(partition, preferred)
    assert (after.leader, after.leader_epoch, after.partition_epoch) == (1, 5, 10)
    after = changed_partition(partition, shrunk)
    assert (after.leader, after.leader_epoch, after.partition_epoch) == (2, 4, 10)
