"""Share groups: members join, get partitions whose states have begun, and leave (KIP-932)."""

import pytest

from broker.coordinators.group.image import GroupImage
from broker.coordinators.group.share.requests import NewOffsets, ShareHeartbeat
from broker.coordinators.share.persister import SharePartitionKey
from protocol.errors import ErrorCode as E
from protocol.records.group_metadata import (
    ShareGroupStatePartitionMetadataKey,
    decode_group_record,
)
from tests.unit.broker.coordinators.group.harness import Coordinator, Reply

G = "workers"
SESSION_MS = 45_000
RETRY_MS = 30_000


class ShareCoordinator(Coordinator):
    """The coordinator of a share group."""

    def heartbeat(self, member="anna", epoch=0, topics=("orders",), group_id=G, rack=None):
        """A member's heartbeat; the answer."""
        reply = self.sends_heartbeat(member, epoch, topics, group_id=group_id, rack=rack)
        return reply.answer

    def sends_heartbeat(self, member="anna", epoch=0, topics=("orders",), group_id=G, rack=None):
        reply = Reply()
        request = ShareHeartbeat(group_id, member, epoch, rack, "client", "/127.0.0.1", topics)
        self.writer.append(self.shard.share_heartbeat(request, reply))
        return reply

    def joined(self, *members):
        """Let members join, and come again until they have their partitions; the last answers by member."""
        for member in members:
            self.heartbeat(member)
        answers = {}
        for _ in range(2):
            for member in members:
                answers[member] = self.heartbeat(member, self.epoch_of(member), None)
        return answers

    def epoch_of(self, member):
        return self.group().members[member].epoch

    def group(self, group_id=G):
        return self.shard.image.modern.get(group_id)

    def assigned(self):
        """Partitions of the topic that each member has, by name."""
        ids = {topic.topic_id: topic.name for topic in self.topics.by_name.values()}
        return {
            member.member_id: {ids[topic_id]: sorted(found) for topic_id, found in member.assigned.items()}
            for member in self.group().members.values()
        }

    def key(self, partition, topic="orders", group_id=G):
        return SharePartitionKey(group_id, self.topics.of_name(topic).topic_id, partition)

    def changed(self, name, partitions, *, are_new=False):
        self.topics.put(name, partitions)
        self.shard.topics_changed({name}, are_new=are_new)

    def delete_group(self, group_id=G):
        reply = Reply()
        self.writer.append(self.shard.delete(group_id, reply))
        return reply

    def alter(self, *topics, group_id=G):
        reply = Reply()
        self.writer.append(self.shard.alter_share_offsets(group_id, topics, reply))
        return reply

    def delete_offsets(self, *names, group_id=G):
        answers = []
        self.writer.append(self.shard.delete_share_offsets(group_id, names, lambda *answer: answers.append(answer)))
        return answers

    def replayed(self):
        """What another coordinator makes of the log."""
        image = GroupImage()
        self.writer.load(image)
        return image


@pytest.fixture
def groups():
    groups = ShareCoordinator()
    groups.topics.put("orders", 4)
    return groups


def keys_written(groups):
    return [type(decode_group_record(*pair).key).__name__ for pair in groups.writer.log]


# Joining


def test_a_member_gets_partitions_once_their_states_have_begun(groups):
    first = groups.heartbeat("anna")
    assert (first.error, first.member_id, first.member_epoch, first.assignment) == (E.NONE, "anna", 2, {})
    assert first.heartbeat_interval_ms == 5_000
    assert groups.persister.states == {groups.key(index): (2, -1) for index in range(4)}
    second = groups.heartbeat("anna", 2, None)
    assert (second.error, second.member_epoch) == (E.NONE, 3)
    assert second.assignment == {groups.topics.of_name("orders").topic_id: frozenset(range(4))}
    third = groups.heartbeat("anna", 3, None)
    assert (third.member_epoch, third.assignment) == (3, None)


