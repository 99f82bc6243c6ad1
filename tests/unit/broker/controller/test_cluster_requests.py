"""A controller of several brokers: heartbeats, sessions, controlled shutdown, its own broker, and durable answers."""

import pytest

from broker.controller import cluster_requests
from broker.controller.cluster_requests import ClusterRequests
from broker.controller.topic_creation import NewTopic
from protocol.errors import ErrorCode as E
from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from protocol.messages.broker_lifecycle import BrokerHeartbeatRequest
from storage.errors import DiskFull
from tests.unit.broker.controller.cluster import CLUSTER_ID, OWN, Broker, Cluster, directory
from tests.unit.broker.metadata.metadata_node import MetadataNode


def states(answer):
    return answer.is_caught_up, answer.is_fenced, answer.should_shut_down


def test_a_broker_is_unfenced_once_it_has_applied_its_registration():
    cluster = Cluster()
    broker = Broker(cluster, 2)
    broker.register()

    assert states(broker.heartbeat(offset=broker.epoch - 1)) == (False, True, False)
    assert states(broker.heartbeat(fence=True)) == (True, True, False)
    assert states(broker.heartbeat()) == (True, False, False)
    assert not broker.registered.fenced


def test_an_unfenced_broker_leads_the_partitions_without_a_leader():
    cluster = Cluster()
    second = cluster.broker(2)
    cluster.topic("orders", [2])
    second.heartbeat(fence=True)
    assert cluster.leader_and_isr() == (-1, 1, [2])

    second.heartbeat()

    assert cluster.leader_and_isr() == (2, 2, [2])


@pytest.mark.parametrize("off_by", [-1, 1])
def test_a_heartbeat_of_another_epoch_is_stale(off_by):
    cluster = Cluster()
    broker = cluster.broker(2)
    broker.epoch += off_by

    assert broker.heartbeat().error_code == E.STALE_BROKER_EPOCH
    assert Broker(cluster, 3).heartbeat().error_code == E.STALE_BROKER_EPOCH


def test_a_heartbeat_that_changes_nothing_writes_nothing():
    cluster = Cluster()
    broker = cluster.broker(2)
    end_offset = cluster.log.end_offset

    broker.heartbeat()

    assert cluster.log.end_offset == end_offset


# Sessions


def test_a_silent_broker_is_fenced_when_its_session_is_over():
    cluster = Cluster()
    second, third = cluster.broker(2), cluster.broker(3)
    cluster.topic("orders", [2, 3, OWN])
    cluster.clock.advance(5_000)
    third.heartbeat()
    cluster.clock.advance(4_000)
    cluster.check_sessions()
    assert not second.registered.fenced

    cluster.clock.advance(1)
    cluster.check_sessions()

    assert (second.registered.fenced, third.registered.fenced) == (True, False)
    assert cluster.leader_and_isr() == (3, 1, [3, OWN])


def test_the_check_says_when_the_next_session_is_over():
    cluster = Cluster()
    now_ms = cluster.clock.monotonic_ms()
    assert cluster.requests.session_check(now_ms) == now_ms + 300_000

    cluster.broker(2)
    cluster.clock.advance(1_000)
    cluster.broker(3)

    assert cluster.requests.session_check(now_ms + 1_000) == now_ms + 9_001


def test_one_check_fences_one_broker_so_that_heartbeats_are_read_between():
    cluster = Cluster()
    second, third = cluster.broker(2), cluster.broker(3)
    cluster.clock.advance(60_000)
    now_ms = cluster.clock.monotonic_ms()

    assert cluster.requests.session_check(now_ms) <= now_ms
    third.heartbeat()
    cluster.check_sessions()

    assert (second.registered.fenced, third.registered.fenced) == (True, False)


def test_the_controllers_own_broker_needs_no_session():
    cluster = Cluster()
    cluster.clock.advance(60_000)
    cluster.check_sessions()

    assert not cluster.image.cluster.brokers[OWN].fenced


def test_a_broker_that_was_fenced_is_unfenced_by_its_next_heartbeat():
    cluster = Cluster()
    broker = cluster.broker(2)
    cluster.clock.advance(10_000)
    cluster.check_sessions()

    assert states(broker.heartbeat()) == (True, False, False)


