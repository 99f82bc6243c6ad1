"""A file system that fails on demand: tears a write, fills up, refuses to sync, loses its power.

It works on real files in a directory of the test, and never syncs on the machine: `tests.support.disk` remembers what a
disk would have kept. A broker's threads share it: only one operation, with what is remembered of it, is done at a time.
"""

import errno
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from storage.errors import LogDirFailed
from storage.files import Buffer, File, FileSystem, storage_error
from tests.support.disk import Chance, Disk, EverythingSynced, FileNode, Keep, Truncate, Write


class PowerLost(BaseException):
    """The power is lost in the middle of an operation. Every later operation raises this again."""


@dataclass(slots=True, kw_only=True)
class Fault:
    """A fault: the next operation of one kind on a file whose name ends with ``suffix`` fails, after ``after``
    successful ones."""

    operation: str
    number: int
    suffix: str = ""
    after: int = 0
    bytes_done: int = 0
    """How many bytes a failing write writes before it fails."""

    @property
    def error(self) -> OSError:
        return OSError(self.number, os.strerror(self.number))


@dataclass(slots=True)
class Read:
    """A read that happened."""

    name: str
    position: int
    size: int


@dataclass(slots=True)
class FaultyDisk(Disk):
    """The faults that are to happen, and the operations that have happened."""

    faults: list[Fault] = field(default_factory=list)
    bytes_left: int | None = None
    changes_left: int | None = None
    """How many changes and syncs are left until the power is lost; below 0 it is lost."""
    reads: list[Read] = field(default_factory=list)
    synced: list[str] = field(default_factory=list)

    is_at_rest: bool = False
    """Whether no fault comes at present, since a test checks the log: a search writes the waiting index entries."""

    lock: threading.RLock = field(default_factory=threading.RLock)
    """Held during each operation."""

    def check(self, operation: str, path: str) -> Fault | None:
        """Called before each operation. Returns the fault that the operation meets, if any."""
        if self.is_at_rest:
            return None
        if self.changes_left is not None:
            if operation not in ("read", "open"):
                self.changes_left -= 1
            if self.changes_left < 0:
                raise PowerLost(f"at {operation} of {path}")
        for fault in self.faults:
            if fault.operation == operation and path.endswith(fault.suffix):
                if fault.after:
                    fault.after -= 1
                    return None
                self.faults.remove(fault)
                return fault
        return None


_On = TypeVar("_On", bound="FaultyFile | FaultyFileSystem")
_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def _alone(
    operation: Callable[Concatenate[_On, _Parameters], _Result],
) -> Callable[Concatenate[_On, _Parameters], _Result]:
    """The operation, which waits for those of other threads."""

    @wraps(operation)
    def perform(on: _On, *args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        with on.disk.lock:
            return operation(on, *args, **kwargs)

    return perform


class FaultyFile(File):
    """A file on a `FaultyDisk`."""

    __slots__ = ("disk", "node")

    def __init__(self, path: str, fd: int, disk: FaultyDisk, node: FileNode) -> None:
        super().__init__(path, fd)
        self.disk = disk
        self.node = node

    def _changes(self, change: Write | Truncate) -> None:
        if self.node.base is None:
            self.node.base = os.pread(self.fileno(), self.size, 0)
        self.node.changes.append(change)

    @_alone
    def pread(self, size: int, position: int) -> bytes:
        if fault := self.disk.check("read", self.path):
            raise storage_error(fault.error, "reading", self.path)
        data = super().pread(size, position)
        self.disk.reads.append(Read(os.path.basename(self.path), position, len(data)))
        return data

    def pread_in_memory(self, size: int, position: int) -> bytes:
        return self.pread(size, position)

    @_alone
    def pwrite(self, data: Buffer, position: int) -> None:
        written, failure = bytes(data), None
        if fault := self.disk.check("write", self.path):
            written = written[: fault.bytes_done]
            failure = storage_error(fault.error, "writing to", self.path)
        elif self.disk.bytes_left is not None:
            written = written[: self.disk.bytes_left]
            self.disk.bytes_left -= len(written)
            if len(written) < len(data):
                failure = storage_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "writing to", self.path)
        if written:
            self._changes(Write(position, written))
            super().pwrite(written, position)
        if failure is not None:
            raise failure

    def append_vector(self, buffers: Sequence[Buffer], position: int) -> int:
        data = b"".join(bytes(buffer) for buffer in buffers)
        self.pwrite(data, position)
        return len(data)

    @_alone
    def truncate(self, size: int) -> None:
        if fault := self.disk.check("truncate", self.path):
            raise storage_error(fault.error, "changing the size of", self.path)
        self._changes(Truncate(size))
        super().truncate(size)

    @_alone
    def fsync(self) -> None:
        if fault := self.disk.check("fsync", self.path):
            self.node.sync_failed()
            raise LogDirFailed(f"flushing {self.path}: {os.strerror(fault.number)}")
        self.node.synced()
        self.disk.synced.append(os.path.basename(self.path))


