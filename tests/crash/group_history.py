"""The history of one group in the records of `__consumer_offsets`, compared with what the broker answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from broker.coordinators.group.image import GroupImage, GroupMetadata
from protocol.messages.committed_offsets import OffsetFetchRequest
from protocol.messages.groups import DescribeGroupsRequest
from tests.crash.promises import Promise, require
from tests.support.clients import Place
from tests.support.group_records import StoredGroups
from tests.support.raw_client import RawClient


class GroupHistory:
    """Replays what has been written since the last time, and looks at the group after each record."""

    def __init__(self, group: str, places: frozenset[Place], directory: Path) -> None:
        self._group = group
        self._places = places
        self._stored = StoredGroups(directory)
        self.offsets: dict[Place, int] = {}
        self.committed: set[tuple[Place, int]] = set()
        """Every offset that has ever stood."""
        self.generations = 0
        """How many there were."""
        self._metadata: GroupMetadata | None = None
        self.image = GroupImage()
        """The partition's that has the group."""

    @property
    def records(self) -> int:
        """Of all partitions."""
        return self._stored.records

    def read_on(self) -> None:
        """Nothing goes back, and each partition is one member's."""
        for partition, offset, image in self._stored.steps():
            where = f"record {offset} of __consumer_offsets-{partition}"
            if self._group in image.groups or self._group in set(image.offsets.groups()):
                self.image = image
                self._look_at_offsets(image, where)
                self._look_at_members(image.groups.get(self._group), where)
        require(not self._stored.passed_over, Promise.GROUP_RECORDS, f"unreadable: {self._stored.passed_over}")

    def _look_at_offsets(self, image: GroupImage, where: str) -> None:
        for (topic, partition), committed in image.offsets.of_group(self._group):
            place, before = Place(topic, partition), self.offsets.get(Place(topic, partition), -1)
            require(
                committed.offset >= before,
                Promise.GROUP_OFFSETS,
                f"{where}: {place} goes from {before} back to {committed.offset}",
            )
            if committed.offset > before:
                self.offsets[place] = committed.offset
                self.committed.add((place, committed.offset))

    def _look_at_members(self, metadata: GroupMetadata | None, where: str) -> None:
        before, self._metadata = self._metadata, metadata
        if metadata is None or metadata is before:
            return
        if before is not None:
            require(
                metadata.generation >= before.generation,
                Promise.GROUP_GENERATIONS,
                f"{where}: generation {metadata.generation} follows {before.generation}",
            )
            self.generations += metadata.generation > before.generation
        owned = [place for member in metadata.members.values() for place in assigned(member.assignment)]
        require(
            not metadata.members or sorted(owned) == sorted(self._places),
            Promise.GROUP_GENERATIONS,
            f"{where}: generation {metadata.generation} has {sorted(owned)}",
        )


def assigned(assignment: bytes) -> list[Place]:
    """The partitions in what a leader has written for a member."""
    return [Place(*place) for place in ConsumerProtocolAssignment.decode(assignment).partitions()]


def differences_from_broker(group: str, image: GroupImage, bootstrap: str) -> list[str]:
    """Fields of the group that the broker tells otherwise than its records do."""
    told, stored = dict(_told(group, bootstrap)), dict(_stored(group, image))
    return [
        f"{' '.join(map(str, name))}: {stored.get(name, 'nothing')!r} is stored, {told.get(name, 'nothing')!r} is told"
        for name in sorted({*told, *stored}, key=str)
        if told.get(name, "nothing") != stored.get(name, "nothing")
    ]


def _stored(group: str, image: GroupImage) -> Iterator[tuple[tuple[object, ...], object]]:
    metadata = image.groups.get(group, GroupMetadata())
    yield ("state",), "Stable" if metadata.members else "Empty"
    yield ("protocol type",), metadata.protocol_type
    yield ("protocol",), metadata.protocol or ""
    for member in metadata.members.values():
        for name in ("instance_id", "client_id", "client_host", "subscription", "assignment"):
            yield ("member", member.member_id, name), getattr(member, name)
    for (topic, partition), committed in image.offsets.of_group(group):
        for name in ("offset", "leader_epoch", "metadata"):
            yield ("offset", topic, partition, name), getattr(committed, name)


def _told(group: str, bootstrap: str) -> Iterator[tuple[tuple[object, ...], object]]:
    everything = OffsetFetchRequest(groups=[OffsetFetchRequest.Group(group_id=group, topics=None)])
    with RawClient(bootstrap) as client:
        described = client.ask(DescribeGroupsRequest(groups=[group]), 6).groups[0]
        offsets = client.ask(everything, 8).groups[0]
    require(
        described.error_code == 0 and offsets.error_code == 0,
        Promise.GROUP_RECORDS,
        f"errors {described.error_code} and {offsets.error_code} from the broker",
    )
    yield ("state",), described.group_state
    yield ("protocol type",), described.protocol_type
    yield ("protocol",), described.protocol_data
    for member in described.members:
        fields: Mapping[str, Any] = {
            "instance_id": member.group_instance_id,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "subscription": bytes(member.member_metadata),
            "assignment": bytes(member.member_assignment),
        }
        for name, value in fields.items():
            yield ("member", member.member_id, name), value
    for topic in offsets.topics:
        for one in topic.partitions:
            where = ("offset", topic.name, one.partition_index)
            yield (*where, "offset"), one.committed_offset
            yield (*where, "leader_epoch"), one.committed_leader_epoch
            yield (*where, "metadata"), one.metadata
