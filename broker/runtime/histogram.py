"""Histograms of durations or sizes, in buckets an eighth of their value wide: precise enough for percentiles."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import add
from typing import Final

_EIGHTHS: Final = 3
"""Each power of two is cut into 2**3 buckets."""

BUCKETS: Final = 320
"""As many buckets as durations up to 2**40 µs (twelve days) need; longer durations are counted in the last bucket."""


class Histogram:
    """Counts of durations in microseconds, or of sizes in bytes. Eight neighbouring buckets are a power of two."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts = [0] * BUCKETS

    def record(self, duration_us: int, times: int = 1) -> None:
        """Count a duration, ``times`` times."""
        shift = duration_us.bit_length() - _EIGHTHS - 1
        bucket = (shift << _EIGHTHS) + (duration_us >> shift) if shift > 0 else duration_us
        self.counts[bucket if bucket < BUCKETS else BUCKETS - 1] += times


class RecentHistogram(Histogram):
    """A histogram of the last two periods: values since `rotate` was called the last time but one."""

    __slots__ = ("_before",)

    def __init__(self) -> None:
        super().__init__()
        self._before = [0] * BUCKETS

    def rotate(self) -> None:
        """A period is over: forget what was recorded before it."""
        self._before, self.counts = self.counts, [0] * BUCKETS

    def recent(self) -> list[int]:
        """The counts of the last two periods, this one not yet over."""
        return list(map(add, self._before, self.counts))


class CountedHistogram(RecentHistogram):
    """A histogram of the last two periods that also knows how many values there were since the start."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def record(self, duration_us: int, times: int = 1) -> None:
        """Count a value, ``times`` times."""
        super().record(duration_us, times)
        self.total += times


def upper_bound(bucket: int) -> int:
    """The least value that is too large for a bucket."""
    shift = max((bucket >> _EIGHTHS) - 1, 0)
    return (bucket - (shift << _EIGHTHS) + 1) << shift


def average(counts: Sequence[int]) -> float:
    """The average of the counted values, each rounded up to the end of its bucket; 0 without values."""
    counted = sum(counts)
    return sum(upper_bound(bucket) * count for bucket, count in enumerate(counts) if count) / counted if counted else 0


def percentiles(counts: Sequence[int], shares: Iterable[float]) -> list[int]:
    """The percentile for each of ``shares`` (above 0, up to 1), rounded up to the bucket's end; 0 without values."""
    seen = list(accumulate(counts))
    if not seen[-1]:
        return [0 for _ in shares]
    return [upper_bound(bisect_left(seen, seen[-1] * share)) for share in shares]
