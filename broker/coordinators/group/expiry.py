"""Expiry of offsets: deletes offsets whose retention is over, and offsets of deleted topics.

The work is done in pieces. Each piece is computed from the state of the moment, so it has to be written at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from broker.coordinators.group.classic_group import ClassicGroup, GroupState
from broker.coordinators.group.events import GroupEvents
from broker.coordinators.group.image import GroupImage
from broker.coordinators.group.kinds import Kinds
from broker.coordinators.group.membership import Membership
from broker.coordinators.group.offset_table import PartitionKey
from broker.coordinators.group.offsets import Offsets
from broker.coordinators.group.queues import GroupQueues
from broker.coordinators.group.records import GroupResult, group_tombstone, offset_tombstone
from broker.coordinators.group.requests import CommittedOffset
from broker.coordinators.group.settings import GroupSettings
from broker.coordinators.group.stats import GroupStats
from broker.coordinators.group.subscription import CONSUMER_PROTOCOL
from broker.runtime.clock import Clock
from broker.runtime.counted import counted
from protocol.errors import ErrorCode
from protocol.records.group_metadata import GroupRecord
from protocol.schema import NO_UUID
from storage.sentinels import NO_TIMESTAMP

OFFSETS_A_PIECE: Final = 500
"""How many offsets (and groups) a piece checks: work of 0.5 ms, or of 2 ms where all of them have expired. A piece
checks fewer offsets of a group with a very long id, so that the tombstones of all of them fit into a batch."""

_BYTES_AN_OFFSET: Final = 128
"""For each so many bytes of a group's id, each of the group's offsets counts once more towards `OFFSETS_A_PIECE`."""


@dataclass(slots=True)
class _Piece:
    """What one piece deletes."""

    records: list[GroupRecord] = field(default_factory=list)
    expired: dict[str, int] = field(default_factory=dict)
    """How many offsets are deleted, by group id."""
    removed: list[str] = field(default_factory=list)
    """Ids of the groups that are deleted."""
    looked_at: int = 0


def _read_by_nobody(topic: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class _Retention:
    """From when on the retention of a group's offsets counts."""

    emptied_at: int = NO_TIMESTAMP
    """When the group became empty, in milliseconds since 1970; -1: retention counts from each offset's commit on."""
    is_read: Callable[[str], bool] = _read_by_nobody
    """Whether members subscribe to a topic: its offsets do not expire then."""

    def is_over(self, topic: str, committed: CommittedOffset, *, retention_ms: int, now_ms: int) -> bool:
        if self.is_read(topic):
            return False
        if committed.expire_timestamp != NO_TIMESTAMP:
            return now_ms >= committed.expire_timestamp
        since = committed.commit_timestamp if self.emptied_at == NO_TIMESTAMP else self.emptied_at
        return now_ms - since >= retention_ms


