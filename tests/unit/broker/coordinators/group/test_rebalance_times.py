"""How long a rebalance waits, and for which members."""

import pytest

from broker.coordinators.group.requests import Joined
from protocol.errors import ErrorCode
from tests.unit.broker.coordinators.group.harness import Coordinator, G, stable_group


def gone(joined):
    """The answer of somebody who is no member any more."""
    return joined == Joined(error=ErrorCode.UNKNOWN_MEMBER_ID)


# Of an empty group ---------------------------------------------------------------------------------------------------


def test_without_a_delay_the_first_member_forms_a_generation_at_once():
    groups = Coordinator()

    joined = groups.member().joins()

    assert joined.generation == 1
    assert groups.state() == "CompletingRebalance"
    assert groups.events.named("generation_formed") == [(G, 1, "range", 1, 0)]


def test_the_first_member_waits_exactly_the_delay_if_nobody_else_comes():
    groups = Coordinator(initial_rebalance_delay_ms=3_000)
    reply = groups.member().parks()
    assert groups.state() == "PreparingRebalance"

    groups.pass_ms(2_999)
    assert reply.is_parked
    groups.pass_ms(1)
    assert reply.answer.generation == 1


def test_everybody_who_comes_within_the_delay_is_in_the_first_generation_and_nobody_ends_it_early():
    groups = Coordinator(initial_rebalance_delay_ms=3_000)
    waiting = [groups.member(name).parks() for name in ("anna", "bert", "carl")]

    assert all(reply.is_parked for reply in waiting)
    # Two have come since it began, which has extended it once.
    groups.pass_ms(5_999)
    assert all(reply.is_parked for reply in waiting)
    groups.pass_ms(1)

    assert [len(reply.answer.members) for reply in waiting] == [3, 0, 0]


def test_every_newcomer_extends_the_delay_up_to_the_members_own_patience():
    groups = Coordinator(initial_rebalance_delay_ms=3_000)
    waiting = [groups.member("m0", rebalance_timeout_ms=10_000).parks()]

    for number, wait_ms in enumerate((2_000, 3_000, 3_000, 1_500), start=1):
        groups.pass_ms(wait_ms)
        waiting.append(groups.member(f"m{number}", rebalance_timeout_ms=10_000).parks())
        assert groups.state() == "PreparingRebalance"
    groups.pass_ms(499)
    assert waiting[0].is_parked
    groups.pass_ms(1)

    assert len(waiting[0].answer.members) == 5


def test_the_delay_of_a_rebalance_is_not_that_of_impatient_members():
    groups = Coordinator(initial_rebalance_delay_ms=3_000)
    waiting = [groups.member(name, rebalance_timeout_ms=1_000).parks() for name in ("anna", "bert")]

    groups.pass_ms(3_000)

    # There is nothing to extend it by.
    assert len(waiting[0].answer.members) == 2


def test_whoever_has_only_an_id_is_not_waited_for_by_an_empty_group():
    groups = Coordinator()
    anna, bert = groups.member("anna"), groups.member("bert")
    bert.member_id = bert.asks_to_join().answer.member_id

    assert anna.joins().generation == 1


def test_a_group_that_everybody_leaves_during_the_delay_is_empty_when_it_is_over():
    groups = Coordinator(initial_rebalance_delay_ms=3_000)
    anna = groups.member(instance_id="shop 1")
    reply = anna.parks()

    assert groups.leaves(("", "shop 1")).answer.members == [ErrorCode.NONE]
    assert gone(reply.answer)
    assert (groups.state(), groups.member_ids()) == ("PreparingRebalance", [])
    groups.pass_ms(3_000)

    assert (groups.state(), groups.generation()) == ("Empty", 1)
    assert len(groups.wheel) == 0


def test_who_comes_to_a_group_that_everybody_has_left_has_the_rest_of_its_delay():
    groups = Coordinator(initial_rebalance_delay_ms=3_000)
    anna, bert = groups.member(instance_id="shop 1"), groups.member("bert", protocol_type="connect")
    anna.parks()
    groups.leaves(("", "shop 1"))

    reply = bert.parks()
    groups.pass_ms(6_000)

    assert (reply.answer.generation, reply.answer.protocol_type) == (1, "connect")


