"""A cleaning round over a log, and the swap of its copies."""

from pathlib import Path

import pytest

from storage.batch.record_batch import Codec
from storage.cleaning.order import CleanedGroup, CleaningReport
from storage.errors import CorruptBatch, DiskFull
from storage.file_info import DiskSpace
from storage.retention import apply_retention
from tests.support.batches import EVERY_CODEC
from tests.support.cleaning import COMPACTED, LIMITS, CompactedLog, table
from tests.support.logs import T


@pytest.fixture
def orders(tmp_path: Path) -> CompactedLog:
    return CompactedLog.make(tmp_path)


@pytest.mark.parametrize("codec", EVERY_CODEC, ids=lambda codec: codec.name)
def test_of_each_key_the_last_record_is_left_where_it_was(tmp_path: Path, codec: Codec) -> None:
    orders = CompactedLog.make(tmp_path)
    for number in range(50):
        orders.write((b"k%d" % (number % 5), b"%d" % number), (b"other", b"%d" % number), codec=codec)
    orders.roll()
    last = {one.key: one for one in orders.records()}

    report = orders.clean()
    assert {one.key: one for one in orders.records()} == last
    assert len(orders.records()) == 6
    assert report.cleaned_to == 100
    assert (report.stats.records_read, report.stats.records_written) == (100, 6)
    small = len(orders.log.segments)
    orders.write((b"new", b""), codec=codec)
    orders.roll()
    orders.clean()
    assert len(orders.log.segments) == 2 < small, "small segments are copied together by the next round"


def test_the_active_segment_is_left_alone(orders: CompactedLog) -> None:
    orders.write((b"a", b"1"))
    orders.roll()
    orders.write((b"a", b"2"))
    orders.clean()
    assert orders.pairs() == [(b"a", b"1"), (b"a", b"2")]


def test_a_second_round_reads_only_what_is_new_for_its_map_and_cleans_the_old_with_it(orders: CompactedLog) -> None:
    orders.write((b"a", b"1"), (b"b", b"1"))
    orders.roll()
    orders.clean()
    assert orders.candidate().first_dirty_offset == 2
    assert not orders.candidate().cleanable_bytes
    orders.write((b"b", b"2"))
    orders.roll()
    orders.clean()
    assert orders.pairs() == [(b"a", b"1"), (b"b", b"2")]


def test_keys_that_exceed_the_map_are_cleaned_in_several_rounds(orders: CompactedLog) -> None:
    for number in range(60):
        orders.write((b"%d" % (number % 30), b"%d" % number))
    orders.roll()
    expected = table(orders.records())
    small = LIMITS._replace(map_bytes=24 * 12)
    rounds = 0
    while orders.candidate().cleanable_bytes:
        orders.clean(small)
        rounds += 1
        assert table(orders.records()) == expected
    assert rounds > 3
    assert len(orders.records()) == 30


def test_records_of_an_open_transaction_and_behind_it_are_not_cleaned(orders: CompactedLog) -> None:
    orders.write((b"a", b"1"))
    orders.roll()
    orders.write((b"a", b"2"), producer_id=7, is_transactional=True)
    orders.roll()
    orders.write((b"a", b"3"))
    orders.roll()
    assert orders.candidate().end_offset == 1
    orders.clean()
    assert len(orders.pairs()) == 3
    orders.end_transaction(7, commit=True)
    orders.roll()
    orders.clean()
    assert orders.pairs() == [(b"a", b"3")]


def test_the_values_of_an_aborted_transaction_do_not_supersede_others(orders: CompactedLog) -> None:
    orders.write((b"a", b"committed"))
    orders.write((b"a", b"aborted"), producer_id=7, is_transactional=True)
    orders.roll()
    orders.end_transaction(7, commit=False)  # in a later segment than its records
    orders.roll()
    orders.write((b"b", b"1"))
    orders.roll()
    orders.clean()
    assert orders.pairs() == [(b"a", b"committed"), (b"b", b"1")]
    assert [one.value for one in orders.committed()] == [b"committed", b"1"]


