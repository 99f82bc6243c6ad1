"""TimingWheel: a hierarchical timing wheel for millions of deadlines, on one alarm of the clock.

    level 0   20 buckets of 1 ms       the next 20 ms
    level 1   20 buckets of 20 ms      the next 400 ms
    level 2   20 buckets of 400 ms     the next 8 s
    level n   20 buckets of 20^n ms    made when a deadline needs it

A timer is in the bucket of its deadline, in the finest level that reaches that far. Setting or cancelling a timer is
one change of one dict, however many timers there are. When the time of a coarse bucket comes, its timers move to finer
buckets. The clock's alarm is set for the next bucket with timers and for nothing else: there is no polling.
"""

from collections.abc import Callable
from typing import Final

from broker.runtime.clock import Alarm, Clock

BUCKETS: Final = 20


class Timer:
    """A callback that is due at ``deadline_ms`` of the monotonic clock. An `Alarm`."""

    __slots__ = ("_bucket", "_callback", "_wheel", "deadline_ms")

    def __init__(self, wheel: "TimingWheel", deadline_ms: int, callback: Callable[[], None]) -> None:
        self._wheel = wheel
        self._callback = callback
        self._bucket: Bucket | None = None
        self.deadline_ms = deadline_ms

    @property
    def is_pending(self) -> bool:
        """Whether the timer has neither run nor been cancelled."""
        return self._bucket is not None

    def cancel(self) -> None:
        """Cancel the timer; does nothing once it has run."""
        if self._bucket is not None:
            del self._bucket[self]
            self._bucket = None
            self._callback = _nothing  # the callback often refers to this timer, and to a request's megabyte
            self._wheel._pending -= 1

    def _move_to(self, bucket: "Bucket") -> None:
        bucket[self] = None
        self._bucket = bucket

    def _run(self) -> None:
        callback = self._callback
        self.cancel()
        callback()


def _nothing() -> None:
    """The callback of a timer that has run or was cancelled."""


Bucket = dict[Timer, None]
"""A set that keeps its order: of two timers with one deadline the one set first runs first."""


class TimingWheel:
    """The timers of all waiting requests, members and transactions of a broker."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._levels: list[list[Bucket]] = []
        self._current_ms = clock.monotonic_ms()
        """Every bucket that begins before this is empty."""
        self._due: Bucket = {}
        self._pending = 0
        self._alarm: Alarm | None = None
        self._alarm_ms = 0

    def __len__(self) -> int:
        return self._pending

    def add(self, deadline_ms: int, callback: Callable[[], None]) -> Timer:
        """Run ``callback`` once the clock has reached ``deadline_ms``: in a later turn of the loop, even if it has."""
        return self._add(deadline_ms, self._clock.monotonic_ms(), callback)

    def add_after(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        """Run ``callback`` ``delay_ms`` from now."""
        now_ms = self._clock.monotonic_ms()
        return self._add(now_ms + delay_ms, now_ms, callback)

    def _add(self, deadline_ms: int, now_ms: int, callback: Callable[[], None]) -> Timer:
        if self._alarm is None or now_ms < self._alarm_ms:
            # No timer was due in between, or the alarm would have rung.
            self._current_ms = now_ms
        timer = Timer(self, deadline_ms, callback)
        self._pending += 1
        self._arm(self._place(timer))
        return timer

    def _place(self, timer: Timer) -> int:
        """Put a timer into its bucket and return when that begins."""
        deadline_ms = max(timer.deadline_ms, self._current_ms)
        level, width_ms = 0, 1
        while deadline_ms // width_ms - self._current_ms // width_ms >= BUCKETS:
            level, width_ms = level + 1, width_ms * BUCKETS
        while level >= len(self._levels):
            self._levels.append([{} for _ in range(BUCKETS)])
        number = deadline_ms // width_ms
        timer._move_to(self._levels[level][number % BUCKETS])
        return number * width_ms

    def _arm(self, when_ms: int) -> None:
        if self._alarm is not None:
            if self._alarm_ms <= when_ms:
                return
            self._alarm.cancel()
        self._alarm_ms = when_ms
        self._alarm = self._clock.call_at(when_ms, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        # A clock may round: it has rung, so the alarm's time has come.
        now_ms = max(self._clock.monotonic_ms(), self._alarm_ms)
        self._collect(now_ms)
        if (upcoming := self._next_bucket()) is not None:
            self._arm(upcoming[0])
        try:
            for timer in tuple(self._due):
                # A callback before may have cancelled this timer.
                if timer.is_pending:
                    timer._run()
        finally:
            # An error of a callback must not keep the other timers from running.
            if self._due:
                self._arm(now_ms)

    def _collect(self, now_ms: int) -> None:
        """Collect the timers that are due, and move the others of every bucket that has begun to finer buckets."""
        while (upcoming := self._next_bucket()) is not None and upcoming[0] <= now_ms:
            self._current_ms, bucket = upcoming
            timers = tuple(bucket)
            bucket.clear()
            for timer in timers:
                if timer.deadline_ms <= self._current_ms:
                    timer._move_to(self._due)
                else:
                    self._place(timer)
        self._current_ms = now_ms

    def _next_bucket(self) -> tuple[int, Bucket] | None:
        """The next bucket with timers, and when it begins. Of two that begin together the coarser is the first, since
        its timers may have to move into the other."""
        found: tuple[int, Bucket] | None = None
        width_ms = 1
        for buckets in self._levels:
            first = self._current_ms // width_ms
            for number in range(first, first + BUCKETS):
                bucket = buckets[number % BUCKETS]
                if bucket:
                    if found is None or number * width_ms <= found[0]:
                        found = number * width_ms, bucket
                    break
            width_ms *= BUCKETS
        return found
