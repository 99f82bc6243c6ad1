"""Counts of durations in buckets an eighth of their size wide: cheap to fill, and precise enough for a percentile."""

from collections.abc import Sequence
from typing import Final

_EIGHTHS: Final = 3
"""Each power of two is cut into 2**3 buckets."""

BUCKETS: Final = 320
"""As many as durations up to 2**40 µs (twelve days) need; longer ones are counted in the last."""


class Histogram:
    """Durations in microseconds. Sums of eight neighbours are the power-of-two buckets that metrics show."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts = [0] * BUCKETS

    def record(self, duration_us: int, times: int = 1) -> None:
        """Count a duration, ``times`` times."""
        shift = duration_us.bit_length() - _EIGHTHS - 1
        bucket = (shift << _EIGHTHS) + (duration_us >> shift) if shift > 0 else duration_us
        self.counts[bucket if bucket < BUCKETS else BUCKETS - 1] += times


def upper_bound_us(bucket: int) -> int:
    """The shortest duration that is too long for a bucket."""
    shift = max((bucket >> _EIGHTHS) - 1, 0)
    return (bucket - (shift << _EIGHTHS) + 1) << shift


def percentile_us(counts: Sequence[int], share: float) -> int:
    """What ``share`` (0 to 1) of all durations lie below, rounded up to the end of a bucket; 0 where there are none."""
    wanted = sum(counts) * share
    seen = 0
    for bucket, count in enumerate(counts):
        seen += count
        if count and seen >= wanted:
            return upper_bound_us(bucket)
    return 0