def test_after_a_restart_of_the_controller_brokers_have_a_session_to_come_back():
    cluster = Cluster()
    second, third = cluster.broker(2), cluster.broker(3)
    third.heartbeat(fence=True)
    cluster.clock.advance(60_000)

    again = cluster.restarted(was_clean=False)
    second.cluster = third.cluster = again
    again.clock.advance(9_000)
    again.check_sessions()
    assert not second.registered.fenced
    assert third.register() is E.NONE  # it was fenced, and nothing says that it is alive

    again.clock.advance(1)
    again.check_sessions()
    assert second.registered.fenced


# Controlled shutdown


def test_a_broker_that_leads_nothing_may_stop_at_once():
    cluster = Cluster()
    second = cluster.broker(2)
    cluster.topic("orders", [OWN, 2])

    assert states(second.heartbeat(shutdown=True)) == (True, True, True)
    assert cluster.leader_and_isr() == (OWN, 0, [OWN])


def test_a_leader_may_stop_when_every_active_broker_knows_the_new_leaders():
    cluster = Cluster()
    second, third = cluster.broker(2), cluster.broker(3)
    fenced = Broker(cluster, 4)
    fenced.register()
    cluster.topic("orders", [2, 3])
    third.heartbeat(offset=0)

    assert states(second.heartbeat(shutdown=True)) == (True, False, False)
    assert cluster.leader_and_isr() == (3, 1, [3])
    assert second.registered.in_controlled_shutdown
    change = cluster.log.end_offset - 1

    third.heartbeat(offset=change - 1)
    assert not second.heartbeat(shutdown=True).should_shut_down
    third.heartbeat(offset=change)
    assert states(second.heartbeat(shutdown=True)) == (True, True, True)
    assert second.registered.fenced


def test_a_broker_that_is_in_a_hurry_may_stop_at_once():
    cluster = Cluster()
    second = cluster.broker(2)
    cluster.topic("orders", [2, OWN])

    assert states(second.heartbeat(shutdown=True, fence=True)) == (True, True, True)
    assert cluster.leader_and_isr() == (OWN, 1, [OWN])


def test_a_broker_that_dies_while_it_shuts_down_is_fenced():
    cluster = Cluster()
    second, third = cluster.broker(2), cluster.broker(3)
    cluster.topic("orders", [2, 3])
    third.heartbeat(offset=0)
    second.heartbeat(shutdown=True)

    cluster.clock.advance(9_001)
    cluster.check_sessions()

    assert second.registered.fenced


def test_a_stop_leaves_the_only_replica_eligible_to_lead():
    cluster = Cluster(elr=True)
    second = cluster.broker(2)
    cluster.topic("orders", [2])

    assert not second.heartbeat(shutdown=True).should_shut_down
    assert second.heartbeat(shutdown=True).should_shut_down

    partition = cluster.partition()
    assert (partition.leader, partition.isr, partition.eligible_leader_replicas) == (-1, (), (2,))


# The controller's own broker


def test_the_own_broker_hands_its_leaderships_over_before_it_stops():
    cluster = Cluster()
    second = cluster.broker(2)
    cluster.topic("orders", [OWN, 2])
    second.heartbeat(offset=0)

    assert not cluster.own_heartbeat(wants_shutdown=True).should_shut_down
    assert cluster.leader_and_isr() == (2, 1, [2])
    second.heartbeat()
    assert cluster.own_heartbeat(wants_shutdown=True).should_shut_down
    assert cluster.image.cluster.brokers[OWN].fenced


@pytest.mark.parametrize(
    ("min_isr", "leads_again"), [("1", (OWN, [OWN], ())), ("2", (-1, [], (2,)))], ids=["one in sync", "two in sync"]
)
def test_an_own_broker_killed_while_its_standby_was_away_leads_again_unless_the_standby_is_eligible(
    min_isr, leads_again
):
    """With two, the standby has all that was acknowledged, and the broker may have lost it with its power."""
    cluster = Cluster(elr=True)
    cluster.broker(2)
    cluster.topic("orders", [OWN, 2], min_insync_replicas=min_isr)
    assert cluster.brokers[2].heartbeat(shutdown=True).should_shut_down
    epoch = cluster.brokers[2].epoch

    again = cluster.restarted(was_clean=False)
    partition = again.partition()
    assert (partition.leader, list(partition.isr), partition.eligible_leader_replicas) == leads_again
    counts = again.controller.elections
    assert (counts.last_in_sync, counts.out_of_sync) == (int(min_isr == "1"), 0)

    again.broker(2, previous_epoch=epoch)
    assert again.partition().leader == (OWN if min_isr == "1" else 2)
    assert (counts.eligible, counts.out_of_sync) == (int(min_isr == "2"), 0)


