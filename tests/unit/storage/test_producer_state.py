"""What a log accepts from idempotent and transactional producers, and what it remembers of them."""

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.batch.markers import Marker
from storage.batch.record_batch import MAX_SEQUENCE
from storage.errors import (
    CorruptSnapshot,
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutOfOrderSequence,
    StorageError,
    TransactionCoordinatorFenced,
)
from storage.producer_state import (
    LATE_AFTER_MS,
    CompletedTransaction,
    ProducedBatch,
    ProducerEntry,
    Producers,
    check_marker,
    decode_snapshot,
    encode_snapshot,
)
from tests.support.logs import LogHome, T, batch_of, marker

KAFKAS_SNAPSHOT = bytes.fromhex(
    "0001 4a2efd9b 00000001"
    "0000000000000fa0 0000 00000008 0000000000000065 00000001 0000018bcfe56805 00000005 0000000000000064"
)
MAX_EPOCH = 0x7FFF
KAFKAS_EMPTY_SNAPSHOT = bytes.fromhex("0001 48674bc7 00000000")


def test_batches_follow_their_sequence(home: LogHome) -> None:
    log = home.open()
    home.append(log, batch_of(b"a", b"b", producer_id=7, sequence=0))
    home.append(log, batch_of(b"c", producer_id=7, sequence=2))
    with pytest.raises(OutOfOrderSequence, match="sent sequence 4, expected 3"):
        log.stage(batch_of(b"d", producer_id=7, sequence=4), leader_epoch=0)
    assert log.begin_write(T) is None
    assert home.append(log, batch_of(b"d", producer_id=7, sequence=3)).first_offset == 3


def test_an_unknown_producer_may_begin_anywhere(home: LogHome) -> None:
    log = home.open()
    assert home.append(log, batch_of(b"a", producer_id=7, sequence=41)).first_offset == 0


def test_the_last_five_batches_are_known_again(home: LogHome) -> None:
    log = home.open()
    for sequence in range(7):
        home.append(log, batch_of(b"%d" % sequence, producer_id=7, sequence=sequence, timestamp=T + sequence))
    for sequence in range(2, 7):
        repeated = home.append(log, batch_of(b"again", producer_id=7, sequence=sequence))
        assert repeated.is_duplicate
        assert (repeated.first_offset, repeated.last_offset) == (sequence, sequence)
        assert repeated.log_append_time_ms == T + sequence
    with pytest.raises(OutOfOrderSequence):
        log.stage(batch_of(b"1", producer_id=7, sequence=1), leader_epoch=0)
    assert log.log_end_offset == 7
    assert log.stats.duplicates == 5


def test_part_of_a_known_batch_is_no_duplicate(home: LogHome) -> None:
    log = home.open()
    home.append(log, batch_of(b"a", b"b", producer_id=7, sequence=0))
    with pytest.raises(OutOfOrderSequence):
        log.stage(batch_of(b"a", producer_id=7, sequence=0), leader_epoch=0)


def test_a_duplicate_of_something_still_staged_waits_for_it(home: LogHome) -> None:
    log = home.open()
    log.stage(batch_of(b"a", b"b", producer_id=7), leader_epoch=0)
    repeated = log.stage(batch_of(b"a", b"b", producer_id=7), leader_epoch=0)
    assert repeated.is_duplicate
    assert (repeated.first_offset, repeated.last_offset) == (0, 1)
    log.append_all(T)
    assert log.log_end_offset == 2


def test_a_duplicate_alone_is_a_write_of_nothing(home: LogHome) -> None:
    log = home.open()
    home.append(log, batch_of(b"a", producer_id=7))
    log.stage(batch_of(b"a", producer_id=7), leader_epoch=0)
    write = log.begin_write(T)
    assert write is not None
    assert write.size == 0
    write.perform()
    log.complete_write(write)
    assert log.log_end_offset == 1


def test_sequence_numbers_wrap_to_zero(home: LogHome) -> None:
    log = home.open()
    home.append(log, batch_of(b"a", b"b", producer_id=7, sequence=MAX_SEQUENCE - 1))
    home.append(log, batch_of(b"c", producer_id=7, sequence=0))
    repeated = home.append(log, batch_of(b"a", b"b", producer_id=7, sequence=MAX_SEQUENCE - 1))
    assert repeated.is_duplicate


