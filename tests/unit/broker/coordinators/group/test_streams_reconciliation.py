"""A member's next step towards its target: who has a task in which role, and what it keeps in between."""

import pytest

from broker.coordinators.group.streams.member import HeldTasks, MemberState, StreamsMember, Tasks
from broker.coordinators.group.streams.reconciliation import Target, UnknownState, next_step

STABLE, UNREVOKED, UNRELEASED = MemberState.STABLE, MemberState.UNREVOKED_TASKS, MemberState.UNRELEASED_TASKS


class Holders:
    """Who has tasks of subtopology 0: processes by partition."""

    def __init__(self, *, active=None, standby=(), warmup=()):
        self.active = active or {}
        self.standby = set(standby)
        self.warmup = set(warmup)

    def active_process(self, subtopology, partition):
        return self.active.get(partition)

    def has_standby(self, subtopology, partition, process):
        return (partition, process) in self.standby

    def has_warmup(self, subtopology, partition, process):
        return (partition, process) in self.warmup


def of(*partitions):
    return {"0": frozenset(partitions)} if partitions else {}


def wants(*, active=(), standby=(), warmup=(), epoch=5):
    return Target(epoch, Tasks(of(*active), of(*standby), of(*warmup)))


def held(*, active=(), standby=(), warmup=(), since=4):
    return HeldTasks({"0": dict.fromkeys(active, since)} if active else {}, of(*standby), of(*warmup))


def member(assigned=None, *, state=STABLE, pending=None, epoch=4):
    return StreamsMember(
        member_id="me",
        process_id="one",
        epoch=epoch,
        state=state,
        assigned=assigned or held(),
        pending_revocation=pending or held(),
    )


def seen(after):
    """State, epoch, and the partitions of each role that it has and gives up."""

    def roles(tasks):
        return [sorted(part for parts in role.values() for part in parts) for role in tasks]

    return after.state, after.epoch, roles(after.assigned), roles(after.pending_revocation)


NONE = [[], [], []]


def test_free_tasks_are_given_at_once_in_the_epoch_of_the_target():
    after = next_step(member(), wants(active=[0, 1], standby=[2]), Holders(), None)

    assert seen(after) == (STABLE, 5, [[0, 1], [2], []], NONE)
    assert after.assigned.active == {"0": {0: 5, 1: 5}}
    assert after.previous_epoch == 4


def test_tasks_that_are_kept_keep_their_assignment_epoch():
    after = next_step(member(held(active=[0])), wants(active=[0, 1]), Holders(active={0: "one"}), None)

    assert after.assigned.active == {"0": {0: 4, 1: 5}}


def test_an_active_task_of_somebody_else_is_waited_for():
    after = next_step(member(), wants(active=[0, 1]), Holders(active={0: "other"}), None)

    assert seen(after) == (UNRELEASED, 5, [[1], [], []], NONE)
    assert seen(next_step(after, wants(active=[0, 1]), Holders(active={1: "one"}), None)) == (
        STABLE,
        5,
        [[0, 1], [], []],
        NONE,
    )


def test_lost_tasks_are_given_up_in_the_old_epoch_before_others_come():
    has = member(held(active=[0, 1]))
    holders = Holders(active={0: "one", 1: "one"})
    after = next_step(has, wants(active=[1, 2]), holders, Tasks(of(0, 1)))
    assert seen(after) == (UNREVOKED, 4, [[1], [], []], [[0], [], []])
    assert after.pending_revocation.active == {"0": {0: 4}}

    assert next_step(after, wants(active=[1, 2]), holders, Tasks(of(0, 1))) is after
    assert next_step(after, wants(active=[1, 2]), holders, None) is after
    given_up = next_step(after, wants(active=[1, 2]), holders, Tasks(of(1)))
    assert seen(given_up) == (STABLE, 5, [[1, 2], [], []], NONE)


def test_a_member_that_does_not_have_what_it_loses_goes_on_at_once():
    after = next_step(member(held(active=[0])), wants(), Holders(active={0: "one"}), Tasks())

    assert seen(after) == (STABLE, 5, NONE, NONE)


def test_an_active_task_becomes_a_standby_task_at_once():
    has = member(held(active=[0, 1]))
    after = next_step(has, wants(active=[1], standby=[0]), Holders(active={0: "one", 1: "one"}), Tasks(of(0, 1)))

    assert seen(after) == (UNREVOKED, 4, [[1], [0], []], [[0], [], []])


def test_a_standby_task_becomes_the_active_one_and_stays_until_it_does():
    has = member(held(standby=[0]))
    holders = Holders(active={0: "other"}, standby={(0, "one")})
    waiting = next_step(has, wants(active=[0]), holders, Tasks({}, of(0)))
    assert seen(waiting) == (UNRELEASED, 5, [[], [0], []], NONE)

    holders.active.clear()
    assert seen(next_step(waiting, wants(active=[0]), holders, Tasks({}, of(0)))) == (STABLE, 5, [[0], [], []], NONE)


def test_a_standby_task_that_becomes_active_stays_while_others_are_given_up():
    has = member(held(active=[1], standby=[0]))
    holders = Holders(active={1: "one"}, standby={(0, "one")})

    after = next_step(has, wants(active=[0]), holders, Tasks(of(1), of(0)))

    assert seen(after) == (UNREVOKED, 4, [[], [0], []], [[1], [], []])


@pytest.mark.parametrize(("before", "then"), [("standby", "warmup"), ("warmup", "standby")])
def test_a_copy_changes_its_role_in_place(before, then):
    holders = Holders(**{before: {(0, "one")}})

    after = next_step(member(held(**{before: [0]})), wants(**{then: [0]}), holders, Tasks({}, of(0), of(0)))

    assert after.state is STABLE
    assert (getattr(after.assigned, then), getattr(after.assigned, before)) == (of(0), {})


@pytest.mark.parametrize("role", ["active", "standby", "warmup"])
@pytest.mark.parametrize("others", ["active", "standby", "warmup"])
def test_another_thread_of_the_process_has_the_state_to_itself(role, others):
    holders = Holders(active={0: "one"}) if others == "active" else Holders(**{others: {(0, "one")}})

    assert seen(next_step(member(), wants(**{role: [0]}), holders, None)) == (UNRELEASED, 5, NONE, NONE)


@pytest.mark.parametrize("role", ["standby", "warmup"])
@pytest.mark.parametrize("others", ["active", "standby", "warmup"])
def test_another_process_has_a_copy_of_its_own(role, others):
    holders = Holders(active={0: "other"}) if others == "active" else Holders(**{others: {(0, "other")}})

    after = next_step(member(), wants(**{role: [0]}), holders, None)

    assert (after.state, getattr(after.assigned, role)) == (STABLE, of(0))


def test_a_member_at_its_target_stays_as_it_is():
    at_target = member(held(active=[0]), epoch=5)

    assert next_step(at_target, wants(active=[1]), Holders(), None) is at_target


def test_a_state_of_a_newer_broker_is_left_without_tasks_only():
    unknown = member(state=MemberState.UNKNOWN)

    for owned in (None, Tasks(of(0))):
        with pytest.raises(UnknownState):
            next_step(unknown, wants(active=[0]), Holders(), owned)
    assert seen(next_step(unknown, wants(active=[0]), Holders(), Tasks())) == (STABLE, 5, [[0], [], []], NONE)
