"""The segments of one log in order of their offsets, and the rule for when a new segment begins.

A new segment begins before a batch is appended if one of these holds (the last only needs an empty segment):

    size          the batch does not fit into `segment.bytes`
    time          it is `segment.ms` younger than the segment's first batch; where that one has no timestamp, the
                  segment is older than that. A number drawn for each segment, below `segment.jitter.ms`, is taken off.
    index         one of the indexes is full
    offsets       its last offset is too far from the base offset for an index entry's 31 bits
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from config.log_config import LogConfig
from storage.index.offset_index import MOST_RELATIVE_OFFSET
from storage.segment import Segment

AT_ONCE: Final[int] = -(1 << 63)
"""In place of what `roll_after_ms` returns, for a segment that cannot become larger: a new one begins with the next
batch."""


def roll_after_ms(config: LogConfig, jitter: int) -> int:
    """How long a segment of this topic is appended to; ``jitter`` is the number drawn for it."""
    most_ms = min(config.segment_ms, config.max_compaction_lag_ms) if config.is_compacted else config.segment_ms
    jitter_range_ms = min(config.segment_jitter_ms, most_ms)
    return most_ms - (jitter % jitter_range_ms if jitter_range_ms > 0 else 0)


class Segments:
    """All segments of a log. There is always one segment at least, and the last is the active one."""

    __slots__ = ("_bases", "_segments", "active")

    def __init__(self, segments: list[Segment]) -> None:
        self._segments = sorted(segments, key=lambda segment: segment.base_offset)
        self._bases = [segment.base_offset for segment in self._segments]
        self.active = self._segments[-1]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __getitem__(self, number: int) -> Segment:
        return self._segments[number]

    @property
    def size(self) -> int:
        """Bytes of batches in all segments."""
        return sum(segment.size for segment in self._segments)

    @property
    def bases(self) -> tuple[int, ...]:
        """The base offsets of the segments, rising."""
        return tuple(self._bases)

    def number_at(self, offset: int) -> int:
        """The number of the last segment that begins at or below ``offset``; the first segment's if none does."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def at(self, offset: int) -> Segment:
        """The segment that ``offset`` belongs to."""
        active = self.active
        if offset >= active.base_offset:
            return active
        return self._segments[self.number_at(offset)]

    def after(self, segment: Segment) -> Segment | None:
        """The segment behind ``segment``; None behind the active one."""
        number = bisect_right(self._bases, segment.base_offset)
        return self._segments[number] if number < len(self._segments) else None

    def from_offset(self, offset: int) -> list[Segment]:
        """The segment ``offset`` belongs to, and all behind it."""
        return self._segments[self.number_at(offset) :]

    def end_of(self, segment: Segment, log_end_offset: int) -> int:
        """The offset at which a segment ends: where the next begins, or the end of the log."""
        following = self.after(segment)
        return log_end_offset if following is None else following.base_offset

    def add(self, segment: Segment) -> None:
        """Put a new active segment behind all others."""
        assert segment.base_offset > self._bases[-1], f"{segment} does not come behind {self.active}"
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment

    def remove_first(self, count: int) -> list[Segment]:
        """Take the oldest segments out; the active segment must stay."""
        assert count < len(self._segments), "a log has an active segment"
        removed = self._segments[:count]
        del self._segments[:count], self._bases[:count]
        return removed

    def replace(self, replaced: list[Segment], segment: Segment) -> None:
        """Put ``segment`` in the place of neighbours, before the active segment, that begin where it begins."""
        first = self.number_at(segment.base_offset)
        end = first + len(replaced)
        assert self._segments[first:end] == replaced, (
            f"{segment} does not take the place of {self._segments[first:end]}"
        )
        self._segments[first:end] = [segment]
        self._bases[first:end] = [segment.base_offset]

    def replace_last(self, count: int, segment: Segment | None) -> list[Segment]:
        """Take the youngest segments out and put ``segment``, if given, behind the rest; the last becomes active."""
        kept = len(self._segments) - count
        removed = self._segments[kept:]
        del self._segments[kept:], self._bases[kept:]
        if segment is not None:
            self._segments.append(segment)
            self._bases.append(segment.base_offset)
        self.active = self._segments[-1]
        return removed


def is_roll_due(
    segment: Segment,
    config: LogConfig,
    after_ms: int,
    *,
    written: int,
    first_timestamp: int,
    size: int,
    last_offset: int,
    max_timestamp: int,
    now_ms: int,
) -> bool:
    """Whether a batch of ``size`` bytes must go into a new segment.

    ``written`` bytes are in the segment by the time the batch comes, the first batch of them with
    ``first_timestamp``; ``after_ms`` is the segment's `roll_after_ms`.
    """
    if last_offset - segment.base_offset > MOST_RELATIVE_OFFSET:
        return True
    if written == 0:
        return False
    if written + size > config.segment_bytes or segment.is_index_full:
        return True
    return (max_timestamp - first_timestamp if first_timestamp >= 0 else now_ms - segment.created_ms) > after_ms
