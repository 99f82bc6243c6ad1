"""File systems, and sandboxes, that do not have every call, or answer one in a way of their own."""

import errno
import fcntl
import mmap
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

import storage.files
from storage.errors import DirectoryLocked, FileTooLarge, LogDirFailed, StorageError, TooManyOpenFiles
from storage.file_info import DiskSpace
from storage.files import FileSystem
from storage.index.offset_index import OffsetIndex
from storage.open_files import OpenFiles

FILES = FileSystem()
MISSING = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)

pytestmark = pytest.mark.sources_only


def refusing(number: int) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    return refuse


@pytest.mark.parametrize("number", [errno.ENODEV, errno.EACCES, errno.EPERM, errno.ENOMEM, errno.EAGAIN, *MISSING])
def test_where_no_file_can_be_mapped_indexes_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(storage.files.mmap, "mmap", refusing(number))
    index = OffsetIndex(FILES, OpenFiles(4), str(tmp_path / "x.index"), base_offset=0, max_bytes=64_000, file_bytes=0)
    index.create()
    known: list[tuple[int, int]] = []
    chance = random.Random(7)
    for round_number in range(300):
        offset = known[-1][0] + 10 if known else 10
        known.append((offset, offset * 7))
        index.append(offset, offset * 7)
        assert index.lookup(offset + 5) == known[-1]
        assert index.lookup(known[len(known) // 2][0]) == known[len(known) // 2]
        if round_number % 50 == 49:
            keep = chance.randrange(1, len(known))
            index.cut(keep)
            del known[keep:]
    index.trim()
    assert index.lookup(1 << 30) == known[-1]


def test_a_map_that_fails_for_another_reason_fails_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    monkeypatch.setattr(storage.files.mmap, "mmap", refusing(errno.EIO))

    with pytest.raises(LogDirFailed, match="mapping"):
        FILES.open_read(str(tmp_path / "a")).map_read_only()


@pytest.mark.parametrize("number", [*MISSING, errno.ESPIPE, errno.EIO])
def test_to_read_ahead_is_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(os, "posix_fadvise", refusing(number), raising=False)
    (tmp_path / "a").write_bytes(b"abc")

    FILES.open_read(str(tmp_path / "a")).will_need(3, 0)


@pytest.mark.parametrize("number", [errno.EBADF, errno.EISDIR, *MISSING])
def test_where_a_directory_cannot_be_synced_its_files_still_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", refusing(number))
    monkeypatch.setattr(os, "fdatasync", synced.append, raising=False)

    FILES.replace_atomically(str(tmp_path / "a"), b"abc", fsync=True)

    assert (tmp_path / "a").read_bytes() == b"abc"
    assert len(synced) == 1


def test_a_directory_whose_sync_fails_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", refusing(errno.EIO))

    with pytest.raises(LogDirFailed, match="flushing"):
        FILES.fsync_directory(str(tmp_path))


@pytest.mark.parametrize("number", MISSING)
def test_without_fdatasync_a_file_is_synced_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", refusing(number), raising=False)
    monkeypatch.setattr(os, "fsync", synced.append)
    file = FILES.open_log(str(tmp_path / "a"), create=True)

    file.fsync()
    assert synced == [file.fileno()]

    monkeypatch.setattr(os, "fsync", refusing(number))
    with pytest.raises(LogDirFailed, match="flushing"):
        file.fsync()


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.EOVERFLOW, *MISSING])
def test_a_file_system_that_does_not_tell_its_size_has_none(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(os, "statvfs", refusing(number))

    assert FILES.space("/") == DiskSpace(0, 0)


def test_without_ctypes_nothing_is_preallocated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage.files._fallocate.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "ctypes", None)
    file = FILES.open_log(str(tmp_path / "a"), create=True)

    file.reserve(0, 1 << 20)

    assert file.size == 0
    monkeypatch.undo()
    storage.files._fallocate.cache_clear()


def test_a_directory_of_a_containers_image_is_moved_file_by_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """overlayfs renames no directory of a lower layer (EXDEV)."""
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / "0.log").write_bytes(b"records")
    (tmp_path / "orders-0" / "0.index").write_bytes(b"")
    replace = os.replace

    def of_overlayfs(path: str, new_path: str) -> None:
        if os.path.isdir(path):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        replace(path, new_path)

    monkeypatch.setattr(os, "replace", of_overlayfs)

    FILES.rename(str(tmp_path / "orders-0"), str(tmp_path / "orders-0.x-delete"))

    assert [path.name for path in tmp_path.iterdir()] == ["orders-0.x-delete"]
    assert (tmp_path / "orders-0.x-delete" / "0.log").read_bytes() == b"records"


