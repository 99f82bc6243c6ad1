"""Walking all batches of a segment's file from its beginning, to check them and to index them anew.

A batch counts if its CRC is right and its offsets follow those before it. What is done where one does not depends on
whether it had been on disk for certain, that is, below the recovery point:

    above    the file ends there: a torn tail and a damaged batch look alike, and what lies behind may be older still
    below    nobody tore it, the disk has lost it. What follows was on disk too and is kept: the walk goes on behind
             the batch if its header can be believed, else at the next whole batch that there is

This is what a start after a crash spends its time with, so the loop over small batches makes no object that it need not
(bench: recovery).
"""

from struct import Struct
from typing import Final

from storage.batch.checksum import crc32c
from storage.batch.record_batch import (
    ATTRIBUTES_POSITION,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    read_header,
)
from storage.files import File
from storage.index.offset_index import ENTRY as OFFSET_ENTRY
from storage.index.offset_index import MOST_RELATIVE_OFFSET
from storage.index.time_index import ENTRY as TIME_ENTRY

EVERYTHING: Final = 2**63 - 1
"""A durable offset for a file that is not to be cut anywhere."""

# Read at once: small enough to be in the processor's cache when its CRC is computed.
_CHUNK_BYTES: Final = 1 << 18
_SEARCH_BYTES: Final = 1 << 20
_LEAST_LENGTH: Final = HEADER_SIZE - LOG_OVERHEAD
# Below this, copying costs less than a view.
_COPIED_BYTES: Final = 4096

# Base offset, length, leader epoch, magic, CRC, attributes, last offset delta, max timestamp, producer id.
_HEADER: Final = Struct(">qiibIhi8xqq")
_unpack = _HEADER.unpack_from
_offset_entry = OFFSET_ENTRY.pack
_time_entry = TIME_ENTRY.pack


class SegmentWalk:
    """A walk under way, and what it has found so far."""

    __slots__ = (
        "_chunk_bytes", "_file", "_index_interval_bytes", "_most_offset", "_time_indexed", "base_offset", "chunk",
        "cut_reason", "damage", "durable_offset", "end", "epochs", "first_timestamp", "is_done", "largest_offset",
        "largest_timestamp", "latest_epoch", "next_offset", "offset_entries", "position", "produced", "time_entries",
        "unindexed_bytes",
    )  # fmt: skip

    def __init__(
        self, file: File, end: int, *, base_offset: int, end_offset: int | None, durable_offset: int,
        index_interval_bytes: int,
    ) -> None:  # fmt: skip
        self._file = file
        self.end = end
        """Where to stop, in bytes."""
        self.base_offset = base_offset
        self._most_offset = base_offset + MOST_RELATIVE_OFFSET
        if end_offset is not None:
            # Where the next segment begins. Offsets stand outside the CRC, so a wrong one is noticed here at best.
            self._most_offset = min(self._most_offset, end_offset - 1)
        self.durable_offset = durable_offset
        """Below this, everything had been on disk."""
        self._index_interval_bytes = index_interval_bytes
        self._chunk_bytes = _CHUNK_BYTES
        self.position = 0
        """Bytes behind it."""
        self.next_offset = base_offset
        self.is_done = False
        self.cut_reason = ""
        """Why what lies from `position` on is no batch of this log; empty if the walk came to the end."""
        self.damage: list[str] = []
        """What it stepped over, a sentence each."""
        self.first_timestamp = -1
        self.largest_timestamp = -1
        self.largest_offset = base_offset
        self.unindexed_bytes = 0
        """Bytes since the last index entry."""
        self._time_indexed = -1
        self.latest_epoch = -1
        # What the last step has found:
        self.chunk = b""
        self.offset_entries = bytearray()
        self.time_entries = bytearray()
        self.epochs: list[tuple[int, int]] = []
        """Rising (leader epoch, first offset with it)."""
        self.produced: list[tuple[int, int, int]] = []
        """The batches with a producer id: (producer id, attributes, where in `chunk` it begins)."""

    def step(self) -> bool:
        """Go on by one read. False if the walk was over before; then the last step's findings stay."""
        if self.is_done:
            return False
        start = self.position
        wanted = min(self._chunk_bytes, self.end - start)
        chunk = self._file.pread(wanted, start)
        left = len(chunk)
        if left < wanted:
            self.end = start + left
        view = memoryview(chunk)
        offset_entries, time_entries = bytearray(), bytearray()
        epochs: list[tuple[int, int]] = []
        produced: list[tuple[int, int, int]] = []
        base, most_offset, interval = self.base_offset, self._most_offset, self._index_interval_bytes
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
        self.chunk, self.offset_entries, self.time_entries = chunk, offset_entries, time_entries
        self.epochs, self.produced = epochs, produced
        self.next_offset, self.unindexed_bytes, self.latest_epoch = next_offset, unindexed, latest_epoch
        self.largest_timestamp, self.largest_offset, self._time_indexed = largest, largest_offset, time_indexed
        self.position = start + at
        self._look_ahead(left - at)
        return True

    def _look_ahead(self, left: int) -> None:
        """Why ``left`` bytes of the chunk were not taken: the end, a batch that goes on behind it, or a bad one."""
        if self.position >= self.end:
            self.is_done = True
            return
        header = self._header_at(self.position)
        if header is not None and left < header.size <= self.end - self.position and header.magic == MAGIC:
            self._chunk_bytes = max(self._chunk_bytes, header.size)
        else:
            self._meet_damage(header)

    def _meet_damage(self, header: BatchHeader | None) -> None:
        problem = self._problem(header)
        self._chunk_bytes = _CHUNK_BYTES
        if self.next_offset >= self.durable_offset:
            self.cut_reason = problem
            self.is_done = True
            return
        from_offset, from_position = self.next_offset, self.position
        file, end, most_offset = self._file, self.end, self._most_offset
        if header is not None and _is_credible(file, header, from_position, end, from_offset, most_offset):
            self.position += header.size
            self.next_offset = header.next_offset
            self.damage.append(
                f"position {from_position}, offsets {from_offset} to {header.last_offset}: {problem}; it is left so"
            )
        else:
            found = find_batch(file, from_position + 1, end, end, next_offset=from_offset, most_offset=most_offset)
            if found is None:
                self.cut_reason = problem
                self.is_done = True
                return
            self.position, following = found
            lost = f"offsets {from_offset} to {following.base_offset - 1} cannot be read, "
            self.damage.append(
                f"position {from_position}: {problem}; {lost if following.base_offset > from_offset else ''}"
                f"the next batch stands at position {self.position}"
            )
            # Searches step over the damage by way of the index, so what follows it gets an entry.
            self.unindexed_bytes = self._index_interval_bytes + 1
        self.is_done = self.position >= self.end

    def _header_at(self, position: int) -> BatchHeader | None:
        return _header_in(self._file, position, self.end)

    def _problem(self, header: BatchHeader | None) -> str:
        left = self.end - self.position
        if header is None:
            return f"the last {left} bytes are less than the header of a batch"
        if not any(header):
            return "there are zeros where a batch is expected"
        if header.magic != MAGIC:
            return f"there is magic {header.magic} where a batch of magic {MAGIC} is expected"
        if header.size < HEADER_SIZE:
            return f"the batch there says that it has {header.size} bytes, fewer than its header"
        if header.size > left:
            return f"the batch there has {left} of its {header.size} bytes"
        data = self._file.pread(header.size, self.position)
        if (crc := crc32c(memoryview(data)[ATTRIBUTES_POSITION:])) != header.crc:
            return f"the batch there names the CRC {header.crc:08x}, and its bytes have {crc:08x}"
        return (
            f"the batch there has offsets {header.base_offset} to {header.last_offset}, "
            f"expected some from {self.next_offset} to {self._most_offset}"
        )


