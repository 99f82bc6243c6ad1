"""Events in a group while a record of it is being written, and records that come late or fail."""

import pytest

from broker.coordinators.group.requests import Joined, Protocol, Synced
from protocol.errors import ErrorCode
from tests.unit.broker.coordinators.group.harness import Coordinator, G, stable_group

CHANGED = (Protocol("range", b"changed"),)


def storing_group(groups):
    """Both have joined generation 3, and the leader's assignment is under way; both wait."""
    anna, bert = stable_group(groups)
    waiting = bert.parks(protocols=CHANGED)
    anna.joins()
    bert.takes(waiting.answer)
    groups.writer.hold()
    synced = [bert.asks_to_sync(), anna.asks_to_sync({anna: b"0", bert: b"1"})]
    assert [reply.is_parked for reply in synced] == [True, True]
    return anna, bert, synced


def emptying_group(groups):
    """anna was the only member of generation 1; the record that says that nobody is left is under way."""
    anna = groups.member()
    anna.joins()
    anna.brings({anna: b"0 1"})
    groups.writer.hold()
    return anna, anna.leaves()


# An assignment -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stands", [True, False])
def test_who_joins_while_an_assignment_is_written_begins_a_rebalance_and_the_assignment_is_nobodys(stands):
    groups = Coordinator()
    anna, bert, synced = storing_group(groups)
    carl = groups.member("carl")

    joining = carl.parks()
    assert [reply.answer for reply in synced] == [Synced(error=ErrorCode.REBALANCE_IN_PROGRESS)] * 2
    groups.writer.settle_one(None if stands else ErrorCode.KAFKA_STORAGE_ERROR)
    groups.writer.release()

    assert groups.state() == "PreparingRebalance"
    assert groups.group().metadata.generation == (3 if stands else 2)
    assert groups.generation() == 3
    waiting = bert.parks()
    assert anna.joins().generation == joining.answer.generation == waiting.answer.generation == 4


def test_who_leaves_while_an_assignment_is_written_is_not_in_the_next_one():
    groups = Coordinator()
    anna, bert, synced = storing_group(groups)

    assert bert.leaves().answer.members == [ErrorCode.NONE]
    assert [reply.answer.error for reply in synced] == [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
    ]
    groups.writer.release()

    # The record names bert, and he is none: what is true is what comes next.
    assert bert.member_id in groups.group().metadata.members
    assert groups.member_ids() == [anna.member_id]
    assert [member.member_id for member in anna.joins().members] == [anna.member_id]
    anna.brings({})
    assert groups.state() == "Stable"
    assert list(groups.group().metadata.members) == [anna.member_id]


def test_two_generations_may_be_under_way_at_once():
    groups = Coordinator()
    anna, bert, _ = storing_group(groups)
    waiting = bert.parks(protocols=(Protocol("range", b"changed again"),))
    anna.joins()
    bert.takes(waiting.answer)
    synced = [bert.asks_to_sync(), anna.asks_to_sync({anna: b"1", bert: b"0"})]
    assert groups.generation() == 4

    groups.writer.settle_one()
    assert [reply.is_parked for reply in synced] == [True, True]
    assert groups.state() == "CompletingRebalance"
    assert anna.commits(1) is ErrorCode.REBALANCE_IN_PROGRESS
    groups.writer.settle_one()

    assert [reply.answer.assignment for reply in synced] == [b"0", b"1"]
    assert groups.state() == "Stable"


def test_the_first_of_two_generations_under_way_may_fail_alone():
    groups = Coordinator()
    anna, bert, _ = storing_group(groups)
    waiting = bert.parks(protocols=(Protocol("range", b"changed again"),))
    anna.joins()
    bert.takes(waiting.answer)
    synced = [bert.asks_to_sync(), anna.asks_to_sync({anna: b"1", bert: b"0"})]

    groups.writer.settle_one(ErrorCode.MESSAGE_TOO_LARGE)
    groups.writer.settle_one()

    assert [reply.answer.assignment for reply in synced] == [b"0", b"1"]


def test_a_member_whose_session_would_end_while_its_assignment_is_written_has_a_new_one_then():
    groups = Coordinator()
    anna, bert, synced = storing_group(groups)

    groups.pass_ms(30_000)
    assert [reply.is_parked for reply in synced] == [True, True]
    groups.writer.release()

    groups.pass_ms(9_999)
    assert anna.beats() is bert.beats() is ErrorCode.NONE
    groups.pass_ms(10_000)
    assert groups.state() == "Empty"


