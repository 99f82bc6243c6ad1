"""Membership of classic groups: JoinGroup, SyncGroup, Heartbeat and LeaveGroup, and members that stay silent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from broker.coordinators.group.classic_group import ClassicGroup, GroupState, JoinRound
from broker.coordinators.group.events import GroupEvents
from broker.coordinators.group.image import GroupImage, GroupMetadata
from broker.coordinators.group.member import Member
from broker.coordinators.group.queues import GroupQueues
from broker.coordinators.group.rebalance import Rebalances
from broker.coordinators.group.records import GroupResult, group_record
from broker.coordinators.group.requests import (
    Heartbeat,
    Join,
    Joined,
    JoinReply,
    LeavingMember,
    Left,
    Protocol,
    Sync,
    Synced,
    SyncReply,
)
from broker.coordinators.group.session_timers import SessionTimers
from broker.coordinators.group.settings import GroupSettings
from broker.coordinators.group.static_members import StaticMembers
from broker.coordinators.group.stats import GroupStats
from broker.coordinators.write_errors import client_error_of
from broker.runtime.clock import Clock, Ids
from broker.runtime.counted import counted
from broker.runtime.timing_wheel import TimingWheel
from protocol.errors import ErrorCode
from protocol.records.group_metadata import GroupRecord

LONGEST_ID: Final = 0x7FFF
"""The most bytes that a string in a record may have."""


class Membership:
    """The members and rounds of all groups of one partition."""

    def __init__(
        self,
        image: GroupImage,
        *,
        settings: GroupSettings,
        clock: Clock,
        wheel: TimingWheel,
        ids: Ids,
        events: GroupEvents,
        stats: GroupStats,
        queues: GroupQueues,
    ) -> None:
        self._settings = settings
        self._queues = queues
        self._clock = clock
        self._ids = ids
        self._presence = SessionTimers(
            image,
            wheel=wheel,
            events=events,
            member_is_silent=self._member_is_silent,
            pending_is_silent=self._pending_is_silent,
        )
        self._rounds = Rebalances(
            self._presence, settings=settings, clock=clock, wheel=wheel, events=events, stats=stats, queues=queues
        )
        self._static = StaticMembers(self._presence, self._rounds, clock=clock, events=events)

        self._handed_over: set[str] = set()
        """Groups that are becoming groups of another kind: their records are in flight."""

    def find(self, group_id: str) -> ClassicGroup | None:
        """The group as it is now; None if it has neither records nor members."""
        return self._presence.find(group_id)

    def group_ids(self) -> Iterator[str]:
        """The ids of the groups that have members."""
        return self._presence.group_ids()

    # The life of the partition ----------------------------------------------------------------------------------------

    def loaded(self) -> None:
        """All records are replayed: each member of a record has its session timeout to send a request."""
        for group in self._presence.load():
            if len(group.members) > self._settings.max_size:
                why = f"it has {counted(len(group.members), 'member')}, at most {self._settings.max_size} may be"
                self._rounds.submit(group, self._rounds.begin(group, why))

    def unload(self, code: ErrorCode) -> None:
        """Drop all groups: parked replies get ``code``, and all alarms are cancelled."""
        self._presence.unload(code)

    def recorded(self, group_id: str) -> None:
        """A record or the tombstone of the group has been replayed. If its write was answered as failed before (it took
        too long), the record may differ from the members here: then a rebalance begins."""
        group = None if group_id in self._handed_over else self._presence.live(group_id)
        if group is None or group.round is not None or group.replacements_under_way:
            return
        if group.metadata is None and not group.members:
            for member_id in tuple(group.pending):
                self._presence.forget_pending(group, member_id)
            self._presence.release(group)
        elif not group.is_as_recorded:
            self._rounds.submit(group, self._rounds.begin(group, "its members are not those in the log"))

    def hands_over(self, group_id: str) -> Callable[[bool], None]:
        """The group becomes a group of another kind. Returns what is to be called with the outcome of the records of
        that: once they are replayed (True), members that wait are told to join again and nothing of the group is left
        here; once they have failed (False), the group goes on. If no records come of it: `keeps`."""
        self._handed_over.add(group_id)

        def after(stands: bool) -> None:
            self._handed_over.discard(group_id)
            if stands:
                self._presence.drop(group_id, ErrorCode.REBALANCE_IN_PROGRESS)

        return after

    def keeps(self, group_id: str) -> None:
        """The group stays what it is: the request that would have made a group of another kind is refused."""
        self._handed_over.discard(group_id)

    def takes_over(self, group_id: str, protocols: Mapping[str, Sequence[Protocol]]) -> None:
        """A group of another kind has become a classic group, whose record is replayed: its members' sessions begin,
        and all have to join again. ``protocols``: those that each member supports, of which the record has one."""
        group = self._presence.adopt(group_id)
        for member in group.members.values():
            group.update(
                member,
                protocols.get(member.member_id, member.protocols),
                session_timeout_ms=member.session_timeout_ms,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
            )
        self._rounds.submit(group, self._rounds.begin(group, "its last member of the newer protocol has left"))

    # Joining ----------------------------------------------------------------------------------------------------------

    def join(self, request: Join, reply: JoinReply, tombstones: Sequence[GroupRecord] = ()) -> GroupResult | None:
        """Handle a JoinGroup request. The reply may be given much later. ``tombstones``: of an empty group of another
        kind, whose id the group takes."""
        group = None if tombstones else self._presence.find(request.group_id)
        if group is not None:
            return self._join(group, request, reply)
        if request.member_id:
            reply(Joined(error=ErrorCode.UNKNOWN_MEMBER_ID, member_id=request.member_id))
            return None
        return self._create(request, reply, tombstones)

    def check_join(self, request: Join) -> ErrorCode:
        """NONE if a group of any kind may be asked to let the member join."""
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        settings = self._settings
        if not settings.min_session_timeout_ms <= request.session_timeout_ms <= settings.max_session_timeout_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        return ErrorCode.NONE

    def _create(self, request: Join, reply: JoinReply, tombstones: Sequence[GroupRecord]) -> GroupResult | None:
        """Write the group's first record, whatever becomes of the join. Nothing else is decided meanwhile."""
        group_id = request.group_id

        def then(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self._queues.submit(group_id, self.join(request, reply))
            else:
                reply(Joined(error=client_error_of(error)))

        first = group_record(group_id, GroupMetadata(state_timestamp=self._clock.now_ms()))
        return GroupResult([*tombstones, first], then)

    def _join(self, group: ClassicGroup, request: Join, reply: JoinReply) -> GroupResult | None:
        member_id = request.member_id
        if not self._accepts_member(group, member_id):
            return self._turn_away(group, member_id, reply)
        if not group.supports(request.protocol_type, request.protocols):
            reply(Joined(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id=member_id))
            return None
        if not member_id:
            return self._join_anew(group, request, reply)
        if member_id in group.pending:
            if request.instance_id is not None:
                # Only dynamic members are sent back with a member id.
                reply(Joined(error=ErrorCode.UNKNOWN_SERVER_ERROR))
                return None
            self._presence.forget_pending(group, member_id)
            return self._add(group, member_id, request, reply)
        error = group.validate_member(member_id, request.instance_id)
        if error is not ErrorCode.NONE:
            reply(Joined(error=error, member_id=member_id))
            return None
        return self._join_again(group, group.members[member_id], request, reply)

    def _accepts_member(self, group: ClassicGroup, member_id: str) -> bool:
        state, most = group.state, self._settings.max_size
        member = group.members.get(member_id)
        if state is GroupState.PREPARING_REBALANCE:
            # Members that joined first stay: a group may have more members than are allowed now.
            return (member is not None and member.join_reply is not None) or group.joined < most
        if state is GroupState.EMPTY:
            return True
        return member is not None or len(group.members) < most

    def _turn_away(self, group: ClassicGroup, member_id: str, reply: JoinReply) -> GroupResult | None:
        reply(Joined(error=ErrorCode.GROUP_MAX_SIZE_REACHED))
        if member_id in group.pending:
            self._presence.forget_pending(group, member_id)
        elif member_id in group.members:
            self._presence.depart(group, group.members[member_id], "the group is full")
        return self._rounds.expected_no_more(group)

    def _join_anew(self, group: ClassicGroup, request: Join, reply: JoinReply) -> GroupResult | None:
        """Handle the join of a member without a member id."""
        static = group.member_of_instance(request.instance_id)
        member_id = self._new_member_id(request.client_id if request.instance_id is None else request.instance_id)
        if len(member_id.encode()) > LONGEST_ID:
            reply(Joined(error=ErrorCode.UNKNOWN_SERVER_ERROR))
            return None
        if static is not None:
            return self._static.come_back(group, static, member_id, request, reply)
        if request.instance_id is None and request.needs_known_id:
            self._presence.expect(group, member_id, request.session_timeout_ms)
            reply(Joined(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))
            return None
        return self._add(group, member_id, request, reply)

    def _new_member_id(self, prefix: str) -> str:
        digits = self._ids.uuid().hex()
        return f"{prefix}-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

    def _add(self, group: ClassicGroup, member_id: str, request: Join, reply: JoinReply) -> GroupResult | None:
        member = Member(
            member_id=member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            protocols=tuple(request.protocols),
        )
        if isinstance(group.round, JoinRound):
            group.round.has_newcomers = True
        self._presence.arrive(group, member, request.protocol_type)
        group.park_join(member, reply)
        return self._rounds.joined(group, _because(f"member {member_id} has joined", request.reason))

    def _join_again(self, group: ClassicGroup, member: Member, request: Join, reply: JoinReply) -> GroupResult | None:
        """Handle the join of a member: it follows a rebalance, begins one, or missed the answer to its last join."""
        is_changed = member.protocols != tuple(request.protocols)
        if group.state is GroupState.STABLE and member.member_id == group.leader:
            # This is how the leader asks for a new assignment when a topic has got more partitions.
            why = f"the leader {member.member_id} joins again"
        elif group.state is GroupState.PREPARING_REBALANCE or is_changed:
            why = f"member {member.member_id} joins again with other protocols"
        else:
            reply(self._rounds.current_generation(group, member.member_id))
            return None
        group.update(
            member,
            request.protocols,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
        )
        group.park_join(member, reply)
        return self._rounds.joined(group, _because(why, request.reason))

    # Being a member ---------------------------------------------------------------------------------------------------

    def sync(self, request: Sync, reply: SyncReply) -> GroupResult | None:
        """Handle a SyncGroup request: answer with the member's assignment, now or once the leader has sent it."""
        group = self._presence.find(request.group_id)
        error = _check_member(group, request)
        if error is ErrorCode.NONE and group is not None:
            if _names(request.protocol_type, group.protocol_type) and _names(request.protocol, group.protocol):
                return self._rounds.sync(group, request, reply)
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        reply(Synced(error=error))
        return None

    def heartbeat(self, request: Heartbeat) -> ErrorCode:
        """Handle a Heartbeat request; with REBALANCE_IN_PROGRESS the member has to join again."""
        group = self._presence.find(request.group_id)
        error = _check_member(group, request)
        if error is not ErrorCode.NONE or group is None:
            return error
        self.touch(group, request.member_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def touch(self, group: ClassicGroup, member_id: str) -> None:
        """Begin the member's session anew, after a heartbeat or a commit."""
        member = group.members.get(member_id)
        if member is not None:
            self._presence.hear_of(group, member)

    # Going ------------------------------------------------------------------------------------------------------------

    def leave(
        self, group_id: str, members: Sequence[LeavingMember], reply: Callable[[Left], None]
    ) -> GroupResult | None:
        """Handle a LeaveGroup request. If the group is empty then, the reply waits for the group's record."""
        if not group_id:
            reply(Left(error=ErrorCode.INVALID_GROUP_ID))
            return None
        group = self._presence.find(group_id)
        if group is None:
            reply(Left(members=[ErrorCode.UNKNOWN_MEMBER_ID] * len(members)))
            return None
        errors = [self._leave(group, member) for member in members]
        result = self._rounds.left(group, "members have left") if ErrorCode.NONE in errors else None
        if result is None:
            reply(Left(members=errors))
            return None
        emptied = result.then

        def then(error: ErrorCode) -> None:
            emptied(error)
            reply(Left(members=errors) if error is ErrorCode.NONE else Left(error=client_error_of(error)))

        return GroupResult(result.records, then)

    def _leave(self, group: ClassicGroup, leaving: LeavingMember) -> ErrorCode:
        """Remove one of the leaving members. An administrator names an instance id only."""
        if leaving.member_id in group.pending:
            self._presence.forget_pending(group, leaving.member_id)
            return ErrorCode.NONE
        static = group.member_of_instance(leaving.instance_id)
        member_id = leaving.member_id or (static.member_id if static is not None else "")
        error = group.validate_member(member_id, leaving.instance_id)
        if error is ErrorCode.NONE:
            self._presence.depart(group, group.members[member_id], _because("it has left", leaving.reason))
        return error

    def expire(self, group_id: str, which: str | None) -> int:
        """Remove members as if nothing had been heard of them; see `GroupShard.expire_members`."""
        group = self._presence.live(group_id)
        if group is None:
            return 0
        found = [one for one in group.members.values() if which in (None, one.member_id, one.instance_id)]
        for member in found:
            self._silence(group, member)
        return len(found)

    def _member_is_silent(self, group: ClassicGroup, member: Member) -> None:
        if member.is_waiting and not member.is_new:
            # A waiting member can't send other requests. Its session begins anew when it is answered.
            return
        self._silence(group, member)

    def _silence(self, group: ClassicGroup, member: Member) -> None:
        session = member.session

        def decision() -> GroupResult | None:
            if group.members.get(member.member_id) is not member:
                return None
            if member.session is not session:
                return None  # it has been heard of since, while this decision waited
            self._presence.depart(group, member, "nothing has been heard of it for too long")
            return self._rounds.left(group, f"member {member.member_id} is silent")

        self._rounds.decide(group, decision)

    def _pending_is_silent(self, group: ClassicGroup, member_id: str) -> None:
        """Remove a member id that was handed out and with which no member has joined in time."""

        def decision() -> GroupResult | None:
            if member_id not in group.pending:
                return None
            self._presence.forget_pending(group, member_id)
            return self._rounds.expected_no_more(group)

        self._rounds.decide(group, decision)


def _check_member(group: ClassicGroup | None, request: Sync | Heartbeat) -> ErrorCode:
    """NONE if the request comes from a member of this generation."""
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.validate_member(request.member_id, request.instance_id)
    if error is ErrorCode.NONE and request.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def _names(asked: str | None, name: str | None) -> bool:
    """Whether a request that names a protocol (None: it names none) names this one."""
    return asked is None or asked == name


def _because(why: str, reason: str) -> str:
    return f"{why} ({reason})" if reason else why
