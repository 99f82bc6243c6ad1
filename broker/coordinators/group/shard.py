"""All groups of one partition of ``__consumer_offsets``: what is asked of them, and what their records make of them.

Whatever returns a `GroupResult` has changed nothing yet. The change is written as one batch; once that is acknowledged
each of its records is given to `GroupShard.replay`, in the order of the log, and then ``then`` is called with NONE. If
it can't be written, nothing is replayed and ``then`` is called with the log's error.
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
from broker.coordinators.group.write_errors import told_of_failed_write
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
        """``submit`` takes changes that nobody has asked for: those of alarms. ``stats`` may be those of all shards.
        ``is_archived_by`` says of a topic and a group whether the topic's retention waits for the group."""
        self.image = GroupImage()
        """To be read."""
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

    # What stands in the log -------------------------------------------------------------------------------------------

    def replay(self, record: GroupRecord | UnknownRecord, *, producer_id: int = NO_PRODUCER_ID) -> None:
        """Apply a record that stands in the log; ``producer_id`` if its batch is part of a transaction."""
        self.image.replay(record, producer_id)
        if not isinstance(record, UnknownRecord) and isinstance(record.key, GroupMetadataKey):
            self._membership.recorded(record.key.group)

    def replay_marker(self, producer_id: int, *, commits: bool) -> None:
        """Apply the marker that ends the producer's transaction."""
        self.image.replay_marker(producer_id, commits=commits)

    def loaded(self) -> None:
        """Everything that stands in the log is replayed: from now on requests may come."""
        self._membership.loaded()

    def unload(self, code: ErrorCode) -> None:
        """The partition is no longer led here, or is loaded again into another shard: whoever waits is told ``code``,
        and no alarm rings any more."""
        self._membership.unload(code)

    # Membership -------------------------------------------------------------------------------------------------------

    def join(self, request: Join, reply: JoinReply) -> GroupResult | None:
        """Let a member take part in the next generation."""
        if request.group_id in self.image.other_kinds:
            reply(Joined(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id=request.member_id))
            return None
        return self._membership.join(request, reply)

    def sync(self, request: Sync, reply: SyncReply) -> GroupResult | None:
        """Give a member its part of its generation's assignment."""
        return self._membership.sync(request, reply)

    def heartbeat(self, request: Heartbeat) -> ErrorCode:
        """A member is alive."""
        return self._membership.heartbeat(request)

    def leave(
        self, group_id: str, members: Sequence[LeavingMember], reply: Callable[[Left], None]
    ) -> GroupResult | None:
        """Let members go."""
        return self._membership.leave(group_id, members, reply)

    # Offsets ----------------------------------------------------------------------------------------------------------

    def commit(self, request: Commit, reply: Callable[[Sequence[ErrorCode]], None]) -> GroupResult | None:
        """Commit offsets; the reply has an error for each, in the order of the request."""
        return self._offsets.commit(request, reply)

    def fetch(
        self, group_id: str, partitions: Sequence[TopicPartitionName] | None, *, require_stable: bool
    ) -> list[FetchedOffset]:
        """What is committed for ``partitions``, or (None) everything. A group that does not exist has committed
        nothing, which is no error."""
        return self._offsets.fetch(group_id, partitions, require_stable=require_stable)

    def delete_offsets(
        self,
        group_id: str,
        partitions: Sequence[TopicPartitionName],
        reply: Callable[[ErrorCode, Sequence[ErrorCode]], None],
    ) -> GroupResult | None:
        """Delete offsets. The reply has an error for the whole, or one for each partition."""
        return self._offsets.delete(group_id, partitions, reply)

    def expire_offsets(self) -> Iterator[GroupResult | None]:
        """Let go of what is older than its retention, of deleted topics' offsets that could not be deleted, and of
        empty groups without offsets.

        A piece is about a millisecond's work; None where it found nothing. Write each before the loop's next turn: it
        was decided on what stands now.
        """
        return self._expiry.expire()

    def forget_topics(self, topics: Mapping[str, bytes]) -> Iterator[GroupResult | None]:
        """Delete every group's offsets of deleted topics, in pieces as `expire_offsets` has them.

        The topics come with their ids: a topic may have the name again by now, and what has been committed for that one
        stays, as in Kafka.
        """
        return self._expiry.forget_topics(topics)

    # Groups -----------------------------------------------------------------------------------------------------------

    def kind_of(self, group_id: str) -> str | None:
        """``classic``, or what is kept here of other kinds of groups; None if there is no such group."""
        if (kind := self.image.other_kinds.get(group_id)) is not None:
            return kind
        return None if self._membership.find(group_id) is None else CLASSIC

    def describe(self, group_id: str) -> DescribedGroup | None:
        """A classic group as it is now; None if there is none, or one of another kind."""
        group = None if group_id in self.image.other_kinds else self._membership.find(group_id)
        return None if group is None else _describe(group)

    def group_ids(self) -> Sequence[str]:
        """Every group that there is now."""
        return tuple(dict.fromkeys((*self.image.group_ids(), *self._membership.group_ids())))

    def glance(self, group_id: str) -> ListedGroup | None:
        """A group in a few words; None if there is none, or none any more."""
        if (kind := self.image.other_kinds.get(group_id)) is not None:
            # Nobody can be in it here.
            return ListedGroup(group_id, kind, GroupState.EMPTY.value, kind, 0)
        group = self._membership.find(group_id)
        if group is None:
            return None
        return ListedGroup(group_id, group.protocol_type, group.state.value, CLASSIC, len(group.members))

    def list(self) -> Iterator[ListedGroup]:
        """Every group."""
        for group_id in self.group_ids():
            if (listed := self.glance(group_id)) is not None:
                yield listed

    def delete(self, group_id: str, reply: Callable[[ErrorCode], None]) -> GroupResult | None:
        """Delete a group that nobody is in, with its offsets."""
        group = self._membership.find(group_id)
        if group_id in self.image.other_kinds:
            # What else belongs to it is not ours to remove.
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
            reply(told_of_failed_write(error))

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
