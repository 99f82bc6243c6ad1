"""The sticky task assignor (Kafka's StickyTaskAssignor).

Every task is the active task of one member, and members have equally many, over all processes. A task stays with the
member that has it, else goes to a member that has its state as a standby task or on its disk, else to the process with
the fewest tasks for its members. Tasks with state get standby tasks at other processes, by the same rules.

Kafka decides between processes with the same load by the order of a hash map, here it is the order in which they
joined.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from broker.coordinators.group.streams.member import NO_TASKS, Tasks, TaskSet
from broker.coordinators.group.streams.topology import ConfiguredSubtopology

TaskOffsets = Mapping[tuple[str, int], int]
"""Up to which offset of the changelogs, added up, a member has the state of tasks on its disk."""

NO_OFFSETS: Final[TaskOffsets] = MappingProxyType({})

_Task = tuple[str, int]
"""Subtopology id and partition."""


class Worker(NamedTuple):
    """What the assignor knows of a member."""

    process_id: str
    target: Tasks
    """Its target assignment so far."""
    offsets: TaskOffsets


class _Process:
    """The members of a process with the tasks that they are given."""

    def __init__(self, place: int) -> None:
        self.place = place
        self.counts: dict[str, int] = {}
        """How many tasks each member has."""
        self.tasks: set[_Task] = set()

    @property
    def load(self) -> float:
        return sum(self.counts.values()) / len(self.counts)

    def least_loaded(self) -> str:
        return min(self.counts, key=self.counts.__getitem__)


class _Quota:
    """How many tasks a member should have at most. It is computed anew whenever a member is full."""

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks = tasks
        self._members = members
        self.per_member = _divided(tasks, members)

    def has_got(self, count: int) -> None:
        """A member has got its task number ``count``."""
        if count == self.per_member:
            self._members -= 1
            self._tasks -= count
            self.per_member = _divided(self._tasks, self._members)


def _divided(tasks: int, members: int) -> int:
    return -(-tasks // members) if members else 0


def assign(
    workers: Mapping[str, Worker], subtopologies: Collection[ConfiguredSubtopology], standbys: int
) -> dict[str, Tasks]:
    """Assign tasks to members.

    Args:
        workers: the members, at least one, by their ids.
        subtopologies: what there is to do.
        standbys: how many standby tasks each task with state gets, if there are enough processes.
    """
    return _Assignment(workers, subtopologies, standbys).made()


class _Assignment:
    def __init__(
        self, workers: Mapping[str, Worker], subtopologies: Collection[ConfiguredSubtopology], standbys: int
    ) -> None:
        self._standbys = standbys
        self._workers = workers
        self._tasks = [(one.subtopology.subtopology_id, number) for one in subtopologies for number in range(one.tasks)]
        stateful = {one.subtopology.subtopology_id for one in subtopologies if one.subtopology.is_stateful}
        self._stateful = [task for task in self._tasks if task[0] in stateful]
        self._active_quota = _Quota(len(self._tasks), len(workers))
        self._quota = _Quota(len(self._tasks) + len(self._stateful) * standbys, len(workers))
        self._processes: dict[str, _Process] = {}
        self._active_before: dict[_Task, str] = {}
        candidates: dict[_Task, list[tuple[bool, int, str]]] = {}
        for member_id, worker in workers.items():
            process = self._processes.setdefault(worker.process_id, _Process(len(self._processes)))
            process.counts[member_id] = 0
            for task in _each(worker.target.active):
                self._active_before[task] = member_id
            has_standby = set(_each(worker.target.standby))
            for task in has_standby:
                candidates.setdefault(task, []).append((False, -worker.offsets.get(task, 0), member_id))
            for task, offset in worker.offsets.items():
                if task not in has_standby:
                    candidates.setdefault(task, []).append((True, -offset, member_id))
        self._state_before: dict[_Task, list[str]] = {
            task: [member_id for _, _, member_id in sorted(found, key=lambda one: one[:2])]
            for task, found in candidates.items()
        }
        """Members that have the state of a task, but not as its active task: members with the standby task first."""
        self._active: dict[str, set[_Task]] = {member_id: set() for member_id in workers}
        self._standby: dict[str, set[_Task]] = {member_id: set() for member_id in workers}

    def made(self) -> dict[str, Tasks]:
        self._assign_active()
        if self._standbys:
            self._assign_standby()
        return {
            member_id: Tasks(_as_set(self._active[member_id]), _as_set(self._standby[member_id]), NO_TASKS)
            for member_id in self._workers
        }

    def _assign_active(self) -> None:
        by_partition = sorted(self._tasks, key=lambda task: (task[1], task[0]))
        left: list[_Task] = []
        for task in by_partition:
            member_id = self._active_before.get(task)
            if member_id is not None and self._count(member_id) < self._active_quota.per_member:
                self._give_active(member_id, task)
            else:
                left.append(task)
        rest: list[_Task] = []
        for task in left:
            member_id = self._least_loaded(self._state_before.get(task, ()))
            if member_id is not None and self._count(member_id) < self._active_quota.per_member:
                self._give_active(member_id, task)
            else:
                rest.append(task)
        queue = self._by_load()
        for task in sorted(rest):
            _, place, process = heapq.heappop(queue)
            self._give_active(process.least_loaded(), task)
            heapq.heappush(queue, (process.load, place, process))

    def _assign_standby(self) -> None:
        left: list[tuple[_Task, int]] = []
        for task in sorted(self._stateful, key=lambda task: (task[1], task[0]), reverse=True):
            for number in range(self._standbys):
                member_id = self._standby_taker(task)
                if member_id is None:
                    left.append((task, self._standbys - number))
                    break
                self._give_standby(member_id, task)
        queue = self._by_load()
        for task, missing in sorted(left, reverse=True):
            for _ in range(missing):
                if not self._give_standby_to_least_loaded(queue, task):
                    break

    def _standby_taker(self, task: _Task) -> str | None:
        """The member that has had the task, or its state, if it has room."""
        before = self._active_before.get(task)
        if before is not None and task not in self._process_of(before).tasks and self._has_room(before):
            return before
        free = [one for one in self._state_before.get(task, ()) if task not in self._process_of(one).tasks]
        member_id = self._least_loaded(free)
        return member_id if member_id is not None and self._has_room(member_id) else None

    def _give_standby_to_least_loaded(self, queue: list[tuple[float, int, _Process]], task: _Task) -> bool:
        passed_over: list[tuple[float, int, _Process]] = []
        process = None
        while queue and process is None:
            load, place, found = heapq.heappop(queue)
            if task in found.tasks:
                passed_over.append((load, place, found))
            else:
                process = found
        if process is not None:
            self._give_standby(process.least_loaded(), task)
            passed_over.append((process.load, process.place, process))
        for one in passed_over:
            heapq.heappush(queue, one)
        return process is not None

    def _give_active(self, member_id: str, task: _Task) -> None:
        self._active[member_id].add(task)
        count = self._add(member_id, task)
        self._active_quota.has_got(count)
        self._quota.has_got(count)

    def _give_standby(self, member_id: str, task: _Task) -> None:
        self._standby[member_id].add(task)
        self._quota.has_got(self._add(member_id, task))

    def _add(self, member_id: str, task: _Task) -> int:
        process = self._process_of(member_id)
        process.tasks.add(task)
        process.counts[member_id] += 1
        return process.counts[member_id]

    def _least_loaded(self, member_ids: Sequence[str]) -> str | None:
        """A later member is taken only if its process and the member itself have less to do."""
        best: str | None = None
        for member_id in member_ids:
            if best is None or (
                self._process_of(member_id).load < self._process_of(best).load
                and self._count(member_id) < self._count(best)
            ):
                best = member_id
        return best

    def _by_load(self) -> list[tuple[float, int, _Process]]:
        queue = [(process.load, process.place, process) for process in self._processes.values()]
        heapq.heapify(queue)
        return queue

    def _process_of(self, member_id: str) -> _Process:
        return self._processes[self._workers[member_id].process_id]

    def _count(self, member_id: str) -> int:
        return self._process_of(member_id).counts[member_id]

    def _has_room(self, member_id: str) -> bool:
        return self._count(member_id) < self._quota.per_member


def _each(tasks: TaskSet) -> list[_Task]:
    return [(subtopology, partition) for subtopology, partitions in tasks.items() for partition in partitions]


def _as_set(tasks: Collection[_Task]) -> TaskSet:
    found: dict[str, set[int]] = {}
    for subtopology, partition in sorted(tasks):
        found.setdefault(subtopology, set()).add(partition)
    return {subtopology: frozenset(partitions) for subtopology, partitions in found.items()}
