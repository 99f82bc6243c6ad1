"""Flushes, record deletion, truncation: what happens to a log beside appends and reads."""

import errno

import pytest

from storage.batch.record_batch import Codec
from storage.checkpoints import LEADER_EPOCHS
from storage.errors import DiskFull, OffsetOutOfRange, RecordTooLarge
from storage.retention import apply_retention
from tests.support.logs import LogHome, T, batch_of, segmented, values_in

DAY_MS = 86_400_000


# Flushing -------------------------------------------------------------------------------------------------------------


def test_by_default_only_a_roll_asks_for_a_flush(home: LogHome) -> None:
    log = segmented(home, 2)
    assert not log.needs_flush(T + DAY_MS)
    home.append_values(log, b"2")
    assert log.segments.bases == (0, 2)
    assert log.needs_flush(T)

    target = log.begin_flush(T)
    assert target is not None
    assert not log.needs_flush(T), "the flush is under way"
    home.files.disk.synced.clear()
    target.perform()
    assert home.files.disk.synced == [
        *(f"{0:020d}{suffix}" for suffix in (".log", ".index", ".timeindex")),
        f"{2:020d}.snapshot",
        LEADER_EPOCHS + ".1.tmp",
        "orders-0/",
        home.path.name + "/",
    ]
    log.complete_flush(target)
    assert log.recovery_point == 2


def test_flush_messages_counts_from_the_last_flush(home: LogHome) -> None:
    home.config = home.config.replace(flush_messages=3)
    log = home.open()
    home.append_values(log, b"a", b"b")
    assert not log.needs_flush(T)
    home.append_values(log, b"c")
    assert log.needs_flush(T)
    target = log.begin_flush(T)
    assert target is not None
    assert target.offset == 3
    target.perform()
    log.complete_flush(target)
    assert (log.recovery_point, log.unflushed_records, log.stats.flushes) == (3, 0, 1)
    home.append_values(log, b"d")
    assert not log.needs_flush(T)


def test_what_waits_for_a_flush_waits_until_it_is_done(home: LogHome) -> None:
    """A batch that is sent again while its flush is under way is not acknowledged before the first is."""
    home.config = home.config.replace(flush_messages=2)
    log = home.open()
    home.append_values(log, b"a")
    assert log.due_flush_offset == 0
    home.append_values(log, b"b")
    assert log.due_flush_offset == 2
    target = log.begin_flush(T)
    assert target is not None
    assert log.due_flush_offset == 2, "the flush is under way"
    home.append_values(log, b"c")
    assert log.due_flush_offset == 2, "the third record needs no flush, and is behind two that do"
    home.append_values(log, b"d")
    assert log.due_flush_offset == 4
    target.perform()
    log.complete_flush(target)
    assert log.due_flush_offset == 4
    log.flush(T)
    assert log.due_flush_offset == 0


def test_flush_ms_waits_since_the_last_flush(home: LogHome) -> None:
    home.config = home.config.replace(flush_ms=1000)
    log = home.open()
    home.append_values(log, b"a")
    assert not log.needs_flush(T + 999)
    assert log.needs_flush(T + 1000)


def test_the_recovery_point_waits_for_earlier_flushes(home: LogHome) -> None:
    log = home.open()
    home.append_values(log, b"a")
    first = log.begin_flush(T, everything=True)
    home.append_values(log, b"b")
    second = log.begin_flush(T, everything=True)
    assert first is not None
    assert second is not None
    second.perform()
    log.complete_flush(second)
    assert log.recovery_point == 0
    first.perform()
    log.complete_flush(first)
    assert log.recovery_point == 2
    assert log.begin_flush(T, everything=True) is None


def test_a_flush_of_what_was_cut_off_since_says_nothing(home: LogHome) -> None:
    log = home.open()
    home.append_values(log, b"a", b"b", b"c")
    target = log.begin_flush(T, everything=True)
    assert target is not None
    log.truncate_to(1, T)
    home.append_values(log, b"d", b"e")
    target.perform()
    log.complete_flush(target)
    assert log.recovery_point == 0


