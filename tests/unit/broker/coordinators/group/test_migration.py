"""A group's way from the classic protocol to the newer one and back, while members of both kinds are in it."""

import struct

import pytest

from broker.coordinators.group.consumer.embedded import (
    Malformed,
    read_assignment,
    read_subscription,
    write_assignment,
)
from broker.coordinators.group.requests import Joined, Protocol
from protocol.errors import ErrorCode as E
from tests.unit.broker.coordinators.group.consumer_members import Consumer, settle
from tests.unit.broker.coordinators.group.harness import Client, Coordinator, G


def subscription(*topics, version=1, owned=()):
    text = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    data = struct.pack(">hi", version, len(topics)) + text + struct.pack(">i", -1)
    if version >= 1:
        data += struct.pack(">i", len(owned))
        for topic, partitions in owned:
            data += struct.pack(">h", len(topic)) + topic.encode() + struct.pack(">i", len(partitions))
            data += b"".join(struct.pack(">i", partition) for partition in partitions)
    return data


class ClassicClient(Client):
    """A member of the classic protocol that reads its assignments, and joins again when it is told to."""

    def __init__(self, groups, name, **about):
        super().__init__(groups, name, protocols=(Protocol("range", subscription("orders")),), **about)
        self.partitions = set()

    def takes_assignment(self, assignment):
        self.partitions = set(read_assignment(assignment).partitions.get("orders", ()))

    def goes_on(self):
        """What a client does in a turn: a heartbeat, and a join and a sync if it has to. Whether it had to."""
        if self.beats() is E.NONE:
            return False
        owned = [("orders", sorted(self.partitions))] if self.partitions else []
        reply = self.asks_to_join(protocols=(Protocol("range", subscription("orders", owned=owned)),))
        if reply.is_parked or reply.answer.error is not E.NONE:
            return True
        self.takes(reply.answer)
        synced = self.asks_to_sync()
        if not synced.is_parked and synced.answer.error is E.NONE:
            self.takes_assignment(synced.answer.assignment)
        return True


@pytest.fixture
def groups():
    groups = Coordinator()
    groups.topics.put("orders", 4)
    return groups


def classic_group(groups, *names):
    """A stable classic group, each of whose members has equally many of the partitions of orders."""
    members = [ClassicClient(groups, name) for name in names]
    members[0].joins()
    members[0].brings({})
    waiting = [member.parks() for member in members[1:]]
    if len(members) > 1:
        members[0].joins()
    for member, reply in zip(members[1:], waiting, strict=True):
        member.takes(reply.answer)
    share = 4 // len(members)
    parts = {
        member: write_assignment(1, [("orders", range(place * share, (place + 1) * share))])
        for place, member in enumerate(members)
    }
    synced = [member.asks_to_sync() for member in members[1:]]
    members[0].takes_assignment(members[0].brings(parts))
    for member, reply in zip(members[1:], synced, strict=True):
        member.takes_assignment(reply.answer.assignment)
    assert groups.state() == "Stable"
    return members


def go_on(classic, modern):
    """Let everybody go on until nothing changes."""
    for _ in range(30):
        before = [member.partitions for member in classic] + [(one.epoch, one.assigned) for one in modern]
        busy = [member.goes_on() for member in classic]
        for one in modern:
            one.beats()
        owners = [partition for member in classic for partition in member.partitions]
        owners += [partition for one in modern for partition in one.owned.get("orders", ())]
        assert len(owners) == len(set(owners)), "a partition has two members"
        after = [member.partitions for member in classic] + [(one.epoch, one.assigned) for one in modern]
        if before == after and not any(busy):
            return
    raise AssertionError("the members never settle")


def kinds(groups):
    return [int.from_bytes(key[:2], "big") * (1 if value is not None else -1) for key, value in groups.writer.log]


def test_a_classic_group_becomes_a_consumer_group_under_its_members(groups):
    anna, bert = classic_group(groups, "anna", "bert")
    before = len(groups.writer.log)
    carl = Consumer(groups, "carl")
    carl.joins()

    upgrade, heartbeat = [-2, 5, 5, 3, 7, 7, 6, 8, 8], [5, 3, 7, 7, 6, 8]
    assert kinds(groups)[before:] == upgrade + heartbeat
    assert groups.shard.kind_of(G) == "consumer"
    assert anna.beats() is E.REBALANCE_IN_PROGRESS
    assert anna.commits(7) is E.NONE
    go_on([anna, bert], [carl])

    assert anna.partitions | bert.partitions | carl.owned["orders"] == {0, 1, 2, 3}
    assert len(carl.owned["orders"]) in (1, 2)
    assert groups.shard.glance(G).state == "Stable"
    assert groups.committed() == 7
    groups.check_replay()
    groups.restart()
    go_on([anna, bert], [carl])


