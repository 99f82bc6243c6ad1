"""One cleaning round: the offset map is built, then groups of segments are copied without superfluous records.

    segments     [0 .. 100) [100 .. 250) [250 .. 300) [300 .. 480)   active
    clean        ------------------------|
    dirty                                |------------------------|             their keys go into the map
    groups       (0           100)  (250          300)                          each becomes one segment

Groups are as large as `segment.bytes` and the indexes allow. A segment that keeps its records is copied all the same:
Kafka does so, too, and copies small ones together by that.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from storage.batch.record_batch import Buffer, read_header
from storage.batch.records import MOST_BYTES_READ, open_records
from storage.batch.walk import AtFault, BatchWalk, StoredBatch, WalkPolicy
from storage.cleaning.batch_cleaning import BatchCleaning, CleaningStats
from storage.cleaning.offset_map import SLOT_BYTES, OffsetMap
from storage.cleaning.order import CleanedGroup, CleaningOrder, CleaningReport, SourceSegment
from storage.cleaning.record_selection import note_keys
from storage.cleaning.transactions import CleanedTransactions
from storage.errors import CorruptBatch, DiskFull, SegmentTooLarge
from storage.file_names import CLEANED_SUFFIX
from storage.files import FileSystem
from storage.index.offset_index import MOST_RELATIVE_OFFSET
from storage.index.transaction_index import AbortedTransaction
from storage.open_files import OpenFiles
from storage.segment import Segment
from storage.segment_swap import remove_copies

_MOST_POSITION: Final = 2**31 - 1
"""Where a batch may begin in a segment, at most: positions in an offset index have 31 bits."""
_POLICY: Final = WalkPolicy(checks_crc=True, checks_offsets=True, at_fault=AtFault.RAISE)
_LEAST_SLOTS: Final = 64


class CleaningRound:
    """A round over one log. It reads the log's files, which nobody changes, and writes `.cleaned` files."""

    def __init__(self, files: FileSystem, order: CleaningOrder, throttle: Callable[[int], None]) -> None:
        """``throttle`` is called with the number of bytes that were read or written, and may wait."""
        self._files = files
        self._order = order
        self._throttle = throttle
        self._open_files = OpenFiles()
        self._sources = {
            source.base_offset: Segment(
                files, self._open_files, order.directory, source.base_offset, config=order.config,
                created_ms=source.modified_ms, found=source.sizes,
            )
            for source in order.segments
        }  # fmt: skip
        self._stats = CleaningStats()

    def perform(self) -> Iterator[CleanedGroup | CleaningReport]:
        """Clean the log; yields each group once its copy is on disk, and the report at the end.

        Raises CorruptBatch, CorruptIndex, UndecodableRecords, DecompressionTooLarge, SegmentTooLarge, DiskFull,
        LogDirFailed, TooManyOpenFiles.
        """
        order = self._order
        remove_copies(self._files, order.directory)
        offsets = self._offset_map()
        cleaning = BatchCleaning(
            offsets=offsets, transactions=CleanedTransactions(self._aborted_transactions()),
            last_batches=order.last_batches, end_offset=order.end_offset, now_ms=order.now_ms,
            delete_retention_ms=order.config.delete_retention_ms, stats=self._stats,
        )  # fmt: skip
        for group in self._groups(offsets.latest_offset + 1):
            yield self._copy(group, cleaning)
        yield CleaningReport(
            cleaned_to=offsets.latest_offset + 1, map_utilization=offsets.utilization, stats=self._stats
        )

    # The offset map ---------------------------------------------------------------------------------------------------

    def _offset_map(self) -> OffsetMap:
        """The map of the dirty segments, or of as many of their records as it can take."""
        order = self._order
        # Each key stands at an offset of its own, so the map needs no more slots than there are offsets.
        wanted = int((order.end_offset - order.first_dirty_offset) / order.limits.map_load_factor) + _LEAST_SLOTS
        offsets = OffsetMap(min(order.limits.map_bytes // SLOT_BYTES, wanted), order.limits.map_load_factor)
        # A transaction that has ended before the first dirty record is over: its producer may be in another.
        transactions = CleanedTransactions(
            one for one in self._aborted_transactions() if one.last_offset >= order.first_dirty_offset
        )
        for source, end_offset in self._dirty():
            if not self._note_segment(source, end_offset, offsets, transactions):
                break
        return offsets

    def _dirty(self) -> Iterator[tuple[SourceSegment, int]]:
        """The segments with dirty records, and where each ends."""
        order = self._order
        for source, end_offset in zip(order.segments, _ends(order.segments), strict=True):
            if order.first_dirty_offset < end_offset <= order.end_offset:
                yield source, end_offset

    def _note_segment(
        self, source: SourceSegment, end_offset: int, offsets: OffsetMap, transactions: CleanedTransactions
    ) -> bool:
        """Note the keys of a segment; False if the map has become full."""
        first_dirty = self._order.first_dirty_offset
        segment = self._sources[source.base_offset]
        position = segment.position_of(first_dirty) if first_dirty > source.base_offset else 0
        for header, _, data in self._batches(segment, position, end_offset):
            self._stats.map_bytes_read += header.size
            if header.is_control:
                transactions.is_marker_superfluous(header, data)
            elif not transactions.is_aborted(header) and header.record_count:
                section = open_records(data, header, MOST_BYTES_READ)
                if not note_keys(section, header.record_count, header.base_offset, first_dirty, offsets):
                    return False
            offsets.latest_offset = max(offsets.latest_offset, header.last_offset)
        # The segment's last offsets may belong to no record.
        offsets.latest_offset = end_offset - 1
        return True

    def _aborted_transactions(self) -> list[AbortedTransaction]:
        """All transactions that the log's indexes name. Raises CorruptIndex."""
        found: list[AbortedTransaction] = []
        for segment in self._sources.values():
            if segment.transaction_index:
                segment.transaction_index.check()
                found += segment.transaction_index
        return found

    # Copying ----------------------------------------------------------------------------------------------------------

    def _groups(self, end_offset: int) -> Iterator[list[SourceSegment]]:
        """The segments below ``end_offset``, divided into those that are copied into one."""
        config = self._order.config
        group: list[SourceSegment] = []
        log_bytes = offset_bytes = time_bytes = 0
        for source, source_end in zip(self._order.segments, _ends(self._order.segments), strict=True):
            if source.base_offset >= end_offset or source_end > self._order.end_offset:
                break
            sizes = source.sizes
            log_bytes += sizes.log
            offset_bytes += sizes.offset_index
            time_bytes += sizes.time_index
            if group and (
                log_bytes > config.segment_bytes
                or max(offset_bytes, time_bytes) > config.segment_index_bytes
                or (sizes.log and source_end - 1 - group[0].base_offset > MOST_RELATIVE_OFFSET)
            ):
                yield group
                group = []
                log_bytes, offset_bytes, time_bytes = sizes.log, sizes.offset_index, sizes.time_index
            group.append(source)
        if group:
            yield group

    def _copy(self, group: Sequence[SourceSegment], cleaning: BatchCleaning) -> CleanedGroup:
        """Copy what stays of the group's batches into a new segment, and sync its files."""
        order = self._order
        modified_ms = group[-1].modified_ms
        copy = Segment(
            self._files, self._open_files, order.directory, group[0].base_offset, config=order.config,
            created_ms=modified_ms, suffix=CLEANED_SUFFIX,
        )  # fmt: skip
        self._check_space(group)
        copy.create()
        writer = _SegmentWriter(copy, order.limits.io_buffer_bytes, self._throttle)
        kept = cleaning.transactions.kept
        ends = dict(zip((source.base_offset for source in order.segments), _ends(order.segments), strict=True))
        for source in group:
            segment = self._sources[source.base_offset]
            for header, _, data in self._batches(segment, 0, ends[source.base_offset]):
                cleaned = cleaning.clean(header, data)
                for transaction in kept:
                    copy.transaction_index.append(transaction)
                kept.clear()
                if cleaned is not None:
                    header = header if cleaned is data else read_header(cleaned)
                    writer.append(cleaned, header.base_offset, header.last_offset, header.max_timestamp)
            segment.close()
        writer.flush()
        copy.deactivate()
        for file in copy.open_for_flush():
            file.fsync()
        self._files.set_mtime_ms(copy.log_path, modified_ms)
        sizes = copy.sizes
        copy.close()
        return CleanedGroup(tuple(source.base_offset for source in group), sizes, modified_ms)

    def _check_space(self, group: Sequence[SourceSegment]) -> None:
        """Raise DiskFull where the copy could take space that clients or the broker need."""
        needed = sum(source.sizes.log for source in group)
        space = self._files.space(self._order.directory)
        available = space.usable_bytes - space.reserve(self._order.limits.reserve_bytes)
        if space.total_bytes and available < needed:
            raise DiskFull(
                f"{self._order.directory}: a copy of {len(group)} segments may need {needed} bytes of disk "
                f"space, and {max(available, 0)} are free without the reserve"
            )

    def _batches(self, segment: Segment, position: int, end_offset: int) -> Iterator[StoredBatch]:
        """The batches of a segment from ``position`` on. Raises CorruptBatch where one is damaged."""
        walk = BatchWalk(
            segment.files.log_file().pread, position, segment.size, _POLICY, next_offset=segment.base_offset,
            most_offset=end_offset - 1, chunk_bytes=self._order.limits.io_buffer_bytes,
        )  # fmt: skip
        for batch in walk:
            self._throttle(len(batch.data))
            yield batch
        if walk.position < segment.size:
            raise CorruptBatch(f"{segment.log_path}, position {walk.position}: {walk.problem}")


class _SegmentWriter:
    """Writes batches behind each other into a new segment, many at once."""

    def __init__(self, segment: Segment, buffer_bytes: int, throttle: Callable[[int], None]) -> None:
        self._segment = segment
        self._buffer_bytes = buffer_bytes
        self._throttle = throttle
        self._waiting: list[Buffer] = []
        self._waiting_bytes = 0
        self._written_bytes = 0

    def append(self, batch: Buffer, base_offset: int, last_offset: int, max_timestamp: int) -> None:
        """Append a batch and index it. Raises SegmentTooLarge, and the errors of `flush`."""
        position = self._written_bytes + self._waiting_bytes
        size = len(batch)
        if position > _MOST_POSITION - size:
            raise SegmentTooLarge(
                f"{self._segment.log_path} would have a batch of {size} bytes at position {position}; segment.bytes "
                "must be smaller for this log to be cleaned"
            )
        self._waiting.append(batch)
        self._waiting_bytes += size
        self._segment.appended(position, size, base_offset, last_offset, max_timestamp)
        if self._waiting_bytes >= self._buffer_bytes:
            self.flush()

    def flush(self) -> None:
        """Write what waits. Raises DiskFull, LogDirFailed."""
        if self._waiting:
            self._segment.files.log_file().append_vector(self._waiting, self._written_bytes)
            self._throttle(self._waiting_bytes)
            self._written_bytes += self._waiting_bytes
            self._waiting, self._waiting_bytes = [], 0


def _ends(segments: Sequence[SourceSegment]) -> list[int]:
    """Where each segment ends; the last one, the active segment, beyond all offsets."""
    return [*(segment.base_offset for segment in segments[1:]), 1 << 63]