def test_a_segment_removed_below_a_flush_is_flushed_all_the_same(home: LogHome) -> None:
    log = segmented(home, 5)
    target = log.begin_flush(T)
    assert target is not None
    log.config = log.config.replace(retention_bytes=0)
    for removal in apply_retention(log, T):
        removal.perform()
    target.perform()
    log.complete_flush(target)
    assert log.recovery_point == 4


# Start offset ---------------------------------------------------------------------------------------------------------


def test_records_can_be_deleted_up_to_the_high_watermark(home: LogHome) -> None:
    log = segmented(home)
    log.assign_epoch_start(0)
    assert log.start_offset_to(3)
    assert not log.start_offset_to(2)
    assert log.log_start_offset == 3
    with pytest.raises(OffsetOutOfRange, match="high watermark 10, not to 11"):
        log.start_offset_to(11)
    assert log.leader_epochs.entries == [(0, 3)]


# Truncation -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", range(11))
def test_a_truncated_log_goes_on_from_there(home: LogHome, offset: int) -> None:
    log = segmented(home)
    log.flush(T)
    log.truncate_to(offset, T)
    assert log.log_end_offset == offset
    assert log.high_watermark == offset
    assert log.recovery_point == offset
    assert values_in(log) == [b"%d" % number for number in range(offset)]
    assert home.append(log, batch_of(b"new")).first_offset == offset
    log.abandon()
    assert values_in(home.open())[offset:] == [b"new"]


def test_truncating_into_a_batch_removes_all_of_it(home: LogHome) -> None:
    log = home.open()
    home.append(log, batch_of(b"a", b"b"))
    home.append(log, batch_of(b"c", b"d", b"e"))
    log.truncate_to(3, T)
    assert log.log_end_offset == 2


def test_truncation_forgets_epochs_and_producers_of_what_is_gone(home: LogHome) -> None:
    log = home.open()
    home.append(log, batch_of(b"a", producer_id=7, sequence=0), leader_epoch=1)
    home.append(log, batch_of(b"b", producer_id=7, sequence=1), leader_epoch=2)
    home.append(log, batch_of(b"c", producer_id=8, sequence=0), leader_epoch=2)
    log.truncate_to(1, T)
    assert log.leader_epochs.entries == [(1, 0)]
    assert {p.producer_id: p.last_sequence for p in log.producers} == {7: 0}


def test_truncating_below_the_start_begins_anew(home: LogHome) -> None:
    log = segmented(home)
    log.start_offset_to(8)
    log.truncate_to(3, T)
    assert (log.log_start_offset, log.log_end_offset, log.segments.bases) == (3, 3, (3,))
    assert [n for n in home.names() if n.endswith(".log")] == [f"{3:020d}.log"]


# Timestamps -----------------------------------------------------------------------------------------------------------


def test_records_are_found_by_their_timestamp(home: LogHome) -> None:
    log = segmented(home)
    for number in range(10):
        found = log.offset_for_timestamp(T + number * 60_000, 10)
        assert found == (T + number * 60_000, number, 0)
        assert log.offset_for_timestamp(T + number * 60_000 - 1, 10) == found
    assert log.offset_for_timestamp(T + 9 * 60_000 + 1, 10) is None
    assert log.offset_for_timestamp(T + 60_000, 1) is None
    log.start_offset_to(4)
    assert log.offset_for_timestamp(T, 10) == (T + 4 * 60_000, 4, 0)


def test_the_first_of_several_inside_a_batch_is_found(home: LogHome) -> None:
    log = home.open()
    home.append(log, batch_of(b"a", b"b", b"c", b"d", timestamp=T, step_ms=5))
    assert log.offset_for_timestamp(T + 6, 10) == (T + 10, 2, 0)


