"""Files, regions and locks, on the machine's own file system."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from storage.errors import DirectoryLocked, LogDirFailed
from storage.files import FileRegion, FileSystem

FILES = FileSystem()
CAN_TELL = hasattr(os, "RWF_NOWAIT")


def open_descriptors() -> int:
    return len(os.listdir("/dev/fd"))


def test_a_file_closes_when_its_last_holder_lets_go(tmp_path: Path) -> None:
    before = open_descriptors()
    file = FILES.open_log(str(tmp_path / "a"), create=True)
    region = FileRegion(file, 0, 3)
    file.pwrite(b"abcdef", 0)
    del file
    FILES.remove(str(tmp_path / "a"))
    assert region.read() == b"abc"
    assert len(region) == 3
    assert open_descriptors() == before + 1
    del region
    assert open_descriptors() == before


def test_a_vector_longer_than_the_system_takes_is_written_whole(tmp_path: Path) -> None:
    file = FILES.open_log(str(tmp_path / "a"), create=True)
    parts = [b"%05d" % number for number in range(5000)]
    assert file.append_vector(parts, 7) == 25_000
    assert file.pread(30_000, 7) == b"".join(parts)


def test_what_is_in_memory_is_read_like_anything_else_and_what_the_file_has_not_is_not_in_memory(
    tmp_path: Path,
) -> None:
    file = FILES.open_log(str(tmp_path / "a"), create=True)
    file.pwrite(b"abcdef", 0)
    assert file.pread_in_memory(3, 2) == b"cde"
    assert file.pread_in_memory(0, 6) == b""
    file.will_need(4096, 0)
    if CAN_TELL:
        assert file.pread_in_memory(3, 4) is None


@pytest.mark.skipif(not CAN_TELL, reason="the system has no RWF_NOWAIT")
@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EPERM, errno.EACCES])
def test_where_the_file_system_cannot_tell_what_is_in_memory_it_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    asked = []

    def unsupported(fd: int, buffers: object, offset: int, flags: int) -> int:
        asked.append(offset)
        raise OSError(number, os.strerror(number))

    file = FILES.open_log(str(tmp_path / "a"), create=True)
    file.pwrite(b"abcdef", 0)
    monkeypatch.setattr(os, "preadv", unsupported)
    assert [file.pread_in_memory(2, position) for position in (0, 2, 4)] == [b"ab", b"cd", b"ef"]
    assert asked == [0]


@pytest.mark.skipif(not CAN_TELL, reason="the system has no RWF_NOWAIT")
@pytest.mark.parametrize(("number", "expected"), [(errno.EAGAIN, None), (errno.EIO, LogDirFailed)])
def test_what_would_have_to_wait_is_not_in_memory_and_a_broken_disk_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, expected: type[Exception] | None
) -> None:
    def failing(fd: int, buffers: object, offset: int, flags: int) -> int:
        raise OSError(number, os.strerror(number))

    file = FILES.open_log(str(tmp_path / "a"), create=True)
    monkeypatch.setattr(os, "preadv", failing)
    if expected is None:
        assert file.pread_in_memory(2, 0) is None
    else:
        with pytest.raises(expected, match=r"reading .*: Input/output error"):
            file.pread_in_memory(2, 0)


def test_a_log_file_is_made_once(tmp_path: Path) -> None:
    FILES.open_log(str(tmp_path / "a"), create=True)
    with pytest.raises(LogDirFailed, match=r"opening .*: File exists"):
        FILES.open_log(str(tmp_path / "a"), create=True)
    with pytest.raises(FileNotFoundError):
        FILES.open_log(str(tmp_path / "b"))


def test_an_empty_file_has_no_map(tmp_path: Path) -> None:
    file = FILES.open_log(str(tmp_path / "a"), create=True)
    assert file.map_read_only() is None
    file.pwrite(b"abc", 0)
    mapped = file.map_read_only()
    assert mapped is not None
    file.pwrite(b"X", 1)
    assert mapped[:] == b"aXc"
    with pytest.raises(TypeError):
        mapped[0] = 1


def test_a_directory_is_listed_by_name_and_removed_with_all_that_is_in_it(tmp_path: Path) -> None:
    FILES.make_directory(str(tmp_path / "d" / "e"))
    (tmp_path / "d" / "b").write_bytes(b"12345")
    listed = FILES.list_directory(str(tmp_path / "d"))
    assert [(entry.name, entry.is_directory, entry.size) for entry in listed if not entry.is_directory] == [
        ("b", False, 5)
    ]
    assert [entry.name for entry in listed] == ["b", "e"]
    FILES.remove_tree(str(tmp_path / "d"))
    FILES.remove_tree(str(tmp_path / "d"))
    assert not FILES.exists(str(tmp_path / "d"))


def test_a_lock_excludes_others_in_this_process(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    lock = FILES.lock(path)
    with pytest.raises(DirectoryLocked, match="is in use by another broker"):
        FILES.lock(path)
    lock.release()
    assert not FILES.exists(path)
    FILES.lock(path).release()


def test_a_directory_that_is_only_read_is_kept_free_of_brokers(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    assert FILES.lock_for_reading(path) is None
    assert not FILES.exists(path)
    lock = FILES.lock(path)
    with pytest.raises(DirectoryLocked, match="is in use by another broker"):
        FILES.lock_for_reading(path)
    lock.release()
    (tmp_path / ".lock").touch()
    readers = [FILES.lock_for_reading(path), FILES.lock_for_reading(path)]
    assert all(readers)
    with pytest.raises(DirectoryLocked):
        FILES.lock(path)
    readers.clear()
    FILES.lock(path).release()


def test_a_lock_excludes_other_processes_that_take_posix_locks_as_kafka_does(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    lock = FILES.lock(str(path))
    attempt = "import fcntl, sys; file = open(sys.argv[1], 'r+b'); fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)"
    other = subprocess.run([sys.executable, "-c", attempt, str(path)], capture_output=True, check=False)
    assert other.returncode == 1
    assert b"BlockingIOError" in other.stderr
    lock.release()
    holding = (
        "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.lockf(file, fcntl.LOCK_EX)\n"
        "print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen([sys.executable, "-c", holding, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdin is not None
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(DirectoryLocked):
        FILES.lock(str(path))
    holder.stdin.close()
    holder.stdout.close()
    holder.wait()
    FILES.lock(str(path)).release()


@pytest.mark.parametrize("moment", ["rename", "fsync_directory"])
def test_a_directory_that_goes_while_a_file_in_it_is_replaced_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    files = FileSystem()
    original = getattr(files, moment)

    def after_it_is_gone(*paths: str) -> None:
        shutil.rmtree(tmp_path / "data")
        original(*paths)

    (tmp_path / "data").mkdir()
    monkeypatch.setattr(files, moment, after_it_is_gone)
    with pytest.raises(LogDirFailed, match="data is gone: another process has removed it"):
        files.replace_atomically(str(tmp_path / "data" / "checkpoint"), b"0", fsync=True)
