"""UnsentAssignments: members that may not know what they are assigned, since the broker was killed.

A member is told of its assignment in the answer to the heartbeat that changes it. The records of the change outlive the
broker, and the answer may not. librdkafka goes on with heartbeats that say nothing then: it would keep partitions that
it has lost until its rebalance timeout is over. So the first heartbeat of each loaded member is answered with its
assignment; a member that knows that already does nothing. (Kafka 4.4.0 tells such a member nothing.)
"""

from __future__ import annotations

from collections.abc import Iterable


class UnsentAssignments:
    """The members of all groups of one kind in a partition that have not been told since the partition was loaded."""

    def __init__(self) -> None:
        self._unsent: dict[str, set[str]] = {}

    def loaded(self, group_id: str, member_ids: Iterable[str]) -> None:
        """The group was loaded with these members."""
        if members := set(member_ids):
            self._unsent[group_id] = members

    def is_unsent(self, group_id: str, member_id: str) -> bool:
        """Whether the member has to be told of its assignment."""
        return member_id in self._unsent.get(group_id, ())

    def told(self, group_id: str, member_id: str) -> None:
        """The member is answered with its assignment."""
        members = self._unsent.get(group_id)
        if members is not None:
            members.discard(member_id)
            if not members:
                del self._unsent[group_id]

    def forget(self, group_id: str) -> None:
        """The group is gone."""
        self._unsent.pop(group_id, None)