def test_the_records_come_in_kafkas_order(groups):
    groups.heartbeat("anna")
    groups.heartbeat("anna", 2, None)
    assert [key.removeprefix("ShareGroup").removesuffix("Key") for key in keys_written(groups)] == [
        "MemberMetadata",
        "Metadata",
        "TargetAssignmentMember",
        "TargetAssignmentMetadata",
        "CurrentMemberAssignment",
        "StatePartitionMetadata",
        "StatePartitionMetadata",
        "Metadata",
        "TargetAssignmentMember",
        "TargetAssignmentMetadata",
        "CurrentMemberAssignment",
    ]


def test_members_share_the_partitions(groups):
    groups.joined("anna", "bert")
    found = groups.assigned()
    assert sorted(found["anna"]["orders"] + found["bert"]["orders"]) == [0, 1, 2, 3]
    assert len(found["anna"]["orders"]) == 2


def test_a_heartbeat_that_repeats_the_subscription_is_told_the_assignment_again(groups):
    groups.joined("anna")
    assert groups.heartbeat("anna", 3, ("orders",)).assignment is not None
    assert groups.heartbeat("anna", 3, None).assignment is None


def test_a_topic_that_comes_later_is_shared_from_its_first_record_on_where_the_group_had_it_before(groups):
    groups.joined("anna")
    groups.changed("orders", 6)
    groups.heartbeat("anna", 3, None)
    assert groups.persister.states[groups.key(4)] == (4, 0)
    assert groups.heartbeat("anna", 4, None).assignment == {
        groups.topics.of_name("orders").topic_id: frozenset(range(6))
    }


def test_a_topic_that_does_not_exist_yet_is_shared_once_it_does(groups):
    groups.heartbeat("anna", 0, ("later",))
    assert groups.persister.states == {}
    groups.changed("later", 1, are_new=True)
    groups.heartbeat("anna", 2, None)
    groups.heartbeat("anna", 3, None)
    assert groups.assigned() == {"anna": {"later": [0]}}


def test_a_subscription_that_changes_takes_partitions_away(groups):
    groups.topics.put("lines", 1)
    groups.joined("anna")
    assert groups.heartbeat("anna", 3, ("lines",)).assignment == {}
    groups.heartbeat("anna", 4, None)
    assert groups.assigned() == {"anna": {"lines": [0]}}


@pytest.mark.parametrize(
    ("member", "epoch", "error"),
    [("anna", 2, E.NONE), ("anna", 4, E.FENCED_MEMBER_EPOCH), ("bert", 2, E.UNKNOWN_MEMBER_ID), ("anna", 0, E.NONE)],
)
def test_the_epoch_says_whether_a_member_is_up_to_date(groups, member, epoch, error):
    groups.joined("anna")
    assert groups.heartbeat(member, epoch).error is error


def test_an_epoch_long_past_is_fenced(groups):
    groups.joined("anna")
    groups.changed("orders", 5)
    groups.heartbeat("anna", 3, None)
    groups.heartbeat("anna", 4, None)
    assert groups.heartbeat("anna", 3, None).error is E.FENCED_MEMBER_EPOCH


def test_only_the_first_heartbeat_makes_a_group(groups):
    assert groups.heartbeat("anna", 2).error is E.GROUP_ID_NOT_FOUND
    assert groups.heartbeat("anna", -1).error is E.GROUP_ID_NOT_FOUND
    assert groups.group() is None


def test_a_group_of_another_kind_is_no_share_group(groups):
    groups.commit(7, group_id="readers")
    assert groups.heartbeat(group_id="readers").error is E.GROUP_ID_NOT_FOUND
    assert groups.alter(group_id="readers").answer.error is E.GROUP_ID_NOT_FOUND


def test_a_group_has_no_more_members_than_it_may():
    groups = ShareCoordinator(share_max_size=1)
    groups.topics.put("orders", 1)
    groups.heartbeat("anna")
    assert groups.heartbeat("bert").error is E.GROUP_MAX_SIZE_REACHED
    assert groups.heartbeat("anna", 2, None).error is E.NONE


