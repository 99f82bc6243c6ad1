"""Walking all batches of a segment's file from its beginning, to check them and to index them anew.

A batch counts if its CRC is right and its offsets follow those before it. What is done where one does not depends on
whether it had been on disk for certain, that is, below the recovery point:

    above    the file ends there: a torn tail and a damaged batch look alike, and what lies behind may be older still
    below    the batch was on disk, and the disk has lost it. What follows was on disk too and is kept: the walk goes on
             behind the batch if its header can be trusted, else at the next whole batch

This is what a start after a crash spends its time with, so the loop over small batches makes no object that it need not
(bench: recovery). It accepts what `CHECKED` says; a test holds it against the loop of `storage.batch.walk`.
"""

from typing import Final

from storage.batch.checksum import crc32c
from storage.batch.record_batch import (
    ATTRIBUTES_POSITION,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    header_struct,
    read_header,
)
from storage.batch.walk import AtFault, BatchWalk, WalkPolicy
from storage.files import File
from storage.index.offset_index import ENTRY as OFFSET_ENTRY
from storage.index.offset_index import MOST_RELATIVE_OFFSET
from storage.index.time_index import ENTRY as TIME_ENTRY
from storage.sentinels import NO_EPOCH, NO_TIMESTAMP

CHECKED: Final = WalkPolicy(checks_crc=True, checks_offsets=True, at_fault=AtFault.STEP_OVER)
"""What a batch must fulfil to be indexed. Above the recovery point nothing is stepped over."""

# Read at once: small enough to be in the processor's cache when its CRC is computed.
_CHUNK_BYTES: Final = 1 << 18
_LEAST_LENGTH: Final = HEADER_SIZE - LOG_OVERHEAD
# Below this, copying costs less than a view.
_COPIED_BYTES: Final = 4096

_unpack = header_struct(
    "base_offset", "batch_length", "partition_leader_epoch", "magic", "crc", "attributes", "last_offset_delta",
    "max_timestamp", "producer_id",
).unpack_from  # fmt: skip
_offset_entry = OFFSET_ENTRY.pack
_time_entry = TIME_ENTRY.pack


class SegmentWalk(BatchWalk):
    """A walk under way, step by step, and what it has found so far."""

    __slots__ = (
        "_index_interval_bytes", "_time_indexed", "base_offset", "epochs", "first_timestamp", "largest_offset",
        "largest_timestamp", "latest_epoch", "offset_entries", "produced", "time_entries", "unindexed_bytes",
    )  # fmt: skip

    def __init__(
        self, file: File, end: int, *, base_offset: int, end_offset: int | None, durable_offset: int,
        index_interval_bytes: int,
    ) -> None:  # fmt: skip
        most_offset = base_offset + MOST_RELATIVE_OFFSET
        if end_offset is not None:
            # Where the next segment begins. Offsets stand outside the CRC, so a wrong one is noticed here at best.
            most_offset = min(most_offset, end_offset - 1)
        super().__init__(
            file.pread, 0, end, CHECKED, next_offset=base_offset, most_offset=most_offset,
            durable_offset=durable_offset, chunk_bytes=_CHUNK_BYTES,
        )  # fmt: skip
        self.base_offset = base_offset
        self._index_interval_bytes = index_interval_bytes
        self.first_timestamp = NO_TIMESTAMP
        self.largest_timestamp = NO_TIMESTAMP
        self.largest_offset = base_offset
        self.unindexed_bytes = 0
        """Bytes since the last index entry."""
        self._time_indexed = NO_TIMESTAMP
        self.latest_epoch = NO_EPOCH
        # What the last step has found:
        self.offset_entries = bytearray()
        self.time_entries = bytearray()
        self.epochs: list[tuple[int, int]] = []
        """Rising (leader epoch, first offset with it)."""
        self.produced: list[tuple[int, int, int]] = []
        """The batches with a producer id: (producer id, attributes, where in `chunk` it begins)."""

    def step(self) -> bool:
        """Go on by one read. False if the walk was over before; then the last step's findings stay."""
        start = self.position
        chunk = self.read_chunk()
        if not chunk:
            return False
        left = len(chunk)
        view = memoryview(chunk)
        offset_entries, time_entries = bytearray(), bytearray()
        epochs: list[tuple[int, int]] = []
        produced: list[tuple[int, int, int]] = []
        base, most_offset, interval = self.base_offset, self.most_offset, self._index_interval_bytes
        next_offset, unindexed, latest_epoch = self.next_offset, self.unindexed_bytes, self.latest_epoch
        largest, largest_offset, time_indexed = self.largest_timestamp, self.largest_offset, self._time_indexed
        at, last_header = 0, left - HEADER_SIZE
        while at <= last_header:
            base_offset, length, epoch, magic, crc, attributes, delta, max_timestamp, producer_id = _unpack(chunk, at)
            end = at + length + LOG_OVERHEAD
            if magic != MAGIC or length < _LEAST_LENGTH or end > left:
                break
            checked = at + ATTRIBUTES_POSITION
            last_offset = base_offset + delta
            if (
                crc32c(chunk[checked:end] if length < _COPIED_BYTES else view[checked:end]) != crc
                or not next_offset <= base_offset <= last_offset <= most_offset
            ):
                break
            if max_timestamp > largest:
                largest, largest_offset = max_timestamp, last_offset
            if unindexed > interval:
                offset_entries += _offset_entry(last_offset - base, start + at)
                if largest > time_indexed:
                    time_entries += _time_entry(largest, largest_offset - base)
                    time_indexed = largest
                unindexed = 0
            unindexed += length + LOG_OVERHEAD
            if epoch > latest_epoch:
                epochs.append((epoch, base_offset))
                latest_epoch = epoch
            if producer_id >= 0:
                produced.append((producer_id, attributes, at))
            next_offset = last_offset + 1
            at = end
        if start == 0 and at:
            self.first_timestamp = read_header(chunk).max_timestamp
        self.offset_entries, self.time_entries = offset_entries, time_entries
        self.epochs, self.produced = epochs, produced
        self.next_offset, self.unindexed_bytes, self.latest_epoch = next_offset, unindexed, latest_epoch
        self.largest_timestamp, self.largest_offset, self._time_indexed = largest, largest_offset, time_indexed
        if self.took(at):
            # Searches step over the damage by way of the index, so what follows it gets an entry.
            self.unindexed_bytes = interval + 1
        return True
