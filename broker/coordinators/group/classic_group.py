"""A classic group: who is present, which round of a rebalance it is in, what its record says (Kafka's ClassicGroup).

    Empty --> PreparingRebalance --> CompletingRebalance --> Stable
      ^            |    ^                     |                 |
      +------------+    +---------------------+-----------------+          any --> Dead

The state is stored nowhere. What stands in the log is `metadata`; a round lies on top of it while there is no
generation that everybody has agreed on and that stands in the log.
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
    """By Kafka's names."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(slots=True, kw_only=True, eq=False)
class JoinRound:
    """The members of the next generation are waited for."""

    state: ClassVar = GroupState.PREPARING_REBALANCE
    generation: int
    """The one that ends."""
    protocol: str | None
    """Of the generation that ends."""
    is_initial: bool
    """The group was empty: the round lasts its time, however many have joined."""
    has_newcomers: bool = False
    """Somebody has come since the time was last set: there may be more."""
    last_joined_ms: int
    """When somebody joined last, by the clock that never goes back."""
    alarm: Alarm | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class EmptyingRound:
    """Nobody has joined: the record that says so is under way, or could not be written and will be again."""

    state: ClassVar = GroupState.PREPARING_REBALANCE
    generation: int
    protocol: ClassVar = None
    alarm: Alarm | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class SyncRound:
    """Everybody has joined: the leader's assignment is waited for, or its record is under way."""

    state: ClassVar = GroupState.COMPLETING_REBALANCE
    generation: int
    protocol: str
    is_storing: bool = False
    """The record is under way."""
    alarm: ClassVar = None


_NOTHING_RECORDED: Final = GroupMetadata()


