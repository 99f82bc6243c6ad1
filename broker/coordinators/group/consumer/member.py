"""A member of a consumer group, as its records describe it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from broker.coordinators.group.requests import Protocol

Owned: TypeAlias = Mapping[bytes, Mapping[int, int]]
"""Partitions by topic id, each with the assignment epoch in which the member has got it."""

NOTHING_OWNED: Final[Owned] = MappingProxyType({})

LEFT_FOR_A_WHILE: Final = -2
"""The epoch of a static member that has left and may come back within its session timeout."""


class MemberState(IntEnum):
    """How far a member has come on the way to its target assignment, by the numbers in the records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has to give up partitions, and has not acknowledged that yet."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that another member has not given up yet."""
    UNKNOWN = 127


class ClassicSide(NamedTuple):
    """What a member brings that has joined with the classic protocol."""

    session_timeout_ms: int
    protocols: Sequence[Protocol]

    def supports(self, name: str) -> bool:
        """Whether the member supports the protocol."""
        return any(protocol.name == name for protocol in self.protocols)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """A member. Immutable: a record replaces the member. Times are in milliseconds."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topics: frozenset[str] = frozenset()
    subscribed_regex: str = ""
    """Empty: the member subscribes by names only."""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    """The server's assignor that the member wants."""
    classic: ClassicSide | None = None
    """None of a member of the newer protocol."""

    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Owned = field(default_factory=lambda: NOTHING_OWNED)
    pending_revocation: Owned = field(default_factory=lambda: NOTHING_OWNED)
    """Partitions that the member has to give up."""

    @property
    def held(self) -> Mapping[bytes, frozenset[int]]:
        """Partitions by topic id that no other member may read: those assigned, and those still to be given up."""
        owned = (self.assigned, self.pending_revocation)
        topics = {topic_id for one in owned for topic_id in one}
        return {topic_id: frozenset().union(*(one.get(topic_id, ()) for one in owned)) for topic_id in topics}

    @property
    def is_revoking(self) -> bool:
        """Whether it has to give something up, and has not acknowledged that yet."""
        return self.state is MemberState.UNREVOKED_PARTITIONS

    def is_at(self, assignment_epoch: int) -> bool:
        """Whether the member has all of its target assignment of this epoch, and nothing else."""
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch
