"""The whole batches of a range, front to back: found by their headers, their CRCs checked, damage reported.

A batch's position is trusted if its header fits to the batches before and behind it, because offsets and lengths are
outside the CRC. Behind a batch that cannot be trusted, reading goes on (if damage is skipped) at the next whole batch
or at the next batch in the offset index, whichever comes first.

Headers are looked at without a `BatchWalk` (`storage.batch.walk`), whose objects would cost twice the time (bench:
decode); a test holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from pipeline.errors import Damage, RecordsGone
from pipeline.reading.ranges import OffsetRange
from pipeline.reading.segment_files import SegmentFile, list_segments, segment_of
from storage.batch.checksum import crc32c
from storage.batch.record_batch import (
    ATTRIBUTES_POSITION,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    header_struct,
    read_header,
)
from storage.batch.walk import find_batch
from storage.checkpoints import PARTITION_METADATA, format_id, read_topic_id
from storage.errors import CorruptCheckpoint
from storage.files import FileSystem

CHUNK_BYTES: Final = 4 << 20
MOST_BATCH_BYTES: Final = 1 << 28
"""The largest batch that is read (256 MiB), compressed and decompressed."""

_LEAST_LENGTH: Final = HEADER_SIZE - LOG_OVERHEAD
_COPIED_BYTES: Final = 4096
# What is looked at in each header (bench: decode).
_unpack = header_struct("base_offset", "batch_length", "magic", "crc", "last_offset_delta").unpack_from
_FILES: Final = FileSystem()


class Stretch(NamedTuple):
    """Batches that follow one another in a segment file, possibly with bytes between them."""

    segment: SegmentFile
    position: int
    """The position in the file at which `data` begins."""
    data: bytes
    begins: list[int]
    """The positions in `data` of the batches, which are whole and have the right CRC."""


class Scan:
    """The scan of a range for its batches."""

    def __init__(
        self, wanted: OffsetRange, on_damage: Callable[[Damage], None], *, chunk_bytes: int = CHUNK_BYTES
    ) -> None:
        """`on_damage` is called with each damage. Unless it raises, the scan goes on behind the damage."""
        self._range = wanted
        self._on_damage = on_damage
        self._chunk_bytes = max(chunk_bytes, HEADER_SIZE)
        self.next_offset = wanted.from_offset
        """Each batch of the range below this offset has been returned, or does not exist."""

    def stretches(self) -> Iterator[Stretch]:
        """All batches that have offsets of the range. Raises RecordsGone."""
        until = self._range.until_offset
        previous: tuple[str, int] | None = None
        while self.next_offset < until:
            segment = self._segment_at(self.next_offset)
            start = self.next_offset
            yield from self._in_segment(segment)
            if self.next_offset >= until:
                return
            if segment.end_offset is not None:
                # Compaction may have left nothing at its end.
                self.next_offset = max(self.next_offset, segment.end_offset)
            elif previous == (segment.path, start) and self.next_offset == start:
                raise RecordsGone(
                    f"{self._name} ends at offset {start}; there were to be records up to {until}: "
                    "they have been cut off, or the topic was made anew"
                )
            # Without a next one it was the last when it was found: by now it may have been rolled.
            previous = (segment.path, self.next_offset)

    @property
    def _name(self) -> str:
        return f"{self._range.topic}-{self._range.partition}"

    def _segment_at(self, offset: int) -> SegmentFile:
        """Open the segment that holds an offset. Raises RecordsGone."""
        while True:
            self._check_topic()
            segments = list_segments(self._range.directory)
            number = segment_of(segments, offset)
            if number < 0:
                begins = f"begins at offset {segments[0].base_offset}" if segments else "is not there"
                raise RecordsGone(
                    f"{self._name} {begins} in {self._range.directory}; "
                    f"records from offset {offset} to {self._range.until_offset} were to be read and have been deleted"
                )
            segment = segments[number]
            try:
                segment.file()
            except FileNotFoundError:
                # Removed or replaced since the listing; the next one shows by what.
                continue
            # One of the same name may have come in its place, with what was in the segments behind it. These have gone
            # before that, so while they are there it has not.
            again = list_segments(self._range.directory)
            if segment.is_in(again):
                return segment

    def _check_topic(self) -> None:
        wanted = self._range.topic_id
        if wanted is None:
            return
        try:
            found = read_topic_id(_FILES, f"{self._range.directory}/{PARTITION_METADATA}")
        except CorruptCheckpoint:
            return
        if found is not None and format_id(found) != wanted:
            raise RecordsGone(
                f"{self._range.directory} belongs to the topic id {format_id(found)} now, and records of {wanted} were "
                f"to be read: {self._range.topic} has been deleted and made anew"
            )

    def _in_segment(self, segment: SegmentFile) -> Iterator[Stretch]:
        until = self._range.until_offset
        file, most_offset = segment.file(), segment.most_offset
        position, follows = segment.place_near(self.next_offset)
        chunk_bytes = self._chunk_bytes
        first = self.next_offset
        while first < until:
            chunk = file.pread(chunk_bytes, position)
            view = memoryview(chunk)
            left = len(chunk)
            if not chunk:
                break
            begins: list[int] = []
            at = 0
            problem: tuple[str, str] | None = None
            while left - at >= HEADER_SIZE:
                base_offset, length, magic, crc, delta = _unpack(chunk, at)
                end = at + length + LOG_OVERHEAD
                last_offset = base_offset + delta
                if magic != MAGIC or length < _LEAST_LENGTH or delta < 0:
                    problem = _no_header(read_header(chunk, at))
                    break
                if not follows <= base_offset <= last_offset <= most_offset or (
                    base_offset != follows and not _may_leave_a_gap(segment, position + at, chunk, at)
                ):
                    problem = (
                        f"offsets {base_offset} to {last_offset} in the header of a batch",
                        f"some from {follows} on, and a batch with later ones behind it",
                    )
                    break
                if last_offset < first:
                    if not _leads_on(segment, position + at, chunk, at):
                        problem = "a batch with none behind it", "one with later offsets"
                        break
                    follows = last_offset + 1
                    at = end
                    continue
                if base_offset >= until:
                    follows = first = until
                    break
                if length > MOST_BATCH_BYTES:
                    problem = f"a batch of {length + LOG_OVERHEAD} bytes", f"at most {MOST_BATCH_BYTES} bytes"
                    break
                if end > left:
                    break
                checked = at + ATTRIBUTES_POSITION
                found = crc32c(chunk[checked:end] if length < _COPIED_BYTES else view[checked:end])
                if found != crc:
                    problem = f"the CRC {found:08x} over the bytes of a batch", f"{crc:08x}, as its header says"
                    break
                begins.append(at)
                follows = first = last_offset + 1
                at = end
                if first >= until:
                    break
            if begins:
                self.next_offset = first
                yield Stretch(segment, position, chunk, begins)
            self.next_offset = first
            if first >= until:
                return
            position += at
            is_at_end = left < chunk_bytes
            chunk_bytes = self._chunk_bytes
            if problem is None:
                # Batches before the range are stepped over, also where the last of them ends behind the chunk.
                if at >= left:
                    continue
                if not is_at_end:
                    if left - at >= HEADER_SIZE:
                        chunk_bytes = max(chunk_bytes, end - at)
                    continue
                problem = f"{left - at} bytes of a batch at the end of the file", "a whole batch"
            behind = self._behind_damage(segment, position, follows)
            self._tell(segment, position, first, problem, behind)
            position, follows = behind
            first = self.next_offset = max(first, follows)

    def _behind_damage(self, segment: SegmentFile, position: int, follows: int) -> tuple[int, int]:
        """The position behind a damaged batch at which reading can go on: (position, first offset there)."""
        end_offset = segment.most_offset + 1 if segment.end_offset is not None else self._range.until_offset
        size = segment.file().size
        header = segment.header_at(position)
        if header is not None and follows <= header.base_offset and header.last_offset <= segment.most_offset:
            behind = position + header.size
            following = segment.header_at(behind)
            if following is not None and following.base_offset == header.next_offset:
                return behind, following.base_offset
            if behind == size:
                return size, end_offset
        entry = segment.entry_behind(position)
        found = find_batch(
            segment.file().pread, position + 1, size if entry is None else entry[0], size,
            next_offset=follows, most_offset=segment.most_offset,
        )  # fmt: skip
        if found is not None:
            return found[0], found[1].base_offset
        return entry if entry is not None else (size, end_offset)

    def _tell(
        self, segment: SegmentFile, position: int, offset: int, problem: tuple[str, str], behind: tuple[int, int]
    ) -> None:
        at, following = behind
        if following <= offset:
            return  # all of it lies before the range
        found, expected = problem
        until = min(following, self._range.until_offset)
        goes_on = f"; what can be read goes on at {at}" if following < self._range.until_offset else ""
        self._on_damage(
            Damage(segment.path, position, offset, f"{found} (offsets {offset} to {until - 1}{goes_on})", expected)
        )


def _no_header(header: BatchHeader) -> tuple[str, str]:
    if not any(header):
        return "zeros", "a record batch"
    if header.magic != MAGIC:
        return f"magic {header.magic}", f"a record batch of magic {MAGIC}"
    if header.last_offset_delta < 0:
        return f"a batch whose last offset delta is {header.last_offset_delta}", "0 or more"
    return f"a batch of {header.size} bytes", f"at least the {HEADER_SIZE} bytes of its header"


def _leads_on(segment: SegmentFile, position: int, chunk: bytes, at: int) -> bool:
    """Whether the batch at `at` in the chunk is followed by a batch with later offsets, or ends the file."""
    header = read_header(chunk, at)
    end = at + header.size
    if end + HEADER_SIZE <= len(chunk):
        following: BatchHeader | None = read_header(chunk, end)
    else:
        following = segment.header_at(position + header.size)
        if following is None:
            return position + header.size == segment.file().size
    return (
        following is not None
        and following.magic == MAGIC
        and header.last_offset < following.base_offset <= following.last_offset <= segment.most_offset
    )


def _may_leave_a_gap(segment: SegmentFile, position: int, chunk: bytes, at: int) -> bool:
    """Whether a gap before this batch can be trusted although offsets are outside the CRC. Compaction leaves gaps, but
    none before the very last batch, where no batch behind it would show a wrong offset."""
    is_last = segment.end_offset is None and position + read_header(chunk, at).size >= segment.file().size
    return not is_last and _leads_on(segment, position, chunk, at)
