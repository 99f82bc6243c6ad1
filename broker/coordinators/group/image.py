"""GroupImage: the state that the records of one partition of ``__consumer_offsets`` add up to.

Only `replay…` functions change the state. A record of an unknown type, or with a value of an unknown version, changes
nothing: it stays in the log for brokers that know it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

from broker.coordinators.group.modern.group import ModernGroup
from broker.coordinators.group.offset_table import OffsetTable, pack_offset
from broker.coordinators.group.pending_offsets import PendingOffsets
from broker.coordinators.group.requests import CommittedOffset
from protocol.records.coordinator_records import UnknownRecord
from protocol.records.group_metadata import (
    KEY_TYPES,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from protocol.schema import NO_UUID
from storage.sentinels import NO_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
SHARE: Final = "share"
STREAMS: Final = "streams"

_KIND_OF_TYPE: Final = (
    dict.fromkeys((*range(3, 9), 16), CONSUMER)
    | dict.fromkeys(range(10, 16), SHARE)
    | dict.fromkeys(range(17, 24), STREAMS)
)
_KINDS: Final = {key: _KIND_OF_TYPE[number] for number, key in KEY_TYPES.items() if number in _KIND_OF_TYPE}
"""The kind of group that records of the other group protocols belong to, by the class of their key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadata:
    """A member of a stable group, as the group's record has it."""

    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes = b""
    """The member's metadata for the chosen protocol, which the leader reads."""
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadata:
    """A classic group as its last record has it. Immutable: the next record replaces it."""

    protocol_type: str = ""
    """Empty before the first member."""
    generation: int = 0
    protocol: str | None = None
    leader: str | None = None
    state_timestamp: int = NO_TIMESTAMP
    """When the group became Stable or Empty, in milliseconds since 1970; -1 in records of Kafka before 2.1."""
    members: Mapping[str, MemberMetadata] = field(default_factory=dict)
    """Members by member id, in the order of the record. An empty group has none."""


def kind_of_key(key: Any) -> str:
    """The kind of group that a record with this key of one of the newer protocols belongs to."""
    return _KINDS[type(key)]


def _new_group(kind: str, group_id: str) -> ModernGroup:
    """A group that a record names for the first time. Its kind's modules are not imported before."""
    if kind == CONSUMER:
        from broker.coordinators.group.consumer.group import ConsumerGroup

        return ConsumerGroup(group_id)
    if kind == SHARE:
        from broker.coordinators.group.share.group import ShareGroup

        return ShareGroup(group_id)
    from broker.coordinators.group.streams.group import StreamsGroup

    return StreamsGroup(group_id)


class GroupImage:
    """The state of all groups of a partition according to the log."""

    __slots__ = ("groups", "modern", "offsets", "pending", "simple")

    def __init__(self) -> None:
        self.groups: dict[str, GroupMetadata] = {}
        """Classic groups that have a record of their own."""
        self.simple: set[str] = set()
        """Classic groups that a commit has made: they stay, without offsets too, until their tombstone."""
        self.offsets = OffsetTable()
        self.pending = PendingOffsets()
        self.modern: dict[str, ModernGroup] = {}
        """Groups of the newer protocols, of every kind, by group id."""

    def exists(self, group_id: str) -> bool:
        """Whether the log has a record or an offset of the group."""
        return (
            group_id in self.groups
            or group_id in self.simple
            or group_id in self.modern
            or group_id in self.offsets
            or group_id in self.pending
        )

    def group_ids(self) -> Iterator[str]:
        """The id of every group that exists, once. No record may be replayed meanwhile."""
        ids = chain(self.groups, self.simple, self.modern, self.offsets.groups(), self.pending.groups())
        return iter(dict.fromkeys(ids))

    def replay(self, record: GroupRecord | UnknownRecord, producer_id: int = NO_PRODUCER_ID) -> None:
        """Apply one record. Offsets with a ``producer_id`` wait for the marker that ends its transaction."""
        if isinstance(record, UnknownRecord):
            return
        key, value, _ = record
        _REPLAY[type(key)](self, key, value, producer_id)

    def replay_marker(self, producer_id: int, *, commits: bool) -> None:
        """The producer's transaction has ended: its offsets are committed or dropped."""
        for group_id, (topic, partition), packed in self.pending.replay_end(producer_id, commits=commits):
            self.offsets.replay_put(group_id, topic, partition, packed)

    def _replay_offset(
        self,
        key: OffsetCommitKey | LegacyOffsetCommitKey,
        value: OffsetCommitValue | LegacyOffsetCommitValue | None,
        producer_id: int,
    ) -> None:
        group_id, topic, partition = key.group, key.topic, key.partition
        if value is None:
            self.offsets.replay_removed(group_id, (topic, partition))
            self.pending.replay_removed(group_id, (topic, partition))
            return
        if group_id not in self.groups and group_id not in self.modern:
            self.simple.add(group_id)
        packed = pack_offset(_committed(value) if isinstance(value, LegacyOffsetCommitValue) else value)
        if producer_id == NO_PRODUCER_ID:
            self.offsets.replay_put(group_id, topic, partition, packed)
            self.pending.replay_overtaken(group_id, (topic, partition))
        else:
            self.pending.replay_put(producer_id, group_id, (topic, partition), packed)

    def _replay_group(self, key: GroupMetadataKey, value: GroupMetadataValue | None, _: int) -> None:
        if value is None:
            self.groups.pop(key.group, None)
            self.simple.discard(key.group)
        else:
            self.groups[key.group] = _metadata(value)

    def _replay_modern(self, key: Any, value: object | None, _: int) -> None:
        kind, group = _KINDS[type(key)], self.modern.get(key.group_id)
        if group is None or group.kind != kind:
            if value is None:
                return
            group = self.modern[key.group_id] = _new_group(kind, key.group_id)
            self.simple.discard(key.group_id)
        group.replay(key, value)
        if group.is_gone:
            del self.modern[key.group_id]


def _committed(value: LegacyOffsetCommitValue) -> CommittedOffset:
    return CommittedOffset(value.offset, NO_EPOCH, value.metadata, value.commit_timestamp, NO_TIMESTAMP, NO_UUID)


def _metadata(value: GroupMetadataValue) -> GroupMetadata:
    members = (
        MemberMetadata(
            member_id=member.member_id,
            instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            # Kafka before 0.10.1 knew one timeout only.
            rebalance_timeout_ms=member.session_timeout if member.rebalance_timeout == -1 else member.rebalance_timeout,
            session_timeout_ms=member.session_timeout,
            subscription=member.subscription,
            assignment=member.assignment,
        )
        for member in value.members
    )
    return GroupMetadata(
        protocol_type=value.protocol_type,
        generation=value.generation,
        protocol=value.protocol,
        leader=value.leader,
        state_timestamp=value.current_state_timestamp,
        members={member.member_id: member for member in members},
    )


_REPLAY: Final[dict[type[Any], Callable[[GroupImage, Any, Any, int], None]]] = {
    LegacyOffsetCommitKey: GroupImage._replay_offset,
    OffsetCommitKey: GroupImage._replay_offset,
    GroupMetadataKey: GroupImage._replay_group,
    **dict.fromkeys(_KINDS, GroupImage._replay_modern),
}
