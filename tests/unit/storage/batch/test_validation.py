"""What a producer's batch is refused for, and what is put right in it: Apache Kafka 4.4.0, row by row."""

import struct
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.log_config import LogConfig
from storage.batch.compression import compress
from storage.batch.record_batch import HEADER_SIZE, Codec, TimestampType, computed_crc, read_header, seal, stamp
from storage.batch.records import Record, assemble_batch, encode_batch, encode_record, iterate_records
from storage.batch.validation import (
    LEAST_RECORDS,
    MOST_RECORD_ERRORS,
    WALKED_RECORDS,
    AppendRules,
    ValidatedBatch,
    validate_produced,
)
from storage.batch.varints import encode_signed
from storage.errors import (
    BatchLargerThanSegment,
    BatchTooLarge,
    CorruptBatch,
    InvalidRecord,
    InvalidTimestamp,
    StorageError,
    UndecodableRecords,
)
from tests.support.batches import COMPRESSING, EVERY_CODEC, T, changed, produced, record, records
from tests.unit.storage.batch import vectors

CREATE_TIME = AppendRules()
LOG_APPEND_TIME = AppendRules(timestamp_type=TimestampType.LOG_APPEND_TIME)
COMPACTED = AppendRules(is_compacted=True)
FULL = AppendRules(walks_all_records=True)
HOUR_MS = 3_600_000
MANY = 50
"""More records than are walked by default."""


def accept(batch: memoryview, rules: AppendRules = CREATE_TIME) -> ValidatedBatch:
    """Validate at T; what comes out must be sound in itself."""
    validated = validate_produced(batch, rules, T)
    header = read_header(validated.data)
    assert validated.header == header
    assert len(validated.data) == header.size
    assert header.crc == computed_crc(validated.data, 0, header.size)
    assert not validated.data.readonly
    return validated


def misnumbered(*deltas: int, codec: Codec = Codec.NONE) -> memoryview:
    """A batch whose header counts right and whose records claim other offset deltas."""
    placed = [Record(offset=delta, timestamp=T, key=b"k", value=b"v") for delta in deltas]
    return changed(encode_batch(placed, codec=codec), last_offset_delta=len(deltas) - 1)


# The shape ------------------------------------------------------------------------------------------------------------


def test_a_good_batch_is_stored_in_the_received_bytes() -> None:
    batch = memoryview(bytearray(vectors.PRODUCED))
    validated = accept(batch)
    assert validated.data.obj is batch.obj
    assert validated.log_append_time_ms == -1
    stamp(validated.data, 100, 3)
    assert validated.data == vectors.AT_OFFSET_100


def test_bytes_that_cannot_be_written_to_are_copied() -> None:
    validated = accept(memoryview(vectors.PRODUCED))
    assert validated.data == vectors.PRODUCED


@pytest.mark.parametrize("nothing", [None, memoryview(b"")])
def test_no_records_are_an_invalid_record(nothing: memoryview | None) -> None:
    with pytest.raises(InvalidRecord):
        validate_produced(nothing, CREATE_TIME, T)


@pytest.mark.parametrize("length", [1, 11, 12, 16, 17, 60, 61, 90])
def test_only_a_truncated_batch_is_an_invalid_record(length: int) -> None:
    with pytest.raises(InvalidRecord, match="no whole batch"):
        validate_produced(memoryview(vectors.PRODUCED[:length]), CREATE_TIME, T)


@pytest.mark.parametrize("tail", [b"12345", vectors.PRODUCED[:12], vectors.PRODUCED[:16], vectors.PRODUCED[:-1]])
def test_a_partial_batch_or_stray_bytes_behind_the_batch_are_dropped(tail: bytes) -> None:
    assert accept(memoryview(bytearray(vectors.PRODUCED + tail))).data == vectors.PRODUCED


