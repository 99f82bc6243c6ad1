"""Finding batches in a segment: from an index entry on, header by header.

After a clean stop no segment is read to check its indexes. They are believed entry by entry: each names a batch, and
the header of that batch, which a search reads in any case, must agree. Where it does not, the search raises
CorruptIndex, and `storage.segment` makes the indexes anew and repeats it.

Every search is told the ``end`` of the segment: how many bytes of its file are whole batches.
"""

from functools import partial
from typing import Final, NamedTuple

from storage.batch.record_batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC, header_struct, read_header
from storage.batch.walk import BatchWalk, WalkPolicy, find_batch
from storage.errors import CorruptIndex
from storage.index.offset_index import MOST_RELATIVE_OFFSET, OffsetPosition
from storage.index.time_index import TimestampOffset
from storage.read_ahead import read_in_memory
from storage.segment_files import SegmentFiles
from storage.sentinels import NO_TIMESTAMP

_MOST_SCAN_BYTES: Final = 1 << 16
# A search that reads more than this has an index with missing entries.
_MOST_UNINDEXED_BYTES: Final = 4 << 20
_LEAST_LENGTH: Final = HEADER_SIZE - LOG_OVERHEAD

# The fields of a header that a search for an offset needs.
_SPAN: Final = header_struct("base_offset", "batch_length", "magic", "last_offset_delta")
_unpack_span = _SPAN.unpack_from

_HEADERS: Final = WalkPolicy(checks_offsets=True, reads_records=False)
"""How the end of a segment is found that has been closed in order."""


class BatchPlace(NamedTuple):
    """Where in a segment's file a batch stands."""

    position: int
    size: int


class Tail(NamedTuple):
    """End offset and timestamps of the batches from the last index entry on, by their headers."""

    next_offset: int
    max_timestamp: int


class _Found(NamedTuple):
    """The batch found last: a consumer of batches as large as its fetches asks for the next batch next."""

    next_offset: int
    position: int
    end: int


_NOTHING_FOUND: Final = _Found(-1, 0, 0)


