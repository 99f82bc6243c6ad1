"""A member of a streams group, as its records describe it, and the tasks that members have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

TaskSet: TypeAlias = Mapping[str, frozenset[int]]
"""Tasks: partitions by subtopology id. No subtopology is without a partition."""

EpochTasks: TypeAlias = Mapping[str, Mapping[int, int]]
"""Active tasks: the assignment epoch in which the member has got each of them, by subtopology id and partition."""

NO_TASKS: Final[TaskSet] = MappingProxyType({})
NO_EPOCH_TASKS: Final[EpochTasks] = MappingProxyType({})

LEFT_FOR_A_WHILE: Final = -2
"""The epoch of a static member that has left and may come back within its session timeout."""


class Tasks(NamedTuple):
    """Tasks by role, as a target assignment has them, or as a member says that it has them."""

    active: TaskSet = NO_TASKS
    standby: TaskSet = NO_TASKS
    warmup: TaskSet = NO_TASKS

    @property
    def is_empty(self) -> bool:
        """Whether there is no task of any role."""
        return not (self.active or self.standby or self.warmup)


class HeldTasks(NamedTuple):
    """Tasks by role that a member has, or has still to give up."""

    active: EpochTasks = NO_EPOCH_TASKS
    standby: TaskSet = NO_TASKS
    warmup: TaskSet = NO_TASKS

    @property
    def is_empty(self) -> bool:
        """Whether there is no task of any role."""
        return not (self.active or self.standby or self.warmup)

    def has_any_of(self, tasks: Tasks) -> bool:
        """Whether a task is in both in the same role."""
        return (
            _meet(self.active, tasks.active) or _meet(self.standby, tasks.standby) or _meet(self.warmup, tasks.warmup)
        )

    def has_all_of(self, tasks: Tasks) -> bool:
        """Whether each of the tasks is here in the same role."""
        return all(
            partitions <= set(here.get(subtopology, ()))
            for here, there in (
                (self.active, tasks.active),
                (self.standby, tasks.standby),
                (self.warmup, tasks.warmup),
            )
            for subtopology, partitions in there.items()
        )


NOTHING: Final = Tasks()
NOTHING_HELD: Final = HeldTasks()


class MemberState(IntEnum):
    """How far a member has come on the way to its target assignment, by the numbers in the records."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    """It has to give up tasks, and has not acknowledged that yet."""
    UNRELEASED_TASKS = 3
    """It waits for tasks that another member has not given up yet."""
    UNKNOWN = 127


class Endpoint(NamedTuple):
    """Where an instance of the application answers interactive queries."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsMember:
    """A member: a thread of an instance of the application. Immutable: a record replaces the member. Times are in
    milliseconds."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    """Of the topology that the member has joined with."""
    process_id: str = ""
    """Of the instance: its threads share the state on its disk."""
    endpoint: Endpoint | None = None
    tags: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: HeldTasks = NOTHING_HELD
    pending_revocation: HeldTasks = NOTHING_HELD
    """Tasks that the member has to give up."""

    @property
    def is_revoking(self) -> bool:
        """Whether it has to give something up, and has not acknowledged that yet."""
        return self.state is MemberState.UNREVOKED_TASKS

    def is_at(self, assignment_epoch: int) -> bool:
        """Whether the member has all of its target assignment of this epoch, and nothing else."""
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch


def task_set(structs: Iterable[Any]) -> TaskSet:
    """Structs of a record or a request, with ``subtopology_id`` and ``partitions``, as tasks."""
    return {one.subtopology_id: frozenset(one.partitions) for one in structs if one.partitions}


def _meet(held: Mapping[str, Iterable[int]], tasks: TaskSet) -> bool:
    return any(not tasks[subtopology].isdisjoint(here) for subtopology, here in held.items() if subtopology in tasks)
