"""GroupShard: the state machine of all groups in one partition of ``__consumer_offsets``.

A method that returns a `GroupResult` has changed no state yet. The result's records are written as one batch. Once the
batch is acknowledged, each record is given to `GroupShard.replay`, in the order of the log, and then ``then`` is called
with NONE. If the batch can't be written, nothing is replayed and ``then`` is called with the log's error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from broker.coordinators.group.classic_group import ClassicGroup, GroupState
from broker.coordinators.group.events import GroupEvents
from broker.coordinators.group.expiry import Expiry
from broker.coordinators.group.image import CLASSIC, GroupImage
from broker.coordinators.group.membership import Membership
from broker.coordinators.group.offsets import Offsets
from broker.coordinators.group.records import GroupResult, group_tombstone, offset_tombstone
from broker.coordinators.group.requests import (
    Commit,
    DescribedGroup,
    DescribedMember,
    FetchedOffset,
    Heartbeat,
    Join,
    Joined,
    JoinReply,
    LeavingMember,
    Left,
    ListedGroup,
    Sync,
    SyncReply,
    TopicPartitionName,
)
from broker.coordinators.group.settings import GroupSettings
from broker.coordinators.group.stats import GroupStats
from broker.coordinators.write_errors import client_error_of
from broker.runtime.clock import Clock, Ids
from broker.runtime.timing_wheel import TimingWheel
from protocol.errors import ErrorCode
from protocol.records.coordinator_records import UnknownRecord
from protocol.records.group_metadata import GroupMetadataKey, GroupRecord
from storage.sentinels import NO_PRODUCER_ID


class GroupShard:
    """The groups of one partition."""

    def __init__(
        self,
        *,
        settings: GroupSettings,
        clock: Clock,
        wheel: TimingWheel,
        ids: Ids,
        events: GroupEvents,
        stats: GroupStats,
        submit: Callable[[GroupResult], None],
        is_archived_by: Callable[[str, str], bool],
    ) -> None:
        """``submit`` takes results that no request has asked for: those of alarms. All shards may share ``stats``.
        ``is_archived_by`` says of a topic and a group whether the topic's retention waits for the group."""
        self.image = GroupImage()
        """The replayed state, for readers."""
        self.stats = stats
        self._events = events
        self._membership = Membership(
            self.image,
            settings=settings,
            clock=clock,
            wheel=wheel,
            ids=ids,
            events=events,
            submit=submit,
            stats=self.stats,
        )
        self._offsets = Offsets(self.image, self._membership, settings=settings, clock=clock, stats=self.stats)
        self._expiry = Expiry(
            self.image,
            self._membership,
            self._offsets,
            settings=settings,
            clock=clock,
            events=events,
            stats=self.stats,
            is_archived_by=is_archived_by,
        )

    # Replay -----------------------------------------------------------------------------------------------------------

    def replay(self, record: GroupRecord | UnknownRecord, *, producer_id: int = NO_PRODUCER_ID) -> None:
        """Apply a record of the log; ``producer_id`` if its batch is part of a transaction."""
        self.image.replay(record, producer_id)
        if not isinstance(record, UnknownRecord) and isinstance(record.key, GroupMetadataKey):
            self._membership.recorded(record.key.group)

    def replay_marker(self, producer_id: int, *, commits: bool) -> None:
        """Apply the marker that ends the producer's transaction."""
        self.image.replay_marker(producer_id, commits=commits)

    def loaded(self) -> None:
        """All records of the log are replayed: from now on requests are served."""
        self._membership.loaded()

    def unload(self, code: ErrorCode) -> None:
        """The partition is no longer led here, or is loaded again into another shard: parked replies get ``code``, and
        all alarms are cancelled."""
        self._membership.unload(code)

    # Membership -------------------------------------------------------------------------------------------------------

    def join(self, request: Join, reply: JoinReply) -> GroupResult | None:
        """Handle JoinGroup: let a member take part in the next generation."""
        if request.group_id in self.image.other_kinds:
            reply(Joined(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id=request.member_id))
            return None
        return self._membership.join(request, reply)

    def sync(self, request: Sync, reply: SyncReply) -> GroupResult | None:
        """Handle SyncGroup: answer with the member's assignment."""
        return self._membership.sync(request, reply)

    def heartbeat(self, request: Heartbeat) -> ErrorCode:
        """Handle Heartbeat: begin the member's session anew."""
        return self._membership.heartbeat(request)

    def leave(
        self, group_id: str, members: Sequence[LeavingMember], reply: Callable[[Left], None]
    ) -> GroupResult | None:
        """Handle LeaveGroup: remove members."""
        return self._membership.leave(group_id, members, reply)

    def expire_members(self, group_id: str, member: str | None) -> int:
        """Remove a group's members, or the one with this member id or instance id (None: all), as if their session
        timeouts were over. Return how many were removed."""
        return self._membership.expire(group_id, member)

    # Offsets ----------------------------------------------------------------------------------------------------------

    def commit(self, request: Commit, reply: Callable[[Sequence[ErrorCode]], None]) -> GroupResult | None:
        """Commit offsets, in a transaction or not; the reply has an error for each, in the order of the request."""
        return self._offsets.commit(request, reply)

    def fetch(
        self, group_id: str, partitions: Sequence[TopicPartitionName] | None, *, require_stable: bool
    ) -> list[FetchedOffset]:
        """The committed offsets of ``partitions``, or of all partitions (None). A group that does not exist has no
        committed offsets, which is no error."""
        return self._offsets.fetch(group_id, partitions, require_stable=require_stable)

    def delete_offsets(
        self,
        group_id: str,
        partitions: Sequence[TopicPartitionName],
        reply: Callable[[ErrorCode, Sequence[ErrorCode]], None],
    ) -> GroupResult | None:
        """Delete offsets. The reply has an error for the whole request, or one for each partition."""
        return self._offsets.delete(group_id, partitions, reply)

    def expire_offsets(self) -> Iterator[GroupResult | None]:
        """Delete offsets older than their retention, offsets of deleted topics that could not be deleted before, and
        empty groups without offsets.

        A piece is about a millisecond's work; None where it found nothing. Write each piece before the loop's next
        turn, since it was computed from the state of this turn.
        """
        return self._expiry.expire()

    def forget_topics(self, topics: Mapping[str, bytes]) -> Iterator[GroupResult | None]:
        """Delete every group's offsets of deleted topics, in pieces as `expire_offsets` has them.

        The topics come with their ids: a new topic may have the same name by now, and offsets committed for it stay,
        as in Kafka.
        """
        return self._expiry.forget_topics(topics)

    # Groups -----------------------------------------------------------------------------------------------------------

    def kind_of(self, group_id: str) -> str | None:
        """``classic``, or the kind of another protocol's group in the log; None if there is no such group."""
        if (kind := self.image.other_kinds.get(group_id)) is not None:
            return kind
        return None if self._membership.find(group_id) is None else CLASSIC

    def describe(self, group_id: str) -> DescribedGroup | None:
        """A classic group as it is now; None if there is no such group, or it is of another kind."""
        group = None if group_id in self.image.other_kinds else self._membership.find(group_id)
        return None if group is None else _describe(group)

    def group_ids(self) -> Sequence[str]:
        """The ids of all groups."""
        return tuple(dict.fromkeys((*self.image.group_ids(), *self._membership.group_ids())))

    def glance(self, group_id: str) -> ListedGroup | None:
        """A group as ListGroups lists it; None if it does not exist (any more)."""
        if (kind := self.image.other_kinds.get(group_id)) is not None:
            # A group of another kind has no members here.
            return ListedGroup(group_id, kind, GroupState.EMPTY.value, kind, 0)
        group = self._membership.find(group_id)
        if group is None:
            return None
        return ListedGroup(group_id, group.protocol_type, group.state.value, CLASSIC, len(group.members))

    def list(self) -> Iterator[ListedGroup]:
        """All groups, as ListGroups lists them."""
        for group_id in self.group_ids():
            if (listed := self.glance(group_id)) is not None:
                yield listed

    def delete(self, group_id: str, reply: Callable[[ErrorCode], None]) -> GroupResult | None:
        """Delete a group without members, with its offsets."""
        group = self._membership.find(group_id)
        if group_id in self.image.other_kinds:
            # Other records of such a group are not ours to remove.
            reply(ErrorCode.NON_EMPTY_GROUP)
            return None
        if group is None or group.state is GroupState.DEAD:
            reply(ErrorCode.GROUP_ID_NOT_FOUND)
            return None
        if group.state is not GroupState.EMPTY:
            reply(ErrorCode.NON_EMPTY_GROUP)
            return None
        partitions = self._offsets.known_partitions(group_id)
        records = [offset_tombstone(group_id, topic, partition) for topic, partition in partitions]
        records.append(group_tombstone(group_id))

        def then(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self._events.group_removed(group_id, "it was deleted by request")
            reply(client_error_of(error))

        return GroupResult(records, then)


def _describe(group: ClassicGroup) -> DescribedGroup:
    metadata = group.metadata
    if group.state is GroupState.STABLE and metadata is not None:
        return DescribedGroup(
            group_id=group.group_id,
            state=group.state.value,
            protocol_type=metadata.protocol_type,
            protocol=metadata.protocol or "",
            members=[
                DescribedMember(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.subscription,
                    member.assignment,
                )
                for member in metadata.members.values()
            ],
        )
    return DescribedGroup(
        group_id=group.group_id,
        state=group.state.value,
        protocol_type=group.protocol_type,
        members=[
            DescribedMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                b"",
                group.assignment_of(member) if group.is_after_the_record else b"",
            )
            for member in group.members.values()
        ],
    )
