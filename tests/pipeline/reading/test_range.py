"""What a range of a partition gives, whatever stands in its segments and whatever happens to them meanwhile."""

from __future__ import annotations

import os
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from pipeline.errors import DamagedLog, PipelineError, RecordsGone
from pipeline.reading import scan
from pipeline.reading.ranges import OffsetRange, Wanted
from pipeline.reading.reader import read_range
from pipeline.source import split
from storage.batch.record_batch import HEADER_SIZE, Codec
from storage.batch.records import encode_batch
from tests.support.batches import AS_BY_JAVA, NO_UTF8, changed, end_marker, named, record
from tests.support.partitions import PartitionOnDisk

OFFSETS = Wanted(columns=("offset",))
UNCOMMITTED = OFFSETS._replace(read_committed=False)
PRODUCER = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
INDEXED = {"are_aborts_indexed": True}


@pytest.fixture
def partition(tmp_path: Path) -> PartitionOnDisk:
    return PartitionOnDisk(tmp_path / "orders-0")


def offsets(wanted_range: OffsetRange, wanted: Wanted = OFFSETS) -> list[int]:
    return [offset for batch in read_range(wanted_range, wanted) for offset in batch.column("offset").to_pylist()]


# What is there


def test_an_empty_range_gives_nothing(partition: PartitionOnDisk) -> None:
    assert list(read_range(partition.range(), OFFSETS)) == []


def test_all_segments_of_a_range_are_read(partition: PartitionOnDisk) -> None:
    for _ in range(3):
        partition.append(3)
        partition.append(4, codec=Codec.LZ4)
        partition.roll()
    assert offsets(partition.range()) == list(range(21))
    assert offsets(partition.range(5, 16)) == list(range(5, 16))


def test_gaps_that_compaction_has_left_are_no_loss(partition: PartitionOnDisk) -> None:
    partition.append([record()])
    partition.skip_to(10)
    first = encode_batch([record(), record()], last_offset_delta=9)
    partition.append(first)
    partition.skip_to(50)
    partition.roll()
    partition.skip_to(60)
    partition.append(1)
    partition.append(1)
    assert offsets(partition.range()) == [0, 10, 11, 60, 61]
    assert offsets(partition.range(15, 61)) == [60]
    assert offsets(partition.range(20, 55)) == []


def test_an_empty_batch_that_compaction_has_left_counts_its_offsets(partition: PartitionOnDisk) -> None:
    partition.append(2)
    partition.append(encode_batch([], last_offset_delta=4, **PRODUCER))
    partition.append(1)
    assert offsets(partition.range()) == [0, 1, 7]


def test_the_base_timestamp_of_a_delete_horizon_is_one_like_any_other(partition: PartitionOnDisk) -> None:
    batch = encode_batch([record(timestamp=1000), record(timestamp=1005)])
    partition.append(bytes(changed(batch, attributes=0x40)))
    (rows,) = read_range(partition.range(), Wanted(columns=("timestamp",)))
    assert rows.column(0).cast("int64").to_pylist() == [1_000_000, 1_005_000]


def test_control_batches_are_never_given(partition: PartitionOnDisk) -> None:
    partition.append(1, is_transactional=True, **PRODUCER)
    partition.append(end_marker(commit=True, producer_id=7, producer_epoch=0))
    partition.append(1)
    assert offsets(partition.range()) == [0, 2]
    assert offsets(partition.range(), UNCOMMITTED) == [0, 2]


def test_an_arrow_batch_is_cut_at_about_the_bytes_that_were_wanted(partition: PartitionOnDisk) -> None:
    partition.append([record(bytes(10_000)) for _ in range(40)], codec=Codec.ZSTD)
    sizes = [batch.num_rows for batch in read_range(partition.range(), OFFSETS._replace(batch_bytes=50_000))]
    assert sum(sizes) == 40
    assert max(sizes) <= 10


def test_a_header_name_that_is_not_utf8_is_decoded_as_by_java(partition: PartitionOnDisk) -> None:
    partition.append([named([b"ok", *NO_UTF8])])
    (batch,) = read_range(partition.range(), Wanted(columns=("headers",)))
    assert [header["key"] for header in batch.column(0).to_pylist()[0]] == ["ok", *AS_BY_JAVA]


# Transactions


