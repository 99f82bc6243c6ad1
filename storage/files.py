"""Files and directories: the only module of the package `storage` that calls the operating system.

Every failure leaves here as an error of `storage.errors`, so no caller looks at an errno:

    ENOSPC, EDQUOT     DiskFull: nothing is broken; cut what was written in part and go on
    EFBIG              FileTooLarge: likewise, in another file
    EMFILE, ENFILE     TooManyOpenFiles: likewise
    ENOMEM             likewise: the system has no memory for the call
    a failed fsync     LogDirFailed, whatever the errno: the kernel may have dropped the pages it could not write
    everything else    LogDirFailed
    a missing file     FileNotFoundError, as it is: callers expect it; FilesRemoved where a new file's directory is gone
    a link to nowhere  LogDirFailed
    no file at all     LogDirFailed: a directory, a pipe or a socket where a file is expected is not opened
"""

import errno
import fcntl
import mmap
import os
import stat
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Final

from storage.advisory_locks import EXCLUSIVE, HELD, SHARED, take_both_locks
from storage.errors import (
    DirectoryLocked,
    DiskFull,
    FilesRemoved,
    FileTooLarge,
    LogDirFailed,
    StorageError,
    TooManyOpenFiles,
)
from storage.file_info import DirectoryEntry, DiskSpace

Buffer = bytes | bytearray | memoryview
FileMap = mmap.mmap

_MOST_BUFFERS: Final = min(limit if (limit := os.sysconf("SC_IOV_MAX")) > 0 else 1024, 1024)
_DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_NOT_ALLOWED: Final = frozenset({errno.EACCES, errno.EPERM})
_KEEP_SIZE: Final = 1
"""FALLOC_FL_KEEP_SIZE"""
_CANNOT_READ_CACHED: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.EACCES})
"""The errors of `preadv2` on file systems without RWF_NOWAIT, and in containers that may not call it."""
_NOT_SUPPORTED: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
"""The errors of a call that a file system, or a sandbox, does not have: CIFS, 9p, shared folders, some of FUSE."""
_CANNOT_SYNC_NAMES: Final = _NOT_SUPPORTED | {errno.EBADF, errno.EISDIR}
_CANNOT_MAP: Final = _NOT_SUPPORTED | {errno.ENODEV, errno.EACCES, errno.EPERM, errno.ENOMEM, errno.EAGAIN}
_STILL_OPEN: Final = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY})
"""The errors of a removal on NFS, which keeps a removed file under another name until it is closed."""
_LOCK_ATTEMPTS: Final = 100
_LEFT_TO_OTHERS: Final = 256 << 20
"""The last bytes of a file system, which are not preallocated: on a full disk every block holds bytes that exist."""


def storage_error(error: OSError, doing: str, path: str) -> StorageError:
    """The `StorageError` for ``error``, which was met while ``doing`` something to ``path``."""
    link = f", a link to {os.readlink(path)}" if os.path.islink(path) else ""
    sentence = f"{doing} {path}{link}: {error.strerror or error}"
    if error.errno in _DISK_FULL:
        return DiskFull(sentence)
    if error.errno == errno.EFBIG:
        return FileTooLarge(sentence)
    if error.errno in _EXHAUSTED:
        return TooManyOpenFiles(sentence)
    if error.errno == errno.ENOENT:
        return FilesRemoved(sentence)
    if error.errno in _NOT_ALLOWED:
        # A container's volume often belongs to another user.
        sentence += f" for user {os.geteuid()}"
    return LogDirFailed(sentence)


if sys.platform == "darwin":

    def _sync(fd: int) -> None:
        # fsync on macOS leaves the data in the drive's cache. Disks of other machines know nothing else.
        try:
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        except OSError:
            os.fsync(fd)

else:

    def _sync(fd: int) -> None:
        # The data and whatever is needed to read it back (the size, not the times).
        try:
            os.fdatasync(fd)
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
                raise
            os.fsync(fd)


_CAN_READ_CACHED: Final = hasattr(os, "RWF_NOWAIT") and hasattr(os, "posix_fadvise")
"""Whether the system can read only what the page cache has, and can be asked to read ahead."""