def test_the_own_broker_that_leads_nothing_stops_once_every_active_broker_knows_that_it_left_the_isr():
    """Nobody could tell them afterwards: their producers with acks=all would wait for the broker until it is back."""
    cluster = Cluster()
    second, third = cluster.broker(2), cluster.broker(3)
    cluster.topic("orders", [2, OWN, 3])

    assert states(cluster.own_heartbeat(wants_shutdown=True)) == (True, False, False)
    assert cluster.leader_and_isr() == (2, 0, [2, 3])
    assert cluster.alter_isr([2, OWN, 3]).error_code == E.INELIGIBLE_REPLICA
    left = cluster.log.end_offset - 1

    second.heartbeat(offset=left)
    third.heartbeat(offset=left - 1)
    assert not cluster.own_heartbeat(wants_shutdown=True).should_shut_down
    third.heartbeat(offset=left)
    assert cluster.own_heartbeat(wants_shutdown=True).should_shut_down


def test_the_own_broker_stops_once_the_others_know_what_has_changed_before():
    """Here the topic of a moment ago, in whose ISR the broker is not: the other broker leads it."""
    cluster = Cluster()
    second = cluster.broker(2)
    cluster.topic("orders", [2])
    created = cluster.log.end_offset - 1

    assert not cluster.own_heartbeat(wants_shutdown=True).should_shut_down
    second.heartbeat(offset=created)
    assert not cluster.own_heartbeat(wants_shutdown=True).should_shut_down
    second.heartbeat()
    assert cluster.own_heartbeat(wants_shutdown=True).should_shut_down


def failed_directory(cluster):
    cluster.topic("orders", [2, OWN])
    cluster.own.send(failed=[directory(OWN)])


def being_added(cluster):
    cluster.topic("orders", [2])
    assert cluster.reassign(("orders", 0, [2, OWN])) == [E.NONE]


def being_removed(cluster):
    cluster.topic("orders", [2, OWN])
    assert cluster.reassign(("orders", 0, [2, 3])) == [E.NONE]


@pytest.mark.parametrize("moment", [failed_directory, being_added, being_removed])
def test_a_stop_of_the_own_broker_is_known_to_the_others_whatever_is_under_way(moment):
    cluster = Cluster()
    others = [cluster.broker(2), cluster.broker(3)]
    moment(cluster)
    known = cluster.log.end_offset - 1

    assert not cluster.own_heartbeat(wants_shutdown=True).should_shut_down
    assert cluster.leader_and_isr() == (2, 0, [2])
    for broker in others:
        broker.heartbeat(offset=known)
    assert not cluster.own_heartbeat(wants_shutdown=True).should_shut_down
    for broker in others:
        broker.heartbeat()
    assert cluster.own_heartbeat(wants_shutdown=True).should_shut_down


def test_the_own_broker_waits_for_no_broker_that_is_fenced_or_stops_too():
    cluster = Cluster()
    second, third = cluster.broker(2), cluster.broker(3)
    cluster.topic("orders", [2, OWN])
    assert not cluster.own_heartbeat(wants_shutdown=True).should_shut_down

    second.heartbeat(offset=0, shutdown=True)
    assert not cluster.own_heartbeat(wants_shutdown=True).should_shut_down
    third.heartbeat(offset=0, fence=True)
    assert cluster.own_heartbeat(wants_shutdown=True).should_shut_down


def test_the_own_broker_stops_at_once_where_no_other_broker_is_active():
    cluster = Cluster()
    cluster.broker(2).heartbeat(shutdown=True)
    cluster.topic("orders", [OWN])

    assert cluster.own_heartbeat(wants_shutdown=True).should_shut_down


def test_a_cluster_of_one_broker_keeps_its_leader_epochs_over_a_clean_stop():
    cluster = Cluster()
    cluster.topic("orders", [OWN])
    assert cluster.own_heartbeat(wants_shutdown=True).should_shut_down
    assert cluster.leader_and_isr() == (OWN, 0, [OWN])

    assert cluster.restarted(was_clean=True).leader_and_isr() == (OWN, 0, [OWN])
    assert cluster.restarted(was_clean=False).leader_and_isr() == (OWN, 1, [OWN])