def aborted_and_committed(partition: PartitionOnDisk) -> None:
    """One producer aborts offsets 0 to 1, commits 3 and, behind a record of nobody's, aborts 6 to 8."""
    partition.append(2, is_transactional=True, **PRODUCER)
    partition.append(end_marker(commit=False, producer_id=7, producer_epoch=0))
    partition.append(1, is_transactional=True, **PRODUCER)
    partition.append(end_marker(commit=True, producer_id=7, producer_epoch=0))
    partition.append(1)
    partition.append(3, is_transactional=True, **PRODUCER)
    partition.roll()
    partition.append(2)
    partition.append(end_marker(commit=False, producer_id=7, producer_epoch=0))


@pytest.mark.parametrize("is_indexed", [True, False])
def test_records_of_aborted_transactions_are_left_out(partition: PartitionOnDisk, is_indexed: bool) -> None:
    aborted_and_committed(partition)
    if is_indexed:
        partition.segments.reverse()
        partition.index_abort(7, 0, 2, 3)
        partition.segments.reverse()
        partition.index_abort(7, 6, 11, 12)
    how = {"are_aborts_indexed": is_indexed}
    assert offsets(partition.range(**how)) == [3, 5, 9, 10]
    assert offsets(partition.range(**how), UNCOMMITTED) == [0, 1, 3, 5, 6, 7, 8, 9, 10]
    # The marker lies behind the range, or the transaction begins before it.
    assert offsets(partition.range(5, 8, **how)) == [5]
    assert offsets(partition.range(7, 10, **how)) == [9]
    assert offsets(partition.range(1, 4, **how)) == [3]


def test_an_index_that_cannot_be_is_not_believed(partition: PartitionOnDisk) -> None:
    aborted_and_committed(partition)
    partition.index_abort(7, 50, 3, 4)
    assert offsets(partition.range(**INDEXED)) == [3, 5, 9, 10]


def test_an_entry_that_is_just_being_written_is_not_there_yet(partition: PartitionOnDisk) -> None:
    partition.append(2, is_transactional=True, **PRODUCER)
    partition.append(end_marker(commit=False, producer_id=7, producer_epoch=0))
    partition.index_abort(7, 0, 2, 3)
    with partition.segments[0].path(".txnindex").open("ab") as file:
        file.write(bytes(20))
    assert offsets(partition.range(**INDEXED)) == []


def test_a_transaction_without_an_end_is_told_and_not_guessed(partition: PartitionOnDisk) -> None:
    partition.append(1)
    partition.append(2, is_transactional=True, **PRODUCER)
    partition.append(1)
    assert offsets(partition.range(0, 1)) == [0]
    with pytest.raises(PipelineError, match="producer 7 has a transaction with offset 1 that nothing behind it ends"):
        offsets(partition.range())
    assert offsets(partition.range(), UNCOMMITTED) == [0, 1, 2, 3]


def test_a_marker_whose_bytes_are_damaged_ends_nothing(partition: PartitionOnDisk) -> None:
    partition.append(2, is_transactional=True, **PRODUCER)
    position = partition.segments[0].size
    partition.append(end_marker(commit=False, producer_id=7, producer_epoch=0))
    partition.append(end_marker(commit=False, producer_id=7, producer_epoch=0))
    partition.segments[0].change(position + 70, b"\1")
    with pytest.raises(DamagedLog):
        offsets(partition.range())
    assert offsets(partition.range(), OFFSETS._replace(skip_damaged=True)) == []


# Files that change meanwhile


def remove(partition: PartitionOnDisk, number: int) -> None:
    """As retention does: the files are renamed, and go later."""
    for suffix in (".log", ".index"):
        path = partition.segments[number].path(suffix)
        path.rename(f"{path}.deleted")


def three_segments(partition: PartitionOnDisk) -> None:
    for number in range(3):
        if number:
            partition.roll()
        for _ in range(2):
            partition.append(5)


def test_records_deleted_before_they_are_read_are_told_of(partition: PartitionOnDisk) -> None:
    three_segments(partition)
    remove(partition, 0)
    with pytest.raises(RecordsGone, match=r"begins at offset 10 .* from offset 3 to 30 .* deleted"):
        offsets(partition.range(3))
    assert offsets(partition.range(10)) == list(range(10, 30))


