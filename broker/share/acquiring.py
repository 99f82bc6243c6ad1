"""Acquiring: which records one acquisition takes, of batches of the log and of records that were delivered before."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

from broker.share.in_flight import InFlightBatch
from broker.share.requests import AcquiredRecords, Acquisition, WindowTerms
from storage.batch.record_batch import BatchHeader

LEAST_THROTTLE_LIMIT: Final = 2


class Acquiring:
    """An acquisition under way: how much it has got, and how much it may still get."""

    __slots__ = ("acquired", "fetched", "room", "terms", "want")

    def __init__(self, want: Acquisition, room: int, fetched: Sequence[BatchHeader], terms: WindowTerms) -> None:
        self.want = want
        self.room = room
        """How many records may still be acquired."""
        self.fetched = fetched
        self.terms = terms
        self.acquired: list[AcquiredRecords] = []

    def add(self, first_offset: int, last_offset: int, delivery_count: int) -> None:
        """Add records that were acquired together."""
        self.acquired.append(AcquiredRecords(first_offset, last_offset, delivery_count))
        self.room -= last_offset - first_offset + 1

    def add_together(self, records: Sequence[AcquiredRecords]) -> None:
        """Add single records: neighbours that were delivered as often together."""
        self.room -= len(records)
        run: AcquiredRecords | None = None
        for one in records:
            if run is not None and (one.first_offset, one.delivery_count) == (run.last_offset + 1, run.delivery_count):
                run = self.acquired[-1] = run._replace(last_offset=one.last_offset)
            else:
                run = one
                self.acquired.append(one)


def throttle_limit_of(delivery_count_limit: int) -> int:
    """From how many deliveries on records are delivered in ever smaller groups."""
    return max(LEAST_THROTTLE_LIMIT, (delivery_count_limit + 1) // 2)


def has_throttled(batch: InFlightBatch, first_offset: int, last_offset: int, terms: WindowTerms) -> bool:
    """Whether the range has available records of the batch that are delivered in smaller groups."""
    limit = throttle_limit_of(terms.limit.deliveries)
    if batch.records is None:
        return batch.whole.is_available and batch.whole.delivery_count >= limit
    return any(
        record.delivery_count >= limit and record.is_available for _, record in batch.within(first_offset, last_offset)
    )


def end_of_batch_with(fetched: Sequence[BatchHeader], offset: int) -> int:
    """The last offset of the batch of the log that has ``offset``; the same offset where compaction has removed it."""
    place = bisect_right(fetched, offset, key=lambda header: header.base_offset)
    return max(fetched[place - 1].last_offset, offset) if place else offset


def cut(
    fetched: Sequence[BatchHeader], first_offset: int, last_offset: int, batch_size: int
) -> Iterator[tuple[int, int]]:
    """Cut a range into parts of about ``batch_size`` offsets, at the beginnings of batches of the log."""
    size = max(batch_size, 1)
    if last_offset - first_offset + 1 > size:
        for header in fetched:
            if header.base_offset > last_offset:
                break
            if header.base_offset - first_offset >= size:
                yield first_offset, header.base_offset - 1
                first_offset = header.base_offset
    yield first_offset, last_offset
