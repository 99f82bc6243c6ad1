"""One segment: a file of batches, its indexes, and its state in memory.

    00000000000000000123.log          batches, one behind the other; 123 is the offset of the first
    00000000000000000123.index        offsets to positions        storage.index.offset_index
    00000000000000000123.timeindex    timestamps to offsets       storage.index.time_index
    00000000000000000123.txnindex     aborted transactions        storage.index.transaction_index

Only a log's last segment, the active one, is appended to. Files are opened when they are used, and closed when so many
others have been used since that the process would have too many open.

After a clean stop no segment is read to check its indexes. They are believed entry by entry: each
names a batch, and the header of that batch, which a search reads in any case, must agree. Where it does not, both
indexes are made anew from the file of batches, once, and the search is repeated.
"""

import logging
from array import array
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Final, NamedTuple, TypeVar

from config.log_config import LogConfig
from storage.batch.record_batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC, header_struct, read_header
from storage.batch.walk import CHUNK_BYTES, EVERYTHING, BatchWalk, StoredBatch, WalkPolicy, find_batch
from storage.errors import CorruptIndex, DiskFull, LogDirFailed, TooManyOpenFiles
from storage.file_names import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_name,
)
from storage.files import File, FileSystem
from storage.index.offset_index import MOST_RELATIVE_OFFSET, OffsetIndex, OffsetPosition
from storage.index.time_index import TimeIndex, TimestampOffset
from storage.index.transaction_index import TransactionIndex
from storage.open_files import OpenFiles
from storage.preallocation import PREALLOCATES_FROM
from storage.read_ahead import read_in_memory
from storage.segment_walk import SegmentWalk
from storage.sentinels import NO_TIMESTAMP

log = logging.getLogger(__name__)

Found = TypeVar("Found")

_RECENT_BATCHES: Final = 128
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


class SegmentFiles(NamedTuple):
    """The sizes of a segment's files in the directory listing, in bytes; -1 for a missing file."""

    log: int
    offset_index: int
    time_index: int
    transaction_index: int


NO_FILES: Final = SegmentFiles(0, 0, 0, -1)