def test_the_own_broker_takes_no_leadership_from_another_broker():
    cluster = Cluster()
    second = cluster.broker(2)
    cluster.topic("orders", [OWN, 2])
    cluster.own_heartbeat(wants_shutdown=True)
    second.heartbeat()
    cluster.own_heartbeat(wants_shutdown=True)

    again = cluster.restarted(was_clean=True)

    assert again.leader_and_isr() == (2, 1, [2])
    assert not again.image.cluster.brokers[OWN].fenced


def test_an_own_broker_that_was_killed_loses_its_leaderships_to_those_in_sync():
    cluster = Cluster()
    cluster.broker(2)
    cluster.topic("orders", [OWN, 2])
    cluster.topic("own", [OWN])

    again = cluster.restarted(was_clean=False)

    assert again.leader_and_isr() == (2, 1, [2])
    assert again.leader_and_isr("own") == (OWN, 1, [OWN])


def test_an_own_broker_that_was_killed_leads_where_it_was_the_last_in_sync():
    cluster = Cluster()
    second = cluster.broker(2)
    cluster.topic("orders", [OWN, 2])
    second.heartbeat(fence=True)

    assert cluster.restarted(was_clean=False).leader_and_isr() == (OWN, 2, [OWN])


def test_a_failed_directory_of_the_own_broker_gives_its_partitions_to_others():
    cluster = Cluster()
    cluster.broker(2)
    cluster.topic("orders", [OWN, 2])
    cluster.topic("own", [OWN])

    cluster.own.send(failed=[directory(OWN)])

    assert cluster.leader_and_isr() == (2, 1, [2])
    assert cluster.leader_and_isr("own") == (-1, 1, [OWN])


@pytest.fixture
def few_changes(monkeypatch):
    """How many partitions one look at the sessions changes."""
    monkeypatch.setattr(cluster_requests, "MOST_CHANGES", 10)
    return 10


def test_a_broker_of_many_partitions_is_fenced_in_steps_between_which_heartbeats_are_read(few_changes):
    cluster = Cluster()
    second = cluster.broker(2)
    topic = cluster.topic("orders", *[[2, OWN]] * 25)
    cluster.clock.advance(9_001)
    now_ms = cluster.clock.monotonic_ms()
    before = len(cluster.log.batches)

    assert cluster.requests.session_check(now_ms) == now_ms
    assert cluster.requests.session_check(now_ms) == now_ms
    assert not second.registered.fenced
    assert cluster.requests.session_check(now_ms) > now_ms

    assert second.registered.fenced
    assert [len(batch) for batch in cluster.log.batches[before:]] == [10, 10, 5 + 1]
    partitions = cluster.image.topics.by_id[topic.topic_id].partitions
    assert {(one.leader, one.isr) for one in partitions} == {(OWN, (OWN,))}


def test_a_broker_that_is_heard_of_while_it_is_being_fenced_is_not_fenced(few_changes):
    cluster = Cluster()
    second = cluster.broker(2)
    cluster.topic("orders", *[[2, OWN]] * 25)
    cluster.clock.advance(9_001)
    now_ms = cluster.clock.monotonic_ms()

    assert cluster.requests.session_check(now_ms) == now_ms
    second.heartbeat()
    assert cluster.requests.session_check(now_ms) > now_ms

    assert not second.registered.fenced
    assert [one.leader for one in cluster.image.topics.by_name["orders"].partitions] == [OWN] * 10 + [2] * 15


def test_a_broker_whose_heartbeat_waits_for_the_controllers_disk_is_not_silent():
    cluster = Cluster()
    second, third = cluster.broker(2), cluster.broker(3)
    cluster.log.is_held = True
    cluster.controller.allocate_producer_ids(OWN, cluster.own_epoch(), lambda _: None)
    heartbeat = BrokerHeartbeatRequest(
        broker_id=2, broker_epoch=second.epoch, current_metadata_offset=second.epoch,
        want_fence=False, want_shut_down=False,
    )  # fmt: skip
    cluster.requests.broker_heartbeat(heartbeat, lambda _: None)
    cluster.clock.advance(60_000)
    cluster.check_sessions()
    cluster.log.sync()
    assert (second.registered.fenced, third.registered.fenced) == (False, True)

    cluster.clock.advance(9_000)
    cluster.check_sessions()
    assert not second.registered.fenced
    cluster.clock.advance(1)
    cluster.log.is_held = False
    cluster.check_sessions()
    assert second.registered.fenced


# Answers