@pytest.mark.parametrize("length", [-1, 0, 10, 13])
def test_an_impossible_batch_length_is_corrupt_and_the_client_is_told(length: int) -> None:
    for size in (12, 91):
        batch = bytearray(vectors.PRODUCED[:size])
        struct.pack_into(">i", batch, 8, length)
        with pytest.raises(CorruptBatch) as refused:
            validate_produced(memoryview(batch), CREATE_TIME, T)
        assert refused.value.message_for_client is not None
        assert f"Record size {length} is less" in refused.value.message_for_client


@pytest.mark.parametrize("length", [14, 20, 48])
def test_a_batch_shorter_than_a_header_is_corrupt(length: int) -> None:
    for size in (length + 12, 91):
        batch = bytearray(vectors.PRODUCED[:size])
        struct.pack_into(">i", batch, 8, length)
        # What is left of 91 bytes must not look like another batch.
        batch[length + 12 :] = b"\xff" * min(len(batch) - length - 12, 11)
        with pytest.raises(CorruptBatch):
            validate_produced(memoryview(batch), CREATE_TIME, T)


@pytest.mark.parametrize("magic", [3, 127, -1])
def test_a_magic_that_does_not_exist_is_corrupt_and_the_client_is_told(magic: int) -> None:
    with pytest.raises(CorruptBatch, match=f"Invalid magic found in record: {magic}$") as refused:
        validate_produced(changed(produced(), magic=magic), CREATE_TIME, T)
    assert refused.value.message_for_client is not None


@pytest.mark.parametrize("magic", [0, 1])
def test_old_magics_are_invalid_records(magic: int) -> None:
    with pytest.raises(InvalidRecord, match=f"magic {magic}"):
        validate_produced(changed(produced(), magic=magic), CREATE_TIME, T)


def test_a_wrong_crc_is_corrupt_and_the_client_gets_no_text() -> None:
    with pytest.raises(CorruptBatch, match="CRC") as refused:
        validate_produced(changed(produced(), crc=1), CREATE_TIME, T)
    assert refused.value.message_for_client is None


@pytest.mark.parametrize(
    "batch",
    [
        pytest.param(memoryview(bytearray(vectors.PRODUCED * 2)), id="two batches"),
        pytest.param(changed(produced(), base_offset=1), id="base offset"),
        pytest.param(changed(produced(), attributes=0x20), id="control batch"),
        pytest.param(changed(produced(2), record_count=1), id="count below last offset delta"),
        pytest.param(changed(produced(2), last_offset_delta=0), id="last offset delta below count"),
        pytest.param(changed(produced(), record_count=0, last_offset_delta=-1), id="no records"),
        pytest.param(changed(produced(), record_count=-1, last_offset_delta=-2), id="negative count"),
        pytest.param(changed(produced(), last_offset_delta=2**31 - 1), id="last offset delta overflows"),
        pytest.param(changed(produced(2), record_count=3, last_offset_delta=2), id="a record too few"),
        pytest.param(changed(produced(2), record_count=1, last_offset_delta=0), id="a record too many"),
        pytest.param(changed(produced(MANY), record_count=1000, last_offset_delta=999), id="more than can fit"),
        pytest.param(changed(produced(), producer_id=7, producer_epoch=0), id="producer id without sequence"),
    ],
)
@pytest.mark.parametrize("rules", [CREATE_TIME, FULL])
def test_what_makes_a_batch_an_invalid_record(batch: memoryview, rules: AppendRules) -> None:
    before = bytes(batch)
    with pytest.raises(InvalidRecord) as refused:
        validate_produced(batch, rules, T)
    assert refused.value.record_errors == ()
    assert refused.value.message_for_client is None
    assert batch == before


def test_a_base_offset_is_found_before_the_size_and_the_size_before_the_crc() -> None:
    small = AppendRules(max_message_bytes=80)
    with pytest.raises(InvalidRecord):
        validate_produced(changed(vectors.PRODUCED, base_offset=1, crc=1), small, T)
    with pytest.raises(BatchTooLarge):
        validate_produced(changed(vectors.PRODUCED, crc=1), small, T)
    with pytest.raises(CorruptBatch):
        validate_produced(changed(vectors.PRODUCED, crc=1, record_count=9), CREATE_TIME, T)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_cannot_be_decoded(codec: int) -> None:
    with pytest.raises(UndecodableRecords):
        validate_produced(changed(produced(), attributes=codec), CREATE_TIME, T)


