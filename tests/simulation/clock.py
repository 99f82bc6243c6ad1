"""SimulatedClock: `broker.runtime.clock.Clock` on the simulated loop, with a wall clock of its own."""

from collections.abc import Callable
from typing import Final

from broker.runtime.clock import Alarm
from tests.simulation.loop import START_S, SimulatedLoop

WALL_START_MS: Final = 1_700_000_000_000
"""What the wall clocks show when a run begins, in milliseconds since 1970."""

MS_PER_HOUR: Final = 3_600_000

_HALF_MICROSECOND_MS: Final = 0.0005
"""The loop's time is a float of seconds, whose thousandfold may lie a little below the millisecond that was meant."""


class SimulatedClock:
    """The clock of one machine."""

    def __init__(self, loop: SimulatedLoop, skew_ms: int = 0) -> None:
        """``skew_ms``: by how much the machine's wall clock is fast."""
        self._loop = loop
        self.skew_ms = skew_ms

    def now_ms(self) -> int:
        return WALL_START_MS + self.skew_ms + int((self._loop.time() - START_S) * 1000 + _HALF_MICROSECOND_MS)

    def monotonic_ms(self) -> int:
        return int(self._loop.time() * 1000 + _HALF_MICROSECOND_MS)

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> Alarm:
        return self._loop.call_at(deadline_ms / 1000, callback)