class ClassicGroup:
    """One group, with the members that its record names to begin with."""

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
        """By member id, in the order in which they came."""
        self._members_by_instance: dict[str, str] = {}
        self._supporters: Counter[str] = Counter()
        """How many members know a protocol."""
        self._joined = 0
        """How many joins are parked."""
        self.pending: dict[str, Alarm] = {}
        """Member ids that were handed out and have not come back, with the alarms that forget them."""
        self.round: JoinRound | EmptyingRound | SyncRound | None = None
        self.unsynced: set[str] = set()
        """Members of this generation who have not asked for their assignment yet."""
        self.unsynced_alarm: Alarm | None = None
        """Rings when they have had time enough."""
        self.replacements_under_way = 0
        """Records of static members' new ids."""
        recorded = self._recorded
        self.protocol_type = recorded.protocol_type
        self.leader: str | None = None
        for member in recorded.members.values():
            self.add(loaded_member(member, recorded.protocol or ""), recorded.protocol_type)
        if recorded.leader in self.members:
            self.leader = recorded.leader

    # What it is -------------------------------------------------------------------------------------------------------

    @property
    def metadata(self) -> GroupMetadata | None:
        """What its last record says; None where it has none, which a simple consumer's group need not have."""
        return self._image.groups.get(self.group_id)

    @property
    def _recorded(self) -> GroupMetadata:
        return self.metadata or _NOTHING_RECORDED

    @property
    def state(self) -> GroupState:
        """As administrators see it."""
        if self.round is not None:
            return self.round.state
        if self._recorded.members:
            return GroupState.STABLE
        return GroupState.EMPTY if self._image.exists(self.group_id) else GroupState.DEAD

    @property
    def generation(self) -> int:
        """The newest that anybody has been told of."""
        return self._recorded.generation if self.round is None else self.round.generation

    @property
    def protocol(self) -> str | None:
        """What this generation has chosen."""
        return self._recorded.protocol if self.round is None else self.round.protocol

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest that any member asks for."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def joined(self) -> int:
        """How many members wait for the next generation."""
        return self._joined

    @property
    def everybody_has_joined(self) -> bool:
        """Nobody else needs to be waited for."""
        return self._joined == len(self.members) and not self.pending

    @property
    def is_idle(self) -> bool:
        """Nobody is here, and nothing is going on: what is to be known of it stands in the image."""
        return not self.members and not self.pending and self.round is None

    @property
    def is_as_recorded(self) -> bool:
        """Whether the members are those of the record, so that each has an assignment."""
        return self.members.keys() == self._recorded.members.keys()

    @property
    def is_after_the_record(self) -> bool:
        """Whether the record is of this generation, or of the one before while this one is on its way. If not, members
        were sent back before they had an assignment, and what they had before is no longer theirs."""
        if self.state is GroupState.COMPLETING_REBALANCE:
            return self.generation == self._recorded.generation + 1
        return self.generation == self._recorded.generation

    def member_of_instance(self, instance_id: str | None) -> Member | None:
        """The static member with this instance id."""
        return self.members.get(self._members_by_instance.get(instance_id, "")) if instance_id is not None else None

    def validate_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """NONE if this is a member: UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID where another has its instance id."""
        if instance_id is not None:
            static = self.member_of_instance(instance_id)
            if static is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if static.member_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def check_commit(self, commit: Commit) -> ErrorCode:
        """NONE if ``commit`` may be written now (not within a transaction)."""
        state = self.state
        if state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if commit.generation < 0 and state is GroupState.EMPTY:
            # Somebody without a group, or an administrator.
            return ErrorCode.NONE
        if commit.generation < 0 and not commit.member_id and commit.instance_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = self.validate_member(commit.member_id, commit.instance_id)
        if error is not ErrorCode.NONE:
            return error
        if commit.generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def subscribed_topics(self) -> frozenset[str] | None:
        """What its members are subscribed to; None where that is not known: they do not speak the consumer protocol, or
        it can't be read."""
        if self.protocol_type != CONSUMER_PROTOCOL:
            return None
        protocol = self.protocol or ""
        return subscribed_topics(
            member.metadata_for(protocol) for member in self.members.values() if protocol in member.protocol_names()
        )

    def supports(self, protocol_type: str, protocols: Sequence[Protocol]) -> bool:
        """Whether a member with these protocols has one in common with everybody here."""
        if not self.members:
            return bool(protocol_type) and bool(protocols)
        everybody = len(self.members)
        return protocol_type == self.protocol_type and any(
            self._supporters[protocol.name] == everybody for protocol in protocols
        )

    def select_protocol(self) -> str:
        """The protocol that most members like best among those that all of them know; of equals, the one that the
        member here for longest likes best."""
        candidates = {name for name, supporters in self._supporters.items() if supporters == len(self.members)}
        votes = Counter(
            next(protocol.name for protocol in member.protocols if protocol.name in candidates)
            for member in self.members.values()
        )
        return max(votes, key=votes.__getitem__)

    def introductions(self) -> list[JoinedMember]:
        """Everybody, as the leader is told of them."""
        protocol = self.protocol or ""
        return [member.introduction(protocol) for member in self.members.values()]

    def assignment_of(self, member: Member) -> bytes:
        """The member's part as it stands in the log. A static one has the part of its instance id, whatever its member
        id is by now."""
        recorded = self._recorded.members
        found = recorded.get(member.member_id)
        if found is None and member.instance_id is not None:
            found = next((other for other in recorded.values() if other.instance_id == member.instance_id), None)
        return b"" if found is None else found.assignment

    def recorded_with(self, assignments: Mapping[str, bytes], *, state_timestamp: int) -> GroupMetadata:
        """What is to be recorded of this generation; who is not assigned anything gets an empty assignment."""
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

    # Who comes and goes -----------------------------------------------------------------------------------------------

    def add(self, member: Member, protocol_type: str) -> None:
        """Somebody is new here. The first one leads."""
        if not self.members:
            self.protocol_type = protocol_type
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self._members_by_instance[member.instance_id] = member.member_id
        self._supporters.update(member.protocol_names())
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member: Member) -> None:
        """Somebody is gone. Who has been here for longest leads in its place."""
        del self.members[member.member_id]
        instance_id = member.instance_id
        if instance_id is not None and self._members_by_instance.get(instance_id) == member.member_id:
            del self._members_by_instance[instance_id]
        self._forget_protocols(member)
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def replace(self, member: Member, by: Member) -> None:
        """A static member has another id and other protocols from now on; it keeps its place."""
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
        """A member has joined anew, with what it knows now."""
        self._forget_protocols(member)
        member.protocols = tuple(protocols)
        member.session_timeout_ms = session_timeout_ms
        member.rebalance_timeout_ms = rebalance_timeout_ms
        self._supporters.update(member.protocol_names())

    def stop_alarms(self) -> None:
        """Call off what the group itself waits for; its members' alarms are their own."""
        for alarm in (self.unsynced_alarm, None if self.round is None else self.round.alarm):
            if alarm is not None:
                alarm.cancel()

    def elect_leader(self) -> bool:
        """Let somebody who has joined lead. False if nobody has."""
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

    # Who waits --------------------------------------------------------------------------------------------------------

    def park_join(self, member: Member, reply: JoinReply) -> None:
        """The member waits for the next generation. An earlier question of it has the answer that it may ask again."""
        self.answer_join(member, Joined(error=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id))
        member.join_reply = reply
        self._joined += 1

    def park_sync(self, member: Member, reply: SyncReply) -> None:
        """The member waits for its assignment. An earlier question of it has the answer that it may ask again."""
        self.answer_sync(member, Synced(error=ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_reply = reply

    def answer_join(self, member: Member, joined: Joined) -> bool:
        """Answer the member's join. False if none is parked."""
        reply, member.join_reply = member.join_reply, None
        if reply is None:
            return False
        self._joined -= 1
        reply(joined)
        return True

    def answer_sync(self, member: Member, synced: Synced) -> bool:
        """Answer the member's sync. False if none is parked."""
        reply, member.sync_reply = member.sync_reply, None
        if reply is None:
            return False
        reply(synced)
        return True
