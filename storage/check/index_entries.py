"""Reading the entries of index files in order, without mmap, because a broker may extend or cut the files meanwhile."""

from collections.abc import Iterator
from itertools import takewhile
from struct import Struct
from typing import Any, Final

from storage.files import File
from storage.index import offset_index, time_index, transaction_index
from storage.index.offset_index import OffsetPosition
from storage.index.time_index import TimestampOffset
from storage.index.transaction_index import AbortedTransaction

TRANSACTION_INDEX_VERSION: Final = 0

_ENTRIES_A_READ: Final = 4096


def offset_entries(file: File, base_offset: int) -> Iterator[OffsetPosition]:
    """The whole entries of a `.index` file; zeros behind them count too."""
    for relative_offset, position in _entries(file, offset_index.ENTRY):
        yield OffsetPosition(base_offset + relative_offset, position)


def time_entries(file: File, base_offset: int) -> Iterator[TimestampOffset]:
    """The whole entries of a `.timeindex` file; zeros behind them count too."""
    for timestamp, relative_offset in _entries(file, time_index.ENTRY):
        yield TimestampOffset(timestamp, base_offset + relative_offset)


def offset_entries_before_zeros(file: File, base_offset: int) -> Iterator[OffsetPosition]:
    """The entries of a `.index` file that may have its preallocated length, which zeros fill."""
    return takewhile(lambda entry: entry.position > 0, offset_entries(file, base_offset))


def time_entries_before_zeros(file: File, base_offset: int) -> Iterator[TimestampOffset]:
    """The entries of a `.timeindex` file that may have its preallocated length, which zeros fill."""
    return takewhile(lambda entry: entry != (0, base_offset), time_entries(file, base_offset))


def ends_with_zeros(file: File, entry_size: int) -> bool:
    """Whether an index has its preallocated length: its last whole entry is zeros."""
    last = file.pread(entry_size, max(file.size - file.size % entry_size - entry_size, 0))
    return bool(last) and not any(last)


def transaction_entries(file: File) -> Iterator[tuple[int, AbortedTransaction]]:
    """The whole entries of a `.txnindex` file, each with its version."""
    for version, *fields in _entries(file, transaction_index.ENTRY):
        yield version, AbortedTransaction(*fields)


def _entries(file: File, entry: Struct) -> Iterator[tuple[Any, ...]]:
    position = 0
    while len(chunk := file.pread(entry.size * _ENTRIES_A_READ, position)) >= entry.size:
        whole = len(chunk) - len(chunk) % entry.size
        yield from entry.iter_unpack(memoryview(chunk)[:whole])
        position += whole
