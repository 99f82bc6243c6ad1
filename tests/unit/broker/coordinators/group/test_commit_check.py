"""Which commits of offsets are accepted, in each state of a group."""

import pytest

from broker.coordinators.group.classic_group import ClassicGroup, GroupState
from broker.coordinators.group.image import GroupImage
from broker.coordinators.group.requests import Commit, Protocol
from protocol.errors import ErrorCode
from tests.unit.broker.coordinators.group.harness import Coordinator, G, stable_group

STATES = ["Empty", "PreparingRebalance", "CompletingRebalance", "Stable"]


def group_in(groups, state):
    """A group with the members anna, who leads, and bert, who is static; both of its generation."""
    anna, bert = stable_group(groups, groups.member("anna"), groups.member("bert", instance_id="shop 1"))
    if state == "Empty":
        anna.leaves()
        bert.leaves()
    elif state == "PreparingRebalance":
        anna.parks()
    elif state == "CompletingRebalance":
        waiting = anna.parks()
        bert.joins()
        anna.takes(waiting.answer)
    assert groups.state() == state
    return anna, bert


@pytest.mark.parametrize(
    ("state", "error"),
    [
        ("Empty", ErrorCode.NONE),
        ("PreparingRebalance", ErrorCode.UNKNOWN_MEMBER_ID),
        ("CompletingRebalance", ErrorCode.UNKNOWN_MEMBER_ID),
        ("Stable", ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_somebody_without_a_group_may_commit_to_an_empty_one(state, error):
    groups = Coordinator()
    group_in(groups, state)

    assert groups.commit(7) is error
    assert groups.committed() == (7 if error is ErrorCode.NONE else None)


@pytest.mark.parametrize(
    ("state", "error"),
    [
        ("Empty", ErrorCode.UNKNOWN_MEMBER_ID),
        ("PreparingRebalance", ErrorCode.NONE),
        ("CompletingRebalance", ErrorCode.REBALANCE_IN_PROGRESS),
        ("Stable", ErrorCode.NONE),
    ],
)
def test_a_member_may_commit_for_its_generation_unless_it_waits_for_its_part(state, error):
    groups = Coordinator()
    anna, bert = group_in(groups, state)

    assert anna.commits(7) is error
    assert bert.commits(8) is error
    assert groups.committed() == (8 if error is ErrorCode.NONE else None)


@pytest.mark.parametrize("state", STATES[1:])
def test_a_member_of_another_generation_may_not_commit(state):
    groups = Coordinator()
    anna, bert = group_in(groups, state)

    for generation in (-1, 0, anna.generation - 1, anna.generation + 1):
        assert anna.commits(7, generation=generation) is ErrorCode.ILLEGAL_GENERATION
        assert bert.commits(7, generation=generation) is ErrorCode.ILLEGAL_GENERATION
    assert groups.committed() is None


@pytest.mark.parametrize("state", STATES)
def test_who_is_no_member_may_not_commit_as_one(state):
    groups = Coordinator()
    anna, _ = group_in(groups, state)
    generation = groups.generation()

    assert groups.commit(7, member_id="somebody", generation=generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.commit(7, generation=generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert anna.commits(7, generation=generation, instance_id="shop 2") is ErrorCode.UNKNOWN_MEMBER_ID
    fenced = ErrorCode.UNKNOWN_MEMBER_ID if state == "Empty" else ErrorCode.FENCED_INSTANCE_ID
    assert anna.commits(7, generation=generation, instance_id="shop 1") is fenced
    assert groups.commit(7, instance_id="shop 1", generation=generation) is fenced


@pytest.mark.parametrize("state", STATES[1:])
def test_naming_an_instance_makes_a_member_of_whoever_commits(state):
    groups = Coordinator()
    group_in(groups, state)

    assert groups.commit(7, member_id="somebody") is ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.commit(7, instance_id="shop 1") is ErrorCode.FENCED_INSTANCE_ID


def test_a_commit_to_an_empty_group_may_name_whatever_it_likes_if_it_names_no_generation():
    groups = Coordinator()
    group_in(groups, "Empty")

    assert groups.commit(7, member_id="somebody", instance_id="shop 1") is ErrorCode.NONE


def test_a_group_that_is_gone_takes_no_commits():
    image = GroupImage()
    group = ClassicGroup(G, image)

    assert group.state is GroupState.DEAD
    assert group.check_commit(Commit(group_id=G, offsets=())) is ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("state", ["Stable", "PreparingRebalance"])
def test_a_good_commit_begins_the_session_anew(state):
    groups = Coordinator()
    _, bert = group_in(groups, state)

    for offset in range(4):
        groups.pass_ms(9_999)
        assert bert.commits(offset, generation=2) is ErrorCode.NONE
    assert bert.member_id in groups.member_ids()


def test_a_refused_commit_does_not():
    groups = Coordinator()
    _, bert = group_in(groups, "Stable")
    groups.pass_ms(9_999)

    bert.commits(7, generation=1)
    groups.pass_ms(1)

    assert bert.member_id not in groups.member_ids()


def test_while_the_record_of_an_empty_group_is_written_nobody_commits():
    groups = Coordinator()
    anna = groups.member()
    anna.joins()
    groups.writer.hold()
    anna.leaves()

    assert groups.group(G).check_commit(Commit(group_id=G, offsets=())) is ErrorCode.UNKNOWN_MEMBER_ID
    groups.writer.release()
    assert groups.commit(7) is ErrorCode.NONE


def test_a_simple_consumers_group_has_no_record_and_takes_members_all_the_same():
    groups = Coordinator()
    assert groups.commit(7) is ErrorCode.NONE
    assert (groups.state(), groups.group_records()) == ("Empty", [])

    anna = groups.member()
    assert anna.asks_to_join().answer.error is ErrorCode.MEMBER_ID_REQUIRED
    assert groups.group_records() == []
    assert anna.joins().generation == 1
    assert anna.asks_to_join(protocols=(Protocol("x", b""),)).answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert anna.brings({anna: b"0"}) == b"0"
    assert groups.committed() == 7
