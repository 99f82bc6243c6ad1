"""A classic group: who is present, which round of a rebalance it is in, and what its records say (Kafka's ClassicGroup).

    Empty ──> PreparingRebalance ──> CompletingRebalance ──> Stable
                   ^   │  ^                   │                │
    Empty <────────┼───┘  └───────────────────┴────────────────┘
                any ──> Dead

The state is nowhere stored. What stands in the log is ``metadata``; a round on top of it is what may still be lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from broker.clock import Alarm
from broker.coordinators.group.image import GroupImage, GroupMetadata
from broker.coordinators.group.requests import Commit, JoinReply, Protocol, SyncReply
from protocol.errors import ErrorCode


class GroupState(Enum):
    """By Kafka's names."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(slots=True, kw_only=True, eq=False)
class Member:
    """Somebody who is present. Times in milliseconds."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    join_reply: JoinReply | None = None
    sync_reply: SyncReply | None = None
    session: Alarm | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class JoinRound:
    """PreparingRebalance: the members of ``generation`` are waited for."""

    generation: int
    protocol: str | None


@dataclass(slots=True, kw_only=True, eq=False)
class SyncRound:
    """CompletingRebalance: everybody of ``generation`` has joined, and its leader's assignment is waited for."""

    generation: int
    protocol: str


@dataclass(slots=True, kw_only=True, eq=False)
class ClassicGroup:
    """One group. Its durable part is read from the image, whose only writer is `replay`."""

    group_id: str
    image: GroupImage
    members: dict[str, Member] = field(default_factory=dict)
    """By member id, in the order in which they came."""
    pending: dict[str, Alarm] = field(default_factory=dict)
    """Member ids that were handed out and have not come back, each with the alarm that forgets it."""
    round: JoinRound | SyncRound | None = None

    @property
    def metadata(self) -> GroupMetadata | None:
        """What its records add up to; None where it has none (yet): a group that only has offsets."""
        return self.image.groups.get(self.group_id)

    @property
    def state(self) -> GroupState:
        raise NotImplementedError

    @property
    def protocol_type(self) -> str:
        """Of its members, or of those it had; empty if it never had any."""
        raise NotImplementedError

    @property
    def generation(self) -> int:
        raise NotImplementedError

    def validate_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """NONE if this is a member: UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID where another has its instance id."""
        raise NotImplementedError

    def check_commit(self, commit: Commit) -> ErrorCode:
        """NONE if ``commit`` may be written now (not within a transaction)."""
        raise NotImplementedError

    def subscribed_topics(self) -> frozenset[str] | None:
        """What its members are subscribed to; None where that is not known: they do not speak the consumer protocol, or
        it can't be read."""
        raise NotImplementedError