def test_the_size_limit_counts_the_whole_batch() -> None:
    around = len(produced([record(bytes(1_000_000))])) - 1_000_000
    fitting = produced([record(bytes(1_048_588 - around))])
    assert len(fitting) == 1_048_588
    accept(fitting)
    with pytest.raises(BatchTooLarge, match="1048589"):
        validate_produced(produced([record(bytes(1_048_589 - around))]), CREATE_TIME, T)


def test_a_batch_larger_than_a_segment_is_refused_last() -> None:
    with pytest.raises(BatchLargerThanSegment):
        validate_produced(produced(), AppendRules(segment_bytes=70), T)
    with pytest.raises(InvalidRecord):
        validate_produced(produced([record(key=None)]), AppendRules(segment_bytes=70, is_compacted=True), T)


# What is accepted although it looks odd -------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, MANY])
@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"attributes": 0x40}, id="delete horizon bit"),
        pytest.param({"attributes": 0x7F80}, id="bits 7 to 14"),
        pytest.param({"attributes": -0x8000}, id="bit 15"),
        pytest.param({"partition_leader_epoch": 77}, id="leader epoch"),
        pytest.param({"attributes": 0x10}, id="transactional without producer id"),
        pytest.param({"producer_id": 5, "producer_epoch": -1, "base_sequence": 0}, id="producer id without epoch"),
        pytest.param({"base_sequence": 3}, id="sequence without producer id"),
    ],
)
def test_odd_headers_are_accepted_and_stored_as_sent(count: int, fields: dict[str, int]) -> None:
    for rules in (CREATE_TIME, FULL):
        batch = changed(produced(count), **fields)
        before = bytes(batch)
        assert accept(batch, rules).data == before


def test_attributes_of_records_are_not_looked_at() -> None:
    batch = bytearray(produced())
    batch[HEADER_SIZE + 1] = 0xFF
    seal(batch)
    before = bytes(batch)
    assert accept(memoryview(batch)).data == before


# Timestamps -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timestamp", [-1, -5, 0])
def test_timestamps_before_all_time_are_accepted(timestamp: int) -> None:
    validated = accept(produced([record(timestamp=timestamp)]))
    assert validated.header.max_timestamp == max(timestamp, -1)
    assert [each.timestamp for each in iterate_records(validated.data)] == [timestamp]


def test_no_timestamp_is_within_every_limit() -> None:
    rules = AppendRules(timestamp_before_max_ms=1000)
    accept(produced([record(timestamp=-1)]), rules)
    with pytest.raises(InvalidTimestamp):
        validate_produced(produced([record(timestamp=-5)]), rules, T)


@pytest.mark.parametrize("rules", [CREATE_TIME, FULL])
def test_timestamps_up_to_an_hour_ahead_are_accepted_by_default(rules: AppendRules) -> None:
    accept(produced([record(timestamp=T + HOUR_MS)] * MANY), rules)
    with pytest.raises(InvalidTimestamp) as refused:
        validate_produced(produced([record()] * MANY + [record(timestamp=T + HOUR_MS + 1)]), rules, T)
    assert [index for index, _ in refused.value.record_errors] == [MANY]
    words = f"Timestamp {T + HOUR_MS + 1} of message with offset {MANY} is out of range"
    assert refused.value.record_errors[0][1].startswith(words)
    words = "One or more records have been rejected due to invalid timestamp"
    assert refused.value.message_for_client == words, "as Kafka's, to the last letter"
    assert str(refused.value).startswith(f"{words}: [RecordError(batchIndex={MANY}, message='Timestamp ")


def test_a_limit_on_age_looks_at_every_record() -> None:
    content = [*records(MANY), record(timestamp=T - 1001), record(timestamp=T - 1000)]
    with pytest.raises(InvalidTimestamp) as refused:
        validate_produced(produced(content), AppendRules(timestamp_before_max_ms=1000), T)
    assert [index for index, _ in refused.value.record_errors] == [MANY]
    accept(produced(content), CREATE_TIME)


