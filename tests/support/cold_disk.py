"""A file system whose page cache is emptied by the test, and whose disk answers when the test lets it."""

import os
import threading
from collections.abc import Callable
from typing import Final

from storage.files import Buffer, File, FileSystem

PAGE: Final = 4096
STEP: Final = 128 * 1024
"""How many bytes the system reads at once."""


class ColdDisk(FileSystem):
    """A disk with logs, and what the page cache has of them."""

    def __init__(self) -> None:
        self.gives = threading.Event()
        """While this is not set, reads from the disk wait."""
        self.gives.set()
        self.is_asked = threading.Event()
        self.askers: set[str] = set()
        """The names of the threads that have waited for the disk."""
        self.is_slow = False
        """Whether read-ahead (`posix_fadvise`) has not brought the bytes yet when they are read."""
        self.error: Callable[[], Exception] | None = None
        """Makes the error that a read from the disk raises."""
        self._cached: set[tuple[str, int]] | None = None
        """The pages in the page cache; None: all of them."""

    def forget(self) -> None:
        """Empty the page cache. Reads fill it again."""
        self._cached = set()

    def has(self, path: str, size: int, position: int) -> bool:
        """Whether all of these bytes are in the page cache."""
        return self._cached is None or all((path, page) in self._cached for page in _pages(size, position))

    def ask(self, path: str, size: int, position: int) -> None:
        """Read these bytes from the disk into the page cache."""
        self.is_asked.set()
        self.askers.add(threading.current_thread().name)
        assert self.gives.wait(30), "the test has forgotten the disk"
        if self.error is not None:
            raise self.error()
        self.keep(path, size, position)

    def keep(self, path: str, size: int, position: int) -> None:
        """Put these bytes into the page cache."""
        if self._cached is not None:
            self._cached |= {(path, page) for page in _pages(size, position)}

    def _file(self, path: str, fd: int) -> File:
        return ColdFile(path, fd, self)


class ColdFile(File):
    """A file on a `ColdDisk`."""

    __slots__ = ("disk",)

    def __init__(self, path: str, fd: int, disk: ColdDisk) -> None:
        super().__init__(path, fd)
        self.disk = disk

    def pread(self, size: int, position: int) -> bytes:
        if not self.disk.has(self.path, size, position):
            self.disk.ask(self.path, max(size, STEP), position)
        return super().pread(size, position)

    def pread_in_memory(self, size: int, position: int) -> bytes | None:
        if position + size > os.fstat(self.fileno()).st_size:
            return None
        if not self.disk.has(self.path, size, position):
            # Who looks in vain has set the system reading.
            self.disk.keep(self.path, size, position)
            return None
        return self.pread(size, position)

    def pwrite(self, data: Buffer, position: int) -> None:
        self.disk.keep(self.path, len(data), position)
        super().pwrite(data, position)

    def will_need(self, size: int, position: int) -> None:
        if not self.disk.is_slow:
            self.disk.ask(self.path, size, position)


def _pages(size: int, position: int) -> range:
    return range(position // PAGE, -(-(position + size) // PAGE))
