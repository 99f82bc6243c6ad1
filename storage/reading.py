"""Finding the bytes for a fetch: a range of one segment's file."""

from collections.abc import Iterator
from typing import Final

from storage.batch.record_batch import BatchHeader
from storage.files import FileRegion
from storage.read_ahead import NotInMemory, look_ahead
from storage.segment import Segment
from storage.segments import Segments


class LogRead:
    """The result of a read: a range of one segment's file that begins with a batch."""

    __slots__ = ("region", "size")

    def __init__(self, region: FileRegion | None, size: int) -> None:
        self.region = region
        self.size = size
        """Bytes of the region; 0 without a region."""


NOTHING_READ: Final = LogRead(None, 0)


def read_region(
    segments: Segments,
    log_end_offset: int,
    fetch_offset: int,
    max_bytes: int,
    upper_bound_offset: int,
    at_least_one_batch: bool,
    in_memory_only: bool,
) -> LogRead:
    """The implementation of `storage.log.Log.read`, for an offset that is in the log."""
    segment: Segment | None = segments.at(fetch_offset)
    while segment is not None:
        try:
            place = segment.locate(fetch_offset, in_memory_only=in_memory_only)
        except NotInMemory as error:
            error.ahead.size = max(min(max_bytes, segment.size - error.ahead.position), error.ahead.size)
            raise
        if place is not None:
            position, first_size = place
            available = _end_position(segments, log_end_offset, segment, upper_bound_offset) - position
            if available <= 0:
                return NOTHING_READ
            if available <= max_bytes:
                size = available
            elif first_size <= max_bytes:
                size = max_bytes
            elif at_least_one_batch:
                size = first_size
            else:
                return NOTHING_READ
            region = FileRegion(segment.files.log_file(), position, size)
            if in_memory_only:
                look_ahead(region, segment.size)
            return LogRead(region, size)
        # Compaction has left no batch at the segment's end.
        segment = segments.after(segment)
    return NOTHING_READ


def bytes_before(segments: Segments, log_end_offset: int, fetch_offset: int, upper_bound_offset: int, most: int) -> int:
    """The implementation of `storage.log.Log.readable_bytes`, for an offset that is in the log."""
    segment = segments.at(fetch_offset)
    while (place := segment.locate(fetch_offset)) is None:
        following = segments.after(segment)
        if following is None:
            return 0
        segment = following
    if segment is not segments.active and upper_bound_offset > segments.active.base_offset:
        # The read would end with its segment, and the segments behind it hold more for the waiting fetch.
        return most
    return max(min(_end_position(segments, log_end_offset, segment, upper_bound_offset) - place.position, most), 0)


def _end_position(segments: Segments, log_end_offset: int, segment: Segment, upper_bound_offset: int) -> int:
    if upper_bound_offset >= log_end_offset or upper_bound_offset >= segments.end_of(segment, log_end_offset):
        return segment.size
    return segment.position_of(upper_bound_offset)


def stored_batches(segments: Segments, from_offset: int, end_offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The batches that end at or behind ``from_offset`` and begin before ``end_offset``, in order."""
    for segment in segments.from_offset(from_offset):
        place = segment.locate(from_offset)
        if place is None:
            continue
        for batch in segment.batches_from(place.position):
            if batch.header.base_offset >= end_offset:
                return
            if batch.header.last_offset < from_offset:
                continue  # the segment's last batch, where the offset lies behind it
            yield batch.header, batch.data
