"""Room for clients: how often the system is asked, when room is refused and given again, and what is said of it."""

import logging
from collections.abc import Iterator

import pytest

from broker.replication.disk_room import GOOD_FOR_MS, RETRY_MS, DiskRoom, NoRoomForClients
from storage.errors import DiskFull
from storage.files import DiskSpace
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


def room_on(disk: Disk, reserve: int = RESERVE) -> DiskRoom:
    return DiskRoom(disk, reserve_bytes=reserve)


def is_refused(room: DiskRoom, size: int, now_ms: int = 0) -> bool:
    try:
        room.take(size, now_ms)
    except NoRoomForClients:
        return True
    return False


def test_a_disk_with_plenty_of_room_is_asked_once_a_second() -> None:
    disk = Disk(usable=8_000 * MB)
    room = room_on(disk)
    for now_ms in range(0, 10 * GOOD_FOR_MS, 10):
        room.take(1000, now_ms)
    assert disk.asked == 10


def test_it_is_asked_again_once_a_quarter_of_what_was_open_has_been_written() -> None:
    disk = Disk(usable=RESERVE + 400 * MB)
    room = room_on(disk)
    for _ in range(100):
        room.take(MB, now_ms=0)
    assert disk.asked == 1
    room.take(MB, now_ms=0)
    assert disk.asked == 2


def test_a_clock_that_jumps_back_is_no_reason_not_to_ask() -> None:
    disk = Disk(usable=8_000 * MB)
    room = room_on(disk)
    room.take(1, now_ms=1_000_000)
    room.take(1, now_ms=5)
    assert disk.asked == 2


def test_appends_never_touch_the_reserve() -> None:
    disk = Disk(usable=RESERVE + 10 * MB)
    room = room_on(disk)
    written = 0
    while not is_refused(room, MB):
        disk.usable -= MB
        written += MB
    assert (written, disk.usable) == (10 * MB, RESERVE)


def test_the_reserve_is_an_eighth_of_a_small_file_system() -> None:
    room = room_on(Disk(total=80 * MB, usable=12 * MB))
    assert not is_refused(room, 2 * MB)
    assert is_refused(room, 3 * MB)


def test_without_a_reserve_only_the_system_refuses() -> None:
    assert not is_refused(room_on(Disk(usable=MB), reserve=0), MB)


def test_a_full_disk_is_said_once_and_asked_again_after_a_while(caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk(usable=RESERVE)
    room = room_on(disk)
    assert all(is_refused(room, 100, now_ms) for now_ms in range(RETRY_MS))
    assert disk.asked == 1
    assert is_refused(room, 100, RETRY_MS)
    assert (disk.asked, room.is_full) == (2, True)
    assert caplog.messages == [
        f"data is full, it takes no more records until there is room: {RESERVE} bytes are free, and {RESERVE} are kept "
        "for the broker itself"
    ]

    disk.usable = RESERVE + 100 * MB
    assert not is_refused(room, 100, 2 * RETRY_MS)

    assert caplog.messages[1:] == [f"data takes records again: {disk.usable} bytes are free"]
    assert not room.is_full


def test_a_full_disk_takes_records_again_only_when_more_than_a_little_is_free(caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk(usable=RESERVE)
    room = room_on(disk)
    assert is_refused(room, 100)
    disk.usable += MB
    assert is_refused(room, 100, 2 * RETRY_MS)
    disk.usable += 4 * MB
    assert not is_refused(room, 100, 4 * RETRY_MS)
    assert len(caplog.messages) == 2


def test_where_the_system_refuses_and_says_that_there_is_room_every_append_has_a_try(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A quota is used up, of which the file system does not know."""
    room = room_on(Disk(usable=8_000 * MB))
    for now_ms in range(5):
        assert not is_refused(room, 100, now_ms)
        room.found_none(DiskFull("writing to orders-0: quota exceeded"))
    assert len(caplog.messages) == 1

    assert not is_refused(room, 100, 6)  # this one is written
    assert not is_refused(room, 100, 7)

    assert [line for line in caplog.messages if "takes records again" in line] == caplog.messages[1:]
    assert not room.is_full


def test_a_refusal_of_our_own_is_no_news() -> None:
    room = room_on(Disk(usable=8_000 * MB))
    room.found_none(NoRoomForClients("data has no room"))
    assert not room.is_full