def test_a_new_assignment_waits_for_its_interval(groups):
    groups.configs["share.assignment.interval.ms"] = 1_000
    groups.joined("anna")
    assert groups.assigned() == {"anna": {}}
    groups.pass_ms(1_000)
    groups.heartbeat("anna", groups.epoch_of("anna"), None)
    assert groups.assigned() == {"anna": {"orders": [0, 1, 2, 3]}}


# Leaving


def test_a_member_that_leaves_gives_its_partitions_back(groups):
    groups.joined("anna", "bert")
    answer = groups.heartbeat("anna", -1, None)
    assert (answer.error, answer.member_epoch) == (E.NONE, -1)
    groups.heartbeat("bert", groups.epoch_of("bert"), None)
    assert groups.assigned() == {"bert": {"orders": [0, 1, 2, 3]}}
    groups.heartbeat("bert", -1, None)
    assert groups.shard.describe_share_group(G).state == "Empty"
    assert groups.heartbeat("bert", -1, None).error is E.UNKNOWN_MEMBER_ID


def test_a_silent_member_is_removed(groups):
    groups.joined("anna")
    groups.pass_ms(SESSION_MS - 1)
    assert "anna" in groups.group().members
    groups.pass_ms(1)
    assert groups.group().members == {}
    assert groups.heartbeat("anna", 3).error is E.UNKNOWN_MEMBER_ID


def test_states_are_begun_once_a_late_heartbeat_stands(groups):
    groups.writer.hold()
    late = groups.sends_heartbeat("anna")
    groups.writer.time_out()
    assert late.answer.error is E.COORDINATOR_NOT_AVAILABLE
    assert groups.persister.states == {}

    groups.writer.release()
    assert groups.persister.states == {groups.key(index): (2, -1) for index in range(4)}


def test_a_member_whose_leave_was_late_is_gone_with_its_session_once_that_stands(groups):
    groups.joined("anna")
    groups.writer.hold()
    late = groups.sends_heartbeat("anna", -1, None)
    groups.writer.time_out()
    assert late.answer.error is E.COORDINATOR_NOT_AVAILABLE

    groups.writer.release()
    assert groups.events.named("member_removed") == [(G, "anna", "it left")]
    assert len(groups.wheel) == 0


def test_sessions_begin_anew_with_another_coordinator(groups):
    groups.joined("anna")
    groups.pass_ms(SESSION_MS - 1)
    groups.restart()
    groups.pass_ms(SESSION_MS - 1)
    assert "anna" in groups.group().members
    groups.pass_ms(1)
    assert groups.group().members == {}


def test_a_session_that_ends_while_nothing_can_be_written_ends_again(groups):
    groups.joined("anna")
    groups.writer.error = E.NOT_ENOUGH_REPLICAS
    groups.pass_ms(SESSION_MS)
    groups.writer.error = None
    assert "anna" in groups.group().members
    groups.pass_ms(SESSION_MS)
    assert groups.group().members == {}


# States


def test_states_that_could_not_begin_are_asked_for_again(groups):
    groups.persister.error = E.COORDINATOR_NOT_AVAILABLE
    groups.heartbeat("anna")
    assert groups.group().states.initializing == {}
    groups.persister.error = E.NONE
    groups.heartbeat("anna", 2, None)
    groups.heartbeat("anna", 2, None)
    assert groups.assigned() == {"anna": {"orders": [0, 1, 2, 3]}}


def test_while_states_begin_they_are_not_asked_for_twice(groups):
    groups.persister.is_held = True
    groups.heartbeat("anna")
    groups.heartbeat("anna", 2, None)
    assert len(groups.persister.held) == 4
    groups.pass_ms(RETRY_MS)
    groups.heartbeat("anna", 2, None)
    assert len(groups.persister.held) == 8
    groups.persister.is_held = False
    groups.persister.answer()
    groups.heartbeat("anna", 2, None)
    assert groups.assigned() == {"anna": {"orders": [0, 1, 2, 3]}}


