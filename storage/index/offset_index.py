"""`<base offset>.index`: maps offsets to positions in a segment's file.

    i32 relative offset    of the last record of a batch, relative to the segment's base offset
    i32 position           where that batch begins in the .log file

Offsets and positions both rise. There is an entry for a batch only every `index.interval.bytes`, so a look-up ends at
the last entry at or below the offset and goes on from there by batch headers.
"""

from bisect import bisect_right
from struct import Struct
from typing import ClassVar, Final, NamedTuple

from storage.errors import CorruptIndex
from storage.index.index_file import WARM_BYTES, IndexFile

ENTRY: Final = Struct(">ii")
MOST_RELATIVE_OFFSET: Final = 2**31 - 1
_OFFSET: Final = Struct(">i")
_WARM_ENTRIES: Final = WARM_BYTES // ENTRY.size

_unpack_offset = _OFFSET.unpack_from
_unpack_entry = ENTRY.unpack_from


class OffsetPosition(NamedTuple):
    """An entry: an absolute offset, and where in the file the batch ending with it begins."""

    offset: int
    position: int


class OffsetIndex(IndexFile):
    """The offset index of one segment."""

    __slots__ = ()

    ENTRY_SIZE: ClassVar[int] = ENTRY.size

    @property
    def is_full(self) -> bool:
        """Whether the index takes no further entry."""
        return self.entries >= self.max_entries

    def append(self, offset: int, position: int) -> None:
        """Note that the batch ending with ``offset`` begins at ``position``."""
        self.append_entry(ENTRY.pack(offset - self.base_offset, position))

    def lookup(self, offset: int) -> OffsetPosition:
        """The last entry at or below ``offset``; the segment's beginning if there is none. Raises CorruptIndex."""
        entry = self._search(offset - self.base_offset)
        if entry < 0:
            return OffsetPosition(self.base_offset, 0)
        return self.entry(entry)

    def _search(self, relative_offset: int) -> int:
        """The number of the last entry at or below ``relative_offset``, or -1."""
        entries = self.searchable()
        if entries == 0:
            return -1
        mapped = self.mapped()

        def offset_at(entry: int) -> int:
            offset: int = _unpack_offset(mapped, entry << 3)[0]
            return offset

        first_warm = entries - _WARM_ENTRIES
        if first_warm < 0:
            first_warm = 0
        if first_warm and offset_at(first_warm) > relative_offset:
            return bisect_right(range(first_warm), relative_offset, key=offset_at) - 1
        return bisect_right(range(entries), relative_offset, first_warm, key=offset_at) - 1

    def entry(self, number: int) -> OffsetPosition:
        """Entry ``number``, counted from 0. Raises CorruptIndex for an impossible entry."""
        offset, position = _unpack_entry(self.mapped(), number << 3)
        return self._sound(offset, position)

    def last_entry(self) -> OffsetPosition:
        """The last entry, read without mmap; there must be one. Raises CorruptIndex."""
        offset, position = ENTRY.unpack(self.last_entry_bytes())
        return self._sound(offset, position)

    def _sound(self, offset: int, position: int) -> OffsetPosition:
        if offset < 0 or position <= 0:
            # The first batch of a segment never gets an entry, so zeros are no entry.
            raise CorruptIndex(f"{self.path} has an entry for relative offset {offset} at position {position}")
        return OffsetPosition(self.base_offset + offset, position)

    def first_entry_from_position(self, position: int) -> OffsetPosition | None:
        """The first entry whose batch begins at or behind ``position``. Raises CorruptIndex."""
        entries = self.searchable()
        if entries == 0:
            return None
        mapped = self.mapped()

        def position_at(entry: int) -> int:
            found: int = _unpack_entry(mapped, entry << 3)[1]
            return found

        number = bisect_right(range(entries), position - 1, key=position_at)
        return self.entry(number) if number < entries else None

    def cut_from(self, offset: int) -> None:
        """Forget the entries at and above ``offset``."""
        self.cut(self._search(offset - self.base_offset - 1) + 1)