def test_records_deleted_while_they_are_read_are_told_of(partition: PartitionOnDisk) -> None:
    three_segments(partition)
    reading = read_range(partition.range(), OFFSETS)
    assert next(reading).num_rows == 10
    remove(partition, 0)
    remove(partition, 1)
    with pytest.raises(RecordsGone, match=r"begins at offset 20"):
        list(reading)


def test_what_is_open_is_read_to_its_end_though_it_was_deleted(partition: PartitionOnDisk) -> None:
    three_segments(partition)
    reading = read_range(partition.range(), OFFSETS._replace(batch_bytes=200))
    first = next(reading)
    remove(partition, 0)
    rest = [offset for batch in reading for offset in batch.column(0).to_pylist()]
    assert first.column(0).to_pylist() + rest == list(range(30))


def test_a_directory_that_has_gone_is_told_of(partition: PartitionOnDisk) -> None:
    three_segments(partition)
    shutil.rmtree(partition.directory)
    with pytest.raises(RecordsGone, match="is not there"):
        offsets(partition.range())


def test_a_topic_made_anew_under_the_same_name_is_told_of(partition: PartitionOnDisk) -> None:
    three_segments(partition)
    partition.directory.joinpath("partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAQACAAAAAAAAABQ")
    assert len(offsets(partition.range(topic_id="AAAAAAAAQACAAAAAAAAABQ"))) == 30
    with pytest.raises(RecordsGone, match="deleted and made anew"):
        offsets(partition.range(topic_id="AAAAAAAAQACAAAAAAAAABg"))


def test_a_log_that_ends_before_the_range_is_told_of(partition: PartitionOnDisk) -> None:
    three_segments(partition)
    with pytest.raises(RecordsGone, match="ends at offset 30; there were to be records up to 31"):
        offsets(partition.range(0, 31))


def test_a_segment_that_rolls_while_it_is_read_goes_on_in_the_next(partition: PartitionOnDisk) -> None:
    partition.append(5)
    reading = read_range(partition.range(0, 10), OFFSETS)
    first = next(reading)
    partition.append(2)
    partition.roll()
    partition.append(3)
    assert [len(first), *[batch.num_rows for batch in reading]] == [5, 2, 3]


def cleaned(partition: PartitionOnDisk, suffix: str) -> None:
    """The first two segments become one of the records at even offsets, as the cleaner writes it."""
    path = partition.directory / f"{0:020d}.log{suffix}"
    new = PartitionOnDisk(partition.directory.parent / "cleaned")
    for first_offset in range(0, 20, 5):
        new.skip_to(first_offset)
        kept = [record(b"kept") for _ in range(first_offset, first_offset + 5, 2)]
        for n, one in enumerate(kept):
            one.offset = first_offset + 2 * n
        new.append(encode_batch(kept, base_offset=first_offset, last_offset_delta=4))
    shutil.copyfile(new.segments[0].path(".log"), path)


def test_a_segment_that_the_cleaner_is_about_to_put_in_place_is_read_already(partition: PartitionOnDisk) -> None:
    three_segments(partition)
    cleaned(partition, ".swap")
    expected = [0, 2, 4, 5, 7, 9, 10, 12, 14, 15, 17, 19]
    assert offsets(partition.range()) == [*expected, *range(20, 30)]
    remove(partition, 0)
    assert offsets(partition.range()) == [*expected, *range(20, 30)]
    remove(partition, 1)
    assert offsets(partition.range()) == [*expected, *range(20, 30)]
    assert offsets(partition.range(11, 16)) == [12, 14, 15]


def test_segments_that_the_cleaner_merges_while_they_are_read_lose_nothing_that_is_kept(
    partition: PartitionOnDisk,
) -> None:
    three_segments(partition)
    reading = read_range(partition.range(), OFFSETS)
    found = next(reading).column(0).to_pylist()
    cleaned(partition, ".swap")
    remove(partition, 0)
    remove(partition, 1)
    os.rename(partition.directory / f"{0:020d}.log.swap", partition.directory / f"{0:020d}.log")
    found += [offset for batch in reading for offset in batch.column(0).to_pylist()]
    assert found == [*range(10), 10, 12, 14, 15, 17, 19, *range(20, 30)]


# Limits


