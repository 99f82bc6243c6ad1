"""The segments of a partition as a reader finds them, while a broker may append to them, replace and remove them.

Files are neither changed nor mapped: a broker cuts its indexes when a segment rolls, and a process that touched a map
beyond the new end would be killed. An index entry is a hint: it is used only if there is such a batch at its position.
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
from storage.file_names import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_name,
    offset_in,
)
from storage.files import File, FileSystem, storage_error
from storage.index.offset_index import ENTRY as INDEX_ENTRY
from storage.index.offset_index import MOST_RELATIVE_OFFSET
from storage.index.transaction_index import ENTRY as TRANSACTION_ENTRY
from storage.index.transaction_index import AbortedTransaction

_MOST_STEPS: Final = 65_536
"""As many batches of 16 KiB make a segment of a gigabyte. Without an index, smaller batches are not worth a read
each."""

_BEHIND_EVERYTHING: Final = 2**63 - 1
_FILES: Final = FileSystem()


@contextmanager
def raised_as_pipeline_errors() -> Iterator[None]:
    """A context that turns storage's errors about unreadable files into those of the pipeline."""
    try:
        yield
    except StorageError as error:
        raise PipelineError(str(error)) from error


class SegmentFile:
    """A segment. Its files are opened when they are first read, and stay readable when they are removed."""

    def __init__(self, directory: str, base_offset: int, end_offset: int | None, suffix: str = "") -> None:
        self.base_offset = base_offset
        self.end_offset = end_offset
        """The base offset of the next segment when this segment was listed; None for the last segment."""
        self._directory = directory
        self._suffix = suffix
        self._file: File | None = None
        self._opened_index: File | None = None
        self._is_index_opened = False
        self._count: int | None = None

    @property
    def path(self) -> str:
        """The path of the file with the batches."""
        return self._path(LOG_SUFFIX)

    def _path(self, suffix: str) -> str:
        return f"{self._directory}/{file_name(self.base_offset, suffix)}{self._suffix}"

    @property
    def most_offset(self) -> int:
        """The greatest offset that the segment can have."""
        most = self.base_offset + MOST_RELATIVE_OFFSET
        return most if self.end_offset is None else min(most, self.end_offset - 1)

    def next_offset(self) -> int:
        """The offset behind the segment's last batch. Raises FileNotFoundError."""
        position, _ = self.place_near(_BEHIND_EVERYTHING)
        found = self.base_offset
        while (header := self.header_at(position)) is not None:
            found, position = header.next_offset, position + header.size
        return found

    def is_in(self, segments: list[SegmentFile]) -> bool:
        """Whether ``segments``, a later listing, has this segment with the same end."""
        return any((one.path, one.end_offset) == (self.path, self.end_offset) for one in segments)

    def file(self) -> File:
        """The file with the batches, opened. Raises FileNotFoundError."""
        if self._file is None:
            self._file = _FILES.open_read(self.path)
        return self._file

    def header_at(self, position: int) -> BatchHeader | None:
        """The batch header at a position; None if the bytes there cannot be a header."""
        data = self.file().pread(HEADER_SIZE, position)
        if len(data) < HEADER_SIZE:
            return None
        header = read_header(data)
        is_one = header.magic == MAGIC and header.size >= HEADER_SIZE and header.last_offset_delta >= 0
        return header if is_one else None

    def place_near(self, offset: int) -> tuple[int, int]:
        """A batch at or before ``offset``, near it: (position, base offset). With a sound index it is at most an index
        interval before."""
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
        """The first batch behind ``position`` that is in the index and in the file: (position, base offset); None if
        there is none."""
        first = bisect_right(range(self._index_entries), position, key=lambda n: self._index_entry(n)[1])
        for number in range(first, self._index_entries):
            entry_offset, at = self._index_entry(number)
            header = self.header_at(at)
            if at > position and header is not None and header.last_offset == entry_offset:
                return at, header.base_offset
        return None

    def boundary_before(self, position: int) -> tuple[int, int] | None:
        """The last batch at or before ``position`` that is in the index and in the file: (position, base offset); None
        if there is none."""
        last = bisect_right(range(self._index_entries), position, key=lambda n: self._index_entry(n)[1]) - 1
        for number in range(last, -1, -1):
            entry_offset, at = self._index_entry(number)
            header = self.header_at(at)
            if header is not None and header.last_offset == entry_offset:
                return at, header.base_offset
        return None

    def batch_behind(self, batch: int, position: int) -> tuple[int, int] | None:
        """The first batch at or behind ``position``: (position, base offset), found by stepping through the headers
        from the batch at position ``batch``. For the end of an active segment, whose last index entries the broker
        still holds back."""
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
        """How many entries the offset index has: behind the entries of an active segment's index are zeros."""
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
        """An entry of the offset index: (last offset of a batch, its position). The position is 0 where there is no
        entry."""
        assert self._index is not None
        data = self._index.pread(INDEX_ENTRY.size, number * INDEX_ENTRY.size)
        if len(data) < INDEX_ENTRY.size:
            return self.base_offset, 0
        relative_offset, position = INDEX_ENTRY.unpack(data)
        return self.base_offset + relative_offset, position

    def aborted_transactions(self) -> list[AbortedTransaction] | None:
        """The entries of the segment's transaction index, without an entry that is being written; None if the index is
        corrupt."""
        path = self._path(TRANSACTION_INDEX_SUFFIX)
        try:
            data = _FILES.read_file(path)
        except FileNotFoundError:
            try:
                # A copy may have got its own name since it was listed.
                data = _FILES.read_file(path.removesuffix(SWAP_SUFFIX))
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
    """The segments in a partition's directory, by rising base offset; none if there is no such directory.

    A `.swap` file counts in the place of all segments that it contains, of which a power failure may leave any. So the
    broker has it at its next start (`storage.unfinished`).
    """
    while True:
        names = _names_in(directory)
        suffixes = dict.fromkeys(_bases(names, LOG_SUFFIX), "")
        # A copy of which any file is not renamed yet does not count.
        unfinished_from = min(
            (base for suffix in SEGMENT_SUFFIXES for base in _bases(names, suffix + CLEANED_SUFFIX)),
            default=_BEHIND_EVERYTHING,
        )
        copies = [base for base in _bases(names, LOG_SUFFIX + SWAP_SUFFIX) if base < unfinished_from]
        try:
            ends_of_copies = [SegmentFile(directory, base, None, SWAP_SUFFIX).next_offset() for base in copies]
        except FileNotFoundError:
            continue  # it has its own name by now
        for copy, end_offset in zip(copies, ends_of_copies, strict=True):
            for base in [base for base in suffixes if copy <= base < end_offset]:
                del suffixes[base]
        suffixes.update(dict.fromkeys(copies, SWAP_SUFFIX))
        bases = sorted(suffixes)
        ends = [*bases[1:], None]
        return [SegmentFile(directory, base, end, suffixes[base]) for base, end in zip(bases, ends, strict=False)]


def _names_in(directory: str) -> set[str]:
    try:
        names = set(os.listdir(directory))
        # A file that is renamed while the names are read may come under both or under neither.
        while (again := set(os.listdir(directory))) != names:
            names = again
    except FileNotFoundError:
        return set()
    except OSError as error:
        raise storage_error(error, "listing", directory) from error
    return names


def _bases(names: set[str], suffix: str) -> list[int]:
    return [base for name in names if (base := offset_in(name, suffix)) is not None]


def segment_of(segments: list[SegmentFile], offset: int) -> int:
    """The number of the segment that an offset belongs to; -1 if the offset lies before all of them."""
    return bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
