"""Records in and out of batches: Kafka's bytes, other clients' bytes, and damaged ones."""

import warnings
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage.batch.record_batch import Codec, TimestampType, computed_crc, read_header
from storage.batch.records import Record, encode_batch, iterate_records
from storage.errors import CorruptBatch, DecompressionTooLarge, StorageError, UndecodableRecords
from tests.support.batches import COMPRESSING, EVERY_CODEC, T, changed, produced, record
from tests.unit.storage.batch import vectors

with warnings.catch_warnings():
    # kafka-python reads its schemas by a function that Python 3.11 calls deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

some_bytes = st.none() | st.binary(max_size=200)
some_headers = st.lists(st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=20)), max_size=4)
some_records = st.lists(
    st.builds(
        record,
        some_bytes,
        key=some_bytes,
        timestamp=st.integers(-1, 2**62),
        headers=some_headers,
    ),
    min_size=1,
    max_size=80,
)


def test_kafkas_batch_holds_what_kafka_put_in() -> None:
    assert list(iterate_records(vectors.AT_OFFSET_100)) == [
        Record(offset=100, timestamp=T, key=b"k1", value=b"hello", headers=[("h", b"v")]),
        Record(offset=101, timestamp=T + 5, key=None, value=b"world"),
    ]


def test_the_same_records_encode_to_kafkas_bytes() -> None:
    first, second = record(b"hello", key=b"k1", headers=[("h", b"v")]), record(b"world", key=None, timestamp=T + 5)
    batch = encode_batch([first, second], producer_id=4000, producer_epoch=0, base_sequence=7)
    assert batch == vectors.PRODUCED


@pytest.mark.parametrize("batch", [vectors.GZIP, vectors.SNAPPY, vectors.LZ4])
def test_kafkas_compressed_batches_read_and_encode_to_the_same_bytes(batch: bytes) -> None:
    header = read_header(batch)
    assert computed_crc(batch, 0, header.size) == header.crc
    found = list(iterate_records(batch))
    assert found == [Record(offset=i, timestamp=T + i, key=None, value=b"a" * 32) for i in range(3)]
    assert encode_batch(found, codec=header.codec) == batch


def test_with_log_append_time_all_records_have_the_time_of_the_append() -> None:
    found = list(iterate_records(vectors.AT_OFFSET_100_WITH_LOG_APPEND_TIME))
    assert [each.timestamp for each in found] == [T + 9000, T + 9000]
    batch = encode_batch([record()], timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time=T + 7)
    assert [each.timestamp for each in iterate_records(batch)] == [T + 7]


def test_a_batch_that_compaction_emptied_holds_no_records() -> None:
    assert list(iterate_records(vectors.EMPTIED_BY_COMPACTION)) == []
    emptied = encode_batch([], base_offset=100, last_offset_delta=1)
    assert read_header(emptied).last_offset == 101
    assert list(iterate_records(emptied)) == []


def test_offsets_with_gaps_survive() -> None:
    kept = [Record(offset=100, value=b"a"), Record(offset=107, value=b"b")]
    batch = encode_batch(kept, base_offset=100, last_offset_delta=9)
    assert list(iterate_records(batch)) == kept
    assert read_header(batch).last_offset == 109


@pytest.mark.parametrize(
    ("offsets", "fields"), [((5, 5), {}), ((5, 4), {}), ((1,), {"base_offset": 2}), ((0, 3), {"last_offset_delta": 2})]
)
def test_offsets_that_no_batch_can_hold_are_a_mistake_of_the_caller(
    offsets: tuple[int, ...], fields: dict[str, int]
) -> None:
    with pytest.raises(ValueError):
        encode_batch([Record(offset=offset) for offset in offsets], **fields)


def test_header_keys_that_are_not_utf_8_keep_their_bytes() -> None:
    batch = bytes(encode_batch([record(headers=[("k\udcff", b"v")])]))
    assert b"k\xff" in batch
    assert next(iterate_records(batch)).headers == [("k\udcff", b"v")]


@given(content=some_records, codec=st.sampled_from(EVERY_CODEC))
@settings(deadline=None, max_examples=120)
def test_what_is_encoded_is_read_back(content: list[Record], codec: Codec) -> None:
    batch = encode_batch(content, codec=codec, base_offset=40)
    header = read_header(batch)
    assert header.crc == computed_crc(batch, 0, header.size)
    assert header.size == len(batch)
    assert header.max_timestamp == max(each.timestamp for each in content)
    found = list(iterate_records(batch))
    assert [each.offset for each in found] == list(range(40, 40 + len(content)))
    for given_record, read in zip(content, found, strict=True):
        assert (read.timestamp, read.key, read.value, read.headers) == (
            given_record.timestamp,
            given_record.key,
            given_record.value,
            given_record.headers,
        )