# Of others -----------------------------------------------------------------------------------------------------------


def test_a_rebalance_is_over_in_the_turn_in_which_the_last_member_joins():
    groups = Coordinator()
    anna, bert = stable_group(groups)
    carl = groups.member("carl")
    waiting = [carl.parks()]
    groups.pass_ms(5_000)
    bert.beats()
    waiting.append(bert.parks())
    assert [reply.is_parked for reply in waiting] == [True, True]

    joined = anna.joins()

    assert {reply.answer.generation for reply in waiting} == {joined.generation} == {3}
    # What is between the last join and the answers: nothing.
    assert groups.events.named("generation_formed")[-1] == (G, 3, "range", 3, 0)


def test_a_rebalance_waits_for_an_id_that_was_handed_out():
    groups = Coordinator()
    anna, bert = stable_group(groups)
    carl, dora, emil = groups.member("carl"), groups.member("dora"), groups.member("emil")
    for member in (carl, dora, emil):
        member.member_id = member.asks_to_join().answer.member_id
    waiting = [carl.asks_to_join(), anna.parks(), bert.parks()]
    assert groups.state() == "PreparingRebalance"

    assert dora.leaves().answer.members == [ErrorCode.NONE]
    assert all(reply.is_parked for reply in waiting)
    groups.pass_ms(9_999)
    assert all(reply.is_parked for reply in waiting)
    groups.pass_ms(1)

    assert [reply.answer.generation for reply in waiting] == [3, 3, 3]
    assert emil.asks_to_join().answer.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_goes_on_when_the_last_one_who_is_waited_for_leaves():
    groups = Coordinator()
    anna, bert = stable_group(groups)
    reply = anna.parks()

    bert.leaves()

    assert [member.member_id for member in reply.answer.members] == [anna.member_id]


def test_who_has_not_joined_in_the_longest_time_that_anybody_asks_for_is_no_member_any_more():
    groups = Coordinator()
    anna = groups.member("anna", rebalance_timeout_ms=20_000)
    bert = groups.member("bert", rebalance_timeout_ms=30_000, session_timeout_ms=60_000)
    stable_group(groups, anna, bert)
    reply = anna.parks()

    groups.pass_ms(29_999)
    assert reply.is_parked
    groups.pass_ms(1)

    assert [member.member_id for member in reply.answer.members] == [anna.member_id]
    assert bert.beats() is ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.events.named("member_removed") == [(G, bert.member_id, "it has not joined again in time")]


def test_the_time_begins_with_the_rebalance():
    groups = Coordinator()
    anna, _ = stable_group(groups, groups.member("anna"), groups.member("bert", session_timeout_ms=100_000))
    groups.pass_ms(9_000)
    anna.parks()
    groups.pass_ms(59_999)

    assert groups.state() == "PreparingRebalance"
    groups.pass_ms(1)
    assert groups.member_ids() == [anna.member_id]


def test_a_static_member_that_has_not_joined_keeps_its_place_in_the_next_generation():
    groups = Coordinator()
    anna = groups.member("anna")
    bert = groups.member("bert", instance_id="shop 1", session_timeout_ms=200_000)
    stable_group(groups, anna, bert)
    reply = anna.parks()

    groups.pass_ms(60_000)

    led = anna.takes(reply.answer)
    assert [member.instance_id for member in led.members] == [None, "shop 1"]
    anna.brings({anna: b"half", bert: b"the other half"})
    bert.generation = 3
    assert bert.syncs() == b"the other half"


def test_static_members_of_whom_none_joins_are_waited_for_until_their_sessions_end():
    groups = Coordinator()
    anna = groups.member("anna", instance_id="shop 1", session_timeout_ms=100_000)
    bert = groups.member("bert", instance_id="shop 2", session_timeout_ms=100_000)
    stable_group(groups, anna, bert)
    carl = groups.member("carl")
    carl.parks()
    carl.leaves()

    groups.pass_ms(99_999)
    assert (groups.state(), len(groups.member_ids())) == ("PreparingRebalance", 2)
    groups.pass_ms(1)

    assert (groups.state(), groups.generation()) == ("Empty", 3)
    assert len(groups.wheel) == 0


