"""Rows and batches of an archive are the batches of the log, to the last byte."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.archive.archive import Archive
from pipeline.archive.record_encoding import encode_records
from pipeline.batches import DamagedArchive, Kept
from pipeline.schema import COLUMNS, arrow_schema
from storage.batch.record_batch import HEADER_SIZE, LOG_OVERHEAD, Codec, TimestampType, read_header, seal
from storage.batch.records import Record, encode_fields, encode_record
from tests.pipeline.archive.archives import archive, compacted, source_of
from tests.support.batches import EVERY_CODEC, NO_UTF8, T, changed, end_marker, named, produced, record, records
from tests.support.partitions import TOPIC, PartitionOnDisk

SOME = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=70).filter(str.isprintable), SOME), max_size=3)


@given(
    st.lists(
        st.tuples(SOME, SOME, HEADERS, st.integers(1, 1 << 20), st.integers(-(1 << 40), 1 << 40)),
        min_size=1,
        max_size=30,
    )
)
@settings(max_examples=60, deadline=None)
def test_rows_become_the_records_that_a_producer_writes(content: list[Any]) -> None:
    offset, written = 1 << 33, []
    for key, value, headers, step, delta in content:
        offset += step
        written.append(Record(offset=offset, timestamp=T + delta, key=key, value=value, headers=headers))
    rows = pa.RecordBatch.from_pylist(
        [
            {
                "key": one.key, "value": one.value, "topic": TOPIC, "partition": 0, "offset": one.offset,
                "timestamp": one.timestamp * 1000, "timestampType": 0,
                "headers": [{"key": name, "value": given} for name, given in one.headers] or None,
            }
            for one in written
        ],
        schema=arrow_schema(COLUMNS),
    )  # fmt: skip

    for skipped in {0, len(written) // 2}:
        part = rows.slice(skipped)
        encoded = encode_records(part, np.full(len(part), 1 << 33), np.full(len(part), T))
        for number, one in enumerate(written[skipped:]):
            expected = encode_record(one.timestamp - T, one.offset - (1 << 33), encode_fields(one))
            assert bytes(encoded.section(number, number + 1)) == expected


def log_bytes(log: PartitionOnDisk) -> bytes:
    return b"".join(segment.path(".log").read_bytes() for segment in log.segments)


def restored(dest: Path) -> bytes:
    return b"".join(batch.data for batch in Archive.open(dest).batches(TOPIC, 0))


def kept(dest: Path) -> list[Kept]:
    return [Kept(batch.row.kept) for batch in Archive.open(dest).batches(TOPIC, 0)]


@pytest.mark.parametrize("codec", EVERY_CODEC)
def test_batches_of_every_codec_come_back(tmp_path: Path, codec: Codec) -> None:
    log = PartitionOnDisk(tmp_path / "orders-0")
    log.append(3, codec=codec)
    log.append([record(None, key=None), record(b"", key=b"", headers=[("a", None), ("", b"x")])], codec=codec)
    log.append(records(500, value_bytes=300), codec=codec, producer_id=7, producer_epoch=1, base_sequence=0)
    dest = tmp_path / "archive"

    archive(dest, source_of(log), range_bytes=100)

    assert restored(dest) == log_bytes(log)
    compacted(dest)
    assert restored(dest) == log_bytes(log)


def test_transactions_markers_and_odd_times_come_back(tmp_path: Path) -> None:
    log = PartitionOnDisk(tmp_path / "orders-0")
    mine = {"producer_id": 4, "producer_epoch": 2, "is_transactional": True}
    log.append(2, base_sequence=0, **mine)
    log.append(end_marker(commit=True, producer_id=4, producer_epoch=2))
    aborted = log.append(3, base_sequence=2, **mine)
    marker = log.append(end_marker(commit=False, producer_id=4, producer_epoch=2))
    log.append(2, timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time=T + 5)
    log.append([record(timestamp=-1), record(timestamp=T), record(timestamp=0)])
    log.append(bytes(changed(produced(3), last_offset_delta=9)))
    log.append(bytes(changed(produced(1, last_offset_delta=3), attributes=0x40, base_timestamp=T + 99)))
    log.index_abort(4, aborted, marker, marker + 1)
    dest = tmp_path / "archive"

    archive(dest, source_of(log))

    assert restored(dest) == log_bytes(log)
    made_of_rows, whole = Kept.ROWS, Kept.PAYLOAD
    assert kept(dest)[:6] == [made_of_rows, whole, whole, whole, whole, made_of_rows]
    offsets = [
        int(offset) for rows in Archive.open(dest).rows(TOPIC, 0) for offset in rows.column("offset").to_pylist()
    ]
    assert not {2, aborted, aborted + 1, aborted + 2, marker} & set(offsets)
    assert offsets == sorted(offsets)


def test_a_batch_that_begins_before_the_log_comes_back_whole(tmp_path: Path) -> None:
    log = PartitionOnDisk(tmp_path / "orders-0")
    log.append(10)
    log.append(5)
    dest = tmp_path / "archive"

    archive(dest, source_of(log, start=8))

    assert restored(dest) == log_bytes(log)
    assert [len(rows) for rows in Archive.open(dest).rows(TOPIC, 0)] == [7]


def test_a_batch_compressed_by_another_library_is_kept_as_it_is(tmp_path: Path) -> None:
    log = PartitionOnDisk(tmp_path / "orders-0")
    for _ in range(8):
        log.append(20, codec=Codec.ZSTD, level=19)
    log.append(20, codec=Codec.LZ4)
    dest = tmp_path / "archive"

    archive(dest, source_of(log))

    assert restored(dest) == log_bytes(log)
    assert kept(dest)[:8] == [Kept.PAYLOAD] * 8


def test_a_batch_that_no_client_of_today_writes_is_kept_as_it_is(tmp_path: Path) -> None:
    log = PartitionOnDisk(tmp_path / "orders-0")
    batch = produced(2)
    batch[HEADER_SIZE + 1] = 1  # attributes of the first record, of which no bit has a meaning yet
    seal(batch)
    log.append(bytes(batch))
    log.append(2)
    dest = tmp_path / "archive"

    archive(dest, source_of(log))

    assert restored(dest) == log_bytes(log)
    assert kept(dest) == [Kept.PAYLOAD, Kept.ROWS]


def test_batches_that_compaction_has_emptied_come_back_whatever_codec_they_name(tmp_path: Path) -> None:
    log = PartitionOnDisk(tmp_path / "orders-0")
    emptied = produced(3)[:HEADER_SIZE]
    log.append(2)
    for codec in (Codec.NONE, Codec.LZ4, 6):
        log.append(bytes(changed(emptied, attributes=codec, record_count=0, batch_length=HEADER_SIZE - LOG_OVERHEAD)))
    log.append(2)
    dest = tmp_path / "archive"

    archive(dest, source_of(log))

    assert restored(dest) == log_bytes(log)
    assert [len(rows) for rows in Archive.open(dest).rows(TOPIC, 0)] == [4]


def test_batches_and_rows_between_two_offsets(tmp_path: Path) -> None:
    log = PartitionOnDisk(tmp_path / "orders-0")
    for day in (0, 1, 0, 1):
        log.append(records(5, timestamp=T + day * 86_400_000))
    dest = tmp_path / "archive"
    archive(dest, source_of(log), range_bytes=300)
    found = Archive.open(dest)

    assert [batch.row.base_offset for batch in found.batches(TOPIC, 0, 7, 11)] == [5, 10]
    assert [offset for rows in found.rows(TOPIC, 0, 7, 11) for offset in rows.column("offset").to_pylist()] == [
        7,
        8,
        9,
        10,
    ]
    assert list(found.batches(TOPIC, 1)) == []


def test_rows_that_are_not_those_of_the_batches_are_found_when_they_are_read(tmp_path: Path) -> None:
    first, second = (PartitionOnDisk(tmp_path / name) for name in ("orders-0", "other-0"))
    first.append(5)
    second.append([record(b"else")] * 5)
    for name, log in (("a", first), ("b", second)):
        archive(tmp_path / name, source_of(log))
    (wrong,), (right,) = ([*(tmp_path / name).rglob("*.parquet")] for name in "ba")
    right.write_bytes(wrong.read_bytes())

    with pytest.raises(DamagedArchive, match=r"the batch at offset 0 makes .* bytes of the CRC"):
        restored(tmp_path / "a")


def test_the_header_says_what_the_log_said(tmp_path: Path) -> None:
    log = PartitionOnDisk(tmp_path / "orders-0")
    log.append(2, producer_id=9, producer_epoch=3, base_sequence=17)
    archive(tmp_path / "archive", source_of(log))

    (batch,) = Archive.open(tmp_path / "archive").batches(TOPIC, 0)

    assert batch.row.header == read_header(log_bytes(log))
    assert struct.unpack_from(">q", batch.data)[0] == 0


@pytest.mark.parametrize("codec", EVERY_CODEC)
def test_header_names_that_are_no_text_come_back_from_the_batch_itself(tmp_path: Path, codec: Codec) -> None:
    """Rows have what Java would have read; the bytes cannot be made of that again."""
    log = PartitionOnDisk(tmp_path / "orders-0")
    log.append(3)
    log.append([record(), named(NO_UTF8)], codec=codec)
    log.append(3)
    dest = tmp_path / "archive"

    archive(dest, source_of(log))

    assert restored(dest) == log_bytes(log)
    assert kept(dest) == [Kept.ROWS, Kept.PAYLOAD, Kept.ROWS]
    compacted(dest)
    assert restored(dest) == log_bytes(log)
