"""ManualClock: a clock that stands until it is moved by hand, for tests, and for a broker that is under a test."""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final

_MOST_CANCELLED: Final = 100
"""So many alarms may be cancelled before the clock looks whether they are most of what it keeps."""


class ManualAlarm:
    """A callback that is called when the clock has been moved far enough."""

    def __init__(self, clock: "ManualClock", deadline_ms: int, callback: Callable[[], None]) -> None:
        self.clock = clock
        self.deadline_ms = deadline_ms
        self.callback = callback
        self.is_armed = True

    def cancel(self) -> None:
        if self.is_armed:
            self.is_armed = False
            self.callback = _nothing
            self.clock.count_cancelled()


def _nothing() -> None:
    """What a cancelled alarm keeps of its callback."""


class ManualClock:
    """A `broker.runtime.clock.Clock` whose time passes only where `advance` or `ring_next` moves it."""

    def __init__(self, now_ms: int = 1_700_000_000_000, monotonic_ms: int = 1_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms
        self._order = count()
        self._alarms: list[tuple[int, int, ManualAlarm]] = []
        self._cancelled = 0
        """How many of these will not ring."""

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def monotonic_us(self) -> int:
        return self._monotonic_ms * 1000

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> ManualAlarm:
        alarm = ManualAlarm(self, deadline_ms, callback)
        heappush(self._alarms, (deadline_ms, next(self._order), alarm))
        return alarm

    @property
    def alarms(self) -> int:
        """How many alarms are set."""
        return sum(alarm.is_armed for _, _, alarm in self._alarms)

    def count_cancelled(self) -> None:
        """An alarm has been cancelled. A clock that is never moved keeps no more of these than of others."""
        self._cancelled += 1
        if self._cancelled > max(_MOST_CANCELLED, len(self._alarms) // 2):
            self._alarms = [entry for entry in self._alarms if entry[-1].is_armed]
            heapify(self._alarms)
            self._cancelled = 0

    def advance(self, by_ms: int) -> None:
        """Move the clock forward. Every alarm on the way rings at its own time, also alarms that are set by other
        alarms."""
        until_ms = self._monotonic_ms + by_ms
        while self.ring_next(until_ms):
            pass
        self.move_to(until_ms)

    def ring_next(self, until_ms: int) -> bool:
        """Move the clock to the next alarm up to ``until_ms``, and ring it; False where there is none."""
        while self._alarms and self._alarms[0][0] <= until_ms:
            deadline_ms, _, alarm = heappop(self._alarms)
            if alarm.is_armed:
                alarm.is_armed = False
                self.move_to(max(deadline_ms, self._monotonic_ms))
                alarm.callback()
                return True
            self._cancelled -= 1
        return False

    def move_to(self, monotonic_ms: int) -> None:
        """Move the clock without ringing: to a time before the next alarm, in milliseconds of the monotonic clock."""
        self._now_ms += monotonic_ms - self._monotonic_ms
        self._monotonic_ms = monotonic_ms
