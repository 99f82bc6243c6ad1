"""AssignmentTurns: which heartbeat of a group computes the target assignments of a new group epoch.

Not every heartbeat with which the epoch grows: what it computes would be thrown away by the next. So targets are
computed at most once in an assignment interval, and heartbeats that wait for records of their group leave it to the
last of them. The first member of a group has its partitions with its first heartbeat.
"""

from __future__ import annotations

from broker.coordinators.group.modern.group import ModernGroup
from broker.coordinators.group.modern.kinds import Context


class AssignmentTurns:
    """The turns of all groups of one kind in a partition."""

    def __init__(self, around: Context, interval: str) -> None:
        """``interval``: the name of the groups' config, in milliseconds."""
        self._around = around
        self._interval = interval
        self._left: dict[str, int] = {}
        """How many of the heartbeats that waited behind the first with a new epoch are left, by group."""

    def is_due(self, group: ModernGroup) -> bool:
        """Whether the heartbeat that is being decided is to compute targets. To be asked only where they are behind."""
        computed_ms = group.assignment_timestamp
        if not computed_ms:
            return True
        interval_ms = self._around.configs(group.group_id, self._interval)
        if interval_ms and self._around.clock.now_ms() < computed_ms + interval_ms:
            return False
        # Those that come later do not count: the turn of a busy group has an end.
        left = self._left.pop(group.group_id, None)
        waiting = self._around.queues.count_waiting(group.group_id)
        left = waiting if left is None else min(left - 1, waiting)
        if left > 0:
            self._left[group.group_id] = left
        return left <= 0

    def forget(self, group_id: str) -> None:
        """The group is gone."""
        self._left.pop(group_id, None)