def test_what_nfs_keeps_of_an_open_file_is_left_for_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS renames an open file to `.nfs…` where it should remove it, and refuses to remove that, and its directory."""
    doomed = tmp_path / "orders-0.x-delete"
    doomed.mkdir()
    (doomed / "0.log").touch()
    (doomed / ".nfs0001").touch()
    unlink = os.unlink

    def of_nfs(path: str) -> None:
        if ".nfs" in path:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        unlink(path)

    monkeypatch.setattr(os, "unlink", of_nfs)
    FILES.remove_tree(str(doomed))
    assert [path.name for path in doomed.iterdir()] == [".nfs0001"]
    monkeypatch.undo()

    FILES.remove_tree(str(doomed))
    assert not doomed.exists()


def test_what_cannot_be_removed_for_another_reason_fails_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").touch()
    monkeypatch.setattr(os, "unlink", refusing(errno.EIO))

    with pytest.raises(LogDirFailed, match="removing"):
        FILES.remove_tree(str(tmp_path / "a"))


class Nfs:
    """fcntl for which flock is a record lock of the whole file, as on NFS."""

    def __init__(self, *, is_taken_by_others: bool = False) -> None:
        self.flocked: set[int] = set()
        self.locked: set[int] = set()
        self.is_taken_by_others = is_taken_by_others

    def flock(self, fd: int, operation: int) -> None:
        if operation & fcntl.LOCK_UN:
            self.flocked.discard(fd)
        else:
            self.flocked.add(fd)

    def lockf(self, fd: int, operation: int) -> None:
        if self.flocked or self.is_taken_by_others:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        self.locked.add(fd)


def test_where_two_kinds_of_locks_are_one_the_second_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nfs = Nfs()
    monkeypatch.setattr(fcntl, "flock", nfs.flock)
    monkeypatch.setattr(fcntl, "lockf", nfs.lockf)

    lock = FILES.lock(str(tmp_path / ".lock"))

    assert nfs.locked
    lock.release()


def test_a_lock_of_another_process_is_one_there_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nfs = Nfs(is_taken_by_others=True)
    monkeypatch.setattr(fcntl, "flock", nfs.flock)
    monkeypatch.setattr(fcntl, "lockf", nfs.lockf)

    with pytest.raises(DirectoryLocked):
        FILES.lock(str(tmp_path / ".lock"))


def a_second_process_gets(path: Path) -> str:
    """What another process hears that wants both locks."""
    program = (
        "import sys\nfrom storage.files import FileSystem\n"
        f"try:\n  FileSystem().lock({str(path)!r})\nexcept Exception as error:\n  print(type(error).__name__)"
    )
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("kind", ["flock", "lockf"])
@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EPERM, *MISSING])
def test_one_of_the_two_kinds_of_locks_suffices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, number: int
) -> None:
    monkeypatch.setattr(fcntl, kind, refusing(number))

    lock = FILES.lock(str(tmp_path / ".lock"))

    assert a_second_process_gets(tmp_path / ".lock") == "DirectoryLocked"
    lock.release()


def test_where_there_are_no_locks_at_all_no_directory_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", refusing(errno.ENOLCK))
    monkeypatch.setattr(fcntl, "lockf", refusing(errno.ENOLCK))

    with pytest.raises(LogDirFailed, match="locking"):
        FILES.lock(str(tmp_path / ".lock"))


def test_a_file_is_read_to_its_end_though_a_read_gives_less_than_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FUSE may do so; a walk over batches would take it for the end of the log, and cut there."""
    (tmp_path / "a").write_bytes(b"0123456789")
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, position: pread(fd, min(size, 3), position))
    file = FILES.open_read(str(tmp_path / "a"))

    assert [file.pread(10, 0), file.pread(4, 5), file.pread(50, 8), file.pread(5, 10)] == [
        b"0123456789", b"5678", b"89", b"",
    ]  # fmt: skip


def test_a_write_that_takes_nothing_and_gives_no_reason_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = FILES.open_log(str(tmp_path / "a"), create=True)
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    monkeypatch.setattr(os, "pwritev", lambda *_: 0)

    with pytest.raises(LogDirFailed, match="the system writes nothing"):
        file.pwrite(b"abc", 0)
    with pytest.raises(LogDirFailed, match="the system writes nothing"):
        file.append_vector([b"abc", b"def"], 0)


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.EFBIG, FileTooLarge), (errno.ENOMEM, TooManyOpenFiles), (errno.EROFS, LogDirFailed)],
)
def test_a_write_that_another_file_or_another_moment_would_take_fails_no_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[StorageError]
) -> None:
    file = FILES.open_log(str(tmp_path / "a"), create=True)
    monkeypatch.setattr(os, "pwrite", refusing(number))

    with pytest.raises(kind) as failed:
        file.pwrite(b"abc", 0)
    assert type(failed.value) is kind


def test_a_file_system_that_gives_a_file_a_new_number_each_time_is_locked_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os.path, "samestat", lambda one, other: False)

    FILES.lock(str(tmp_path / ".lock")).release()


def test_indexes_are_mapped_where_that_is_possible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mapped: list[Any] = []
    make = mmap.mmap

    def counting(*arguments: Any, **options: Any) -> mmap.mmap:
        mapped.append(arguments)
        return make(*arguments, **options)

    monkeypatch.setattr(storage.files.mmap, "mmap", counting)
    index = OffsetIndex(FILES, OpenFiles(4), str(tmp_path / "x.index"), base_offset=0, max_bytes=64_000, file_bytes=0)
    index.create()
    for offset in range(1, 500):
        index.append(offset, offset)
    assert [index.lookup(offset)[0] for offset in (1, 250, 499)] == [1, 250, 499]
    assert len(mapped) == 1
