"""Where the instances of an application answer interactive queries, and about which partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from broker.coordinators.group.modern.group import ModernGroup
from broker.coordinators.group.modern.topics import TopicsView
from broker.coordinators.group.streams.group import StreamsGroup
from broker.coordinators.group.streams.member import StreamsMember
from broker.coordinators.group.streams.requests import EndpointPartitions
from broker.coordinators.group.streams.topology import Configured


class EndpointViews:
    """Tells members of the endpoints whenever their version has grown. It is in no record: after a start of the broker
    the versions begin anew, and members compare for equality."""

    def __init__(self, groups: Mapping[str, ModernGroup], topics: TopicsView) -> None:
        self._groups = groups
        self._topics = topics
        self._epochs: dict[str, int] = {}
        """The version of the endpoints by group id."""

    def forget(self, group_id: str) -> None:
        """The group is gone."""
        self._epochs.pop(group_id, None)

    def seen_by(
        self, group: StreamsGroup, member: StreamsMember, configured: Configured, known: int, *, is_changed: bool
    ) -> tuple[int, list[EndpointPartitions] | None]:
        """What a heartbeat's answer says of the endpoints.

        Args:
            group: The group as it is replayed.
            member: The member that has sent the heartbeat, as it is after its step.
            configured: The group's topology.
            known: The version that the member knows.
            is_changed: The member joins, or has other tasks or another endpoint than before.

        Returns:
            The version; and the endpoints of all members, None if the member knows them. As in Kafka the group's first
            answer has version 0.
        """
        epoch = self._epochs.get(group.group_id, 0)
        if is_changed and member.endpoint is not None:
            epoch += 1
        is_known = group.group_id in self._groups
        if is_known:
            self._epochs[group.group_id] = epoch
        if epoch == known:
            return epoch if is_known else 0, None
        others = (one for one in group.members.values() if not _is_replaced(one, member))
        found = [self._of(one, configured) for one in (*others, member)]
        return epoch if is_known else 0, [one for one in found if one is not None]

    def _of(self, member: StreamsMember, configured: Configured) -> EndpointPartitions | None:
        if member.endpoint is None:
            return None
        copies = [*_pairs(member.assigned.standby), *_pairs(member.assigned.warmup)]
        merged: dict[str, set[int]] = {}
        for subtopology, partitions in copies:
            merged.setdefault(subtopology, set()).update(partitions)
        return EndpointPartitions(
            member.endpoint,
            self._partitions(member.assigned.active, configured),
            self._partitions(merged, configured),
        )

    def _partitions(
        self, tasks: Mapping[str, Iterable[int]], configured: Configured
    ) -> list[tuple[str, Sequence[int]]]:
        found: list[tuple[str, Sequence[int]]] = []
        for subtopology_id, numbers in sorted(tasks.items()):
            subtopology = configured.subtopologies.get(subtopology_id)
            for name in () if subtopology is None else subtopology.subtopology.inputs:
                topic = self._topics.of_name(name)
                partitions = [] if topic is None else [one for one in sorted(numbers) if one < topic.partitions]
                if partitions:
                    found.append((name, partitions))
        return found


def _is_replaced(one: StreamsMember, by: StreamsMember) -> bool:
    return one.member_id == by.member_id or (one.instance_id is not None and one.instance_id == by.instance_id)


def _pairs(tasks: Mapping[str, frozenset[int]]) -> Iterable[tuple[str, frozenset[int]]]:
    return tasks.items()