def test_a_log_append_time_topic_has_no_limits() -> None:
    rules = AppendRules(
        timestamp_type=TimestampType.LOG_APPEND_TIME, timestamp_before_max_ms=0, timestamp_after_max_ms=0
    )
    for count in (1, MANY):
        accept(produced([record(timestamp=T + 10 * HOUR_MS), record(timestamp=5)] * count), rules)


@pytest.mark.parametrize("count", [1, MANY])
def test_a_log_append_time_topic_gives_its_own_time(count: int) -> None:
    batch = produced(count, producer_id=1, producer_epoch=0, base_sequence=0)
    validated = accept(batch, LOG_APPEND_TIME)
    assert validated.log_append_time_ms == T
    assert validated.data.obj is batch.obj
    assert validated.header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert {each.timestamp for each in iterate_records(validated.data)} == {T}


def test_giving_log_append_time_leaves_kafkas_bytes() -> None:
    validated = validate_produced(memoryview(bytearray(vectors.PRODUCED)), LOG_APPEND_TIME, T + 9000)
    stamp(validated.data, 100, 3)
    assert validated.data == vectors.AT_OFFSET_100_WITH_LOG_APPEND_TIME


@pytest.mark.parametrize("count", [1, MANY])
@pytest.mark.parametrize("codec", EVERY_CODEC)
def test_the_log_append_time_bit_of_a_client_is_cleared_if_its_time_is_in_range(count: int, codec: Codec) -> None:
    batch = changed(produced(count, codec=codec), attributes=8 | codec, max_timestamp=T + 70)
    validated = accept(batch)
    assert validated.header.attributes == codec
    assert validated.header.max_timestamp == T + 70
    assert [each.timestamp for each in iterate_records(validated.data)] == [T + index for index in range(count)]


@pytest.mark.parametrize("rules", [CREATE_TIME, FULL])
@pytest.mark.parametrize("count", [1, 3, MANY])
@pytest.mark.parametrize("max_timestamp", [T + HOUR_MS + 1, -1])
def test_the_log_append_time_bit_with_a_wrong_time_is_refused_for_every_record(
    count: int, max_timestamp: int, rules: AppendRules
) -> None:
    batch = changed(produced(count), attributes=8, max_timestamp=max_timestamp)
    with pytest.raises(InvalidTimestamp) as refused:
        validate_produced(batch, rules, T)
    assert [index for index, _ in refused.value.record_errors] == list(range(count))


@pytest.mark.parametrize("count", [1, MANY])
def test_a_log_append_time_topic_refuses_a_client_that_gives_log_append_time_itself(count: int) -> None:
    batch = changed(produced(count), attributes=8)
    with pytest.raises(InvalidTimestamp) as refused:
        validate_produced(batch, LOG_APPEND_TIME, T)
    assert len(refused.value.record_errors) == count


@pytest.mark.parametrize("codec", EVERY_CODEC)
@pytest.mark.parametrize("wrong", [T - 1, T + 5 * HOUR_MS, -9])
def test_a_wrong_max_timestamp_is_corrected_from_the_records(wrong: int, codec: Codec) -> None:
    for count in (2, MANY):
        validated = accept(changed(produced(count, codec=codec), max_timestamp=wrong))
        assert validated.header.max_timestamp == T + count - 1


def test_a_max_timestamp_that_looks_possible_is_corrected_where_records_are_walked() -> None:
    assert accept(changed(produced(3), max_timestamp=T + 100)).header.max_timestamp == T + 2
    assert accept(changed(produced(MANY), max_timestamp=T + 100), FULL).header.max_timestamp == T + MANY - 1
    assert accept(changed(produced(MANY), max_timestamp=T + 100)).header.max_timestamp == T + 100


def test_timestamps_that_overflow_wrap_around_and_are_judged_then() -> None:
    batch = changed(produced([record(timestamp=0), record(timestamp=5)]), base_timestamp=2**63 - 3)
    with pytest.raises(InvalidTimestamp):
        validate_produced(batch, CREATE_TIME, T)