@cache
def _fallocate() -> Callable[[int, int, int, int], int] | None:
    """fallocate(2), which Python has not got: `posix_fallocate` changes the length. None where the system has none, or
    Python was built without ctypes."""
    try:
        import ctypes  # costs as much as a dozen modules of ours: not imported at a start

        libc = ctypes.CDLL(None)
    except (ImportError, OSError):
        return None
    found = getattr(libc, "fallocate64", None) or getattr(libc, "fallocate", None)
    if found is not None:
        found.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return found


class File:
    """An open file. It closes when its last holder drops it, so a reader or a flush needs only to hold it.

    So a segment that retention has unlinked stays readable for the answer that is being sent from it, and a
    descriptor never changes hands below a flush in another thread.
    """

    __slots__ = ("__weakref__", "_can_read_cached", "_fd", "asked_to", "in_memory_to", "path", "reserved_to")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        """The path that the file was opened by; the file may have been renamed or removed since."""
        self._fd = fd
        self.reserved_to = 0
        """The position up to which blocks are preallocated."""
        self.in_memory_to = 0
        """The position below which the page cache need not be checked again; see `storage.read_ahead`."""
        self.asked_to = 0
        """The position up to which the disk has been asked to read ahead."""
        self._can_read_cached = _CAN_READ_CACHED

    def __del__(self) -> None:
        os.close(self._fd)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}>"

    def fileno(self) -> int:
        """The descriptor; use it only while holding the file."""
        return self._fd

    @property
    def size(self) -> int:
        """Bytes in the file, asked of the system."""
        try:
            return os.fstat(self._fd).st_size
        except OSError as error:
            raise storage_error(error, "asking the size of", self.path) from error

    def pread(self, size: int, position: int) -> bytes:
        """Up to ``size`` bytes at ``position``; fewer only at the end of the file."""
        try:
            data = os.pread(self._fd, size, position)
            while 0 < len(data) < size:
                # The end of the file, or a file system that gives less than it has, as FUSE may.
                more = os.pread(self._fd, size - len(data), position + len(data))
                if not more:
                    break
                data += more
            return data
        except OSError as error:
            raise storage_error(error, "reading", self.path) from error

    def pread_in_memory(self, size: int, position: int) -> bytes | bytearray | None:
        """The ``size`` bytes at ``position``, if the page cache has them all; None if not, or if the file has not.

        Where the system has no preadv2 with RWF_NOWAIT, like `pread`.
        """
        if not self._can_read_cached:
            return self.pread(size, position)
        memory = bytearray(size)
        try:
            return memory if os.preadv(self._fd, (memory,), position, os.RWF_NOWAIT) == size else None
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno not in _CANNOT_READ_CACHED:
                raise storage_error(error, "reading", self.path) from error
            self._can_read_cached = False
            return self.pread(size, position)

    def will_need(self, size: int, position: int) -> None:
        """Have the system read this range into the page cache; it takes no more than a few hundred KB at once.

        A hint: where the system does not take it, the read that follows waits for the disk.
        """
        with suppress(OSError):
            os.posix_fadvise(self._fd, position, size, os.POSIX_FADV_WILLNEED)

    def pwrite(self, data: Buffer, position: int) -> None:
        """Write all of ``data`` at ``position``. Raises DiskFull, LogDirFailed; a part may be written then."""
        try:
            written = os.pwrite(self._fd, data, position)
            if written < len(data):
                _write_rest(self._fd, memoryview(data)[written:], position + written)
        except OSError as error:
            raise storage_error(error, "writing to", self.path) from error

    def append_vector(self, buffers: Sequence[Buffer], position: int) -> int:
        """Write ``buffers``, one behind the other, at ``position``; returns how many bytes were written.

        Raises DiskFull, LogDirFailed; a part may be written then.
        """
        if len(buffers) == 1:
            self.pwrite(buffers[0], position)
            return len(buffers[0])
        start = position
        try:
            for first in range(0, len(buffers), _MOST_BUFFERS):
                group = buffers[first : first + _MOST_BUFFERS]
                wanted = sum(map(len, group))
                written = os.pwritev(self._fd, group, position)
                if written < wanted:
                    # A short write is rare: a full disk, or a signal in the middle of gigabytes.
                    _write_rest(self._fd, memoryview(b"".join(group))[written:], position + written)
                position += wanted
        except OSError as error:
            raise storage_error(error, "writing to", self.path) from error
        return position - start

    def reserve(self, position: int, size: int) -> None:
        """Preallocate ``size`` bytes at ``position`` with one call; the file keeps its length.

        A write there need not allocate page by page, which is a third of its cost (bench: produce-1mb). This is a hint:
        where space is short or fallocate is missing, no error is raised; the write will raise it.
        """
        self.reserved_to = position + size
        try:
            status = os.fstatvfs(self._fd)
        except OSError:
            return
        fallocate = _fallocate()
        if fallocate is not None and status.f_bavail * status.f_frsize - size >= _LEFT_TO_OTHERS:
            fallocate(self._fd, _KEEP_SIZE, position, size)

    def truncate(self, size: int) -> None:
        """Make the file ``size`` bytes long; what is beyond is gone, what is missing is a hole that reads as zeros."""
        self.reserved_to = 0
        try:
            os.ftruncate(self._fd, size)
        except OSError as error:
            raise storage_error(error, "changing the size of", self.path) from error

    def fsync(self) -> None:
        """Wait until the disk has everything written so far. Any failure is LogDirFailed."""
        try:
            _sync(self._fd)
        except OSError as error:
            raise LogDirFailed(f"flushing {self.path}: {error.strerror or error}") from error

    def map_read_only(self) -> FileMap | None:
        """The file's bytes as they are and will be, up to today's size; None for an empty file, and on a file system
        that maps no files.

        Replace the map before the file is cut: touching a page beyond the end kills the process.
        """
        size = self.size
        if size == 0:
            return None
        try:
            return mmap.mmap(self._fd, size, access=mmap.ACCESS_READ)
        except OSError as error:
            if error.errno in _CANNOT_MAP:
                return None
            raise storage_error(error, "mapping", self.path) from error


