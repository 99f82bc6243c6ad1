"""Whole batches out of a segment file, front to back: for recovery, replay and the search for a timestamp.

Fetches never come here: they send stretches of the file without looking at them.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from storage.batch.record_batch import FRAME, HEADER_SIZE, LOG_OVERHEAD, MAGIC, BatchHeader, read_header
from storage.files import File

CHUNK_BYTES: Final = 1 << 20

_MAGIC_POSITION: Final = 16
_unpack_frame = FRAME.unpack_from


class StoredBatch(NamedTuple):
    """A batch as it stands in a file."""

    header: BatchHeader
    position: int
    data: memoryview
    """All of it, header included; read-only, and good for as long as it is held."""


def read_batches(file: File, position: int, end: int, chunk_bytes: int = CHUNK_BYTES) -> Iterator[StoredBatch]:
    """The batches from ``position``, where one must begin, up to ``end``.

    Ends early at whatever is no whole batch of magic 2: a torn tail, zeros, rubbish. CRCs are not looked at. Where it
    ended is the end of the last batch.
    """
    while end - position >= HEADER_SIZE:
        chunk = memoryview(file.pread(min(chunk_bytes, end - position), position))
        at = 0
        left = len(chunk)
        while left >= HEADER_SIZE:
            size = _unpack_frame(chunk, at)[1] + LOG_OVERHEAD
            if size < HEADER_SIZE or chunk[at + _MAGIC_POSITION] != MAGIC or position + at + size > end:
                return
            if size > left:
                break
            yield StoredBatch(read_header(chunk, at), position + at, chunk[at : at + size])
            at += size
            left -= size
        if at == 0:
            # A batch larger than a chunk: read all of it at once next time.
            if left < HEADER_SIZE:
                return
            size = _unpack_frame(chunk)[1] + LOG_OVERHEAD
            if size <= chunk_bytes:
                return
            chunk_bytes = size
        position += at