def test_an_assignment_that_comes_too_late_is_none():
    groups = Coordinator()
    anna, bert, synced = storing_group(groups)

    groups.writer.time_out()
    assert [reply.answer for reply in synced] == [Synced(error=ErrorCode.COORDINATOR_NOT_AVAILABLE)] * 2
    assert groups.state() == "PreparingRebalance"
    groups.writer.release()

    assert groups.state() == "PreparingRebalance"
    assert groups.group().metadata.generation == 3
    waiting = bert.parks()
    assert anna.joins().generation == waiting.answer.generation == 4


# That the group is empty ---------------------------------------------------------------------------------------------


def test_who_joins_while_the_record_of_an_empty_group_is_written_is_the_first_of_the_next_generation():
    groups = Coordinator()
    _, left = emptying_group(groups)
    bert = groups.member("bert", protocol_type="connect")

    assert bert.joins().generation == 3
    groups.writer.release()

    assert left.answer.members == [ErrorCode.NONE]
    assert groups.state() == "CompletingRebalance"
    assert groups.events.named("group_emptied") == []
    bert.brings({bert: b"0 1"})
    assert groups.state() == "Stable"
    groups.check_replay()


def test_to_such_a_group_the_initial_delay_applies():
    groups = Coordinator(initial_rebalance_delay_ms=3_000)
    anna = groups.member()
    waiting = anna.parks()
    groups.pass_ms(3_000)
    anna.takes(waiting.answer)
    groups.writer.hold()
    anna.leaves()

    waiting = groups.member("bert").parks()
    groups.pass_ms(2_999)
    assert waiting.is_parked
    groups.pass_ms(1)
    assert waiting.answer.generation == 3


def test_that_a_group_is_empty_is_written_until_it_stands():
    groups = Coordinator()
    anna, left = emptying_group(groups)
    groups.writer.fail(ErrorCode.KAFKA_STORAGE_ERROR)
    groups.writer.release()

    assert left.answer.error is ErrorCode.NOT_COORDINATOR
    assert (groups.state(), groups.generation(), groups.member_ids()) == ("PreparingRebalance", 2, [])
    assert groups.events.named("write_failed") == [(G, "that the group is empty", "KAFKA_STORAGE_ERROR")]
    groups.pass_ms(999)
    assert len(groups.events.named("write_failed")) == 1
    groups.pass_ms(1)
    assert len(groups.events.named("write_failed")) == 2
    assert anna.beats() is ErrorCode.UNKNOWN_MEMBER_ID
    groups.writer.recover()
    groups.pass_ms(1_000)

    assert (groups.state(), groups.generation()) == ("Empty", 2)
    assert len(groups.wheel) == 0
    groups.check_replay()


def test_who_joins_a_group_whose_emptiness_could_not_be_written_ends_the_trying():
    groups = Coordinator()
    emptying_group(groups)
    groups.writer.fail()
    groups.writer.release()
    groups.writer.recover()

    bert = groups.member("bert")
    assert bert.joins().generation == 3
    written = len(groups.writer.log)
    groups.pass_ms(5_000)

    assert len(groups.writer.log) == written
    bert.brings({})
    assert groups.state() == "Stable"


def test_that_a_group_is_empty_may_come_late():
    groups = Coordinator()
    _, left = emptying_group(groups)

    groups.writer.time_out()
    assert left.answer.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    groups.pass_ms(1_000)
    groups.writer.release()

    assert (groups.state(), groups.generation()) == ("Empty", 2)
    assert len(groups.wheel) == 0


# The first record ----------------------------------------------------------------------------------------------------


def test_a_first_record_that_comes_late_leaves_an_empty_group():
    groups = Coordinator()
    anna = groups.member()
    groups.writer.hold()
    reply = anna.asks_to_join()

    groups.writer.time_out()
    assert reply.answer == Joined(error=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    again = anna.asks_to_join()
    groups.writer.release()

    assert again.answer.error is ErrorCode.MEMBER_ID_REQUIRED
    assert len(groups.group_records()) == 1


def test_while_the_first_record_is_written_nobody_else_sees_the_group():
    groups = Coordinator()
    groups.writer.hold()
    groups.member().asks_to_join()

    assert groups.shard.describe(G) is None
    assert list(groups.shard.list()) == []
    unknown = groups.member("bert").asks_to_join(member_id="bert")
    assert unknown.is_parked
    groups.writer.release()
    assert unknown.answer.error is ErrorCode.UNKNOWN_MEMBER_ID


# A tombstone ---------------------------------------------------------------------------------------------------------


def test_who_joins_while_a_group_is_deleted_makes_it_anew():
    groups = Coordinator()
    anna = groups.member()
    anna.joins()
    anna.leaves()
    groups.writer.hold()
    deleted = []
    groups.writer.append(groups.shard.delete(G, deleted.append))
    bert, carl = groups.member("bert", needs_known_id=False), groups.member("carl")
    named, joining = carl.asks_to_join(), bert.asks_to_join()
    assert [named.is_parked, joining.is_parked] == [True, True]

    groups.writer.settle_one()
    assert deleted == [ErrorCode.NONE]
    assert groups.shard.describe(G) is None
    groups.writer.release()

    assert named.answer.error is ErrorCode.MEMBER_ID_REQUIRED
    assert bert.takes(joining.answer).generation == 1
    groups.check_replay()


# A static member's new id --------------------------------------------------------------------------------------------


def static_group(groups):
    return stable_group(groups, groups.member("anna", instance_id="shop 1"), groups.member("bert"))


def test_who_comes_back_while_the_others_begin_a_rebalance_is_in_its_generation():
    groups = Coordinator()
    anna, bert = static_group(groups)
    groups.writer.hold()
    second = groups.member("second", instance_id="shop 1")
    waiting = second.parks()

    begun = bert.parks(protocols=CHANGED)

    # Both have joined: nobody else is waited for, whatever becomes of the record.
    assert waiting.answer.generation == begun.answer.generation == 3
    second.takes(waiting.answer)
    groups.writer.settle_one(ErrorCode.KAFKA_STORAGE_ERROR)
    groups.writer.release()
    assert second.brings({second: b"0"}) == b"0"
    assert groups.state() == "Stable"
    assert anna.beats() is ErrorCode.FENCED_INSTANCE_ID


def test_a_record_that_fails_does_not_take_back_who_waits_for_the_next_generation():
    groups = Coordinator()
    anna, bert, carl = groups.member("anna", instance_id="shop 1"), groups.member("bert"), groups.member("carl")
    stable_group(groups, anna, bert, carl)
    groups.writer.hold()
    second = groups.member("second", instance_id="shop 1")
    waiting = second.parks()
    bert.leaves()

    groups.writer.settle_one(ErrorCode.KAFKA_STORAGE_ERROR)
    assert waiting.is_parked
    groups.writer.release()
    joined = carl.joins()

    assert second.takes(waiting.answer).generation == 3
    assert {member.member_id for member in joined.members or waiting.answer.members} == {
        second.member_id,
        carl.member_id,
    }


def test_who_is_removed_while_its_new_id_is_written_is_told_so():
    groups = Coordinator()
    _, bert = static_group(groups)
    groups.writer.hold()
    waiting = groups.member("second", instance_id="shop 1").parks()

    assert groups.leaves(("", "shop 1")).answer.members == [ErrorCode.NONE]
    assert waiting.answer == Joined(error=ErrorCode.UNKNOWN_MEMBER_ID)
    groups.writer.release()

    assert groups.member_ids() == [bert.member_id]
    assert bert.joins().generation == 3


def test_who_waits_for_its_new_id_for_longer_than_its_session_has_a_session_then():
    groups = Coordinator()
    anna = groups.member("anna", instance_id="shop 1")
    anna.joins()
    anna.brings({})
    groups.writer.hold()
    second = groups.member("second", instance_id="shop 1")
    waiting = second.parks()
    groups.pass_ms(30_000)
    assert waiting.is_parked

    groups.writer.release()
    second.takes(waiting.answer)
    groups.pass_ms(9_999)
    assert groups.state() == "Stable"
    groups.pass_ms(1)
    assert groups.state() == "Empty"


def test_a_new_id_that_comes_late_is_agreed_on_anew():
    groups = Coordinator()
    anna, bert = static_group(groups)
    groups.writer.hold()
    waiting = groups.member("second", instance_id="shop 1").parks()

    groups.writer.time_out()
    assert waiting.answer.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert anna.beats() is ErrorCode.NONE
    assert groups.state() == "Stable"
    groups.writer.release()

    # The log names the second one now.
    assert anna.beats() is ErrorCode.REBALANCE_IN_PROGRESS
    waiting = bert.parks()
    assert anna.joins().generation == waiting.answer.generation == 3
    anna.brings({})
    assert list(groups.group().metadata.members) == [anna.member_id, bert.member_id]
