"""The file of a sparse index: entries of one size, preallocated, appended to, and searched through mmap.

    entry 0 | entry 1 | ... | entry n-1 | zeros up to the preallocated length (active segment only)

How many entries are valid is known in memory, not in the file: Apache Kafka takes a trimmed file's length for it and
rebuilds the indexes of segments that may not be trimmed, and so do we. Entries are written with `pwrite`: storing
them through the map would kill the process when the disk is full (a page fault in a hole has no errno to give). The
map is for searching only, and is dropped before its file is cut.

The last few entries wait in memory for others to be written with them, until the first search: a log that is only
appended to has one system call for dozens of entries. A crash may take them, with the index that is then made anew.
A reader of the files beside a running broker finds an index that ends a little before its log does.
"""

from contextlib import suppress
from typing import ClassVar, Final

from storage.errors import CorruptIndex, DiskFull, StorageError, TooManyOpenFiles
from storage.files import File, FileMap, FileSystem
from storage.open_files import OpenFiles

WARM_BYTES: Final = 8192
"""Searches begin in the last 8 KiB: consumers read near the end, so these pages stay in memory (KAFKA-6432)."""

_MOST_UNWRITTEN_BYTES: Final = 512


class IndexFile:
    """A file of entries of one size. It is opened when used, and closed when other files have been used since."""

    __slots__ = (
        "__weakref__",
        "_file",
        "_files",
        "_map",
        "_mapped",
        "_open_files",
        "_unwritten",
        "_written",
        "base_offset",
        "entries",
        "is_allocated",
        "max_entries",
        "path",
        "problem",
    )  # fmt: skip

    ENTRY_SIZE: ClassVar[int]

    def __init__(
        self, files: FileSystem, open_files: OpenFiles, path: str, *, base_offset: int, max_bytes: int, file_bytes: int
    ) -> None:
        self._files = files
        self._open_files = open_files
        self.path = path
        self.base_offset = base_offset
        """The segment's base offset, which the entries' offsets are relative to."""
        self.max_entries = max_bytes // self.ENTRY_SIZE
        self.problem = ""
        """The fault of the file as it was found, as the end of a sentence; empty without a fault."""
        if file_bytes < 0:
            self.problem = "is missing"
        elif file_bytes % self.ENTRY_SIZE:
            self.problem = f"has {file_bytes} bytes, no multiple of {self.ENTRY_SIZE}"
        self.entries = max(file_bytes, 0) // self.ENTRY_SIZE
        """How many entries are valid."""
        self._written = self.entries
        """How many valid entries are in the file; the others wait in `_unwritten`."""
        self._unwritten = b""
        self.is_allocated = False
        """Whether the file has its full length, with zeros behind the entries."""
        self._file: File | None = None
        self._map: FileMap | bytes | None = None
        """The entries as they are searched: mapped, or read where the file system maps no files."""
        self._mapped = 0

    def create(self) -> None:
        """Make the file, at its full length."""
        self._file = self._files.open_log(self.path, create=True)
        self._open_files.used(self)
        self._allocate(self._file)

    def _allocate(self, file: File) -> None:
        file.truncate(max(self.max_entries, self.entries) * self.ENTRY_SIZE)
        self.is_allocated = True

    def file(self) -> File:
        """The open file, for callers that hold it open."""
        file = self._file
        if file is None:
            try:
                file = self._files.open_log(self.path)
            except FileNotFoundError:
                file = self._files.open_log(self.path, create=True)
            self._file = file
        self._open_files.used(self)
        return file

    def let_go(self) -> None:
        """Drop the open file and its mmap; both are opened again when needed."""
        self._file = None
        self._map = None
        self._mapped = 0

    def close(self) -> None:
        """Drop the file for good."""
        self.let_go()
        self._open_files.forget(self)

    def searchable(self) -> int:
        """How many entries can be searched: all but the last few where these find no disk space."""
        if self._unwritten:
            with suppress(DiskFull, TooManyOpenFiles):
                self.write_out()
        return self._written

    def mapped(self) -> FileMap | bytes:
        """The mmap of the `searchable` entries, of which there must be one at least. Valid until the file is cut.

        Raises CorruptIndex where the file has fewer entries than it had.
        """
        if self._map is None or self._mapped < self._written:
            file = self.file()
            mapped: FileMap | bytes | None = file.map_read_only()
            if mapped is None:
                mapped = file.pread(self._written * self.ENTRY_SIZE, 0)
            if len(mapped) < self._written * self.ENTRY_SIZE:
                raise self._lost(len(mapped), self._written)
            self._map = mapped
            self._mapped = len(mapped) // self.ENTRY_SIZE
        else:
            self._open_files.used(self)
            mapped = self._map
        return mapped

    def append_entry(self, entry: bytes) -> None:
        """Add an entry's bytes. Raises DiskFull, LogDirFailed; then the entry is not added."""
        self._unwritten += entry
        self.entries += 1
        if len(self._unwritten) >= _MOST_UNWRITTEN_BYTES:
            try:
                self.write_out()
            except StorageError:
                self.cut(self.entries - 1)
                raise

    def write_out(self) -> None:
        """Write the entries that wait in memory. Raises DiskFull, LogDirFailed; then they go on waiting."""
        if self._unwritten:
            file = self.file()
            if not self.is_allocated:
                self._allocate(file)
            file.pwrite(self._unwritten, self._written * self.ENTRY_SIZE)
            self._written = self.entries
            self._unwritten = b""

    def append_all(self, entries: bytes | bytearray, most_entries: int) -> None:
        """Add the bytes of many entries, up to ``most_entries`` in all, to a file that is not preallocated.

        Raises DiskFull, LogDirFailed; then no entry is added.
        """
        self.write_out()
        count = min(len(entries) // self.ENTRY_SIZE, most_entries - self.entries)
        if count > 0:
            self.file().pwrite(entries[: count * self.ENTRY_SIZE], self.entries * self.ENTRY_SIZE)
            self.entries += count
            self._written = self.entries

    def cut(self, entries: int) -> None:
        """Keep the first ``entries`` entries. The file keeps its length."""
        if isinstance(self._map, bytes):
            self._map = None  # what is appended next would not be in it
            self._mapped = 0
        self.entries = min(self.entries, entries)
        self._written = min(self._written, entries)
        self._unwritten = self._unwritten[: (self.entries - self._written) * self.ENTRY_SIZE]

    def trim(self) -> None:
        """Cut the preallocated rest: the file is as long as its valid entries. Raises DiskFull, LogDirFailed."""
        self.write_out()
        self._map = None
        self._mapped = 0
        self.file().truncate(self.entries * self.ENTRY_SIZE)
        self.is_allocated = False

    def reset(self) -> None:
        """Forget all entries; the file is empty."""
        self.cut(0)
        self.trim()

    def last_entry_bytes(self) -> bytes:
        """The last valid entry; there must be one. Raises CorruptIndex where the file has fewer entries than it had."""
        if self._unwritten:
            return self._unwritten[-self.ENTRY_SIZE :]
        file = self.file()
        last = file.pread(self.ENTRY_SIZE, (self.entries - 1) * self.ENTRY_SIZE)
        if len(last) < self.ENTRY_SIZE:
            raise self._lost(file.size, self.entries)
        return last

    def _lost(self, found_bytes: int, entries: int) -> CorruptIndex:
        return CorruptIndex(
            f"{self.path} has {found_bytes} bytes, expected {entries * self.ENTRY_SIZE}: another process has cut it"
        )
