"""The segments of a partition as a reader finds them, while a broker may append to them, replace and remove them.

Nothing here is changed and nothing is mapped: a broker cuts its indexes when a segment rolls, and whoever touched a map
beyond the new end would be killed. An index is a hint, and believed only where the batch that it names agrees.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pipeline.errors import PipelineError
from storage.batch.record_batch import HEADER_SIZE, MAGIC, BatchHeader, read_header
from storage.errors import StorageError
from storage.file_names import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, file_name, offset_in
from storage.files import File, FileSystem, storage_error
from storage.index.offset_index import ENTRY as INDEX_ENTRY
from storage.index.offset_index import MOST_RELATIVE_OFFSET
from storage.index.transaction_index import ENTRY as TRANSACTION_ENTRY
from storage.index.transaction_index import AbortedTransaction

SWAP_SUFFIX: Final = ".swap"
"""What the cleaner has put on disk whole, and is about to give the name of what it replaces."""

_MOST_STEPS: Final = 65_536
"""Batches of 16 KiB in a segment of a gigabyte. Without any index, smaller ones are not all worth a read each."""

_FILES: Final = FileSystem()


@contextmanager
def told_as_pipeline_errors() -> Iterator[None]:
    """A context that turns storage's errors about unreadable files into those of the pipeline."""
    try:
        yield
    except StorageError as error:
        raise PipelineError(str(error)) from error


