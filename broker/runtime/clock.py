"""Clock, Alarm and Ids: where time and new ids come from, and their implementations by the event loop and chance."""

from collections.abc import Callable
from typing import Protocol


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
    """The event loop's time. Loop and wall clock are handed in, so that nothing here needs asyncio."""

    def __init__(self, loop: TimerLoop, wall_seconds: Callable[[], float]) -> None:
        self._loop = loop
        self._wall_seconds = wall_seconds

    def now_ms(self) -> int:
        return int(self._wall_seconds() * 1000)

    def monotonic_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> Alarm:
        return self._loop.call_at(deadline_ms / 1000, callback)


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