# Keys -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", EVERY_CODEC)
def test_a_compacted_topic_refuses_records_without_a_key_and_names_them(codec: Codec) -> None:
    content = [record(key=None if index in (2, 7, 40) else b"k") for index in range(MANY)]
    with pytest.raises(InvalidRecord) as refused:
        validate_produced(produced(content, codec=codec), COMPACTED, T)
    assert [index for index, _ in refused.value.record_errors] == [2, 7, 40]
    words = "Compacted topic cannot accept message without key"
    assert all(message.startswith(words) for _, message in refused.value.record_errors)
    assert str(refused.value.message_for_client).startswith("One or more records have been rejected due to 3 record")
    accept(produced(content, codec=codec), CREATE_TIME)


def test_an_empty_key_is_a_key() -> None:
    accept(produced([record(key=b"")]), COMPACTED)


def test_a_batch_with_both_faults_is_refused_for_time_and_names_both() -> None:
    late = T + 2 * HOUR_MS
    content = [record(key=None, timestamp=late), record(), record(timestamp=late), record(key=None)]
    with pytest.raises(InvalidTimestamp) as refused:
        validate_produced(produced(content), COMPACTED, T)
    assert [(index, "key" in message) for index, message in refused.value.record_errors] == [
        (0, True),
        (2, False),
        (3, True),
    ]


def test_a_refusal_names_a_bounded_number_of_records() -> None:
    with pytest.raises(InvalidRecord) as refused:
        validate_produced(produced([record(b"", key=None)] * 5000), COMPACTED, T)
    assert len(refused.value.record_errors) == MOST_RECORD_ERRORS
    assert "have been rejected due to 5000 record errors" in str(refused.value)
    late = changed(produced([record(b"")] * 5000), attributes=8, max_timestamp=T + 2 * HOUR_MS)
    with pytest.raises(InvalidTimestamp) as refused_late:
        validate_produced(late, CREATE_TIME, T)
    assert len(refused_late.value.record_errors) == MOST_RECORD_ERRORS


# Records that cannot be read ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", EVERY_CODEC)
@pytest.mark.parametrize("rules", [CREATE_TIME, FULL])
def test_records_cut_short_or_left_over_are_invalid(codec: Codec, rules: AppendRules) -> None:
    batch = produced(3)
    header = read_header(batch)._replace(attributes=codec)
    section = bytes(batch[HEADER_SIZE:])
    for broken in (section[:-1], section + b"\x00", section[:-5], b"\x01" + section[1:]):
        with pytest.raises(InvalidRecord) as refused:
            validate_produced(memoryview(assemble_batch(header, broken)), rules, T)
        assert refused.value.record_errors == ()


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD, Codec.LZ4, Codec.SNAPPY])
def test_damaged_compressed_data_cannot_be_decoded(codec: Codec) -> None:
    garbage = bytes(produced(1))[:HEADER_SIZE] + b"this is no compressed data at all"
    batch = changed(garbage, batch_length=len(garbage) - 12, attributes=codec)
    with pytest.raises(UndecodableRecords):
        validate_produced(batch, CREATE_TIME, T)
    many = changed(batch, record_count=MANY, last_offset_delta=MANY - 1)
    with pytest.raises(UndecodableRecords):
        validate_produced(changed(many), FULL, T)
    accept(many, CREATE_TIME)


# Offset deltas --------------------------------------------------------------------------------------------------------


def test_wrong_offset_deltas_are_by_default_treated_as_kafka_treats_them() -> None:
    batch = misnumbered(0, 5)
    before = bytes(batch)
    assert accept(batch).data == before
    for codec in COMPRESSING:
        with pytest.raises(UndecodableRecords, match="offset deltas"):
            validate_produced(misnumbered(0, 5, codec=codec), CREATE_TIME, T)