class SegmentFile:
    """One segment, opened when it is first read; what has been opened stays readable when it is removed."""

    def __init__(self, directory: str, base_offset: int, end_offset: int | None, suffix: str = "") -> None:
        self.base_offset = base_offset
        self.end_offset = end_offset
        """Where the next segment began when this one was found; None for the last."""
        self._directory = directory
        self._suffix = suffix
        self._file: File | None = None
        self._opened_index: File | None = None
        self._is_index_opened = False
        self._count: int | None = None

    @property
    def path(self) -> str:
        """The file of batches."""
        return self._path(LOG_SUFFIX)

    def _path(self, suffix: str) -> str:
        return f"{self._directory}/{file_name(self.base_offset, suffix)}{self._suffix}"

    @property
    def most_offset(self) -> int:
        """The greatest offset that can be in it."""
        most = self.base_offset + MOST_RELATIVE_OFFSET
        if self.end_offset is None or self._suffix:
            # What the cleaner is about to put in place reaches over segments that may still be there.
            return most
        return min(most, self.end_offset - 1)

    def is_in(self, segments: list[SegmentFile]) -> bool:
        """Whether a later listing has it, and the segment behind it, as they were."""
        return any((one.path, one.end_offset) == (self.path, self.end_offset) for one in segments)

    def file(self) -> File:
        """Its batches. Raises FileNotFoundError."""
        if self._file is None:
            self._file = _FILES.open_read(self.path)
        return self._file

    def header_at(self, position: int) -> BatchHeader | None:
        """What stands at a position, if it looks like the header of a batch."""
        data = self.file().pread(HEADER_SIZE, position)
        if len(data) < HEADER_SIZE:
            return None
        header = read_header(data)
        is_one = header.magic == MAGIC and header.size >= HEADER_SIZE and header.last_offset_delta >= 0
        return header if is_one else None

    def place_near(self, offset: int) -> tuple[int, int]:
        """(Where to begin looking for an offset: position of a batch, its first offset). At most an index interval
        before it, where the index is sound."""
        for number in self._entries_up_to(offset):
            entry_offset, position = self._index_entry(number)
            header = self.header_at(position)
            if header is not None and header.last_offset == entry_offset:
                return position, header.base_offset
        return 0, self.base_offset

    def _entries_up_to(self, offset: int) -> Iterator[int]:
        last = bisect_right(range(self._index_entries), offset, key=lambda n: self._index_entry(n)[0]) - 1
        # One that lies is no reason to read the whole segment.
        yield from range(last, max(last - 16, -1), -1)

    def entry_behind(self, position: int) -> tuple[int, int] | None:
        """The first batch behind a position that the index names and that is there: (position, first offset)."""
        first = bisect_right(range(self._index_entries), position, key=lambda n: self._index_entry(n)[1])
        for number in range(first, self._index_entries):
            entry_offset, at = self._index_entry(number)
            header = self.header_at(at)
            if at > position and header is not None and header.last_offset == entry_offset:
                return at, header.base_offset
        return None

    def boundary_before(self, position: int) -> tuple[int, int] | None:
        """The last batch at or before a position that the index names and that is there: (position, first offset)."""
        last = bisect_right(range(self._index_entries), position, key=lambda n: self._index_entry(n)[1]) - 1
        for number in range(last, -1, -1):
            entry_offset, at = self._index_entry(number)
            header = self.header_at(at)
            if header is not None and header.last_offset == entry_offset:
                return at, header.base_offset
        return None

    def batch_behind(self, batch: int, position: int) -> tuple[int, int] | None:
        """The first batch at or behind a position, stepping from header to header from another one before it:
        (position, first offset). For the end of a segment in use, whose last entries its broker still holds back."""
        for _ in range(_MOST_STEPS):
            header = self.header_at(batch)
            if header is None or not self.base_offset <= header.base_offset <= self.most_offset:
                break
            if batch >= position:
                return batch, header.base_offset
            batch += header.size
        return None

    @property
    def _index_entries(self) -> int:
        """How many entries are valid: an active segment's index has zeros behind them."""
        if self._count is None:
            size = 0 if self._index is None else self._index.size // INDEX_ENTRY.size
            self._count = bisect_left(range(size), True, key=lambda n: self._index_entry(n)[1] <= 0)
        return self._count

    @property
    def _index(self) -> File | None:
        if not self._is_index_opened:
            self._is_index_opened = True
            try:
                self._opened_index = _FILES.open_read(self._path(OFFSET_INDEX_SUFFIX))
            except FileNotFoundError:
                self._opened_index = None
        return self._opened_index

    def _index_entry(self, number: int) -> tuple[int, int]:
        """An entry of the offset index: (last offset of a batch, its position); a position of 0 where none is."""
        assert self._index is not None
        data = self._index.pread(INDEX_ENTRY.size, number * INDEX_ENTRY.size)
        if len(data) < INDEX_ENTRY.size:
            return self.base_offset, 0
        relative_offset, position = INDEX_ENTRY.unpack(data)
        return self.base_offset + relative_offset, position

    def aborted_transactions(self) -> list[AbortedTransaction] | None:
        """What its transaction index holds, up to an entry that is written just now; None if that cannot be."""
        try:
            data = _FILES.read_file(self._path(TRANSACTION_INDEX_SUFFIX))
        except FileNotFoundError:
            return []
        found: list[AbortedTransaction] = []
        previous = self.base_offset - 1
        for version, *fields in TRANSACTION_ENTRY.iter_unpack(data[: len(data) - len(data) % TRANSACTION_ENTRY.size]):
            entry = AbortedTransaction(*fields)
            if version != 0 or not (entry.first_offset < entry.last_offset and previous < entry.last_offset):
                return None
            previous = entry.last_offset
            found.append(entry)
        return found


def list_segments(directory: str) -> list[SegmentFile]:
    """The segments in a partition's directory, by rising base offset; none where there is no such directory.

    Where the cleaner is at work, a `.swap` counts if what it replaces has gone.
    """
    try:
        names = set(os.listdir(directory))
        # A file that is renamed while the names are read may come under both or under neither.
        while (again := set(os.listdir(directory))) != names:
            names = again
    except FileNotFoundError:
        return []
    except OSError as error:
        raise storage_error(error, "listing", directory) from error
    found: dict[int, str] = {}
    for name in names:
        for suffix in ("", SWAP_SUFFIX):
            base_offset = offset_in(name, LOG_SUFFIX + suffix)
            if base_offset is not None:
                found[base_offset] = min(found.get(base_offset, suffix), suffix)
    bases = sorted(found)
    ends = [*bases[1:], None]
    return [SegmentFile(directory, base, end, found[base]) for base, end in zip(bases, ends, strict=False)]


def segment_of(segments: list[SegmentFile], offset: int) -> int:
    """The number of the segment that an offset belongs to; -1 if it lies before all of them."""
    return bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
