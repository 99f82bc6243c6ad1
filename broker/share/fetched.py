"""What was read for a share group: the headers of the batches in a region, and which batches were aborted."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from storage.batch.record_batch import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, read_header
from storage.files import FileRegion
from storage.index.transaction_index import AbortedTransaction

READ_AT_ONCE_BYTES = 64 << 10
"""Bytes that are read to look for headers. A batch that is larger than this costs a read of its own."""


class Fetched(NamedTuple):
    """The batches that a read gave."""

    headers: Sequence[BatchHeader]
    """Of whole batches, in order, as far as they were of interest. The region that was read may go on."""
    positions: Sequence[int]
    """Where each batch begins, in bytes from the beginning of the region."""
    aborted: Sequence[BatchHeader]
    """Those of aborted transactions, where the group does not see these."""

    def cut(self, region: FileRegion, first_offset: int, last_offset: int) -> FileRegion:
        """The part of the region that was read with the batches that have these offsets."""
        base_offsets = [header.base_offset for header in self.headers]
        begin = max(bisect_right(base_offsets, first_offset) - 1, 0)
        last = max(bisect_right(base_offsets, last_offset) - 1, begin)
        position = self.positions[begin]
        size = self.positions[last] + self.headers[last].size - position
        return FileRegion(region.file, region.position + position, size)


def fetched_in(region: FileRegion, behind_offset: int, aborted: Sequence[AbortedTransaction]) -> Fetched:
    """Read the headers of the whole batches in a region, up to the first batch that ends behind ``behind_offset``.

    Raises LogDirFailed.
    """
    headers: list[BatchHeader] = []
    positions: list[int] = []
    position = 0
    chunk, chunk_position = b"", 0
    while position + HEADER_SIZE <= region.size:
        if position + HEADER_SIZE > chunk_position + len(chunk):
            size = min(READ_AT_ONCE_BYTES, region.size - position)
            chunk, chunk_position = bytes(region.file.pread(size, region.position + position)), position
        header = read_header(chunk, position - chunk_position)
        if header.batch_length < HEADER_SIZE - LOG_OVERHEAD or position + header.size > region.size:
            break
        headers.append(header)
        positions.append(position)
        position += header.size
        if header.last_offset > behind_offset:
            break
    return Fetched(headers, positions, aborted_batches(headers, aborted))


def aborted_batches(headers: Sequence[BatchHeader], aborted: Sequence[AbortedTransaction]) -> Sequence[BatchHeader]:
    """The batches with records of aborted transactions."""
    if not aborted:
        return ()
    return [
        header
        for header in headers
        if header.is_transactional
        and not header.is_control
        and any(
            one.producer_id == header.producer_id and one.first_offset <= header.last_offset < one.last_offset
            for one in aborted
        )
    ]
