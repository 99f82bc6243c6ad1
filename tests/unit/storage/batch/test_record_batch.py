"""The header: every field where Kafka has it, stamped and re-dated in place."""

import re
from struct import calcsize

import pytest

from storage.batch import record_batch
from storage.batch.record_batch import (
    HEADER_SIZE,
    LAYOUT,
    MAX_SEQUENCE,
    Codec,
    TimestampType,
    computed_crc,
    header_struct,
    increment_sequence,
    read_header,
    restamp_time,
    stamp,
    write_header,
)
from storage.errors import CorruptBatch, UndecodableRecords
from tests.support.batches import T, changed, end_marker, produced
from tests.unit.storage.batch import vectors


def test_the_header_of_kafkas_batch_reads_as_kafka_wrote_it() -> None:
    header = read_header(vectors.AT_OFFSET_100)
    assert header.base_offset == 100
    assert header.last_offset == 101
    assert header.next_offset == 102
    assert header.size == len(vectors.AT_OFFSET_100) == 91
    assert header.partition_leader_epoch == 3
    assert header.magic == 2
    assert header.crc == 0xB21AC592 == computed_crc(vectors.AT_OFFSET_100, 0, 91)
    assert (header.base_timestamp, header.max_timestamp) == (T, T + 5)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (4000, 0, 7, 8)
    assert header.record_count == 2
    assert header.codec is Codec.NONE
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert header.has_producer_id
    assert (header.is_transactional, header.is_control, header.has_delete_horizon) == (False, False, False)


@pytest.mark.sources_only  # nothing compiled has a docstring
def test_each_field_stands_where_the_drawing_has_it() -> None:
    drawn = re.findall(r"^ +(\d+) +(\d) ([a-z ]+?)(?:  .*)?$", str(record_batch.__doc__), re.MULTILINE)

    assert [(int(position), int(size), name.replace(" ", "_")) for position, size, name in drawn] == [
        (field.position, calcsize(f">{field.format}"), name) for name, field in LAYOUT.items()
    ]


@pytest.mark.parametrize("names", [(), ("crc",), ("base_offset", "magic"), ("magic", "record_count"), tuple(LAYOUT)])
def test_some_fields_of_a_header_read_as_all_of_them_do(names: tuple[str, ...]) -> None:
    header = read_header(vectors.AT_OFFSET_100)

    read = header_struct(*names).unpack_from(b"......." + vectors.AT_OFFSET_100, 7)
    assert read == tuple(getattr(header, name) for name in names)


def test_a_header_is_read_in_the_middle_of_a_buffer() -> None:
    buffer = b"......." + vectors.AT_OFFSET_100
    assert read_header(buffer, 7) == read_header(vectors.AT_OFFSET_100)
    assert computed_crc(buffer, 7, 91) == 0xB21AC592


def test_a_header_written_reads_the_same() -> None:
    batch = bytearray(HEADER_SIZE)
    write_header(batch, read_header(vectors.ABORT_AT_102))
    assert batch == vectors.ABORT_AT_102[:HEADER_SIZE]


def test_stamping_gives_kafkas_bytes_and_leaves_the_crc_alone() -> None:
    batch = bytearray(vectors.PRODUCED)
    stamp(batch, 100, 3)
    assert batch == vectors.AT_OFFSET_100


def test_giving_log_append_time_gives_kafkas_bytes() -> None:
    batch = memoryview(bytearray(vectors.AT_OFFSET_100))
    header = restamp_time(batch, read_header(batch), TimestampType.LOG_APPEND_TIME, T + 9000)
    assert batch == vectors.AT_OFFSET_100_WITH_LOG_APPEND_TIME
    assert header == read_header(batch)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME


def test_a_markers_bytes_are_kafkas() -> None:
    abort = end_marker(commit=False, producer_id=4000, producer_epoch=0, coordinator_epoch=5, timestamp=T + 10)
    stamp(abort, 102, 3)
    assert abort == vectors.ABORT_AT_102
    commit = end_marker(commit=True, producer_id=4000, producer_epoch=0, coordinator_epoch=5, timestamp=T + 10)
    assert commit == vectors.COMMIT
    header = read_header(commit)
    assert header.is_control
    assert header.is_transactional
    assert header.last_sequence == -1


@pytest.mark.parametrize("length", [0, 1, 12, 60])
def test_fewer_bytes_than_a_header_are_a_corrupt_batch(length: int) -> None:
    with pytest.raises(CorruptBatch, match=f"found {length}"):
        read_header(vectors.PRODUCED[:length])


def test_a_header_beyond_the_end_is_a_corrupt_batch() -> None:
    with pytest.raises(CorruptBatch, match="found 0"):
        read_header(vectors.PRODUCED, 1000)


@pytest.mark.parametrize("number", [5, 6, 7])
def test_a_codec_that_does_not_exist_cannot_be_decoded(number: int) -> None:
    with pytest.raises(UndecodableRecords, match=f"codec {number}"):
        _ = read_header(changed(produced(), attributes=number)).codec


def test_sequences_wrap_behind_the_greatest_one() -> None:
    assert increment_sequence(MAX_SEQUENCE, 1) == 0
    assert increment_sequence(MAX_SEQUENCE - 1, 3) == 1
    assert increment_sequence(5, 2) == 7
    wrapping = read_header(produced(4, producer_id=1, producer_epoch=0, base_sequence=MAX_SEQUENCE - 1))
    assert wrapping.last_sequence == 1


def test_the_delete_horizon_is_bit_six() -> None:
    assert read_header(changed(produced(), attributes=0x40)).has_delete_horizon
