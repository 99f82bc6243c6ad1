"""The producer snapshots of one log: which there are, taking one, loading the newest that is whole.

A snapshot named 123 holds the state after all batches below offset 123. Those are kept whose offset is the base of a
segment, so that any of them can be recovered alone, and the newest. The format is drawn in `storage.producer_state`.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping

from storage.errors import CorruptSnapshot
from storage.file_names import DELETED_SUFFIX, SNAPSHOT_SUFFIX, file_name
from storage.files import FileSystem
from storage.producer_state import ProducerEntry, decode_snapshot, encode_snapshot


class ProducerSnapshots:
    """The `.snapshot` files in a log's directory, by offset."""

    __slots__ = ("_directory", "_files", "_offsets", "_unflushed", "damaged")

    def __init__(self, files: FileSystem, directory: str, offsets: Iterable[int] = ()) -> None:
        self._files = files
        self._directory = directory
        self._offsets = sorted(offsets)
        self._unflushed: list[int] = []
        self.damaged: list[str] = []
        """What `load_latest` has removed, and why."""

    @property
    def offsets(self) -> tuple[int, ...]:
        """The offsets that there is a snapshot for, rising."""
        return tuple(self._offsets)

    @property
    def latest(self) -> int:
        """The offset of the newest snapshot; -1 if there is none."""
        return self._offsets[-1] if self._offsets else -1

    def path(self, offset: int) -> str:
        """The path of a snapshot."""
        return f"{self._directory}/{file_name(offset, SNAPSHOT_SUFFIX)}"

    def take(self, offset: int, entries: Mapping[int, ProducerEntry]) -> None:
        """Save the state after all batches below ``offset``, unless there is one for it or a later offset.

        There is none for offset 0, below which nothing is. It reaches the disk with the log's next flush.
        """
        if offset > max(self.latest, 0):
            self._files.replace_atomically(self.path(offset), encode_snapshot(entries), fsync=False)
            self._offsets.append(offset)
            self._unflushed.append(offset)

    @property
    def are_flushed(self) -> bool:
        """Whether all of them are on disk, or will be once the flushes under way are done."""
        return not self._unflushed

    def take_unflushed(self) -> list[str]:
        """The paths of those that a flush is to sync."""
        taken, self._unflushed = self._unflushed, []
        return [self.path(offset) for offset in taken]

    def load_latest(self, first_offset: int, end_offset: int) -> tuple[int, list[ProducerEntry]] | None:
        """The newest whole snapshot from ``first_offset`` to ``end_offset``; damaged ones are removed."""
        for offset in reversed(self.offsets):
            if first_offset <= offset <= end_offset:
                path = self.path(offset)
                try:
                    return offset, decode_snapshot(self._files.read_file(path), path)
                except (CorruptSnapshot, FileNotFoundError) as error:
                    self.damaged.append(str(error))
                    self.remove(offset)
        return None

    def remove(self, offset: int) -> None:
        """Remove a snapshot at once, if there is one."""
        number = bisect_left(self._offsets, offset)
        if number < len(self._offsets) and self._offsets[number] == offset:
            del self._offsets[number]
            self._files.remove(self.path(offset))

    def remove_strays(self, segment_bases: Collection[int]) -> None:
        """Remove those that belong to no segment, but keep the newest of all if it lies above all segments' bases."""
        for offset in self.offsets:
            if offset not in segment_bases and not (offset == self.latest and offset > max(segment_bases)):
                self.remove(offset)

    def remove_above(self, offset: int) -> None:
        """Remove those above ``offset``: the log ends there now."""
        for above in self.offsets[bisect_right(self._offsets, offset) :]:
            self.remove(above)

    def rename_as_removed(self, offset: int) -> list[str]:
        """Take the snapshot at ``offset`` out of use with its segment; its new path, if there is one."""
        if offset not in self._offsets:
            return []
        self._offsets.remove(offset)
        path = self.path(offset)
        self._files.rename(path, path + DELETED_SUFFIX)
        return [path + DELETED_SUFFIX]
