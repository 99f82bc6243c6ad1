"""The server's assignors: ``uniform`` and ``range``.

    range     each topic by itself: the members, static ones first, in the order of their ids get ranges of its
              partitions, so that one member has the same partitions of topics with equally many
    uniform   all members have equally many partitions as far as their subscriptions allow, and keep what they have as
              far as that stays true

Neither looks at racks, as in Kafka since 4.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple, TypeAlias

from broker.coordinators.group.modern.group import NOTHING, Assignment


class Subscriber(NamedTuple):
    """A member as assignors see it."""

    instance_id: str | None
    topics: frozenset[bytes]
    """The ids of the existing topics that the member subscribes to."""
    target: Assignment
    """The target assignment that the member has had so far."""


Subscribers: TypeAlias = Mapping[str, Subscriber]
PartitionCount: TypeAlias = Callable[[bytes], int]
Assignor: TypeAlias = Callable[[Subscribers, PartitionCount], dict[str, Assignment]]
"""Gives every member its new target assignment. Each partition of a subscribed topic has one member."""

Mutable: TypeAlias = dict[str, dict[bytes, set[int]]]


def assign_ranges(members: Subscribers, count: PartitionCount) -> dict[str, Assignment]:
    """Assign ranges of each topic's partitions."""
    ordered = sorted(members, key=lambda member_id: _range_order(member_id, members[member_id]))
    subscribers: dict[bytes, list[str]] = {}
    for member_id in ordered:
        for topic_id in members[member_id].topics:
            subscribers.setdefault(topic_id, []).append(member_id)
    assigned: dict[str, dict[bytes, frozenset[int]]] = {member_id: {} for member_id in members}
    for topic_id, topic_members in subscribers.items():
        share, extra = divmod(count(topic_id), len(topic_members))
        first = 0
        for place, member_id in enumerate(topic_members):
            end = first + share + (place < extra)
            if end > first:
                assigned[member_id][topic_id] = frozenset(range(first, end))
            first = end
    return dict(assigned)


def _range_order(member_id: str, member: Subscriber) -> tuple[bool, str]:
    return (True, member_id) if member.instance_id is None else (False, member.instance_id)


def assign_uniformly(members: Subscribers, count: PartitionCount) -> dict[str, Assignment]:
    """Assign equally many partitions to all members."""
    if not members:
        return {}
    subscriptions = {member.topics for member in members.values()}
    if len(subscriptions) == 1:
        assigned = _uniform_for_equal(members, next(iter(subscriptions)), count)
    else:
        assigned = _uniform_for_different(members, count)
    return {member_id: _frozen(assigned[member_id], member.target) for member_id, member in members.items()}


def _frozen(assigned: dict[bytes, set[int]], before: Assignment) -> Assignment:
    """The same object as before if nothing has changed."""
    frozen = {topic_id: frozenset(partitions) for topic_id, partitions in assigned.items() if partitions}
    return before if frozen == before else frozen or NOTHING


def _uniform_for_equal(members: Subscribers, topics: frozenset[bytes], count: PartitionCount) -> Mutable:
    """Of members that all subscribe to the same topics."""
    counts = {topic_id: count(topic_id) for topic_id in sorted(topics)}
    share, extra = divmod(sum(counts.values()), len(members))
    free = {topic_id: set(range(partitions)) for topic_id, partitions in counts.items()}
    assigned: Mutable = {}
    sizes: dict[str, int] = {}
    for member_id, member in members.items():
        kept: dict[bytes, set[int]] = {}
        room = share + (extra > 0)
        for topic_id, partitions in member.target.items():
            keeps = sorted(partitions.intersection(free.get(topic_id, ())))[:room]
            if keeps:
                kept[topic_id] = set(keeps)
                free[topic_id].difference_update(keeps)
                room -= len(keeps)
        sizes[member_id] = share + (extra > 0) - room
        extra -= sizes[member_id] > share
        assigned[member_id] = kept
    rest = [(topic_id, partition) for topic_id, partitions in free.items() for partition in sorted(partitions)]
    rest.reverse()
    for member_id, size in sizes.items():
        quota = share
        if size <= share and extra > 0:
            quota, extra = share + 1, extra - 1
        for _ in range(quota - size):
            topic_id, partition = rest.pop()
            assigned[member_id].setdefault(topic_id, set()).add(partition)
    return assigned


class _Loads:
    """How many partitions each member has, and which subscriber of a topic has the fewest."""

    def __init__(self, members: Subscribers) -> None:
        self.size = dict.fromkeys(members, 0)
        self._order = {member_id: place for place, member_id in enumerate(members)}
        self._heaps: dict[bytes, list[tuple[int, int, str]]] = {}
        for member_id, member in members.items():
            for topic_id in member.topics:
                self._heaps.setdefault(topic_id, []).append((0, self._order[member_id], member_id))

    def subscribers(self, topic_id: bytes) -> int:
        return len(self._heaps[topic_id])

    def topics(self) -> list[bytes]:
        """The topics with the fewest subscribers first: they have the least choice."""
        return sorted(self._heaps, key=lambda topic_id: (len(self._heaps[topic_id]), topic_id))

    def sort(self) -> None:
        """To be called when sizes have been set."""
        for topic_id, heap in self._heaps.items():
            self._heaps[topic_id] = [(self.size[member_id], place, member_id) for _, place, member_id in heap]
            heapify(self._heaps[topic_id])

    def least(self, topic_id: bytes) -> str:
        heap = self._heaps[topic_id]
        while heap[0][0] != self.size[heap[0][2]]:
            _, place, member_id = heappop(heap)
            heappush(heap, (self.size[member_id], place, member_id))
        return heap[0][2]


def _uniform_for_different(members: Subscribers, count: PartitionCount) -> Mutable:
    """Of members with different subscriptions. While partitions are given out, loads only grow, so that `_Loads.least`
    is the least. While partitions are moved, the heaps are sorted again after each round."""
    loads = _Loads(members)
    owners: dict[tuple[bytes, int], str] = {}
    for member_id, member in members.items():
        for topic_id, partitions in member.target.items():
            if topic_id in member.topics:
                most = count(topic_id)
                for partition in sorted(partitions):
                    if partition < most and owners.setdefault((topic_id, partition), member_id) == member_id:
                        loads.size[member_id] += 1
    loads.sort()
    for topic_id in loads.topics():
        for partition in range(count(topic_id)):
            if (topic_id, partition) not in owners:
                member_id = loads.least(topic_id)
                owners[topic_id, partition] = member_id
                loads.size[member_id] += 1
    while _move(loads, owners, count):
        loads.sort()
    assigned: Mutable = {member_id: {} for member_id in members}
    for (topic_id, partition), member_id in owners.items():
        assigned[member_id].setdefault(topic_id, set()).add(partition)
    return assigned


def _move(loads: _Loads, owners: dict[tuple[bytes, int], str], count: PartitionCount) -> bool:
    """Move partitions to members that have fewer by two or more. Whether any was moved. Each move makes the sum of the
    squares of all loads smaller, so that there is an end."""
    moved = False
    for topic_id in loads.topics():
        if loads.subscribers(topic_id) < 2:
            continue
        for partition in range(count(topic_id)):
            owner, least = owners[topic_id, partition], loads.least(topic_id)
            if loads.size[owner] > loads.size[least] + 1:
                owners[topic_id, partition] = least
                loads.size[owner] -= 1
                loads.size[least] += 1
                moved = True
    return moved


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniformly, "range": assign_ranges}
"""By name."""
