"""The files of one segment: made, opened when they are used, renamed and removed.

    00000000000000000123.log          batches, one behind the other; 123 is the offset of the first
    00000000000000000123.index        offsets to positions        storage.index.offset_index
    00000000000000000123.timeindex    timestamps to offsets       storage.index.time_index
    00000000000000000123.txnindex     aborted transactions        storage.index.transaction_index

A file is closed when so many others have been used since that the process would have too many open.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from storage.errors import FilesRemoved
from storage.file_names import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_name,
)
from storage.files import File, FileSystem
from storage.index.offset_index import OffsetIndex
from storage.index.time_index import TimeIndex
from storage.index.transaction_index import TransactionIndex
from storage.open_files import OpenFiles


class FileSizes(NamedTuple):
    """The sizes of a segment's files in the directory listing, in bytes; -1 for a missing file."""

    log: int
    offset_index: int
    time_index: int
    transaction_index: int


NO_FILES: Final = FileSizes(0, 0, 0, -1)


class SegmentFiles:
    """A segment's file of batches, and its indexes."""

    __slots__ = (
        "_file", "_files", "_open_files", "_suffix", "base_offset", "directory", "log_path", "offset_index",
        "on_repair", "time_index", "transaction_index",
    )  # fmt: skip

    def __init__(
        self,
        files: FileSystem,
        open_files: OpenFiles,
        directory: str,
        base_offset: int,
        *,
        max_index_bytes: int,
        found: FileSizes,
        on_repair: Callable[[str], None],
        suffix: str = "",
    ) -> None:
        """``suffix`` follows all names: `.cleaned` or `.swap` for a copy that the cleaner makes."""
        self._files = files
        self._open_files = open_files
        self.directory = directory
        self._suffix = suffix
        self._file: File | None = None
        self.on_repair = on_repair
        """Called with a sentence that says what was found damaged and how it was repaired."""
        self.base_offset = base_offset
        self.log_path = self.path(LOG_SUFFIX)
        """The path of the file of batches."""
        self.offset_index = OffsetIndex(
            files, open_files, self.path(OFFSET_INDEX_SUFFIX), base_offset=base_offset,
            max_bytes=max_index_bytes, file_bytes=found.offset_index,
        )  # fmt: skip
        self.time_index = TimeIndex(
            files, open_files, self.path(TIME_INDEX_SUFFIX), base_offset=base_offset,
            max_bytes=max_index_bytes, file_bytes=found.time_index,
        )  # fmt: skip
        self.transaction_index = TransactionIndex(
            files, open_files, self.path(TRANSACTION_INDEX_SUFFIX), base_offset=base_offset,
            file_bytes=found.transaction_index,
        )  # fmt: skip

    def path(self, suffix: str) -> str:
        """The path of one of the segment's files."""
        return f"{self.directory}/{file_name(self.base_offset, suffix)}{self._suffix}"

    @property
    def modified_ms(self) -> int:
        """When the file of batches was last written to; wall clock, ms. Raises LogDirFailed, FilesRemoved."""
        try:
            return self._files.mtime_ms(self.log_path)
        except FileNotFoundError as error:
            raise FilesRemoved(f"{self.log_path} is gone: another process has removed it") from error

    def create(self, *, preallocated_bytes: int = 0) -> None:
        """Make the segment's files. Raises DiskFull, LogDirFailed, TooManyOpenFiles; then no file is left behind."""
        try:
            self._file = self._files.open_log(self.log_path, create=True)
            if preallocated_bytes:
                self._file.truncate(preallocated_bytes)
            self.offset_index.create()
            self.time_index.create()
        except Exception:
            self.discard()
            raise
        self._open_files.used(self)

    def log_file(self) -> File:
        """The open file of batches, for callers that hold it open."""
        file = self._file
        if file is None:
            try:
                self._file = file = self._files.open_log(self.log_path)
            except FileNotFoundError as error:
                raise FilesRemoved(f"{self.log_path} is gone: another process has removed it") from error
        self._open_files.used(self)
        return file

    def all_files(self) -> list[File]:
        """All files of the segment, open, in the order in which they must be synced."""
        opened = [self.log_file(), self.offset_index.file(), self.time_index.file()]
        if (transactions := self.transaction_index.file()) is not None:
            opened.append(transactions)
        return opened

    def written_ms(self) -> int:
        """When the file of batches was last written to, in milliseconds. Raises FileNotFoundError."""
        return self._files.mtime_ms(self.log_path)

    def let_go(self) -> None:
        """Drop the open file of batches; writes and answers under way hold it themselves."""
        self._file = None

    def close(self) -> None:
        """Drop all files of the segment for good."""
        self._file = None
        self._open_files.forget(self)
        self.offset_index.close()
        self.time_index.close()
        self.transaction_index.close()

    def discard(self) -> None:
        """Close and remove all files of the segment, at once."""
        self.close()
        for suffix in SEGMENT_SUFFIXES:
            self._files.remove(self.path(suffix))

    def rename(self, suffix: str) -> None:
        """Give the files of a copy another suffix. Open files stay open. Raises LogDirFailed, FileNotFoundError.

        The file of batches is the last to become `.swap` and the first to lose the suffix: with it the others count,
        whatever their names are (see `storage.unfinished`).
        """
        kinds = [kind for kind in SEGMENT_SUFFIXES if kind != TRANSACTION_INDEX_SUFFIX or self.transaction_index.size]
        if suffix:
            kinds.reverse()
        before = {kind: self.path(kind) for kind in kinds}
        self._suffix = suffix
        for kind, path in before.items():
            self._files.rename(path, self.path(kind))
        self._names_changed()

    def moved_to(self, directory: str) -> None:
        """Note that the log's directory was renamed. Open files stay open."""
        self.directory = directory
        self._names_changed()

    def _names_changed(self) -> None:
        self.log_path = self.path(LOG_SUFFIX)
        self.offset_index.path = self.path(OFFSET_INDEX_SUFFIX)
        self.time_index.path = self.path(TIME_INDEX_SUFFIX)
        self.transaction_index.path = self.path(TRANSACTION_INDEX_SUFFIX)

    def rename_as_removed(self) -> list[str]:
        """Rename the files to `<name>.deleted`; returns the new paths. Open regions of them stay readable."""
        self.close()
        removed = []
        for suffix in SEGMENT_SUFFIXES:
            path = self.path(suffix)
            try:
                self._files.rename(path, path + DELETED_SUFFIX)
            except FileNotFoundError:
                continue
            removed.append(path + DELETED_SUFFIX)
        return removed