class Segment:
    """One segment of a log."""

    __slots__ = (
        "__weakref__", "_bytes_since_index_entry", "_file", "_files", "_first_timestamp", "_index_interval_bytes",
        "_is_damage_logged", "_largest", "_last_found", "_open_files", "_recent_offsets", "_recent_positions",
        "base_offset", "created_ms", "directory", "index_entries_skipped", "is_active", "is_indexed_anew", "jitter",
        "log_path", "offset_index", "on_repair", "size", "time_index", "transaction_index",
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
        found: SegmentFiles = NO_FILES,
    ) -> None:
        self._files = files
        self._open_files = open_files
        self.directory = directory
        self.base_offset = base_offset
        self.created_ms = created_ms
        """When the segment was made or, if found at start, last written to; wall clock, ms."""
        self.jitter = jitter
        """A random number for this segment, of which `Segments` computes what is taken off `segment.ms`."""
        self.size = found.log
        """Bytes of whole batches. A write under way, or a failed one, may have made the file longer."""
        self.log_path = self.path(LOG_SUFFIX)
        self.offset_index = OffsetIndex(
            files, open_files, self.path(OFFSET_INDEX_SUFFIX), base_offset=base_offset,
            max_bytes=config.segment_index_bytes, file_bytes=found.offset_index,
        )  # fmt: skip
        self.time_index = TimeIndex(
            files, open_files, self.path(TIME_INDEX_SUFFIX), base_offset=base_offset,
            max_bytes=config.segment_index_bytes, file_bytes=found.time_index,
        )  # fmt: skip
        self.transaction_index = TransactionIndex(
            files, open_files, self.path(TRANSACTION_INDEX_SUFFIX), base_offset=base_offset,
            file_bytes=found.transaction_index,
        )  # fmt: skip
        self.is_active = False
        self.index_entries_skipped = 0
        """How often a full disk had no space for an index entry; searches take longer, nothing else is lost."""
        self._index_interval_bytes = config.index_interval_bytes
        self._bytes_since_index_entry = 0
        self._file: File | None = None
        self._largest: TimestampOffset | None = None
        self._first_timestamp: int | None = None
        self._is_damage_logged = False
        self.is_indexed_anew = False
        """Whether this process has rebuilt the segment's indexes from the batches."""
        self.on_repair: Callable[[str], None] = log.warning
        """Called with a sentence that says what was found damaged and how it was repaired."""
        # Where each of the last appended batches begins. All batches behind the first of these are here, so a reader
        # at the log's end is served without index and file.
        self._recent_offsets = array("q")
        self._recent_positions = array("q")
        self._last_found = _NOTHING_FOUND

    def __repr__(self) -> str:
        return f"<Segment {self.log_path} of {self.size} bytes>"

    def path(self, suffix: str) -> str:
        """The path of one of the segment's files."""
        return f"{self.directory}/{file_name(self.base_offset, suffix)}"

    # Opening and closing ----------------------------------------------------------------------------------------------

    def create(self, *, preallocated_bytes: int = 0) -> None:
        """Make the segment's files. Raises DiskFull, LogDirFailed, TooManyOpenFiles; then no file is left behind."""
        try:
            self._file = self._files.open_log(self.log_path, create=True)
            if preallocated_bytes:
                self._file.truncate(preallocated_bytes)
            self.offset_index.create()
            self.time_index.create()
        except Exception:
            self.discard()
            raise
        self._open_files.used(self)
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
        file = self.file()
        largest = self.largest
        self.time_index.append(largest.timestamp, largest.offset, is_last=True)
        self.transaction_index.write_out()
        self.offset_index.trim()
        self.time_index.trim()
        if file.size > self.size or self.size > PREALLOCATES_FROM:
            file.truncate(self.size)
        self.forget_recent_batches()
        self.is_active = False

    def file(self) -> File:
        """The open file of batches, for callers that hold it open."""
        file = self._file
        if file is None:
            try:
                self._file = file = self._files.open_log(self.log_path)
            except FileNotFoundError as error:
                raise LogDirFailed(f"{self.log_path} is gone: another process has removed it") from error
        self._open_files.used(self)
        return file

    def let_go(self) -> None:
        """Drop the open file of batches; writes and answers under way hold it themselves."""
        self._file = None

    def close(self) -> None:
        """Drop all files of the segment for good."""
        self.is_active = False
        self._file = None
        self._open_files.forget(self)
        self.offset_index.close()
        self.time_index.close()
        self.transaction_index.close()

    def discard(self) -> None:
        """Remove the files of a segment that never came into use."""
        self.close()
        for suffix in SEGMENT_SUFFIXES:
            self._files.remove(self.path(suffix))

    def open_for_flush(self) -> list[File]:
        """Open the segment's files, in the order in which they must be synced.

        The active segment's indexes need not be: after an unclean stop they are rebuilt in any case, since the
        recovery point lies in it or before it.
        """
        if self.is_active:
            return [self.file()]
        opened = [self.file(), self.offset_index.file(), self.time_index.file()]
        if (transactions := self.transaction_index.file()) is not None:
            opened.append(transactions)
        return opened

    def rename_as_removed(self) -> list[str]:
        """Rename the files to `<name>.deleted`; returns the new paths. Open regions of them stay readable."""
        self.close()
        removed = []
        for suffix in SEGMENT_SUFFIXES:
            path = self.path(suffix)
            try:
                self._files.rename(path, path + DELETED_SUFFIX)
            except FileNotFoundError:
                continue
            removed.append(path + DELETED_SUFFIX)
        return removed

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
        """Remove the batches from ``position`` on, where the first one at or above ``next_offset`` begins."""
        self.offset_index.cut_from(next_offset)
        self.time_index.cut_from(next_offset)
        self.transaction_index.cut_from(next_offset)
        self.offset_index.trim()
        self.time_index.trim()
        self.file().truncate(position)
        self.size = position
        self.forget_recent_batches()
        self._last_found = _NOTHING_FOUND
        self._bytes_since_index_entry = 0
        self._largest = self._find_largest()
        self._first_timestamp = None

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
            self._largest = largest = self._healed(self._confirmed_largest)
        return largest

    def _confirmed_largest(self) -> TimestampOffset:
        last = self.time_index.last
        if self.time_index.entries:
            self._confirm(last)
        tail = self._tail()
        if tail is not None and tail.max_timestamp > last.timestamp:
            raise CorruptIndex(
                f"{self.time_index.path} ends with timestamp {last.timestamp}, its segment with {tail.max_timestamp}"
            )
        return last

    @property
    def first_timestamp(self) -> int:
        """The max timestamp of the segment's first batch; -1 without a timestamp, or without a batch."""
        timestamp = self._first_timestamp
        if timestamp is None:
            if self.size < HEADER_SIZE:
                return -1
            timestamp = read_header(self.file().pread(HEADER_SIZE, 0)).max_timestamp
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
            return self._find(offset, in_memory_only=in_memory_only)
        except CorruptIndex as error:
            self._index_anew_after(error)
            return self._find(offset)

    def _find(self, offset: int, *, in_memory_only: bool = False) -> BatchPlace | None:
        """Go on by headers from the last index entry, an index interval at most and one batch; or from the last batch
        found, if the next is asked for (bench: fetch-1mb). Every fetch of older records comes here, so the headers are
        looked at without a `BatchWalk`; a test holds the two against each other."""
        file, end = self.file(), self.size
        read = partial(read_in_memory, file) if in_memory_only else file.pread
        last_found = self._last_found
        is_next = offset == last_found.next_offset
        entry_offset, position = (offset, last_found.end) if is_next else self.offset_index.lookup(offset)
        chunk_bytes = min(self._index_interval_bytes, _MOST_SCAN_BYTES) + HEADER_SIZE
        chunk = read(min(chunk_bytes, max(end - position, 0)), position)
        base_offset, length, _, delta = _unpack_span(chunk) if len(chunk) >= _SPAN.size else (-1, 0, 0, 0)
        if position and not is_next and base_offset + delta != entry_offset:
            raise self._contradiction(entry_offset, position)
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
                    if size <= end - position - at and base_offset + delta - self.base_offset <= MOST_RELATIVE_OFFSET:
                        self._last_found = _Found(base_offset + delta + 1, position + at, position + at + size)
                        return BatchPlace(position + at, size)
                    break
                before = at
                at += length + LOG_OVERHEAD
            if at <= last or position + at > end:
                # An index entry may point there: the bytes there are checked once, and not again.
                at = before = self._behind_damage(min(position + at, end), position + before) - position
            elif at == 0:
                return None
            if position > limit:
                raise CorruptIndex(f"{self.offset_index.path} has no entry for offset {offset} or one near it")
            before -= at
            position += at
            at = 0
            chunk = read(min(chunk_bytes, max(end - position, 0)), position)
        return None

    def _contradiction(self, offset: int, position: int) -> CorruptIndex:
        return CorruptIndex(
            f"{self.offset_index.path} says that a batch ending with offset {offset} begins at position {position} "
            f"of {self.size}, and none does"
        )

    def _behind_damage(self, position: int, previous: int) -> int:
        """Where reading goes on behind ``position``, which is damaged: the next whole batch, or the end.

        The fault may be the length of the batch before, at ``previous``.
        """
        entry = self.offset_index.first_entry_from_position(previous + 1)
        stop = self.size if entry is None else min(entry.position, self.size)
        found = find_batch(
            self.file().pread, previous + 1, stop, self.size,
            next_offset=self.base_offset, most_offset=self.base_offset + MOST_RELATIVE_OFFSET,
        )  # fmt: skip
        behind = stop if found is None else found[0]
        if not self._is_damage_logged:
            self._is_damage_logged = True
            self.on_repair(
                f"{self.log_path} has no batch at position {position}, where one should be: reading goes on at {behind}"
            )
        return behind

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
            for batch in BatchWalk(self.file().pread, position, end, chunk_bytes=chunk_bytes):
                yield batch
                previous, position = batch.position, batch.position + len(batch.data)
            if position < end:
                position = self._healed(partial(self._behind_damage, position, previous))

    def last_below(self, timestamp: int) -> TimestampOffset:
        """The offset up to which all timestamps are below ``timestamp``, according to the time index."""
        return self._healed(lambda: self._confirm(self.time_index.lookup(timestamp - 1)))

    def _confirm(self, entry: TimestampOffset) -> TimestampOffset:
        """Return an entry of the time index, if the batch that it names has its timestamp. Raises CorruptIndex."""
        if entry.timestamp >= 0:
            place = self._find(entry.offset)
            header = None if place is None else read_header(self.file().pread(HEADER_SIZE, place.position))
            if header is None or header.base_offset > entry.offset or header.max_timestamp != entry.timestamp:
                raise CorruptIndex(
                    f"{self.time_index.path} says that the batch with offset {entry.offset} has timestamp "
                    f"{entry.timestamp}, and it has not"
                )
        return entry

    def first_entry_behind(self, position: int) -> OffsetPosition | None:
        """The first entry of the offset index whose batch begins at or behind ``position``."""
        return self._healed(partial(self._confirmed_entry, position))

    def _confirmed_entry(self, position: int) -> OffsetPosition | None:
        entry = self.offset_index.first_entry_from_position(position)
        if entry is not None:
            chunk = self.file().pread(HEADER_SIZE, entry.position)
            if len(chunk) < HEADER_SIZE or read_header(chunk).last_offset != entry.offset:
                raise self._contradiction(*entry)
        return entry

    def confirm_transactions(self) -> None:
        """Compare each entry of the transaction index with the marker it names. Raises CorruptIndex."""
        index = self.transaction_index
        index.check()
        for transaction in index:
            place = self.locate(transaction.last_offset)
            header = None if place is None else read_header(self.file().pread(HEADER_SIZE, place.position))
            # Compaction may have removed the marker, and has then left a batch behind it.
            if header is None or (
                header.base_offset <= transaction.last_offset
                and not (header.is_control and header.producer_id == transaction.producer_id)
            ):
                raise CorruptIndex(
                    f"{index.path} says that producer {transaction.producer_id} aborted a transaction "
                    f"at offset {transaction.last_offset}, and no marker of it stands there"
                )
        index.is_confirmed = True

    def find_next_offset(self) -> int | None:
        """The offset behind the last batch, by headers from the last index entry on; None if other bytes follow it."""
        tail = self._healed(self._tail)
        return None if tail is None else tail.next_offset

    def _tail(self) -> "_Tail | None":
        position, entry_offset = 0, None
        if self.offset_index.entries:
            entry_offset, position = self.offset_index.last_entry()
        limit = self.size if self.is_indexed_anew else position + _MOST_UNINDEXED_BYTES
        max_timestamp = NO_TIMESTAMP
        walk = BatchWalk(
            self.file().pread, position, self.size, _HEADERS, next_offset=self.base_offset,
            chunk_bytes=min(self._index_interval_bytes, _MOST_SCAN_BYTES) + HEADER_SIZE,
        )  # fmt: skip
        for header, at, _ in walk:
            if entry_offset is not None:
                if header.last_offset != entry_offset:
                    break
                entry_offset = None
                limit += header.size
            if at > limit:
                raise CorruptIndex(f"{self.offset_index.path} has no entry for the last {self.size - at} bytes")
            max_timestamp = max(max_timestamp, header.max_timestamp)
        if entry_offset is not None:
            raise self._contradiction(entry_offset, position)
        return _Tail(walk.next_offset, max_timestamp) if walk.position == self.size else None

    # Indexing anew ----------------------------------------------------------------------------------------------------

    def begin_walk(self, end: int, *, end_offset: int | None = None, durable_offset: int = EVERYTHING) -> SegmentWalk:
        """Begin to rebuild the indexes of offsets and times from the first ``end`` bytes.

        After each step of the walk comes `take_entries`, at its end `end_walk`. ``end_offset`` is where the next
        segment begins, ``durable_offset`` the recovery point.
        """
        self.offset_index.reset()
        self.time_index.reset()
        return SegmentWalk(
            self.file(), end, base_offset=self.base_offset, end_offset=end_offset, durable_offset=durable_offset,
            index_interval_bytes=self._index_interval_bytes,
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
        self.is_indexed_anew = True
        try:
            self.time_index.append(largest.timestamp, largest.offset, is_last=True)
            self.time_index.trim()
        except (DiskFull, TooManyOpenFiles):
            self.index_entries_skipped += 1
        for damage in walk.damage:
            self.on_repair(f"{self.log_path}, {damage}")

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
            self.on_repair(f"{self.log_path}, from position {walk.position} on: {walk.problem}; it is left as it is")

    def _index_anew_after(self, error: CorruptIndex) -> None:
        for _ in self.index_anew():
            pass
        self.on_repair(f"{error}: the indexes have been made anew from the {self.size} bytes of {self.log_path}")

    def _healed(self, search: Callable[[], Found]) -> Found:
        """The result of ``search``; if it meets a damaged index, the indexes are rebuilt and it runs again."""
        try:
            return search()
        except CorruptIndex as error:
            self._index_anew_after(error)
            return search()


class _Found(NamedTuple):
    """The batch found last: a consumer of batches as large as its fetches asks for the next batch next."""

    next_offset: int
    position: int
    end: int


_NOTHING_FOUND: Final = _Found(-1, 0, 0)


class _Tail(NamedTuple):
    """End offset and timestamps of the batches from the last index entry on, by their headers."""

    next_offset: int
    max_timestamp: int
