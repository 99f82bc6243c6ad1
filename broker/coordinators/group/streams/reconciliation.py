"""Reconciliation: a member's next step on the way to its target assignment (Kafka's CurrentAssignmentBuilder).

    STABLE ── a new target ──> UNREVOKED_TASKS      has to give up tasks, in its old epoch
       ^                            │ has given them up
       ├────────────────────────────┤
       └── UNRELEASED_TASKS <───────┘               is in the new epoch, and waits for tasks of others

An active task is given to a member only when no member has it. The state of a task is a directory of the process, so a
member gets a task in no role while another member of its process has the task. A member that keeps a task in another
role need not give it up in between: an active task becomes a standby task at once, a standby task becomes a warm-up
task at once, and a standby task that becomes the active one stays until it is given.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from broker.coordinators.group.streams.member import (
    NOTHING_HELD,
    EpochTasks,
    HeldTasks,
    MemberState,
    StreamsMember,
    Tasks,
    TaskSet,
)


class Target(NamedTuple):
    """What a member is to reach."""

    epoch: int
    tasks: Tasks


class TaskHolders(Protocol):
    """Which processes have a task, or have still to give it up."""

    def active_process(self, subtopology: str, partition: int) -> str | None:
        """The process that has it as the active task."""

    def has_standby(self, subtopology: str, partition: int, process: str) -> bool:
        """Whether a member of the process has it as a standby task."""

    def has_warmup(self, subtopology: str, partition: int, process: str) -> bool:
        """Whether a member of the process has it as a warm-up task."""


class UnknownState(Exception):
    """The member's state was written by a newer broker, and it has tasks."""


def next_step(member: StreamsMember, target: Target, holders: TaskHolders, owned: Tasks | None) -> StreamsMember:
    """The member after the step; the same object if it can't go on yet.

    Args:
        member: The member as it is.
        target: The epoch and the tasks that the member is to reach.
        holders: Which processes have the tasks now.
        owned: The tasks that the member says it has; None if it does not say.

    Raises:
        UnknownState: The member has to abandon its tasks first.
    """
    if member.state is MemberState.STABLE:
        return member if member.epoch == target.epoch else _Step(member, target, holders, owned).taken(member.epoch)
    if member.state is MemberState.UNREVOKED_TASKS:
        if _has_not_released(owned, member.pending_revocation):
            return member
        return _Step(member, target, holders, owned).taken(member.epoch + 1)
    if member.state is MemberState.UNRELEASED_TASKS:
        return _Step(member, target, holders, owned).taken(member.epoch)
    if owned is None or not owned.is_empty:
        raise UnknownState
    return _Step(member, target, holders, owned).taken(target.epoch)


def _has_not_released(owned: Tasks | None, tasks: HeldTasks) -> bool:
    return owned is None or tasks.has_any_of(owned)


_Sets = dict[str, set[int]]


class _Difference(NamedTuple):
    """What the step changes of the tasks of one role."""

    kept: _Sets
    lost: _Sets
    gained: _Sets
    waits: bool
    """Not all tasks can be had yet."""


