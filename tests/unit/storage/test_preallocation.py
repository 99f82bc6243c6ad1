"""Preallocation behind a log's end: how much, when it is given back, and that no reader sees it."""

import os
import sys
from pathlib import Path

import pytest

from storage.files import FileSystem
from storage.log import Log
from storage.preallocation import PREALLOCATES_FROM, preallocated_bytes
from tests.support.logs import LogHome

MB = 1 << 20
VALUE = b"x" * (MB // 2)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="fallocate is Linux's")


def allocated(path: str | Path) -> int:
    """Bytes that the file system has set aside for a file."""
    return os.stat(path).st_blocks * 512


@pytest.fixture
def large(home: LogHome) -> Log:
    """A log that has grown beyond the size from which on disk space is preallocated."""
    home.config = home.config.replace(segment_bytes=64 * MB, segment_index_bytes=MB)
    log = home.open()
    while log.segments.active.size <= PREALLOCATES_FROM:
        home.append_values(log, VALUE)
    home.append_values(log, VALUE)
    return log


def test_blocks_are_reserved_without_a_change_of_length(tmp_path: Path) -> None:
    file = FileSystem().open_log(str(tmp_path / "log"), create=True)
    file.pwrite(b"abc", 0)
    file.reserve(3, MB)
    assert (file.size, file.reserved_to) == (3, 3 + MB)
    assert allocated(file.path) >= MB
    file.pwrite(b"def", 3)
    assert Path(file.path).read_bytes() == b"abcdef"


def test_what_is_reserved_goes_with_the_next_truncation(tmp_path: Path) -> None:
    file = FileSystem().open_log(str(tmp_path / "log"), create=True)
    file.pwrite(b"abc", 0)
    file.reserve(3, MB)
    file.truncate(3)
    assert (file.size, file.reserved_to) == (3, 0)
    assert allocated(file.path) < MB


def test_a_failed_preallocation_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"abc")
    file = FileSystem().open_read(str(tmp_path / "log"))
    file.reserve(3, MB)
    assert allocated(file.path) < MB


def test_nothing_is_reserved_on_a_disk_that_fills_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = FileSystem().open_log(str(tmp_path / "log"), create=True)
    file.pwrite(b"abc", 0)
    free = FileSystem().space(str(tmp_path)).usable_bytes
    monkeypatch.setattr("storage.files._LEFT_TO_OTHERS", free)
    file.reserve(3, MB)
    assert allocated(file.path) < MB
    assert file.reserved_to == 3 + MB, "asked again a megabyte later"


def test_a_small_log_takes_what_it_has_and_nothing_more(home: LogHome) -> None:
    home.config = home.config.replace(segment_bytes=64 * MB)
    log = home.open()
    home.append_values(log, VALUE, VALUE)
    assert allocated(log.segments.active.log_path) < 2 * len(VALUE) + MB // 2


def test_a_growing_log_is_a_sixteenth_ahead_at_most(home: LogHome, large: Log) -> None:
    segment = large.segments.active
    ahead = allocated(segment.log_path) - segment.size
    assert MB // 4 < ahead <= preallocated_bytes(segment.size) + MB // 4
    assert os.path.getsize(segment.log_path) == segment.size
    assert [preallocated_bytes(size * MB) // MB for size in (4, 16, 32, 64, 1024)] == [1, 1, 2, 4, 4]


def test_a_full_segment_gives_back_its_preallocated_space(home: LogHome, large: Log) -> None:
    path = large.segments.active.log_path
    home.config = large.config = large.config.replace(segment_bytes=5 * MB)
    home.append_values(large, VALUE)
    assert len(large.segments) == 2
    assert allocated(path) < os.path.getsize(path) + MB // 4


def test_a_clean_stop_gives_it_back_also_after_a_crash(home: LogHome, large: Log) -> None:
    path = large.segments.active.log_path
    content = Path(path).read_bytes()
    large.abandon()
    assert allocated(path) > os.path.getsize(path) + MB // 4
    again = home.open()
    again.settle()
    assert allocated(path) < os.path.getsize(path) + MB // 4
    assert Path(path).read_bytes() == content
