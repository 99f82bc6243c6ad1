"""Batches on their way into a log: offsets, rolls, indexes, and the answers to producers."""

import pytest

from storage.batch.record_batch import read_header
from storage.errors import BatchLargerThanSegment
from tests.support.logs import LogHome, T, batch_of, headers_in, values_in


def test_offsets_follow_one_another_and_are_stamped_with_the_leader_epoch(home: LogHome) -> None:
    log = home.open()
    first = home.append(log, batch_of(b"a", b"b"), leader_epoch=3)
    second = home.append(log, batch_of(b"c"), leader_epoch=3)

    assert (first.first_offset, first.last_offset) == (0, 1)
    assert (second.first_offset, second.last_offset) == (2, 2)
    assert log.log_end_offset == 3
    stored = headers_in(home.bytes_of("00000000000000000000.log"))
    assert [(h.base_offset, h.partition_leader_epoch) for h in stored] == [(0, 3), (2, 3)]


def test_nothing_is_visible_before_its_write_is_complete(home: LogHome) -> None:
    log = home.open()
    staged = log.stage(batch_of(b"a"), leader_epoch=0)
    assert staged.first_offset == 0
    assert log.log_end_offset == 0

    write = log.begin_write(T)
    assert write is not None
    write.perform()
    assert log.log_end_offset == 0

    log.complete_write(write)
    assert log.log_end_offset == 1


def test_one_write_is_under_way_and_takes_all_that_was_staged_before_it(home: LogHome) -> None:
    log = home.open()
    log.stage(batch_of(b"a"), leader_epoch=0)
    log.stage(batch_of(b"b"), leader_epoch=0)
    write = log.begin_write(T)
    assert write is not None
    assert [s.first_offset for s in write.staged] == [0, 1]

    log.stage(batch_of(b"c"), leader_epoch=0)
    assert log.begin_write(T) is None

    write.perform()
    log.complete_write(write)
    log.append_all(T)
    assert values_in(log) == [b"a", b"b", b"c"]


def test_thousands_of_staged_batches_go_out_in_one_write(home: LogHome) -> None:
    log = home.open()
    for number in range(3000):
        log.stage(batch_of(b"%d" % number), leader_epoch=0)
    write = log.begin_write(T)
    assert write is not None
    assert len(write.staged) == 3000
    write.perform()
    log.complete_write(write)
    assert values_in(log) == [b"%d" % number for number in range(3000)]


# Rolling --------------------------------------------------------------------------------------------------------------


def small_segments(home: LogHome, **settings: int) -> LogHome:
    home.config = home.config.replace(**settings)
    return home


def test_a_batch_that_does_not_fit_begins_a_new_segment(home: LogHome) -> None:
    size = batch_of(b"a").header.size
    log = small_segments(home, segment_bytes=2 * size).open()
    home.append_values(log, b"a", b"b", b"c")
    assert log.segments.bases == (0, 2)
    assert len(home.bytes_of("00000000000000000000.log")) == 2 * size
    assert values_in(log) == [b"a", b"b", b"c"]


def test_one_write_never_crosses_segments(home: LogHome) -> None:
    size = batch_of(b"a").header.size
    log = small_segments(home, segment_bytes=2 * size).open()
    for value in (b"a", b"b", b"c", b"d", b"e"):
        log.stage(batch_of(value), leader_epoch=0)
    taken = []
    while (write := log.begin_write(T)) is not None:
        taken.append(len(write.staged))
        write.perform()
        log.complete_write(write)
    assert taken == [2, 2, 1]
    assert log.segments.bases == (0, 2, 4)


def test_a_batch_larger_than_a_segment_is_refused(home: LogHome) -> None:
    log = small_segments(home, segment_bytes=100).open()
    with pytest.raises(BatchLargerThanSegment):
        log.stage(batch_of(b"x" * 100), leader_epoch=0)
    assert log.begin_write(T) is None


def test_a_segment_rolls_by_the_timestamps_of_its_first_batch_and_the_new_one(home: LogHome) -> None:
    log = small_segments(home, segment_ms=1000).open()
    home.append(log, batch_of(b"a", timestamp=T))
    home.append(log, batch_of(b"b", timestamp=T + 1000))
    assert log.segments.bases == (0,)
    home.append(log, batch_of(b"c", timestamp=T + 1001))
    assert log.segments.bases == (0, 2)


def test_a_segment_without_timestamps_rolls_by_its_own_age(home: LogHome) -> None:
    log = small_segments(home, segment_ms=1000).open()
    home.append(log, batch_of(b"a", timestamp=-1))
    home.now_ms += 1000
    home.append(log, batch_of(b"b", timestamp=-1))
    assert log.segments.bases == (0,)
    home.now_ms += 1
    home.append(log, batch_of(b"c", timestamp=-1))
    assert log.segments.bases == (0, 2)