def test_a_batch_larger_than_what_is_read_is_told_of(
    partition: PartitionOnDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "MOST_BATCH_BYTES", 10_000)
    partition.append(1)
    partition.append([record(bytes(10_000))])
    partition.append(1)
    with pytest.raises(DamagedLog, match=r"a batch of 10075 bytes .*expected at most 10000 bytes"):
        offsets(partition.range())
    assert offsets(partition.range(), OFFSETS._replace(skip_damaged=True)) == [0, 2]


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_a_batch_that_opens_to_more_than_is_held_is_told_of(
    partition: PartitionOnDisk, monkeypatch: pytest.MonkeyPatch, codec: Codec
) -> None:
    monkeypatch.setattr("pipeline.reading.reader.MOST_BATCH_BYTES", 1 << 20)
    partition.append([record(bytes(1 << 21))], codec=codec)
    partition.append(1)
    with pytest.raises(DamagedLog, match="open to more than 1048576 bytes"):
        offsets(partition.range())
    assert offsets(partition.range(), OFFSETS._replace(skip_damaged=True)) == [1]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_batch_of_more_records_than_are_held_is_told_of(
    partition: PartitionOnDisk, monkeypatch: pytest.MonkeyPatch, codec: Codec
) -> None:
    monkeypatch.setattr("pipeline.reading.reader.MOST_RECORDS", 10)
    partition.append(10, codec=codec)
    partition.append(11, codec=codec)
    partition.append(1, codec=codec)
    with pytest.raises(DamagedLog, match="a batch of 11 records, expected at most 10 of them"):
        offsets(partition.range())
    assert offsets(partition.range(), OFFSETS._replace(skip_damaged=True)) == [*range(10), 21]


@pytest.mark.parametrize("count", [1, 50])
def test_a_batch_of_more_headers_than_are_held_is_told_of(
    partition: PartitionOnDisk, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    for module in ("decoding.fields", "reading.reader"):
        monkeypatch.setattr(f"pipeline.{module}.MOST_HEADERS", 100)
    each = [("h", None)] * (100 // count)
    partition.append([record(headers=each) for _ in range(count)])
    partition.append([*(record(headers=each) for _ in range(count - 1)), record(headers=[*each, ("h", b"")])])
    partition.append(1)
    with pytest.raises(DamagedLog, match=rf"record {count - 1} has {len(each) + 1} headers, more than are walked over"):
        offsets(partition.range())
    assert offsets(partition.range(), OFFSETS._replace(skip_damaged=True)) == [*range(count), 2 * count]


# Splitting


@pytest.mark.parametrize("index_entries", [0, 3, 25])
@pytest.mark.parametrize("most_bytes", [1, 300, 1000, 5000, 1 << 30])
def test_ranges_that_are_split_have_all_records_once_and_begin_with_a_batch(
    partition: PartitionOnDisk, most_bytes: int, index_entries: int
) -> None:
    begins = set()
    for number in range(60):
        if number % 25 == 24:
            partition.roll()
        begins.add(partition.append(number % 5 + 1))
    for segment in partition.segments:
        segment.keep_entries(index_entries)  # a broker holds the last ones back for a while
    whole = partition.range()
    parts = split(whole, most_bytes)
    assert [(part.from_offset, part.until_offset) for part in parts[1:]] == [
        (before.until_offset, part.until_offset) for before, part in pairwise(parts)
    ]
    assert {part.from_offset for part in parts} <= begins
    assert [offset for part in parts for offset in offsets(part)] == offsets(whole)
    total = sum(segment.size for segment in partition.segments)
    largest = 400
    assert len(parts) <= total // max(most_bytes - largest, 1) + len(partition.segments)
    if most_bytes > largest:
        assert len(parts) >= total // (most_bytes + largest)


def test_a_range_inside_a_partition_is_split_inside_it(partition: PartitionOnDisk) -> None:
    for _ in range(20):
        partition.append(3)
    parts = split(partition.range(10, 50), 500)
    assert (parts[0].from_offset, parts[-1].until_offset) == (10, 50)
    assert len(parts) > 2
    assert split(partition.range(5, 5), 500) == []


def test_where_no_index_says_it_a_cut_is_not_behind_what_is_no_batch(partition: PartitionOnDisk) -> None:
    offsets_of = [partition.append(2) for _ in range(10)]
    segment = partition.segments[0]
    segment.keep_entries(0)
    segment.change(segment.positions[5], bytes(HEADER_SIZE))
    assert [part.from_offset for part in split(partition.range(), 1)] == offsets_of[:5]
