"""What happens to groups, for whoever writes it down or counts it."""

from typing import Protocol


class GroupEvents(Protocol):
    """Told by the machine, in the turn in which it happens. `why` and `reason` are sentences without a full stop."""

    def rebalance_began(self, group_id: str, generation: int, members: int, why: str) -> None:
        """The group waits for its members to join; ``generation`` is the one that ends."""

    def generation_formed(self, group_id: str, generation: int, protocol: str, members: int, waited_ms: int) -> None:
        """Everybody has joined, or the time is up. ``waited_ms``: since the last member joined."""

    def assignment_stored(self, group_id: str, generation: int, members: int) -> None:
        """The leader's assignment stands: the group is stable."""

    def group_emptied(self, group_id: str, generation: int) -> None:
        """The last member has gone, and the record that says so stands."""

    def member_removed(self, group_id: str, member_id: str, why: str) -> None:
        """It left, was removed, or has been silent for too long."""

    def member_fenced(self, group_id: str, instance_id: str, member_id: str) -> None:
        """Another process has come with its instance id; ``member_id`` is the one that counts no more."""

    def offsets_expired(self, group_id: str, offsets: int) -> None:
        """Their retention was over."""

    def group_removed(self, group_id: str, why: str) -> None:
        """Its tombstone stands."""

    def write_failed(self, group_id: str, what: str, error: str) -> None:
        """A change of the machine's own could not be written; it is tried again."""
