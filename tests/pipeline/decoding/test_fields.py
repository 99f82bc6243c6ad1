"""Records read column by column are those that the log's own reader reads one by one; neither reads what the other
does not."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.decoding import fields
from pipeline.decoding.fields import read_fields
from pipeline.decoding.headers import read_headers
from pipeline.decoding.sections import Sections
from pipeline.errors import Damage, DamagedLog
from pipeline.reading.ranges import Wanted
from pipeline.reading.reader import read_range
from pipeline.schema import COLUMNS
from storage.batch.record_batch import HEADER_SIZE, Codec, TimestampType, read_header
from storage.batch.records import Record, assemble_batch, encode_batch, encode_fields, encode_record, walk
from storage.batch.varints import encode_signed
from storage.errors import UndecodableRecords
from tests.support.batches import changed, record, stored
from tests.support.partitions import PartitionOnDisk, plain_rows

EVERYTHING = Wanted(columns=COLUMNS)


def rows_of(partition: PartitionOnDisk, wanted: Wanted = EVERYTHING, **part: Any) -> list[dict[str, Any]]:
    rows = []
    for batch in read_range(partition.range(**part), wanted):
        batch.validate(full=True)
        times = batch.column("timestamp").cast("int64").to_pylist()
        found = batch.drop_columns(["timestamp"]).to_pylist()
        rows += [{name: row.get(name, time) for name in COLUMNS} for row, time in zip(found, times, strict=True)]
    return rows


some_bytes = (
    st.none() | st.binary(max_size=12) | st.integers(60, 70).map(bytes) | st.sampled_from([8190, 8200]).map(bytes)
)
some_times = st.integers(0, 10) | st.integers(-(2**50), 2**50)
some_headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=4)
some_records = st.builds(Record, timestamp=some_times, key=some_bytes, value=some_bytes, headers=some_headers)


@st.composite
def some_batches(draw: st.DrawFn) -> tuple[list[Record], dict[str, Any]]:
    content = draw(st.lists(some_records, max_size=8))
    if draw(st.booleans()):
        # What compaction leaves: offsets with gaps between them.
        offset = 0
        for one in content:
            offset += draw(st.integers(0, 1000))
            one.offset = offset
            offset += 1
        how: dict[str, Any] = {"last_offset_delta": offset + draw(st.integers(0, 3))}
    else:
        how = {"last_offset_delta": max(len(content) - 1, 0)}
    how["codec"] = draw(st.sampled_from(Codec))
    if draw(st.booleans()):
        how |= {"timestamp_type": TimestampType.LOG_APPEND_TIME, "log_append_time": draw(some_times)}
    return content, how


FEW = (0, 16)
"""Of how many records headers are read one by one: of none, so that all are read in rounds, or of these few as well."""


@given(st.lists(some_batches(), min_size=1, max_size=6), st.sampled_from([1, 100, 1 << 20]), st.sampled_from(FEW))
@settings(max_examples=150, deadline=None)
def test_records_of_any_kind_are_those_of_the_plain_reader(
    batches: list[tuple[list[Record], dict[str, Any]]], batch_bytes: int, few: int
) -> None:
    with tempfile.TemporaryDirectory() as directory, mock.patch.object(fields, "_FEW_RECORDS", few):
        partition = PartitionOnDisk(Path(directory))
        written = []
        for content, how in batches:
            first_offset = partition.next_offset
            partition.append(content, **how)
            written.append(stored(content, offset=first_offset, **how))
        assert rows_of(partition, EVERYTHING._replace(batch_bytes=batch_bytes)) == plain_rows(written)


@given(st.lists(some_batches(), min_size=1, max_size=6), st.integers(0, 40), st.integers(0, 40))
@settings(max_examples=100, deadline=None)
def test_a_range_that_begins_and_ends_inside_batches_has_its_own_records_only(
    batches: list[tuple[list[Record], dict[str, Any]]], start: int, length: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        partition = PartitionOnDisk(Path(directory))
        for content, how in batches:
            partition.append(content, **how)
        until = min(start + length, partition.next_offset)
        everything = rows_of(partition)
        part = rows_of(partition, from_offset=start, until_offset=until)
        assert part == [row for row in everything if start <= row["offset"] < until]


def sections_of(*sections: bytes, counts: list[int]) -> Sections:
    """Sections as they stand behind one another, each in a batch that says how many records it has."""
    begins, data = [], b""
    for section, count in zip(sections, counts, strict=True):
        data += changed(encode_batch([], last_offset_delta=0), record_count=count)
        begins.append(len(data))
        data += section
    ends = [begin + len(section) for begin, section in zip(begins, sections, strict=True)]
    headers = read_headers(data, [begin - HEADER_SIZE for begin in begins])
    return Sections(data, begins, ends, headers, ["path"] * len(begins), begins)


def can_be_read(section: bytes, count: int) -> bool:
    if count < 0:
        return False
    try:
        for _ in walk(section, count, len(section)):
            pass
    except UndecodableRecords:
        return False
    return True


def assert_same_verdict(*sections: bytes, counts: list[int]) -> None:
    expected = [
        n for n, (section, count) in enumerate(zip(sections, counts, strict=True)) if not can_be_read(section, count)
    ]
    for few in FEW:
        with mock.patch.object(fields, "_FEW_RECORDS", few):
            _, bad = read_fields(sections_of(*sections, counts=counts))
        assert bad == expected


@given(st.lists(st.tuples(st.binary(max_size=60), st.integers(-1, 9)), min_size=1, max_size=5))
@settings(max_examples=500, deadline=None)
def test_any_bytes_are_refused_where_the_plain_reader_refuses_them(content: list[tuple[bytes, int]]) -> None:
    assert_same_verdict(*(section for section, _ in content), counts=[count for _, count in content])


@given(st.lists(some_records, min_size=1, max_size=4), st.data())
@settings(max_examples=500, deadline=None)
def test_records_with_a_few_other_bytes_are_refused_where_the_plain_reader_refuses_them(
    content: list[Record], data: st.DataObject
) -> None:
    section = bytearray(bytes(encode_batch(content))[HEADER_SIZE:])
    for _ in range(data.draw(st.integers(1, 3))):
        section[data.draw(st.integers(0, len(section) - 1))] = data.draw(st.integers(0, 255))
    sound = bytes(encode_batch([record()]))[HEADER_SIZE:]
    assert_same_verdict(sound, bytes(section), sound, counts=[1, len(content), 1])


def test_thousands_of_damaged_batches_are_refused_as_by_the_plain_reader() -> None:
    chance = random.Random(4)
    whole = bytes(encode_batch([record(b"v" * 70, headers=[("name", b"content"), ("", None)]), record(None)]))[
        HEADER_SIZE:
    ]
    for _ in range(400):
        sections = []
        for _ in range(50):
            section = bytearray(whole)
            for _ in range(chance.randrange(1, 4)):
                section[chance.randrange(len(section))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
            if not chance.randrange(4):
                del section[chance.randrange(len(section)) :]
            sections.append(bytes(section))
        assert_same_verdict(*sections, counts=[2] * len(sections))


@pytest.mark.parametrize("length", [b"\xff\xff\xff\xff\xff\x01", b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"])
def test_numbers_of_more_bytes_than_they_can_have_are_refused(length: bytes) -> None:
    body = b"\0" + length + b"\0\0\0\0"
    assert_same_verdict(encode_signed(len(body)) + body, counts=[1])


def test_numbers_may_be_written_longer_than_they_need(tmp_path: Path) -> None:
    body = b"\0" + b"\x80\x80\x00" + b"\x80\x00" + b"\x86\x80\x80\x80\x00key" + b"\x81\x00" + b"\x80\x80\x00"
    section = bytes([0x80 | (len(body) << 1 & 0x7F), 0x80 | len(body) >> 6, 0]) + body
    assert can_be_read(section, 1)
    assert_same_verdict(section, counts=[1])
    found, _ = read_fields(sections_of(section, counts=[1]))
    assert (found.key_size.tolist(), found.value_size.tolist()) == ([3], [-1])


@pytest.mark.parametrize("count", [1, 2])
def test_records_that_open_to_nothing_are_refused(count: int) -> None:
    whole = sections_of(b"", counts=[count])
    _, bad = read_fields(whole._replace(data=b"", begins=[0], ends=[0]))
    assert bad == [0]


def test_a_batch_that_says_it_has_two_thousand_million_records_takes_no_memory() -> None:
    whole = bytes(encode_batch([record()]))[HEADER_SIZE:]
    assert_same_verdict(whole, counts=[2**31 - 1])


def test_time_stamps_wrap_around_as_for_every_reader(tmp_path: Path) -> None:
    partition = PartitionOnDisk(tmp_path)
    partition.append([record(timestamp=2**63 - 1), record(timestamp=-(2**63)), record(timestamp=5)])
    assert [row["timestamp"] for row in rows_of(partition)] == [None, None, 5000]


def test_a_time_that_microseconds_cannot_hold_is_null(tmp_path: Path) -> None:
    partition = PartitionOnDisk(tmp_path)
    most = (2**63 - 1) // 1000
    partition.append([record(timestamp=time) for time in (most, most + 1, -most, -most - 1, -1)])
    assert [row["timestamp"] for row in rows_of(partition)] == [most * 1000, None, -most * 1000, None, -1000]


def test_null_and_empty_are_two_things(tmp_path: Path) -> None:
    partition = PartitionOnDisk(tmp_path)
    partition.append([record(None, key=None), record(b"", key=b"", headers=[("", None), ("", b"")])])
    first, second = rows_of(partition)
    assert (first["key"], first["value"], first["headers"]) == (None, None, None)
    assert (second["key"], second["value"]) == (b"", b"")
    assert second["headers"] == [{"key": "", "value": None}, {"key": "", "value": b""}]


def test_columns_come_in_the_order_in_which_they_are_wanted(tmp_path: Path) -> None:
    partition = PartitionOnDisk(tmp_path)
    partition.append(2)
    (batch,) = read_range(partition.range(), Wanted(columns=("offset", "headers", "key")))
    assert batch.schema.names == ["offset", "headers", "key"]
    assert batch.to_pylist() == [{"offset": n, "headers": None, "key": b"k%d" % n} for n in range(2)]


@pytest.mark.parametrize("deltas", [(0, 0), (1, 0), (0, 2), (-1, 1), (5, 6)])
def test_records_outside_the_offsets_of_their_batch_are_damage(tmp_path: Path, deltas: tuple[int, int]) -> None:
    section = b"".join(encode_record(0, delta, encode_fields(record())) for delta in deltas)
    whole = encode_batch([record(), record()])
    header = read_header(whole)
    partition = PartitionOnDisk(tmp_path)
    partition.append(1)
    partition.append(assemble_batch(header, section))
    partition.append(1)
    with pytest.raises(DamagedLog, match="not in order"):
        rows_of(partition)
    told: list[Damage] = []
    kept = [
        offset
        for batch in read_range(partition.range(), Wanted(columns=("offset",), skip_damaged=True), told.append)
        for offset in batch.column(0).to_pylist()
    ]
    assert kept == [0, 3]
    assert [(damage.offset, damage.position) for damage in told] == [(1, partition.segments[0].positions[1])]
