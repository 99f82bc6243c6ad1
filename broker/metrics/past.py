"""Rates of counts, from their values a period or two ago."""

from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

from broker.runtime.clock import Clock

Key = TypeVar("Key", bound=Hashable)


class Past(Generic[Key]):
    """Keeps the values that counts had when the last two periods began."""

    def __init__(self, clock: Clock, started_ms: int, read: Callable[[], Mapping[Key, int]]) -> None:
        """``started_ms``: when all counts were 0, in milliseconds of the monotonic clock."""
        self._clock = clock
        self._read = read
        self._before: tuple[int, Mapping[Key, int]] = started_ms, {}
        self._last: tuple[int, Mapping[Key, int]] = self._before

    def period_is_over(self) -> None:
        """A period is over and the next begins."""
        self._before, self._last = self._last, (self._clock.monotonic_ms(), self._read())

    def rates(self) -> dict[Key, float]:
        """The growth of each count per second, over the last period and this one."""
        since_ms, before = self._before
        seconds = max(self._clock.monotonic_ms() - since_ms, 1) / 1000
        return {key: (value - before.get(key, 0)) / seconds for key, value in self._read().items()}
