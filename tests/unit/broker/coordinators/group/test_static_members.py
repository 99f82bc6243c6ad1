"""Static members: they return to the place of their instance id, and the old member id is fenced."""

import pytest

from broker.coordinators.group.requests import JoinedMember, Protocol, Synced
from protocol.errors import ErrorCode
from tests.unit.broker.coordinators.group.harness import Coordinator, G, stable_group

ROUND_ROBIN = (Protocol("roundrobin", b"anything"),)
EITHER = (Protocol("range", b"anything"), *ROUND_ROBIN)


def shops(groups, **about):
    """A stable group of two static members; the first leads."""
    return stable_group(
        groups,
        groups.member("anna", instance_id="shop 1", **about),
        groups.member("bert", instance_id="shop 2", **about),
    )


def again(groups, member, **about):
    """Another process with the instance id."""
    about = {"protocols": member.protocols, **about}
    return groups.member(f"{member.name}'s second", instance_id=member.instance_id, **about)


def test_a_static_member_need_not_come_again_for_its_id():
    groups = Coordinator()

    assert groups.member(instance_id="shop 1").asks_to_join().answer.generation == 1


# To a stable group ---------------------------------------------------------------------------------------------------


def test_a_follower_that_comes_back_goes_on_without_a_rebalance():
    groups = Coordinator()
    anna, bert = shops(groups)

    second = again(groups, bert, protocols=(Protocol("range", b"changed"),), session_timeout_ms=20_000)
    joined = second.joins()

    assert (joined.generation, joined.leader, joined.members) == (2, anna.member_id, ())
    assert (joined.protocol_type, joined.protocol, joined.skip_assignment) == ("consumer", "range", False)
    assert second.member_id == "shop 2-00000000-0000-0000-0000-000000000003"
    assert groups.state() == "Stable"
    assert second.syncs() == b"bert"
    assert anna.beats() is second.beats() is ErrorCode.NONE
    assert groups.events.named("member_fenced") == [(G, "shop 2", bert.member_id)]


def test_what_is_written_then_is_the_same_generation_with_the_new_id():
    groups = Coordinator()
    anna, bert = shops(groups)
    before = groups.group_records()[-1]

    second = again(groups, bert, protocols=(Protocol("range", b"changed"),), session_timeout_ms=20_000)
    second.joins()

    after = groups.group_records()[-1]
    assert (after.generation, after.protocol, after.leader) == (2, "range", anna.member_id)
    assert after.members[0] == before.members[0]
    replaced = after.members[1]
    assert (replaced.member_id, replaced.group_instance_id) == (second.member_id, "shop 2")
    assert (replaced.subscription, replaced.assignment) == (b"changed", b"bert")
    assert (replaced.session_timeout, replaced.rebalance_timeout) == (20_000, 60_000)
    # As Kafka has it: from where the instance joined first.
    assert replaced.client_id == "bert"


def test_a_leader_that_comes_back_is_told_of_everybody_and_to_leave_the_assignment_as_it_is():
    groups = Coordinator()
    anna, bert = shops(groups)

    second = again(groups, anna)
    joined = second.joins()

    assert (joined.leader, joined.skip_assignment) == (second.member_id, True)
    assert joined.members == [
        JoinedMember(second.member_id, "shop 1", b"anything"),
        JoinedMember(bert.member_id, "shop 2", b"anything"),
    ]
    assert second.syncs() == b"anna"
    assert groups.group_records()[-1].leader == second.member_id


def test_a_leader_that_could_not_leave_it_as_it_is_is_told_that_somebody_else_leads():
    groups = Coordinator()
    anna, bert = shops(groups)

    second = again(groups, anna, may_skip_assignment=False)
    joined = second.joins()

    assert (joined.leader, joined.members, joined.skip_assignment) == (anna.member_id, (), False)
    assert second.syncs() == b"anna"
    # It leads all the same: when it joins again, everybody does.
    assert again(groups, bert, may_skip_assignment=False).joins().leader == second.member_id
    assert second.asks_to_join().is_parked


def test_whoever_had_the_instance_id_before_is_fenced():
    groups = Coordinator()
    _, bert = shops(groups)
    again(groups, bert).joins()

    assert bert.beats() is ErrorCode.FENCED_INSTANCE_ID
    assert bert.asks_to_sync().answer == Synced(error=ErrorCode.FENCED_INSTANCE_ID)
    joined = bert.asks_to_join().answer
    assert (joined.error, joined.member_id) == (ErrorCode.FENCED_INSTANCE_ID, bert.member_id)
    assert bert.commits(1) is ErrorCode.FENCED_INSTANCE_ID
    assert bert.leaves().answer.members == [ErrorCode.FENCED_INSTANCE_ID]
    # Its member id alone names nobody.
    assert bert.beats(instance_id=None) is ErrorCode.UNKNOWN_MEMBER_ID