def test_a_deleted_topic_is_forgotten(groups):
    groups.joined("anna")
    groups.topics.delete("orders")
    groups.shard.topics_changed({"orders"}, are_new=False)
    assert groups.group().states.initialized == {}
    assert groups.heartbeat("anna", 3, None).assignment == {}


def test_a_topic_that_was_deleted_while_nobody_coordinated_is_forgotten(groups):
    groups.joined("anna")
    groups.topics.delete("orders")
    groups.restart()
    assert groups.group().states.initialized == {}


# Administration


def test_a_group_is_described_and_listed(groups):
    groups.joined("anna")
    found = groups.shard.describe_share_group(G)
    assert (found.state, found.epoch, found.assignment_epoch) == ("Stable", 3, 3)
    (member,) = found.members
    assert (member.member_id, member.epoch, member.client_id, member.subscribed_topics) == (
        "anna",
        3,
        "client",
        ["orders"],
    )
    assert [(one.group_id, one.protocol_type, one.state, one.type) for one in groups.shard.list()] == [
        (G, "share", "Stable", "share")
    ]
    assert groups.shard.describe_share_group("nobody") is None


def test_a_group_with_members_is_not_deleted(groups):
    groups.joined("anna")
    assert groups.delete_group().answer is E.NON_EMPTY_GROUP
    assert len(groups.persister.states) == 4


def test_a_group_is_deleted_with_its_states(groups):
    groups.joined("anna")
    groups.heartbeat("anna", -1, None)
    assert groups.delete_group().answer is E.NONE
    assert groups.group() is None
    assert groups.persister.states == {}
    assert groups.replayed().modern == {}
    assert groups.delete_group().answer is E.GROUP_ID_NOT_FOUND


def test_a_group_whose_states_cannot_be_deleted_stays(groups):
    groups.joined("anna")
    groups.heartbeat("anna", -1, None)
    groups.persister.error = E.COORDINATOR_NOT_AVAILABLE
    assert groups.delete_group().answer is E.COORDINATOR_NOT_AVAILABLE
    assert groups.group().states.deleting == {groups.topics.of_name("orders").topic_id: "orders"}
    groups.persister.error = E.NONE
    assert groups.delete_group().answer is E.NONE
    assert groups.persister.states == {}


def test_offsets_are_altered_while_nobody_is_there(groups):
    orders = groups.topics.of_name("orders")
    change = NewOffsets(orders.topic_id, "orders", {0: 7, 3: 9})
    groups.joined("anna")
    assert groups.alter(change).answer.error is E.NON_EMPTY_GROUP
    groups.heartbeat("anna", -1, None)
    assert groups.alter(change).answer.error is E.NONE
    assert groups.persister.states[groups.key(0)] == (4, 7)
    assert groups.persister.states[groups.key(3)] == (4, 9)
    assert groups.group().states.initializing == {}


def test_altering_makes_a_group(groups):
    orders = groups.topics.of_name("orders")
    assert groups.alter(NewOffsets(orders.topic_id, "orders", {1: 7})).answer.error is E.NONE
    assert groups.persister.states == {groups.key(1): (1, 7)}
    assert groups.shard.initialized_partitions(G) == {orders.topic_id: frozenset({1})}
    groups.joined("anna")
    assert groups.assigned() == {"anna": {"orders": [0, 1, 2, 3]}}


def test_a_partition_whose_offset_is_not_altered_says_so(groups):
    orders = groups.topics.of_name("orders")
    groups.persister.error = E.FENCED_STATE_EPOCH
    answer = groups.alter(NewOffsets(orders.topic_id, "orders", {1: 7})).answer
    assert answer.codes == {(orders.topic_id, 1): E.FENCED_STATE_EPOCH}


