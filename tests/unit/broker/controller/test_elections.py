"""ElectLeaders, and the elections that the controller holds from time to time."""

from protocol.errors import ErrorCode as E
from protocol.messages.elections import ElectLeadersRequest
from tests.unit.broker.controller.cluster import OWN, Cluster

PREFERRED, UNCLEAN = 0, 1
FIVE_MINUTES_MS = 300_000


class Situation:
    """Broker 2 is the first replica of its topics, in sync again, and the controller's own broker leads them."""

    def __init__(self, *names, **configs):
        self.cluster = Cluster()
        self.second = self.cluster.broker(2)
        for name in names:
            self.cluster.topic(name, [2, OWN], **configs)
        self.second.heartbeat(fence=True)
        self.second.heartbeat()
        for name in names:
            assert self.cluster.leader_and_isr(name)[0] == OWN
            assert self.cluster.alter_isr([OWN, 2], name).error_code == E.NONE


def test_the_first_replica_leads_again_if_it_is_in_sync():
    cluster = Situation("orders").cluster

    assert cluster.elect(PREFERRED, ("orders", 0)) == [("orders", 0, E.NONE)]

    assert cluster.leader_and_isr() == (2, 2, [OWN, 2])
    assert cluster.elect(PREFERRED, ("orders", 0)) == [("orders", 0, E.ELECTION_NOT_NEEDED)]


def test_a_first_replica_that_is_not_in_sync_cannot_lead():
    cluster = Situation("orders").cluster
    cluster.alter_isr([OWN])

    assert cluster.elect(PREFERRED, ("orders", 0)) == [("orders", 0, E.PREFERRED_LEADER_NOT_AVAILABLE)]
    assert cluster.leader_and_isr() == (OWN, 1, [OWN])


def test_of_all_partitions_those_that_need_no_election_are_left_out():
    cluster = Situation("a", "b").cluster
    cluster.elect(PREFERRED, ("a", 0))

    assert cluster.elect(PREFERRED) == [("b", 0, E.NONE)]
    assert cluster.elect(PREFERRED) == []


def test_unknown_topics_and_partitions_get_no_leader():
    cluster = Situation("orders").cluster

    assert cluster.elect(PREFERRED, ("orders", 5), ("nowhere", 0)) == [
        ("orders", 5, E.UNKNOWN_TOPIC_OR_PARTITION),
        ("nowhere", 0, E.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_a_partition_that_is_named_twice_is_elected_once():
    cluster = Situation("orders").cluster
    end_offset = cluster.log.end_offset

    assert cluster.elect(PREFERRED, ("orders", 0), ("orders", 0)) == [("orders", 0, E.NONE)] * 2
    assert cluster.log.end_offset == end_offset + 1


def test_an_unknown_kind_of_election_is_refused():
    cluster = Situation("orders").cluster

    response = cluster.ask(cluster.requests.elect_leaders, ElectLeadersRequest(election_type=5, topic_partitions=None))

    assert (E(response.error_code), response.replica_election_results) == (E.INVALID_REQUEST, [])


def leaderless(**configs):
    """Partition orders-0 without a leader: broker 2 is out of sync, and broker 3, the last in sync, is gone."""
    cluster = Cluster()
    cluster.broker(2)
    third = cluster.broker(3)
    cluster.topic("orders", [3, 2], **configs)
    cluster.alter_isr([3])
    third.heartbeat(fence=True)
    return cluster


def test_an_unclean_election_has_to_be_asked_for():
    cluster = leaderless()
    assert cluster.leader_and_isr() == (-1, 1, [3])
    assert cluster.elect(PREFERRED, ("orders", 0)) == [("orders", 0, E.PREFERRED_LEADER_NOT_AVAILABLE)]

    assert cluster.elect(UNCLEAN, ("orders", 0)) == [("orders", 0, E.NONE)]

    assert cluster.leader_and_isr() == (2, 2, [2])
    assert cluster.partition().leader_recovery_state == 1
    assert cluster.elect(UNCLEAN, ("orders", 0)) == [("orders", 0, E.ELECTION_NOT_NEEDED)]


def test_an_unclean_election_needs_an_active_replica():
    cluster = Cluster()
    second = cluster.broker(2)
    cluster.topic("orders", [2])
    second.heartbeat(fence=True)

    assert cluster.elect(UNCLEAN, ("orders", 0)) == [("orders", 0, E.ELIGIBLE_LEADERS_NOT_AVAILABLE)]


def test_where_it_is_allowed_the_fall_of_the_last_leader_elects_an_unclean_one():
    assert leaderless(unclean_leader_election_enable="true").leader_and_isr() == (2, 1, [2])


def test_leaders_are_balanced_every_five_minutes():
    situation = Situation("a", "b")
    cluster = situation.cluster
    cluster.clock.advance(FIVE_MINUTES_MS - 1)
    situation.second.heartbeat()
    cluster.check_sessions()
    assert cluster.leader_and_isr("a")[0] == OWN

    cluster.clock.advance(1)
    cluster.check_sessions()

    assert (cluster.leader_and_isr("a")[0], cluster.leader_and_isr("b")[0]) == (2, 2)


def test_a_topic_that_is_allowed_unclean_leaders_later_gets_one_with_the_next_balance():
    cluster = leaderless()
    cluster.config(2, "orders", "unclean.leader.election.enable", "true")
    cluster.clock.advance(FIVE_MINUTES_MS)
    cluster.brokers[2].heartbeat()
    assert cluster.leader_and_isr()[0] == -1

    cluster.check_sessions()

    assert cluster.leader_and_isr() == (2, 2, [2])
