"""The two rounds of a rebalance: all members join, then the leader assigns (Kafka's DelayedJoin and DelayedSync).

A record that is being written changes nothing before it is acknowledged. If a member joins or leaves meanwhile, a new
round begins: then the round that wrote the record is over, and its replies have been given.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from broker.coordinators.group.classic_group import ClassicGroup, EmptyingRound, GroupState, JoinRound, SyncRound
from broker.coordinators.group.events import GroupEvents
from broker.coordinators.group.image import GroupMetadata
from broker.coordinators.group.queues import GroupQueues
from broker.coordinators.group.records import GroupResult, group_record
from broker.coordinators.group.requests import Joined, Sync, Synced, SyncReply
from broker.coordinators.group.session_timers import SessionTimers
from broker.coordinators.group.settings import GroupSettings
from broker.coordinators.group.stats import GroupStats
from broker.coordinators.write_errors import client_error_of
from broker.runtime.clock import Clock
from broker.runtime.timing_wheel import TimingWheel
from protocol.errors import ErrorCode

RETRY_MS: Final = 1_000
"""How long after a failed write the record of an empty group is written again; also the shortest time that a round is
extended while only static members are left and none has joined."""


class Rebalances:
    """Takes the groups of a partition through their rebalances. Methods return the records to write; records that
    follow from alarms or from other records are submitted."""

    def __init__(
        self,
        presence: SessionTimers,
        *,
        settings: GroupSettings,
        clock: Clock,
        wheel: TimingWheel,
        events: GroupEvents,
        stats: GroupStats,
        queues: GroupQueues,
    ) -> None:
        self._presence = presence
        self._settings = settings
        self._clock = clock
        self._wheel = wheel
        self._events = events
        self._stats = stats
        self._queues = queues

    def submit(self, group: ClassicGroup, result: GroupResult | None) -> None:
        """Write what follows from other records of the group."""
        self._queues.submit(group.group_id, result)

    def decide(self, group: ClassicGroup, decision: Callable[[], GroupResult | None]) -> None:
        """Decide what no request has asked for: what an alarm has to say."""
        self._queues.decide_unasked(group.group_id, decision, alone=never)

    # Joining ----------------------------------------------------------------------------------------------------------

    def joined(self, group: ClassicGroup, why: str) -> GroupResult | None:
        """A member's join has been parked, which may complete the round."""
        round_ = group.round
        if not isinstance(round_, JoinRound):
            return self.begin(group, why)
        round_.last_joined_ms = self._clock.monotonic_ms()
        return self._complete_if_all(group)

    def left(self, group: ClassicGroup, why: str) -> GroupResult | None:
        """Members have gone."""
        if group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return self.begin(group, why)
        return self.expected_no_more(group)

    def expected_no_more(self, group: ClassicGroup) -> GroupResult | None:
        """A member that the round waited for will not join (again), which may complete the round."""
        self._presence.release(group)
        return self._complete_if_all(group)

    def begin(self, group: ClassicGroup, why: str) -> GroupResult | None:
        """Begin a rebalance: all members have to join again."""
        is_initial = isinstance(group.round, EmptyingRound) or group.state is GroupState.EMPTY
        round_ = JoinRound(
            generation=group.generation,
            protocol=group.protocol,
            is_initial=is_initial,
            last_joined_ms=self._clock.monotonic_ms(),
        )
        group.stop_alarms()
        group.unsynced.clear()
        group.round = round_
        self._events.rebalance_began(group.group_id, round_.generation, len(group.members), why)
        for member in tuple(group.members.values()):
            if group.answer_sync(member, Synced(error=ErrorCode.REBALANCE_IN_PROGRESS)):
                self._presence.hear_of(group, member)
        if not is_initial:
            round_.alarm = self._wheel.add_after(group.rebalance_timeout_ms, partial(self._time_is_up, group, round_))
            return self._complete_if_all(group)
        delay_ms = self._settings.initial_rebalance_delay_ms
        if delay_ms <= 0:
            # Without an initial delay the first member begins a generation at once.
            return self._complete(group, round_)
        self._wait_for_more(group, round_, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
        return None

    def _wait_for_more(self, group: ClassicGroup, round_: JoinRound, delay_ms: int, remaining_ms: int) -> None:
        """Members that join within ``delay_ms`` are in the first generation. Each new member extends that time, up to
        the members' rebalance timeout, of which ``remaining_ms`` are left then."""

        def delay_is_over() -> None:
            if round_.has_newcomers and remaining_ms:
                round_.has_newcomers = False
                next_ms = min(self._settings.initial_rebalance_delay_ms, remaining_ms)
                self._wait_for_more(group, round_, next_ms, max(remaining_ms - delay_ms, 0))
            else:
                self._time_is_up(group, round_)

        round_.alarm = self._wheel.add_after(delay_ms, delay_is_over)

    def _time_is_up(self, group: ClassicGroup, round_: JoinRound) -> None:
        self.decide(group, lambda: self._complete(group, round_) if group.round is round_ else None)

    def _complete_if_all(self, group: ClassicGroup) -> GroupResult | None:
        round_ = group.round
        if isinstance(round_, JoinRound) and not round_.is_initial and group.all_members_joined:
            return self._complete(group, round_)
        return None

    def _complete(self, group: ClassicGroup, round_: JoinRound) -> GroupResult | None:
        """The round is over: members that have not joined are not in the next generation, except for static members,
        which may come back."""
        if round_.alarm is not None:
            round_.alarm.cancel()
        for member in tuple(group.members.values()):
            if member.join_reply is None and member.instance_id is None:
                self._presence.depart(group, member, "it has not joined again in time")
        if not group.members:
            return self._empty(group, round_)
        if not group.elect_leader():
            # Only static members are left, none has joined: the round goes on until they join or their sessions end.
            patience_ms = max(group.rebalance_timeout_ms, RETRY_MS)
            round_.alarm = self._wheel.add_after(patience_ms, partial(self._time_is_up, group, round_))
            return None
        self._form_generation(group, round_)
        return None

    def _form_generation(self, group: ClassicGroup, round_: JoinRound) -> None:
        protocol = group.select_protocol()
        group.round = SyncRound(generation=round_.generation + 1, protocol=protocol)
        group.unsynced.update(group.members)
        group.unsynced_alarm = self._wheel.add_after(
            group.rebalance_timeout_ms, partial(self._sync_time_is_up, group, group.generation)
        )
        waited_ms = self._clock.monotonic_ms() - round_.last_joined_ms
        self._events.generation_formed(group.group_id, group.generation, protocol, len(group.members), waited_ms)
        for member in tuple(group.members.values()):
            member.is_new = False
            self._presence.hear_of(group, member)
            group.answer_join(member, self.current_generation(group, member.member_id))

    def current_generation(self, group: ClassicGroup, member_id: str) -> Joined:
        """The answer to a join with which a member of the current generation learns the generation."""
        return Joined(
            member_id=member_id,
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol=group.protocol,
            leader=group.leader or "",
            members=group.introductions() if member_id == group.leader else (),
        )

    def _empty(self, group: ClassicGroup, round_: JoinRound) -> GroupResult:
        group.round = EmptyingRound(generation=round_.generation + 1)
        return self._emptied(group, group.round)

    def _emptied(self, group: ClassicGroup, round_: EmptyingRound) -> GroupResult:
        metadata = GroupMetadata(
            protocol_type=group.protocol_type, generation=round_.generation, state_timestamp=self._clock.now_ms()
        )

        def then(error: ErrorCode) -> None:
            if group.round is not round_:
                return
            if error is ErrorCode.NONE:
                group.round = None
                self._events.group_emptied(group.group_id, round_.generation)
                self._presence.release(group)
            else:
                self._events.write_failed(group.group_id, "that the group is empty", error.name)
                round_.alarm = self._wheel.add_after(RETRY_MS, partial(self._empty_again, group, round_))

        return GroupResult([group_record(group.group_id, metadata)], then)

    def _empty_again(self, group: ClassicGroup, round_: EmptyingRound) -> None:
        self.decide(group, lambda: self._emptied(group, round_) if group.round is round_ else None)

    # Syncing ----------------------------------------------------------------------------------------------------------

    def sync(self, group: ClassicGroup, request: Sync, reply: SyncReply) -> GroupResult | None:
        """A member of the current generation asks for its assignment; the leader brings the assignments of all."""
        member = group.members[request.member_id]
        round_ = group.round
        if isinstance(round_, (JoinRound, EmptyingRound)):
            reply(Synced(error=ErrorCode.REBALANCE_IN_PROGRESS))
            return None
        self._mark_synced(group, request.member_id)
        if round_ is None:
            reply(self._assignment(group, group.assignment_of(member)))
            return None
        group.park_sync(member, reply)
        if request.member_id != group.leader or round_.is_storing:
            return None
        round_.is_storing = True
        metadata = group.recorded_with(request.assignments, state_timestamp=self._clock.now_ms())
        return GroupResult([group_record(group.group_id, metadata)], partial(self._stored, group, round_))

    def _stored(self, group: ClassicGroup, round_: SyncRound, error: ErrorCode) -> None:
        if group.round is not round_:
            return
        if error is not ErrorCode.NONE:
            client_error = client_error_of(error)
            for member in tuple(group.members.values()):
                if group.answer_sync(member, Synced(error=client_error)):
                    self._presence.hear_of(group, member)
            self.submit(group, self.begin(group, f"its assignment could not be written: {error.name}"))
            return
        group.round = None
        self._stats.completed_rebalances += 1
        self._events.assignment_stored(group.group_id, round_.generation, len(group.members))
        for member in tuple(group.members.values()):
            if group.answer_sync(member, self._assignment(group, group.assignment_of(member))):
                self._presence.hear_of(group, member)

    def _assignment(self, group: ClassicGroup, assignment: bytes) -> Synced:
        return Synced(protocol_type=group.protocol_type, protocol=group.protocol, assignment=assignment)

    def _mark_synced(self, group: ClassicGroup, member_id: str) -> None:
        group.unsynced.discard(member_id)
        if not group.unsynced and group.unsynced_alarm is not None:
            group.unsynced_alarm.cancel()

    def _sync_time_is_up(self, group: ClassicGroup, generation: int) -> None:
        """Remove the members that have joined and not asked for their assignment in time."""

        def decision() -> GroupResult | None:
            if not group.unsynced or group.generation != generation:
                return None
            for member_id in tuple(group.unsynced):
                self._presence.depart(group, group.members[member_id], f"it has not synced in generation {generation}")
            return self.begin(group, "members have not synced")

        self.decide(group, decision)


def never() -> bool:
    """A rebalance of a classic group is decided in company."""
    return False
