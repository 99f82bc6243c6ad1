"""ConsumerGroups: the state machine of consumer groups of the newer protocol (KIP-848).

A heartbeat does three things, each with its records:

1. the member is made or changed; the group epoch grows where that, or a change of topics, asks for new assignments
2. the assignor computes target assignments for the group epoch, if it is this heartbeat's turn (`AssignmentTurns`)
3. the member takes its next step towards its target (`reconciliation`)
"""

from __future__ import annotations

import dataclasses
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from broker.coordinators.group.classic_group import ClassicGroup
from broker.coordinators.group.consumer import records as r
from broker.coordinators.group.consumer.epochs import JOINS, check_epoch, check_heartbeat
from broker.coordinators.group.consumer.group import ConsumerGroup
from broker.coordinators.group.consumer.member import LEFT_FOR_A_WHILE, NOTHING_OWNED, ConsumerMember, MemberState
from broker.coordinators.group.consumer.reconciliation import Target, next_step
from broker.coordinators.group.consumer.regexes import RegexChange, Regexes
from broker.coordinators.group.consumer.requests import (
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    ConsumerHeartbeatReply,
    DescribedConsumerGroup,
)
from broker.coordinators.group.consumer.targets import new_targets, topic_ids
from broker.coordinators.group.membership import Membership
from broker.coordinators.group.modern.assigning import AssignmentTurns
from broker.coordinators.group.modern.deadlines import MemberDeadlines
from broker.coordinators.group.modern.group import NOTHING, ModernGroup
from broker.coordinators.group.modern.kinds import Context
from broker.coordinators.group.modern.refused import HeartbeatRefused, sender, unknown_member
from broker.coordinators.group.modern.steps import OnWritten, Step, nobody
from broker.coordinators.group.modern.timers import Deadline
from broker.coordinators.group.modern.unsent import UnsentAssignments
from broker.coordinators.group.records import GroupResult, group_tombstone
from broker.coordinators.group.requests import NO_GENERATION, Commit, ListedGroup
from protocol.errors import ErrorCode
from protocol.records.group_metadata import GroupRecord


