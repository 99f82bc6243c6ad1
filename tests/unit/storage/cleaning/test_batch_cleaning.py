"""What becomes of a batch: kept as it is, written with fewer records, emptied, or removed."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from storage.batch.record_batch import Codec, TimestampType, computed_crc, read_header
from storage.batch.records import Record, iterate_records
from storage.cleaning.batch_cleaning import BatchCleaning, CleaningStats, LastBatch
from storage.cleaning.offset_map import OffsetMap
from storage.cleaning.transactions import CleanedTransactions
from storage.index.transaction_index import AbortedTransaction
from tests.support.batches import EVERY_CODEC, T, changed, end_marker, record, stored

NOW = T + 1_000_000
RETENTION = 86_400_000


def rules(
    *,
    known: Mapping[bytes, int] | None = None,
    aborted: tuple[AbortedTransaction, ...] = (),
    last_batches: Mapping[int, LastBatch] | None = None,
    end_offset: int = 1000,
    now_ms: int = NOW,
) -> BatchCleaning:
    offsets = OffsetMap(64, 0.9)
    for key, offset in (known or {}).items():
        offsets.put(key, offset)
    offsets.latest_offset = end_offset - 1
    return BatchCleaning(
        offsets=offsets,
        transactions=CleanedTransactions(aborted),
        last_batches=last_batches or {},
        end_offset=end_offset,
        now_ms=now_ms,
        delete_retention_ms=RETENTION,
        stats=CleaningStats(),
    )


def clean(batch: bytes, cleaning: BatchCleaning) -> bytes | None:
    """The batch after cleaning; its CRC is right."""
    cleaned = cleaning.clean(read_header(batch), memoryview(batch))
    if cleaned is None:
        return None
    assert computed_crc(cleaned, 0, len(cleaned)) == read_header(cleaned).crc
    assert read_header(cleaned).size == len(cleaned)
    return bytes(cleaned)


def content(batch: bytes | None) -> list[tuple[int, int, bytes | None, bytes | None]]:
    assert batch is not None
    return [(one.offset, one.timestamp, one.key, one.value) for one in iterate_records(batch)]


def with_headers(*pairs: tuple[bytes | None, bytes | None]) -> list[Record]:
    return [
        record(value, key=key, timestamp=T + 10 * number, headers=[("h", b"%d" % number)])
        for number, (key, value) in enumerate(pairs)
    ]


# Records --------------------------------------------------------------------------------------------------------------


def test_a_batch_of_which_all_records_stay_is_the_same_bytes() -> None:
    batch = stored(3, offset=10)
    data = memoryview(batch)
    assert rules(known={b"k0": 10, b"k1": 11}).clean(read_header(batch), data) is data


@pytest.mark.parametrize("codec", EVERY_CODEC, ids=lambda codec: codec.name)
def test_records_that_stay_keep_offset_timestamp_headers_and_codec(codec: Codec) -> None:
    records = with_headers((b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", b"4"))
    batch = stored(records, offset=10, leader_epoch=4, codec=codec, producer_id=7, producer_epoch=2, base_sequence=30,
                   is_transactional=True)  # fmt: skip
    cleaned = clean(batch, rules(known={b"a": 12, b"b": 500, b"c": 13}))
    assert content(cleaned) == [(12, T + 20, b"a", b"3"), (13, T + 30, b"c", b"4")]
    assert cleaned is not None
    assert [one.headers for one in iterate_records(cleaned)] == [[("h", b"2")], [("h", b"3")]]
    before, after = read_header(batch), read_header(cleaned)
    assert after == before._replace(record_count=2, batch_length=after.batch_length, crc=after.crc)


def test_the_max_timestamp_is_that_of_the_records_that_stay() -> None:
    records = [record(key=b"a", timestamp=T + 50), record(key=b"b", timestamp=T + 5)]
    cleaned = clean(stored(records, offset=10), rules(known={b"a": 99, b"b": 11}))
    assert cleaned is not None
    assert read_header(cleaned).max_timestamp == T + 5


def test_with_log_append_time_the_max_timestamp_stays() -> None:
    batch = stored(with_headers((b"a", b"1"), (b"b", b"2")), offset=10, timestamp_type=TimestampType.LOG_APPEND_TIME,
                   log_append_time=T + 777)  # fmt: skip
    cleaned = clean(batch, rules(known={b"a": 99, b"b": 11}))
    assert content(cleaned) == [(11, T + 777, b"b", b"2")]


def test_a_batch_of_which_nothing_stays_goes() -> None:
    assert clean(stored(2, offset=10), rules(known={b"k0": 50, b"k1": 51})) is None


# Empty batches --------------------------------------------------------------------------------------------------------


def test_the_last_batch_of_an_active_producer_keeps_its_header() -> None:
    batch = stored(2, offset=10, leader_epoch=3, codec=Codec.GZIP, producer_id=7, producer_epoch=1, base_sequence=5)
    cleaned = clean(batch, rules(known={b"k0": 50, b"k1": 51}, last_batches={7: LastBatch(11, 1)}))
    assert cleaned is not None
    before, after = read_header(batch), read_header(cleaned)
    assert len(cleaned) == 61
    assert after == before._replace(batch_length=49, crc=after.crc, attributes=0, base_timestamp=-1, record_count=0)
    assert after.last_sequence == 6
    assert clean(cleaned, rules(last_batches={7: LastBatch(11, 1)})) == cleaned, "the next round leaves it as it is"
    assert clean(cleaned, rules(last_batches={7: LastBatch(80, 1)})) is None, "the producer has written since"
    assert clean(cleaned, rules()) is None, "the producer is no longer known"


def test_the_batch_where_the_round_ends_keeps_its_header_so_that_the_segment_keeps_its_end() -> None:
    cleaned = clean(stored(2, offset=10), rules(known={b"k0": 50, b"k1": 51}, end_offset=12))
    assert cleaned is not None
    assert read_header(cleaned).next_offset == 12


def test_the_known_empty_batch_of_apache_kafka() -> None:
    # Recorded from a broker: offsets 100 and 101 of producer 4000, whose records were superseded.
    kafka = bytes.fromhex(
        "0000000000000064000000310000000302" "0be57ed6" "000000000001ffffffffffffffff0000018bcfe56805"
        "0000000000000fa000000000000700000000"
    )  # fmt: skip
    batch = stored(
        [record(key=b"a", timestamp=1700000000000), record(key=b"b", timestamp=1700000000005)],
        offset=100, leader_epoch=3, producer_id=4000, producer_epoch=0, base_sequence=7,
    )  # fmt: skip
    cleaned = clean(batch, rules(known={b"a": 500, b"b": 501}, last_batches={4000: LastBatch(101, 0)}))
    assert cleaned == kafka


# Tombstones -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", EVERY_CODEC, ids=lambda codec: codec.name)
def test_a_tombstone_gets_a_delete_horizon_and_goes_when_it_is_over(codec: Codec) -> None:
    batch = stored(with_headers((b"a", b"1"), (b"b", None)), offset=10, codec=codec)
    first = clean(batch, rules(known={b"a": 10, b"b": 11}))
    assert first is not None
    header = read_header(first)
    assert header.has_delete_horizon
    assert header.base_timestamp == NOW + RETENTION
    assert header.max_timestamp == T + 10
    assert header.codec is codec
    assert content(first) == [(10, T, b"a", b"1"), (11, T + 10, b"b", None)]

    still = clean(first, rules(known={b"c": 99}, now_ms=NOW + RETENTION - 1))
    assert still == first, "the horizon is not set anew"
    gone = clean(first, rules(known={b"c": 99}, now_ms=NOW + RETENTION))
    assert content(gone) == [(10, T, b"a", b"1")]
    assert gone is not None
    assert read_header(gone).base_timestamp == NOW + RETENTION, "what is left stays relative to the horizon"


def test_a_tombstone_that_is_to_stay_for_ever_has_the_latest_horizon_there_is() -> None:
    cleaning = replace(rules(known={b"a": 10}), delete_retention_ms=2**63 - 1)
    cleaned = clean(stored([record(None, key=b"a")], offset=10), cleaning)
    assert cleaned is not None
    assert read_header(cleaned).base_timestamp == 2**63 - 1
    assert content(cleaned) == [(10, T, b"a", None)]


def test_a_tombstone_that_a_later_record_replaces_goes_at_once() -> None:
    assert clean(stored([record(None, key=b"a")], offset=10), rules(known={b"a": 90})) is None


# Transactions ---------------------------------------------------------------------------------------------------------


def transactional(offset: int) -> bytes:
    return stored(1, offset=offset, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)


def a_marker(offset: int, *, commit: bool) -> bytes:
    return bytes(changed(end_marker(commit=commit, producer_id=7, producer_epoch=0), base_offset=offset))


def test_records_of_an_aborted_transaction_go_at_once_and_its_marker_a_round_and_a_horizon_later() -> None:
    aborted = AbortedTransaction(7, 10, 11, 12)
    first = rules(aborted=(aborted,))
    assert clean(transactional(10), first) is None
    assert clean(a_marker(11, commit=False), first) == a_marker(11, commit=False)

    second = clean(a_marker(11, commit=False), rules(aborted=(aborted,)))
    assert second is not None
    header = read_header(second)
    assert (header.has_delete_horizon, header.base_timestamp) == (True, NOW + RETENTION)
    assert header.is_control
    assert header.is_transactional
    assert content(second) == content(a_marker(11, commit=False))

    assert clean(second, rules(now_ms=NOW + RETENTION - 1)) == second
    assert clean(second, rules(now_ms=NOW + RETENTION)) is None


def test_a_commit_marker_stays_as_long_as_a_batch_of_its_transaction_does() -> None:
    cleaning = rules(known={b"k0": 10})
    assert clean(transactional(10), cleaning) == transactional(10)
    assert clean(a_marker(11, commit=True), cleaning) == a_marker(11, commit=True)


def test_the_last_marker_of_a_producer_without_batches_keeps_its_header() -> None:
    past = clean(a_marker(11, commit=True), rules())
    assert past is not None
    emptied = clean(past, rules(now_ms=NOW + RETENTION, last_batches={7: LastBatch(-1, 0)}))
    assert emptied is not None
    header = read_header(emptied)
    assert (header.record_count, header.is_control, header.producer_epoch) == (0, True, 0)
    assert clean(emptied, rules(last_batches={7: LastBatch(-1, 0)})) == emptied
    assert clean(emptied, rules(last_batches={7: LastBatch(-1, 1)})) is None