def test_a_batch_may_reach_over_the_wrap(home: LogHome) -> None:
    log = home.open()
    home.append(log, batch_of(b"a", b"b", b"c", producer_id=7, sequence=MAX_SEQUENCE))
    home.append(log, batch_of(b"d", producer_id=7, sequence=2))
    assert home.append(log, batch_of(b"a", b"b", b"c", producer_id=7, sequence=MAX_SEQUENCE)).is_duplicate


def test_a_new_epoch_begins_with_zero_and_fences_the_old(home: LogHome) -> None:
    log = home.open()
    home.append(log, batch_of(b"a", producer_id=7, epoch=1, sequence=0))
    with pytest.raises(OutOfOrderSequence, match="begins its new epoch 2 with sequence 1"):
        log.stage(batch_of(b"b", producer_id=7, epoch=2, sequence=1), leader_epoch=0)
    home.append(log, batch_of(b"b", producer_id=7, epoch=2, sequence=0))
    with pytest.raises(InvalidProducerEpoch, match="sent epoch 1, and epoch 2 has been seen"):
        log.stage(batch_of(b"a", producer_id=7, epoch=1, sequence=1), leader_epoch=0)


def test_batches_without_a_producer_id_leave_no_trace(home: LogHome) -> None:
    log = home.open()
    home.append_values(log, b"a", b"b")
    assert len(log.producers) == 0


def test_silent_producers_are_forgotten_unless_a_transaction_is_open(home: LogHome) -> None:
    log = home.open()
    home.append(log, batch_of(b"a", producer_id=7, timestamp=T))
    home.append(log, batch_of(b"b", producer_id=8, timestamp=T + 1))
    home.append(log, batch_of(b"c", producer_id=9, timestamp=T, is_transactional=True))
    assert log.remove_expired_producers(T + 1000, 1000) == 1
    assert set(log.producers.entries) == {8, 9}


# Transactions ---------------------------------------------------------------------------------------------------------


def test_an_open_transaction_holds_the_last_stable_offset(home: LogHome) -> None:
    log = home.open()
    home.append_values(log, b"plain")
    home.append(log, batch_of(b"a", producer_id=7, is_transactional=True))
    home.append_values(log, b"plain")
    assert (log.high_watermark, log.last_stable_offset) == (3, 1)
    with pytest.raises(InvalidTransactionState):
        log.stage(batch_of(b"b", producer_id=7, sequence=1), leader_epoch=0)

    log.stage_trusted(marker(7, commit=True), leader_epoch=0)
    log.append_all(T)
    assert log.last_stable_offset == 1, "the marker is not replicated yet"
    log.advance_high_watermark(4)
    assert log.last_stable_offset == 4


def test_a_transaction_is_late_when_its_producer_is_silent_long_after_it_should_have_been_aborted(
    home: LogHome,
) -> None:
    log, max_timeout_ms = home.open(), 60_000
    due = T + max_timeout_ms + LATE_AFTER_MS

    def is_late(now_ms: int) -> bool:
        return log.producers.has_late_transaction(now_ms, max_timeout_ms)

    home.append(log, batch_of(b"a", producer_id=6, timestamp=T))
    assert not is_late(due + 1), "no transaction is open"
    home.append(log, batch_of(b"a", producer_id=7, timestamp=T, is_transactional=True))
    assert not is_late(due)
    assert is_late(due + 1)
    home.append(log, batch_of(b"b", producer_id=8, timestamp=T + 500, is_transactional=True))
    assert is_late(due + 1)
    log.stage_trusted(marker(7, commit=True), leader_epoch=0)
    log.append_all(T)
    assert not is_late(due + 500), "the transaction that is the oldest now is not late"
    assert is_late(due + 501)
    home.append(log, batch_of(b"b", producer_id=8, sequence=1, timestamp=T + 700, is_transactional=True))
    assert not is_late(due + 700), "its producer is not silent"
    log.stage_trusted(marker(8, commit=False), leader_epoch=0)
    log.append_all(T)
    assert not is_late(due + 100_000)


def test_a_transaction_without_timestamps_is_never_late(home: LogHome) -> None:
    log = home.open()
    home.append(log, batch_of(b"a", producer_id=7, timestamp=-1, is_transactional=True))
    assert not log.producers.has_late_transaction(T, 0)


