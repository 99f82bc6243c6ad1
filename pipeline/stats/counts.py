"""Counters of tasks that can be merged: the sum of two has the same form as each."""

import hashlib
from collections.abc import Iterable
from typing import Any, Final

import numpy as np

MOST_KEYS: Final = 10_000
"""How many keys are kept for certain; while there are no more, their counts are exact."""
MOST_TIMES: Final = 10_000
_LONGEST_KEY: Final = 256
_WIDTHS_MINUTES: Final = (1, 60, 1440, 1440 * 366, 1440 * 366 * 10_000, 1440 * 366 * 10_000_000)
"""Kafka's times have 64 bits: with the last of these there are not many of any."""


class Powers:
    """How many numbers there were of 0, of 1, from 2 to 3, from 4 to 7, from 8 to 15, and so on."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        """By how many bits the numbers have."""

    def add(self, numbers: "np.ndarray[Any, Any]") -> None:
        """Count these, none of them below 0."""
        bits = np.frexp(numbers.astype(np.float64))[1]
        for each, count in enumerate(np.bincount(np.maximum(bits, 0)).tolist()):
            if count:
                self.counts[each] = self.counts.get(each, 0) + count

    def merge(self, other: "Powers") -> None:
        """Add what another has counted."""
        for each, count in other.counts.items():
            self.counts[each] = self.counts.get(each, 0) + count

    def ranges(self) -> list[tuple[int, int, int]]:
        """(from, to, count), rising, without gaps between the first and the last."""
        if not self.counts:
            return []
        return [
            (0 if bits == 0 else 1 << (bits - 1), 0 if bits == 0 else (1 << bits) - 1, self.counts.get(bits, 0))
            for bits in range(min(self.counts), max(self.counts) + 1)
        ]


class Times:
    """Records and their bytes, minute by minute; where there are very many minutes, hour by hour, or day by day."""

    __slots__ = ("buckets", "width_minutes")

    def __init__(self) -> None:
        self.width_minutes = 1
        self.buckets: dict[int, tuple[int, int]] = {}
        """(records, bytes) by the minute of 1970 in which it begins."""

    def add(self, minutes: "np.ndarray[Any, Any]", sizes: "np.ndarray[Any, Any]") -> None:
        """Count records by the minutes of their timestamps."""
        if not len(minutes):
            return
        starts, place = np.unique(minutes - minutes % self.width_minutes, return_inverse=True)
        counts = np.bincount(place).tolist()
        sums = np.bincount(place, weights=sizes).tolist()
        for start, count, size in zip(starts.tolist(), counts, sums, strict=True):
            self._add(start, count, int(size))
        self._widen(0)

    def merge(self, other: "Times") -> None:
        """Add what another has counted."""
        self._widen(other.width_minutes)
        for start, (count, size) in other.buckets.items():
            self._add(start - start % self.width_minutes, count, size)
        self._widen(0)

    def _add(self, start: int, count: int, size: int) -> None:
        records, size_before = self.buckets.get(start, (0, 0))
        self.buckets[start] = (records + count, size_before + size)

    def _widen(self, least_minutes: int) -> None:
        while self.width_minutes < least_minutes or len(self.buckets) > MOST_TIMES:
            before, self.buckets = self.buckets, {}
            self.width_minutes = next(width for width in _WIDTHS_MINUTES if width > self.width_minutes)
            for start, (count, size) in before.items():
                self._add(start - start % self.width_minutes, count, size)


class Keys:
    """How often each key occurs. Once there are more than can be kept, the rarest are given up, and every count may be
    a little too low: by `most_missed` at most."""

    __slots__ = ("counts", "most_missed")

    def __init__(self) -> None:
        self.counts: dict[bytes, int] = {}
        self.most_missed = 0

    def add(self, keys: Iterable[bytes], counts: Iterable[int]) -> None:
        """So many of these keys."""
        known = self.counts
        for key, count in zip(keys, counts, strict=True):
            short = key if len(key) <= _LONGEST_KEY else _shortened(key)
            known[short] = known.get(short, 0) + count
        self._forget_rare()

    def merge(self, other: "Keys") -> None:
        """Add what another has counted."""
        self.most_missed += other.most_missed
        self.add(other.counts.keys(), other.counts.values())

    def _forget_rare(self) -> None:
        if len(self.counts) > 2 * MOST_KEYS:
            ordered = sorted(self.counts.items(), key=lambda item: -item[1])
            self.most_missed += ordered[MOST_KEYS][1]
            self.counts = dict(ordered[:MOST_KEYS])

    @property
    def distinct(self) -> int | None:
        """How many different ones there were; None where that is not known for certain."""
        return None if self.most_missed else len(self.counts)

    def top(self, count: int) -> list[tuple[bytes, int]]:
        """The most frequent keys, with their counts."""
        return sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))[:count]


def _shortened(key: bytes) -> bytes:
    """Another one for every key, for all that chance can do."""
    return key[:64] + b"..." + hashlib.blake2b(key, digest_size=8).hexdigest().encode()