@pytest.mark.parametrize("codec", EVERY_CODEC)
def test_wrong_offset_deltas_are_rebuilt_with_full_validation(codec: Codec) -> None:
    for deltas in ((0, 5), (3, 4, 5, 6, 7, 8)):
        validated = accept(misnumbered(*deltas, codec=codec), FULL)
        assert [each.offset for each in iterate_records(validated.data)] == list(range(len(deltas)))
        assert validated.header.codec is codec


def test_wrong_offset_deltas_are_put_right_by_recompression() -> None:
    validated = accept(misnumbered(0, 5, codec=Codec.LZ4), AppendRules(target_codec=Codec.GZIP))
    assert [each.offset for each in iterate_records(validated.data)] == [0, 1]


# max.decompressed.message.bytes ---------------------------------------------------------------------------------------


BODY_BYTES = 128
"""What follows the length of `LARGE`."""
LARGE = record(bytes(120), key=b"k")
SMALL_RECORDS = AppendRules(max_decompressed_message_bytes=BODY_BYTES - 1)
LARGE_RECORDS = AppendRules(max_decompressed_message_bytes=BODY_BYTES)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_compressed_record_may_be_as_large_as_the_topic_says(codec: Codec) -> None:
    content = [*records(MANY), LARGE]
    accept(produced([LARGE], codec=codec), LARGE_RECORDS)
    accept(produced(content, codec=codec), LARGE_RECORDS)
    for refused in ([LARGE], content):
        with pytest.raises(InvalidRecord, match=r"12[78]"):
            validate_produced(produced(refused, codec=codec), SMALL_RECORDS, T)


@pytest.mark.parametrize("target", [None, *EVERY_CODEC])
def test_an_uncompressed_record_may_be_larger(target: Codec | None) -> None:
    rules = AppendRules(max_decompressed_message_bytes=BODY_BYTES - 1, target_codec=target)
    accept(produced([LARGE]), rules)
    accept(produced([*records(MANY), LARGE]), rules)


@pytest.mark.parametrize("target", EVERY_CODEC)
def test_a_record_that_is_too_large_is_refused_into_whatever_codec_it_would_go(target: Codec) -> None:
    rules = AppendRules(max_decompressed_message_bytes=BODY_BYTES - 1, target_codec=target)
    with pytest.raises(InvalidRecord, match="127"):
        validate_produced(produced([LARGE], codec=Codec.LZ4), rules, T)


def test_a_record_that_is_too_large_is_named_before_what_else_is_wrong_with_others() -> None:
    rules = AppendRules(max_decompressed_message_bytes=BODY_BYTES - 1, is_compacted=True)
    content = [record(key=None), record(timestamp=T + 2 * HOUR_MS), LARGE]
    with pytest.raises(InvalidRecord, match="record 2 has 128 bytes; up to 127 are allowed") as refusal:
        validate_produced(produced(content, codec=Codec.GZIP), rules, T)
    assert refusal.value.record_errors == ()


@pytest.mark.parametrize("codec", COMPRESSING)
def test_no_more_is_opened_than_records_of_the_allowed_size_can_have(codec: Codec) -> None:
    bomb = produced([record(bytes(50 << 20))], codec=codec)
    rules = AppendRules(max_decompressed_message_bytes=100_000, max_message_bytes=4 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRecord, match="1 records open to more than 100005 bytes"):
            validate_produced(bomb, rules, T)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # A slice of zstd opens to 16 MiB at most; cramjam's memory is not traced.
    assert peak < 20 << 20


# Recompression --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", EVERY_CODEC)
@pytest.mark.parametrize("target", EVERY_CODEC)
def test_records_are_stored_in_the_topics_codec(source: Codec, target: Codec) -> None:
    content = [record(headers=[("h", None)], timestamp=T + 3), record(None, timestamp=T - 4), *records(MANY)]
    batch = produced(content, codec=source, producer_id=9, producer_epoch=2, base_sequence=30, is_transactional=True)
    before = bytes(batch)
    validated = accept(batch, AppendRules(target_codec=target))
    header = validated.header
    assert header.codec is target
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 30)
    assert header.is_transactional
    assert (header.base_timestamp, header.max_timestamp) == (T + 3, T + MANY - 1)
    assert list(iterate_records(validated.data)) == list(iterate_records(before))
    if source is target:
        assert validated.data == before


