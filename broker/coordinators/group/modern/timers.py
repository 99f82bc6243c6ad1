"""Timers of members: sessions, and deadlines that members have to keep."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import TypeAlias

from broker.runtime.clock import Alarm, Clock
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


class _Set:
    """A deadline that is set."""

    __slots__ = ("alarm", "due_ms", "is_missed")

    def __init__(self, due_ms: int, is_missed: Callable[[], None]) -> None:
        self.due_ms = due_ms
        """Of the monotonic clock; the alarm may ring before."""
        self.is_missed = is_missed
        self.alarm: Alarm | None = None


class MemberTimers:
    """The alarms of all members of one kind of groups, by group id, member id and deadline."""

    def __init__(self, wheel: TimingWheel, clock: Clock) -> None:
        """``clock``: the clock of ``wheel``."""
        self._wheel = wheel
        self._clock = clock
        self._deadlines: dict[_Key, _Set] = {}
        self._is_over = False

    def set(
        self, group_id: str, member_id: str, deadline: Deadline, after_ms: int, is_missed: Callable[[], None]
    ) -> None:
        """Set a deadline, anew if there is one; none once all are cancelled."""
        if self._is_over:
            return
        key = (group_id, member_id, deadline)
        _cancel(self._deadlines.pop(key, None))
        one = self._deadlines[key] = _Set(self._clock.monotonic_ms() + after_ms, is_missed)
        self._arm(key, one, after_ms)

    def prolong(self, group_id: str, member_id: str, deadline: Deadline, after_ms: int) -> bool:
        """Move a deadline that is set to a later time. Returns whether it is moved: not if none is set, or a later one.

        Costs no alarm: a member's session begins anew with each of its heartbeats, and hardly ever ends.
        """
        one = self._deadlines.get((group_id, member_id, deadline))
        due_ms = self._clock.monotonic_ms() + after_ms
        if one is None or due_ms < one.due_ms:
            return False
        one.due_ms = due_ms
        return True

    def has(self, group_id: str, member_id: str, deadline: Deadline) -> bool:
        """Whether the deadline is set."""
        return (group_id, member_id, deadline) in self._deadlines

    def cancel(self, group_id: str, member_id: str, deadlines: Iterable[Deadline] = Deadline) -> None:
        """Cancel deadlines of a member, all if none is named."""
        for deadline in deadlines:
            _cancel(self._deadlines.pop((group_id, member_id, deadline), None))

    def cancel_all(self) -> None:
        """Cancel every deadline, for good: the groups are unloaded."""
        self._is_over = True
        deadlines, self._deadlines = self._deadlines, {}
        for one in deadlines.values():
            _cancel(one)

    def _arm(self, key: _Key, one: _Set, after_ms: int) -> None:
        def ring() -> None:
            left_ms = one.due_ms - self._clock.monotonic_ms()
            if left_ms > 0:
                self._arm(key, one, left_ms)
            else:
                del self._deadlines[key]
                one.is_missed()

        one.alarm = self._wheel.add_after(after_ms, ring)


def _cancel(one: _Set | None) -> None:
    if one is not None and one.alarm is not None:
        one.alarm.cancel()
