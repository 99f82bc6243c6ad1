"""GroupShard: the state machine of all groups in one partition of ``__consumer_offsets``.

A method that returns a `GroupResult` has changed no state yet. The result's records are written as one batch. Once the
batch is acknowledged, each record is given to `GroupShard.replay`, in the order of the log, and then ``then`` is called
with NONE. If the batch can't be written, nothing is replayed and ``then`` is called with the log's error.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from broker.coordinators.group.classic_group import ClassicGroup, GroupState
from broker.coordinators.group.events import GroupEvents
from broker.coordinators.group.expiry import Expiry
from broker.coordinators.group.image import CLASSIC, SHARE, STREAMS, GroupImage, kind_of_key
from broker.coordinators.group.kinds import Kinds, is_consumer_group
from broker.coordinators.group.membership import Membership
from broker.coordinators.group.modern.group import Assignment, ModernGroup
from broker.coordinators.group.modern.kinds import Context, GroupConfigs, GroupsOfKind, Resolve
from broker.coordinators.group.modern.topics import TopicHashes, TopicsView
from broker.coordinators.group.offsets import Offsets
from broker.coordinators.group.queues import GroupQueues
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
    Synced,
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
from protocol.records.group_metadata import GroupMetadataKey, GroupRecord, LegacyOffsetCommitKey, OffsetCommitKey
from storage.sentinels import NO_PRODUCER_ID

if TYPE_CHECKING:
    from broker.coordinators.group.consumer.requests import (
        ConsumerHeartbeat,
        ConsumerHeartbeatReply,
        DescribedConsumerGroup,
    )
    from broker.coordinators.group.share.requests import (
        ChangeReply,
        DeletionReply,
        DescribedShareGroup,
        HeartbeatReply,
        NewOffsets,
        ShareHeartbeat,
    )
    from broker.coordinators.group.streams.requests import (
        DescribedStreamsGroup,
        StreamsHeartbeat,
        StreamsHeartbeatReply,
    )
    from broker.coordinators.share.persister import SharePersister


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
        topics: TopicsView,
        hashes: TopicHashes,
        configs: GroupConfigs,
        persister: Callable[[], SharePersister],
        resolve: Resolve,
    ) -> None:
        """``submit`` takes results that no request has asked for: those of alarms. All shards may share ``stats`` and
        ``hashes``. ``is_archived_by`` says of a topic and a group whether the topic's retention waits for the group."""
        self.image = GroupImage()
        """The replayed state, for readers."""
        self.stats = stats
        self._queues = GroupQueues(submit)
        context = Context(
            self.image.modern,
            self._queues,
            topics,
            hashes,
            configs,
            resolve,
            settings,
            clock,
            wheel,
            ids,
            events,
            stats,
        )
        self._events = events
        self._membership = Membership(
            self.image,
            settings=settings,
            clock=clock,
            wheel=wheel,
            ids=ids,
            events=events,
            queues=self._queues,
            stats=self.stats,
        )
        self._kinds = Kinds(context, self._membership, persister)
        self._offsets = Offsets(
            self.image, self._membership, self._kinds, settings=settings, clock=clock, stats=self.stats
        )
        self._expiry = Expiry(
            self.image,
            self._membership,
            self._kinds,
            self._offsets,
            self._queues,
            settings=settings,
            clock=clock,
            events=events,
            stats=self.stats,
            is_archived_by=is_archived_by,
        )

    # Replay -----------------------------------------------------------------------------------------------------------

    def replay(
        self, record: GroupRecord | UnknownRecord, *, producer_id: int = NO_PRODUCER_ID, offset: int = -1
    ) -> None:
        """Apply a record of the log; ``producer_id`` if its batch is part of a transaction."""
        self.image.replay(record, producer_id)
        if isinstance(record, UnknownRecord):
            return
        key = record.key
        if isinstance(key, GroupMetadataKey):
            self._membership.recorded(key.group)
        elif not isinstance(key, (OffsetCommitKey, LegacyOffsetCommitKey)):
            self._kinds.of(kind_of_key(key)).replayed(key.group_id)

    def replay_marker(self, producer_id: int, *, commits: bool) -> None:
        """Apply the marker that ends the producer's transaction."""
        self.image.replay_marker(producer_id, commits=commits)

    def loaded(self) -> None:
        """All records of the log are replayed: from now on requests are served."""
        self._membership.loaded()
        for groups in self._kinds.made():
            groups.loaded()

    def unload(self, code: ErrorCode) -> None:
        """The partition is no longer led here, or is loaded again into another shard: parked replies get ``code``, and
        all alarms are cancelled."""
        self._queues.unload(code)
        self._membership.unload(code)
        for groups in self._kinds.made():
            groups.unload(code)

    def topics_changed(self, names: Collection[str], *, are_new: bool) -> None:
        """Topics were created (``are_new``), deleted, or have got partitions: groups that subscribe to them look at
        them again."""
        for groups in self._kinds.made():
            groups.topics_changed(names, are_new=are_new)

    def _modern(self, group_id: str) -> tuple[ModernGroup, GroupsOfKind] | None:
        """A group of one of the newer protocols with its state machine."""
        group = self.image.modern.get(group_id)
        return None if group is None else (group, self._kinds.of(group.kind))

    # Membership -------------------------------------------------------------------------------------------------------

    def join(self, request: Join, reply: JoinReply) -> GroupResult | None:
        """Handle JoinGroup: let a member take part in the next generation."""
        group_id = request.group_id
        if (error := self._membership.check_join(request)) is not ErrorCode.NONE:
            reply(Joined(error=error, member_id=request.member_id))
            return None

        def decision() -> GroupResult | None:
            group = self.image.modern.get(group_id)
            if group is None:
                return self._membership.join(request, reply)
            if is_consumer_group(group):
                if group.members:
                    return self._kinds.migration.join(group, request, reply)
                return self._membership.join(request, reply, self._kinds.consumer.tombstones(group))
            if group.kind == STREAMS and not group.member_count:
                return self._membership.join(request, reply, self._kinds.streams.tombstones(group))
            reply(Joined(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
            return None

        def refusal(error: ErrorCode) -> None:
            reply(Joined(error=error))

        return self._queues.decide(group_id, decision, refusal, alone=partial(self._is_decided_alone, group_id))

    def sync(self, request: Sync, reply: SyncReply) -> GroupResult | None:
        """Handle SyncGroup: answer with the member's assignment."""
        group_id = request.group_id

        def decision() -> GroupResult | None:
            group = self.image.modern.get(group_id)
            if group is None:
                return self._membership.sync(request, reply)
            if is_consumer_group(group):
                self._kinds.migration.sync(group, request, reply)
                return None
            reply(Synced(error=ErrorCode.UNKNOWN_MEMBER_ID))
            return None

        def refusal(error: ErrorCode) -> None:
            reply(Synced(error=error))

        return self._queues.decide(group_id, decision, refusal, alone=partial(self._is_decided_alone, group_id))

    def heartbeat(self, request: Heartbeat) -> ErrorCode:
        """Handle Heartbeat: begin the member's session anew."""
        group = self.image.modern.get(request.group_id)
        if group is None:
            return self._membership.heartbeat(request)
        if is_consumer_group(group):
            return self._kinds.migration.heartbeat(group, request)
        return ErrorCode.UNKNOWN_MEMBER_ID

    def leave(
        self, group_id: str, members: Sequence[LeavingMember], reply: Callable[[Left], None]
    ) -> GroupResult | None:
        """Handle LeaveGroup: remove members."""

        def decision() -> GroupResult | None:
            group = self.image.modern.get(group_id)
            if group is None:
                return self._membership.leave(group_id, members, reply)
            if is_consumer_group(group):
                return self._kinds.migration.leave(group, members, reply)
            reply(Left(members=[ErrorCode.UNKNOWN_MEMBER_ID] * len(members)))
            return None

        def refusal(error: ErrorCode) -> None:
            reply(Left(error=error))

        return self._queues.decide(group_id, decision, refusal, alone=partial(self._is_decided_alone, group_id))

    def consumer_heartbeat(self, heartbeat: ConsumerHeartbeat, reply: ConsumerHeartbeatReply) -> GroupResult | None:
        """Handle ConsumerGroupHeartbeat: let a member join, go on, or leave."""
        from broker.coordinators.group.consumer.requests import ConsumerHeartbeatAnswer

        return self._queues.decide(
            heartbeat.group_id,
            lambda: self._kinds.consumer.heartbeat(heartbeat, reply),
            lambda error: reply(ConsumerHeartbeatAnswer(error=error)),
        )

    def streams_heartbeat(self, heartbeat: StreamsHeartbeat, reply: StreamsHeartbeatReply) -> GroupResult | None:
        """Handle StreamsGroupHeartbeat: let a member join, go on, or leave."""
        from broker.coordinators.group.streams.requests import StreamsHeartbeatAnswer

        return self._queues.decide(
            heartbeat.group_id,
            lambda: self._kinds.streams.heartbeat(heartbeat, reply),
            lambda error: reply(StreamsHeartbeatAnswer(error=error)),
        )

    def _is_decided_alone(self, group_id: str) -> bool:
        """Whether a request of the classic protocol is decided while nothing of the group is in flight: where it makes
        the group, and in a group that is not a classic group."""
        return group_id in self.image.modern or self._membership.find(group_id) is None

    def expire_members(self, group_id: str, member: str | None) -> int:
        """Remove a group's members, or the one with this member id or instance id (None: all), as if their session
        timeouts were over. Return how many were removed."""
        if (modern := self._modern(group_id)) is None:
            return self._membership.expire(group_id, member)
        group, groups = modern
        removed, result = groups.expire_members(group, member)
        self._queues.submit(group_id, result)
        return removed

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

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> ErrorCode:
        """NONE if a client may read the group's offsets as this member; None as the id: as no member."""
        return self._offsets.check_fetch(group_id, member_id, member_epoch)

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

    # Share groups -----------------------------------------------------------------------------------------------------

    def share_heartbeat(self, request: ShareHeartbeat, reply: HeartbeatReply) -> GroupResult | None:
        """Let a member of a share group join, go on or leave."""
        from broker.coordinators.group.share.requests import ShareHeartbeatAnswer

        group_id = request.group_id

        def decision() -> GroupResult | None:
            if not self._is_classic(group_id):
                return self._kinds.share.heartbeat(request, reply)
            why = f"Group {group_id} is not a share group."
            reply(ShareHeartbeatAnswer(ErrorCode.GROUP_ID_NOT_FOUND, why))
            return None

        def refusal(error: ErrorCode) -> None:
            reply(ShareHeartbeatAnswer(error, "the group has too many requests under way, or moves"))

        return self._queues.decide(group_id, decision, refusal)

    def describe_share_group(self, group_id: str) -> DescribedShareGroup | None:
        """A share group as it is now; None if there is no such group, or it is of another kind."""
        return self._kinds.share.describe(group_id)

    def initialized_partitions(self, group_id: str) -> Assignment:
        """The partitions that a share group has states of; none of a group that does not exist."""
        return self._kinds.share.states.initialized_partitions(group_id)

    def alter_share_offsets(
        self, group_id: str, topics: Sequence[NewOffsets], reply: ChangeReply
    ) -> GroupResult | None:
        """Let a share group without members begin anew at other offsets."""
        from broker.coordinators.group.share.requests import ChangedOffsets

        def decision() -> GroupResult | None:
            if not self._is_classic(group_id):
                return self._kinds.share.states.alter_offsets(group_id, topics, reply)
            reply(ChangedOffsets(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group."))
            return None

        def refusal(error: ErrorCode) -> None:
            reply(ChangedOffsets(error, "the group has too many requests under way, or moves"))

        return self._queues.decide(group_id, decision, refusal)

    def delete_share_offsets(self, group_id: str, names: Sequence[str], reply: DeletionReply) -> GroupResult | None:
        """Delete the states that a share group without members has of topics."""

        def refusal(error: ErrorCode) -> None:
            reply(error, "the group has too many requests under way, or moves", {})

        return self._queues.decide(
            group_id, lambda: self._kinds.share.states.delete_offsets(group_id, names, reply), refusal
        )

    def _is_classic(self, group_id: str) -> bool:
        return group_id not in self.image.modern and self._membership.find(group_id) is not None

    # Groups -----------------------------------------------------------------------------------------------------------

    def kind_of(self, group_id: str) -> str | None:
        """The kind of the group: ``classic``, ``consumer``, ``share`` or ``streams``; None if there is no such
        group."""
        if (group := self.image.modern.get(group_id)) is not None:
            return group.kind
        return None if self._membership.find(group_id) is None else CLASSIC

    def describe(self, group_id: str) -> DescribedGroup | None:
        """A classic group as it is now; None if there is no such group, or it is of another kind."""
        group = None if group_id in self.image.modern else self._membership.find(group_id)
        return None if group is None else _describe(group)

    def describe_consumer_group(self, group_id: str) -> DescribedConsumerGroup | None:
        """A consumer group as it is now; None if there is no such group, or it is of another kind."""
        group = self._kinds.consumer.find(group_id)
        return None if group is None else self._kinds.consumer.describe(group)

    def describe_streams_group(self, group_id: str) -> DescribedStreamsGroup | None:
        """A streams group as it is now; None if there is no such group, or it is of another kind."""
        group = self._kinds.streams.find(group_id)
        return None if group is None else self._kinds.streams.describe(group)

    def knows_regex(self, group_id: str, regex: str) -> bool:
        """Whether a member of the consumer group subscribes by the expression, which is valid then."""
        group = self._kinds.consumer.find(group_id)
        return group is not None and group.regexes[regex] > 0

    def group_ids(self) -> Sequence[str]:
        """The ids of all groups."""
        return tuple(dict.fromkeys((*self.image.group_ids(), *self._membership.group_ids())))

    def glance(self, group_id: str) -> ListedGroup | None:
        """A group as ListGroups lists it; None if it does not exist (any more)."""
        if (modern := self._modern(group_id)) is not None:
            group, groups = modern
            return groups.glance(group)
        classic = self._membership.find(group_id)
        if classic is None:
            return None
        return ListedGroup(group_id, classic.protocol_type, classic.state.value, CLASSIC, len(classic.members))

    def list(self) -> Iterator[ListedGroup]:
        """All groups, as ListGroups lists them."""
        for group_id in self.group_ids():
            if (listed := self.glance(group_id)) is not None:
                yield listed

    def delete(self, group_id: str, reply: Callable[[ErrorCode], None]) -> GroupResult | None:
        """Delete a group without members, with its offsets; of a share group first its states."""

        def states_deleted(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self._queues.decide_unasked(group_id, decision, refusal=reply)
            else:
                reply(error)

        def decision() -> GroupResult | None:
            refusal, tombstones = self._deletion(group_id)
            if refusal is not ErrorCode.NONE:
                reply(refusal)
                return None
            partitions = self._offsets.known_partitions(group_id)
            records = [offset_tombstone(group_id, topic, partition) for topic, partition in partitions]
            return GroupResult([*records, *tombstones], then)

        def then(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self._events.group_removed(group_id, "it was deleted by request")
            reply(client_error_of(error))

        if self.kind_of(group_id) == SHARE:
            share_states = self._kinds.share.states
            return self._queues.decide(group_id, lambda: share_states.delete_all(group_id, states_deleted), reply)
        return self._queues.decide(group_id, decision, reply)

    def _deletion(self, group_id: str) -> tuple[ErrorCode, Sequence[GroupRecord]]:
        """Whether the group may be deleted, and the tombstones of its own records."""
        if (modern := self._modern(group_id)) is not None:
            group, groups = modern
            refusal = groups.check_delete(group)
            return refusal, groups.tombstones(group) if refusal is ErrorCode.NONE else []
        classic = self._membership.find(group_id)
        if classic is None or classic.state is GroupState.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND, []
        if classic.state is not GroupState.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP, []
        return ErrorCode.NONE, [group_tombstone(group_id)]


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