def test_jitter_takes_off_what_was_drawn_for_the_segment(home: LogHome) -> None:
    log = small_segments(home, segment_ms=1000, segment_jitter_ms=300).open(chance=lambda: 1250)  # type: ignore[arg-type]
    home.append(log, batch_of(b"a", timestamp=T))
    home.append(log, batch_of(b"b", timestamp=T + 950))
    assert log.segments.bases == (0,)
    home.append(log, batch_of(b"c", timestamp=T + 951))
    assert log.segments.bases == (0, 2)


def test_a_compacted_topic_rolls_by_max_compaction_lag(home: LogHome) -> None:
    home.config = home.config.replace(cleanup_policy=frozenset({"compact"}), max_compaction_lag_ms=10)
    log = home.open()
    home.append(log, batch_of(b"a", timestamp=T))
    home.append(log, batch_of(b"b", timestamp=T + 11))
    assert log.segments.bases == (0, 1)


def test_a_full_index_rolls_the_segment(home: LogHome) -> None:
    log = small_segments(home, index_interval_bytes=0, segment_index_bytes=36).open()
    # Four offset entries fit, of time entries three, one of which is kept for the end: the time index is full first.
    for number in range(6):
        home.append(log, batch_of(b"x", timestamp=T + number))
    assert log.segments.bases == (0, 3)
    assert len(home.bytes_of("00000000000000000000.index")) == 2 * 8
    assert len(home.bytes_of("00000000000000000000.timeindex")) == 2 * 12


def test_a_rolled_segment_gives_back_what_was_preallocated(home: LogHome) -> None:
    home.config = home.config.replace(preallocate=True, segment_bytes=5000, segment_ms=10)
    log = home.open()
    home.append(log, batch_of(b"a", timestamp=T))
    assert len(home.bytes_of("00000000000000000000.log")) == 5000
    assert len(home.bytes_of("00000000000000000000.index")) == 12_000
    home.append(log, batch_of(b"b", timestamp=T + 11))
    assert len(home.bytes_of("00000000000000000000.log")) == batch_of(b"a").header.size
    assert home.bytes_of("00000000000000000000.index") == b""


def test_an_empty_segment_is_not_rolled(home: LogHome) -> None:
    log = home.open()
    log.roll(T)
    assert log.segments.bases == (0,)


# Index entries --------------------------------------------------------------------------------------------------------


def test_index_entries_are_those_that_kafka_writes(home: LogHome) -> None:
    """Base 100, index.interval.bytes=100, six appends of 79 bytes."""
    home.config = home.config.replace(index_interval_bytes=100, segment_index_bytes=64)
    log = home.open(log_start_offset=100)
    for delta in (0, 10, 50, 30, 40, 50):
        batch = batch_of(b"ab", b"cd", timestamp=T + delta)
        assert batch.header.size == 79
        home.append(log, batch)
    live = home.bytes_of("00000000000000000100.index"), home.bytes_of("00000000000000000100.timeindex")
    assert [len(content) for content in live] == [64, 60]
    log.close(T)
    assert home.bytes_of("00000000000000000100.index").hex(" ", 4) == "00000005 0000009e 00000009 0000013c"
    assert home.bytes_of("00000000000000000100.timeindex").hex() == "0000018bcfe56832" + "00000005"


def test_the_time_index_gets_its_last_entry_when_the_segment_is_closed(home: LogHome) -> None:
    log = home.open()
    home.append(log, batch_of(b"a", b"b", timestamp=T))
    log.close(T)
    assert home.bytes_of("00000000000000000000.index") == b""
    assert home.bytes_of("00000000000000000000.timeindex").hex() == "0000018bcfe56800" + "00000001"


# What the broker appends itself ---------------------------------------------------------------------------------------


def test_a_batch_with_given_offsets_may_leave_a_gap_but_not_go_back(home: LogHome) -> None:
    log = home.open()
    first, later = batch_of(b"a").data, batch_of(b"b").data
    later[0:8] = (7).to_bytes(8, "big")
    log.stage_trusted(first, keep_offsets=True)
    log.stage_trusted(later, keep_offsets=True)
    log.append_all(T)
    assert log.log_end_offset == 8
    assert [h.base_offset for h, _ in log.batches()] == [0, 7]
    with pytest.raises(ValueError, match="ends at 8; cannot append 0"):
        log.stage_trusted(batch_of(b"c").data, keep_offsets=True)


def test_a_trusted_batch_gets_the_epoch_it_is_given(home: LogHome) -> None:
    log = home.open()
    log.stage_trusted(batch_of(b"a").data, leader_epoch=5)
    log.append_all(T)
    assert read_header(home.bytes_of("00000000000000000000.log")).partition_leader_epoch == 5
    assert log.leader_epochs.entries == [(5, 0)]


def test_a_dynamic_change_counts_from_the_next_append(home: LogHome) -> None:
    log = home.open()
    home.append_values(log, b"a", b"b")
    log.config = home.config.replace(segment_bytes=200, max_message_bytes=123)
    assert log.rules.max_message_bytes == 123
    home.append_values(log, b"c")
    assert log.segments.bases == (0, 2)