class _Step:
    def __init__(self, member: StreamsMember, target: Target, holders: TaskHolders, owned: Tasks | None) -> None:
        self._member = member
        self._target = target
        self._holders = holders
        self._owned = owned

    def taken(self, epoch: int) -> StreamsMember:
        """The member after the step; ``epoch`` is the epoch in which it gives up tasks."""
        has, wants = self._member.assigned, self._target.tasks
        active = _difference(has.active, wants.active, self._is_active_taken)
        standby = _difference(has.standby, wants.standby, self._is_standby_taken)
        warmup = _difference(has.warmup, wants.warmup, self._is_warmup_taken)
        for subtopology, partition in _each(has.active):
            if partition in standby.gained.get(subtopology, ()):
                _move(subtopology, partition, standby.gained, standby.kept)
        for before, lost, now in ((has.standby, standby.lost, warmup), (has.warmup, warmup.lost, standby)):
            for subtopology, partition in _each(before):
                if partition in now.gained.get(subtopology, ()):
                    _move(subtopology, partition, now.gained, now.kept)
                    _remove(subtopology, partition, lost)
        promoted = [
            (subtopology, partition, role)
            for role, before in ((standby, has.standby), (warmup, has.warmup))
            for subtopology, partition in _each(before)
            if partition in wants.active.get(subtopology, ())
        ]
        for subtopology, partition, role in promoted:
            _remove(subtopology, partition, role.lost)
        given_up = self._held(active.lost, standby.lost, warmup.lost)
        must_release = not given_up.is_empty and _has_not_released(self._owned, given_up)
        for subtopology, partition, role in promoted:
            if must_release or partition not in active.gained.get(subtopology, ()):
                role.kept.setdefault(subtopology, set()).add(partition)
        kept = self._held(active.kept, standby.kept, warmup.kept)
        if must_release:
            return self._moved(epoch, MemberState.UNREVOKED_TASKS, kept, given_up)
        for role in (active, standby, warmup):
            for subtopology, partition in _each(role.gained):
                role.kept.setdefault(subtopology, set()).add(partition)
        waits = active.waits or standby.waits or warmup.waits
        state = MemberState.UNRELEASED_TASKS if waits else MemberState.STABLE
        everything = self._held(active.kept, standby.kept, warmup.kept)
        return self._moved(self._target.epoch, state, everything, NOTHING_HELD)

    def _is_active_taken(self, subtopology: str, partition: int) -> bool:
        return (
            self._holders.active_process(subtopology, partition) is not None
            or self._other_has_standby(subtopology, partition)
            or self._other_has_warmup(subtopology, partition)
        )

    def _is_standby_taken(self, subtopology: str, partition: int) -> bool:
        return (
            self._other_has_active(subtopology, partition)
            or self._holders.has_standby(subtopology, partition, self._member.process_id)
            or self._other_has_warmup(subtopology, partition)
        )

    def _is_warmup_taken(self, subtopology: str, partition: int) -> bool:
        return (
            self._other_has_active(subtopology, partition)
            or self._other_has_standby(subtopology, partition)
            or self._holders.has_warmup(subtopology, partition, self._member.process_id)
        )

    def _other_has_active(self, subtopology: str, partition: int) -> bool:
        """Whether another member of the process has the active task."""
        return self._holders.active_process(
            subtopology, partition
        ) == self._member.process_id and partition not in self._member.assigned.active.get(subtopology, ())

    def _other_has_standby(self, subtopology: str, partition: int) -> bool:
        return self._holders.has_standby(
            subtopology, partition, self._member.process_id
        ) and partition not in self._member.assigned.standby.get(subtopology, ())

    def _other_has_warmup(self, subtopology: str, partition: int) -> bool:
        return self._holders.has_warmup(
            subtopology, partition, self._member.process_id
        ) and partition not in self._member.assigned.warmup.get(subtopology, ())

    def _held(self, active: _Sets, standby: _Sets, warmup: _Sets) -> HeldTasks:
        """The tasks with their assignment epochs: that of the target for an active task which the member has not."""
        has = self._member.assigned.active
        with_epochs: EpochTasks = {
            subtopology: {
                partition: has.get(subtopology, {}).get(partition, self._target.epoch)
                for partition in sorted(partitions)
            }
            for subtopology, partitions in active.items()
            if partitions
        }
        return HeldTasks(with_epochs, _frozen(standby), _frozen(warmup))

    def _moved(self, epoch: int, state: MemberState, assigned: HeldTasks, pending: HeldTasks) -> StreamsMember:
        return dataclasses.replace(
            self._member,
            epoch=epoch,
            previous_epoch=self._member.epoch,
            state=state,
            assigned=assigned,
            pending_revocation=pending,
        )


def _difference(
    has: Mapping[str, Mapping[int, int] | frozenset[int]], wants: TaskSet, is_taken: Callable[[str, int], bool]
) -> _Difference:
    kept: _Sets = {}
    lost: _Sets = {}
    gained: _Sets = {}
    waits = False
    for subtopology in {*has, *wants}:
        here = set(has.get(subtopology, ()))
        wanted = wants.get(subtopology, frozenset())
        missing = wanted - here
        free = {partition for partition in missing if not is_taken(subtopology, partition)}
        waits = waits or len(free) < len(missing)
        kept[subtopology] = here & wanted
        lost[subtopology] = here - wanted
        gained[subtopology] = free
    return _Difference(kept, lost, gained, waits)


def _each(tasks: Mapping[str, Mapping[int, int] | frozenset[int] | set[int]]) -> list[tuple[str, int]]:
    return [(subtopology, partition) for subtopology, partitions in tasks.items() for partition in partitions]


def _move(subtopology: str, partition: int, source: _Sets, to: _Sets) -> None:
    _remove(subtopology, partition, source)
    to.setdefault(subtopology, set()).add(partition)


def _remove(subtopology: str, partition: int, tasks: _Sets) -> None:
    tasks.get(subtopology, set()).discard(partition)


def _frozen(tasks: _Sets) -> TaskSet:
    return {subtopology: frozenset(partitions) for subtopology, partitions in tasks.items() if partitions}