def test_when_the_last_newer_member_leaves_the_group_is_classic_again_and_rebalances(groups):
    anna, bert = classic_group(groups, "anna", "bert")
    carl = Consumer(groups, "carl")
    carl.joins()
    go_on([anna, bert], [carl])
    before = len(groups.writer.log)
    assert carl.leaves().member_epoch == -1

    assert kinds(groups)[before:] == [-8, -8, -8, -7, -7, -7, -6, -5, -5, -5, -4, -3, 2]
    assert (groups.shard.kind_of(G), groups.state()) == ("classic", "PreparingRebalance")
    assert {member.client_id for member in groups.shard.describe(G).members} == {"anna", "bert"}
    assert anna.beats() is bert.beats() is E.REBALANCE_IN_PROGRESS
    waiting = anna.parks()
    bert.joins()
    anna.takes(waiting.answer)
    assert anna.generation == bert.generation
    groups.check_replay()


def test_a_group_of_newer_members_becomes_classic_one_by_one(groups):
    carl = Consumer(groups, "carl")
    carl.joins()
    anna = ClassicClient(groups, "anna")
    anna.member_id = anna.asks_to_join().answer.member_id
    assert len(anna.member_id) == 22
    joined = anna.joins()
    assert (joined.leader, joined.members, joined.generation) == ("", (), 3)
    anna.takes_assignment(anna.syncs())
    go_on([anna], [carl])
    assert len(anna.partitions) == len(carl.owned["orders"]) == 2
    assert groups.shard.describe_consumer_group(G).state == "Stable"

    carl.leaves()
    assert groups.shard.kind_of(G) == "classic"
    anna.joins()
    anna.brings({anna: write_assignment(1, [("orders", range(4))])})
    assert groups.state() == "Stable"
    groups.check_replay()


def test_an_empty_group_takes_the_kind_of_its_next_member(groups):
    [anna] = classic_group(groups, "anna")
    anna.leaves()
    carl = Consumer(groups, "carl")
    carl.joins()
    assert groups.shard.kind_of(G) == "consumer"
    carl.leaves()
    bert = ClassicClient(groups, "bert")
    bert.joins()
    assert groups.shard.kind_of(G) == "classic"
    groups.check_replay()


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"consumer_upgrades": False}, "online upgrade is disabled"),
        ({"consumer_max_size": 0}, "exceeds the consumer group maximum size"),
    ],
)
def test_a_group_that_may_not_be_upgraded_stays_as_it_is(settings, why):
    groups = Coordinator(**settings)
    groups.topics.put("orders", 4)
    [anna] = classic_group(groups, "anna")
    carl = Consumer(groups, "carl")
    refused = carl.asks(0, owned={}, **carl.about).answer

    assert refused.error is E.GROUP_ID_NOT_FOUND
    assert why in refused.message
    assert anna.beats() is E.NONE


def test_a_group_whose_upgrade_was_refused_heeds_its_records_as_before():
    groups = Coordinator(consumer_max_size=1)
    groups.topics.put("orders", 4)
    shop = ClassicClient(groups, "shop", instance_id="shop 1")
    shop.joins()
    shop.brings({})
    carl = Consumer(groups, "carl")
    assert carl.asks(0, owned={}, **carl.about).answer.error is E.GROUP_MAX_SIZE_REACHED

    groups.writer.hold()
    again = ClassicClient(groups, "shop", instance_id="shop 1").asks_to_join()
    groups.writer.time_out()
    assert again.answer.error is E.COORDINATOR_NOT_AVAILABLE
    groups.writer.release()
    assert groups.state() == "PreparingRebalance"


def test_a_group_that_does_not_consume_is_not_upgraded(groups):
    connect = groups.member("connect", protocol_type="connect")
    connect.joins()
    connect.brings({})
    carl = Consumer(groups, "carl")
    refused = carl.asks(0, owned={}, **carl.about).answer

    assert refused.error is E.GROUP_ID_NOT_FOUND
    assert connect.beats() is E.NONE


def test_without_downgrades_the_group_stays_a_consumer_group():
    groups = Coordinator(consumer_downgrades=False)
    groups.topics.put("orders", 4)
    [anna] = classic_group(groups, "anna")
    carl = Consumer(groups, "carl")
    carl.joins()
    go_on([anna], [carl])
    carl.leaves()

    assert groups.shard.kind_of(G) == "consumer"
    # No newer member is left to compute the next assignment: a classic member has to join for that.
    go_on([anna], [])
    assert anna.partitions == {0, 1, 2, 3}