def test_with_a_protocol_that_changes_what_is_chosen_everybody_rebalances():
    groups = Coordinator()
    anna, bert = shops(groups, protocols=EITHER)

    second = again(groups, bert, protocols=ROUND_ROBIN)
    waiting = second.parks()

    assert waiting.is_parked
    assert groups.state() == "PreparingRebalance"
    assert anna.joins().protocol == "roundrobin"
    assert waiting.answer.generation == 3
    assert bert.beats() is ErrorCode.FENCED_INSTANCE_ID


def test_the_session_of_the_new_one_begins_when_it_comes():
    groups = Coordinator()
    anna, bert = shops(groups)
    groups.pass_ms(9_000)
    anna.beats()
    second = again(groups, bert)
    second.joins()

    groups.pass_ms(9_999)
    anna.beats()
    assert groups.state() == "Stable"
    groups.pass_ms(1)
    assert (groups.state(), groups.member_ids()) == ("PreparingRebalance", [anna.member_id])


def test_members_that_come_back_all_at_once_do_so_without_a_rebalance():
    groups = Coordinator()
    anna, bert = shops(groups)
    groups.writer.hold()

    seconds = [again(groups, anna), again(groups, bert)]
    waiting = [second.parks() for second in seconds]
    assert [reply.is_parked for reply in waiting] == [True, True]
    groups.writer.release()

    for second, reply in zip(seconds, waiting, strict=True):
        second.takes(reply.answer)
    assert groups.state() == "Stable"
    assert [second.syncs() for second in seconds] == [b"anna", b"bert"]
    assert groups.group_records()[-1].leader == seconds[0].member_id
    groups.check_replay()


def test_a_member_that_comes_back_twice_before_the_first_is_written_is_fenced_once():
    groups = Coordinator()
    _, bert = shops(groups)
    groups.writer.hold()

    second, third = again(groups, bert), again(groups, bert)
    waiting = [second.parks(), third.parks()]
    assert waiting[0].answer.error is ErrorCode.FENCED_INSTANCE_ID
    assert waiting[1].is_parked
    groups.writer.release()

    third.takes(waiting[1].answer)
    assert third.syncs() == b"bert"
    assert groups.state() == "Stable"


# What cannot be written ----------------------------------------------------------------------------------------------


def test_where_the_new_id_cannot_be_written_the_old_one_is_good_again():
    groups = Coordinator()
    anna, bert = shops(groups)
    before = groups.shard.describe(G)
    groups.writer.fail(ErrorCode.KAFKA_STORAGE_ERROR)

    joined = again(groups, bert, protocols=EITHER).asks_to_join().answer

    assert (joined.error, joined.member_id) == (ErrorCode.NOT_COORDINATOR, "")
    assert groups.shard.describe(G) == before
    assert anna.beats() is bert.beats() is ErrorCode.NONE
    assert bert.asks_to_join().answer.generation == 2
    groups.pass_ms(9_000)
    assert groups.state() == "Stable"
    groups.writer.recover()
    assert again(groups, bert).joins().generation == 2


def test_where_a_leader_is_taken_back_it_leads_again():
    groups = Coordinator()
    anna, _ = shops(groups)
    groups.writer.fail()

    again(groups, anna).asks_to_join()

    assert anna.asks_to_join().is_parked
    assert groups.state() == "PreparingRebalance"


def test_where_the_first_of_two_new_ids_cannot_be_written_but_the_second_can_both_members_are_known():
    groups = Coordinator()
    anna, bert = shops(groups)
    groups.writer.hold()
    second = again(groups, bert)
    waiting = [again(groups, anna).parks(), second.parks()]

    groups.writer.settle_one(ErrorCode.MESSAGE_TOO_LARGE)
    groups.writer.settle_one()

    # The record that stands names the second anna, who was told that she is none: the ids are agreed on anew.
    assert waiting[0].answer.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert groups.state() == "PreparingRebalance"
    assert groups.member_ids()[0] == anna.member_id
    second.takes(waiting[1].answer)
    assert second.beats() is ErrorCode.REBALANCE_IN_PROGRESS
    groups.writer.release()
    second.parks()
    assert anna.joins().generation == 3
    anna.brings({})
    assert groups.state() == "Stable"
    groups.check_replay()


def test_where_the_second_of_two_new_ids_cannot_be_written_the_first_stays():
    groups = Coordinator()
    anna, bert = shops(groups)
    groups.writer.hold()
    second = again(groups, anna)
    waiting = [second.parks(), again(groups, bert).parks()]

    groups.writer.settle_one()
    groups.writer.settle_one(ErrorCode.MESSAGE_TOO_LARGE)

    second.takes(waiting[0].answer)
    assert waiting[1].answer.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert groups.state() == "Stable"
    assert second.syncs() == b"anna"
    assert bert.syncs() == b"bert"


