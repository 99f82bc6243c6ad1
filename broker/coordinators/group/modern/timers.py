"""Timers of members: sessions, and deadlines that members have to keep."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import TypeAlias

from broker.runtime.clock import Alarm
from broker.runtime.timing_wheel import TimingWheel


class Deadline(Enum):
    """What a member has to do in time."""

    SESSION = "send a heartbeat"
    REVOCATION = "give up partitions that it loses"
    JOIN = "join again"
    """Of a member of the classic protocol."""
    SYNC = "ask for its assignment"
    """Of a member of the classic protocol."""


_Key: TypeAlias = tuple[str, str, Deadline]


class MemberTimers:
    """The alarms of all members of one kind of groups, by group id, member id and deadline."""

    def __init__(self, wheel: TimingWheel) -> None:
        self._wheel = wheel
        self._alarms: dict[_Key, Alarm] = {}
        self._is_over = False

    def set(
        self, group_id: str, member_id: str, deadline: Deadline, after_ms: int, is_missed: Callable[[], None]
    ) -> None:
        """Set a deadline, anew if there is one; none once all are cancelled."""
        if self._is_over:
            return
        key = (group_id, member_id, deadline)
        if (alarm := self._alarms.pop(key, None)) is not None:
            alarm.cancel()

        def ring() -> None:
            del self._alarms[key]
            is_missed()

        self._alarms[key] = self._wheel.add_after(after_ms, ring)

    def has(self, group_id: str, member_id: str, deadline: Deadline) -> bool:
        """Whether the deadline is set."""
        return (group_id, member_id, deadline) in self._alarms

    def cancel(self, group_id: str, member_id: str, deadlines: Iterable[Deadline] = Deadline) -> None:
        """Cancel deadlines of a member, all if none is named."""
        for deadline in deadlines:
            if (alarm := self._alarms.pop((group_id, member_id, deadline), None)) is not None:
                alarm.cancel()

    def cancel_all(self) -> None:
        """Cancel every deadline, for good: the groups are unloaded."""
        self._is_over = True
        alarms, self._alarms = self._alarms, {}
        for alarm in alarms.values():
            alarm.cancel()