def test_offsets_of_topics_are_deleted(groups):
    groups.topics.put("lines", 1)
    groups.joined("anna")
    ((error, _, _),) = groups.delete_offsets("orders")
    assert error is E.NON_EMPTY_GROUP
    groups.heartbeat("anna", -1, None)
    ((error, _, outcomes),) = groups.delete_offsets("orders", "lines", "nothing")
    assert error is E.NONE
    assert {name: outcome.error for name, outcome in outcomes.items()} == {
        "orders": E.NONE,
        "lines": E.UNKNOWN_TOPIC_OR_PARTITION,
        "nothing": E.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert groups.persister.states == {}
    assert groups.group().states.deleting == {}
    assert groups.delete_offsets("orders", group_id="nobody")[0][0] is E.GROUP_ID_NOT_FOUND


def test_offsets_that_could_not_be_deleted_are_deleted_later(groups):
    groups.joined("anna")
    groups.heartbeat("anna", -1, None)
    groups.persister.error = E.COORDINATOR_NOT_AVAILABLE
    ((_, _, outcomes),) = groups.delete_offsets("orders")
    assert outcomes["orders"].error is E.COORDINATOR_NOT_AVAILABLE
    groups.persister.error = E.NONE
    ((_, _, outcomes),) = groups.delete_offsets("orders")
    assert outcomes["orders"].error is E.NONE
    assert groups.persister.states == {}


def test_a_share_group_has_no_committed_offsets(groups):
    groups.joined("anna")
    assert groups.commit(3, group_id=G) is E.GROUP_ID_NOT_FOUND
    for member_id in ("anna", "nobody", None):
        assert groups.shard.check_fetch(G, member_id, 3) is E.NONE


def test_members_are_expired_by_a_call(groups):
    groups.joined("anna", "bert")
    assert groups.shard.expire_members(G, "anna") == 1
    assert list(groups.group().members) == ["bert"]
    assert groups.shard.expire_members(G, None) == 1
    assert groups.shard.expire_members(G, None) == 0


# Writing


def test_a_heartbeat_that_is_not_written_changes_nothing(groups):
    groups.writer.error = E.NOT_ENOUGH_REPLICAS
    assert groups.heartbeat("anna").error is E.COORDINATOR_NOT_AVAILABLE
    assert groups.group() is None
    assert groups.persister.states == {}
    groups.writer.error = None
    groups.joined("anna")
    assert groups.assigned() == {"anna": {"orders": [0, 1, 2, 3]}}


def test_heartbeats_wait_for_the_records_of_those_before_them(groups):
    groups.writer.is_held = True
    first, second = groups.sends_heartbeat("anna"), groups.sends_heartbeat("bert")
    assert first.is_parked
    assert second.is_parked
    groups.writer.settle()
    assert (first.answer.member_epoch, second.answer.error) == (2, E.NONE)
    assert len(groups.group().members) == 2


def test_what_waits_is_refused_when_the_coordinator_goes(groups):
    groups.joined("anna")
    groups.heartbeat("anna", -1, None)
    groups.persister.is_held = True
    deletion = groups.delete_group()
    groups.restart()
    groups.persister.answer()
    assert deletion.answer in (E.NOT_COORDINATOR, E.NONE)


def test_another_coordinator_makes_the_same_of_the_log(groups):
    groups.joined("anna", "bert", "carl")
    groups.heartbeat("bert", -1, None)
    groups.changed("orders", 6)
    for _ in range(2):
        for member in ("anna", "carl"):
            groups.heartbeat(member, groups.epoch_of(member), None)
    live, again = groups.group(), groups.replayed().modern[G]
    for field in ("epoch", "metadata_hash", "assignment_epoch", "members", "targets", "states", "subscribers"):
        assert getattr(live, field) == getattr(again, field), field
    assert ShareGroupStatePartitionMetadataKey.__name__ in keys_written(groups)
