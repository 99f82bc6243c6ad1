"""Whole batches out of a segment file, front to back: for recovery, replay and the search for a timestamp.

Fetches never come here: they send stretches of the file without looking at them.
"""

from collections.abc import Callable, Generator
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


PassOver = Callable[[bytes, int, int], int]
"""Given a chunk, where in it a batch begins, and where in the file that is: where in the chunk the first batch begins
that has not been dealt with, or the rest of the last one."""


def read_batches(
    file: File, position: int, end: int, chunk_bytes: int = CHUNK_BYTES, pass_over: PassOver | None = None
) -> Generator[StoredBatch, None, int]:
    """The batches from ``position``, where one must begin, up to ``end``; returns the end of the last.

    Ends early at whatever is no whole batch of magic 2: a torn tail, zeros, rubbish. CRCs are not looked at. Whoever
    has quicker ways with most batches than to be handed them one by one gives ``pass_over``.
    """
    while end - position >= HEADER_SIZE:
        data = file.pread(min(chunk_bytes, end - position), position)
        chunk = memoryview(data)
        at = 0 if pass_over is None else pass_over(data, 0, position)
        left = len(chunk) - at
        while left >= HEADER_SIZE:
            size = _unpack_frame(chunk, at)[1] + LOG_OVERHEAD
            if size < HEADER_SIZE or chunk[at + _MAGIC_POSITION] != MAGIC or position + at + size > end:
                return position + at
            if size > left:
                break
            yield StoredBatch(read_header(chunk, at), position + at, chunk[at : at + size])
            at += size
            if pass_over is not None:
                at = pass_over(data, at, position + at)
            left = len(chunk) - at
        if at == 0:
            # A batch larger than a chunk: read all of it at once next time.
            if left < HEADER_SIZE:
                break
            size = _unpack_frame(chunk)[1] + LOG_OVERHEAD
            if size <= chunk_bytes:
                break
            chunk_bytes = size
        position += at
    return position