@given(content=some_records, codec=st.sampled_from(EVERY_CODEC))
@settings(deadline=None, max_examples=60)
def test_kafka_python_reads_what_we_write(content: list[Record], codec: Codec) -> None:
    batch = DefaultRecordBatch(bytes(encode_batch(content, codec=codec)))
    assert batch.validate_crc()
    found = [(each.offset, each.timestamp, each.key, each.value, each.headers) for each in batch]
    assert found == [(i, each.timestamp, each.key, each.value, each.headers) for i, each in enumerate(content)]


@given(content=some_records, codec=st.sampled_from(EVERY_CODEC))
@settings(deadline=None, max_examples=60)
def test_we_read_what_kafka_python_writes(content: list[Record], codec: Codec) -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=codec, is_transactional=False, producer_id=9, producer_epoch=1, base_sequence=3,
        batch_size=1 << 20,
    )  # fmt: skip
    for offset, each in enumerate(content):
        builder.append(offset, each.timestamp, each.key, each.value, each.headers)
    batch = bytes(builder.build())
    header = read_header(batch)
    assert computed_crc(batch, 0, header.size) == header.crc
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 1, 3)
    found = [(each.timestamp, each.key, each.value, each.headers) for each in iterate_records(batch)]
    assert found == [(each.timestamp, each.key, each.value, each.headers) for each in content]


@pytest.mark.parametrize("codec", EVERY_CODEC)
def test_no_part_of_a_batch_reads_as_a_whole_one(codec: Codec) -> None:
    batch = bytes(produced(12, codec=codec))
    for length in range(len(batch)):
        with pytest.raises((UndecodableRecords, CorruptBatch)):
            list(iterate_records(batch[:length]))


@pytest.mark.parametrize("codec", EVERY_CODEC)
def test_a_records_section_cut_short_cannot_be_decoded(codec: Codec) -> None:
    batch = bytes(produced(12, codec=codec))
    for length in range(61, len(batch)):
        with pytest.raises(UndecodableRecords):
            list(iterate_records(changed(batch[:length], batch_length=length - 12)))


@given(data=st.data(), codec=st.sampled_from(EVERY_CODEC))
@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow])
def test_flipped_bits_give_our_errors_or_other_records_but_never_other_errors(
    data: st.DataObject, codec: Codec
) -> None:
    batch = bytearray(
        produced([record(headers=[("h", b"v")]), record(None, key=None), *map(record, [b"x"] * 9)], codec=codec)
    )
    for _ in range(data.draw(st.integers(1, 3))):
        bit = data.draw(st.integers(0, len(batch) * 8 - 1))
        batch[bit // 8] ^= 1 << bit % 8
    with suppress(StorageError):
        list(iterate_records(batch))


@given(section=st.binary(max_size=80), count=st.integers(0, 5), codec=st.integers(0, 7))
@settings(deadline=None, max_examples=300)
def test_garbage_in_place_of_records_gives_our_errors_only(section: bytes, count: int, codec: int) -> None:
    batch = changed(
        bytes(produced())[:61] + section, batch_length=49 + len(section), record_count=count, attributes=codec
    )
    with suppress(StorageError):
        list(iterate_records(batch))


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_batch_that_opens_to_more_than_wanted_is_not_opened(codec: Codec) -> None:
    batch = produced([record(bytes(100_000))], codec=codec)
    assert len(next(iterate_records(batch, most_bytes=101_000)).value or b"") == 100_000
    with pytest.raises(DecompressionTooLarge):
        list(iterate_records(batch, most_bytes=99_000))


def test_other_magics_and_negative_counts_cannot_be_decoded() -> None:
    with pytest.raises(UndecodableRecords, match="magic 1"):
        list(iterate_records(changed(produced(), magic=1)))
    with pytest.raises(UndecodableRecords, match="-1 records"):
        list(iterate_records(changed(produced(), record_count=-1)))


def test_timestamps_may_be_as_far_apart_as_numbers_go() -> None:
    times = [2**63 - 1, -(2**63), 0]
    batch = encode_batch([Record(timestamp=time, value=b"v") for time in times])
    assert [record.timestamp for record in iterate_records(batch)] == times