class SegmentSearch:
    """The searches in one segment."""

    __slots__ = ("_chunk_bytes", "_files", "_is_damage_logged", "_last_found", "is_indexed_anew")

    def __init__(self, files: SegmentFiles, *, index_interval_bytes: int) -> None:
        self._files = files
        self._chunk_bytes = min(index_interval_bytes, _MOST_SCAN_BYTES) + HEADER_SIZE
        self._last_found = _NOTHING_FOUND
        self._is_damage_logged = False
        self.is_indexed_anew = False
        """Whether this process has rebuilt the segment's indexes from the batches."""

    def forget_last_found(self) -> None:
        """Forget which batch was found last: the segment has been cut."""
        self._last_found = _NOTHING_FOUND

    def find(self, offset: int, end: int, *, in_memory_only: bool = False) -> BatchPlace | None:
        """The batch that holds ``offset``, or the first one behind it; None if all of them lie before it.

        Goes on by headers from the last index entry, an index interval at most and one batch; or from the last batch
        found, if the next is asked for (bench: fetch-1mb). Every fetch of older records comes here, so the headers are
        looked at without a `BatchWalk`; a test holds the two against each other. Raises CorruptIndex; with
        ``in_memory_only`` NotInMemory where the disk would have to be asked.
        """
        file, offset_index, base = self._files.log_file(), self._files.offset_index, self._files.base_offset
        read = partial(read_in_memory, file) if in_memory_only else file.pread
        last_found = self._last_found
        is_next = offset == last_found.next_offset
        entry_offset, position = (offset, last_found.end) if is_next else offset_index.lookup(offset)
        chunk_bytes = self._chunk_bytes
        chunk = read(min(chunk_bytes, max(end - position, 0)), position)
        base_offset, length, _, delta = _unpack_span(chunk) if len(chunk) >= _SPAN.size else (-1, 0, 0, 0)
        if position and not is_next and base_offset + delta != entry_offset:
            raise self._contradiction(entry_offset, position, end)
        limit = end if self.is_indexed_anew else position + length + _MOST_UNINDEXED_BYTES
        at = 0
        before = last_found.position - position if is_next else 0
        while position < end:
            last = len(chunk) - _SPAN.size
            while at <= last:
                base_offset, length, magic, delta = _unpack_span(chunk, at)
                if magic != MAGIC or length < _LEAST_LENGTH:
                    break
                if base_offset + delta >= offset:
                    size = length + LOG_OVERHEAD
                    if size <= end - position - at and base_offset + delta - base <= MOST_RELATIVE_OFFSET:
                        self._last_found = _Found(base_offset + delta + 1, position + at, position + at + size)
                        return BatchPlace(position + at, size)
                    break
                before = at
                at += length + LOG_OVERHEAD
            if at <= last or position + at > end:
                # An index entry may point there: the bytes there are checked once, and not again.
                at = before = self.behind_damage(min(position + at, end), position + before, end) - position
            elif at == 0:
                return None
            if position > limit:
                raise CorruptIndex(f"{offset_index.path} has no entry for offset {offset} or one near it")
            before -= at
            position += at
            at = 0
            chunk = read(min(chunk_bytes, max(end - position, 0)), position)
        return None

    def _contradiction(self, offset: int, position: int, end: int) -> CorruptIndex:
        return CorruptIndex(
            f"{self._files.offset_index.path} says that a batch ending with offset {offset} begins at position "
            f"{position} of {end}, and none does"
        )

    def behind_damage(self, position: int, previous: int, end: int) -> int:
        """Where reading goes on behind ``position``, which is damaged: the next whole batch, or the end.

        The fault may be the length of the batch before, at ``previous``.
        """
        files = self._files
        entry = files.offset_index.first_entry_from_position(previous + 1)
        stop = end if entry is None else min(entry.position, end)
        found = find_batch(
            files.log_file().pread, previous + 1, stop, end,
            next_offset=files.base_offset, most_offset=files.base_offset + MOST_RELATIVE_OFFSET,
        )  # fmt: skip
        behind = stop if found is None else found[0]
        if not self._is_damage_logged:
            self._is_damage_logged = True
            damaged = f"{files.log_path} has no batch at position {position}, where one should be"
            files.on_repair(f"{damaged}: reading goes on at {behind}")
        return behind

    def confirm(self, entry: TimestampOffset, end: int) -> TimestampOffset:
        """Return an entry of the time index, if the batch that it names has its timestamp. Raises CorruptIndex."""
        if entry.timestamp >= 0:
            place = self.find(entry.offset, end)
            header = None if place is None else read_header(self._files.log_file().pread(HEADER_SIZE, place.position))
            if header is None or header.base_offset > entry.offset or header.max_timestamp != entry.timestamp:
                raise CorruptIndex(
                    f"{self._files.time_index.path} says that the batch with offset {entry.offset} has timestamp "
                    f"{entry.timestamp}, and it has not"
                )
        return entry

    def confirmed_largest(self, end: int) -> TimestampOffset:
        """The largest timestamp, from the time index. Raises CorruptIndex where the last batches have a larger one."""
        time_index = self._files.time_index
        last = time_index.last
        if time_index.entries:
            self.confirm(last, end)
        tail = self.tail(end)
        if tail is not None and tail.max_timestamp > last.timestamp:
            raise CorruptIndex(
                f"{time_index.path} ends with timestamp {last.timestamp}, its segment with {tail.max_timestamp}"
            )
        return last

    def first_entry_behind(self, position: int, end: int) -> OffsetPosition | None:
        """The first entry of the offset index whose batch begins at or behind ``position``. Raises CorruptIndex."""
        entry = self._files.offset_index.first_entry_from_position(position)
        if entry is not None:
            chunk = self._files.log_file().pread(HEADER_SIZE, entry.position)
            if len(chunk) < HEADER_SIZE or read_header(chunk).last_offset != entry.offset:
                raise self._contradiction(*entry, end)
        return entry

    def tail(self, end: int) -> Tail | None:
        """Walk from the last index entry to the end, by headers; None if other bytes follow the last batch.

        Raises CorruptIndex.
        """
        walk, max_timestamp = self._walk_tail(end)
        return Tail(walk.next_offset, max_timestamp) if walk.position == end else None

    def end_of_batches(self, end: int) -> int:
        """Where the last batch before ``end`` ends, in bytes: less than ``end`` if other bytes follow.

        Raises CorruptIndex.
        """
        return self._walk_tail(end)[0].position

    def _walk_tail(self, end: int) -> tuple[BatchWalk, int]:
        """A walk that is over, and the largest timestamp that it met."""
        files = self._files
        position, entry_offset = 0, None
        if files.offset_index.entries:
            entry_offset, position = files.offset_index.last_entry()
        limit = end if self.is_indexed_anew else position + _MOST_UNINDEXED_BYTES
        max_timestamp = NO_TIMESTAMP
        walk = BatchWalk(
            files.log_file().pread, position, end, _HEADERS, next_offset=files.base_offset,
            chunk_bytes=self._chunk_bytes,
        )  # fmt: skip
        for header, at, _ in walk:
            if entry_offset is not None:
                if header.last_offset != entry_offset:
                    break
                entry_offset = None
                limit += header.size
            if at > limit:
                raise CorruptIndex(f"{files.offset_index.path} has no entry for the last {end - at} bytes")
            max_timestamp = max(max_timestamp, header.max_timestamp)
        if entry_offset is not None:
            raise self._contradiction(entry_offset, position, end)
        return walk, max_timestamp