def test_an_aborted_transaction_is_in_the_index_and_in_what_a_read_tells(home: LogHome) -> None:
    log = home.open()
    home.append(log, batch_of(b"a", producer_id=7, is_transactional=True))
    home.append(log, batch_of(b"b", producer_id=8, is_transactional=True))
    log.stage_trusted(marker(7, commit=False), leader_epoch=0)
    log.append_all(T)
    log.stage_trusted(marker(8, commit=True), leader_epoch=0)
    log.append_all(T)
    log.advance_high_watermark(4)

    found = log.read(0, max_bytes=1 << 20, upper_bound_offset=4, at_least_one_batch=True)
    (aborted,) = log.aborted_transactions(0, found)
    assert aborted == (7, 0, 2, 1)
    assert home.bytes_of("00000000000000000000.txnindex").hex() == (
        "00000000000000000007000000000000000000000000000000020000000000000001"
    )
    found = log.read(3, max_bytes=1 << 20, upper_bound_offset=4, at_least_one_batch=True)
    assert log.aborted_transactions(3, found) == []


def test_an_aborted_transaction_is_told_even_while_the_disk_is_full(home: LogHome) -> None:
    log = home.open()
    home.append(log, batch_of(b"a", producer_id=7, is_transactional=True))
    log.stage_trusted(marker(7, commit=False), leader_epoch=0)
    home.files.fail("write", errno.ENOSPC, suffix=".txnindex")
    log.append_all(T)
    assert home.bytes_of("00000000000000000000.txnindex") == b""
    found = log.read(0, max_bytes=1 << 20, upper_bound_offset=2, at_least_one_batch=True)
    assert log.aborted_transactions(0, found) == [(7, 0, 1, 2)]
    log.close(T)
    assert len(home.bytes_of("00000000000000000000.txnindex")) == 34


def test_a_marker_without_a_transaction_only_sets_the_epoch(home: LogHome) -> None:
    log = home.open()
    log.stage_trusted(marker(7, epoch=3, commit=False, coordinator_epoch=2), leader_epoch=0)
    log.append_all(T)
    assert "00000000000000000000.txnindex" not in home.names()
    assert log.producers.entries[7] == ProducerEntry(7, 3, (), T, 2, -1)
    with pytest.raises(OutOfOrderSequence, match="expected 0"):
        log.stage(batch_of(b"a", producer_id=7, epoch=3, sequence=1), leader_epoch=0)
    home.append(log, batch_of(b"a", producer_id=7, epoch=3, sequence=0))


@given(
    moves=st.lists(st.tuples(st.sampled_from(["begin", "end", "replicate"]), st.integers(0, 9)), max_size=60),
    from_snapshot=st.booleans(),
)
def test_the_first_unstable_offset_is_the_smallest_of_open_and_unreplicated_transactions(
    moves: list[tuple[str, int]], from_snapshot: bool
) -> None:
    producers = Producers()
    open_since: dict[int, int] = {}
    ended: list[CompletedTransaction] = []
    offset = high_watermark = 0
    for move, number in moves:
        if move == "begin" and number not in open_since:
            open_since[number] = offset
            producers.transaction_may_begin(None, ProducerEntry(number, 0, (), T, -1, offset))
            offset += 1
        elif move == "end" and number in open_since:
            ended.append(CompletedTransaction(number, open_since.pop(number), offset, True))
            aborted = producers.transaction_ended(ended[-1])
            offset += 1
            assert aborted is not None
            assert aborted.last_stable_offset == min(open_since.values(), default=offset)
        elif move == "replicate":
            high_watermark = min(high_watermark + number, offset)
            producers.replicated_to(high_watermark)
        unreplicated = [one.first_offset for one in ended if one.last_offset >= high_watermark]
        assert producers.first_unstable_offset == min((*open_since.values(), *unreplicated), default=None)
    if from_snapshot:
        producers.replace(ProducerEntry(number, 0, (), T, -1, since) for number, since in open_since.items())
        assert producers.first_unstable_offset == min(open_since.values(), default=None)


class CountedOffset(int):
    """An offset that counts how often it is compared with another."""

    comparisons = 0

    def __lt__(self, other: int) -> bool:
        CountedOffset.comparisons += 1
        return int(self) < int(other)


