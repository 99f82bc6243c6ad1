"""Clock, Alarm and Ids: where time and new ids come from, and their implementations by the event loop and chance."""

from collections.abc import Callable
from typing import Final, Protocol

TICK_S: Final = 0.5
"""How often the loop shows that it turns."""

LONGEST_TURN_S: Final = 1.0
"""If it has not shown that for so long, it has stood still."""

HEARING_S: Final = 0.1
"""For so long after that the clock still stands: what has come meanwhile is read and handled first."""


class Alarm(Protocol):
    """A callback that is due at some time and can be cancelled."""

    def cancel(self) -> None:
        """Cancel the callback; does nothing once it has run."""


class Clock(Protocol):
    """Where time comes from: the event loop in the broker, a hand-moved clock in tests."""

    def now_ms(self) -> int:
        """Wall-clock time, in milliseconds since 1970 (UTC): what time stamps are made of."""

    def monotonic_ms(self) -> int:
        """Milliseconds of the monotonic clock, which never goes back: what deadlines are made of."""

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> Alarm:
        """Call ``callback`` once ``monotonic_ms()`` has reached ``deadline_ms``."""


class TimerLoop(Protocol):
    """The part of an event loop that a clock is made of; seconds, as asyncio has them."""

    def time(self) -> float: ...

    def call_at(self, when: float, callback: Callable[[], None]) -> Alarm: ...


class LoopClock:
    """The event loop's time. Loop and wall clock are handed in, so that nothing here needs asyncio.

    The monotonic clock stands while the loop does: in a process that is stopped or frozen, or busy for seconds. Such a
    process hears nobody, so nobody's silence has grown meanwhile (docs/decisions/silence.md).
    """

    def __init__(self, loop: TimerLoop, wall_seconds: Callable[[], float]) -> None:
        self._loop = loop
        self._wall_seconds = wall_seconds
        self.stood_s = 0.0
        """For how long the loop has stood still in all."""
        self._now_s = loop.time()
        """When the clock was read last, by its own time."""
        self._latest_s = 0.0
        """A later time means that the loop has stood still."""
        self._stood_before_s = 0.0
        """`stood_s` at the last tick."""
        self._is_slow = False
        """Whether the loop had stood still before the last tick, too."""
        self._ticks = False
        """Whether it is known when the loop turned last: as long as there are alarms."""
        self._armed = 0

    def now_ms(self) -> int:
        return int(self._wall_seconds() * 1000)

    def monotonic_ms(self) -> int:
        now_s = self._loop.time() - self.stood_s
        if now_s > self._latest_s and self._ticks:
            if self._is_slow:
                self._now_s = self._latest_s  # or the clock would stand for as long as every turn is long
            self.stood_s += now_s - self._now_s + HEARING_S
        elif now_s > self._now_s:
            self._now_s = now_s
        return int(self._now_s * 1000)

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> Alarm:
        alarm = LoopAlarm(self, deadline_ms, callback)
        if not self._ticks:
            self._tick()
        return alarm

    def arm(self, deadline_ms: int, callback: Callable[[], None]) -> Alarm:
        """Have the loop call at a time of this clock; too early if the clock stands meanwhile."""
        self._armed += 1
        return self._loop.call_at(deadline_ms / 1000 + self.stood_s, callback)

    def disarmed(self) -> None:
        """An alarm that was armed has rung, or is cancelled."""
        self._armed -= 1

    def _tick(self) -> None:
        self.monotonic_ms()
        self._is_slow, self._stood_before_s = self.stood_s > self._stood_before_s, self.stood_s
        self._ticks = self._armed > 0
        if self._ticks:
            self._latest_s = self._now_s + LONGEST_TURN_S
            self._loop.call_at(self._loop.time() + TICK_S, self._tick)


class LoopAlarm:
    """An alarm of a `LoopClock`."""

    __slots__ = ("_callback", "_clock", "_deadline_ms", "_handle", "_stood_s")

    def __init__(self, clock: LoopClock, deadline_ms: int, callback: Callable[[], None]) -> None:
        self._clock = clock
        self._deadline_ms = deadline_ms
        self._callback = callback
        self._stood_s = clock.stood_s
        self._handle: Alarm | None = clock.arm(deadline_ms, self._ring)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
            self._clock.disarmed()

    def _ring(self) -> None:
        self._handle = None
        self._clock.disarmed()
        now_ms = self._clock.monotonic_ms()
        if self._stood_s != self._clock.stood_s and now_ms < self._deadline_ms:
            self._stood_s = self._clock.stood_s
            self._handle = self._clock.arm(self._deadline_ms, self._ring)
        else:
            self._callback()


class Ids(Protocol):
    """Where new ids come from: chance in the broker, a counter in tests."""

    def uuid(self) -> bytes:
        """A new id of 16 bytes, unique; as text it never begins with a dash."""


class SystemIds:
    """Random ids (UUID version 4); the source of chance is handed in, as ``os.urandom`` is."""

    def __init__(self, random_bytes: Callable[[int], bytes]) -> None:
        self._random_bytes = random_bytes

    def uuid(self) -> bytes:
        while True:
            raw = bytearray(self._random_bytes(16))
            raw[6] = raw[6] & 0x0F | 0x40
            raw[8] = raw[8] & 0x3F | 0x80
            # The first six bits are the first character in Base64; Kafka's tools would take "-…" for an option.
            if raw[0] >> 2 != 0b111110:
                return bytes(raw)