def _write_rest(fd: int, rest: memoryview, position: int) -> None:
    """Write all of ``rest``, of which the system has taken nothing yet."""
    while rest:
        written = os.pwrite(fd, rest, position)
        if not written:
            raise OSError(errno.EIO, "the system writes nothing, and says no reason")
        rest, position = rest[written:], position + written


class FileRegion:
    """A stretch of a file on its way to a socket (``os.sendfile``). It holds the file: see `File`."""

    __slots__ = ("file", "position", "size")

    def __init__(self, file: File, position: int, size: int) -> None:
        self.file = file
        self.position = position
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"FileRegion({self.file.path}, position={self.position}, size={self.size})"

    def read(self) -> bytes:
        """Read the region's bytes, for callers that cannot use sendfile: TLS, tests, tools."""
        return self.file.pread(self.size, self.position)


class Lock:
    """The right to be the only process in a data directory, until it is released or the process dies."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd

    def release(self) -> None:
        """Release the lock and remove its file, whose presence says that a broker works in the directory."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            try:
                os.unlink(self.path)
            except OSError as error:
                raise storage_error(error, "removing", self.path) from error
            finally:
                os.close(fd)


class FileSystem:
    """The machine's own file system. Paths are absolute or relative to the process; text, never bytes."""

    def open_log(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing. With ``create`` the file must not exist yet."""
        return self._open(path, os.O_RDWR | (os.O_CREAT | os.O_EXCL if create else 0))

    def open_read(self, path: str) -> File:
        """Open for reading only."""
        return self._open(path, os.O_RDONLY)

    def _open(self, path: str, flags: int, mode: int = 0o644) -> File:
        if not flags & (os.O_CREAT | os.O_DIRECTORY):
            # Not asked of the descriptor: opening a pipe waits for its writer.
            kind = self._stat(path, "opening").st_mode
            if not stat.S_ISREG(kind):
                raise LogDirFailed(f"opening {path}: it is {_kind_of(kind)}, expected a file")
        try:
            fd = os.open(path, flags | os.O_CLOEXEC, mode)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not flags & os.O_CREAT:
                raise
            raise storage_error(error, "opening", path) from error
        return self._file(path, fd)

    def _file(self, path: str, fd: int) -> File:
        return File(path, fd)

    def exists(self, path: str) -> bool:
        """Whether the path exists; a link that leads nowhere exists too."""
        return os.path.lexists(path)

    def is_directory(self, path: str) -> bool:
        """Whether the path is a directory. Raises FileNotFoundError if the path does not exist."""
        return stat.S_ISDIR(self._stat(path).st_mode)

    def size(self, path: str) -> int:
        """Bytes in the file of this name."""
        return self._stat(path).st_size

    def mtime_ms(self, path: str) -> int:
        """When the file was last written to, in milliseconds since 1970."""
        return self._stat(path).st_mtime_ns // 1_000_000

    def set_mtime_ms(self, path: str, modified_ms: int) -> None:
        """Let the file say that it was last written to at ``modified_ms``, milliseconds since 1970."""
        try:
            os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))
        except OSError as error:
            raise storage_error(error, "changing the time of", path) from error

    def _stat(self, path: str, doing: str = "looking at") -> os.stat_result:
        try:
            return os.stat(path)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not os.path.islink(path):
                raise
            raise storage_error(error, doing, path) from error

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        """List a directory: its entries by name."""
        try:
            with os.scandir(path) as entries:
                listed = [found for entry in entries if (found := _looked_at(entry)) is not None]
        except FileNotFoundError:
            raise
        except OSError as error:
            raise storage_error(error, "listing", path) from error
        listed.sort()
        return listed

    def make_directory(self, path: str) -> None:
        """Make a directory and those above it, where they are missing."""
        try:
            os.makedirs(path, exist_ok=True)
        except OSError as error:
            raise storage_error(error, "making", path) from error

    def rename(self, path: str, new_path: str) -> None:
        """Rename a file or directory; a file at ``new_path`` is replaced. On disk once the directory is synced."""
        try:
            try:
                os.replace(path, new_path)
            except OSError as error:
                if error.errno != errno.EXDEV or not os.path.isdir(path):
                    raise
                # A directory of a container's image: overlayfs renames only the files in it.
                os.mkdir(new_path)
                for name in os.listdir(path):
                    os.replace(os.path.join(path, name), os.path.join(new_path, name))
                os.rmdir(path)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise storage_error(error, f"renaming to {os.path.basename(new_path)}", path) from error

    def read_file(self, path: str) -> bytes:
        """All of a small file."""
        file = self.open_read(path)
        return file.pread(file.size, 0)

    def replace_atomically(self, path: str, data: bytes, *, fsync: bool, mode: int = 0o644) -> None:
        """Give ``path`` the content ``data``, whole or not at all, by way of ``<path>.tmp``.

        Without ``fsync`` the process may die at any point, but after a power cut the file may be the old one,
        the new one or empty.
        """
        temporary = path + ".tmp"
        self.remove(temporary)
        file = self._open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
        try:
            file.pwrite(data, 0)
        except DiskFull:
            self.remove(temporary)  # a partial file would only take more disk space
            raise
        if fsync:
            file.fsync()
        try:
            self.rename(temporary, path)
            if fsync:
                self.fsync_directory(os.path.dirname(path))
        except FileNotFoundError as error:
            raise FilesRemoved(f"{os.path.dirname(path)} is gone: another process has removed it") from error

    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise storage_error(error, "removing", path) from error

    def remove_tree(self, path: str) -> None:
        """Remove a directory with everything in it, if it exists. A link is removed, not followed, as by Kafka.

        On NFS something stays as long as a removed file is open; the next start finds the rest, and removes it.
        """
        if os.path.islink(path):
            self.remove(path)
            return
        try:
            entries = self.list_directory(path)
        except FileNotFoundError:
            return
        for entry in entries:
            if entry.is_directory:
                self.remove_tree(os.path.join(path, entry.name))
            else:
                self._remove_unless_open(self.remove, os.path.join(path, entry.name))
        self._remove_unless_open(self.remove_directory, path)

    def _remove_unless_open(self, remove: Callable[[str], None], path: str) -> None:
        try:
            remove(path)
        except LogDirFailed as error:
            if not isinstance(error.__cause__, OSError) or error.__cause__.errno not in _STILL_OPEN:
                raise

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        try:
            os.rmdir(path)
        except OSError as error:
            raise storage_error(error, "removing", path) from error

    def fsync_directory(self, path: str) -> None:
        """Wait until the disk has the names in a directory. Any failure is LogDirFailed.

        Some file systems of other machines cannot be asked for it: there names are as safe as they make them.
        """
        directory = self._open(path or ".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory.fileno())
        except OSError as error:
            if error.errno not in _CANNOT_SYNC_NAMES:
                raise LogDirFailed(f"flushing {path}: {error.strerror or error}") from error

    def space(self, path: str) -> DiskSpace:
        """How large the file system of ``path`` is, and how much of it is free; zeros where it does not tell."""
        try:
            status = os.statvfs(path)
        except OSError:
            return DiskSpace(0, 0)  # nothing that is stored depends on it: a disk that is broken says so elsewhere
        return DiskSpace(status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize)

    def absolute(self, path: str) -> str:
        """The same path as seen from the root."""
        return os.path.abspath(path)

    def lock(self, path: str) -> Lock:
        """Take the lock file ``path``. Raises DirectoryLocked if another broker, of whatever make, has it."""
        for attempt in range(_LOCK_ATTEMPTS):
            try:
                fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except OSError as error:
                raise storage_error(error, "opening", path) from error
            try:
                take_both_locks(fd, EXCLUSIVE)
                # The last holder may just have removed the file; then our lock is on a file without a name.
                is_current = os.path.exists(path) and os.path.samestat(os.fstat(fd), os.stat(path))
            except OSError as error:
                os.close(fd)
                if error.errno in HELD:
                    raise _in_use(path) from error
                raise storage_error(error, "locking", path) from error
            if is_current or attempt == _LOCK_ATTEMPTS - 1:  # some file systems give a file a new number each time
                return Lock(path, fd)
            os.close(fd)
        raise AssertionError("the last attempt returns or raises")

    def lock_for_reading(self, path: str) -> File | None:
        """Lock a directory against brokers while the returned lock is held; nothing is written. Raises DirectoryLocked.

        None if there is no lock file: then no broker works in the directory, and none is kept away.
        """
        try:
            file = self.open_read(path)
        except FileNotFoundError:
            return None
        try:
            take_both_locks(file.fileno(), SHARED)
        except OSError as error:
            if error.errno in HELD:
                raise _in_use(path) from error
            raise storage_error(error, "locking", path) from error
        return file


def _looked_at(entry: os.DirEntry[str]) -> DirectoryEntry | None:
    """Look at an entry of a directory, of whatever kind; None if it has been removed meanwhile."""
    try:
        status = entry.stat()
    except OSError as error:
        if entry.is_symlink():
            oddity = f"a link to {os.readlink(entry.path)} ({error.strerror})"
        elif isinstance(error, FileNotFoundError):
            return None
        else:
            oddity = f"something that cannot be looked at ({error.strerror})"
        return DirectoryEntry(entry.name, False, 0, 0, oddity)
    is_directory = stat.S_ISDIR(status.st_mode)
    oddity = "" if is_directory or stat.S_ISREG(status.st_mode) else _kind_of(status.st_mode)
    return DirectoryEntry(entry.name, is_directory, status.st_size, status.st_mtime_ns // 1_000_000, oddity)


def _kind_of(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a directory"
    if stat.S_ISFIFO(mode):
        return "a pipe"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"


def _in_use(path: str) -> DirectoryLocked:
    return DirectoryLocked(f"{os.path.dirname(path)} is in use by another broker: the lock on {path} is held")
