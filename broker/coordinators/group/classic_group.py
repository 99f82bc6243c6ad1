"""A classic group (Kafka's ClassicGroup): its members, the round of its rebalance, and the metadata in its record.

    Empty --> PreparingRebalance --> CompletingRebalance --> Stable
      ^            |    ^                     |                 |
      +------------+    +---------------------+-----------------+          any --> Dead

The state is not stored. The log has `metadata`. During a rebalance the group has a round beside it, until the
record of the new generation is in the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Final

from broker.coordinators.group.image import GroupImage, GroupMetadata
from broker.coordinators.group.member import Member, loaded_member
from broker.coordinators.group.requests import (
    Commit,
    Joined,
    JoinedMember,
    JoinReply,
    Protocol,
    Synced,
    SyncReply,
)
from broker.coordinators.group.subscription import CONSUMER_PROTOCOL, subscribed_topics
from broker.runtime.clock import Alarm
from protocol.errors import ErrorCode


class GroupState(Enum):
    """The states of a classic group, by Kafka's names."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(slots=True, kw_only=True, eq=False)
class JoinRound:
    """The round in which the group waits for the members of the next generation to join."""

    state: ClassVar = GroupState.PREPARING_REBALANCE
    generation: int
    """The generation that ends."""
    protocol: str | None
    """The protocol of the generation that ends."""
    is_initial: bool
    """The group was empty: the round lasts its whole time, however many members have joined."""
    has_newcomers: bool = False
    """A new member has come since the round's time was last set: more members may come."""
    last_joined_ms: int
    """When the last member joined, in milliseconds of the monotonic clock."""
    alarm: Alarm | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class EmptyingRound:
    """No member has joined: the empty group's record is being written, or its write failed and is tried again."""

    state: ClassVar = GroupState.PREPARING_REBALANCE
    generation: int
    protocol: ClassVar = None
    alarm: Alarm | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class SyncRound:
    """The generation is formed: the leader's assignment is waited for, or the assignment's record is being written."""

    state: ClassVar = GroupState.COMPLETING_REBALANCE
    generation: int
    protocol: str
    is_storing: bool = False
    """The assignment's record is being written."""
    alarm: ClassVar = None


_NOTHING_RECORDED: Final = GroupMetadata()


