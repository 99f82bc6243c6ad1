"""SimulatedDisk: a machine's file system in memory, of which a power cut leaves what was synced and a part of the rest.

What may survive is decided by the rules of `tests.support.disk`: names count once their directory is synced, contents
once their file is; of what came since, any part may be there. The killing of a process loses nothing here.
"""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from storage.errors import DirectoryLocked, LogDirFailed, StorageError
from storage.file_info import DirectoryEntry, DiskSpace
from storage.files import Buffer, File, FileMap, FileSystem, Lock, storage_error
from tests.simulation.trace import Trace
from tests.support.disk import Chance, Change, DirectoryNode, FileNode, NameChange, Truncate, Write, after

NO_DESCRIPTOR: Final = -1
"""A file in memory has no descriptor: what asks the system about it fails (EBADF)."""

DISK_BYTES: Final = 1 << 40


class MachineOff(BaseException):
    """Code of a process that is dead has come to the disk: it must not run at all."""


@dataclass(slots=True, eq=False)
class MemoryFile(FileNode):
    """A file. ``base`` is its content at the last sync, ``changes`` are those since."""

    data: bytearray = field(default_factory=bytearray)
    """The content as the system shows it, without the zeros at its end that were never written."""
    size: int = 0
    mtime_ms: int = 0

    base_size: int = 0
    """The size at the last sync: ``base`` lacks the zeros at its end that were never written."""

    def synced(self) -> None:
        if self.given_up:
            content = bytearray(self.content_at_sync())
            for change in self.changes[self.given_up :]:
                after(content, change)
            self.base, self.base_size = bytes(content), len(content)
            self.given_up = 0
        else:
            self.base = None  # the content as it is; copied again before the next change
        self.changes.clear()

    def about_to_change(self, change: Change) -> None:
        """Remember a change that is not on the disk until the next sync."""
        if self.base is None:
            self.base, self.base_size = bytes(self.data), self.size
        self.changes.append(change)

    def content_at_sync(self) -> bytes:
        """All bytes of the file when it was synced the last time."""
        assert self.base is not None
        return self.base + bytes(self.base_size - len(self.base))

    def content(self) -> bytes:
        """All bytes of the file."""
        return bytes(self.data) + bytes(self.size - len(self.data))


@dataclass(slots=True, eq=False)
class MemoryDirectory(DirectoryNode):
    """A directory. ``base`` has its entries at the last sync, ``changes`` are those since."""

    entries: dict[str, "MemoryFile | MemoryDirectory"] = field(default_factory=dict)

    def about_to_change(self, change: NameChange) -> None:
        """Remember a change that is not on the disk until the next sync."""
        if self.base is None:
            self.base = dict(self.entries)
        self.changes.append(change)

    def synced(self) -> None:
        self.base = None
        self.changes.clear()


MemoryNode = MemoryFile | MemoryDirectory


class SimulatedDisk:
    """The disk of one machine. It outlives the processes that use it through a `SimulatedFileSystem` each."""

    def __init__(self, name: str, trace: Trace, now_ms: Callable[[], int]) -> None:
        self.name = name
        self.root = MemoryDirectory()
        self.trace = trace
        self.now_ms = now_ms
        self.bytes_left: int | None = None
        """How many bytes may still be written before the disk is full; None: any number."""
        self.failing: str | None = None
        """A file whose path ends so fails to be synced, and with it its data directory."""
        self.lost: str | None = None
        """A directory that is on a device which answers every access with an error."""
        self.locked: set[str] = set()
        """The lock files that are held; a process gives its locks back when it dies."""

    def cut_power(self, random: Random) -> None:
        """Everything becomes what the disk has of it; all of that counts as synced then."""
        survival = Chance(random.getrandbits(32))
        self.root = _left_of(self.root, survival, {})
        self.locked.clear()
        self.bytes_left = self.lost = None
        self.trace.add(f"{self.name}: power cut", b"".join(_summary(self.root)))

    def tree(self) -> Iterator[tuple[str, MemoryFile]]:
        """All files by path."""
        return _tree("", self.root)