def test_who_may_not_take_part_is_refused(groups):
    carl = Consumer(groups, "carl")
    carl.joins()
    dora = ClassicClient(groups, "dora", protocol_type="connect")
    assert dora.asks_to_join(member_id="dora").answer == Joined(error=E.INCONSISTENT_GROUP_PROTOCOL)
    anna = ClassicClient(groups, "anna", needs_known_id=False)
    anna.joins()

    assert anna.asks_to_sync(protocol="roundrobin").answer.error is E.INCONSISTENT_GROUP_PROTOCOL
    assert anna.asks_to_sync(generation=1).answer.error is E.ILLEGAL_GENERATION
    assert anna.beats(generation=9) is E.ILLEGAL_GENERATION
    assert anna.beats(member_id="carl") is E.UNKNOWN_MEMBER_ID
    assert groups.leaves("nobody", ("", "shop"), ("carl", "shop")).answer.members == [E.UNKNOWN_MEMBER_ID] * 3
    assert anna.commits(3, generation=1) is E.ILLEGAL_GENERATION
    assert groups.leaves(anna.member_id).answer.members == [E.NONE]
    assert set(groups.shard.image.modern[G].members) == {"carl"}


@pytest.mark.parametrize("named", ["carl", ("carl", "shop 1"), ("", "shop 1")])
def test_a_newer_member_is_removed_by_a_classic_request_however_it_is_named(groups, named):
    carl, dora = Consumer(groups, "carl", instance_id="shop 1"), Consumer(groups, "dora")
    for member in (carl, dora):
        member.joins()
    fenced = groups.leaves(("dora", "shop 1"), "nobody").answer.members
    assert fenced == [E.FENCED_INSTANCE_ID, E.UNKNOWN_MEMBER_ID]

    assert groups.leaves(named).answer.members == [E.NONE]
    assert set(groups.shard.image.modern[G].members) == {"dora"}
    settle(dora)
    assert dora.owned["orders"] == {0, 1, 2, 3}


def test_the_last_newer_member_that_is_removed_leaves_a_classic_group(groups):
    [anna] = classic_group(groups, "anna")
    carl = Consumer(groups, "carl")
    carl.joins()
    go_on([anna], [carl])

    assert groups.leaves("carl").answer.members == [E.NONE]
    assert groups.shard.kind_of(G) == "classic"
    assert anna.beats() is E.REBALANCE_IN_PROGRESS


def test_a_classic_member_goes_on_while_the_next_assignment_is_only_due(groups):
    groups.configs["consumer.assignment.interval.ms"] = 1_000
    carl = Consumer(groups, "carl")
    carl.joins()
    anna = ClassicClient(groups, "anna", needs_known_id=False)
    anna.takes(anna.asks_to_join().answer)
    assert groups.shard.glance(G).state == "Assigning"

    assert anna.asks_to_sync().answer.error is E.NONE
    assert anna.beats() is E.NONE
    groups.pass_ms(1_000)
    assert anna.beats() is E.NONE
    carl.beats()
    assert anna.asks_to_sync().answer.error is E.REBALANCE_IN_PROGRESS
    assert anna.beats() is E.REBALANCE_IN_PROGRESS
    go_on([anna], [carl])
    assert len(anna.partitions) == 2


def test_a_classic_member_is_alive_with_each_sync(groups):
    carl = Consumer(groups, "carl")
    carl.joins()
    anna = ClassicClient(groups, "anna", needs_known_id=False, session_timeout_ms=10_000)
    anna.takes(anna.asks_to_join().answer)
    for _ in range(3):
        groups.pass_ms(6_000)
        anna.asks_to_sync()
        carl.beats()
    assert set(groups.shard.image.modern[G].members) == {"carl", anna.member_id}


def test_a_session_timeout_out_of_bounds_is_refused_before_the_protocols_of_the_group(groups):
    carl = Consumer(groups, "carl")
    carl.joins()
    anna = ClassicClient(groups, "anna", protocol_type="connect", session_timeout_ms=1)
    refused = Joined(error=E.INVALID_SESSION_TIMEOUT, member_id="a")
    assert anna.asks_to_join(member_id="a").answer == refused


