"""Writes that fail at every point: what is cut off, what stays, what can be done next."""

import errno

import pytest

from storage.errors import DiskFull, FileTooLarge, LogDirFailed, StorageError, TooManyOpenFiles
from storage.log import Log
from tests.support.logs import LogHome, T, batch_of, headers_in, values_in


def try_write(log: Log) -> tuple[list[int], StorageError]:
    """Begin and perform the next write, which fails; the first offsets that were taken back, and why."""
    write = None
    try:
        write = log.begin_write(T)
        assert write is not None
        write.perform()
    except StorageError as error:
        return [staged.first_offset for staged in log.fail_write(write, error)], error
    raise AssertionError("the write did not fail")


@pytest.mark.parametrize("bytes_done", [0, 1, 30, 61, 100, 138])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_costs_the_batch_and_nothing_else(home: LogHome, number: int, bytes_done: int) -> None:
    log = home.open()
    home.append_values(log, b"before")
    before = home.bytes_of("00000000000000000000.log")
    log.stage(batch_of(b"a" * 70), leader_epoch=0)

    home.files.fail("write", number, suffix=".log", bytes_done=bytes_done)
    failed, error = try_write(log)
    assert failed == [1]
    assert isinstance(error, DiskFull)
    assert "No space left" in str(error) or "quota" in str(error)
    assert home.bytes_of("00000000000000000000.log") == before
    assert log.log_end_offset == 1

    assert home.append(log, batch_of(b"after")).first_offset == 1
    assert values_in(log) == [b"before", b"after"]


@pytest.mark.parametrize("bytes_done", [0, 30, 138])
def test_a_segment_that_may_not_become_larger_is_followed_by_another(home: LogHome, bytes_done: int) -> None:
    log = home.open()
    home.append_values(log, b"before")
    log.stage(batch_of(b"a" * 70), leader_epoch=0)

    home.files.fail("write", errno.EFBIG, suffix=".log", bytes_done=bytes_done)
    failed, error = try_write(log)
    assert failed == [1]
    assert isinstance(error, FileTooLarge)

    assert home.append(log, batch_of(b"after")).first_offset == 1
    home.append_values(log, b"and", b"on")
    assert [segment.base_offset for segment in log.segments] == [0, 1], "one new segment, not one for each batch"
    assert values_in(log) == [b"before", b"after", b"and", b"on"]


def test_a_batch_that_no_segment_can_hold_is_refused_again_and_again(home: LogHome) -> None:
    log = home.open()
    for _ in range(3):
        log.stage(batch_of(b"a"), leader_epoch=0)
        home.files.fail("write", errno.EFBIG, suffix=".log")
        failed, _ = try_write(log)
        assert failed == [0]
    assert [segment.base_offset for segment in log.segments] == [0]
    home.append_values(log, b"small")


def test_what_is_staged_behind_a_failed_write_fails_with_it(home: LogHome) -> None:
    log = home.open()
    log.stage(batch_of(b"a"), leader_epoch=0)
    write = log.begin_write(T)
    assert write is not None
    log.stage(batch_of(b"b"), leader_epoch=0)

    failed = log.fail_write(write, DiskFull("full"))
    assert [s.first_offset for s in failed] == [0, 1]
    assert log.staged == []
    assert log.begin_write(T) is None
    assert home.append(log, batch_of(b"c")).first_offset == 0


def test_producers_are_as_they_were_before_a_failed_write(home: LogHome) -> None:
    log = home.open()
    home.append(log, batch_of(b"a", producer_id=7, sequence=0))
    before = dict(log.producers.entries)
    log.stage(batch_of(b"b", producer_id=7, sequence=1), leader_epoch=0)
    log.stage(batch_of(b"c", producer_id=7, sequence=2), leader_epoch=0)
    log.stage(batch_of(b"d", producer_id=8, sequence=0), leader_epoch=0)

    home.files.fail("write", suffix=".log")
    failed, error = try_write(log)
    assert len(failed) == 3
    assert isinstance(error, LogDirFailed)
    assert log.producers.entries == before
    home.append(log, batch_of(b"b", producer_id=7, sequence=1))


def test_a_duplicate_fails_with_the_original_it_stands_behind(home: LogHome) -> None:
    log = home.open()
    original = log.stage(batch_of(b"a", producer_id=7), leader_epoch=0)
    repeated = log.stage(batch_of(b"a", producer_id=7), leader_epoch=0)
    assert repeated.is_duplicate
    home.files.fail("write", errno.ENOSPC, suffix=".log")
    write = log.begin_write(T)
    assert write is not None
    with pytest.raises(DiskFull) as caught:
        write.perform()
    assert log.fail_write(write, caught.value) == [original, repeated]
    assert home.append(log, batch_of(b"a", producer_id=7)).is_duplicate is False


