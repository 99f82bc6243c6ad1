"""JoinGroup: which members are accepted, with which id, and the effect on the group in each of its states."""

import pytest

from broker.coordinators.group.requests import Protocol
from protocol.errors import ErrorCode
from tests.unit.broker.coordinators.group.harness import RANGE, Coordinator, G, stable_group

ROUND_ROBIN = (Protocol("roundrobin", b"anything"),)
EITHER = (*RANGE, *ROUND_ROBIN)


# What is refused whatever the group ---------------------------------------------------------------------------------


def test_a_group_needs_an_id():
    anna = Coordinator().member()

    assert anna.asks_to_join(group_id="").answer.error is ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("session_timeout_ms", [-1, 0, 5_999, 1_800_001, 2**31 - 1])
def test_a_session_is_neither_too_short_nor_too_long(session_timeout_ms):
    groups = Coordinator()
    anna = groups.member(session_timeout_ms=session_timeout_ms)

    assert anna.asks_to_join().answer.error is ErrorCode.INVALID_SESSION_TIMEOUT
    assert groups.state() is None


@pytest.mark.parametrize("session_timeout_ms", [6_000, 1_800_000])
def test_the_limits_of_a_session_are_allowed(session_timeout_ms):
    anna = Coordinator().member(session_timeout_ms=session_timeout_ms)

    assert anna.joins().generation == 1


def test_a_member_of_a_group_that_does_not_exist_is_unknown_and_makes_none():
    groups = Coordinator()
    anna = groups.member()

    joined = anna.asks_to_join(member_id="anna-1").answer

    assert (joined.error, joined.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "anna-1")
    assert groups.state() is None
    assert groups.writer.log == []


# Which protocols go together -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "about", [{"protocol_type": ""}, {"protocols": ()}, {"protocol_type": "", "protocols": ()}], ids=str
)
def test_an_empty_group_takes_whoever_has_a_protocol(about):
    groups = Coordinator()

    assert groups.member(**about).asks_to_join().answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert groups.member(protocol_type="connect").joins().protocol_type == "connect"


@pytest.mark.parametrize(
    "about", [{"protocol_type": "connect"}, {"protocols": ROUND_ROBIN}, {"protocols": ()}], ids=str
)
def test_whoever_has_no_protocol_in_common_with_all_others_is_refused(about):
    groups = Coordinator()
    _, bert = stable_group(groups)
    carl = groups.member("carl", **about)

    assert carl.asks_to_join().answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    joined = bert.asks_to_join(**about).answer
    assert (joined.error, joined.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, bert.member_id)
    assert groups.state() == "Stable"


def test_the_protocol_of_a_generation_is_what_most_members_like_best_of_those_that_all_know():
    groups = Coordinator()
    members = [
        groups.member("anna", protocols=EITHER),
        groups.member("bert", protocols=(Protocol("sticky", b""), *ROUND_ROBIN, *RANGE)),
        groups.member("carl", protocols=(*ROUND_ROBIN, *RANGE)),
    ]

    stable_group(groups, *members)

    described = groups.shard.describe(G)
    assert described.protocol == "roundrobin"
    assert [member.metadata for member in described.members] == [b"anything"] * 3


def test_a_member_may_change_what_it_knows_as_long_as_something_is_left():
    groups = Coordinator()
    anna, bert = stable_group(groups, groups.member("anna", protocols=EITHER), groups.member("bert", protocols=EITHER))

    assert bert.parks(protocols=ROUND_ROBIN).is_parked
    assert anna.asks_to_join(protocols=RANGE).answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert anna.joins().protocol == "roundrobin"


# Who is a member -----------------------------------------------------------------------------------------------------


