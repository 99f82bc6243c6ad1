"""A file system that can be told to fail: tear a write, fill up, refuse to sync, lose its power.

It works on real files in a directory of the test's. What it remembers of each file is what a disk would have kept.
"""

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from storage.errors import LogDirFailed
from storage.files import Buffer, File, FileSystem, storage_error


@dataclass(slots=True, kw_only=True)
class Fault:
    """The next operation of one kind on a file whose name ends with ``suffix`` fails, after ``after`` that do not."""

    operation: str
    number: int
    suffix: str = ""
    after: int = 0
    bytes_done: int = 0
    """What a failing write gets onto the disk before it fails."""


@dataclass(slots=True)
class Read:
    """A read that happened."""

    name: str
    position: int
    size: int


@dataclass(slots=True)
class FaultyDisk:
    """What is to go wrong, and what has happened."""

    faults: list[Fault] = field(default_factory=list)
    bytes_left: int | None = None
    reads: list[Read] = field(default_factory=list)
    synced: list[str] = field(default_factory=list)
    durable: dict[int, bytes] = field(default_factory=dict)
    """By inode: what a power cut leaves of a file that has been written to since it was synced."""

    def check(self, operation: str, path: str) -> Fault | None:
        for fault in self.faults:
            if fault.operation == operation and path.endswith(fault.suffix):
                if fault.after:
                    fault.after -= 1
                    return None
                self.faults.remove(fault)
                return fault
        return None


class FaultyFile(File):
    """A file on a `FaultyDisk`."""

    __slots__ = ("disk",)

    def __init__(self, path: str, fd: int, disk: FaultyDisk) -> None:
        super().__init__(path, fd)
        self.disk = disk

    def _inode(self) -> int:
        return os.fstat(self.fileno()).st_ino

    def _about_to_change(self) -> None:
        inode = self._inode()
        if inode not in self.disk.durable:
            self.disk.durable[inode] = os.pread(self.fileno(), self.size, 0)

    def pread(self, size: int, position: int) -> bytes:
        if fault := self.disk.check("read", self.path):
            raise storage_error(OSError(fault.number, os.strerror(fault.number)), "reading", self.path)
        data = super().pread(size, position)
        self.disk.reads.append(Read(os.path.basename(self.path), position, len(data)))
        return data

    def pwrite(self, data: Buffer, position: int) -> None:
        self._about_to_change()
        if fault := self.disk.check("write", self.path):
            super().pwrite(memoryview(data)[: fault.bytes_done], position)
            raise storage_error(OSError(fault.number, os.strerror(fault.number)), "writing to", self.path)
        if self.disk.bytes_left is not None:
            fits = min(len(data), self.disk.bytes_left)
            self.disk.bytes_left -= fits
            if fits < len(data):
                super().pwrite(memoryview(data)[:fits], position)
                raise storage_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "writing to", self.path)
        super().pwrite(data, position)

    def append_vector(self, buffers: Sequence[Buffer], position: int) -> int:
        data = b"".join(bytes(buffer) for buffer in buffers)
        self.pwrite(data, position)
        return len(data)

    def truncate(self, size: int) -> None:
        self._about_to_change()
        if fault := self.disk.check("truncate", self.path):
            raise storage_error(OSError(fault.number, os.strerror(fault.number)), "changing the size of", self.path)
        super().truncate(size)

    def fsync(self) -> None:
        if fault := self.disk.check("fsync", self.path):
            raise LogDirFailed(f"flushing {self.path}: {os.strerror(fault.number)}")
        super().fsync()
        self.disk.synced.append(os.path.basename(self.path))
        self.disk.durable.pop(self._inode(), None)


class FaultyFileSystem(FileSystem):
    """A file system with a `FaultyDisk` below it. Names are as durable as they look: only contents get lost."""

    def __init__(self) -> None:
        self.disk = FaultyDisk()

    def _file(self, path: str, fd: int) -> File:
        file = FaultyFile(path, fd, self.disk)
        if file.size == 0 and file._inode() not in self.disk.durable:
            self.disk.durable[file._inode()] = b""
        return file

    def _open(self, path: str, flags: int, mode: int = 0o644) -> File:
        if fault := self.disk.check("open", path):
            raise storage_error(OSError(fault.number, os.strerror(fault.number)), "opening", path)
        return super()._open(path, flags, mode)

    def rename(self, path: str, new_path: str) -> None:
        if fault := self.disk.check("rename", path):
            raise storage_error(OSError(fault.number, os.strerror(fault.number)), "renaming", path)
        super().rename(path, new_path)

    def fsync_directory(self, path: str) -> None:
        if fault := self.disk.check("fsync", path):
            raise LogDirFailed(f"flushing {path}: {os.strerror(fault.number)}")
        super().fsync_directory(path)
        self.disk.synced.append(os.path.basename(path) + "/")

    # What a test says ------------------------------------------------------------------------------------------------

    def fail(
        self, operation: str, number: int = errno.EIO, *, suffix: str = "", after: int = 0, bytes_done: int = 0
    ) -> None:
        """Let one read, write, truncate, fsync, open or rename fail with the errno ``number``."""
        self.disk.faults.append(
            Fault(operation=operation, number=number, suffix=suffix, after=after, bytes_done=bytes_done)
        )

    def fill_up(self, bytes_left: int = 0) -> None:
        """From now on there is room for so many bytes."""
        self.disk.bytes_left = bytes_left

    def make_room(self) -> None:
        """The disk has room again."""
        self.disk.bytes_left = None

    def cut_power(self, directory: str, keep: Callable[[str, int], int] = lambda name, unsynced: 0) -> None:
        """Every file below ``directory`` becomes what the disk has of it.

        That is what was synced, and of what has been added since, as many bytes as ``keep`` says for the file's name
        and the number of bytes added. Open files of before must not be used any more.
        """
        for parent, _, names in os.walk(directory):
            for name in names:
                path = os.path.join(parent, name)
                durable = self.disk.durable.get(os.stat(path).st_ino)
                if durable is None:
                    continue
                with open(path, "r+b") as file:
                    content = file.read()
                    if content.startswith(durable):
                        kept = keep(name, len(content) - len(durable))
                        durable = content[: len(durable) + kept]
                    file.seek(0)
                    file.write(durable)
                    file.truncate(len(durable))
        self.disk.durable.clear()
