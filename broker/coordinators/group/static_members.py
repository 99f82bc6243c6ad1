"""Static members that join again (KIP-345): a new member id takes the place of the old id of the same instance."""

from __future__ import annotations

from broker.coordinators.group.classic_group import ClassicGroup, GroupState
from broker.coordinators.group.events import GroupEvents
from broker.coordinators.group.member import Member
from broker.coordinators.group.rebalance import Rebalances
from broker.coordinators.group.records import GroupResult, group_record
from broker.coordinators.group.requests import Join, Joined, JoinReply
from broker.coordinators.group.session_timers import SessionTimers
from broker.coordinators.write_errors import client_error_of
from broker.runtime.clock import Clock
from protocol.errors import ErrorCode


class StaticMembers:
    """Handles joins with a known instance id and a new member id: no rebalance if the group is stable and its protocol
    stays."""

    def __init__(self, presence: SessionTimers, rounds: Rebalances, *, clock: Clock, events: GroupEvents) -> None:
        self._presence = presence
        self._rounds = rounds
        self._clock = clock
        self._events = events

    def come_back(
        self, group: ClassicGroup, old: Member, new_id: str, request: Join, reply: JoinReply
    ) -> GroupResult | None:
        """Let the joining member replace ``old``, which is fenced from now on: another process has its instance id."""
        former_leader = group.leader
        new = Member(
            member_id=new_id,
            instance_id=old.instance_id,
            # As in Kafka, administrators see the host from which the instance joined first.
            client_id=old.client_id,
            client_host=old.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            protocols=tuple(request.protocols),
        )
        was_stable = group.state is GroupState.STABLE
        self._presence.replace(group, old, new)
        group.park_join(new, reply)
        self._events.member_fenced(group.group_id, old.instance_id or "", old.member_id)
        if not was_stable or group.select_protocol() != group.protocol:
            return self._rounds.joined(group, f"static member {old.member_id} is back as {new_id}")
        return self._record(group, old, new, request, former_leader)

    def _record(
        self, group: ClassicGroup, old: Member, new: Member, request: Join, former_leader: str | None
    ) -> GroupResult:
        """Write the group's record with the new member id and no other change."""
        assignments = {member_id: group.assignment_of(member) for member_id, member in group.members.items()}
        metadata = group.recorded_with(assignments, state_timestamp=self._clock.now_ms())
        group.replacements_under_way += 1

        def then(error: ErrorCode) -> None:
            group.replacements_under_way -= 1
            if group.round is not None or not group.members:
                # The new member waits for the next generation, as all members do; or the shard has been unloaded.
                return
            if group.members.get(new.member_id) is new:
                if error is ErrorCode.NONE:
                    self._welcome(group, new, request, former_leader)
                else:
                    self._take_back(group, old, new, error)
            if not group.replacements_under_way and not group.is_as_recorded:
                # The record with the new member id has failed; a later record, which names the id too, is in the log.
                self._rounds.submit(
                    group, self._rounds.begin(group, "the ids of static members are not those in the log")
                )

        return GroupResult([group_record(group.group_id, metadata)], then)

    def _welcome(self, group: ClassicGroup, new: Member, request: Join, former_leader: str | None) -> None:
        joined = self._rounds.current_generation(group, new.member_id)
        if request.may_skip_assignment:
            joined = joined._replace(skip_assignment=new.member_id == group.leader)
        else:
            # The client does not know KIP-814, so it would assign again: it must not take itself for the leader.
            joined = joined._replace(leader=former_leader or "", members=())
        self._presence.hear_of(group, new)
        group.answer_join(new, joined)

    def _take_back(self, group: ClassicGroup, old: Member, new: Member, error: ErrorCode) -> None:
        self._events.write_failed(group.group_id, f"the new id of static member {old.member_id}", error.name)
        group.answer_join(new, Joined(error=client_error_of(error)))
        self._presence.replace(group, new, old)
