"""Retention by time and by size: which segments go, and what becomes of their files."""

import errno

import pytest

from storage.errors import DiskFull
from storage.log import Log
from storage.retention import apply_retention
from tests.support.logs import LogHome, T, batch_of, segmented, values_in

DAY_MS = 86_400_000


def removed(log: Log, now_ms: int) -> int:
    return sum(1 for _ in apply_retention(log, now_ms))


def test_segments_go_once_their_newest_record_is_too_old(home: LogHome) -> None:
    log = segmented(home, retention_ms=600_000)
    newest_of_second = T + 3 * 60_000
    assert removed(log, newest_of_second + 600_000) == 1
    assert removed(log, newest_of_second + 600_001) == 1
    assert (log.log_start_offset, log.segments.bases[0]) == (4, 4)
    assert values_in(log)[0] == b"4"


def test_the_active_segment_goes_too_once_all_is_too_old_and_a_new_one_takes_its_place(home: LogHome) -> None:
    log = segmented(home, retention_ms=1000)
    assert removed(log, T + DAY_MS) == 5
    assert log.segments.bases == (10,)
    assert (log.log_start_offset, log.log_end_offset) == (10, 10)
    assert removed(log, T + 2 * DAY_MS) == 0
    assert home.append(log, batch_of(b"new")).first_offset == 10


def test_without_timestamps_the_file_says_how_old_it_is(home: LogHome) -> None:
    log = home.open()
    home.append(log, batch_of(b"a", timestamp=-1))
    log.config = log.config.replace(retention_ms=1000)
    written_ms = home.files.mtime_ms(log.segments.active.log_path)
    assert removed(log, written_ms + 1000) == 0
    assert removed(log, written_ms + 1001) == 1


def test_size_never_falls_below_the_limit(home: LogHome) -> None:
    log = segmented(home)
    log.config = log.config.replace(retention_bytes=log.size // 2)
    before = log.size
    assert removed(log, T) == 2
    assert log.size == before * 3 // 5


def test_nothing_above_the_high_watermark_goes(home: LogHome) -> None:
    log = segmented(home, retention_ms=1)
    log.high_watermark = 5
    assert removed(log, T + DAY_MS) == 2
    assert log.log_start_offset == 4


def test_a_future_timestamp_pins_its_segment_and_all_behind_it(home: LogHome) -> None:
    log = segmented(home, 2, retention_ms=1)
    home.append(log, batch_of(b"future", timestamp=T + 10 * DAY_MS))
    home.append_values(log, b"x", b"y", b"z")
    assert removed(log, T + DAY_MS) == 1


def test_a_compacted_topic_loses_only_what_lies_before_its_start(home: LogHome) -> None:
    log = segmented(home, retention_ms=1, cleanup_policy=frozenset({"compact"}))
    assert removed(log, T + DAY_MS) == 0
    log.start_offset_to(5)
    assert removed(log, T + DAY_MS) == 2
    assert (log.log_start_offset, log.segments.bases[0]) == (5, 4)


def test_removed_files_are_renamed_at_once_and_removed_later(home: LogHome) -> None:
    log = segmented(home, retention_ms=600_000)
    (removal,) = apply_retention(log, T + 60_000 + 600_001)
    names = home.names()
    assert f"{0:020d}.log" not in names
    assert f"{0:020d}.log.deleted" in names
    assert removal.delay_ms == 60_000
    removal.perform()
    assert not [name for name in home.names() if name.endswith(".deleted")]


def test_retention_leaves_the_active_segment_alone_while_it_is_being_written(home: LogHome) -> None:
    log = segmented(home, 9, retention_ms=1)
    log.stage(batch_of(b"x", timestamp=T + DAY_MS), leader_epoch=0)
    assert removed(log, T + DAY_MS) == 4
    assert log.segments.bases == (8,)
    log.append_all(T)
    assert values_in(log) == [b"8", b"x"]


def test_a_full_disk_without_room_for_a_new_active_segment_is_freed_of_all_others(home: LogHome) -> None:
    log = segmented(home, retention_ms=1000)
    home.files.fail("open", errno.ENOSPC, suffix=f"{10:020d}.log")
    assert removed(log, T + DAY_MS) == 4
    assert (log.segments.bases, values_in(log)) == ((8,), [b"8", b"9"])
    assert removed(log, T + DAY_MS) == 1
    assert log.segments.bases == (10,)


def test_where_nothing_can_go_without_room_retention_says_so(home: LogHome) -> None:
    log = segmented(home, 1, retention_ms=1000)
    home.files.fail("open", errno.ENOSPC, suffix=f"{1:020d}.log")
    with pytest.raises(DiskFull):
        apply_retention(log, T + DAY_MS)
    assert values_in(log) == [b"0"]


def test_snapshots_go_with_their_segments(home: LogHome) -> None:
    log = segmented(home, retention_ms=600_000)
    assert f"{2:020d}.snapshot" in home.names()
    for removal in apply_retention(log, T + 3 * 60_000 + 600_001):
        removal.perform()
    assert f"{2:020d}.snapshot" not in home.names()
    assert f"{4:020d}.snapshot" in home.names()