def test_a_record_larger_than_the_topic_allows_hides_those_behind_it_in_a_compressed_batch(home: LogHome) -> None:
    log = home.open()
    for codec in (Codec.NONE, Codec.ZSTD):
        home.append(log, batch_of(b"a", bytes(500), b"c", timestamp=log.log_end_offset, step_ms=1, codec=codec))
    home.append(log, batch_of(b"d", timestamp=6))
    log.config = log.config.replace(max_decompressed_message_bytes=100)

    assert [log.offset_for_timestamp(time, 10) for time in (1, 2, 3)] == [(1, 1, 0), (2, 2, 0), (3, 3, 0)]
    for time in (4, 5):
        with pytest.raises(RecordTooLarge, match="record 1 has 507 bytes; up to 100 are allowed"):
            log.offset_for_timestamp(time, 10)
    assert log.offset_for_timestamp(6, 10) == log.offset_of_max_timestamp() == (6, 6, 0)


def test_the_largest_timestamp_is_found_first_record_first(home: LogHome) -> None:
    log = home.open()
    assert log.offset_of_max_timestamp() is None
    home.append(log, batch_of(b"a", timestamp=T))
    home.append(log, batch_of(b"b", b"c", b"d", timestamp=T + 40, step_ms=5))
    home.append(log, batch_of(b"e", timestamp=T + 50))
    home.append(log, batch_of(b"f", timestamp=T + 20))
    assert log.offset_of_max_timestamp() == (T + 50, 3, 0)
    log.close(T)
    assert home.open(clean=True).offset_of_max_timestamp() == (T + 50, 3, 0)


# Leader epochs --------------------------------------------------------------------------------------------------------


def test_an_epoch_begins_where_its_leader_took_office(home: LogHome) -> None:
    log = home.open()
    log.assign_epoch_start(0)
    log.flush(T)
    assert home.bytes_of(LEADER_EPOCHS) == b"0\n1\n0 0\n"
    home.append(log, batch_of(b"a", b"b"), leader_epoch=0)
    log.assign_epoch_start(2)
    log.flush(T)
    assert home.bytes_of(LEADER_EPOCHS) == b"0\n2\n0 0\n2 2\n"
    log.assign_epoch_start(4)
    log.flush(T)
    assert home.bytes_of(LEADER_EPOCHS) == b"0\n2\n0 0\n4 2\n", "epoch 2 was never used"
    home.append(log, batch_of(b"c"), leader_epoch=4)
    assert log.end_offset_for_epoch(4) == (4, 3)
    assert log.end_offset_for_epoch(3) == (0, 2)
    assert log.end_offset_for_epoch(0) == (0, 2)
    assert log.end_offset_for_epoch(5) == (-1, -1)
    assert log.end_offset_for_epoch(-1) == (-1, -1)
    assert (log.leader_epochs.epoch_at(1), log.leader_epochs.epoch_at(2)) == (0, 4)


def test_an_epoch_older_than_all_ends_where_the_oldest_begins(home: LogHome) -> None:
    log = home.open()
    home.append(log, batch_of(b"a"), leader_epoch=5)
    assert log.end_offset_for_epoch(2) == (2, 0)


def test_a_full_disk_puts_the_epoch_file_off_until_the_next_flush(home: LogHome) -> None:
    log = home.open()
    home.append(log, batch_of(b"a"), leader_epoch=0)
    log.flush(T)
    home.append(log, batch_of(b"b"), leader_epoch=3)
    for attempt in (2, 3):
        home.files.fail("write", errno.ENOSPC, suffix=f"{LEADER_EPOCHS}.{attempt}.tmp")
    log.flush(T)
    assert home.bytes_of(LEADER_EPOCHS) == b"0\n1\n0 0\n"
    assert log.end_offset_for_epoch(3) == (3, 2)
    assert log.recovery_point == 1, "what is behind it would not tell its epoch"
    with pytest.raises(DiskFull, match="no space for its leader epochs"):
        log.close(T)
    log.flush(T)
    assert home.bytes_of(LEADER_EPOCHS) == b"0\n2\n0 0\n3 1\n"
    assert log.recovery_point == 2
