"""Counters that tasks fill and the command merges: the sum of two counters has the same form as each."""

import hashlib
from collections.abc import Iterable
from typing import Any, Final

import numpy as np

MOST_KEYS: Final = 10_000
"""How many keys are kept. As long as there are no more, their counts are exact."""
MOST_TIMES: Final = 10_000
_LONGEST_KEY: Final = 256
_WIDTHS_MINUTES: Final = (1, 60, 1440, 1440 * 366, 1440 * 366 * 10_000, 1440 * 366 * 10_000_000)
"""The widths of buckets. Kafka's timestamps have 64 bits; even so there are few buckets of the last width."""


class Powers:
    """How many numbers were 0, 1, 2 to 3, 4 to 7, 8 to 15, and so on."""

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        """Counts by the number of bits."""

    def add(self, numbers: "np.ndarray[Any, Any]") -> None:
        """Count these numbers; none is negative."""
        bits = np.frexp(numbers.astype(np.float64))[1]
        for each, count in enumerate(np.bincount(np.maximum(bits, 0)).tolist()):
            if count:
                self.counts[each] = self.counts.get(each, 0) + count

    def merge(self, other: "Powers") -> None:
        """Add the counts of another object."""
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
    """Records and bytes by time: in buckets of a minute; if there are too many buckets, of an hour, a day or longer."""

    __slots__ = ("buckets", "width_minutes")

    def __init__(self) -> None:
        self.width_minutes = 1
        self.buckets: dict[int, tuple[int, int]] = {}
        """(records, bytes) by the minute since 1970 at which the bucket begins."""

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
        """Add the counts of another object."""
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
    """How often each key occurs. If there are more keys than can be kept, the rarest are dropped, and every count may
    be too low: by `most_missed` at most."""

    __slots__ = ("counts", "most_missed")

    def __init__(self) -> None:
        self.counts: dict[bytes, int] = {}
        self.most_missed = 0

    def add(self, keys: Iterable[bytes], counts: Iterable[int]) -> None:
        """Count keys, each as often as ``counts`` says."""
        known = self.counts
        for key, count in zip(keys, counts, strict=True):
            short = key if len(key) <= _LONGEST_KEY else _shortened(key)
            known[short] = known.get(short, 0) + count
        self._forget_rare()

    def merge(self, other: "Keys") -> None:
        """Add the counts of another object."""
        self.most_missed += other.most_missed
        self.add(other.counts.keys(), other.counts.values())

    def _forget_rare(self) -> None:
        if len(self.counts) > 2 * MOST_KEYS:
            ordered = sorted(self.counts.items(), key=lambda item: -item[1])
            self.most_missed += ordered[MOST_KEYS][1]
            self.counts = dict(ordered[:MOST_KEYS])

    @property
    def distinct(self) -> int | None:
        """How many different keys there are; None if keys have been dropped."""
        return None if self.most_missed else len(self.counts)

    def top(self, count: int) -> list[tuple[bytes, int]]:
        """The most frequent keys, with their counts."""
        return sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))[:count]


def _shortened(key: bytes) -> bytes:
    """A shorter value for a key. Different keys get different values, but for an improbable chance."""
    return key[:64] + b"..." + hashlib.blake2b(key, digest_size=8).hexdigest().encode()
