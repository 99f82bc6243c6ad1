"""KeptGroups: groups of protocols that are not served here. They are listed, and their records stay in the log."""

from __future__ import annotations

from collections.abc import Collection

from broker.coordinators.group.modern.group import ModernGroup
from broker.coordinators.group.records import GroupResult
from broker.coordinators.group.requests import NO_GENERATION, Commit, ListedGroup
from protocol.errors import ErrorCode
from protocol.records.group_metadata import GroupRecord


class KeptGroups:
    """A `GroupsOfKind` that knows no members, so that nobody can be a member."""

    def loaded(self) -> None:
        """There are no sessions."""

    def unload(self, code: ErrorCode) -> None:
        """There are no alarms."""

    def replayed(self, group_id: str) -> None:
        """Nothing follows from a record."""

    def topics_changed(self, names: Collection[str], *, are_new: bool) -> None:
        """Nothing follows from a topic."""

    def glance(self, group: ModernGroup) -> ListedGroup:
        """The group, with its kind and without members."""
        return ListedGroup(group.group_id, group.kind, "Empty", group.kind, 0)

    def check_commit(self, group: ModernGroup, commit: Commit) -> ErrorCode:
        """A client that is no member may commit, as `kafka-consumer-groups --reset-offsets` does."""
        return ErrorCode.NONE if commit.generation <= NO_GENERATION else ErrorCode.UNKNOWN_MEMBER_ID

    def check_fetch(self, group: ModernGroup, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Everybody may read."""
        return ErrorCode.NONE

    def check_delete_offsets(self, group: ModernGroup) -> ErrorCode:
        """The subscriptions are unknown, so no offset is deleted."""
        return ErrorCode.NON_EMPTY_GROUP

    def check_delete(self, group: ModernGroup) -> ErrorCode:
        """The members are unknown, so the group may have some."""
        return ErrorCode.NON_EMPTY_GROUP

    def has_expiring_offsets(self, group: ModernGroup) -> bool:
        """The subscriptions are unknown, so nothing expires."""
        return False

    def tombstones(self, group: ModernGroup) -> list[GroupRecord]:
        """Nothing asks for them, since the group is never deleted."""
        return []

    def expire_members(self, group: ModernGroup, member: str | None) -> tuple[int, GroupResult | None]:
        """There are no members."""
        return 0, None
