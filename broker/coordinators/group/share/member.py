"""A member of a share group, as its records describe it."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.coordinators.group.modern.group import NOTHING, Assignment
from storage.sentinels import NO_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareMember:
    """A member. Immutable: a record replaces the member."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topics: frozenset[str] = frozenset()
    epoch: int = 0
    previous_epoch: int = NO_EPOCH
    assigned: Assignment = field(default_factory=lambda: NOTHING)

    @property
    def instance_id(self) -> str | None:
        """Share groups have no static members."""
        return None

    def is_at(self, assignment_epoch: int) -> bool:
        """Whether the member has its target assignment of this epoch: a member gives up partitions at once."""
        return self.epoch == assignment_epoch
