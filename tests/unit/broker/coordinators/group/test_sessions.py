"""Heartbeats, session timeouts and leaving."""

import pytest

from broker.coordinators.group.requests import Joined, LeavingMember, Protocol
from protocol.errors import ErrorCode
from tests.unit.broker.coordinators.group.harness import Coordinator, G, Reply, stable_group

CHANGED = (Protocol("range", b"changed"),)


def completing_group(groups):
    """anna leads, both have joined generation 3, nobody has synced."""
    anna, bert = stable_group(groups)
    waiting = bert.parks(protocols=CHANGED)
    anna.joins()
    bert.takes(waiting.answer)
    assert groups.state() == "CompletingRebalance"
    return anna, bert


# Heartbeats ----------------------------------------------------------------------------------------------------------


def test_a_heartbeat_to_no_group_or_to_none_that_exists():
    anna = Coordinator().member()

    assert anna.beats(group_id="", member_id="m", generation=1) is ErrorCode.INVALID_GROUP_ID
    assert anna.beats(member_id="m", generation=1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_heartbeat_of_another_generation():
    anna, _ = stable_group(Coordinator())

    assert anna.beats(generation=1) is ErrorCode.ILLEGAL_GENERATION
    assert anna.beats(generation=3) is ErrorCode.ILLEGAL_GENERATION
    assert anna.beats(generation=-1) is ErrorCode.ILLEGAL_GENERATION


def test_a_heartbeat_to_an_empty_group():
    groups = Coordinator()
    anna = groups.member()
    anna.joins()
    anna.leaves()

    assert anna.beats() is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("beat_of_generation", [2, 3], ids=["stable", "completing"])
def test_a_heartbeat_begins_the_session_anew(beat_of_generation):
    groups = Coordinator()
    anna, bert = stable_group(groups) if beat_of_generation == 2 else completing_group(groups)

    for _ in range(5):
        groups.pass_ms(9_999)
        assert anna.beats() is bert.beats() is ErrorCode.NONE


def test_a_heartbeat_during_a_rebalance_says_so_and_begins_the_session_anew_all_the_same():
    groups = Coordinator()
    anna, bert = stable_group(groups)
    waiting = anna.parks()

    for _ in range(5):
        groups.pass_ms(9_999)
        assert bert.beats() is ErrorCode.REBALANCE_IN_PROGRESS
    assert waiting.is_parked
    bert.joins()
    assert waiting.answer.generation == 3


# Silence -------------------------------------------------------------------------------------------------------------


def test_a_member_of_a_stable_group_that_is_silent_for_its_session_is_removed_and_the_others_rebalance():
    groups = Coordinator()
    anna, bert = stable_group(groups)
    groups.pass_ms(9_999)
    assert anna.beats() is ErrorCode.NONE
    assert bert.member_id in groups.member_ids()

    groups.pass_ms(1)

    assert (groups.state(), groups.member_ids()) == ("PreparingRebalance", [anna.member_id])
    assert groups.events.named("member_removed") == [(G, bert.member_id, "nothing has been heard of it for too long")]
    assert anna.beats() is ErrorCode.REBALANCE_IN_PROGRESS
    assert anna.joins().generation == 3


def test_a_silent_member_of_a_completing_group_is_removed_and_parked_syncs_are_told_to_join_again():
    groups = Coordinator()
    _, bert = completing_group(groups)
    synced = bert.asks_to_sync()

    groups.pass_ms(10_000)

    assert synced.answer.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert (groups.state(), groups.member_ids()) == ("PreparingRebalance", [bert.member_id])
    # The session of whoever waited begins with the answer.
    groups.pass_ms(9_999)
    assert bert.beats() is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_silent_member_of_a_preparing_group_is_not_waited_for():
    groups = Coordinator()
    anna, _ = stable_group(groups)
    waiting = anna.parks()

    groups.pass_ms(10_000)

    assert [member.member_id for member in waiting.answer.members] == [anna.member_id]


def test_a_member_whose_join_is_parked_counts_as_alive_and_its_session_begins_with_the_answer():
    groups = Coordinator()
    anna, bert = stable_group(groups, groups.member("anna"), groups.member("bert", session_timeout_ms=50_000))
    waiting = anna.parks()

    groups.pass_ms(49_000)
    assert waiting.is_parked
    bert.joins()
    anna.takes(waiting.answer)
    groups.pass_ms(9_999)
    assert anna.beats() is ErrorCode.NONE


def test_a_member_whose_sync_is_parked_counts_as_alive_and_its_session_begins_with_the_answer():
    groups = Coordinator()
    anna, bert = completing_group(groups)
    waiting = bert.asks_to_sync()

    for _ in range(3):
        groups.pass_ms(9_999)
        anna.beats()
    anna.brings({bert: b"all"})

    assert waiting.answer.assignment == b"all"
    groups.pass_ms(9_999)
    assert bert.member_id in groups.member_ids()
    groups.pass_ms(1)
    assert bert.member_id not in groups.member_ids()


def test_the_first_join_of_a_member_waits_for_five_minutes_and_no_longer():
    groups = Coordinator()
    patient = {"session_timeout_ms": 1_000_000, "rebalance_timeout_ms": 1_000_000}
    anna, bert = stable_group(groups, groups.member("anna", **patient), groups.member("bert", **patient))
    waiting = groups.member("carl").parks()

    groups.pass_ms(299_999)
    assert waiting.is_parked
    groups.pass_ms(1)

    assert waiting.answer == Joined(error=ErrorCode.UNKNOWN_MEMBER_ID)
    assert groups.member_ids() == [anna.member_id, bert.member_id]
    assert groups.state() == "PreparingRebalance"


def test_once_its_first_join_is_answered_a_member_is_like_the_others():
    groups = Coordinator()
    patient = {"session_timeout_ms": 1_000_000, "rebalance_timeout_ms": 1_000_000}
    anna, bert = stable_group(groups, groups.member("anna", **patient), groups.member("bert", **patient))
    waiting = bert.parks(protocols=CHANGED)

    groups.pass_ms(999_999)

    assert waiting.is_parked
    assert anna.joins().generation == 3


def test_an_id_that_nobody_comes_with_does_not_trouble_a_stable_group():
    groups = Coordinator()
    anna, bert = stable_group(groups)
    carl = groups.member("carl")
    carl.member_id = carl.asks_to_join().answer.member_id

    groups.pass_ms(5_000)
    assert anna.beats() is bert.beats() is ErrorCode.NONE
    groups.pass_ms(5_000)

    assert groups.state() == "Stable"
    assert carl.asks_to_join().answer.error is ErrorCode.UNKNOWN_MEMBER_ID


# Leaving -------------------------------------------------------------------------------------------------------------


def test_leaving_no_group_or_one_that_does_not_exist():
    groups = Coordinator()

    assert groups.leaves("m", group_id="").answer.error is ErrorCode.INVALID_GROUP_ID
    left = groups.leaves("m", ("", "i")).answer
    assert (left.error, left.members) == (ErrorCode.NONE, [ErrorCode.UNKNOWN_MEMBER_ID] * 2)
    assert groups.leaves().answer.members == []


def test_when_a_member_of_a_stable_group_leaves_the_others_rebalance_at_once():
    groups = Coordinator()
    anna, bert = stable_group(groups)

    assert bert.leaves().answer.members == [ErrorCode.NONE]

    assert (groups.state(), groups.member_ids()) == ("PreparingRebalance", [anna.member_id])
    assert bert.beats() is ErrorCode.UNKNOWN_MEMBER_ID
    assert anna.joins().generation == 3


def test_when_a_member_of_a_completing_group_leaves_its_parked_sync_is_answered_and_the_others_rebalance():
    groups = Coordinator()
    anna, bert = completing_group(groups)
    waiting = bert.asks_to_sync()

    bert.leaves()

    # Kafka leaves this one without an answer for good.
    assert waiting.answer.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert (groups.state(), groups.member_ids()) == ("PreparingRebalance", [anna.member_id])


def test_when_a_member_of_a_preparing_group_leaves_its_parked_join_is_answered():
    groups = Coordinator()
    anna, _ = stable_group(groups)
    waiting = anna.parks()

    anna.leaves()

    assert waiting.answer == Joined(error=ErrorCode.UNKNOWN_MEMBER_ID)
    assert groups.state() == "PreparingRebalance"


def test_when_the_last_member_leaves_the_answer_waits_for_the_record_of_the_empty_group():
    groups = Coordinator()
    anna = groups.member()
    anna.joins()
    anna.brings({})
    groups.writer.hold()

    reply = anna.leaves()
    assert reply.is_parked
    assert groups.state() == "PreparingRebalance"
    groups.writer.release()

    assert reply.answer.members == [ErrorCode.NONE]
    assert (groups.state(), groups.generation()) == ("Empty", 2)
    assert len(groups.wheel) == 0


def test_a_batch_of_leavers_has_an_answer_for_each_and_makes_one_rebalance():
    groups = Coordinator()
    members = [groups.member("anna"), groups.member("bert"), groups.member("carl", instance_id="shop 1")]
    anna, bert, carl = stable_group(groups, *members, groups.member("dora"))[:3]
    emil = groups.member("emil")
    emil.member_id = emil.asks_to_join().answer.member_id
    begun = len(groups.events.named("rebalance_began"))
    reply = Reply()

    assert (
        groups.shard.leave(
            G,
            [
                LeavingMember(anna.member_id, None, "the consumer is closed"),
                LeavingMember(anna.member_id),
                LeavingMember("somebody"),
                LeavingMember(""),
                LeavingMember("", "shop 2"),
                LeavingMember(bert.member_id, "shop 1"),
                LeavingMember("", "shop 1"),
                LeavingMember(emil.member_id),
            ],
            reply,
        )
        is None
    )

    assert reply.answer.members == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.NONE,
        ErrorCode.NONE,
    ]
    assert [event[2] for event in groups.events.named("member_removed")] == [
        "it has left (the consumer is closed)",
        "it has left",
    ]
    assert carl.beats() is ErrorCode.UNKNOWN_MEMBER_ID
    assert len(groups.events.named("rebalance_began")) == begun + 1


def test_when_nobody_of_a_batch_is_a_member_nothing_happens():
    groups = Coordinator()
    stable_group(groups)

    groups.leaves("somebody", ("", "shop 2"))

    assert groups.state() == "Stable"


def test_giving_back_an_id_that_was_handed_out_makes_a_stable_group_rebalance_as_in_kafka():
    groups = Coordinator()
    stable_group(groups)
    carl = groups.member("carl")
    carl.member_id = carl.asks_to_join().answer.member_id

    assert carl.leaves().answer.members == [ErrorCode.NONE]

    assert groups.state() == "PreparingRebalance"
    assert carl.asks_to_join().answer.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_giving_back_an_id_leaves_an_empty_group_as_it_is():
    groups = Coordinator()
    carl = groups.member("carl")
    carl.member_id = carl.asks_to_join().answer.member_id

    assert carl.leaves().answer.members == [ErrorCode.NONE]

    assert (groups.state(), groups.generation()) == ("Empty", 0)
    assert len(groups.wheel) == 0
