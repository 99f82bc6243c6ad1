"""The simulated disk: what a process sees of it, and what is left after a power cut."""

from __future__ import annotations

from random import Random

import pytest

from storage.errors import DirectoryLocked, DiskFull
from storage.files import File
from tests.simulation.disk import MachineOff, SimulatedDisk, SimulatedFileSystem
from tests.simulation.loop import SimulatedLoop
from tests.simulation.trace import Trace

SEEDS = range(60)


def new_disk() -> SimulatedDisk:
    return SimulatedDisk("machine", Trace(SimulatedLoop()), lambda: 1_700_000_000_000)


def written(files: SimulatedFileSystem, path: str, data: bytes) -> File:
    file = files.open_log(path, create=True)
    file.pwrite(data, 0)
    return file


def test_what_is_written_is_read_and_what_is_beyond_reads_as_zeros() -> None:
    files = SimulatedFileSystem(new_disk())
    file = written(files, "/log", b"abc")
    file.pwrite(b"z", 5)
    file.truncate(8)
    assert file.pread(100, 0) == b"abc\0\0z\0\0"
    assert file.pread_in_memory(9, 0) is None
    file.truncate(2)
    assert files.read_file("/log") == b"ab"
    assert [(one.name, one.size) for one in files.list_directory("/")] == [("log", 2)]


def test_a_killed_process_leaves_everything_and_its_lock_is_free() -> None:
    disk = new_disk()
    files = SimulatedFileSystem(disk)
    file = written(files, "/log", b"abc")
    files.lock("/.lock")
    with pytest.raises(DirectoryLocked):
        SimulatedFileSystem(disk).lock("/.lock")
    files.die()
    with pytest.raises(MachineOff):
        file.pwrite(b"from the dead", 0)
    heir = SimulatedFileSystem(disk)
    heir.lock("/.lock")
    assert heir.read_file("/log") == b"abc"


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_synced_survives_a_power_cut(seed: int) -> None:
    disk = new_disk()
    files = SimulatedFileSystem(disk)
    files.make_directory("/data")
    files.fsync_directory("/")
    file = written(files, "/data/log", b"synced")
    file.fsync()
    files.fsync_directory("/data")
    file.pwrite(b"not synced", 6)
    written(files, "/data/other", b"no name")
    disk.cut_power(Random(seed))
    left = SimulatedFileSystem(disk)
    assert left.read_file("/data/log").startswith(b"synced")


def left_after(seed: int, *, syncs_name: bool) -> bytes | None:
    disk = new_disk()
    files = SimulatedFileSystem(disk)
    file = written(files, "/log", b"first")
    file.fsync()
    if syncs_name:
        files.fsync_directory("/")
    file.truncate(0)
    file.pwrite(b"second one", 0)
    disk.cut_power(Random(seed))
    left = SimulatedFileSystem(disk)
    return left.read_file("/log") if left.exists("/log") else None


def test_what_was_not_synced_survives_in_some_runs_in_part_and_in_others_not_at_all() -> None:
    left = {left_after(seed, syncs_name=True) for seed in SEEDS}
    assert {b"first", b"", b"second one"} <= left
    assert None not in left
    assert {None, b"first"} <= {left_after(seed, syncs_name=False) for seed in SEEDS}


def test_a_preallocated_file_keeps_its_length_in_some_runs() -> None:
    sizes: set[int] = set()
    for seed in SEEDS:
        disk = new_disk()
        files = SimulatedFileSystem(disk)
        file = files.open_log("/index", create=True)
        files.fsync_directory("/")
        file.truncate(10 << 20)
        file.pwrite(b"entry", 0)
        disk.cut_power(Random(seed))
        sizes.add(SimulatedFileSystem(disk).size("/index"))
    assert {0, 10 << 20} <= sizes


def test_what_a_failed_sync_gave_up_is_not_on_the_disk_after_the_next_sync() -> None:
    disk = new_disk()
    files = SimulatedFileSystem(disk)
    file = written(files, "/log", b"....")
    file.fsync()
    files.fsync_directory("/")
    file.pwrite(b"lost", 0)
    disk.failing = "log"
    with pytest.raises(Exception, match="flushing /log"):
        file.fsync()
    disk.failing = None
    file.pwrite(b"kept", 4)
    file.fsync()
    assert file.pread(8, 0) == b"lostkept"
    disk.cut_power(Random(1))
    assert SimulatedFileSystem(disk).read_file("/log") == b"....kept"


def test_a_full_disk_takes_a_part() -> None:
    disk = new_disk()
    files = SimulatedFileSystem(disk)
    file = files.open_log("/log", create=True)
    disk.bytes_left = 2
    with pytest.raises(DiskFull):
        file.pwrite(b"abc", 0)
    assert files.read_file("/log") == b"ab"