def test_a_classic_member_that_does_not_join_again_is_removed(groups):
    carl = Consumer(groups, "carl")
    carl.joins()
    anna = ClassicClient(groups, "anna", needs_known_id=False, session_timeout_ms=10_000, rebalance_timeout_ms=20_000)
    anna.joins()
    anna.syncs()
    settle(carl)
    dora = Consumer(groups, "dora")
    dora.joins()
    for _ in range(4):
        anna.beats()
        groups.pass_ms(5_000)
    assert set(groups.shard.image.modern[G].members) == {"carl", "dora"}


def test_a_static_member_that_comes_back_with_the_other_protocol_keeps_its_partitions(groups):
    carl = Consumer(groups, "carl", instance_id="shop 1")
    carl.joins()
    anna = ClassicClient(groups, "anna", instance_id="shop 1")
    anna.joins()

    assert groups.shard.kind_of(G) == "classic"
    again = Consumer(groups, "carl 2")
    again.joins()
    assert groups.shard.kind_of(G) == "consumer"
    groups.check_replay()


def test_an_upgrade_that_cannot_be_written_leaves_the_classic_group(groups):
    [anna] = classic_group(groups, "anna")
    groups.writer.fail()
    carl = Consumer(groups, "carl")
    assert carl.asks(0, owned={}, **carl.about).answer.error is E.NOT_COORDINATOR
    groups.writer.recover()

    assert anna.beats() is E.NONE
    carl.joins()
    go_on([anna], [carl])


def late_upgrade(groups):
    """Carl's join makes a consumer group of anna's and bert's, and takes longer than he waits."""
    anna, bert = classic_group(groups, "anna", "bert")
    carl = Consumer(groups, "carl")
    groups.writer.hold()
    join = carl.asks(0, owned={}, **carl.about)
    groups.writer.time_out()
    assert join.answer.error is E.COORDINATOR_NOT_AVAILABLE
    return anna, bert, carl


def test_a_classic_group_goes_on_until_it_is_known_whether_its_late_upgrade_stands(groups):
    anna, _, carl = late_upgrade(groups)
    assert (groups.shard.kind_of(G), groups.state()) == ("classic", "Stable")
    assert anna.beats() is E.NONE
    assert anna.commits(7, generation=0) is E.ILLEGAL_GENERATION
    again, join = carl.asks(0, owned={}, **carl.about), anna.asks_to_join()
    assert again.is_parked
    assert join.is_parked

    groups.writer.time_out()
    assert again.answer.error is join.answer.error is E.COORDINATOR_NOT_AVAILABLE


def test_a_late_upgrade_that_stands_leaves_one_group(groups):
    anna, bert, carl = late_upgrade(groups)
    groups.writer.release()
    before = len(groups.writer.log)
    assert groups.shard.kind_of(G) == "consumer"
    assert list(groups.shard._membership.group_ids()) == []
    assert anna.beats() is E.REBALANCE_IN_PROGRESS

    carl.joins()
    for _ in range(14):
        go_on([anna, bert], [carl])
        groups.pass_ms(5_000)
    assert anna.partitions | bert.partitions | carl.owned["orders"] == {0, 1, 2, 3}
    assert 2 not in map(abs, kinds(groups)[before:])
    groups.check_replay()


def test_a_late_upgrade_begins_the_sessions_of_the_members_that_it_takes_over(groups):
    anna, bert, carl = late_upgrade(groups)
    groups.writer.release()
    carl.joins()
    for _ in range(3):
        go_on([anna], [carl])
        groups.pass_ms(4_000)
    assert bert.member_id not in groups.shard.image.modern[G].members
    assert carl.epoch > 0

    go_on([anna], [carl])
    assert anna.partitions | carl.owned["orders"] == {0, 1, 2, 3}


def test_a_late_upgrade_that_fails_leaves_the_classic_group(groups):
    anna, bert, carl = late_upgrade(groups)
    groups.writer.settle_one(E.KAFKA_STORAGE_ERROR)
    groups.writer.release()
    assert (groups.shard.kind_of(G), groups.state()) == ("classic", "Stable")
    assert anna.beats() is bert.beats() is E.NONE

    carl.joins()
    go_on([anna, bert], [carl])
    assert groups.shard.kind_of(G) == "consumer"


def test_a_classic_member_that_is_heard_of_while_its_silence_is_not_decided_stays(groups):
    anna, bert, _ = late_upgrade(groups)
    groups.pass_ms(anna.session_timeout_ms)
    assert anna.beats() is E.NONE
    groups.writer.settle_one(E.KAFKA_STORAGE_ERROR)
    assert groups.shard.describe(G).state == "PreparingRebalance"
    assert anna.beats() is E.REBALANCE_IN_PROGRESS
    assert bert.beats() is E.UNKNOWN_MEMBER_ID