def find_batch(
    file: File, position: int, stop: int, end: int, *, next_offset: int, most_offset: int
) -> tuple[int, BatchHeader] | None:
    """The first whole batch that begins from ``position`` on and before ``stop``: where, and its header.

    Its offsets must lie from ``next_offset`` to ``most_offset``, and where it ends, another must begin or ``end`` be.
    """
    while position < stop and end - position >= HEADER_SIZE:
        chunk = file.pread(min(_SEARCH_BYTES, end - position), position)
        last_header = min(len(chunk) - HEADER_SIZE, stop - position - 1)
        at = chunk.find(MAGIC, MAGIC_POSITION) - MAGIC_POSITION
        while 0 <= at <= last_header:
            header = read_header(chunk, at)
            if _is_credible(file, header, position + at, end, next_offset, most_offset):
                data = file.pread(header.size, position + at)
                if crc32c(memoryview(data)[ATTRIBUTES_POSITION:]) == header.crc:
                    return position + at, header
            at = chunk.find(MAGIC, at + MAGIC_POSITION + 1) - MAGIC_POSITION
        position += max(last_header + 1, 1)
    return None


def _is_credible(file: File, header: BatchHeader, position: int, end: int, next_offset: int, most_offset: int) -> bool:
    """Whether a batch's header fits to what is before it and to what is behind it, so that its place is known."""
    if (
        header.magic != MAGIC
        or header.batch_length < _LEAST_LENGTH
        or not next_offset <= header.base_offset <= header.last_offset <= most_offset
    ):
        return False
    behind = position + header.size
    if behind >= end:
        return behind == end
    following = _header_in(file, behind, end)
    return (
        following is not None
        and following.magic == MAGIC
        and following.batch_length >= _LEAST_LENGTH
        and following.base_offset >= header.next_offset
    )


def _header_in(file: File, position: int, end: int) -> BatchHeader | None:
    data = file.pread(min(HEADER_SIZE, end - position), position)
    return read_header(data) if len(data) == HEADER_SIZE else None
