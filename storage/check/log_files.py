"""The files of one partition's directory by their kind, and the end offset of its log."""

from dataclasses import dataclass
from typing import Final

from storage.batch.walk import BatchWalk
from storage.check.index_entries import offset_entries
from storage.file_names import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX, file_name, offset_in
from storage.files import FileSystem

UNFINISHED_SUFFIXES: Final = (".cleaned", ".swap")
"""Suffixes of files that the cleaner has not renamed to their final names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFiles:
    """The listing of a partition's directory."""

    directory: str
    sizes: dict[str, int]
    """Bytes of each file, by its name."""

    @classmethod
    def found_in(cls, files: FileSystem, directory: str) -> "LogFiles":
        """Raises FileNotFoundError, LogDirFailed."""
        entries = files.list_directory(directory)
        return cls(directory=directory, sizes={entry.name: entry.size for entry in entries if not entry.is_directory})

    @property
    def segment_bases(self) -> list[int]:
        """The base offsets of the segments, rising."""
        return self._offsets(LOG_SUFFIX)

    @property
    def snapshots(self) -> list[int]:
        """The offsets of the producer snapshots, rising."""
        return self._offsets(SNAPSHOT_SUFFIX)

    @property
    def orphans(self) -> list[str]:
        """Indexes without a segment."""
        bases = set(self.segment_bases)
        return sorted(
            file_name(base, suffix)
            for suffix in SEGMENT_SUFFIXES
            for base in self._offsets(suffix)
            if base not in bases
        )

    @property
    def log_bytes(self) -> int:
        """Bytes of all segments, without indexes."""
        return sum(self.sizes[file_name(base, LOG_SUFFIX)] for base in self.segment_bases)

    def path(self, offset: int, suffix: str) -> str:
        """The path of one of the files."""
        return f"{self.directory}/{file_name(offset, suffix)}"

    def _offsets(self, suffix: str) -> list[int]:
        return sorted(offset for name in self.sizes if (offset := offset_in(name, suffix)) is not None)


def log_end_offset(files: FileSystem, log: LogFiles) -> int:
    """The offset behind the last whole batch; CRCs are not looked at. Reads on from the last usable index entry."""
    base_offset = log.segment_bases[-1]
    file = files.open_read(log.path(base_offset, LOG_SUFFIX))
    size = file.size
    position, last_offset = 0, -1
    index_path = log.path(base_offset, OFFSET_INDEX_SUFFIX)
    if files.exists(index_path):
        for entry in offset_entries(files.open_read(index_path), base_offset):
            if not position < entry.position < size:
                break
            last_offset, position = entry
    batches = iter(BatchWalk(file.pread, position, size))
    first = next(batches, None)
    if position and (first is None or first.header.last_offset != last_offset):
        batches = iter(BatchWalk(file.pread, 0, size))
        first = next(batches, None)
    if first is None:
        return base_offset
    end_offset = first.header.next_offset
    for batch in batches:
        end_offset = batch.header.next_offset
    return end_offset
