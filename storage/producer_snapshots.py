"""The producer snapshots of one log: listing and taking snapshots, and loading the newest whole one.

A snapshot named 123 holds the state after all batches below offset 123. Kept are the snapshots at the base offset of a
segment, so that each segment can be recovered alone, and the newest snapshot. Their format: `storage.producer_state`.
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
        """Snapshots that `load_latest` has removed, and why."""

    @property
    def offsets(self) -> tuple[int, ...]:
        """The offsets of the snapshots, rising."""
        return tuple(self._offsets)

    @property
    def latest(self) -> int:
        """The offset of the newest snapshot; -1 if there is none."""
        return self._offsets[-1] if self._offsets else -1

    def path(self, offset: int) -> str:
        """The path of a snapshot."""
        return f"{self._directory}/{file_name(offset, SNAPSHOT_SUFFIX)}"

    def moved_to(self, directory: str) -> None:
        """Note that the log's directory was renamed."""
        self._directory = directory

    def take(self, offset: int, entries: Mapping[int, ProducerEntry]) -> None:
        """Save the state after all batches below ``offset``, unless there is one for it or a later offset.

        No snapshot is taken at offset 0, below which there is nothing. It reaches the disk with the log's next flush.
        """
        if offset > max(self.latest, 0):
            self._files.replace_atomically(self.path(offset), encode_snapshot(entries), fsync=False)
            self._offsets.append(offset)
            self._unflushed.append(offset)

    @property
    def are_flushed(self) -> bool:
        """Whether all snapshots are on disk, or will be once the flushes under way are done."""
        return not self._unflushed

    def take_unflushed(self) -> list[str]:
        """The paths of the snapshots that a flush must sync; each is returned once."""
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
        """Remove snapshots that belong to no segment, but keep the newest if it lies above all segments' bases."""
        for offset in self.offsets:
            if offset not in segment_bases and not (offset == self.latest and offset > max(segment_bases)):
                self.remove(offset)

    def remove_above(self, offset: int) -> None:
        """Remove snapshots above ``offset``: the log ends there now."""
        for above in self.offsets[bisect_right(self._offsets, offset) :]:
            self.remove(above)

    def rename_as_removed(self, offset: int) -> list[str]:
        """Rename the snapshot at ``offset``, which is removed with its segment; its new path, if there was one."""
        if offset not in self._offsets:
            return []
        self._offsets.remove(offset)
        path = self.path(offset)
        self._files.rename(path, path + DELETED_SUFFIX)
        return [path + DELETED_SUFFIX]