@pytest.mark.sources_only
@pytest.mark.parametrize("rebalance_timeout_ms", [-(2**31), -1, 0, 1])
def test_static_members_without_patience_do_not_keep_the_broker_busy(rebalance_timeout_ms):
    groups = Coordinator()
    anna = groups.member(instance_id="shop 1", rebalance_timeout_ms=rebalance_timeout_ms, session_timeout_ms=100_000)
    anna.joins()
    anna.brings({})
    carl = groups.member("carl", rebalance_timeout_ms=rebalance_timeout_ms)
    carl.parks()
    carl.leaves()
    ring, left = groups.wheel._ring, iter(range(1_000))
    # Raises StopIteration where it rings too often.
    groups.wheel._ring = lambda: (next(left), ring())

    groups.pass_ms(50_000)

    assert (groups.state(), groups.member_ids()) == ("PreparingRebalance", [anna.member_id])


def test_a_rebalance_that_nobody_joins_leaves_an_empty_group_of_the_next_generation():
    groups = Coordinator()
    anna, _ = stable_group(groups)
    anna.parks()
    anna.leaves()
    assert groups.state() == "PreparingRebalance"

    groups.pass_ms(10_000)

    assert (groups.state(), groups.generation()) == ("Empty", 3)
    emptied = groups.group_records()[-1]
    assert (emptied.protocol_type, emptied.generation, emptied.protocol, emptied.leader) == ("consumer", 3, None, None)
    assert emptied.members == []
    assert emptied.current_state_timestamp == groups.clock.now_ms()
    assert groups.events.named("group_emptied") == [(G, 3)]
    assert len(groups.wheel) == 0


# Whoever joins has to sync -------------------------------------------------------------------------------------------


def test_a_leader_that_never_syncs_is_removed_and_the_others_begin_anew():
    groups = Coordinator()
    anna, bert = stable_group(groups, *(groups.member(name, session_timeout_ms=100_000) for name in ("anna", "bert")))
    waiting = anna.parks()
    bert.joins()
    anna.takes(waiting.answer)
    synced = bert.asks_to_sync()

    groups.pass_ms(59_999)
    assert (groups.state(), synced.is_parked) == ("CompletingRebalance", True)
    groups.pass_ms(1)

    assert synced.answer.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert (groups.state(), groups.member_ids()) == ("PreparingRebalance", [bert.member_id])
    assert anna.beats() is ErrorCode.UNKNOWN_MEMBER_ID
    assert bert.joins().leader == bert.member_id


def test_a_follower_that_never_syncs_is_removed_from_the_stable_group():
    groups = Coordinator()
    anna, bert = stable_group(groups, *(groups.member(name, session_timeout_ms=100_000) for name in ("anna", "bert")))
    waiting = anna.parks()
    bert.joins()
    anna.takes(waiting.answer)
    anna.brings({anna: b"0", bert: b"1"})
    assert groups.state() == "Stable"

    groups.pass_ms(60_000)

    assert (groups.state(), groups.member_ids()) == ("PreparingRebalance", [anna.member_id])
    assert groups.events.named("member_removed") == [(G, bert.member_id, "it has not synced in generation 3")]


def test_when_everybody_has_synced_nobody_is_removed():
    groups = Coordinator()
    anna, bert = stable_group(groups)
    for _ in range(20):
        groups.pass_ms(9_000)
        assert anna.beats() is bert.beats() is ErrorCode.NONE

    assert groups.state() == "Stable"


def test_the_next_generation_has_its_own_time_to_sync():
    groups = Coordinator()
    anna = groups.member(session_timeout_ms=100_000)
    anna.joins()
    groups.pass_ms(50_000)
    anna.joins(protocols=((*anna.protocols, *anna.protocols)))
    assert groups.generation() == 2

    groups.pass_ms(59_999)
    assert groups.state() == "CompletingRebalance"
    groups.pass_ms(1)
    assert (groups.state(), groups.generation()) == ("Empty", 3)