def _tree(path: str, directory: MemoryDirectory) -> Iterator[tuple[str, MemoryFile]]:
    for name, node in directory.entries.items():
        if isinstance(node, MemoryFile):
            yield f"{path}/{name}", node
        else:
            yield from _tree(f"{path}/{name}", node)


def _summary(root: MemoryDirectory) -> Iterator[bytes]:
    for path, file in _tree("", root):
        yield path.encode()
        yield bytes(file.data)


def _left_of(directory: MemoryDirectory, survival: Chance, copies: dict[MemoryFile, MemoryFile]) -> MemoryDirectory:
    """A directory as it is after a power cut. A file that has two names by then is one file still."""
    if directory.base is None:
        names = dict(directory.entries)
    else:
        names = dict(directory.base)  # type: ignore[arg-type]  # the nodes of a memory directory are memory's
        for change in survival.names(directory.changes):
            node = change.node
            if change.kind == "link":
                names[change.name] = node  # type: ignore[assignment]
            elif names.get(change.name) is node:
                del names[change.name]
            if change.kind == "rename":
                names[change.new_name] = node  # type: ignore[assignment]
    left = MemoryDirectory()
    for name, found in sorted(names.items()):
        if isinstance(found, MemoryDirectory):
            left.entries[name] = _left_of(found, survival, copies)
            continue
        copy = copies.get(found)
        if copy is None:
            data, size = _survives(name, found, survival)
            copy = copies[found] = MemoryFile(base=None, data=data, size=size, mtime_ms=found.mtime_ms)
        left.entries[name] = copy
    return left


def _survives(name: str, file: MemoryFile, survival: Chance) -> tuple[bytearray, int]:
    """What a power cut leaves of a file, without zeros at its end that were never written, and its size."""
    if file.base is None:
        return bytearray(file.data), file.size
    if not file.changes:
        return bytearray(file.base), file.base_size
    # A preallocated index has megabytes of zeros behind its entries: here they are a single one.
    end = max(len(file.base), *(len(one.data) + one.position for one in file.changes if isinstance(one, Write)), 0, 0)
    largest = max(file.base_size, *(one.size for one in file.changes if isinstance(one, Truncate)), 0, 0)
    base = file.base + bytes(min(file.base_size, end + 1) - len(file.base))
    changes = [Truncate(min(one.size, end + 1)) if isinstance(one, Truncate) else one for one in file.changes]
    content = bytearray(survival.content(name, base, changes))
    if len(content) <= end:
        return content, len(content)
    return content[:end], largest


class SimulatedFile(File):
    """A file of a `SimulatedDisk`, opened by one process."""

    __slots__ = ("_files", "node")

    def __init__(self, path: str, files: "SimulatedFileSystem", node: MemoryFile) -> None:
        super().__init__(path, NO_DESCRIPTOR)
        self._files = files
        self.node = node

    def __del__(self) -> None:
        """There is no descriptor to close."""

    @property
    def size(self) -> int:
        self._files.check()
        return self.node.size

    def pread(self, size: int, position: int) -> bytes:
        self._files.reach("reading", self.path)
        node = self.node
        end = min(position + size, node.size)
        if end <= position:
            return b""
        data = bytes(node.data[position:end])
        return data + bytes(end - position - len(data))

    def pread_in_memory(self, size: int, position: int) -> bytes | None:
        data = self.pread(size, position)
        return data if len(data) == size else None

    def will_need(self, size: int, position: int) -> None:
        """Everything is in memory."""

    def pwrite(self, data: Buffer, position: int) -> None:
        self._files.reach("writing to", self.path)
        disk = self._files.disk
        written = bytes(data)
        if disk.bytes_left is not None:
            written = written[: disk.bytes_left]
            disk.bytes_left -= len(written)
        node = self.node
        if written:
            node.about_to_change(Write(position, written))
            _write(node, position, written)
            node.mtime_ms = disk.now_ms()
        disk.trace.add(f"write {self.path} at {position}", written)
        if len(written) < len(data):
            raise storage_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "writing to", self.path)

    def append_vector(self, buffers: Sequence[Buffer], position: int) -> int:
        data = b"".join(buffers)
        self.pwrite(data, position)
        return len(data)

    def reserve(self, position: int, size: int) -> None:
        self.reserved_to = position + size

    def truncate(self, size: int) -> None:
        self._files.reach("truncating", self.path)
        self.reserved_to = 0
        node = self.node
        node.about_to_change(Truncate(size))
        del node.data[size:]
        node.size = size
        self._files.disk.trace.add(f"truncate {self.path} to {size}")

    def fsync(self) -> None:
        self._files.reach("flushing", self.path)
        disk = self._files.disk
        disk.trace.add(f"sync {self.path}")
        if disk.failing is not None and self.path.endswith(disk.failing):
            self.node.sync_failed()
            raise LogDirFailed(f"flushing {self.path}: {os.strerror(errno.EIO)}")
        self.node.synced()

    def map_read_only(self) -> FileMap | None:
        """This file system maps no files."""
        return None


