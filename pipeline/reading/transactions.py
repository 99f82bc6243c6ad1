"""Finding the batches of aborted transactions in a range, which readers of committed records skip.

The transaction indexes have them, where the indexes can be trusted. Otherwise the markers are searched. A marker is
behind the records of its transaction, at times behind the range, so the search ends when each transaction has ended.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

import numpy as np

from pipeline.decoding.headers import Headers, Numbers, read_headers
from pipeline.errors import PipelineError, RecordsGone
from pipeline.reading.ranges import OffsetRange
from pipeline.reading.scan import Scan
from pipeline.reading.segment_files import list_segments, segment_of
from storage.batch.markers import Marker, read_marker
from storage.batch.record_batch import TRANSACTIONAL_BIT, BatchHeader, read_header
from storage.errors import UndecodableRecords

_BEHIND_EVERYTHING: Final = 2**63 - 1


class AbortedTransactions:
    """The aborted transactions that may have records in a range."""

    def __init__(self) -> None:
        self._by_producer: dict[int, tuple[list[int], list[int]]] = {}
        """The first offsets and the markers' offsets of each producer's aborted transactions, both rising."""

    def add(self, producer_id: int, first_offset: int, last_offset: int) -> None:
        """Add an aborted transaction, from its first record to its marker. Transactions are added in the order of their
        markers."""
        firsts, lasts = self._by_producer.setdefault(producer_id, ([], []))
        firsts.append(first_offset)
        lasts.append(last_offset)

    def have(self, headers: Headers) -> Numbers:
        """Which of these batches belong to aborted transactions."""
        found: Numbers = np.zeros(len(headers.attributes), dtype=bool)
        if self._by_producer:
            for number in np.flatnonzero(headers.attributes & TRANSACTIONAL_BIT):
                found[number] = self._has(int(headers.producer_id[number]), int(headers.base_offset[number]))
        return found

    def _has(self, producer_id: int, offset: int) -> bool:
        firsts, lasts = self._by_producer.get(producer_id, ((), ()))
        number = bisect_left(lasts, offset)
        return number < len(lasts) and firsts[number] <= offset


def aborted_in(wanted: OffsetRange) -> AbortedTransactions:
    """The aborted transactions with records in a range. Call it before the batches are opened: what the cleaner removes
    from the indexes later was removed from the batches before.

    Raises PipelineError if a transaction with records in the range is still open.
    """
    if wanted.are_aborts_indexed:
        found = _by_indexes(wanted)
        if found is not None:
            return found
    return _by_markers(wanted)


def _by_indexes(wanted: OffsetRange) -> AbortedTransactions | None:
    found = AbortedTransactions()
    segments = list_segments(wanted.directory)
    for segment in segments[max(segment_of(segments, wanted.from_offset), 0) :]:
        entries = segment.aborted_transactions()
        if entries is None:
            return None
        for entry in entries:
            if entry.last_offset >= wanted.from_offset and entry.first_offset < wanted.until_offset:
                found.add(entry.producer_id, entry.first_offset, entry.last_offset)
            if entry.last_stable_offset >= wanted.until_offset:
                return found
    return found


def _by_markers(wanted: OffsetRange) -> AbortedTransactions:
    found = AbortedTransactions()
    undecided: dict[int, int] = {}
    """The first offset in the range of each producer's open transaction."""
    # A damaged batch is passed over here; the reader of the range reports it.
    walk = Scan(wanted._replace(until_offset=_BEHIND_EVERYTHING), lambda damage: None)
    try:
        for stretch in walk.stretches():
            headers = read_headers(stretch.data, stretch.begins)
            for number in np.flatnonzero(headers.attributes & TRANSACTIONAL_BIT):
                at = stretch.begins[number]
                header = read_header(stretch.data, at)
                if not header.is_control:
                    if header.base_offset < wanted.until_offset:
                        undecided.setdefault(header.producer_id, header.base_offset)
                elif header.producer_id in undecided:
                    marker = _marker(header, stretch.data[at : at + header.size])
                    if marker is not None:
                        first_offset = undecided.pop(header.producer_id)
                        if not marker.is_commit:
                            found.add(header.producer_id, first_offset, header.base_offset)
            if walk.next_offset >= wanted.until_offset and not undecided:
                return found
    except RecordsGone:
        pass  # where the log ends, or has come to begin: the reader of the range reports that, too
    if undecided:
        producer_id, first_offset = min(undecided.items(), key=lambda item: item[1])
        raise PipelineError(
            f"{wanted.topic}-{wanted.partition}: producer {producer_id} has a transaction with offset {first_offset} "
            f"that nothing behind it ends; what is committed ends before it"
        )
    return found


def _marker(header: BatchHeader, data: bytes) -> Marker | None:
    """The marker in a control batch; None if the batch has no valid marker, and so ends no transaction."""
    try:
        return read_marker(header, data)
    except UndecodableRecords:
        return None
