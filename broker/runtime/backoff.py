"""How long to wait before what has failed is tried again."""

from collections.abc import Callable
from typing import Final

RECONNECT_FIRST_MS: Final = 50
"""Kafka's default for `reconnect.backoff.ms`, which brokers do not change."""
RECONNECT_LONGEST_MS: Final = 1_000
"""Kafka's default for `reconnect.backoff.max.ms`."""
JITTER: Final = 0.2


class Backoff:
    """Pauses that grow from failure to failure, by Kafka's formula: chance makes a pause shorter or longer, but never
    longer than the longest."""

    __slots__ = ("_chance", "_factor", "_first_ms", "_jitter", "_longest_ms", "_pause_ms")

    def __init__(
        self,
        chance: Callable[[], float],
        *,
        first_ms: int = RECONNECT_FIRST_MS,
        longest_ms: int = RECONNECT_LONGEST_MS,
        factor: float = 2,
        jitter: float = JITTER,
    ) -> None:
        """``chance`` returns a number from 0 to 1, as `random.random` does. A ``factor`` of 1 makes even pauses."""
        self._chance = chance
        self._first_ms = min(first_ms, longest_ms)
        self._longest_ms = longest_ms
        self._factor = factor
        self._jitter = jitter
        self._pause_ms: float = self._first_ms

    def next_ms(self) -> int:
        """It has failed once more: return the pause before the next attempt."""
        pause_ms = self._pause_ms
        self._pause_ms = min(pause_ms * self._factor, self._longest_ms)
        spread = 1 + self._jitter * (2 * self._chance() - 1)
        return min(int(pause_ms * spread), self._longest_ms)

    def reset(self) -> None:
        """It has succeeded: the next pause is the first again."""
        self._pause_ms = self._first_ms