class ClassicGroup:
    """A classic group and its members. At first the members are those of the group's record."""

    __slots__ = (
        "_image",
        "_joined",
        "_members_by_instance",
        "_supporters",
        "group_id",
        "leader",
        "members",
        "pending",
        "protocol_type",
        "replacements_under_way",
        "round",
        "unsynced",
        "unsynced_alarm",
    )

    def __init__(self, group_id: str, image: GroupImage) -> None:
        self.group_id = group_id
        self._image = image
        self.members: dict[str, Member] = {}
        """Members by member id, in the order in which they came."""
        self._members_by_instance: dict[str, str] = {}
        self._supporters: Counter[str] = Counter()
        """How many members support each protocol."""
        self._joined = 0
        """How many joins are parked."""
        self.pending: dict[str, Alarm] = {}
        """Member ids that were handed out and have not joined yet (KIP-394), with the alarms that remove the ids."""
        self.round: JoinRound | EmptyingRound | SyncRound | None = None
        self.unsynced: set[str] = set()
        """Members of this generation that have not asked for their assignment yet."""
        self.unsynced_alarm: Alarm | None = None
        """Rings when the time for asking for an assignment (the rebalance timeout) is over."""
        self.replacements_under_way = 0
        """How many records with a static member's new id are being written."""
        recorded = self._recorded
        self.protocol_type = recorded.protocol_type
        self.leader: str | None = None
        for member in recorded.members.values():
            self.add(loaded_member(member, recorded.protocol or ""), recorded.protocol_type)
        if recorded.leader in self.members:
            self.leader = recorded.leader

    # What the group is ------------------------------------------------------------------------------------------------

    @property
    def metadata(self) -> GroupMetadata | None:
        """The group's last record; None where there is none, as for a simple consumer's group."""
        return self._image.groups.get(self.group_id)

    @property
    def _recorded(self) -> GroupMetadata:
        return self.metadata or _NOTHING_RECORDED

    @property
    def state(self) -> GroupState:
        """The state of the group, as administrators see it."""
        if self.round is not None:
            return self.round.state
        if self._recorded.members:
            return GroupState.STABLE
        return GroupState.EMPTY if self._image.exists(self.group_id) else GroupState.DEAD

    @property
    def generation(self) -> int:
        """The generation of the current round; without a round, that of the group's record."""
        return self._recorded.generation if self.round is None else self.round.generation

    @property
    def protocol(self) -> str | None:
        """The protocol of the current round; without a round, that of the group's record."""
        return self._recorded.protocol if self.round is None else self.round.protocol

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of all members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def joined(self) -> int:
        """How many members wait for the next generation."""
        return self._joined

    @property
    def all_members_joined(self) -> bool:
        """Whether no further member needs to be waited for."""
        return self._joined == len(self.members) and not self.pending

    @property
    def is_idle(self) -> bool:
        """Whether the group has no members and no round: all of its state is in the image."""
        return not self.members and not self.pending and self.round is None

    @property
    def is_as_recorded(self) -> bool:
        """Whether the members are those of the record, so that each has an assignment."""
        return self.members.keys() == self._recorded.members.keys()

    @property
    def is_after_the_record(self) -> bool:
        """Whether the record is of this generation; while an assignment is waited for, of the generation before. If
        not, a rebalance began before the members had an assignment, and the recorded assignments are outdated."""
        if self.state is GroupState.COMPLETING_REBALANCE:
            return self.generation == self._recorded.generation + 1
        return self.generation == self._recorded.generation

    def member_of_instance(self, instance_id: str | None) -> Member | None:
        """The static member with this instance id."""
        return self.members.get(self._members_by_instance.get(instance_id, "")) if instance_id is not None else None

    def validate_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """NONE if this is a member; UNKNOWN_MEMBER_ID; FENCED_INSTANCE_ID if another member has the instance id."""
        if instance_id is not None:
            static = self.member_of_instance(instance_id)
            if static is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if static.member_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def check_commit(self, commit: Commit) -> ErrorCode:
        """NONE if ``commit`` may be written now.

        A commit in a transaction needs no membership, and waits for no assignment.
        """
        state = self.state
        if state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if commit.generation < 0 and state is GroupState.EMPTY:
            # A consumer that commits without being a member, or an administrator.
            return ErrorCode.NONE
        is_transactional = commit.transaction is not None
        if commit.generation < 0 and not commit.member_id and commit.instance_id is None:
            return ErrorCode.NONE if is_transactional else ErrorCode.UNKNOWN_MEMBER_ID
        error = self.validate_member(commit.member_id, commit.instance_id)
        if error is not ErrorCode.NONE:
            return error
        if commit.generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if state is GroupState.COMPLETING_REBALANCE and not is_transactional:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that the members are subscribed to; None where that is not known: the members do not use the
        consumer protocol, or a subscription can't be read."""
        if self.protocol_type != CONSUMER_PROTOCOL:
            return None
        protocol = self.protocol or ""
        return subscribed_topics(
            member.metadata_for(protocol) for member in self.members.values() if protocol in member.protocol_names()
        )

    def supports(self, protocol_type: str, protocols: Sequence[Protocol]) -> bool:
        """Whether a member with these protocols has one protocol in common with all members."""
        if not self.members:
            return bool(protocol_type) and bool(protocols)
        member_count = len(self.members)
        return protocol_type == self.protocol_type and any(
            self._supporters[protocol.name] == member_count for protocol in protocols
        )

    def select_protocol(self) -> str:
        """The protocol that most members prefer among those that all members support; of equals, the protocol that the
        oldest member prefers."""
        candidates = {name for name, supporters in self._supporters.items() if supporters == len(self.members)}
        votes = Counter(
            next(protocol.name for protocol in member.protocols if protocol.name in candidates)
            for member in self.members.values()
        )
        return max(votes, key=votes.__getitem__)

    def introductions(self) -> list[JoinedMember]:
        """All members, as they are described to the leader."""
        protocol = self.protocol or ""
        return [member.introduction(protocol) for member in self.members.values()]

    def assignment_of(self, member: Member) -> bytes:
        """The member's assignment in the group's record. A static member has the assignment of its instance id,
        whatever its member id is by now."""
        recorded = self._recorded.members
        found = recorded.get(member.member_id)
        if found is None and member.instance_id is not None:
            found = next((other for other in recorded.values() if other.instance_id == member.instance_id), None)
        return b"" if found is None else found.assignment

    def recorded_with(self, assignments: Mapping[str, bytes], *, state_timestamp: int) -> GroupMetadata:
        """The record of this generation. A member that is not in ``assignments`` gets an empty assignment."""
        protocol = self.protocol or ""
        return GroupMetadata(
            protocol_type=self.protocol_type,
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            state_timestamp=state_timestamp,
            members={
                member_id: member.recorded(protocol, assignments.get(member_id, b""))
                for member_id, member in self.members.items()
            },
        )

    # Members come and go ----------------------------------------------------------------------------------------------

    def add(self, member: Member, protocol_type: str) -> None:
        """Add a new member. The first member of the group leads."""
        if not self.members:
            self.protocol_type = protocol_type
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self._members_by_instance[member.instance_id] = member.member_id
        self._supporters.update(member.protocol_names())
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member: Member) -> None:
        """Remove a member. If it was the leader, the oldest member leads from now on."""
        del self.members[member.member_id]
        instance_id = member.instance_id
        if instance_id is not None and self._members_by_instance.get(instance_id) == member.member_id:
            del self._members_by_instance[instance_id]
        self._forget_protocols(member)
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def replace(self, member: Member, by: Member) -> None:
        """Give a static member another member id and other protocols; its place in the order stays."""
        self._forget_protocols(member)
        self._supporters.update(by.protocol_names())
        self.members = {
            by.member_id if member_id == member.member_id else member_id: by if other is member else other
            for member_id, other in self.members.items()
        }
        if by.instance_id is not None:
            self._members_by_instance[by.instance_id] = by.member_id
        if member.member_id in self.unsynced:
            self.unsynced.remove(member.member_id)
            self.unsynced.add(by.member_id)
        if self.leader == member.member_id:
            self.leader = by.member_id

    def update(
        self, member: Member, protocols: Sequence[Protocol], *, session_timeout_ms: int, rebalance_timeout_ms: int
    ) -> None:
        """A member has joined again: take over the protocols and timeouts that it has now."""
        self._forget_protocols(member)
        member.protocols = tuple(protocols)
        member.session_timeout_ms = session_timeout_ms
        member.rebalance_timeout_ms = rebalance_timeout_ms
        self._supporters.update(member.protocol_names())

    def stop_alarms(self) -> None:
        """Cancel the group's own alarms. The members' alarms are not touched."""
        for alarm in (self.unsynced_alarm, None if self.round is None else self.round.alarm):
            if alarm is not None:
                alarm.cancel()

    def elect_leader(self) -> bool:
        """Keep the leader if it has joined, else let the oldest joined member lead. False if no member has joined."""
        if self.leader is not None and self.members[self.leader].join_reply is not None:
            return True
        joined = next((member for member in self.members.values() if member.join_reply is not None), None)
        if joined is None:
            return False
        self.leader = joined.member_id
        return True

    def _forget_protocols(self, member: Member) -> None:
        for name in member.protocol_names():
            self._supporters[name] -= 1
            if not self._supporters[name]:
                del self._supporters[name]

    # Parked requests --------------------------------------------------------------------------------------------------

    def park_join(self, member: Member, reply: JoinReply) -> None:
        """Park the member's join until the next generation. A join parked before gets REBALANCE_IN_PROGRESS."""
        self.answer_join(member, Joined(error=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id))
        member.join_reply = reply
        self._joined += 1

    def park_sync(self, member: Member, reply: SyncReply) -> None:
        """Park the member's sync until its assignment is there. A sync parked before gets REBALANCE_IN_PROGRESS."""
        self.answer_sync(member, Synced(error=ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_reply = reply

    def answer_join(self, member: Member, joined: Joined) -> bool:
        """Answer the member's join. False if no join is parked."""
        reply, member.join_reply = member.join_reply, None
        if reply is None:
            return False
        self._joined -= 1
        reply(joined)
        return True

    def answer_sync(self, member: Member, synced: Synced) -> bool:
        """Answer the member's sync. False if no sync is parked."""
        reply, member.sync_reply = member.sync_reply, None
        if reply is None:
            return False
        reply(synced)
        return True
