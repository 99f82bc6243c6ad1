"""One segment: batches are appended to its file, indexed, and found again.

Only a log's last segment, the active one, is appended to. An index that contradicts the batches is made anew from the
file of batches, once, and the search that has met it is repeated: see `storage.segment_search`.
"""

import logging
from array import array
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Final, TypeVar

from config.log_config import LogConfig
from storage.batch.record_batch import HEADER_SIZE, read_header
from storage.batch.walk import CHUNK_BYTES, EVERYTHING, BatchWalk, StoredBatch
from storage.errors import CorruptIndex, DiskFull, TooManyOpenFiles
from storage.files import File, FileSystem
from storage.index.offset_index import OffsetPosition
from storage.index.time_index import TimestampOffset
from storage.open_files import OpenFiles
from storage.preallocation import PREALLOCATES_FROM
from storage.segment_files import NO_FILES, FileSizes, SegmentFiles
from storage.segment_search import BatchPlace, SegmentSearch
from storage.segment_walk import SegmentWalk

log = logging.getLogger(__name__)

Found = TypeVar("Found")

_RECENT_BATCHES: Final = 128


class Segment:
    """One segment of a log."""

    __slots__ = (
        "_bytes_since_index_entry", "_first_timestamp", "_index_interval_bytes", "_largest", "_recent_offsets",
        "_recent_positions", "_search", "base_offset", "created_ms", "files", "index_entries_skipped", "is_active",
        "jitter", "offset_index", "size", "time_index", "transaction_index",
    )  # fmt: skip

    def __init__(
        self,
        files: FileSystem,
        open_files: OpenFiles,
        directory: str,
        base_offset: int,
        *,
        config: LogConfig,
        created_ms: int,
        jitter: int = 0,
        found: FileSizes = NO_FILES,
        suffix: str = "",
    ) -> None:
        """``suffix`` follows the names of its files; see `SegmentFiles`."""
        self.base_offset = base_offset
        self.created_ms = created_ms
        """When the segment was made or, if found at start, last written to; wall clock, ms."""
        self.jitter = jitter
        """A random number for this segment, of which `Segments` computes what is taken off `segment.ms`."""
        self.size = found.log
        """Bytes of whole batches. A write under way, or a failed one, may have made the file longer."""
        self.files = own = SegmentFiles(
            files, open_files, directory, base_offset, max_index_bytes=config.segment_index_bytes, found=found,
            suffix=suffix, on_repair=log.warning,
        )  # fmt: skip
        self.offset_index = own.offset_index
        self.time_index = own.time_index
        self.transaction_index = own.transaction_index
        self._search = SegmentSearch(own, index_interval_bytes=config.index_interval_bytes)
        self.is_active = False
        self.index_entries_skipped = 0
        """How often a full disk had no space for an index entry; searches take longer, nothing else is lost."""
        self._index_interval_bytes = config.index_interval_bytes
        self._bytes_since_index_entry = 0
        self._largest: TimestampOffset | None = None
        self._first_timestamp: int | None = None
        # Where each of the last appended batches begins. All batches behind the first of these are here, so a reader
        # at the log's end is served without index and file.
        self._recent_offsets = array("q")
        self._recent_positions = array("q")

    def __repr__(self) -> str:
        return f"<Segment {self.log_path} of {self.size} bytes>"

    @property
    def log_path(self) -> str:
        """The path of its file of batches."""
        return self.files.log_path

    @property
    def sizes(self) -> FileSizes:
        """The bytes of its files, as a segment is opened with them."""
        return FileSizes(
            self.size, self.offset_index.entries * self.offset_index.ENTRY_SIZE,
            self.time_index.entries * self.time_index.ENTRY_SIZE, self.transaction_index.size or -1,
        )  # fmt: skip

    @property
    def is_indexed_anew(self) -> bool:
        """Whether this process has rebuilt the segment's indexes from the batches."""
        return self._search.is_indexed_anew

    # Opening and closing ----------------------------------------------------------------------------------------------

    def create(self, *, preallocated_bytes: int = 0) -> None:
        """Make the files of a new active segment. Raises what `SegmentFiles.create` raises."""
        self.files.create(preallocated_bytes=preallocated_bytes)
        self._largest = TimestampOffset(-1, self.base_offset)
        self.is_active = True

    def activate(self) -> None:
        """Make this the active segment, which is appended to."""
        self.is_active = True

    @property
    def is_preallocated(self) -> bool:
        """Whether the indexes' files are longer than their entries, as those of an active segment are."""
        return self.offset_index.is_allocated or self.time_index.is_allocated

    def deactivate(self) -> None:
        """End appending: trim the preallocated files and add the last time-index entry."""
        file = self.files.log_file()
        largest = self.largest
        self.time_index.append(largest.timestamp, largest.offset, is_last=True)
        self.transaction_index.write_out()
        self.offset_index.trim()
        self.time_index.trim()
        if file.size > self.size or self.size > PREALLOCATES_FROM:
            file.truncate(self.size)
        self.forget_recent_batches()
        self.is_active = False

    def close(self) -> None:
        """Drop all files of the segment for good."""
        self.is_active = False
        self.files.close()

    def open_for_flush(self) -> list[File]:
        """Open the segment's files, in the order in which they must be synced.

        The active segment's indexes need not be: after an unclean stop they are rebuilt in any case, since the
        recovery point lies in it or before it.
        """
        return [self.files.log_file()] if self.is_active else self.files.all_files()

    # Appending --------------------------------------------------------------------------------------------------------

    def appended(self, position: int, size: int, base_offset: int, last_offset: int, max_timestamp: int) -> None:
        """Index a batch that has been written at ``position``, the end so far.

        A full disk costs an index entry, never an append that has been written.
        """
        largest = self._largest
        if largest is None:
            largest = self.largest
        if max_timestamp > largest.timestamp:
            self._largest = TimestampOffset(max_timestamp, last_offset)
        self.size = position + size
        if position == 0:
            self._first_timestamp = max_timestamp
        offsets = self._recent_offsets
        offsets.append(base_offset)
        self._recent_positions.append(position)
        if len(offsets) >= 2 * _RECENT_BATCHES:
            del offsets[:_RECENT_BATCHES], self._recent_positions[:_RECENT_BATCHES]
        if self._bytes_since_index_entry > self._index_interval_bytes:
            self._append_index_entries(last_offset, position)
        self._bytes_since_index_entry += size

    def _append_index_entries(self, last_offset: int, position: int) -> None:
        largest = self.largest
        try:
            if not self.offset_index.is_full:
                self.offset_index.append(last_offset, position)
                self.time_index.append(largest.timestamp, largest.offset)
        except (DiskFull, TooManyOpenFiles):
            self.index_entries_skipped += 1
            return
        self._bytes_since_index_entry = 0

    def cut_to(self, position: int, next_offset: int) -> None:
        """Remove the batches from ``position`` on, where the first batch at or above ``next_offset`` begins, and the
        damage before it."""
        self.offset_index.cut_from(next_offset)
        self.time_index.cut_from(next_offset)
        self.transaction_index.cut_from(next_offset)
        self.offset_index.trim()
        self.time_index.trim()
        self._search.forget_last_found()
        self._shorten(position)
        self._shorten(self._healed(lambda: self._search.end_of_batches(self.size)))
        self.forget_recent_batches()
        self._bytes_since_index_entry = 0
        self._largest = self._find_largest()
        self._first_timestamp = None

    def _shorten(self, size: int) -> None:
        if size < self.size:
            self.files.log_file().truncate(size)
            self.size = size

    def _find_largest(self) -> TimestampOffset:
        """Find the largest timestamp in the time index and in the batches behind its last entry."""
        largest = self.time_index.last
        for batch in self.batches_from(self.position_of(largest.offset)):
            if batch.header.max_timestamp > largest.timestamp:
                largest = TimestampOffset(batch.header.max_timestamp, batch.header.last_offset)
        return largest

    def forget_recent_batches(self) -> None:
        """Forget where the last batches begin: they were cut off, or the next batch leaves a gap in offsets."""
        del self._recent_offsets[:], self._recent_positions[:]

    @property
    def is_index_full(self) -> bool:
        """Whether one of its indexes takes no further entry."""
        return self.offset_index.is_full or self.time_index.is_full

    @property
    def largest(self) -> TimestampOffset:
        """The largest timestamp, with the last offset of the first batch having it; (-1, base offset) if empty.

        Retention removes segments by this timestamp, so an index found at start is checked against the batch.
        """
        largest = self._largest
        if largest is None:
            self._largest = largest = self._healed(lambda: self._search.confirmed_largest(self.size))
        return largest

    @property
    def first_timestamp(self) -> int:
        """The max timestamp of the segment's first batch; -1 without a timestamp, or without a batch."""
        timestamp = self._first_timestamp
        if timestamp is None:
            if self.size < HEADER_SIZE:
                return -1
            timestamp = read_header(self.files.log_file().pread(HEADER_SIZE, 0)).max_timestamp
            self._first_timestamp = timestamp
        return timestamp

    # Reading ----------------------------------------------------------------------------------------------------------

    def locate(self, offset: int, *, in_memory_only: bool = False) -> BatchPlace | None:
        """The batch that holds ``offset``, or the first one behind it; None if all of them lie before it.

        With ``in_memory_only`` raises NotInMemory where the disk would have to be asked.
        """
        offsets = self._recent_offsets
        if offsets and offset >= offsets[0]:
            number = bisect_right(offsets, offset)
            positions = self._recent_positions
            position = positions[number - 1]
            return BatchPlace(position, (positions[number] if number < len(positions) else self.size) - position)
        try:
            return self._search.find(offset, self.size, in_memory_only=in_memory_only)
        except CorruptIndex as error:
            self._index_anew_after(error)
            return self._search.find(offset, self.size)

    def position_of(self, offset: int) -> int:
        """Where the batch begins that holds ``offset``; the end if all of them lie before it."""
        place = self.locate(offset)
        return self.size if place is None else place.position

    def batches_from(
        self, position: int, *, end: int | None = None, chunk_bytes: int = CHUNK_BYTES
    ) -> Iterator[StoredBatch]:
        """The batches from ``position``, where a batch must begin, to ``end`` or the file's; in ``chunk_bytes``."""
        end = self.size if end is None else end
        while position < end:
            previous = position
            for batch in BatchWalk(self.files.log_file().pread, position, end, chunk_bytes=chunk_bytes):
                yield batch
                previous, position = batch.position, batch.position + len(batch.data)
            if position < end:
                position = self._healed(partial(self._search.behind_damage, position, previous, self.size))

    def last_below(self, timestamp: int) -> TimestampOffset:
        """The offset up to which all timestamps are below ``timestamp``, according to the time index."""
        return self._healed(lambda: self._search.confirm(self.time_index.lookup(timestamp - 1), self.size))

    def first_entry_behind(self, position: int) -> OffsetPosition | None:
        """The first entry of the offset index whose batch begins at or behind ``position``."""
        return self._healed(partial(self._search.first_entry_behind, position, self.size))

    def find_next_offset(self) -> int | None:
        """The offset behind the last batch, by headers from the last index entry on; None if other bytes follow it."""
        tail = self._healed(lambda: self._search.tail(self.size))
        return None if tail is None else tail.next_offset

    # Indexing anew ----------------------------------------------------------------------------------------------------

    def begin_walk(self, end: int, *, end_offset: int | None = None, durable_offset: int = EVERYTHING) -> SegmentWalk:
        """Begin to rebuild the indexes of offsets and times from the first ``end`` bytes.

        After each step of the walk comes `take_entries`, at its end `end_walk`. ``end_offset`` is where the next
        segment begins, ``durable_offset`` the recovery point.
        """
        self.offset_index.reset()
        self.time_index.reset()
        return SegmentWalk(
            self.files.log_file(), end, base_offset=self.base_offset, end_offset=end_offset,
            durable_offset=durable_offset, index_interval_bytes=self._index_interval_bytes,
        )  # fmt: skip

    def take_entries(self, walk: SegmentWalk) -> None:
        """Add the index entries of the walk's last step. A full disk costs entries, nothing else."""
        try:
            self.offset_index.append_all(walk.offset_entries, self.offset_index.max_entries)
            self.time_index.append_all(walk.time_entries, self.time_index.max_entries - 1)
        except (DiskFull, TooManyOpenFiles):
            self.index_entries_skipped += 1

    def end_walk(self, walk: SegmentWalk) -> None:
        """End the rebuild: its size, timestamps and indexes count from now on."""
        self._largest = largest = TimestampOffset(walk.largest_timestamp, walk.largest_offset)
        self._first_timestamp = walk.first_timestamp
        self._bytes_since_index_entry = walk.unindexed_bytes
        self._search.is_indexed_anew = True
        try:
            self.time_index.append(largest.timestamp, largest.offset, is_last=True)
            self.time_index.trim()
        except (DiskFull, TooManyOpenFiles):
            self.index_entries_skipped += 1
        for damage in walk.damage:
            self.files.on_repair(f"{self.log_path}, {damage}")

    def index_anew(self) -> Generator[int, None, None]:
        """Rebuild the indexes of offsets and times from the batches, which stay as they are.

        Yields, step by step, how many bytes have been read.
        """
        walk = self.begin_walk(self.size)
        while walk.step():
            self.take_entries(walk)
            yield len(walk.chunk)
        self.end_walk(walk)
        if walk.problem:
            self.files.on_repair(
                f"{self.log_path}, from position {walk.position} on: {walk.problem}; it is left as it is"
            )

    def _index_anew_after(self, error: CorruptIndex) -> None:
        for _ in self.index_anew():
            pass
        self.files.on_repair(f"{error}: the indexes have been made anew from the {self.size} bytes of {self.log_path}")

    def _healed(self, search: Callable[[], Found]) -> Found:
        """The result of ``search``; if it meets a damaged index, the indexes are rebuilt and it runs again."""
        try:
            return search()
        except CorruptIndex as error:
            self._index_anew_after(error)
            return search()
