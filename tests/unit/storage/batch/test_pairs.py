"""Keys and values in and out of batches: the same bytes and errors as from `Record` objects."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.batch.pairs import READ_AT_ONCE, Pair, encode_pairs, read_pairs
from storage.batch.record_batch import Buffer, Codec, read_header
from storage.batch.records import MOST_BYTES_READ, Record, encode_batch, iterate_records, open_records
from storage.errors import StorageError, UndecodableRecords
from tests.support.batches import EVERY_CODEC, T, changed, produced, record
from tests.unit.storage.batch import vectors

sizes = st.sampled_from([0, 1, 40, 63, 64, 127, 1023, 1024, 8191, 8192, 20_000])
"""Where lengths take another byte, and between."""
some_keys = st.binary(max_size=100) | sizes.map(bytes)
some_pairs = st.lists(st.tuples(some_keys, st.none() | some_keys), min_size=1, max_size=70)


def read(batch: Buffer) -> list[Pair]:
    header = read_header(batch)
    return list(read_pairs(open_records(batch, header, MOST_BYTES_READ), header.record_count))


def read_the_general_way(batch: Buffer) -> list[Pair]:
    return [(each.key, each.value) for each in iterate_records(batch)]


@given(
    pairs=some_pairs,
    timestamp=st.integers(0, 2**62),
    codec=st.sampled_from(EVERY_CODEC),
    producer=st.fixed_dictionaries(
        {
            "producer_id": st.integers(-1, 2**63 - 1),
            "producer_epoch": st.integers(-1, 2**15 - 1),
            "base_sequence": st.integers(-1, 9),
            "is_transactional": st.booleans(),
        }
    ),
)
@settings(deadline=None)
def test_pairs_are_written_as_records_are(
    pairs: list[tuple[bytes, bytes | None]], timestamp: int, codec: Codec, producer: dict[str, Any]
) -> None:
    given_records = [Record(timestamp=timestamp, key=key, value=value) for key, value in pairs]
    batch = encode_pairs(pairs, timestamp=timestamp, codec=codec, **producer)
    assert batch == encode_batch(given_records, codec=codec, **producer)


@given(pairs=some_pairs)
@settings(deadline=None)
def test_what_is_written_is_read_back(pairs: list[tuple[bytes, bytes | None]]) -> None:
    assert read(encode_pairs(pairs, timestamp=T)) == pairs


def test_a_batch_of_nothing_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="a batch of nothing"):
        encode_pairs([], timestamp=T)


@pytest.mark.parametrize("batch", [vectors.PRODUCED, vectors.GZIP, vectors.SNAPPY, vectors.LZ4, vectors.COMMIT])
def test_kafkas_batches_are_read_whatever_is_in_them(batch: bytes) -> None:
    assert read(batch) == read_the_general_way(batch)


def test_a_batch_that_compaction_emptied_has_no_pairs() -> None:
    assert read(vectors.EMPTIED_BY_COMPACTION) == []


@pytest.mark.parametrize("codec", EVERY_CODEC)
def test_headers_gaps_and_times_of_their_own_are_passed_over(codec: Codec) -> None:
    content = [
        record(b"1", key=b"a", headers=[("h", b"v")]),
        Record(offset=300, timestamp=T - 40_000_000, key=None, value=b"2"),
        Record(offset=301, timestamp=T + 2**40, key=b"c", value=None),
    ]
    batch = encode_batch(content, codec=codec)
    assert read(batch) == [(b"a", b"1"), (None, b"2"), (b"c", None)]
    without_headers = encode_batch(content[1:], codec=codec)
    assert read(without_headers) == [(None, b"2"), (b"c", None)]


def test_a_large_batch_is_read_as_it_is_asked_for() -> None:
    pairs = [(b"%d" % number, b"v") for number in range(READ_AT_ONCE + 1)]
    section = bytes(encode_pairs(pairs, timestamp=T)[61:])
    assert list(read_pairs(section, len(pairs))) == pairs
    half = iter(read_pairs(section[:5_000], len(pairs)))
    assert [next(half) for _ in range(100)] == pairs[:100]


def test_what_stands_before_a_damaged_record_is_read() -> None:
    section = bytearray(encode_pairs([(b"1", b"v"), (b"2", b"v"), (b"3", b"v")], timestamp=T)[61:])
    section[9] = 0x7F  # the length of the second record
    found = iter(read_pairs(bytes(section), 3))
    assert next(found) == (b"1", b"v")
    with pytest.raises(UndecodableRecords, match="record 1"):
        next(found)


def test_no_part_of_a_batch_reads_as_a_whole_one() -> None:
    batch = bytes(encode_pairs([(b"key", b"value"), (b"other", None), (bytes(100), bytes(9_000))], timestamp=T))
    for length in range(61, len(batch)):
        with pytest.raises(UndecodableRecords):
            list(read_pairs(batch[61:length], 3))


def test_any_flipped_bit_gives_what_the_general_way_gives_errors_included() -> None:
    batch = encode_pairs([(b"key", b"value"), (b"k", None), (bytes(70), bytes(70))], timestamp=T)
    for bit in range(21 * 8, len(batch) * 8):
        flipped = batch.copy()
        flipped[bit // 8] ^= 1 << bit % 8
        assert_both_agree(flipped)


@given(section=st.binary(max_size=80), count=st.integers(0, 5))
@settings(deadline=None, max_examples=500)
def test_garbage_in_place_of_records_gives_what_the_general_way_gives(section: bytes, count: int) -> None:
    assert_both_agree(changed(bytes(produced())[:61] + section, batch_length=49 + len(section), record_count=count))


def assert_both_agree(batch: Buffer) -> None:
    expected = None
    with suppress(StorageError):
        expected = read_the_general_way(batch)
    found = None
    with suppress(StorageError):
        found = read(batch)
    assert found == expected