class FaultyFileSystem(FileSystem):
    """A file system on a `FaultyDisk`."""

    def __init__(self) -> None:
        self.disk = FaultyDisk()

    def _check(self, operation: str, doing: str, path: str) -> None:
        if fault := self.disk.check(operation, path):
            raise storage_error(fault.error, doing, path)

    def _file(self, path: str, fd: int) -> File:
        return FaultyFile(path, fd, self.disk, self.disk.file(fd))

    @_alone
    def _open(self, path: str, flags: int, mode: int = 0o644) -> File:
        self._check("open", "opening", path)
        if not flags & os.O_CREAT or os.path.exists(path) or not os.path.isdir(os.path.dirname(path) or "."):
            return super()._open(path, flags, mode)
        self._check("make", "opening", path)
        parent = self.disk.will_be_made(path)
        os.close(os.open(path, flags, mode))
        self.disk.made(parent, path)
        return super()._open(path, flags & ~(os.O_CREAT | os.O_EXCL), mode)

    @_alone
    def make_directory(self, path: str) -> None:
        if os.path.isdir(path):
            return
        self.make_directory(os.path.dirname(path))
        self._check("make", "making", path)
        parent = self.disk.will_be_made(path)
        super().make_directory(path)
        self.disk.made(parent, path)

    @_alone
    def rename(self, path: str, new_path: str) -> None:
        self._check("rename", "renaming", path)
        if os.path.exists(path):
            self.disk.will_be_renamed(path, new_path)
        super().rename(path, new_path)

    @_alone
    def remove(self, path: str) -> None:
        if os.path.exists(path):
            self._check("remove", "removing", path)
            self.disk.will_be_removed(path)
        super().remove(path)

    @_alone
    def remove_directory(self, path: str) -> None:
        self._check("remove", "removing", path)
        self.disk.will_be_removed(path)
        super().remove_directory(path)

    @_alone
    def fsync_directory(self, path: str) -> None:
        self._check("open", "opening", path)
        if fault := self.disk.check("fsync", path):
            raise LogDirFailed(f"flushing {path}: {os.strerror(fault.number)}")
        self.disk.synced_names(path)
        self.disk.synced.append(os.path.basename(path) + "/")

    # What a test says ------------------------------------------------------------------------------------------------

    def fail(
        self, operation: str, number: int = errno.EIO, *, suffix: str = "", after: int = 0, bytes_done: int = 0
    ) -> None:
        """Let one read, write, truncate, fsync, open, make, rename or remove fail with the errno ``number``."""
        self.disk.faults.append(
            Fault(operation=operation, number=number, suffix=suffix, after=after, bytes_done=bytes_done)
        )

    def fill_up(self, bytes_left: int = 0) -> None:
        """Let the disk be full after so many more bytes."""
        self.disk.bytes_left = bytes_left

    def make_room(self) -> None:
        """Let the disk have space again."""
        self.disk.bytes_left = None

    def lose_power_after(self, changes: int) -> None:
        """Raise `PowerLost` after so many changes and syncs. To go on then, cut the power."""
        self.disk.changes_left = changes

    def keep_power(self) -> None:
        """Do not lose the power after all."""
        self.disk.changes_left = None

    def cut_power(self, directory: str, keep: Keep = lambda name, added: 0) -> None:
        """Everything below ``directory`` becomes what the disk has of it, and that is as little as possible.

        That is what was synced, and as many of the bytes appended since as ``keep`` returns, for files whose names were
        synced. Files that were open before must not be used any more.
        """
        self._start_anew()
        self.disk.cut_power(directory, EverythingSynced(keep))

    def cut_power_by_chance(self, directory: str, seed: int, *, reorders: bool = False) -> None:
        """Everything below ``directory`` becomes what the disk may have of it: see `tests.support.disk.Chance`."""
        self._start_anew()
        self.disk.cut_power(directory, Chance(seed, reorders=reorders))

    def _start_anew(self) -> None:
        self.keep_power()
        self.make_room()
        self.disk.faults.clear()