def test_a_producer_that_has_aborted_in_the_clean_part_commits_in_the_dirty_part(orders: CompactedLog) -> None:
    orders.write((b"a", b"1"))
    orders.write((b"a", b"aborted"), producer_id=7, is_transactional=True)
    orders.end_transaction(7, commit=False)
    orders.roll()
    orders.clean()
    orders.write((b"a", None), producer_id=7, is_transactional=True)
    orders.end_transaction(7, commit=True)
    orders.roll()
    orders.clean()
    assert orders.pairs() == [(b"a", None)], "otherwise the value comes back when the tombstone goes"


def test_a_record_younger_than_min_compaction_lag_waits_with_all_behind_it(tmp_path: Path) -> None:
    orders = CompactedLog.make(tmp_path, COMPACTED.replace(min_compaction_lag_ms=1000))
    orders.write((b"a", b"1"))
    orders.roll()
    orders.home.now_ms += 600
    orders.write((b"a", b"2"))
    orders.roll()
    orders.home.now_ms += 600
    assert (orders.candidate().end_offset, orders.candidate().cleanable_bytes) == (1, orders.log.segments[0].size)
    orders.home.now_ms += 600
    assert orders.candidate().end_offset == 2


def test_a_log_is_due_by_its_dirty_ratio_or_by_max_compaction_lag(tmp_path: Path) -> None:
    orders = CompactedLog.make(tmp_path, COMPACTED.replace(max_compaction_lag_ms=10_000, segment_bytes=10_000))
    for _ in range(3):
        orders.write((b"a", b"1" * 100), (b"b", b"1" * 100))
    orders.roll()
    assert orders.candidate().is_due, "all of it is dirty"
    orders.log.cleaned_to = 6
    orders.write((b"a", b"2"))
    orders.roll()
    assert 0 < orders.candidate().dirty_ratio < 0.5
    assert not orders.candidate().is_due
    orders.home.now_ms += 10_000
    assert not orders.candidate().is_due
    orders.home.now_ms += 1
    assert (orders.candidate().is_due, orders.candidate().delay_ms) == (True, 1)


def test_a_clean_end_outside_of_the_log_counts_as_its_start(orders: CompactedLog) -> None:
    orders.write((b"a", b"1"))
    orders.roll()
    orders.log.cleaned_to = 99
    assert orders.candidate().first_dirty_offset == 0
    orders.log.cleaned_to = 1
    assert orders.candidate().first_dirty_offset == 1
    orders.log.start_offset_to(1)
    orders.log.cleaned_to = 0
    assert orders.candidate().first_dirty_offset == 1


def test_a_copy_says_when_the_last_of_its_segments_was_written_to(orders: CompactedLog) -> None:
    orders.write((b"a", b"1"))
    orders.roll()
    path = orders.log.segments[0].log_path
    orders.home.files.set_mtime_ms(path, T)
    orders.clean()
    assert orders.home.files.mtime_ms(path) == T


def test_indexes_of_a_copy_are_right(orders: CompactedLog) -> None:
    for number in range(200):
        orders.write((b"k%d" % (number % 90), b"x" * 30))
        orders.home.now_ms += 10
    orders.roll()
    orders.clean()
    orders.log.close(orders.home.now_ms)
    orders.log = orders.home.open(clean=True)
    assert sum(segment.offset_index.entries for segment in orders.log.segments) > 10
    assert orders.home.report.findings == []
    for one in orders.records():
        place = orders.log.offset_for_timestamp(one.timestamp, orders.log.log_end_offset)
        assert place is not None
        assert place.offset == one.offset