def test_where_neither_of_two_new_ids_of_one_instance_can_be_written_the_group_agrees_anew():
    groups = Coordinator()
    _, bert = shops(groups)
    groups.writer.hold()
    waiting = [again(groups, bert).parks(), again(groups, bert).parks()]

    groups.writer.settle_one(ErrorCode.MESSAGE_TOO_LARGE)
    groups.writer.settle_one(ErrorCode.MESSAGE_TOO_LARGE)

    assert [reply.answer.error for reply in waiting] == [
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ]
    assert groups.state() == "PreparingRebalance"


# In other states -----------------------------------------------------------------------------------------------------


def test_in_a_completing_group_whoever_comes_back_makes_everybody_join_again():
    groups = Coordinator()
    anna, bert = shops(groups)
    waiting = anna.parks()
    bert.joins()
    anna.takes(waiting.answer)
    synced = bert.asks_to_sync()
    assert groups.state() == "CompletingRebalance"

    second = again(groups, bert)
    joining = second.parks()

    assert synced.answer == Synced(error=ErrorCode.FENCED_INSTANCE_ID)
    assert joining.is_parked
    assert groups.state() == "PreparingRebalance"
    assert anna.joins().generation == joining.answer.generation == 4


def test_in_a_preparing_group_whoever_comes_back_waits_in_the_place_of_the_one_before():
    groups = Coordinator()
    anna, bert = shops(groups)
    first = bert.parks(protocols=EITHER)
    assert groups.state() == "PreparingRebalance"

    second = again(groups, bert)
    waiting = second.parks()

    assert (first.answer.error, first.answer.member_id) == (ErrorCode.FENCED_INSTANCE_ID, bert.member_id)
    assert waiting.is_parked
    joined = anna.joins()
    assert [member.member_id for member in joined.members] == [anna.member_id, second.takes(waiting.answer).member_id]


def test_in_a_preparing_group_the_last_to_come_back_ends_the_waiting():
    groups = Coordinator()
    anna, bert = shops(groups)
    waiting = anna.parks()

    again(groups, bert).joins()

    assert waiting.answer.generation == 3


def test_to_a_new_group_the_instance_may_come_twice_during_the_delay():
    groups = Coordinator(initial_rebalance_delay_ms=3_000)
    first = groups.member(instance_id="shop 1").parks()
    second = groups.member(instance_id="shop 1").parks()

    assert first.answer.error is ErrorCode.FENCED_INSTANCE_ID
    groups.pass_ms(3_000)
    assert len(second.answer.members) == 1


# Going ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names_its_id", [True, False])
def test_a_static_member_that_is_removed_may_come_back_as_a_new_one(names_its_id):
    groups = Coordinator()
    anna, bert = shops(groups)

    assert groups.leaves((bert.member_id if names_its_id else "", "shop 2")).answer.members == [ErrorCode.NONE]

    assert groups.state() == "PreparingRebalance"
    assert bert.beats() is ErrorCode.UNKNOWN_MEMBER_ID
    assert bert.asks_to_join().answer.error is ErrorCode.UNKNOWN_MEMBER_ID
    second = again(groups, bert)
    waiting = second.parks()
    anna.joins()
    assert waiting.answer.generation == 3


def test_an_instance_id_may_be_empty_and_is_one_all_the_same():
    groups = Coordinator()
    anna, bert, _ = stable_group(
        groups, groups.member("anna", instance_id=""), groups.member("bert"), groups.member("carl")
    )

    bert.leaves()

    assert anna.beats() is ErrorCode.REBALANCE_IN_PROGRESS
    assert groups.leaves(("", "")).answer.members == [ErrorCode.NONE]


def test_a_static_member_is_removed_when_its_session_ends_as_others_are():
    groups = Coordinator()
    anna, _ = shops(groups)
    groups.pass_ms(9_000)
    anna.beats()
    groups.pass_ms(1_000)

    assert (groups.state(), groups.member_ids()) == ("PreparingRebalance", [anna.member_id])


def test_the_new_one_has_to_sync_if_the_old_one_has_not():
    groups = Coordinator()
    anna, bert = shops(groups, session_timeout_ms=100_000)
    waiting = anna.parks()
    bert.joins()
    anna.takes(waiting.answer)
    anna.brings({bert: b"1"})
    second = again(groups, bert, session_timeout_ms=100_000)
    second.joins()

    groups.pass_ms(60_000)

    assert (groups.state(), groups.member_ids()) == ("PreparingRebalance", [anna.member_id])
