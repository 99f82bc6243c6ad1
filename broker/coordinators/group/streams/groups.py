"""StreamsGroups: the state machine of streams groups (KIP-1071).

A heartbeat does five things, each with its records:

1. the member is made or changed
2. the group gets its topology from the first member
3. the topology is compared with the topics of the cluster; the group epoch grows where any of this, the group's configs
   or a change of topics asks for new assignments
4. the assignor computes target assignments for the group epoch, at most once in each assignment interval, and for a
   group without members only when the initial rebalance delay is over
5. the member takes its next step towards its target (`reconciliation`)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from broker.coordinators.group.membership import Membership
from broker.coordinators.group.modern.assigning import AssignmentTurns
from broker.coordinators.group.modern.deadlines import MemberDeadlines
from broker.coordinators.group.modern.group import ModernGroup
from broker.coordinators.group.modern.kinds import Context
from broker.coordinators.group.modern.refused import HeartbeatRefused, sender
from broker.coordinators.group.modern.steps import OnWritten, Step, nobody
from broker.coordinators.group.modern.unsent import UnsentAssignments
from broker.coordinators.group.records import GroupResult, group_tombstone
from broker.coordinators.group.requests import NO_GENERATION, Commit, ListedGroup
from broker.coordinators.group.streams import records as r
from broker.coordinators.group.streams.endpoints import EndpointViews
from broker.coordinators.group.streams.epochs import check_epoch, check_tasks, has_since
from broker.coordinators.group.streams.group import StreamsGroup
from broker.coordinators.group.streams.member import (
    LEFT_FOR_A_WHILE,
    NOTHING,
    NOTHING_HELD,
    StreamsMember,
    Tasks,
)
from broker.coordinators.group.streams.reconciliation import Target, UnknownState, next_step
from broker.coordinators.group.streams.reports import Report, Reports
from broker.coordinators.group.streams.requests import (
    DescribedStreamsGroup,
    DescribedStreamsMember,
    StreamsHeartbeat,
    StreamsHeartbeatAnswer,
    StreamsHeartbeatReply,
)
from broker.coordinators.group.streams.statuses import (
    delayed,
    missing_client_tags,
    missing_tags,
    shutdown,
    stale_topology,
)
from broker.coordinators.group.streams.targets import new_targets
from broker.coordinators.group.streams.topology import (
    Configured,
    InvalidTopology,
    Status,
    Topology,
    configure,
)
from broker.runtime.clock import Alarm
from protocol.errors import ErrorCode
from protocol.records.group_metadata import GroupRecord
from storage.sentinels import NO_EPOCH

JOINS: Final = 0
"""The epoch with which a member joins."""


class StreamsGroups:
    """A `GroupsOfKind` for the streams groups of a partition."""

    def __init__(self, around: Context, classic: Membership) -> None:
        self._around = around
        self._classic = classic
        self._deadlines: MemberDeadlines[StreamsGroup, StreamsMember] = MemberDeadlines(
            around, gives_up="tasks", find=self.find, fence=self._fence
        )
        self._configured: dict[str, tuple[Topology, Configured]] = {}
        """Topologies, each with what follows from the topics as they were when they changed last."""
        self._turns = AssignmentTurns(around, "streams.assignment.interval.ms")
        self._unsent = UnsentAssignments()
        self._delays: dict[str, Alarm] = {}
        """Groups whose first assignment waits for more members."""
        self._shutdowns: dict[str, str] = {}
        """The member of each group that wants the whole application to stop."""
        self._reports = Reports()
        self._endpoints = EndpointViews(around.groups, around.topics)

    def find(self, group_id: str) -> StreamsGroup | None:
        """The group; None if there is none, or it is of another kind."""
        group = self._around.groups.get(group_id)
        return group if isinstance(group, StreamsGroup) else None

    # The life of the partition ----------------------------------------------------------------------------------------

    def loaded(self) -> None:
        """All records of the log are replayed: sessions begin now."""
        for group in self._groups():
            self._unsent.loaded(group.group_id, group.members)
            for member in group.members.values():
                self._begin_session(group.group_id, member.member_id)
                if member.is_revoking:
                    self._deadlines.expect_revocation(group.group_id, member)

    def unload(self, code: ErrorCode) -> None:
        """Cancel all alarms. No reply is parked outside of the queues."""
        self._deadlines.cancel_all()
        delays, self._delays = self._delays, {}
        for alarm in delays.values():
            alarm.cancel()

    def replayed(self, group_id: str) -> None:
        """Forget what is known of a group that has no members any more, or is gone."""
        group = self.find(group_id)
        if group is None or not group.members:
            self._shutdowns.pop(group_id, None)
        if group is None:
            self._configured.pop(group_id, None)
            self._turns.forget(group_id)
            self._unsent.forget(group_id)
            self._endpoints.forget(group_id)

    def topics_changed(self, names: Collection[str], *, are_new: bool) -> None:
        """Let groups that need the topics look at them with their next heartbeat."""
        for group_id, (topology, _) in list(self._configured.items()):
            if not topology.required_topics().isdisjoint(names):
                del self._configured[group_id]

    # What others ask --------------------------------------------------------------------------------------------------

    def glance(self, group: ModernGroup) -> ListedGroup:
        """The group as ListGroups lists it."""
        assert isinstance(group, StreamsGroup)
        return ListedGroup(group.group_id, group.kind, group.state.value, group.kind, group.member_count)

    def describe(self, group: StreamsGroup) -> DescribedStreamsGroup:
        """The group as administrators see it."""
        topology, configured = self._configured.get(group.group_id, (None, None))
        return DescribedStreamsGroup(
            group.group_id,
            group.state.value,
            group.epoch,
            group.assignment_epoch,
            self._assignor(group.group_id),
            group.topology,
            configured if topology == group.topology else None,
            [
                DescribedStreamsMember(member, group.target(member_id), *self._reports.of(group.group_id, member_id))
                for member_id, member in group.members.items()
            ],
        )

    def check_commit(self, group: ModernGroup, commit: Commit) -> ErrorCode:
        """NONE if the offsets may be committed: by a member with its epoch, or by nobody to a group without members."""
        assert isinstance(group, StreamsGroup)
        if commit.generation <= NO_GENERATION and not group.members:
            return ErrorCode.NONE
        is_transactional = commit.transaction is not None
        is_nobody = commit.generation == NO_GENERATION and not commit.member_id and commit.instance_id is None
        if is_transactional and is_nobody:
            return ErrorCode.NONE
        member = group.members.get(commit.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not is_transactional and not commit.knows_member_epochs:
            return ErrorCode.UNSUPPORTED_VERSION
        if commit.generation == member.epoch:
            return ErrorCode.NONE
        if commit.generation < member.epoch and group.topology is not None:
            # The member has had these tasks since that epoch or longer (KIP-1251).
            subtopologies = {name: one.subtopology_id for one in group.topology.subtopologies for name in one.inputs}
            if all(
                has_since(member, subtopologies.get(offset.topic), offset.partition, commit.generation)
                for offset in commit.offsets
            ):
                return ErrorCode.NONE
        return ErrorCode.STALE_MEMBER_EPOCH

    def check_fetch(self, group: ModernGroup, member_id: str | None, member_epoch: int) -> ErrorCode:
        """NONE if the member may read committed offsets."""
        assert isinstance(group, StreamsGroup)
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        member = group.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member.epoch == member_epoch else ErrorCode.STALE_MEMBER_EPOCH

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
        assert isinstance(group, StreamsGroup)
        return r.group_tombstones(group)

    def expire_members(self, group: ModernGroup, member: str | None) -> tuple[int, GroupResult | None]:
        """Remove members as if nothing had been heard of them."""
        assert isinstance(group, StreamsGroup)
        found = [one for one in group.members.values() if member in (None, one.member_id, one.instance_id)]
        if not found:
            return 0, None
        return len(found), self._fence(group, found, "nothing has been heard of it for too long").result(nobody)

    # Heartbeats -------------------------------------------------------------------------------------------------------

    def heartbeat(self, heartbeat: StreamsHeartbeat, reply: StreamsHeartbeatReply) -> GroupResult | None:
        """Handle a StreamsGroupHeartbeat. To be called when no records of the group are in flight."""
        try:
            step, answer = self._leave(heartbeat) if heartbeat.member_epoch < JOINS else self._heartbeat(heartbeat)
        except HeartbeatRefused as refused:
            self._classic.keeps(heartbeat.group_id)
            reply(StreamsHeartbeatAnswer(error=refused.code, message=refused.message))
            return None
        except InvalidTopology as invalid:
            self._classic.keeps(heartbeat.group_id)
            reply(StreamsHeartbeatAnswer(error=ErrorCode.STREAMS_INVALID_TOPOLOGY, message=str(invalid)))
            return None

        def answered(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                reply(StreamsHeartbeatAnswer(error=error))
                return
            if answer.tasks is not None:
                self._unsent.told(heartbeat.group_id, answer.member_id)
            reply(answer)

        return step.result(answered)

    def _heartbeat(self, heartbeat: StreamsHeartbeat) -> tuple[Step, StreamsHeartbeatAnswer]:
        group, records, on_written = self._group_for(heartbeat)
        member, replaced = self._member_for(group, heartbeat, records)
        if replaced is not None and replaced.member_id != member.member_id:
            on_written.append(partial(self._reports.forget, group.group_id, replaced.member_id))
        updated = _updated(member, heartbeat)
        if updated != member:
            records.append(r.member_record(group.group_id, updated))
        grows = updated != member and (heartbeat.instance_id is None or _changes_assignment(member, updated))
        topology = self._topology(group, heartbeat, records)
        statuses: list[Status] = []
        if group.topology is not None and updated.topology_epoch < group.topology.epoch:
            statuses.append(stale_topology(updated.topology_epoch, group.topology.epoch))
        configured, hashed = self._look_at_topics(group, topology, on_written)
        validated = topology.epoch if configured.is_ready else NO_EPOCH
        if configured.is_ready:
            check_tasks(configured, heartbeat.owned)
        reported = self._reports.with_beat(heartbeat, updated.member_id)
        on_written.append(partial(self._reports.keep, group.group_id, updated.member_id, reported))
        configs = self._assignment_configs(group.group_id)
        epoch = group.epoch
        if (
            grows
            or hashed != group.metadata_hash
            or validated != group.validated_topology_epoch
            or configs != group.assignment_configs
        ):
            epoch += 1
            self._around.stats.streams_rebalances += 1
            records.append(r.epoch_record(group, epoch, hashed, validated, configs))
        if not group.members:
            self._delay(group.group_id)
        target = self._target(group, epoch, updated, replaced, configured, configs, reported, records, statuses)
        reconciled = self._reconcile(group, updated, target, heartbeat.owned, records, on_written)
        self._begin_session(group.group_id, updated.member_id)
        if heartbeat.shuts_down:
            self._shutdowns.setdefault(group.group_id, updated.member_id)
        if configured.problem is not None:
            statuses.append(configured.problem)
        if (asked_by := self._shutdowns.get(group.group_id)) is not None:
            statuses.append(shutdown(asked_by))
        if heartbeat.knows_missing_tags and (tags := missing_tags(configs, updated)):
            statuses.append(missing_client_tags(tags))
        is_unsent = self._unsent.is_unsent(group.group_id, reconciled.member_id)
        has_other_tasks = reconciled.assigned != member.assigned
        has_other_endpoint = replaced is None and reconciled.endpoint != member.endpoint
        endpoint_epoch, endpoints = self._endpoints.seen_by(
            group,
            reconciled,
            configured,
            heartbeat.endpoint_epoch,
            is_changed=heartbeat.member_epoch == JOINS or has_other_tasks or has_other_endpoint,
        )
        answer = StreamsHeartbeatAnswer(
            member_id=reconciled.member_id,
            member_epoch=reconciled.epoch,
            heartbeat_interval_ms=self._around.configs(group.group_id, "streams.heartbeat.interval.ms"),
            task_offset_interval_ms=self._around.configs(group.group_id, "streams.task.offset.interval.ms"),
            acceptable_recovery_lag=self._around.configs(group.group_id, "streams.acceptable.recovery.lag"),
            statuses=statuses,
            tasks=reconciled.assigned if is_unsent or heartbeat.member_epoch == JOINS or has_other_tasks else None,
            endpoint_epoch=endpoint_epoch,
            endpoints=endpoints,
            missing=configured.missing,
        )
        return Step(records, on_written), answer

    def _group_for(self, heartbeat: StreamsHeartbeat) -> tuple[StreamsGroup, list[GroupRecord], list[OnWritten]]:
        """The group of a member that joins or is alive; a new group where it joins one that does not exist."""
        group = self.find(heartbeat.group_id)
        if group is not None:
            self._check_room(group, heartbeat)
            return group, [], []
        if heartbeat.group_id in self._around.groups:
            raise HeartbeatRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {heartbeat.group_id} is not a streams group.")
        classic = self._classic.find(heartbeat.group_id)
        if classic is None and heartbeat.member_epoch != JOINS:
            raise HeartbeatRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"Streams group {heartbeat.group_id} not found.")
        if classic is None:
            return StreamsGroup(heartbeat.group_id), [], []
        if classic.members or heartbeat.member_epoch != JOINS:
            raise HeartbeatRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {heartbeat.group_id} is not a streams group.")
        after = self._classic.hands_over(heartbeat.group_id)
        return StreamsGroup(heartbeat.group_id), [group_tombstone(heartbeat.group_id)], [after]

    def _check_room(self, group: StreamsGroup, heartbeat: StreamsHeartbeat) -> None:
        """Raises `HeartbeatRefused` for one member too many."""
        most = self._around.settings.streams_max_size
        is_known = heartbeat.member_id in group.members or heartbeat.instance_id in group.members_by_instance
        if heartbeat.member_epoch == JOINS and not is_known and group.member_count >= most:
            raise HeartbeatRefused(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The streams group has reached its maximum capacity of {most} members.",
            )

    def _member_for(
        self, group: StreamsGroup, heartbeat: StreamsHeartbeat, records: list[GroupRecord]
    ) -> tuple[StreamsMember, StreamsMember | None]:
        """The member that sends the heartbeat, new or known, and the static member whose place it takes."""
        joins = heartbeat.member_epoch == JOINS
        if not joins:
            member = sender(group, heartbeat.member_id, heartbeat.instance_id)
            check_epoch(member, heartbeat)
            return member, None
        static = group.static_member(heartbeat.instance_id)
        if static is None:
            return group.members.get(heartbeat.member_id) or StreamsMember(member_id=heartbeat.member_id), None
        if static.epoch != LEFT_FOR_A_WHILE:
            raise HeartbeatRefused(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {heartbeat.member_id} with instance id {heartbeat.instance_id} cannot join the group "
                f"because the instance id is owned by {static.member_id} member.",
            )
        new = dataclasses.replace(static, member_id=heartbeat.member_id, epoch=0, previous_epoch=0)
        records += r.removal(group.group_id, static.member_id)
        records.append(r.member_record(group.group_id, new))
        records.append(r.target_record(group.group_id, new.member_id, group.target(static.member_id)))
        records.append(r.current_record(group.group_id, new))
        self._around.events.member_fenced(group.group_id, static.instance_id or "", static.member_id)
        return new, static

    def _topology(self, group: StreamsGroup, heartbeat: StreamsHeartbeat, records: list[GroupRecord]) -> Topology:
        """The group's topology: that of its first member."""
        if group.topology is None:
            if heartbeat.topology is None:
                # The log of a broker that was cut off: the client comes again with its topology.
                raise HeartbeatRefused(ErrorCode.UNKNOWN_MEMBER_ID, "The group has lost its topology. Join it again.")
            records.append(r.topology_record(group.group_id, heartbeat.topology))
            return heartbeat.topology
        is_new = heartbeat.topology is not None and group.topology.epoch <= heartbeat.topology.epoch
        if is_new and heartbeat.topology is not None and not group.topology.same(heartbeat.topology):
            raise HeartbeatRefused(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
        return group.topology

    def _look_at_topics(
        self, group: StreamsGroup, topology: Topology, on_written: list[OnWritten]
    ) -> tuple[Configured, int]:
        """The topology against the topics of the cluster, and the hash of these topics."""
        known = self._configured.get(group.group_id)
        if known is not None and known[0] == topology:
            return known[1], group.metadata_hash
        hashed = self._around.hashes.of_group(topology.required_topics())

        def count(name: str) -> int | None:
            topic = self._around.topics.of_name(name)
            return None if topic is None else topic.partitions

        configured = configure(topology, count)
        version = self._around.topics.version

        def after(stands: bool) -> None:
            # Topics that have changed while the record was written are looked at again.
            known = self.find(group.group_id)
            if stands and self._around.topics.version == version and known is not None and known.topology == topology:
                self._configured[group.group_id] = known.topology, configured

        on_written.append(after)
        return configured, hashed

    # Assignments ------------------------------------------------------------------------------------------------------

    def _assignment_configs(self, group_id: str) -> dict[str, str]:
        """The configs of the group that assignments depend on, as the record of the group epoch has them."""
        configs = {"num.standby.replicas": str(self._around.configs(group_id, "streams.num.standby.replicas"))}
        if tags := self._around.configs(group_id, "streams.rack.aware.assignment.tags"):
            configs["rack.aware.assignment.tags"] = ",".join(tags)
        return configs

    def _assignor(self, group_id: str) -> str:
        """The name of the group's assignor."""
        return self._around.configs(group_id, "streams.assignor.name") or self._around.settings.streams_assignors[0]

    def _delay(self, group_id: str) -> None:
        """Let the first assignment wait for more members."""
        delay_ms = self._around.configs(group_id, "streams.initial.rebalance.delay.ms")
        if delay_ms and group_id not in self._delays:
            self._delays[group_id] = self._around.wheel.add_after(delay_ms, partial(self._delay_is_over, group_id))

    def _delay_is_over(self, group_id: str) -> None:
        del self._delays[group_id]

        def decision() -> GroupResult | None:
            group = self.find(group_id)
            if group is None or not group.members or group.topology is None or group.epoch <= group.assignment_epoch:
                return None
            on_written: list[OnWritten] = []
            try:
                configured, _ = self._look_at_topics(group, group.topology, on_written)
            except InvalidTopology:
                return None
            configs = self._assignment_configs(group_id)
            _, records = new_targets(
                group,
                group.epoch,
                updated=None,
                replaced=None,
                configured=configured,
                standbys=int(configs["num.standby.replicas"]),
                offsets_of=self._reports.offsets_in(group_id, {}),
                now_ms=self._around.clock.now_ms(),
            )
            return Step(records, on_written).result(nobody)

        self._around.queues.decide_unasked(group_id, decision)

    def _target(
        self,
        group: StreamsGroup,
        epoch: int,
        updated: StreamsMember,
        replaced: StreamsMember | None,
        configured: Configured,
        configs: Mapping[str, str],
        reported: Report,
        records: list[GroupRecord],
        statuses: list[Status],
    ) -> Target:
        """The member's target assignment, computed anew if the group epoch is ahead and nothing is to be waited for."""
        if group.group_id in self._delays:
            statuses.append(delayed("initial rebalance delay"))
            return Target(group.assignment_epoch, NOTHING)
        before = group.target(updated.member_id if replaced is None else replaced.member_id)
        if epoch <= group.assignment_epoch:
            return Target(group.assignment_epoch, before)
        if not self._turns.is_due(group):
            statuses.append(delayed("assignment interval"))
            return Target(group.assignment_epoch, before)
        targets, changes = new_targets(
            group,
            epoch,
            updated=updated,
            replaced=replaced,
            configured=configured,
            standbys=int(configs["num.standby.replicas"]),
            offsets_of=self._reports.offsets_in(group.group_id, {updated.member_id: reported}),
            now_ms=self._around.clock.now_ms(),
        )
        records += changes
        return Target(epoch, targets[updated.member_id])

    def _reconcile(
        self,
        group: StreamsGroup,
        member: StreamsMember,
        target: Target,
        owned: Tasks | None,
        records: list[GroupRecord],
        on_written: list[OnWritten],
    ) -> StreamsMember:
        if member.is_at(target.epoch):
            return member
        try:
            stepped = next_step(member, target, group, owned)
        except UnknownState:
            raise HeartbeatRefused(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin.",
            ) from None
        if stepped == member:
            return member
        records.append(r.current_record(group.group_id, stepped))
        on_written.append(partial(self._deadlines.watch_revocation, group.group_id, stepped))
        return stepped

    # Timers -----------------------------------------------------------------------------------------------------------

    def _begin_session(self, group_id: str, member_id: str) -> None:
        """Begin the member's session anew."""
        timeout_ms = self._around.configs(group_id, "streams.session.timeout.ms")
        self._deadlines.expect_session(group_id, member_id, timeout_ms)

    # Going ------------------------------------------------------------------------------------------------------------

    def _leave(self, heartbeat: StreamsHeartbeat) -> tuple[Step, StreamsHeartbeatAnswer]:
        group = self.find(heartbeat.group_id)
        if group is None:
            exists = heartbeat.group_id in self._around.groups or self._classic.find(heartbeat.group_id) is not None
            what = "is not a streams group" if exists else "not found"
            raise HeartbeatRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {heartbeat.group_id} {what}.")
        if heartbeat.shuts_down:
            self._shutdowns.setdefault(heartbeat.group_id, heartbeat.member_id)
        member = sender(group, heartbeat.member_id, heartbeat.instance_id)
        answer = StreamsHeartbeatAnswer(member_id=heartbeat.member_id, member_epoch=heartbeat.member_epoch)
        if heartbeat.instance_id is not None and heartbeat.member_epoch == LEFT_FOR_A_WHILE:
            gone = dataclasses.replace(
                member,
                epoch=LEFT_FOR_A_WHILE,
                assigned=r.left_for_a_while(member),
                pending_revocation=NOTHING_HELD,
            )
            return Step([r.current_record(group.group_id, gone)]), answer
        return self._fence(group, [member], "it has left"), answer

    def _fence(self, group: StreamsGroup, members: Sequence[StreamsMember], why: str) -> Step:
        """Remove members, and let the group epoch grow."""
        records = [record for member in members for record in r.removal(group.group_id, member.member_id)]
        epoch = group.epoch + 1
        records.append(
            r.epoch_record(group, epoch, group.metadata_hash, group.validated_topology_epoch, group.assignment_configs)
        )
        if len(members) == group.member_count:
            # Nobody is left to be assigned anything: the group is not behind its epoch.
            records.append(r.assignment_epoch_record(group.group_id, epoch, 0))

        def after(stands: bool) -> None:
            for member in members if stands else ():
                self._deadlines.cancel(group.group_id, member.member_id)
                self._reports.forget(group.group_id, member.member_id, stands)
                self._around.events.member_removed(group.group_id, member.member_id, why)

        return Step(records, [after])

    def _groups(self) -> Iterator[StreamsGroup]:
        return (group for group in self._around.groups.values() if isinstance(group, StreamsGroup))


def _updated(member: StreamsMember, heartbeat: StreamsHeartbeat) -> StreamsMember:
    """The member with what the heartbeat says of it."""
    joins = heartbeat.member_epoch == JOINS
    return dataclasses.replace(
        member,
        instance_id=heartbeat.instance_id if heartbeat.instance_id is not None else member.instance_id,
        rack_id=heartbeat.rack_id if heartbeat.rack_id is not None else member.rack_id,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms if heartbeat.rebalance_timeout_ms == -1 else heartbeat.rebalance_timeout_ms
        ),
        topology_epoch=member.topology_epoch if heartbeat.topology is None else heartbeat.topology.epoch,
        process_id=heartbeat.process_id if heartbeat.process_id is not None else member.process_id,
        endpoint=heartbeat.endpoint if joins or heartbeat.endpoint is not None else member.endpoint,
        tags=member.tags if heartbeat.tags is None else heartbeat.tags,
        client_id=heartbeat.client_id,
        client_host=heartbeat.client_host,
    )


def _changes_assignment(member: StreamsMember, updated: StreamsMember) -> bool:
    """Whether something has changed of a static member that assignments depend on."""
    return (member.topology_epoch, member.rack_id, member.tags, member.process_id) != (
        updated.topology_epoch,
        updated.rack_id,
        updated.tags,
        updated.process_id,
    )