def test_a_member_is_known_by_its_id_and_a_static_one_by_its_instance_too():
    groups = Coordinator()
    anna, bert = stable_group(groups, groups.member("anna"), groups.member("bert", instance_id="shop 1"))

    for member_id, instance_id, error in (
        ("somebody", None, ErrorCode.UNKNOWN_MEMBER_ID),
        (anna.member_id, "shop 2", ErrorCode.UNKNOWN_MEMBER_ID),
        (anna.member_id, "shop 1", ErrorCode.FENCED_INSTANCE_ID),
    ):
        joined = anna.asks_to_join(member_id=member_id, instance_id=instance_id).answer
        assert (joined.error, joined.member_id) == (error, member_id)
        assert anna.beats(member_id=member_id, instance_id=instance_id) is error
        assert anna.asks_to_sync(member_id=member_id, instance_id=instance_id).answer.error is error
        assert groups.leaves((member_id, instance_id)).answer.members == [error]
    assert bert.beats(instance_id=None) is ErrorCode.NONE
    assert groups.state() == "Stable"


def test_nobody_is_a_member_of_an_empty_group():
    groups = Coordinator()
    anna = groups.member()
    anna.joins()
    anna.leaves()
    assert groups.state() == "Empty"

    joined = anna.asks_to_join().answer
    assert (joined.error, joined.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, anna.member_id)


# By state ------------------------------------------------------------------------------------------------------------


def test_in_a_preparing_group_a_join_waits_with_what_the_member_knows_now():
    groups = Coordinator()
    anna, bert = stable_group(groups)
    carl = groups.member("carl")
    waiting = [carl.parks(), bert.parks(protocols=(Protocol("range", b"something else"),))]
    assert groups.state() == "PreparingRebalance"
    assert [reply.is_parked for reply in waiting] == [True, True]

    joined = anna.joins()

    assert [(member.member_id, member.metadata) for member in joined.members] == [
        (anna.member_id, b"anything"),
        (bert.member_id, b"something else"),
        (carl.takes(waiting[0].answer).member_id, b"anything"),
    ]
    assert [(reply.answer.generation, reply.answer.members) for reply in waiting] == [(3, ()), (3, ())]


def test_in_a_completing_group_a_member_that_has_missed_its_answer_gets_it_again():
    groups = Coordinator()
    anna, bert = stable_group(groups)
    waiting = bert.parks(protocols=(Protocol("range", b"changed"),))
    led = anna.joins()
    followed = bert.takes(waiting.answer)
    assert groups.state() == "CompletingRebalance"

    assert anna.asks_to_join().answer == led
    assert bert.asks_to_join(protocols=(Protocol("range", b"changed"),)).answer == followed
    assert groups.state() == "CompletingRebalance"


def test_in_a_completing_group_a_member_with_other_protocols_begins_a_rebalance():
    groups = Coordinator()
    anna, bert = stable_group(groups)
    bert.parks(protocols=EITHER)
    anna.joins()
    reply = bert.asks_to_join(protocols=RANGE)

    assert reply.is_parked
    assert groups.state() == "PreparingRebalance"


def test_in_a_stable_group_the_leader_begins_a_rebalance_by_joining_again():
    groups = Coordinator()
    anna, bert = stable_group(groups)

    assert anna.asks_to_join().is_parked
    assert groups.state() == "PreparingRebalance"
    assert bert.beats() is ErrorCode.REBALANCE_IN_PROGRESS


def test_in_a_stable_group_a_follower_with_other_protocols_begins_a_rebalance():
    groups = Coordinator()
    _, bert = stable_group(groups)

    assert bert.asks_to_join(protocols=(Protocol("range", b"changed"),)).is_parked
    assert groups.state() == "PreparingRebalance"


def test_in_a_stable_group_a_follower_that_asks_for_the_same_has_its_answer_again():
    groups = Coordinator()
    anna, bert = stable_group(groups)

    joined = bert.asks_to_join().answer

    assert (joined.error, joined.generation, joined.leader) == (ErrorCode.NONE, 2, anna.member_id)
    assert (joined.protocol, joined.members, joined.skip_assignment) == ("range", (), False)
    assert groups.state() == "Stable"


def test_the_order_of_protocols_is_part_of_what_a_member_asks_for():
    groups = Coordinator()
    _, bert = stable_group(groups, groups.member("anna", protocols=EITHER), groups.member("bert", protocols=EITHER))

    assert bert.asks_to_join(protocols=EITHER[::-1]).is_parked


# Who leads -----------------------------------------------------------------------------------------------------------


