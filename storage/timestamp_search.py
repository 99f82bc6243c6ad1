"""Finding a record by its timestamp: time index, offset index, headers, and the records of one batch."""

from typing import Final, NamedTuple

from storage.batch.records import iterate_records
from storage.batch.walk import StoredBatch
from storage.segment import Segment
from storage.segments import Segments

# The position is known to an index interval; more than that is rarely read.
_CHUNK_BYTES: Final = 1 << 16


class RecordPlace(NamedTuple):
    """The offset, timestamp and leader epoch of a record, as ListOffsets answers them."""

    timestamp: int
    offset: int
    leader_epoch: int


def first_record_at(
    segments: Segments, timestamp_ms: int, from_offset: int, most_record_bytes: int
) -> RecordPlace | None:
    """The first record at or behind ``from_offset`` with ``timestamp_ms`` or a larger timestamp.

    Raises RecordTooLarge if a record of more than ``most_record_bytes`` stands before it in its compressed batch.
    """
    for segment in segments.from_offset(from_offset):
        if segment.largest.timestamp < timestamp_ms:
            continue
        # Every record up to this entry has a smaller timestamp, or an equal one: then the entry's batch counts.
        start = max(segment.last_below(timestamp_ms).offset, from_offset)
        for batch in segment.batches_from(segment.position_of(start), chunk_bytes=_CHUNK_BYTES):
            if batch.header.max_timestamp >= timestamp_ms:
                found = _first_in(batch, timestamp_ms, from_offset, most_record_bytes)
                if found is not None:
                    return found
    return None


def record_of_largest_timestamp(segments: Segments, most_record_bytes: int) -> RecordPlace | None:
    """The first record with the largest timestamp of all; None without records.

    Raises RecordTooLarge as `first_record_at` does.
    """
    newest: Segment | None = None
    for segment in segments:
        if segment.size and (newest is None or segment.largest.timestamp > newest.largest.timestamp):
            newest = segment
    if newest is None:
        return None
    timestamp, last_offset = newest.largest
    for batch in newest.batches_from(newest.position_of(last_offset), chunk_bytes=_CHUNK_BYTES):
        return _first_in(batch, timestamp, 0, most_record_bytes)
    return None


def _first_in(batch: StoredBatch, timestamp_ms: int, from_offset: int, most_record_bytes: int) -> RecordPlace | None:
    for record in iterate_records(batch.data, most_record_bytes=most_record_bytes):
        if record.timestamp >= timestamp_ms and record.offset >= from_offset:
            return RecordPlace(record.timestamp, record.offset, batch.header.partition_leader_epoch)
    return None