class ConsumerGroups:
    """A `GroupsOfKind` for the consumer groups of a partition."""

    upgrade: Callable[[ClassicGroup], tuple[ConsumerGroup, list[GroupRecord], list[OnWritten]]]
    """Makes a consumer group of a classic group with members; raises `HeartbeatRefused` (`migration`)."""
    may_downgrade: Callable[[ConsumerGroup, Collection[str]], bool]
    downgrade: Callable[[ConsumerGroup, Collection[str]], Step]
    """Makes a classic group of a consumer group without some of its members."""

    def __init__(self, around: Context, classic: Membership) -> None:
        self._around = around
        self._classic = classic
        self.deadlines: MemberDeadlines[ConsumerGroup, ConsumerMember] = MemberDeadlines(
            around, gives_up="partitions", find=self.find, fence=self.fence
        )
        self._looked_at: dict[str, int] = {}
        """The group epoch with which a group has looked at its topics since they changed last."""
        self._regexes = Regexes(around, self._bumped)
        self._turns = AssignmentTurns(around, "consumer.assignment.interval.ms")
        self._unsent = UnsentAssignments()

    def find(self, group_id: str) -> ConsumerGroup | None:
        """The group; None if there is none, or it is of another kind."""
        group = self._around.groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    # The life of the partition ----------------------------------------------------------------------------------------

    def loaded(self) -> None:
        """All records of the log are replayed: sessions begin now."""
        for group in self._around.groups.values():
            if isinstance(group, ConsumerGroup):
                self._unsent.loaded(group.group_id, group.members)
                for member in group.members.values():
                    self.begin_session(group.group_id, member)
                    if member.is_revoking:
                        self.deadlines.expect_revocation(group.group_id, member)

    def unload(self, code: ErrorCode) -> None:
        """Cancel all alarms. No reply is parked outside of the queues."""
        self.deadlines.cancel_all()
        self._regexes.unload()

    def replayed(self, group_id: str) -> None:
        """Forget what is known of a group that is gone."""
        if self.find(group_id) is None:
            self._looked_at.pop(group_id, None)
            self._turns.forget(group_id)
            self._unsent.forget(group_id)

    def topics_changed(self, names: Collection[str], *, are_new: bool) -> None:
        """Let groups that subscribe to the topics look at them with their next heartbeat."""
        if are_new:
            self._regexes.topics_were_created()
        for group in self._around.groups.values():
            if isinstance(group, ConsumerGroup) and any(group.subscribes_to(name) for name in names):
                self._looked_at.pop(group.group_id, None)

    # What others ask --------------------------------------------------------------------------------------------------

    def glance(self, group: ModernGroup) -> ListedGroup:
        """The group as ListGroups lists it."""
        assert isinstance(group, ConsumerGroup)
        return ListedGroup(group.group_id, "consumer", group.state.value, group.kind, len(group.members))

    def describe(self, group: ConsumerGroup) -> DescribedConsumerGroup:
        """The group as administrators see it."""
        return DescribedConsumerGroup(
            group.group_id,
            group.state.value,
            group.epoch,
            group.assignment_epoch,
            self._preferred_assignor(group.assignors),
            [(member, group.target(member.member_id)) for member in group.members.values()],
        )

    def check_commit(self, group: ModernGroup, commit: Commit) -> ErrorCode:
        """NONE if the offsets may be committed: by a member with its epoch, or by nobody to a group without members."""
        assert isinstance(group, ConsumerGroup)
        if commit.generation <= NO_GENERATION and not group.members:
            return ErrorCode.NONE
        is_transactional = commit.transaction is not None
        is_nobody = commit.generation == NO_GENERATION and not commit.member_id and commit.instance_id is None
        if is_transactional and is_nobody:
            return ErrorCode.NONE
        member = group.members.get(commit.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not is_transactional and member.classic is None and not commit.knows_member_epochs:
            return ErrorCode.UNSUPPORTED_VERSION
        if commit.generation < member.epoch and all(
            self._had(member, offset.topic, offset.partition, commit.generation) for offset in commit.offsets
        ):
            # The member has had these partitions since that epoch or longer (KIP-1251).
            return ErrorCode.NONE
        return check_epoch(member, commit.generation)

    def _had(self, member: ConsumerMember, name: str, partition: int, epoch: int) -> bool:
        topic = self._around.topics.of_name(name)
        if topic is None:
            return False
        since = member.assigned.get(topic.topic_id, {}).get(partition)
        if since is None:
            since = member.pending_revocation.get(topic.topic_id, {}).get(partition)
        return since is not None and since <= epoch

    def check_fetch(self, group: ModernGroup, member_id: str | None, member_epoch: int) -> ErrorCode:
        """NONE if the member may read committed offsets."""
        assert isinstance(group, ConsumerGroup)
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        member = group.members.get(member_id or "")
        return ErrorCode.UNKNOWN_MEMBER_ID if member is None else check_epoch(member, member_epoch)

    def check_delete_offsets(self, group: ModernGroup) -> ErrorCode:
        """Offsets of topics that no member reads may be deleted."""
        return ErrorCode.NONE

    def check_delete(self, group: ModernGroup) -> ErrorCode:
        """NONE if the group may be deleted by request."""
        return ErrorCode.NON_EMPTY_GROUP if group.member_count else ErrorCode.NONE

    def has_expiring_offsets(self, group: ModernGroup) -> bool:
        """Offsets expire as those of classic groups."""
        return True

    def tombstones(self, group: ModernGroup) -> list[GroupRecord]:
        """The tombstones of all records of the group."""
        assert isinstance(group, ConsumerGroup)
        return r.group_tombstones(group.group_id, group.members, group.resolved)

    def expire_members(self, group: ModernGroup, member: str | None) -> tuple[int, GroupResult | None]:
        """Remove members as if nothing had been heard of them."""
        assert isinstance(group, ConsumerGroup)
        found = [one for one in group.members.values() if member in (None, one.member_id, one.instance_id)]
        if not found:
            return 0, None
        step = self.fence(group, found, "nothing has been heard of it for too long")
        return len(found), step.result(nobody)

    # Heartbeats -------------------------------------------------------------------------------------------------------

    def heartbeat(self, heartbeat: ConsumerHeartbeat, reply: ConsumerHeartbeatReply) -> GroupResult | None:
        """Handle a ConsumerGroupHeartbeat. To be called when no records of the group are in flight."""
        try:
            step, answer = self._leave(heartbeat) if heartbeat.member_epoch < JOINS else self._heartbeat(heartbeat)
        except HeartbeatRefused as refused:
            self._classic.keeps(heartbeat.group_id)
            reply(ConsumerHeartbeatAnswer(error=refused.code, message=refused.message))
            return None

        def answered(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                reply(ConsumerHeartbeatAnswer(error=error))
                return
            if answer.member_id is not None and answer.assignment is not None:
                self._unsent.told(heartbeat.group_id, answer.member_id)
            reply(answer)

        return step.result(answered)

    def _heartbeat(self, heartbeat: ConsumerHeartbeat) -> tuple[Step, ConsumerHeartbeatAnswer]:
        group, records, on_written = self._group_for(heartbeat)
        self.check_room(group, heartbeat.member_id, heartbeat.instance_id)
        member, replaced = self._member_for(group, heartbeat, records)
        updated = _told(member, heartbeat)
        updated = self.step(
            group, member, updated, replaced, records, on_written, owned=heartbeat.owned, heartbeat=heartbeat
        )
        self.begin_session(heartbeat.group_id, updated)
        is_full = (
            heartbeat.rebalance_timeout_ms != -1
            and (heartbeat.topics is not None or heartbeat.regex is not None)
            and heartbeat.owned is not None
        )
        is_unsent = self._unsent.is_unsent(group.group_id, updated.member_id)
        shows_assignment = (
            is_unsent or heartbeat.member_epoch == JOINS or is_full or updated.assigned != member.assigned
        )
        answer = ConsumerHeartbeatAnswer(
            member_id=updated.member_id,
            member_epoch=updated.epoch,
            heartbeat_interval_ms=self._around.configs(heartbeat.group_id, "consumer.heartbeat.interval.ms"),
            assignment=updated.assigned if shows_assignment else None,
        )
        return Step(records, on_written), answer

    def step(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        updated: ConsumerMember,
        replaced: ConsumerMember | None,
        records: list[GroupRecord],
        on_written: list[OnWritten],
        *,
        owned: Mapping[bytes, frozenset[int]] | None,
        heartbeat: ConsumerHeartbeat | None,
    ) -> ConsumerMember:
        """Take a member that was just changed (from ``member`` to ``updated``) through the three parts of a heartbeat,
        and add the records. Returns the member as it is then.

        ``heartbeat`` is None of a member of the classic protocol.
        """
        if updated is not member and updated != member:
            records.append(r.member_record(group.group_id, updated))
        has_new_names = updated.subscribed_topics != member.subscribed_topics
        regex_change = self._regexes.change(group, member, updated, heartbeat, records, on_written)
        epoch = group.epoch
        has_new_assignor = heartbeat is not None and self._has_new_assignor(group, replaced or member, updated)
        grows = has_new_names or has_new_assignor or regex_change is RegexChange.RESOLVED
        if heartbeat is None:
            grows = grows or regex_change is not RegexChange.NONE
        if grows or self._has_to_look(group):
            epoch = self._look_at_topics(group, {(replaced or member).member_id: updated}, records, grows=grows)
        target = self._target(group, epoch, updated, replaced, records)
        has_new_subscription = has_new_names or regex_change is not RegexChange.NONE
        return self._reconcile(group, updated, target, records, on_written, owned, has_new_subscription)

    def _group_for(self, heartbeat: ConsumerHeartbeat) -> tuple[ConsumerGroup, list[GroupRecord], list[OnWritten]]:
        """The group of a member that joins or is alive; a new group where it joins one that does not exist."""
        group = self.find(heartbeat.group_id)
        if group is not None:
            return group, [], []
        joins = heartbeat.member_epoch == JOINS
        if heartbeat.group_id in self._around.groups:
            raise HeartbeatRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {heartbeat.group_id} is not a consumer group.")
        classic = self._classic.find(heartbeat.group_id)
        if classic is None:
            if not joins:
                raise HeartbeatRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {heartbeat.group_id} not found.")
            return ConsumerGroup(heartbeat.group_id), [], []
        if not joins:
            raise HeartbeatRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {heartbeat.group_id} is not a consumer group.")
        if not classic.members:
            after = self._classic.hands_over(heartbeat.group_id)
            return ConsumerGroup(heartbeat.group_id), [group_tombstone(heartbeat.group_id)], [after]
        return self.upgrade(classic)

    def check_room(self, group: ConsumerGroup, member_id: str, instance_id: str | None) -> None:
        """Raises `HeartbeatRefused` for one member too many."""
        most = self._around.settings.consumer_max_size
        if instance_id is not None and instance_id in group.members_by_instance:
            return
        if len(group.members) >= most and member_id not in group.members:
            raise HeartbeatRefused(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {most} members.",
            )

    def _member_for(
        self, group: ConsumerGroup, heartbeat: ConsumerHeartbeat, records: list[GroupRecord]
    ) -> tuple[ConsumerMember, ConsumerMember | None]:
        """The member that sends the heartbeat, new or known, and the static member whose place it takes."""
        joins = heartbeat.member_epoch == JOINS
        if heartbeat.instance_id is None:
            known = group.members.get(heartbeat.member_id)
            if known is None:
                if not joins:
                    raise unknown_member(group.group_id, heartbeat.member_id)
                return ConsumerMember(member_id=heartbeat.member_id), None
            check_heartbeat(known, heartbeat)
            return known, None
        static = group.static_member(heartbeat.instance_id)
        if not joins:
            static = sender(group, heartbeat.member_id, heartbeat.instance_id)
            check_heartbeat(static, heartbeat)
            return static, None
        if static is None:
            return group.members.get(heartbeat.member_id) or ConsumerMember(member_id=heartbeat.member_id), None
        if static.classic is None and static.epoch != LEFT_FOR_A_WHILE:
            raise HeartbeatRefused(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {heartbeat.member_id} with instance id {heartbeat.instance_id} cannot join the group "
                f"because the instance id is owned by {static.member_id} member.",
            )
        return self.replace(group, static, heartbeat.member_id, records), static

    def replace(
        self, group: ConsumerGroup, static: ConsumerMember, member_id: str, records: list[GroupRecord]
    ) -> ConsumerMember:
        """Give the place of a static member to a new member id: all but the epoch stays."""
        new = dataclasses.replace(static, member_id=member_id, epoch=0, previous_epoch=0)
        records += r.removal(group.group_id, static.member_id)
        records.append(r.member_record(group.group_id, new))
        records.append(r.target_record(group.group_id, member_id, group.target(static.member_id)))
        records.append(r.current_record(group.group_id, new))
        self._around.events.member_fenced(group.group_id, static.instance_id or "", static.member_id)
        return new

    # Epochs -----------------------------------------------------------------------------------------------------------

    def _has_to_look(self, group: ConsumerGroup) -> bool:
        """Whether topics of the group may have changed since it has looked at them, or the epoch record with what it
        saw has failed."""
        seen = self._looked_at.get(group.group_id)
        return seen is None or group.epoch < seen

    def _look_at_topics(
        self,
        group: ConsumerGroup,
        changes: Mapping[str, ConsumerMember | None],
        records: list[GroupRecord],
        *,
        grows: bool,
    ) -> int:
        """Compute the hash of the group's topics with members changed (None: gone). The epoch grows if ``grows``, or if
        the hash is another. Returns the group epoch."""
        hashed = self._around.hashes.of_group(topics_with(group, changes))
        epoch = group.epoch
        if grows or hashed != group.metadata_hash:
            epoch += 1
            records.append(self._bumped(group, epoch, hashed))
        self._looked_at[group.group_id] = epoch
        if group.has_partition_metadata:
            records.append(r.partition_metadata_tombstone(group.group_id))
        return epoch

    def _bumped(self, group: ConsumerGroup, epoch: int, hashed: int) -> GroupRecord:
        """The record of a new group epoch."""
        self._around.stats.consumer_rebalances += 1
        self._looked_at[group.group_id] = epoch
        return r.epoch_record(group.group_id, epoch, hashed)

    def _target(
        self,
        group: ConsumerGroup,
        epoch: int,
        updated: ConsumerMember,
        replaced: ConsumerMember | None,
        records: list[GroupRecord],
    ) -> Target:
        """The member's target assignment, computed anew if the group epoch is ahead and it is this heartbeat's turn."""
        if epoch <= group.assignment_epoch or not self._turns.is_due(group):
            before = updated.member_id if replaced is None else replaced.member_id
            return Target(group.assignment_epoch, group.target(before))
        assignors = _assignors_with(group, replaced or group.members.get(updated.member_id), updated)
        target, changes = new_targets(
            group,
            epoch,
            assignor=self._preferred_assignor(assignors),
            updated=updated,
            replaced=None if replaced is None or replaced.member_id == updated.member_id else replaced.member_id,
            topics=self._around.topics,
            now_ms=self._around.clock.now_ms(),
        )
        records += changes
        return Target(epoch, target)

    def _preferred_assignor(self, wanted: Counter[str]) -> str:
        """The assignor that most members want; of equals, and without any wish, the first of the setting."""
        names = self._around.settings.consumer_assignors
        return max(names, key=lambda name: wanted.get(name, 0))

    def _has_new_assignor(self, group: ConsumerGroup, member: ConsumerMember, updated: ConsumerMember) -> bool:
        if updated.assignor == member.assignor and member.member_id in group.members:
            return False
        known = group.members.get(member.member_id)
        return self._preferred_assignor(_assignors_with(group, known, updated)) != self._preferred_assignor(
            group.assignors
        )

    def _reconcile(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        target: Target,
        records: list[GroupRecord],
        on_written: list[OnWritten],
        owned: Mapping[bytes, frozenset[int]] | None,
        has_new_subscription: bool,
    ) -> ConsumerMember:
        if not has_new_subscription and member.is_at(target.epoch):
            return member
        if member.state is MemberState.UNKNOWN and owned != NOTHING:
            raise HeartbeatRefused(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The consumer group member is in a unknown state. The member must abandon all its partitions and "
                "rejoin.",
            )
        stepped = next_step(
            member,
            target,
            topics=lambda: topic_ids(group.topics_of(member), self._around.topics),
            is_taken=lambda topic_id, partition: group.owner(topic_id, partition) is not None,
            owned=owned,
            has_new_subscription=has_new_subscription,
        )
        if stepped == member:
            loses = member.is_revoking and member.classic is None
            if loses and not self.deadlines.has(group.group_id, member.member_id, Deadline.REVOCATION):
                # It had to when it used the classic protocol, whose members have to join again in time instead.
                on_written.append(partial(self.deadlines.watch_revocation, group.group_id, member))
            return member
        records.append(r.current_record(group.group_id, stepped))
        if member.classic is None:
            on_written.append(partial(self.deadlines.watch_revocation, group.group_id, stepped))
        return stepped

    # Timers -----------------------------------------------------------------------------------------------------------

    def begin_session(self, group_id: str, member: ConsumerMember) -> None:
        """Begin the member's session anew."""
        timeout_ms = (
            self._around.configs(group_id, "consumer.session.timeout.ms")
            if member.classic is None
            else member.classic.session_timeout_ms
        )
        self.deadlines.expect_session(group_id, member.member_id, timeout_ms)

    def new_member_id(self) -> str:
        """An id for a member that brings none, as Kafka writes ids."""
        return urlsafe_b64encode(self._around.ids.uuid()).decode().rstrip("=")

    # Going ------------------------------------------------------------------------------------------------------------

    def _leave(self, heartbeat: ConsumerHeartbeat) -> tuple[Step, ConsumerHeartbeatAnswer]:
        group = self.find(heartbeat.group_id)
        if group is None:
            if heartbeat.group_id in self._around.groups or self._classic.find(heartbeat.group_id) is not None:
                raise HeartbeatRefused(
                    ErrorCode.GROUP_ID_NOT_FOUND, f"Group {heartbeat.group_id} is not a consumer group."
                )
            raise HeartbeatRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {heartbeat.group_id} not found.")
        member = sender(group, heartbeat.member_id, heartbeat.instance_id)
        answer = ConsumerHeartbeatAnswer(member_id=heartbeat.member_id, member_epoch=heartbeat.member_epoch)
        if heartbeat.instance_id is not None and heartbeat.member_epoch == LEFT_FOR_A_WHILE:
            gone = dataclasses.replace(
                member,
                epoch=LEFT_FOR_A_WHILE,
                # Whoever takes the member's place may commit in any epoch.
                assigned={topic_id: dict.fromkeys(partitions, 0) for topic_id, partitions in member.assigned.items()},
                pending_revocation=NOTHING_OWNED,
            )
            return Step([r.current_record(group.group_id, gone)]), answer
        return self.fence(group, [member], "it has left"), answer

    def fence(self, group: ConsumerGroup, members: Sequence[ConsumerMember], why: str) -> Step:
        """Remove members, and let the group epoch grow; or make a classic group of those that remain."""
        if self.may_downgrade(group, [member.member_id for member in members]):
            return self.downgrade(group, [member.member_id for member in members])
        records = [record for member in members for record in r.removal(group.group_id, member.member_id)]
        gone: dict[str, ConsumerMember | None] = dict.fromkeys(member.member_id for member in members)
        leaving = Counter(member.subscribed_regex for member in members if member.subscribed_regex)
        records += [
            r.regex_tombstone(group.group_id, regex)
            for regex, count in leaving.items()
            if group.regexes[regex] == count
        ]
        hashed = self._around.hashes.of_group(topics_with(group, gone))
        records.append(self._bumped(group, group.epoch + 1, hashed))
        if len(members) == len(group.members):
            # Nobody is left to be assigned anything: the group is not behind its epoch.
            records.append(r.assignment_epoch_record(group.group_id, group.epoch + 1, 0))

        def after(stands: bool) -> None:
            for member in members if stands else ():
                self.deadlines.cancel(group.group_id, member.member_id)
                self._around.events.member_removed(group.group_id, member.member_id, why)

        return Step(records, [after])


def topics_with(group: ConsumerGroup, changes: Mapping[str, ConsumerMember | None]) -> set[str]:
    """The names of the topics that the group subscribes to with members changed; None: the member is gone."""
    names, regexes = Counter[str](), Counter[str]()
    for member_id, new in changes.items():
        old = group.members.get(member_id)
        if old is not None:
            names.subtract(old.subscribed_topics)
            regexes.subtract([old.subscribed_regex])
        if new is not None:
            names.update(new.subscribed_topics)
            regexes.update([new.subscribed_regex])
    subscribed = set(group.subscribers)
    for name, change in names.items():
        if change > 0:
            subscribed.add(name)
        elif group.subscribers[name] + change <= 0:
            subscribed.discard(name)
    for regex, resolved in group.resolved.items():
        if group.regexes[regex] + regexes[regex] > 0:
            subscribed |= resolved.topics
    return subscribed


def _told(member: ConsumerMember, heartbeat: ConsumerHeartbeat) -> ConsumerMember:
    """The member with what the heartbeat says of it; the same object if that is nothing, as in most heartbeats."""
    if (
        heartbeat.topics is None
        and heartbeat.regex is None
        and heartbeat.assignor is None
        and heartbeat.rack_id is None
        and heartbeat.rebalance_timeout_ms == -1
        and heartbeat.instance_id in (None, member.instance_id)
        and heartbeat.client_id == member.client_id
        and heartbeat.client_host == member.client_host
        and member.classic is None
    ):
        return member
    return dataclasses.replace(
        member,
        instance_id=heartbeat.instance_id if heartbeat.instance_id is not None else member.instance_id,
        rack_id=heartbeat.rack_id if heartbeat.rack_id is not None else member.rack_id,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms if heartbeat.rebalance_timeout_ms == -1 else heartbeat.rebalance_timeout_ms
        ),
        assignor=heartbeat.assignor if heartbeat.assignor is not None else member.assignor,
        subscribed_topics=member.subscribed_topics if heartbeat.topics is None else frozenset(heartbeat.topics),
        subscribed_regex=member.subscribed_regex if heartbeat.regex is None else heartbeat.regex,
        client_id=heartbeat.client_id,
        client_host=heartbeat.client_host,
        classic=None,
    )


def _assignors_with(group: ConsumerGroup, old: ConsumerMember | None, new: ConsumerMember) -> Counter[str]:
    """How many members want each assignor, with a member changed."""
    wanted = group.assignors.copy()
    if old is not None and old.assignor is not None:
        wanted[old.assignor] -= 1
    if new.assignor is not None:
        wanted[new.assignor] += 1
    return wanted