def test_a_crash_after_cleaning_takes_no_gap_for_a_loss_whatever_the_policy_is_now(orders: CompactedLog) -> None:
    for _ in range(3):
        orders.write(*[(b"%d" % number, b"x" * 200) for number in range(2)])
        orders.roll()
    orders.clean()
    assert orders.log.segments.bases[:2] == (0, 2), "segments that end before the next begins"
    orders.log.abandon()
    orders.home.config = orders.home.config.replace(cleanup_policy=frozenset({"delete"}))
    orders.log = orders.home.open(clean=False, cleaned_to=6)
    assert orders.home.report.findings == []
    assert [one.offset for one in orders.records()] == [4, 5]


# Damage ---------------------------------------------------------------------------------------------------------------


def test_a_damaged_batch_stops_the_round_and_nothing_is_changed(orders: CompactedLog) -> None:
    orders.write((b"a", b"1"))
    orders.write((b"a", b"2"))
    orders.roll()
    path = Path(orders.log.segments[0].log_path)
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    before = orders.bytes_of_segments()
    with pytest.raises(CorruptBatch, match=r"position 7\d: the batch there names the CRC"):
        orders.clean()
    assert orders.bytes_of_segments() == before


def test_a_disk_without_space_for_a_copy_stops_the_round(orders: CompactedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    orders.write((b"a", b"1"))
    orders.roll()
    monkeypatch.setattr(orders.home.files, "space", lambda _: DiskSpace(1 << 40, (1 << 20) + 10), raising=False)
    with pytest.raises(DiskFull, match=r"a copy of 1 segments may need .* bytes of disk space, and 10 are free"):
        orders.clean(LIMITS._replace(reserve_bytes=1 << 20))
    assert not [name for name in orders.home.names() if name.endswith(".cleaned")]


def test_copies_that_a_round_has_left_are_removed_by_the_next(orders: CompactedLog) -> None:
    orders.write((b"a", b"1"))
    orders.roll()
    assert isinstance(next(orders.copies()), CleanedGroup)
    assert [name for name in orders.home.names() if name.endswith(".cleaned")]
    orders.clean()
    assert not [name for name in orders.home.names() if name.endswith(".cleaned")]


# Swapping -------------------------------------------------------------------------------------------------------------


def three_segments(orders: CompactedLog) -> CleanedGroup:
    """Three segments, and the copy of them that a round has made."""
    for number in range(3):
        orders.write((b"a", b"%d" % number), (b"b%d" % number, b"x"))
        orders.roll()
    results = list(orders.copies())
    assert isinstance(results[0], CleanedGroup)
    assert isinstance(results[-1], CleaningReport)
    assert results[0].base_offsets == (0, 2, 4)
    return results[0]


def test_a_reader_of_a_replaced_segment_goes_on_reading_it(orders: CompactedLog) -> None:
    group = three_segments(orders)
    read = orders.log.read(2, max_bytes=10_000, upper_bound_offset=6, at_least_one_batch=True)
    assert read.region is not None
    before = read.region.read()
    orders.swap(group)
    assert read.region.read() == before
    after = orders.log.read(2, max_bytes=10_000, upper_bound_offset=6, at_least_one_batch=True)
    assert after.region is not None
    assert after.region.read() != before, "the record at offset 2 is gone, so the batch with offset 3 comes"


def test_a_copy_is_given_up_when_one_of_its_segments_has_left_the_log(orders: CompactedLog) -> None:
    group = three_segments(orders)
    swap = orders.begin_swap(group)
    swap.prepare()
    orders.log.start_offset_to(2)
    for removal in apply_retention(orders.log, orders.home.now_ms):
        removal.perform()
    assert orders.log.swap_in(swap) is None
    swap.give_up()
    assert orders.log.begin_swap(group.base_offsets, group.sizes, group.modified_ms) is None
    assert [one.offset for one in orders.records()] == [2, 3, 4, 5]
    assert not [name for name in orders.home.names() if "swap" in name]


@pytest.mark.parametrize("cut_to", [0, 2, 6])
def test_a_log_that_is_cut_while_a_copy_has_no_name_of_its_own_goes_on(orders: CompactedLog, cut_to: int) -> None:
    """In front of the copy, at its beginning, and in the middle of it."""
    orders.write((b"c", bytes(450)), (b"d", b""))  # a segment that is full, and gets a copy of its own
    orders.roll()
    for number in range(3):
        orders.write((b"a", b"%d" % number), (b"b%d" % number, b"x"))
        orders.roll()
    first, group = [one for one in orders.copies() if isinstance(one, CleanedGroup)]
    assert (first.base_offsets, group.base_offsets) == ((0,), (2, 4, 6))
    orders.swap(first)
    swap = orders.begin_swap(group)
    swap.prepare()
    assert orders.log.swap_in(swap) is not None

    orders.log.truncate_to(cut_to, T)
    orders.log.end_swap(swap)

    assert not [name for name in orders.home.names() if "swap" in name]
    before = orders.pairs()
    assert orders.write((b"e", b"new")) == cut_to
    orders.reopen(clean=False)
    assert orders.pairs() == [*before, (b"e", b"new")]


@pytest.mark.parametrize("offset", [0, 9])
def test_a_log_that_begins_anew_while_a_copy_has_no_name_of_its_own_goes_on(orders: CompactedLog, offset: int) -> None:
    group = three_segments(orders)
    swap = orders.begin_swap(group)
    swap.prepare()
    assert orders.log.swap_in(swap) is not None

    orders.log.truncate_fully_to(offset, T)
    orders.log.end_swap(swap)

    assert not [name for name in orders.home.names() if "swap" in name]
    assert orders.write((b"e", b"new")) == offset
    orders.reopen(clean=False)
    assert orders.pairs() == [(b"e", b"new")]


def test_producer_snapshots_of_replaced_segments_go_but_the_first(orders: CompactedLog) -> None:
    for number in range(3):
        orders.write((b"a", b"%d" % number), producer_id=7)
        orders.roll()
    assert [name for name in orders.home.names() if name.endswith(".snapshot")] == [
        f"{offset:020d}.snapshot" for offset in (1, 2, 3)
    ]
    orders.clean()
    assert [name for name in orders.home.names() if name.endswith(".snapshot")] == [f"{3:020d}.snapshot"]


@pytest.mark.parametrize("step", range(5))
def test_a_crash_after_any_step_of_the_swap_leaves_the_old_segments_or_the_copy(
    orders: CompactedLog, step: int
) -> None:
    group = three_segments(orders)
    swap = orders.begin_swap(group)
    steps = [swap.prepare, lambda: orders.log.swap_in(swap), swap.sync, lambda: orders.log.end_swap(swap)]
    for done in steps[:step]:
        done()
    orders.reopen(clean=False)
    expected = {b"a": b"2", b"b0": b"x", b"b1": b"x", b"b2": b"x"}
    assert table(orders.records()) == expected
    assert len(orders.records()) == (6 if step == 0 else 4)
    assert orders.log.segments.bases == ((0, 2, 4, 6) if step == 0 else (0, 6))
    assert all(
        name.endswith((".log", ".index", ".timeindex", "-checkpoint", ".snapshot")) for name in orders.home.names()
    )


def test_a_copy_of_which_a_file_is_not_renamed_yet_is_taken_back(orders: CompactedLog) -> None:
    """Apache Kafka renames the file of batches first, and the indexes after it."""
    orders.begin_swap(three_segments(orders)).prepare()
    time_index = Path(orders.home.directory) / f"{0:020d}.timeindex.swap"
    time_index.rename(time_index.with_suffix(".cleaned"))
    orders.reopen(clean=False)
    assert orders.log.segments.bases == (0, 2, 4, 6)
    assert not [name for name in orders.home.names() if name.endswith((".swap", ".cleaned"))]
