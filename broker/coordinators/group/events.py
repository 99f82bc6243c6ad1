"""GroupEvents: the interface through which the groups of a shard report what happens, to be logged and counted."""

from typing import Protocol


class GroupEvents(Protocol):
    """The shard calls a method in the turn in which the event happens. `why` is a sentence without a full stop."""

    def rebalance_began(self, group_id: str, generation: int, members: int, why: str) -> None:
        """The group waits for its members to join; ``generation`` is the one that ends."""

    def generation_formed(self, group_id: str, generation: int, protocol: str, members: int, waited_ms: int) -> None:
        """All members have joined, or the time is over. ``waited_ms``: since the last member joined."""

    def assignment_stored(self, group_id: str, generation: int, members: int) -> None:
        """The leader's assignment is stored in the log: the group is stable."""

    def group_emptied(self, group_id: str, generation: int) -> None:
        """The last member has gone, and the record of the empty group is in the log."""

    def member_removed(self, group_id: str, member_id: str, why: str) -> None:
        """A member left, was removed, or has been silent for too long."""

    def member_fenced(self, group_id: str, instance_id: str, member_id: str) -> None:
        """Another process has joined with the instance id of member ``member_id``, which is fenced."""

    def offsets_expired(self, group_id: str, offsets: int) -> None:
        """Offsets of the group have been deleted because their retention was over."""

    def group_removed(self, group_id: str, why: str) -> None:
        """The group's tombstone is in the log: the group no longer exists."""

    def write_failed(self, group_id: str, what: str, error: str) -> None:
        """A record that no request asked for could not be written; the write is tried again."""