def test_an_answer_waits_until_all_it_rests_on_is_durable():
    cluster = Cluster()
    broker = cluster.broker(2)
    cluster.log.is_held = True
    answers = []
    request = Broker(cluster, 3).registration()

    cluster.requests.broker_registration(request, answers.append)
    cluster.requests.broker_registration(broker.registration(), answers.append)
    assert answers == []
    cluster.log.sync()

    assert [E(answer.error_code) for answer in answers] == [E.NONE, E.DUPLICATE_BROKER_REGISTRATION]


def test_a_run_that_is_refused_again_and_again_has_one_line_in_the_log(caplog):
    caplog.set_level("INFO", "broker.controller")
    cluster = Cluster()
    cluster.broker(2)
    refused, other = Broker(cluster, 2).registration(), Broker(cluster, 2).registration()

    for request in (refused, refused, refused, other):
        cluster.ask(cluster.requests.broker_registration, request)

    assert sum("broker 2 is not registered" in text for text in caplog.messages) == 2


def producer_ids(cluster, broker_id, broker_epoch):
    request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=broker_epoch)
    answer = cluster.ask(cluster.requests.allocate_producer_ids, request)
    return E(answer.error_code), answer.producer_id_start, answer.producer_id_len


def test_no_two_brokers_get_the_same_producer_ids():
    cluster = Cluster()
    second, third = cluster.broker(2), cluster.broker(3)
    own = []

    assert producer_ids(cluster, 2, second.epoch) == (E.NONE, 0, 1000)
    cluster.controller.allocate_producer_ids(OWN, cluster.own_epoch(), own.append)
    assert producer_ids(cluster, 3, third.epoch) == (E.NONE, 2000, 1000)
    assert producer_ids(cluster, 3, third.epoch - 1) == (E.STALE_BROKER_EPOCH, 0, 0)
    assert own == [range(1000, 2000)]


def test_a_broker_that_is_unregistered_has_to_register_again():
    cluster = Cluster()
    second = cluster.broker(2)
    cluster.topic("orders", [2, OWN])

    cluster.controller.unregister_broker(2, lambda: None)

    assert cluster.leader_and_isr() == (OWN, 1, [OWN])
    assert second.heartbeat().error_code == E.STALE_BROKER_EPOCH
    assert second.register() is E.NONE


def test_a_session_that_cannot_be_ended_now_is_ended_later(monkeypatch):
    cluster = Cluster()
    second = cluster.broker(2)
    cluster.clock.advance(10_000)
    now_ms = cluster.clock.monotonic_ms()

    def full(*_):
        raise DiskFull("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(cluster.log, "append", full)
        assert cluster.requests.session_check(now_ms) == now_ms + 1_000
    assert not second.registered.fenced
    cluster.check_sessions()

    assert second.registered.fenced


def test_a_controller_that_no_other_broker_can_reach_counts_on_none():
    """The metadata log names broker 2, as an adopted directory may do, and nothing answers other brokers."""
    cluster = Cluster()
    cluster.broker(2)
    cluster.topic("orders", [2, OWN])

    cluster.controller.others_can_join = False
    cluster.register_own(was_clean=True)

    assert cluster.leader_and_isr() == (OWN, 1, [OWN])
    assert cluster.own_heartbeat(wants_shutdown=True).should_shut_down


def test_the_brokers_of_a_cluster_are_in_the_metadata_log_on_disk(tmp_path):
    node = MetadataNode(tmp_path, registers=False)
    requests = ClusterRequests(node.controller, cluster_id=CLUSTER_ID, clock=node.clock)
    node.register(was_clean=False)
    cluster = DiskCluster(node, requests)
    second = Broker(cluster, 2)
    assert second.register() is E.NONE
    second.heartbeat()
    node.create(NewTopic(name="orders", assignments=[(0, [2, OWN])]))
    node.worker.work()
    node.log.close()

    again = MetadataNode(tmp_path, registers=False)
    assert again.image.cluster.brokers[2].broker_epoch == second.epoch
    ClusterRequests(again.controller, cluster_id=CLUSTER_ID, clock=again.clock)
    again.register(was_clean=False)

    partition = again.image.topics.by_name["orders"].partition(0)
    assert (partition.leader, partition.isr, partition.leader_epoch) == (2, (2,), 0)


class DiskCluster:
    """What `Broker` needs of a cluster, on a node whose metadata log is on disk."""

    def __init__(self, node, requests):
        self.ids, self.log, self.requests = node.ids, node.log, requests
        self._worker = node.worker

    def ask(self, method, request):
        answers = []
        method(request, answers.append)
        self._worker.work()
        (answer,) = answers
        return answer