def test_the_first_member_leads_and_alone_is_told_of_the_others():
    groups = Coordinator(initial_rebalance_delay_ms=3_000)
    anna, bert = groups.member("anna"), groups.member("bert", instance_id="shop 1")
    waiting = [anna.parks(), bert.parks()]
    groups.pass_ms(6_000)
    led, followed = (reply.answer for reply in waiting)

    assert led.leader == followed.leader == led.member_id
    assert [(member.instance_id, member.metadata) for member in led.members] == [
        (None, b"anything"),
        ("shop 1", b"anything"),
    ]
    assert followed.members == ()
    assert led.skip_assignment is followed.skip_assignment is False


def test_when_the_leader_leaves_the_next_member_leads():
    groups = Coordinator()
    anna, bert, carl = stable_group(groups, *(groups.member(name) for name in ("anna", "bert", "carl")))

    anna.leaves()
    waiting = carl.parks()

    assert bert.joins().leader == waiting.answer.leader == bert.member_id


def test_a_leader_that_does_not_join_again_leads_no_more():
    groups = Coordinator()
    anna = groups.member("anna", instance_id="shop 1", session_timeout_ms=100_000)
    bert, carl = groups.member("bert"), groups.member("carl")
    stable_group(groups, anna, bert)
    waiting = [carl.parks(), bert.parks()]

    groups.pass_ms(60_000)

    # The static leader may be on its way back: it stays a member.
    assert [reply.answer.leader for reply in waiting] == [bert.member_id] * 2
    assert anna.member_id in groups.member_ids()


# Asking twice --------------------------------------------------------------------------------------------------------


def test_a_join_that_is_asked_again_while_it_waits_is_answered_where_it_was_asked_last():
    # Kafka leaves the first one without an answer for good.
    groups = Coordinator()
    anna, bert = stable_group(groups)
    carl = groups.member("carl")
    first, second = carl.parks(), carl.parks()

    assert first.answer.error is ErrorCode.REBALANCE_IN_PROGRESS
    waiting = bert.parks()
    anna.joins()
    assert (second.answer.generation, waiting.answer.generation) == (3, 3)


# How many ------------------------------------------------------------------------------------------------------------


def test_a_stable_group_that_is_full_takes_nobody_else():
    groups = Coordinator(max_size=2)
    _, bert = stable_group(groups)

    joined = groups.member("carl").asks_to_join().answer

    assert (joined.error, joined.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert bert.asks_to_join().answer.generation == 2
    assert groups.state() == "Stable"


def test_a_static_member_that_comes_back_to_a_full_group_is_turned_away_as_in_kafka():
    groups = Coordinator(max_size=1)
    stable_group(groups, groups.member(instance_id="shop 1"))

    assert groups.member(instance_id="shop 1").asks_to_join().answer.error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_completing_group_that_is_full_takes_back_its_members_only():
    groups = Coordinator(max_size=1)
    anna = groups.member()
    joined = anna.joins()

    assert groups.member("bert").asks_to_join().answer.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert anna.asks_to_join().answer == joined


def test_in_a_preparing_group_the_first_ones_to_join_have_the_places():
    groups = Coordinator()
    anna, bert = stable_group(groups)
    groups.restart(max_size=1)
    assert groups.state() == "PreparingRebalance"

    waiting = bert.parks()
    assert anna.asks_to_join().answer.error is ErrorCode.GROUP_MAX_SIZE_REACHED

    # Nobody is waited for any more.
    assert waiting.answer.leader == bert.member_id
    assert groups.member_ids() == [bert.member_id]


def test_whoever_was_turned_away_with_an_id_is_not_waited_for():
    groups = Coordinator(max_size=2)
    anna, bert = stable_group(groups)
    bert.leaves()
    carl, dora = groups.member("carl"), groups.member("dora")
    waiting = carl.parks()
    dora.member_id = dora.asks_to_join().answer.member_id
    anna_waits = anna.parks()
    assert waiting.is_parked  # for dora

    assert dora.asks_to_join().answer.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert anna_waits.answer.generation == waiting.answer.generation


def test_an_empty_group_has_room_whatever_the_limit():
    groups = Coordinator(max_size=0)

    assert groups.member().asks_to_join().answer.error is ErrorCode.MEMBER_ID_REQUIRED