def test_a_topic_with_producers_codec_keeps_every_batch_as_it_is() -> None:
    for codec in EVERY_CODEC:
        batch = produced(3, codec=codec, level=1)
        before = bytes(batch)
        assert accept(batch, COMPACTED).data == before


def test_recompression_on_a_log_append_time_topic_gives_the_topics_time() -> None:
    rules = AppendRules(timestamp_type=TimestampType.LOG_APPEND_TIME, target_codec=Codec.ZSTD)
    validated = accept(produced(MANY), rules)
    assert {each.timestamp for each in iterate_records(validated.data)} == {T}
    assert validated.log_append_time_ms == T


def test_recompression_clears_a_clients_log_append_time_bit_and_keeps_its_time() -> None:
    batch = changed(produced(2), attributes=8, max_timestamp=T + 70)
    validated = accept(batch, AppendRules(target_codec=Codec.GZIP))
    assert validated.header.timestamp_type is TimestampType.CREATE_TIME
    assert [each.timestamp for each in iterate_records(validated.data)] == [T + 70, T + 70]


def test_a_batch_that_is_too_large_in_the_topics_codec_is_refused() -> None:
    packed = produced([record(bytes(5000))], codec=Codec.GZIP)
    rules = AppendRules(target_codec=Codec.NONE, max_message_bytes=1000)
    with pytest.raises(BatchTooLarge, match="in none"):
        validate_produced(packed, rules, T)


# Rules and bounds -----------------------------------------------------------------------------------------------------


def test_rules_follow_the_topics_configuration() -> None:
    assert AppendRules.of(LogConfig(), walk_all=False) == CREATE_TIME
    assert AppendRules.of(LogConfig(), walk_all=True) == FULL
    rules = AppendRules.of(
        LogConfig().with_overrides(
            {
                "compression.type": "zstd",
                "compression.zstd.level": "7",
                "message.timestamp.type": "LogAppendTime",
                "cleanup.policy": "compact,delete",
                "max.message.bytes": "5000",
                "max.decompressed.message.bytes": "4000",
                "segment.bytes": "2000000",
                "message.timestamp.before.max.ms": "11",
                "message.timestamp.after.max.ms": "12",
            }
        ),
        walk_all=False,
    )
    assert rules == AppendRules(
        target_codec=Codec.ZSTD,
        compression_level=7,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        is_compacted=True,
        max_message_bytes=5000,
        max_decompressed_message_bytes=4000,
        segment_bytes=2_000_000,
        timestamp_before_max_ms=11,
        timestamp_after_max_ms=12,
    )


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("producer", None),
        ("uncompressed", Codec.NONE),
        ("gzip", Codec.GZIP),
        ("snappy", Codec.SNAPPY),
        ("lz4", Codec.LZ4),
        ("zstd", Codec.ZSTD),
    ],
)
def test_every_compression_type_names_its_codec(name: str, codec: Codec | None) -> None:
    rules = AppendRules.of(LogConfig().with_overrides({"compression.type": name}), walk_all=False)
    assert rules.target_codec is codec
    assert accept(produced(MANY), rules).header.codec is (codec or Codec.NONE)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_bomb_is_too_large_and_costs_bounded_memory(codec: Codec) -> None:
    section = compress(codec, bytes(80 << 20))
    bomb = bytes(produced())[:HEADER_SIZE] + section
    batch = changed(bomb, batch_length=len(bomb) - 12, attributes=codec)
    tracemalloc.start()
    try:
        with pytest.raises(BatchTooLarge, match="67108864"):
            validate_produced(batch, AppendRules(walks_all_records=True, max_message_bytes=4 << 20), T)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 160 << 20


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_batch_of_few_records_that_opens_to_much_is_left_closed_by_default(codec: Codec) -> None:
    batch = produced([record(bytes(3 << 20))], codec=codec)
    before = bytes(batch)
    assert accept(batch).data == before