class Expiry:
    """Finds the offsets to delete, group by group."""

    def __init__(
        self,
        image: GroupImage,
        membership: Membership,
        kinds: Kinds,
        offsets: Offsets,
        queues: GroupQueues,
        *,
        settings: GroupSettings,
        clock: Clock,
        events: GroupEvents,
        stats: GroupStats,
        is_archived_by: Callable[[str, str], bool],
    ) -> None:
        self._image = image
        self._membership = membership
        self._kinds = kinds
        self._offsets = offsets
        self._queues = queues
        self._settings = settings
        self._clock = clock
        self._events = events
        self._stats = stats
        self._is_archived_by = is_archived_by
        """Whether a group archives a topic. Its offsets never expire, since the topic's retention waits for them."""
        self._unforgotten: dict[str, bytes] = {}
        """Deleted topics (id by name) with offsets whose tombstones could not be written."""

    def expire(self) -> Iterator[GroupResult | None]:
        """Look at every offset once, in pieces. A piece that finds nothing to delete is None."""
        unforgotten, self._unforgotten = self._unforgotten, {}
        if unforgotten:
            yield from self.forget_topics(unforgotten)
        piece = _Piece()
        for group_id in list(self._image.group_ids()):
            for partitions, cost in _slices(group_id, self._image.offsets.partitions(group_id)):
                if piece.looked_at + cost > OFFSETS_A_PIECE:
                    yield self._change(piece)
                    piece = _Piece()
                self._expire(group_id, partitions, piece)
                piece.looked_at += cost
        yield self._change(piece)

    def _expire(self, group_id: str, partitions: list[PartitionKey], piece: _Piece) -> None:
        """Delete the expired offsets among these partitions, and the group if it is empty and has no other offsets."""
        if self._offsets.is_under_way(group_id):
            return
        retention, tombstones = self._group_retention(group_id)
        if retention is None:
            return
        now_ms, retention_ms = self._clock.now_ms(), self._settings.offsets_retention_ms
        over = [
            (topic, partition)
            for topic, partition in partitions
            if (committed := self._image.offsets.get(group_id, (topic, partition))) is not None
            and retention.is_over(topic, committed, retention_ms=retention_ms, now_ms=now_ms)
            and not self._image.pending.has(group_id, (topic, partition))
            and not self._is_archived_by(topic, group_id)
        ]
        if over:
            piece.records += [offset_tombstone(group_id, topic, partition) for topic, partition in over]
            piece.expired[group_id] = piece.expired.get(group_id, 0) + len(over)
        nothing_left = len(over) == self._image.offsets.count(group_id) and group_id not in self._image.pending
        # A group whose records are in flight may have a member by now: it is looked at the next time.
        if nothing_left and tombstones is not None and not self._queues.is_busy(group_id):
            piece.records += tombstones()
            piece.removed.append(group_id)

    def _group_retention(self, group_id: str) -> tuple[_Retention | None, Callable[[], list[GroupRecord]] | None]:
        """The retention of the group's offsets (None: no offset can expire now), and what makes the tombstones of the
        group's own records if it goes with its last offset."""
        if (modern := self._image.modern.get(group_id)) is not None:
            groups = self._kinds.of(modern.kind)
            if not groups.has_expiring_offsets(modern):
                return None, None
            has_members = modern.member_count > 0
            return _Retention(is_read=modern.subscribes_to), (
                None if has_members else partial(groups.tombstones, modern)
            )
        group = self._membership.find(group_id)
        if group is None:
            return None, None
        goes = group.state is GroupState.EMPTY
        return _retention(group), (lambda: [group_tombstone(group_id)]) if goes else None

    def _change(self, piece: _Piece) -> GroupResult | None:
        if not piece.records:
            return None

        def then(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                first = next(iter((*piece.expired, *piece.removed)))
                self._events.write_failed(
                    first, f"what has expired of {counted(len(piece.expired), 'group')}", error.name
                )
                return
            for group_id, offsets in piece.expired.items():
                self._stats.expired_offsets += offsets
                self._events.offsets_expired(group_id, offsets)
            for group_id in piece.removed:
                self._events.group_removed(group_id, "it is empty and has no offsets")

        return self._queues.watched_of_all(piece.removed, GroupResult(piece.records, then), alone=True)

    def forget_topics(self, topics: Mapping[str, bytes]) -> Iterator[GroupResult | None]:
        """Delete the offsets of deleted topics, given by name with their ids. Offsets committed for a new topic of the
        same name stay. Tombstones that can't be written are tried again with the next `expire`."""
        found: list[tuple[str, PartitionKey]] = []
        looked_at = 0
        for group_id in self._offsets.groups():
            for partitions, cost in _slices(group_id, self._offsets.known_partitions(group_id)):
                if looked_at + cost > OFFSETS_A_PIECE:
                    yield self._forgetting(topics, found)
                    found, looked_at = [], 0
                found += [
                    (group_id, partition)
                    for partition in partitions
                    if (topic_id := topics.get(partition[0])) is not None
                    and self._offsets.topic_id(group_id, partition) in (NO_UUID, topic_id)
                ]
                looked_at += cost
        yield self._forgetting(topics, found)

    def _forgetting(self, topics: Mapping[str, bytes], found: list[tuple[str, PartitionKey]]) -> GroupResult | None:
        if not found:
            return None

        def then(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                self._unforgotten.update(topics)
                self._events.write_failed(found[0][0], f"{counted(len(found), 'offset')} of deleted topics", error.name)

        return GroupResult([offset_tombstone(group_id, *partition) for group_id, partition in found], then)


def _slices(group_id: str, partitions: list[PartitionKey]) -> Iterator[tuple[list[PartitionKey], int]]:
    """A group's partitions in parts that fit into a piece, each with its cost (as one offset if there are none)."""
    cost = 1 + len(group_id.encode()) // _BYTES_AN_OFFSET
    most = max(OFFSETS_A_PIECE // cost, 1)
    for first in range(0, max(len(partitions), 1), most):
        part = partitions[first : first + most]
        yield part, cost * max(len(part), 1)


def _retention(group: ClassicGroup) -> _Retention | None:
    """The retention of the group's offsets; None if no offset of the group can expire now."""
    metadata = group.metadata
    protocol_type = "" if metadata is None else metadata.protocol_type
    if group.state is GroupState.EMPTY:
        return _Retention(metadata.state_timestamp) if metadata is not None and protocol_type else _Retention()
    if group.state is GroupState.STABLE and protocol_type == CONSUMER_PROTOCOL:
        topics = group.subscribed_topics()
        return None if topics is None else _Retention(is_read=topics.__contains__)
    return None
