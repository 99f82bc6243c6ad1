"""Checks of the batches in a segment's file: faults of each batch, and bytes that are no batch."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from storage.batch.record_batch import (
    CODEC_BITS,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    Codec,
    computed_crc,
)
from storage.batch.records import MOST_BYTES_READ, open_records, walk
from storage.batch.varints import wrap_64
from storage.batch.walk import BatchWalk, PassOver, StoredBatch
from storage.errors import UndecodableRecords
from storage.files import File

MOST_CODEC: Final = max(Codec)

_CHUNK_BYTES: Final = 1 << 20
# Small enough to be in the processor's cache when its CRC is computed.
_CACHED_BYTES: Final = 1 << 18


class Unreadable(NamedTuple):
    """The end of a segment's file that holds no batches."""

    position: int
    size: int
    """Bytes from there to the end."""
    found: str
    expected: str


class Fault(NamedTuple):
    """What is wrong with a batch."""

    found: str
    expected: str


def batches_to_the_end(file: File, size: int, pass_over: PassOver | None = None) -> Iterator[StoredBatch | Unreadable]:
    """The whole batches in the first ``size`` bytes of a file, but for those that ``pass_over`` deals with.

    The last item is `Unreadable` if other bytes follow the batches."""
    walk = BatchWalk(file.pread, 0, size, chunk_bytes=_CACHED_BYTES, pass_over=pass_over)
    yield from walk
    if walk.position < size:
        yield _unreadable(file, walk.position, size, walk.header)


def _unreadable(file: File, position: int, size: int, header: BatchHeader | None) -> Unreadable:
    left = size - position
    if (header is None or not any(header)) and _is_all_zeros(file, position, size):
        return Unreadable(position, left, "zeros to the end of the file", "a record batch")
    if header is None:
        return Unreadable(position, left, f"{left} bytes", f"a batch's header of {HEADER_SIZE}")
    if header.size < HEADER_SIZE:
        return Unreadable(
            position, left, f"a batch length of {header.batch_length}", f"{HEADER_SIZE - LOG_OVERHEAD} or more"
        )
    if header.magic != MAGIC:
        return Unreadable(position, left, f"magic {header.magic}", f"{MAGIC}")
    return Unreadable(position, left, f"{left} bytes of a batch", f"the {header.size} bytes that its header counts")


def _is_all_zeros(file: File, position: int, end: int) -> bool:
    while position < end:
        chunk = file.pread(min(_CHUNK_BYTES, end - position), position)
        if not chunk or chunk.count(0) < len(chunk):
            return False
        position += len(chunk)
    return True


def crc_fault(batch: StoredBatch) -> Fault | None:
    """The fault of a batch whose CRC does not match its bytes."""
    crc = computed_crc(batch.data, 0, len(batch.data))
    if crc == batch.header.crc:
        return None
    return Fault(f"CRC {batch.header.crc:08x}", f"{crc:08x}, that of its bytes")


def header_fault(header: BatchHeader) -> Fault | None:
    """The faults of a batch's header that contradicts itself."""
    if header.last_offset_delta < 0:
        return Fault(f"last offset delta {header.last_offset_delta}", "0 or more")
    if not 0 <= header.record_count <= header.last_offset_delta + 1:
        return Fault(f"{header.record_count} records", f"0 to {header.last_offset_delta + 1}")
    if (codec := header.attributes & CODEC_BITS) > MOST_CODEC:
        return Fault(f"codec {codec}", f"0 to {MOST_CODEC}")
    if header.has_delete_horizon and header.base_timestamp < 0:
        return Fault(f"delete horizon {header.base_timestamp}", "a time: 0 or more")
    return None


def record_faults(batch: StoredBatch) -> Iterator[Fault]:
    """The faults where a batch's records contradict its header or each other. Ends at records that cannot be read."""
    header, data = batch.header, batch.data
    if (fault := header_fault(header)) is not None:
        yield fault
        return
    if header.record_count == 0 and header.size == HEADER_SIZE:
        return
    try:
        section = open_records(data, header, MOST_BYTES_READ)
        previous, largest = -1, header.max_timestamp
        for timestamp_delta, offset_delta, _, _, _ in walk(section, header.record_count, len(section)):
            if not previous < offset_delta <= header.last_offset_delta:
                yield Fault(f"offset delta {offset_delta}", f"{previous + 1} to {header.last_offset_delta}")
                return
            previous = offset_delta
            largest = max(largest, wrap_64(header.base_timestamp + timestamp_delta))
    except UndecodableRecords as error:
        yield Fault(str(error), "records")
        return
    if largest > header.max_timestamp and not header.attributes & LOG_APPEND_TIME_BIT:
        yield Fault(f"max timestamp {header.max_timestamp}", f"{largest}, the largest of its records")