def test_more_records_than_anybody_sends_are_too_many() -> None:
    batch = changed(produced(1, codec=Codec.ZSTD), record_count=LEAST_RECORDS + 1, last_offset_delta=LEAST_RECORDS)
    with pytest.raises(BatchTooLarge, match=str(LEAST_RECORDS)):
        validate_produced(batch, CREATE_TIME, T)


def test_more_headers_than_anybody_sends_are_too_many() -> None:
    def of_headers(count: int) -> memoryview:
        fields = b"\x01\x01" + encode_signed(count) + b"\x00\x01" * count
        return memoryview(assemble_batch(header, encode_record(0, 0, fields)))

    header = read_header(produced())._replace(attributes=Codec.ZSTD)
    accept(of_headers(LEAST_RECORDS), FULL)
    with pytest.raises(BatchTooLarge, match=f"{LEAST_RECORDS + 1} headers"):
        validate_produced(of_headers(LEAST_RECORDS + 1), FULL, T)


def test_up_to_a_few_records_are_walked_by_default_and_no_more() -> None:
    for count, walked in ((WALKED_RECORDS, True), (WALKED_RECORDS + 1, False)):
        batch = changed(produced(count), max_timestamp=T + 500)
        assert (accept(batch).header.max_timestamp == T + count - 1) is walked


# The record's length needs another byte from a value of 58 and of 8,185 bytes on, the value's from 64 and 8,192.
@pytest.mark.parametrize("value_length", [0, 1, 57, 58, 63, 64, 100, 8_184, 8_185, 8_191, 8_192, 9_000])
def test_a_record_whose_size_says_how_it_begins_is_judged_as_if_it_were_walked(value_length: int) -> None:
    def judged(batch: bytearray, rules: AppendRules) -> object:
        seal(batch)
        try:
            return bytes(accept(memoryview(batch), rules).data)
        except InvalidRecord as error:
            return str(error)

    sent = bytes(encode_batch([Record(offset=0, timestamp=T, key=None, value=b"v" * value_length)]))
    walking = AppendRules(timestamp_before_max_ms=T)
    assert judged(bytearray(sent), CREATE_TIME) == sent
    for position in {*range(HEADER_SIZE, HEADER_SIZE + 12), len(sent) - 1} & {*range(len(sent))}:
        for byte in (0, 1, 2, 3, 0x7F, 0x80, 0x81, 0xFF, sent[position] ^ 2):
            spoiled = bytearray(sent)
            spoiled[position] = byte
            assert judged(bytearray(spoiled), CREATE_TIME) == judged(spoiled, walking), (position, byte)
    for length in (len(sent) - 1, len(sent) + 1):
        cut = changed(bytearray(sent[:length].ljust(length, b"\0")), batch_length=length - 12)
        assert judged(bytearray(cut), CREATE_TIME) == judged(bytearray(cut), walking)


@given(data=st.data(), codec=st.sampled_from(EVERY_CODEC), count=st.sampled_from([1, 3, 9]))
@settings(deadline=None, max_examples=400)
def test_whatever_is_sent_is_accepted_sound_or_refused_with_our_errors(
    data: st.DataObject, codec: Codec, count: int
) -> None:
    batch = bytearray(produced(count, codec=codec))
    for _ in range(data.draw(st.integers(0, 3))):
        bit = data.draw(st.integers(0, len(batch) * 8 - 1))
        batch[bit // 8] ^= 1 << bit % 8
    if data.draw(st.booleans()):
        seal(batch)
    del batch[data.draw(st.integers(0, len(batch)) | st.just(len(batch))) :]
    rules = data.draw(
        st.builds(
            AppendRules,
            target_codec=st.none() | st.sampled_from(EVERY_CODEC),
            timestamp_type=st.sampled_from(TimestampType),
            timestamp_before_max_ms=st.sampled_from([1000, 2**63 - 1]),
            timestamp_after_max_ms=st.sampled_from([HOUR_MS, 2**63 - 1]),
            is_compacted=st.booleans(),
            walks_all_records=st.booleans(),
        )
    )
    with suppress(StorageError):
        accept(memoryview(batch), rules)
