"""The disk reserve: when free space is asked for, when appends are refused and accepted again, what is logged."""

import logging
from collections.abc import Iterator

import pytest

from broker.replication.disk_reserve import GOOD_FOR_MS, RETRY_MS, DiskReserve, NoSpaceForClients
from storage.errors import DiskFull
from storage.file_info import DiskSpace
from storage.log_dir import LogDir

MB = 1 << 20
RESERVE = 64 * MB


class Disk(LogDir):
    """A directory whose file system is as large, and as full, as the test says."""

    def __init__(self, *, total: int = 10_000 * MB, usable: int) -> None:
        self.path = "data"
        self.total = total
        self.usable = usable
        self.asked = 0

    def space(self) -> DiskSpace:
        self.asked += 1
        return DiskSpace(self.total, self.usable)


@pytest.fixture(autouse=True)
def all_lines(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.INFO):
        yield


def reserve_of(disk: Disk, reserve: int = RESERVE) -> DiskReserve:
    return DiskReserve(disk, reserve_bytes=reserve)


def is_refused(disk_reserve: DiskReserve, size: int, now_ms: int = 0) -> bool:
    try:
        disk_reserve.take(size, now_ms)
    except NoSpaceForClients:
        return True
    return False


def test_a_disk_with_plenty_of_free_space_is_asked_once_a_second() -> None:
    disk = Disk(usable=8_000 * MB)
    disk_reserve = reserve_of(disk)
    for now_ms in range(0, 10 * GOOD_FOR_MS, 10):
        disk_reserve.take(1000, now_ms)
    assert disk.asked == 10


def test_a_file_system_that_does_not_tell_its_size_takes_everything() -> None:
    disk = Disk(total=0, usable=0)
    disk_reserve = reserve_of(disk)
    for now_ms in range(0, 10 * GOOD_FOR_MS, 10):
        disk_reserve.take(1 << 20, now_ms)
    assert disk.asked == 10


def test_it_is_asked_again_once_a_quarter_of_what_was_open_has_been_written() -> None:
    disk = Disk(usable=RESERVE + 400 * MB)
    disk_reserve = reserve_of(disk)
    for _ in range(100):
        disk_reserve.take(MB, now_ms=0)
    assert disk.asked == 1
    disk_reserve.take(MB, now_ms=0)
    assert disk.asked == 2


def test_a_clock_that_jumps_back_is_no_reason_not_to_ask() -> None:
    disk = Disk(usable=8_000 * MB)
    disk_reserve = reserve_of(disk)
    disk_reserve.take(1, now_ms=1_000_000)
    disk_reserve.take(1, now_ms=5)
    assert disk.asked == 2


def test_appends_never_touch_the_reserve() -> None:
    disk = Disk(usable=RESERVE + 10 * MB)
    disk_reserve = reserve_of(disk)
    written = 0
    while not is_refused(disk_reserve, MB):
        disk.usable -= MB
        written += MB
    assert (written, disk.usable) == (10 * MB, RESERVE)


def test_the_reserve_is_an_eighth_of_a_small_file_system() -> None:
    disk_reserve = reserve_of(Disk(total=80 * MB, usable=12 * MB))
    assert not is_refused(disk_reserve, 2 * MB)
    assert is_refused(disk_reserve, 3 * MB)


def test_without_a_reserve_only_the_system_refuses() -> None:
    assert not is_refused(reserve_of(Disk(usable=MB), reserve=0), MB)


def test_a_full_disk_is_said_once_and_asked_again_after_a_while(caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk(usable=RESERVE)
    disk_reserve = reserve_of(disk)
    assert all(is_refused(disk_reserve, 100, now_ms) for now_ms in range(RETRY_MS))
    assert disk.asked == 1
    assert is_refused(disk_reserve, 100, RETRY_MS)
    assert (disk.asked, disk_reserve.is_full) == (2, True)
    assert caplog.messages == [
        f"data is full, it takes no records until space is freed: {RESERVE} bytes are free, and {RESERVE} are the "
        "reserve of the broker"
    ]

    disk.usable = RESERVE + 100 * MB
    assert not is_refused(disk_reserve, 100, 2 * RETRY_MS)

    assert caplog.messages[1:] == [f"data takes records again: {disk.usable} bytes are free"]
    assert not disk_reserve.is_full


def test_a_full_disk_takes_records_again_only_when_more_than_a_little_is_free(caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk(usable=RESERVE)
    disk_reserve = reserve_of(disk)
    assert is_refused(disk_reserve, 100)
    disk.usable += MB
    assert is_refused(disk_reserve, 100, 2 * RETRY_MS)
    disk.usable += 4 * MB
    assert not is_refused(disk_reserve, 100, 4 * RETRY_MS)
    assert len(caplog.messages) == 2


def test_where_the_system_refuses_and_says_that_there_is_space_every_append_has_a_try(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A quota is used up, of which the file system does not know."""
    disk_reserve = reserve_of(Disk(usable=8_000 * MB))
    for now_ms in range(5):
        assert not is_refused(disk_reserve, 100, now_ms)
        disk_reserve.found_full(DiskFull("writing to orders-0: quota exceeded"))
    assert len(caplog.messages) == 1

    assert not is_refused(disk_reserve, 100, 6)  # this one is written
    assert not is_refused(disk_reserve, 100, 7)

    assert [line for line in caplog.messages if "takes records again" in line] == caplog.messages[1:]
    assert not disk_reserve.is_full


def test_a_refusal_of_our_own_is_no_news() -> None:
    disk_reserve = reserve_of(Disk(usable=8_000 * MB))
    disk_reserve.found_full(NoSpaceForClients("data has no space"))
    assert not disk_reserve.is_full