@pytest.mark.parametrize(
    ("operation", "suffix"),
    [("open", "01.log"), ("open", "01.index"), ("open", "01.timeindex"), ("truncate", "01.index"),
     ("truncate", "01.timeindex"), ("write", "00.timeindex"), ("truncate", "00.index"), ("write", "01.snapshot.tmp")],
)  # fmt: skip
@pytest.mark.parametrize(
    ("number", "kind"), [(errno.ENOSPC, DiskFull), (errno.EMFILE, TooManyOpenFiles), (errno.EIO, LogDirFailed)]
)
def test_a_roll_that_fails_leaves_the_log_as_it_was(
    home: LogHome, operation: str, suffix: str, number: int, kind: type[StorageError]
) -> None:
    size = batch_of(b"a").header.size
    home.config = home.config.replace(segment_bytes=size)
    log = home.open()
    home.append_values(log, b"a")
    log.stage(batch_of(b"b"), leader_epoch=0)

    home.files.fail(operation, number, suffix=suffix)
    failed, error = try_write(log)
    assert failed == [1]
    assert type(error) is kind
    assert log.segments.bases == (0,)
    assert "00000000000000000001.log" not in home.names()

    if kind is not LogDirFailed:
        home.append_values(log, b"b", b"c")
        assert log.segments.bases == (0, 1, 2)
        log.close(T)
        assert values_in(home.open(clean=True)) == [b"a", b"b", b"c"]


ENTRIES_IN_ONE_WRITE = 64


def test_a_disk_without_room_for_an_index_entry_takes_the_batch_all_the_same(home: LogHome) -> None:
    log = home.open()
    log.config = log.config.with_overrides({"index.interval.bytes": "0"})
    home.append_values(log, b"a")
    log.roll(T)
    home.append_values(log, *[b"b"] * ENTRIES_IN_ONE_WRITE)
    assert log.segments.active.offset_index.entries == ENTRIES_IN_ONE_WRITE - 1, "the first batch has none"
    home.files.fail("write", errno.ENOSPC, suffix=".index")
    home.append_values(log, b"c")
    assert log.segments.active.index_entries_skipped == 1
    assert log.segments.active.offset_index.entries == ENTRIES_IN_ONE_WRITE - 1
    home.append_values(log, b"d")
    assert log.segments.active.offset_index.entries == ENTRIES_IN_ONE_WRITE
    stored = headers_in(home.bytes_of("00000000000000000001.log"))
    assert [h.base_offset for h in stored] == list(range(1, ENTRIES_IN_ONE_WRITE + 3))
    assert values_in(log) == [b"a", *[b"b"] * ENTRIES_IN_ONE_WRITE, b"c", b"d"]


def test_a_broken_index_file_takes_the_directory_down_but_not_the_batch(home: LogHome) -> None:
    home.config = home.config.with_overrides({"index.interval.bytes": "0"})
    log = home.open()
    home.append_values(log, *[b"a"] * ENTRIES_IN_ONE_WRITE)
    log.stage(batch_of(b"b"), leader_epoch=0)
    write = log.begin_write(T)
    assert write is not None
    write.perform()
    home.files.fail("write", suffix=".index")
    with pytest.raises(LogDirFailed):
        log.complete_write(write)
    assert log.log_end_offset == ENTRIES_IN_ONE_WRITE + 1
    assert log.staged == []


def test_a_disk_that_fills_up_byte_by_byte_never_costs_a_published_batch(home: LogHome) -> None:
    log = home.open()
    published = []
    for number in range(40):
        home.files.fill_up(number * 11)
        log.stage(batch_of(b"%d" % number), leader_epoch=0)
        try:
            log.append_all(T)
            published.append(b"%d" % number)
        except DiskFull:
            pass
        home.files.make_room()
    assert 0 < len(published) < 40
    assert values_in(log) == published
    log.abandon()
    assert values_in(home.open()) == published


def test_a_failed_fsync_is_the_end_of_the_directory_whatever_the_errno(home: LogHome) -> None:
    log = home.open()
    home.append_values(log, b"a")
    target = log.begin_flush(T, everything=True)
    assert target is not None
    home.files.fail("fsync", errno.ENOSPC, suffix=".log")
    with pytest.raises(LogDirFailed):
        target.perform()
    assert log.recovery_point == 0
