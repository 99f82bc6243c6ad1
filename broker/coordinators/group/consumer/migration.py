"""Migration of a group from the classic protocol to the newer one and back, while its members go on.

    upgrade     a member of the newer protocol joins a classic group: the group becomes a consumer group, and its
                members live in it with the classic protocol
    downgrade   the last member of the newer protocol leaves: the group becomes a classic group, and rebalances

Members of the classic protocol join, sync and send heartbeats as ever. The coordinator assigns, and does with their
joins what it does with heartbeats of the newer protocol: a join is a full heartbeat, the generation is the member's
epoch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

from broker.coordinators.group.classic_group import ClassicGroup
from broker.coordinators.group.consumer import records as r
from broker.coordinators.group.consumer.embedded import (
    EmbeddedSubscription,
    Malformed,
    read_assignment,
    read_subscription,
    write_assignment,
)
from broker.coordinators.group.consumer.group import ConsumerGroup
from broker.coordinators.group.consumer.groups import ConsumerGroups
from broker.coordinators.group.consumer.member import ClassicSide, ConsumerMember, MemberState
from broker.coordinators.group.image import GroupMetadata, MemberMetadata
from broker.coordinators.group.membership import Membership
from broker.coordinators.group.modern.kinds import Context
from broker.coordinators.group.modern.refused import HeartbeatRefused, sender
from broker.coordinators.group.modern.steps import OnWritten, Step, nobody
from broker.coordinators.group.modern.timers import Deadline
from broker.coordinators.group.records import GroupResult, group_record, group_tombstone
from broker.coordinators.group.requests import (
    Heartbeat,
    Join,
    Joined,
    JoinReply,
    LeavingMember,
    Left,
    Sync,
    Synced,
    SyncReply,
)
from broker.coordinators.group.subscription import CONSUMER_PROTOCOL
from broker.coordinators.write_errors import client_error_of
from protocol.errors import ErrorCode
from protocol.records.group_metadata import GroupRecord


class Migration:
    """Upgrades, downgrades, and requests of the classic protocol to consumer groups."""

    def __init__(self, around: Context, groups: ConsumerGroups, classic: Membership) -> None:
        self._around = around
        self.groups = groups
        self._classic = classic
        groups.upgrade = self.upgrade
        groups.may_downgrade = self.may_downgrade
        groups.downgrade = self.downgrade

    # Upgrade ----------------------------------------------------------------------------------------------------------

    def upgrade(self, classic: ClassicGroup) -> tuple[ConsumerGroup, list[GroupRecord], list[OnWritten]]:
        """A consumer group with the members of the classic group, and the records that make it one.

        Raises `HeartbeatRefused` for a group that can't be upgraded.
        """
        group_id = classic.group_id
        if not self._around.settings.consumer_upgrades:
            raise _no_upgrade(group_id, "online upgrade is disabled.")
        if classic.protocol_type != CONSUMER_PROTOCOL:
            raise _no_upgrade(group_id, "the group does not use the consumer embedded protocol.")
        if len(classic.members) > self._around.settings.consumer_max_size:
            raise _no_upgrade(group_id, "the group size exceeds the consumer group maximum size.")
        try:
            members = [self._upgraded(classic, member_id) for member_id in classic.members]
        except Malformed:
            raise _no_upgrade(group_id, "the embedded consumer protocol is malformed.") from None
        generation = classic.generation
        topics = {topic for member in members for topic in member.subscribed_topics}
        records = [
            group_tombstone(group_id),
            *(r.member_record(group_id, member) for member in members),
            r.epoch_record(group_id, generation, self._around.hashes.of_group(topics)),
            *(
                r.target_record(
                    group_id, member.member_id, {topic: frozenset(parts) for topic, parts in member.assigned.items()}
                )
                for member in members
            ),
            r.assignment_epoch_record(group_id, generation, 0),
            *(r.current_record(group_id, member) for member in members),
        ]
        group = ConsumerGroup(group_id)
        for record in records[1:]:
            group.replay(record.key, record.value)
        hand_over = self._classic.hands_over(group_id)

        def after(stands: bool) -> None:
            hand_over(stands)
            for member in members if stands else ():
                self.groups.begin_session(group_id, member)

        return group, records, [after]

    def _upgraded(self, classic: ClassicGroup, member_id: str) -> ConsumerMember:
        """Raises `Malformed`, `HeartbeatRefused`."""
        member = classic.members[member_id]
        protocol = classic.protocol or member.protocols[0].name
        subscription = read_subscription(member.metadata_for(protocol))
        assignment = read_assignment(classic.assignment_of(member) if classic.is_after_the_record else b"")
        if assignment.has_user_data:
            raise _no_upgrade(
                classic.group_id,
                "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
                "assignor before re-attempting the upgrade.",
            )
        epoch = classic.generation
        return ConsumerMember(
            member_id=member_id,
            instance_id=member.instance_id,
            rack_id=subscription.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topics=subscription.topics,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            classic=ClassicSide(member.session_timeout_ms, tuple(member.protocols)),
            epoch=epoch,
            previous_epoch=epoch,
            state=MemberState.STABLE,
            assigned={
                topic.topic_id: dict.fromkeys(sorted(partitions), epoch)
                for name, partitions in assignment.partitions.items()
                if partitions and (topic := self._around.topics.of_name(name)) is not None
            },
        )

    # Downgrade --------------------------------------------------------------------------------------------------------

    def may_downgrade(self, group: ConsumerGroup, leaving: Collection[str]) -> bool:
        """Whether the group becomes a classic group when these members are gone."""
        remaining = len(group.members) - len(leaving)
        return (
            0 < remaining <= self._around.settings.max_size
            and self._around.settings.consumer_downgrades
            and group.all_use_classic_protocol_except(leaving)
            # Records that are damaged may have members without a protocol.
            and bool(_common_protocols([one for one in group.members.values() if one.member_id not in leaving]))
        )

    def downgrade(self, group: ConsumerGroup, leaving: Collection[str]) -> Step:
        """The records that make a classic group of the members of the classic protocol."""
        group_id = group.group_id
        members = [member for member in group.members.values() if member.member_id not in leaving]
        protocol = _common_protocol(members)
        metadata = GroupMetadata(
            protocol_type=CONSUMER_PROTOCOL,
            generation=group.epoch,
            protocol=protocol,
            leader=members[0].member_id,
            state_timestamp=self._around.clock.now_ms(),
            members={member.member_id: self._downgraded(group, member, protocol) for member in members},
        )
        records = [
            *r.group_tombstones(group_id, group.members, group.resolved),
            group_record(group_id, metadata),
        ]
        sides = {member.member_id: member.classic for member in members if member.classic is not None}
        gone = [member_id for member_id in group.members if member_id in leaving]

        def after(stands: bool) -> None:
            if not stands:
                return
            for member_id in (*sides, *gone):
                self.groups.deadlines.cancel(group_id, member_id)
            for member_id in gone:
                self._around.events.member_removed(group_id, member_id, "it was the last one of the newer protocol")
            self._classic.takes_over(group_id, {key: side.protocols for key, side in sides.items()})

        return Step(records, [after])

    def _downgraded(self, group: ConsumerGroup, member: ConsumerMember, protocol: str) -> MemberMetadata:
        assert member.classic is not None
        subscription = next(one.metadata for one in member.classic.protocols if one.name == protocol)
        return MemberMetadata(
            member_id=member.member_id,
            instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            session_timeout_ms=member.classic.session_timeout_ms,
            subscription=subscription,
            assignment=self._assignment(member, group.target(member.member_id).items()),
        )

    # Members of the classic protocol ----------------------------------------------------------------------------------

    def join(self, group: ConsumerGroup, request: Join, reply: JoinReply) -> GroupResult | None:
        """Handle JoinGroup of a member of a consumer group that has members."""
        try:
            step, joined = self._join(group, request)
        except HeartbeatRefused as refused:
            reply(Joined(error=refused.code))
            return None
        return step.result(lambda error: reply(joined if error is ErrorCode.NONE else Joined(error=error)))

    def _join(self, group: ConsumerGroup, request: Join) -> tuple[Step, Joined]:
        settings = self._around.settings
        if not (settings.consumer_upgrades or settings.consumer_downgrades):
            raise HeartbeatRefused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "group migration is disabled")
        member_id = request.member_id or self.groups.new_member_id()
        self.groups.check_room(group, member_id, request.instance_id)
        names = [protocol.name for protocol in request.protocols]
        if request.protocol_type != CONSUMER_PROTOCOL or not any(
            group.classic_protocols[name] == group.classic_members for name in names
        ):
            raise HeartbeatRefused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the member's protocols are not supported")
        if not request.member_id and request.instance_id is None and request.needs_known_id:
            return Step([]), Joined(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
        try:
            subscription = read_subscription(request.protocols[0].metadata)
        except Malformed as error:
            raise HeartbeatRefused(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from None
        records: list[GroupRecord] = []
        member, replaced = self._joining(group, request, member_id, records)
        updated = dataclasses.replace(
            member,
            instance_id=request.instance_id if request.instance_id is not None else member.instance_id,
            rack_id=subscription.rack_id or member.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            assignor=member.assignor,
            subscribed_topics=subscription.topics,
            subscribed_regex="",
            client_id=request.client_id,
            client_host=request.client_host,
            classic=ClassicSide(request.session_timeout_ms, tuple(request.protocols)),
        )
        on_written: list[OnWritten] = []
        updated = self.groups.step(
            group, member, updated, replaced, records, on_written, owned=self._owned(subscription), heartbeat=None
        )
        on_written.append(partial(self._joined, group.group_id, updated))
        joined = Joined(
            member_id=updated.member_id,
            generation=updated.epoch,
            protocol_type=CONSUMER_PROTOCOL,
            protocol=request.protocols[0].name,
        )
        return Step(records, on_written), joined

    def _joining(
        self, group: ConsumerGroup, request: Join, member_id: str, records: list[GroupRecord]
    ) -> tuple[ConsumerMember, ConsumerMember | None]:
        """The member that joins, new or known, and the static member whose place it takes."""
        static = group.static_member(request.instance_id)
        if request.instance_id is None or (static is None and not request.member_id):
            return group.members.get(member_id) or ConsumerMember(member_id=member_id), None
        if static is None:
            raise HeartbeatRefused(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {request.instance_id} is unknown.")
        if not request.member_id:
            return self.groups.replace(group, static, member_id, records), static
        if static.member_id != member_id:
            raise HeartbeatRefused(ErrorCode.FENCED_INSTANCE_ID, f"{member_id} was fenced by {static.member_id}")
        return static, None

    def _joined(self, group_id: str, member: ConsumerMember, stands: bool) -> None:
        if not stands:
            return
        self.groups.deadlines.cancel(group_id, member.member_id, Deadline.JOIN)
        self.groups.begin_session(group_id, member)
        self.groups.deadlines.expect(
            group_id,
            member.member_id,
            Deadline.SYNC,
            member.rebalance_timeout_ms,
            "it has not asked for its assignment",
        )
        # A static member may have taken the place of the last member of the newer protocol.
        self._around.queues.decide_unasked(group_id, partial(self._downgrade_if_all_classic, group_id))

    def _downgrade_if_all_classic(self, group_id: str) -> GroupResult | None:
        group = self.groups.find(group_id)
        if group is None or not self.may_downgrade(group, ()):
            return None
        return self.downgrade(group, ()).result(nobody)

    def sync(self, group: ConsumerGroup, request: Sync, reply: SyncReply) -> None:
        """Handle SyncGroup: answer with what the member has by now."""
        try:
            member = self._member(group, request.member_id, request.instance_id, request.generation)
            self._check_protocol(member, request)
            if member.epoch < group.assignment_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
                self._let_join(group.group_id, member)
                raise HeartbeatRefused(ErrorCode.REBALANCE_IN_PROGRESS, "a new rebalance has begun")
        except HeartbeatRefused as refused:
            reply(Synced(error=refused.code))
            return
        self.groups.deadlines.cancel(group.group_id, member.member_id, Deadline.SYNC)
        self.groups.begin_session(group.group_id, member)
        assert member.classic is not None
        reply(
            Synced(
                protocol_type=CONSUMER_PROTOCOL,
                protocol=member.classic.protocols[0].name,
                assignment=self._assignment(member, member.assigned.items()),
            )
        )

    def heartbeat(self, group: ConsumerGroup, request: Heartbeat) -> ErrorCode:
        """Handle Heartbeat; with REBALANCE_IN_PROGRESS the member has to join again."""
        try:
            member = self._member(group, request.member_id, request.instance_id, request.generation)
        except HeartbeatRefused as refused:
            return refused.code
        self.groups.begin_session(group.group_id, member)
        # Heartbeats of members of the newer protocol compute the next assignment. Without such members it takes a join;
        # Kafka leaves the group as it is then.
        only_classic = group.classic_members == len(group.members)
        if (
            member.epoch < (group.epoch if only_classic else group.assignment_epoch)
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (member.state is MemberState.UNRELEASED_PARTITIONS and not _waits_for_others(group, member))
        ):
            self._let_join(group.group_id, member)
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(
        self, group: ConsumerGroup, members: Sequence[LeavingMember], reply: Callable[[Left], None]
    ) -> GroupResult | None:
        """Handle LeaveGroup: remove members, whatever protocol they use."""
        errors: list[ErrorCode] = []
        gone: dict[str, ConsumerMember] = {}
        for leaving in members:
            try:
                # An administrator may name an instance id alone.
                static = None if leaving.member_id else group.static_member(leaving.instance_id)
                member = static or sender(group, leaving.member_id, leaving.instance_id)
            except HeartbeatRefused as refused:
                errors.append(refused.code)
            else:
                errors.append(ErrorCode.NONE)
                gone[member.member_id] = member
        if not gone:
            reply(Left(members=errors))
            return None
        step = self.groups.fence(group, list(gone.values()), "it has left")

        def answer(error: ErrorCode) -> None:
            reply(Left(members=errors) if error is ErrorCode.NONE else Left(error=client_error_of(error)))

        return step.result(answer)

    def _member(self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> ConsumerMember:
        """The member of the classic protocol that asks. Raises `HeartbeatRefused`."""
        member = sender(group, member_id, instance_id)
        if member.classic is None:
            raise HeartbeatRefused(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol."
            )
        if member.epoch != generation:
            raise HeartbeatRefused(ErrorCode.ILLEGAL_GENERATION, f"the member is in epoch {member.epoch}")
        return member

    def _check_protocol(self, member: ConsumerMember, request: Sync) -> None:
        assert member.classic is not None
        if request.protocol_type not in (None, CONSUMER_PROTOCOL) or request.protocol not in (
            None,
            member.classic.protocols[0].name,
        ):
            raise HeartbeatRefused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "another protocol than that of the join")

    def _let_join(self, group_id: str, member: ConsumerMember) -> None:
        """The member has its rebalance timeout to join again."""
        if not self.groups.deadlines.has(group_id, member.member_id, Deadline.JOIN):
            self.groups.deadlines.expect(
                group_id,
                member.member_id,
                Deadline.JOIN,
                member.rebalance_timeout_ms,
                "it has not joined again in time",
            )

    def _owned(self, subscription: EmbeddedSubscription) -> dict[bytes, frozenset[int]]:
        return {
            topic.topic_id: partitions
            for name, partitions in subscription.owned.items()
            if partitions and (topic := self._around.topics.of_name(name)) is not None
        }

    def _assignment(self, member: ConsumerMember, partitions: Iterable[tuple[bytes, Iterable[int]]]) -> bytes:
        """In the version of the member's own subscription."""
        assert member.classic is not None
        # A record that is damaged may have no protocol, or metadata of any bytes.
        metadata = next((one.metadata for one in member.classic.protocols), b"")
        version = int.from_bytes(metadata[:2], "big", signed=True)
        return write_assignment(
            version,
            [
                (topic.name, indexes)
                for topic_id, indexes in partitions
                if (topic := self._around.topics.of_id(topic_id)) is not None
            ],
        )


def _no_upgrade(group_id: str, why: str) -> HeartbeatRefused:
    return HeartbeatRefused(
        ErrorCode.GROUP_ID_NOT_FOUND, f"Cannot upgrade classic group {group_id} to consumer group because {why}"
    )


def _common_protocol(members: Sequence[ConsumerMember]) -> str:
    """The protocol that most members prefer of those that all support; of equals, that of the oldest member."""
    candidates = _common_protocols(members)
    sides = [member.classic for member in members if member.classic is not None]
    votes = [next(one.name for one in side.protocols if one.name in candidates) for side in sides]
    return max(dict.fromkeys(votes), key=votes.count)


def _common_protocols(members: Sequence[ConsumerMember]) -> list[str]:
    """The protocols that all members of the classic protocol support."""
    sides = [member.classic for member in members if member.classic is not None]
    return [protocol.name for protocol in sides[0].protocols if all(side.supports(protocol.name) for side in sides)]


def _waits_for_others(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether a partition of the member's target is still another member's."""
    return any(
        partition not in member.assigned.get(topic_id, ()) and group.owner(topic_id, partition) is not None
        for topic_id, partitions in group.target(member.member_id).items()
        for partition in partitions
    )