def test_the_first_unstable_offset_is_found_at_once_among_10_000_open_transactions() -> None:
    producers = Producers()
    for offset in range(10_000):
        producers.transaction_may_begin(None, ProducerEntry(offset, 0, (), T, -1, CountedOffset(offset)))
    CountedOffset.comparisons = 0
    for first_offset in range(5_000):
        assert producers.first_unstable_offset == first_offset
        producers.transaction_ended(
            CompletedTransaction(first_offset, first_offset, CountedOffset(10_000 + first_offset), False)
        )
        assert producers.first_unstable_offset == first_offset, "its marker is not replicated"
        producers.replicated_to(10_001 + first_offset)
    assert CountedOffset.comparisons < 5_000 * 20


# Markers --------------------------------------------------------------------------------------------------------------


def entry_of(epoch: int, *, first_offset: int = -1, coordinator_epoch: int = -1) -> ProducerEntry:
    return ProducerEntry(7, epoch, (), T, coordinator_epoch, first_offset)


OPEN_SINCE = 5
NOBODY = None


@pytest.mark.parametrize(
    ("entry", "epoch", "version"),
    [
        (NOBODY, 0, 0),
        (NOBODY, 0, 2),
        (entry_of(3, first_offset=OPEN_SINCE), 3, 0),
        (entry_of(3, first_offset=OPEN_SINCE), 3, 1),
        (entry_of(3, first_offset=OPEN_SINCE), 4, 0),
        (entry_of(3, first_offset=OPEN_SINCE), 4, 2),
        (entry_of(3, first_offset=OPEN_SINCE), 9, 2),
        (entry_of(3), 3, 0),
        (entry_of(3), 3, 2),
        (entry_of(3, coordinator_epoch=8), 3, 2),
        (entry_of(3, coordinator_epoch=7), 3, 2),
        (entry_of(MAX_EPOCH - 1, first_offset=OPEN_SINCE), MAX_EPOCH, 2),
    ],
)
def test_a_marker_may_end_a_transaction_or_stand_where_none_is_open(
    entry: ProducerEntry | None, epoch: int, version: int
) -> None:
    check_marker(entry, Marker(7, epoch, 8, True, 10, T), version)


@pytest.mark.parametrize(
    ("entry", "epoch", "version", "why"),
    [
        (entry_of(3, first_offset=OPEN_SINCE), 2, 0, "has epoch 2, expected 3 or later"),
        (entry_of(3, first_offset=OPEN_SINCE), 3, 2, "has epoch 3, expected 4 or later"),
        (entry_of(3), 2, 2, "has epoch 2, expected 3 or later"),
        (entry_of(3, first_offset=OPEN_SINCE), 0, 2, "has epoch 0, expected 4 or later"),
        (entry_of(MAX_EPOCH, first_offset=OPEN_SINCE), MAX_EPOCH, 2, "expected 32768 or later"),
    ],
)
def test_a_marker_of_an_earlier_epoch_is_refused(entry: ProducerEntry, epoch: int, version: int, why: str) -> None:
    with pytest.raises(InvalidProducerEpoch, match=why):
        check_marker(entry, Marker(7, epoch, 8, True, 10, T), version)


@pytest.mark.parametrize("first_offset", [OPEN_SINCE, -1])
def test_a_marker_of_an_earlier_coordinator_is_refused(first_offset: int) -> None:
    entry = entry_of(3, first_offset=first_offset, coordinator_epoch=9)
    with pytest.raises(TransactionCoordinatorFenced, match="has coordinator epoch 8, and epoch 9 has been seen"):
        check_marker(entry, Marker(7, 4, 8, True, 10, T), 2)