def test_an_empty_group_that_takes_another_kind_late_leaves_one_group(groups):
    [anna] = classic_group(groups, "anna")
    anna.leaves()
    pending = ClassicClient(groups, "bert")
    assert pending.asks_to_join().answer.error is E.MEMBER_ID_REQUIRED
    carl = Consumer(groups, "carl")
    groups.writer.hold()
    carl.asks(0, owned={}, **carl.about)
    groups.writer.time_out()
    groups.writer.release()

    assert groups.shard.kind_of(G) == "consumer"
    assert list(groups.shard._membership.group_ids()) == []


def late_downgrade(groups):
    """Carl leaves anna and bert, whose group is classic again, and that takes longer than he waits."""
    anna, bert = classic_group(groups, "anna", "bert")
    carl = Consumer(groups, "carl")
    carl.joins()
    go_on([anna, bert], [carl])
    groups.writer.hold()
    leave = carl.asks(-1)
    groups.writer.time_out()
    assert leave.answer.error is E.COORDINATOR_NOT_AVAILABLE
    return anna, bert


def test_a_late_downgrade_that_stands_leaves_a_classic_group_that_rebalances(groups):
    anna, bert = late_downgrade(groups)
    assert groups.shard.kind_of(G) == "consumer"
    assert anna.beats() is E.NONE
    groups.writer.release()

    assert (groups.shard.kind_of(G), groups.state()) == ("classic", "PreparingRebalance")
    assert anna.beats() is bert.beats() is E.REBALANCE_IN_PROGRESS
    waiting = anna.parks()
    bert.joins()
    anna.takes(waiting.answer)
    anna.brings({anna: write_assignment(1, [("orders", [0, 1])]), bert: write_assignment(1, [("orders", [2, 3])])})
    assert groups.state() == "Stable"
    groups.check_replay()


def test_a_late_downgrade_begins_the_sessions_of_its_classic_members(groups):
    anna, _ = late_downgrade(groups)
    groups.writer.release()
    waiting = anna.parks()
    for _ in range(2):
        groups.pass_ms(5_000)
    anna.takes(waiting.answer)

    assert groups.member_ids() == [anna.member_id]
    assert len(groups.wheel) > 0


def test_a_late_downgrade_that_fails_leaves_the_consumer_group_without_a_change(groups):
    anna, bert = late_downgrade(groups)
    groups.writer.settle_one(E.KAFKA_STORAGE_ERROR)
    groups.writer.release()

    assert groups.shard.kind_of(G) == "consumer"
    assert anna.beats() is bert.beats() is E.NONE
    assert "carl" in groups.shard.image.modern[G].members


def test_a_classic_member_whose_join_of_a_consumer_group_was_late_has_a_session(groups):
    carl = Consumer(groups, "carl")
    carl.joins()
    anna = ClassicClient(groups, "anna", needs_known_id=False)
    groups.writer.hold()
    join = anna.asks_to_join()
    groups.writer.time_out()
    assert join.answer.error is E.COORDINATOR_NOT_AVAILABLE
    groups.writer.release()
    assert len(groups.shard.image.modern[G].members) == 2

    groups.pass_ms(anna.session_timeout_ms)
    assert set(groups.shard.image.modern[G].members) == {"carl"}


def test_a_classic_member_that_goes_on_with_newer_heartbeats_has_to_give_up_partitions_in_time(groups):
    anna, bert = classic_group(groups, "anna", "bert")
    carl = Consumer(groups, "carl")
    carl.joins()
    go_on([anna], [])
    bert.goes_on()
    assert groups.shard.image.modern[G].members[bert.member_id].is_revoking

    same = Consumer(groups, bert.member_id, rebalance_timeout_ms=60_000)
    for _ in range(12):
        assert same.asks(bert.generation).answer.error is E.NONE
        anna.goes_on()
        carl.beats()
        groups.pass_ms(5_000)
    assert bert.member_id not in groups.shard.image.modern[G].members


def test_the_embedded_protocol_is_read_and_written():
    data = subscription("orders", "payments", owned=[("orders", [1, 3])])
    assert read_subscription(data).topics == {"orders", "payments"}
    assert read_subscription(data).owned == {"orders": {1, 3}}
    assert read_assignment(write_assignment(2, [("orders", {2, 0})])).partitions == {"orders": {0, 2}}
    assert read_assignment(b"").partitions == {}
    for size in range(len(data)):
        with pytest.raises(Malformed):
            read_subscription(data[:size])
