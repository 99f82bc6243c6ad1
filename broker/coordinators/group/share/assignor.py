"""The simple assignor (Kafka's SimpleAssignor): every partition has a member, members have equally many, and what a
member has it keeps where it can.

There may be more members than partitions: then members share partitions. With M members and P partitions each partition
has ceil(M / P) members, and each member gets its part of these P * ceil(M / P) places. Where all members subscribe to
the same topics, the partitions of all topics are shared out together, else those of each topic by itself.

Kafka decides between members with the same claim by the order of a hash map, here it is the order in which they joined.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from broker.coordinators.group.modern.group import Assignment

_Partition = tuple[bytes, int]
"""Topic id and index."""


def assign(
    subscriptions: Mapping[str, Collection[bytes]], current: Mapping[str, Assignment], available: Assignment
) -> dict[str, Assignment]:
    """Assign partitions to members.

    Args:
        subscriptions: the ids of the topics that each member subscribes to, by member id.
        current: what members are assigned now.
        available: the partitions that may be assigned.
    """
    held: dict[str, set[_Partition]] = {
        member: {
            (topic, index)
            for topic, indexes in current.get(member, {}).items()
            if topic in topics
            for index in indexes & available.get(topic, frozenset())
        }
        for member, topics in subscriptions.items()
    }
    topics = sorted({topic for found in subscriptions.values() for topic in found})
    if len({frozenset(found) for found in subscriptions.values()}) <= 1:
        _share_out(list(subscriptions), _partitions(topics, available), held)
    else:
        for topic in topics:
            subscribers = [member for member, found in subscriptions.items() if topic in found]
            _share_out(subscribers, _partitions([topic], available), held)
    return {member: _as_assignment(partitions) for member, partitions in held.items()}


def _partitions(topics: Sequence[bytes], available: Assignment) -> list[_Partition]:
    return [(topic, index) for topic in topics for index in sorted(available.get(topic, ()))]


def _share_out(members: Sequence[str], partitions: Sequence[_Partition], held: dict[str, set[_Partition]]) -> None:
    """Change what these members hold of these partitions, as little as possible."""
    if not members or not partitions:
        return
    sharing = -(-len(members) // len(partitions))
    places = sharing * len(partitions)
    wanted = {
        member: -(-places * (number + 1) // len(members)) + (-places * number // len(members))
        for number, member in enumerate(members)
    }
    owners: dict[_Partition, list[str]] = {partition: [] for partition in partitions}
    for member in members:
        kept = [one for one in partitions if one in held[member]]
        for partition in kept[wanted[member] :]:
            held[member].discard(partition)
        for partition in kept[: wanted[member]]:
            if len(owners[partition]) < sharing:
                owners[partition].append(member)
            else:
                held[member].discard(partition)
    room = {member: wanted[member] - sum(one in held[member] for one in partitions) for member in members}
    unfilled = [member for member in members if room[member] > 0]
    for partition in partitions:
        while len(owners[partition]) < sharing:
            taker = next((member for member in unfilled if member not in owners[partition]), None)
            if taker is None:
                break
            owners[partition].append(taker)
            held[taker].add(partition)
            room[taker] -= 1
            unfilled.remove(taker)
            if room[taker]:
                unfilled.append(taker)


def _as_assignment(partitions: Collection[_Partition]) -> Assignment:
    found: dict[bytes, set[int]] = {}
    for topic, index in sorted(partitions):
        found.setdefault(topic, set()).add(index)
    return {topic: frozenset(indexes) for topic, indexes in found.items()}