def test_a_staged_marker_counts_before_it_is_written(home: LogHome) -> None:
    """A second marker that is staged behind it is checked against it, and ends nothing."""
    log = home.open()
    home.append(log, batch_of(b"a", producer_id=7, is_transactional=True))
    first = log.stage_marker(
        marker(7, epoch=1, commit=True, coordinator_epoch=2), transaction_version=2, leader_epoch=0
    )
    assert first.completed == CompletedTransaction(7, 0, 1, False)
    with pytest.raises(TransactionCoordinatorFenced):
        log.stage_marker(marker(7, epoch=1, commit=False, coordinator_epoch=1), transaction_version=2, leader_epoch=0)
    with pytest.raises(InvalidProducerEpoch):
        log.stage_marker(marker(7, epoch=0, commit=False, coordinator_epoch=2), transaction_version=2, leader_epoch=0)
    second = log.stage_marker(
        marker(7, epoch=1, commit=False, coordinator_epoch=2), transaction_version=2, leader_epoch=0
    )
    assert second.completed is None, "the transaction has ended with the first marker"
    assert log.producers.first_unstable_offset == 0, "and is not published"
    log.append_all(T)
    log.advance_high_watermark(3)
    assert (log.log_end_offset, log.last_stable_offset) == (3, 3)
    assert "00000000000000000000.txnindex" not in home.names()


def test_a_refused_marker_changes_nothing(home: LogHome) -> None:
    log = home.open()
    home.append(log, batch_of(b"a", producer_id=7, epoch=4, is_transactional=True))
    before = dict(log.producers.entries)
    for epoch in (3, 4):
        with pytest.raises(InvalidProducerEpoch):
            log.stage_marker(marker(7, epoch=epoch, commit=True), transaction_version=2, leader_epoch=0)
    assert (log.producers.entries, log.staged, log.next_offset) == (before, [], 1)


def test_a_marker_that_cannot_be_written_leaves_its_transaction_open(home: LogHome) -> None:
    log = home.open()
    home.append(log, batch_of(b"a", producer_id=7, is_transactional=True))
    log.stage_marker(marker(7, commit=True), transaction_version=0, leader_epoch=0)
    home.files.fail("write", errno.EIO, suffix=".log")
    with pytest.raises(StorageError):
        log.append_all(T)
    assert log.producers.entries[7].transaction_first_offset == 0
    assert log.producers.first_unstable_offset == 0


# Snapshots ------------------------------------------------------------------------------------------------------------


def test_a_snapshot_is_kafkas_byte_for_byte() -> None:
    entry = ProducerEntry(4000, 0, (ProducedBatch(8, 101, 1, T + 5),), T + 5, 5, 100)
    assert encode_snapshot({4000: entry}) == KAFKAS_SNAPSHOT
    assert decode_snapshot(KAFKAS_SNAPSHOT, "x") == [entry]
    assert encode_snapshot({}) == KAFKAS_EMPTY_SNAPSHOT
    assert decode_snapshot(KAFKAS_EMPTY_SNAPSHOT, "x") == []


@pytest.mark.parametrize("position", range(0, len(KAFKAS_SNAPSHOT), 3))
def test_a_damaged_snapshot_is_recognised(position: int) -> None:
    damaged = bytearray(KAFKAS_SNAPSHOT)
    damaged[position] ^= 0x40
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(bytes(damaged), "x.snapshot")


@given(st.binary(max_size=120))
def test_rubbish_is_no_snapshot(content: bytes) -> None:
    if content not in (KAFKAS_SNAPSHOT, KAFKAS_EMPTY_SNAPSHOT):
        with pytest.raises(CorruptSnapshot):
            decode_snapshot(content, "x.snapshot")


def test_a_roll_saves_the_state_below_the_new_segment_and_nothing_staged(home: LogHome) -> None:
    log = home.open()
    home.append(log, batch_of(b"a", producer_id=7, sequence=0))
    log.stage(batch_of(b"b", producer_id=7, sequence=1, timestamp=T + 10**9), leader_epoch=0)
    log.stage(batch_of(b"c", producer_id=8, sequence=0, timestamp=T + 10**9), leader_epoch=0)
    log.append_all(T)
    assert log.segments.bases == (0, 1)
    (entry,) = decode_snapshot(home.bytes_of("00000000000000000001.snapshot"), "x")
    assert (entry.producer_id, entry.last_sequence) == (7, 0)


def test_producers_are_known_again_after_a_clean_stop(home: LogHome) -> None:
    log = home.open()
    home.append(log, batch_of(b"a", b"b", producer_id=7, sequence=0))
    log.close(T)
    assert "00000000000000000002.snapshot" in home.names()
    log = home.open(clean=True)
    assert home.append(log, batch_of(b"a", b"b", producer_id=7, sequence=0)).is_duplicate
    home.append(log, batch_of(b"c", producer_id=7, sequence=2))
