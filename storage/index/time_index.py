"""`<base offset>.timeindex`: up to which offset of a segment all timestamps are below a given timestamp.

    i64 timestamp          the largest so far, in milliseconds
    i32 relative offset    of the last record of the batch that brought it, relative to the segment's base offset

Every record of the segment at or before the offset has that timestamp or a smaller one. Timestamps rise, offsets do not
fall. An entry is written with an offset-index entry if the largest timestamp has risen since the last, and once more
when the segment is closed for appending; one place is kept for that one.
"""

from bisect import bisect_right
from struct import Struct
from typing import ClassVar, Final, NamedTuple

from storage.files import FileSystem
from storage.index.index_file import WARM_BYTES, IndexFile
from storage.open_files import OpenFiles

ENTRY: Final = Struct(">qi")
_TIMESTAMP: Final = Struct(">q")
_WARM_ENTRIES: Final = WARM_BYTES // ENTRY.size

_unpack_timestamp = _TIMESTAMP.unpack_from
_unpack_entry = ENTRY.unpack_from


class TimestampOffset(NamedTuple):
    """An entry: a timestamp, and the absolute offset of the last record of the batch that brought it."""

    timestamp: int
    offset: int


class TimeIndex(IndexFile):
    """The time index of one segment."""

    __slots__ = ("_last",)

    ENTRY_SIZE: ClassVar[int] = ENTRY.size

    def __init__(
        self, files: FileSystem, open_files: OpenFiles, path: str, *, base_offset: int, max_bytes: int, file_bytes: int
    ) -> None:
        super().__init__(files, open_files, path, base_offset=base_offset, max_bytes=max_bytes, file_bytes=file_bytes)
        self._last: TimestampOffset | None = None

    @property
    def is_full(self) -> bool:
        """Whether the index takes no further entry but the last one, written when the segment is closed."""
        return self.entries >= self.max_entries - 1

    @property
    def last(self) -> TimestampOffset:
        """The last entry; (-1, base offset) if there is none."""
        last = self._last
        if last is None:
            if self.entries == 0:
                last = TimestampOffset(-1, self.base_offset)
            else:
                timestamp, offset = ENTRY.unpack(self.last_entry_bytes())
                last = TimestampOffset(timestamp, self.base_offset + offset)
            self._last = last
        return last

    def append(self, timestamp: int, offset: int, *, is_last: bool = False) -> None:
        """Note that ``timestamp`` is the largest up to ``offset``, unless it is known or the index is full.

        ``is_last``: the segment is closed for appending, so the place that was kept for this may be used.
        """
        if timestamp <= self.last.timestamp or (self.is_full and not is_last):
            return
        self.append_entry(ENTRY.pack(timestamp, offset - self.base_offset))
        self._last = TimestampOffset(timestamp, offset)

    def append_all(self, entries: bytes | bytearray, most_entries: int) -> None:
        """See `IndexFile.append_all`."""
        super().append_all(entries, most_entries)
        self._last = None

    def lookup(self, timestamp: int) -> TimestampOffset:
        """The last entry with a timestamp at or below ``timestamp``; (-1, base offset) if there is none."""
        entries = self.searchable()
        if entries == 0:
            return TimestampOffset(-1, self.base_offset)
        mapped = self.mapped()

        def timestamp_at(entry: int) -> int:
            found: int = _unpack_timestamp(mapped, entry * 12)[0]
            return found

        first_warm = entries - _WARM_ENTRIES
        if first_warm < 0:
            first_warm = 0
        if first_warm and timestamp_at(first_warm) > timestamp:
            number = bisect_right(range(first_warm), timestamp, key=timestamp_at) - 1
        else:
            number = bisect_right(range(entries), timestamp, first_warm, key=timestamp_at) - 1
        if number < 0:
            return TimestampOffset(-1, self.base_offset)
        return self.entry(number)

    def entry(self, number: int) -> TimestampOffset:
        """Entry ``number``, counted from 0."""
        timestamp, offset = _unpack_entry(self.mapped(), number * 12)
        return TimestampOffset(timestamp, self.base_offset + offset)

    def cut(self, entries: int) -> None:
        """Keep the first ``entries`` entries. The file keeps its length."""
        super().cut(entries)
        self._last = None

    def cut_from(self, offset: int) -> None:
        """Forget the entries at and above ``offset``."""
        entries = self.searchable()
        while entries > 0 and self.entry(entries - 1).offset >= offset:
            entries -= 1
        self.cut(entries)