def _write(node: MemoryFile, position: int, data: bytes) -> None:
    missing = position - len(node.data)
    if missing > 0:
        node.data.extend(bytes(missing))
    node.data[position : position + len(data)] = data
    node.size = max(node.size, len(node.data))


class SimulatedLock(Lock):
    """A lock file that a simulated process holds."""

    __slots__ = ("_files",)

    def __init__(self, path: str, files: "SimulatedFileSystem") -> None:
        super().__init__(path, NO_DESCRIPTOR)
        self._files = files

    def release(self) -> None:
        self._files.check()
        disk = self._files.disk
        if self.path in disk.locked:
            disk.locked.discard(self.path)
            self._files.remove(self.path)


class SimulatedFileSystem(FileSystem):
    """A `FileSystem` of one process on a `SimulatedDisk`."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self.is_dead = False
        """Whether its process is dead: then nothing may come here any more."""

    def check(self) -> None:
        """Raise `MachineOff` if the process is dead."""
        if self.is_dead:
            raise MachineOff

    def reach(self, doing: str, path: str) -> None:
        """Raise LogDirFailed if the path is on a device that is lost, `MachineOff` if the process is dead."""
        self.check()
        lost = self.disk.lost
        if lost is not None and (path == lost or path.startswith(f"{lost}/")):
            raise _error(errno.EIO, doing, path)

    def die(self) -> None:
        """The process is dead: its locks are free."""
        self.is_dead = True
        self.disk.locked.clear()

    # Looking

    def _find(self, path: str) -> MemoryNode | None:
        self.check()
        node: MemoryNode | None = self.disk.root
        for name in path.split("/"):
            if name:
                if not isinstance(node, MemoryDirectory):
                    return None
                node = node.entries.get(name)
        return node

    def _found(self, path: str) -> MemoryNode:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node

    def _parent(self, path: str, doing: str) -> tuple[MemoryDirectory, str]:
        above, _, name = path.rstrip("/").rpartition("/")
        parent = self._find(above)
        if not isinstance(parent, MemoryDirectory):
            raise _error(errno.ENOENT, doing, path)
        return parent, name

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def is_directory(self, path: str) -> bool:
        return isinstance(self._found(path), MemoryDirectory)

    def size(self, path: str) -> int:
        node = self._found(path)
        return node.size if isinstance(node, MemoryFile) else 4096

    def mtime_ms(self, path: str) -> int:
        node = self._found(path)
        return node.mtime_ms if isinstance(node, MemoryFile) else 0

    def set_mtime_ms(self, path: str, modified_ms: int) -> None:
        node = self._found(path)
        assert isinstance(node, MemoryFile)
        node.mtime_ms = modified_ms

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        self.reach("listing", path)
        node = self._found(path)
        if isinstance(node, MemoryFile):
            raise _error(errno.ENOTDIR, "listing", path)
        return [
            DirectoryEntry(name, False, one.size, one.mtime_ms)
            if isinstance(one, MemoryFile)
            else DirectoryEntry(name, True, 4096, 0)
            for name, one in sorted(node.entries.items())
        ]

    def space(self, path: str) -> DiskSpace:
        left = self.disk.bytes_left
        return DiskSpace(DISK_BYTES, DISK_BYTES // 2 if left is None else left)

    def absolute(self, path: str) -> str:
        return path

    # Opening and locking

    def _open(self, path: str, flags: int, mode: int = 0o644) -> File:
        self.reach("opening", path)
        node = self._find(path)
        if flags & os.O_CREAT:
            parent, name = self._parent(path, "opening")
            if node is not None:
                raise _error(errno.EEXIST, "opening", path)
            made = MemoryFile(mtime_ms=self.disk.now_ms())
            parent.about_to_change(NameChange("link", name, made))
            parent.entries[name] = made
            self.disk.trace.add(f"make {path}")
            return SimulatedFile(path, self, made)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(node, MemoryDirectory):
            raise LogDirFailed(f"opening {path}: it is a directory, expected a file")
        return SimulatedFile(path, self, node)

    def lock(self, path: str) -> Lock:
        if path in self.disk.locked:
            raise DirectoryLocked(f"{path} is locked by another broker")
        if not self.exists(path):
            self._open(path, os.O_CREAT)
        self.disk.locked.add(path)
        return SimulatedLock(path, self)

    def lock_for_reading(self, path: str) -> File | None:
        raise AssertionError("a broker does not lock a directory for reading")

    # Changing names

    def make_directory(self, path: str) -> None:
        if isinstance(self._find(path), MemoryDirectory):
            return
        self.reach("making", path)
        above = path.rstrip("/").rpartition("/")[0]
        if above:
            self.make_directory(above)
        parent, name = self._parent(path, "making")
        if name in parent.entries:
            raise _error(errno.EEXIST, "making", path)
        made = MemoryDirectory(base={})
        parent.about_to_change(NameChange("link", name, made))
        parent.entries[name] = made
        self.disk.trace.add(f"make {path}")

    def rename(self, path: str, new_path: str) -> None:
        self.reach("renaming", path)
        node = self._found(path)
        parent, name = self._parent(path, "renaming")
        new_parent, new_name = self._parent(new_path, "renaming")
        assert parent is new_parent, f"{path} moves to {new_path}"
        replaced = parent.entries.get(new_name)
        if isinstance(replaced, MemoryDirectory) and replaced.entries:
            raise _error(errno.ENOTEMPTY, f"renaming to {new_name}", path)
        parent.about_to_change(NameChange("rename", name, node, new_name))
        del parent.entries[name]
        parent.entries[new_name] = node
        self.disk.trace.add(f"rename {path} to {new_name}")

    def remove(self, path: str) -> None:
        node = self._find(path)
        if node is None:
            return
        if isinstance(node, MemoryDirectory):
            raise _error(errno.EISDIR, "removing", path)
        self._unlink(path, node)

    def remove_tree(self, path: str) -> None:
        node = self._find(path)
        if node is None:
            return
        if isinstance(node, MemoryDirectory):
            for name in list(node.entries):
                self.remove_tree(f"{path}/{name}")
        self._unlink(path, node)

    def remove_directory(self, path: str) -> None:
        node = self._find(path)
        if not isinstance(node, MemoryDirectory) or node.entries:
            raise _error(errno.ENOENT if node is None else errno.ENOTEMPTY, "removing", path)
        self._unlink(path, node)

    def _unlink(self, path: str, node: MemoryNode) -> None:
        self.reach("removing", path)
        parent, name = self._parent(path, "removing")
        parent.about_to_change(NameChange("unlink", name, node))
        del parent.entries[name]
        self.disk.trace.add(f"remove {path}")

    def fsync_directory(self, path: str) -> None:
        self.reach("flushing", path)
        node = self._found(path)
        assert isinstance(node, MemoryDirectory), path
        self.disk.trace.add(f"sync {path}/")
        node.synced()


def _error(number: int, doing: str, path: str) -> StorageError:
    return storage_error(OSError(number, os.strerror(number)), doing, path)
