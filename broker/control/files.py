"""TestFiles: files of a broker for tests. They are never flushed, and fail where a rule wants it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from storage.errors import DiskFull, LogDirFailed
from storage.files import Buffer, File, FileSystem

DISK_FULL = "full"
FSYNC_ERROR = "fsync"

GoesWrong = Callable[[str, str], bool]
"""Whether a file of a topic's partition, named as its directory is, fails in one of the two ways."""


def all_is_well(partition: str, how: str) -> bool:
    """The `GoesWrong` of files that work."""
    return False


class _TestFile(File):
    """A file that is never flushed. What was written is in the page cache, and survives the process."""

    def __init__(self, path: str, fd: int, goes_wrong: GoesWrong) -> None:
        super().__init__(path, fd)
        self._goes_wrong = goes_wrong

    def pwrite(self, data: Buffer, position: int) -> None:
        self._check_space()
        super().pwrite(data, position)

    def append_vector(self, buffers: Sequence[Buffer], position: int) -> int:
        self._check_space()
        return super().append_vector(buffers, position)

    def fsync(self) -> None:
        """Fail or do nothing: flushing takes a disk up to 40 ms, and a start of a broker does it nine times."""
        if self._goes_wrong(self._partition, FSYNC_ERROR):
            raise LogDirFailed(f"flushing {self.path}: Input/output error (a fault rule wants it so)")

    def _check_space(self) -> None:
        if self._goes_wrong(self._partition, DISK_FULL):
            raise DiskFull(f"writing {self.path}: No space left on device (a fault rule wants it so)")

    @property
    def _partition(self) -> str:
        return os.path.basename(os.path.dirname(self.path))


class TestFiles(FileSystem):
    """The machine's own file system without its flushes."""

    __test__ = False

    def __init__(self, goes_wrong: GoesWrong) -> None:
        self._goes_wrong = goes_wrong

    def _file(self, path: str, fd: int) -> File:
        return _TestFile(path, fd, self._goes_wrong)

    def fsync_directory(self, path: str) -> None:
        """Do nothing; see `_TestFile.fsync`."""
