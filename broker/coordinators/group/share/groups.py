"""ShareGroups: the share groups of a partition. Members come, go and share partitions (KIP-932).

A partition is assigned once the share coordinator keeps a state of it for the group: with the heartbeat that subscribes
to a topic, the coordinator is asked to begin the states of its partitions (`initializing`), and with a later heartbeat
the group gets another epoch and the partitions are shared out. A member has its target assignment at once: records that
another member has acquired stay acquired, so no member has to wait for another.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Final

from broker.coordinators.group.modern.assigning import AssignmentTurns
from broker.coordinators.group.modern.group import LEAVES_EPOCH, NOTHING, Assignment, ModernGroup
from broker.coordinators.group.modern.kinds import Context
from broker.coordinators.group.modern.steps import Step
from broker.coordinators.group.modern.timers import Deadline, MemberTimers
from broker.coordinators.group.modern.unsent import UnsentAssignments
from broker.coordinators.group.records import GroupResult
from broker.coordinators.group.requests import Commit, ListedGroup
from broker.coordinators.group.share import records, states
from broker.coordinators.group.share.assignor import assign
from broker.coordinators.group.share.group import ShareGroup
from broker.coordinators.group.share.group_states import ShareGroupStates, starts_of
from broker.coordinators.group.share.member import ShareMember
from broker.coordinators.group.share.requests import (
    ChangedOffsets,
    DescribedShareGroup,
    DescribedShareMember,
    HeartbeatReply,
    ShareHeartbeat,
    ShareHeartbeatAnswer,
)
from broker.coordinators.result import once
from broker.coordinators.share.persister import SharePersister
from broker.coordinators.write_errors import client_error_of
from protocol.errors import ErrorCode
from protocol.records.group_metadata import GroupRecord

SHARE: Final = "share"


class ShareGroups:
    """A `GroupsOfKind`."""

    def __init__(self, around: Context, persister: Callable[[], SharePersister]) -> None:
        self._around = around
        self._queues = around.queues
        self._topics = around.topics
        self._clock = around.clock
        self.states = ShareGroupStates(around, persister)
        """The states of the groups at the share coordinator."""
        self._timers = MemberTimers(around.wheel, around.clock)
        self._turns = AssignmentTurns(around, "share.assignment.interval.ms")
        self._unsent = UnsentAssignments()
        self._checked: set[str] = set()
        """Groups whose topics have not changed since their hash was computed last."""

    # A `GroupsOfKind` -------------------------------------------------------------------------------------------------

    def loaded(self) -> None:
        """All records of the log are replayed: sessions begin now, and states of topics that are gone are forgotten."""
        for group in list(self._groups()):
            self._unsent.loaded(group.group_id, group.members)
            for member_id in group.members:
                self._begin_session(group.group_id, member_id)
            self.states.forget_topics(group)

    def unload(self, code: ErrorCode) -> None:
        """Cancel all alarms."""
        self._timers.cancel_all()

    def replayed(self, group_id: str) -> None:
        """A record of the group has been replayed."""
        if group_id not in self._around.groups:
            self._checked.discard(group_id)
            self._turns.forget(group_id)
            self._unsent.forget(group_id)
            self.states.forget(group_id)

    def topics_changed(self, names: Collection[str], *, are_new: bool) -> None:
        """Groups that subscribe to the topics look at them again, and forget the states of topics that are gone."""
        for group in list(self._groups()):
            if any(group.subscribes_to(name) for name in names):
                self._checked.discard(group.group_id)
            if not are_new:
                self.states.forget_topics(group)

    def glance(self, group: ModernGroup) -> ListedGroup:
        """The group as ListGroups lists it."""
        assert isinstance(group, ShareGroup)
        return ListedGroup(group.group_id, SHARE, group.state, SHARE, group.member_count)

    def check_commit(self, group: ModernGroup, commit: Commit) -> ErrorCode:
        """A share group has no committed offsets."""
        return ErrorCode.GROUP_ID_NOT_FOUND

    def check_fetch(self, group: ModernGroup, member_id: str | None, member_epoch: int) -> ErrorCode:
        """A share group has no committed offsets, which anybody may find out."""
        return ErrorCode.NONE

    def check_delete_offsets(self, group: ModernGroup) -> ErrorCode:
        """A share group has no committed offsets."""
        return ErrorCode.GROUP_ID_NOT_FOUND

    def check_delete(self, group: ModernGroup) -> ErrorCode:
        """NONE if the group has no members."""
        return ErrorCode.NON_EMPTY_GROUP if group.member_count else ErrorCode.NONE

    def has_expiring_offsets(self, group: ModernGroup) -> bool:
        """A share group stays until it is deleted."""
        return False

    def tombstones(self, group: ModernGroup) -> list[GroupRecord]:
        """The tombstones of all records of the group."""
        assert isinstance(group, ShareGroup)
        found = [one for member_id in group.members for one in records.member_tombstones(group.group_id, member_id)]
        return [*found, *records.group_tombstones(group)]

    def expire_members(self, group: ModernGroup, member: str | None) -> tuple[int, GroupResult | None]:
        """Remove all members, or the one with this member id, as if their sessions were over."""
        assert isinstance(group, ShareGroup)
        gone = list(group.members) if member is None else [one for one in (member,) if one in group.members]
        if not gone:
            return 0, None
        return len(gone), self._fence(group, gone, "its session has expired by a call")

    # Heartbeats -------------------------------------------------------------------------------------------------------

    def heartbeat(self, request: ShareHeartbeat, reply: HeartbeatReply) -> GroupResult | None:
        """Let a member join, go on or leave."""
        if request.member_epoch == LEAVES_EPOCH:
            return self._leave(request, reply)
        group_id = request.group_id
        known = self._around.groups.get(group_id)
        if known is not None and not isinstance(known, ShareGroup):
            return _refuse(reply, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
        if known is None and request.member_epoch != 0:
            return _refuse(reply, ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
        group = ShareGroup(group_id) if known is None else known
        member = group.members.get(request.member_id)
        most = self._around.settings.share_max_size
        if member is None and group.member_count >= most:
            why = f"The share group has reached its maximum capacity of {most} members."
            return _refuse(reply, ErrorCode.GROUP_MAX_SIZE_REACHED, why)
        if member is None and request.member_epoch != 0:
            why = f"Member {request.member_id} is not a member of group {group_id}."
            return _refuse(reply, ErrorCode.UNKNOWN_MEMBER_ID, why)
        if member is not None and (why_fenced := _why_fenced(member, request.member_epoch)) is not None:
            return _refuse(reply, ErrorCode.FENCED_MEMBER_EPOCH, why_fenced)
        return self._go_on(group, member or ShareMember(member_id=request.member_id), request, reply)

    def _go_on(
        self, group: ShareGroup, member: ShareMember, request: ShareHeartbeat, reply: HeartbeatReply
    ) -> GroupResult | None:
        group_id = group.group_id
        found: list[GroupRecord] = []
        updated = dataclasses.replace(
            member,
            rack_id=member.rack_id if request.rack_id is None else request.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            subscribed_topics=(
                member.subscribed_topics if request.subscribed_topics is None else frozenset(request.subscribed_topics)
            ),
        )
        if updated != member:
            found.append(records.member_metadata(group_id, updated))
        names = group.subscribers.copy()
        if member.member_id in group.members:
            names -= _counted(member)
        names += _counted(updated)
        has_new_subscription = updated.subscribed_topics != member.subscribed_topics
        epoch, metadata_hash = group.epoch, group.metadata_hash
        is_raised = has_new_subscription or (group.assignment_epoch >= epoch and _has_unassigned_states(group))
        if is_raised or group_id not in self._checked:
            metadata_hash = self._around.hashes.of_group(names)
            is_raised = is_raised or metadata_hash != group.metadata_hash
        if is_raised:
            epoch += 1
            found.append(records.group_epoch(group_id, epoch, metadata_hash))
            self._around.stats.share_rebalances += 1
        assignment_epoch, target = self._target(group, updated, epoch, found)
        updated = self._reconciled(updated, assignment_epoch, target, is_raised=is_raised)
        if (updated.epoch, updated.assigned) != (member.epoch, member.assigned):
            found.append(records.current(group_id, updated))
        missing = self.states.begin(group, names, found)
        is_unsent = self._unsent.is_unsent(group_id, updated.member_id)
        has_assignment = (
            is_unsent
            or request.member_epoch == 0
            or request.subscribed_topics is not None
            or updated.assigned != member.assigned
        )
        answer = ShareHeartbeatAnswer(
            member_id=updated.member_id,
            member_epoch=updated.epoch,
            heartbeat_interval_ms=self._around.configs(group_id, "share.heartbeat.interval.ms"),
            assignment=updated.assigned if has_assignment else None,
        )
        with_states: Collection[bytes] = ()
        if group.states is not None:
            with_states = {*group.states.initialized, *group.states.initializing}

        def after(stands: bool) -> None:
            if not stands:
                self._checked.discard(group_id)
            elif missing:
                self.states.initialize(group_id, epoch, missing, starts_of(missing, with_states), _nobody_waits)

        def answered(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                _refuse(reply, error, "the records of the group could not be written")
                return
            if answer.assignment is not None:
                self._unsent.told(group_id, updated.member_id)
            reply(answer)

        self._checked.add(group_id)
        self._begin_session(group_id, updated.member_id)
        return Step(found, [after]).result(answered)

    def _target(
        self, group: ShareGroup, updated: ShareMember, epoch: int, found: list[GroupRecord]
    ) -> tuple[int, Assignment]:
        """The assignment epoch, and the target assignment of the member; computed anew where that is due."""
        if group.assignment_epoch >= epoch or not self._turns.is_due(group):
            return group.assignment_epoch, group.target(updated.member_id)
        members = {**group.members, updated.member_id: updated}
        subscriptions = {member_id: self._ids_of(member.subscribed_topics) for member_id, member in members.items()}
        available = NOTHING if group.states is None else states.as_assignment(group.states.initialized)
        targets = assign(subscriptions, group.targets, available)
        for member_id, assignment in targets.items():
            if assignment != group.targets.get(member_id):
                found.append(records.target(group.group_id, member_id, assignment))
        found.append(records.assignment_epoch(group.group_id, epoch, self._clock.now_ms()))
        return epoch, targets[updated.member_id]

    def _reconciled(
        self, member: ShareMember, assignment_epoch: int, target: Assignment, *, is_raised: bool
    ) -> ShareMember:
        """The member with its target assignment."""
        if member.epoch == assignment_epoch and not is_raised:
            return member
        subscribed = self._ids_of(member.subscribed_topics)
        assigned = {topic_id: found for topic_id, found in target.items() if topic_id in subscribed}
        if member.epoch == assignment_epoch:
            return dataclasses.replace(member, assigned=assigned)
        return dataclasses.replace(member, epoch=assignment_epoch, previous_epoch=member.epoch, assigned=assigned)

    def _ids_of(self, names: Iterable[str]) -> frozenset[bytes]:
        topics = (self._topics.of_name(name) for name in names)
        return frozenset(topic.topic_id for topic in topics if topic is not None)

    def _leave(self, request: ShareHeartbeat, reply: HeartbeatReply) -> GroupResult | None:
        group = self._around.groups.get(request.group_id)
        if not isinstance(group, ShareGroup):
            why = f"Group {request.group_id} is not a share group." if group else f"Group {request.group_id} not found."
            return _refuse(reply, ErrorCode.GROUP_ID_NOT_FOUND, why)
        if request.member_id not in group.members:
            why = f"Member {request.member_id} is not a member of group {request.group_id}."
            return _refuse(reply, ErrorCode.UNKNOWN_MEMBER_ID, why)
        answer = ShareHeartbeatAnswer(member_id=request.member_id, member_epoch=request.member_epoch)

        def then(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                reply(answer)
            else:
                _refuse(reply, client_error_of(error), "the records of the group could not be written")

        return self._fence(group, [request.member_id], "it left", then)

    def _fence(
        self,
        group: ShareGroup,
        member_ids: Sequence[str],
        why: str,
        reply: Callable[[ErrorCode], None] = lambda _: None,
    ) -> GroupResult:
        """Remove members. ``reply`` gets REQUEST_TIMED_OUT if the outcome is not known in time."""
        group_id = group.group_id
        names = group.subscribers.copy()
        for member_id in member_ids:
            names -= _counted(group.members[member_id])
        epoch = group.epoch + 1
        found = [one for member_id in member_ids for one in records.member_tombstones(group_id, member_id)]
        found.append(records.group_epoch(group_id, epoch, self._around.hashes.of_group(names)))
        if len(member_ids) == group.member_count:
            found.append(records.assignment_epoch(group_id, epoch, 0))

        reply_once = once(reply)

        def then(error: ErrorCode) -> None:
            for member_id in member_ids:
                if error is ErrorCode.NONE:
                    self._timers.cancel(group_id, member_id)
                    self._around.events.member_removed(group_id, member_id, why)
            reply_once(error)

        return GroupResult(found, then, late=partial(reply_once, ErrorCode.REQUEST_TIMED_OUT))

    # Sessions ---------------------------------------------------------------------------------------------------------

    def _begin_session(self, group_id: str, member_id: str) -> None:
        timeout_ms = self._around.configs(group_id, "share.session.timeout.ms")
        if not self._timers.prolong(group_id, member_id, Deadline.SESSION, timeout_ms):
            self._timers.set(
                group_id, member_id, Deadline.SESSION, timeout_ms, partial(self._session_is_over, group_id, member_id)
            )

    def _session_is_over(self, group_id: str, member_id: str) -> None:
        def decision() -> GroupResult | None:
            group = self._around.groups.get(group_id)
            if not isinstance(group, ShareGroup) or member_id not in group.members:
                return None
            if self._timers.has(group_id, member_id, Deadline.SESSION):
                return None  # it has sent a heartbeat meanwhile
            return self._fence(group, [member_id], "its session has expired", then)

        def then(error: ErrorCode) -> None:
            if error not in (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR):
                self._around.events.write_failed(group_id, f"the end of the session of {member_id}", error.name)
                self._begin_session(group_id, member_id)

        self._queues.decide_unasked(group_id, decision)

    # Administration ---------------------------------------------------------------------------------------------------

    def describe(self, group_id: str) -> DescribedShareGroup | None:
        """The group as it is now; None if there is no such share group."""
        group = self._around.groups.get(group_id)
        if not isinstance(group, ShareGroup):
            return None
        return DescribedShareGroup(
            group_id,
            group.state,
            group.epoch,
            group.assignment_epoch,
            [
                DescribedShareMember(
                    member.member_id,
                    member.rack_id,
                    member.epoch,
                    member.client_id,
                    member.client_host,
                    sorted(member.subscribed_topics),
                    member.assigned,
                )
                for member in group.members.values()
            ],
        )

    def _groups(self) -> Iterable[ShareGroup]:
        return (group for group in self._around.groups.values() if isinstance(group, ShareGroup))


def _refuse(reply: HeartbeatReply, error: ErrorCode, message: str) -> GroupResult | None:
    reply(ShareHeartbeatAnswer(error, message))
    return None


def _nobody_waits(_: ChangedOffsets) -> None:
    """The heartbeat has been answered."""


def _why_fenced(member: ShareMember, epoch: int) -> str | None:
    """Why a member with this epoch is fenced; None if it is not. A member whose last answer was lost has the epoch
    before."""
    if epoch in (0, member.epoch, member.previous_epoch) and epoch <= member.epoch:
        return None
    relation = "greater" if epoch > member.epoch else "smaller"
    return (
        f"The share group member has a {relation} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.epoch}). The member must abandon all its partitions and rejoin."
    )


def _counted(member: ShareMember) -> Counter[str]:
    return Counter(member.subscribed_topics)


def _has_unassigned_states(group: ShareGroup) -> bool:
    """Whether partitions of subscribed topics have their states and no member, or the other way round."""
    if not group.members or group.states is None:
        return False
    assigned: dict[bytes, set[int]] = {}
    for target in group.targets.values():
        for topic_id, partitions in target.items():
            assigned.setdefault(topic_id, set()).update(partitions)
    return any(
        group.subscribes_to(topic.name) and assigned.get(topic_id, set()) != topic.partitions
        for topic_id, topic in group.states.initialized.items()
    )
