"""Damaged segments: where damage is reported, and which records are still read."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import Damage, DamagedLog
from pipeline.reading.ranges import OffsetRange, Wanted
from pipeline.reading.reader import read_range
from storage.batch.record_batch import HEADER_SIZE, Codec
from tests.support.batches import changed
from tests.support.partitions import PartitionOnDisk

FAILING = Wanted(columns=("offset", "value"))
PASSING = FAILING._replace(skip_damaged=True)
BATCHES = 12
"""Of three records each, all in one segment."""


@pytest.fixture
def partition(tmp_path: Path) -> PartitionOnDisk:
    return whole(tmp_path / "orders-0")


def whole(directory: Path, codec: Codec = Codec.NONE) -> PartitionOnDisk:
    partition = PartitionOnDisk(directory)
    for _ in range(BATCHES):
        partition.append(3, codec=codec)
    return partition


def what_is_left(wanted_range: OffsetRange) -> tuple[list[int], list[Damage]]:
    told: list[Damage] = []
    batches = list(read_range(wanted_range, PASSING, told.append))
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()], told


def without(*lost: range) -> list[int]:
    return [offset for offset in range(3 * BATCHES) if not any(offset in gone for gone in lost)]


Change = Callable[[bytearray, int], None]


def in_its_records(data: bytearray, at: int) -> None:
    data[at + HEADER_SIZE + 5] ^= 1


def in_its_crc(data: bytearray, at: int) -> None:
    data[at + 17] ^= 1


def its_magic(data: bytearray, at: int) -> None:
    data[at + 16] = 7


def its_length_too_large(data: bytearray, at: int) -> None:
    data[at + 8] = 0x7F


def its_length_too_small(data: bytearray, at: int) -> None:
    data[at + 8 : at + 12] = bytes(4)


def its_length_a_little_wrong(data: bytearray, at: int) -> None:
    data[at + 11] ^= 2


def its_offset_too_large(data: bytearray, at: int) -> None:
    data[at + 6] = 1


def its_offset_far_too_large(data: bytearray, at: int) -> None:
    data[at + 1] = 1


def its_offset_too_small(data: bytearray, at: int) -> None:
    data[at + 7] = 0


def its_header_zeros(data: bytearray, at: int) -> None:
    data[at : at + HEADER_SIZE] = bytes(HEADER_SIZE)


def its_last_offset(data: bytearray, at: int) -> None:
    data[at + 23] = 0xFF


EVERY_CHANGE = (
    in_its_records, in_its_crc, its_magic, its_length_too_large, its_length_too_small, its_length_a_little_wrong,
    its_offset_too_large, its_offset_far_too_large, its_offset_too_small, its_header_zeros, its_last_offset,
)  # fmt: skip


@pytest.mark.parametrize("has_index", [True, False])
@pytest.mark.parametrize("number", [1, 5, BATCHES - 1])
@pytest.mark.parametrize("change", EVERY_CHANGE, ids=lambda change: change.__name__)
def test_one_damaged_batch_is_told_of_and_nothing_else_is_lost(
    partition: PartitionOnDisk, change: Change, number: int, has_index: bool
) -> None:
    damage(partition, change, number)
    if not has_index:
        partition.segments[0].path(".index").unlink()
    with pytest.raises(DamagedLog) as failed:
        list(read_range(partition.range(), FAILING))
    found = failed.value.damage
    path = str(partition.segments[0].path(".log"))
    assert (found.path, found.position, found.offset) == (path, partition.segments[0].positions[number], 3 * number)
    left, told = what_is_left(partition.range())
    assert left == without(range(3 * number, 3 * number + 3))
    assert told == [found]


def damage(partition: PartitionOnDisk, change: Change, number: int) -> None:
    path = partition.segments[0].path(".log")
    data = bytearray(path.read_bytes())
    change(data, partition.segments[0].positions[number])
    path.write_bytes(data)


@pytest.mark.parametrize("change", EVERY_CHANGE, ids=lambda change: change.__name__)
def test_damage_outside_the_range_is_nobodys_affair(partition: PartitionOnDisk, change: Change) -> None:
    damage(partition, change, 5)
    assert what_is_left(partition.range(0, 15)) == (list(range(15)), [])
    assert what_is_left(partition.range(18)) == (list(range(18, 3 * BATCHES)), [])
    assert what_is_left(partition.range(19, 20)) == ([19], [])


@pytest.mark.parametrize("change", EVERY_CHANGE, ids=lambda change: change.__name__)
def test_damage_before_the_range_is_stepped_over_without_an_index(partition: PartitionOnDisk, change: Change) -> None:
    damage(partition, change, 5)
    partition.segments[0].path(".index").unlink()
    assert what_is_left(partition.range(20)) == (list(range(20, 3 * BATCHES)), [])


def test_a_file_that_lost_its_end_is_damaged_there(partition: PartitionOnDisk) -> None:
    segment = partition.segments[0]
    partition.roll()
    partition.append(2)
    with segment.path(".log").open("r+b") as file:
        file.truncate(segment.positions[10] + 70)
    with pytest.raises(DamagedLog, match="70 bytes of a batch at the end of the file"):
        list(read_range(partition.range(), FAILING))
    left, told = what_is_left(partition.range())
    assert left == [*range(30), 36, 37]
    assert [(one.position, one.offset) for one in told] == [(segment.positions[10], 30)]


def test_rubbish_behind_the_last_batch_of_the_range_is_nobodys_affair(partition: PartitionOnDisk) -> None:
    with partition.segments[0].path(".log").open("ab") as file:
        file.write(b"\xff" * 1000)
    assert what_is_left(partition.range()) == (without(), [])


@pytest.mark.parametrize("index", [b"", b"\xff" * 800, bytes(800), b"\0\0\0\1\0\0\0\2" * 100, b"\0" * 799])
def test_an_index_that_lies_changes_nothing(partition: PartitionOnDisk, index: bytes) -> None:
    partition.segments[0].path(".index").write_bytes(index)
    for first in range(0, 3 * BATCHES, 4):
        assert what_is_left(partition.range(first)) == (list(range(first, 3 * BATCHES)), [])
    damage(partition, its_length_too_large, 5)
    left, told = what_is_left(partition.range())
    assert (left, len(told)) == (without(range(15, 18)), 1)


def test_the_sentence_says_what_was_found_and_expected_and_what_goes(partition: PartitionOnDisk) -> None:
    damage(partition, its_magic, 5)
    segment = partition.segments[0]
    with pytest.raises(DamagedLog) as failed:
        list(read_range(partition.range(), FAILING))
    assert str(failed.value) == (
        f"{segment.path('.log')} at {segment.positions[5]} (offset 15): found magic 7 "
        f"(offsets 15 to 17; what can be read goes on at {segment.positions[6]}), expected a record batch of magic 2"
    )


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_compressed_records_that_cannot_be_opened_are_damage(tmp_path: Path, codec: Codec) -> None:
    partition = whole(tmp_path / "orders-0", codec)
    segment = partition.segments[0]
    data = bytearray(segment.path(".log").read_bytes())
    at, end = segment.positions[5], segment.positions[6]
    broken = bytearray(data[at:end])
    broken[HEADER_SIZE + 12 :] = bytes(len(broken) - HEADER_SIZE - 12)
    # Its CRC is right: a producer has sent it so.
    data[at:end] = changed(broken)
    segment.path(".log").write_bytes(data)
    with pytest.raises(DamagedLog, match="3 records that can be read"):
        list(read_range(partition.range(), FAILING))
    assert what_is_left(partition.range())[0] == without(range(15, 18))


def test_a_codec_that_does_not_exist_is_damage(partition: PartitionOnDisk) -> None:
    segment = partition.segments[0]
    data = bytearray(segment.path(".log").read_bytes())
    at, end = segment.positions[5], segment.positions[6]
    data[at:end] = changed(data[at:end], attributes=6)
    segment.path(".log").write_bytes(data)
    with pytest.raises(DamagedLog, match="names codec 6; 0 to 4 exist"):
        list(read_range(partition.range(), FAILING))


@given(
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=70)), min_size=1, max_size=3),
    st.booleans(),
    st.sampled_from([HEADER_SIZE, 300, 1 << 20]),
)
@settings(max_examples=300, deadline=None)
def test_whatever_is_written_over_a_file_undamaged_batches_are_read_and_nothing_wrong_is(
    overwritten: list[tuple[float, bytes]], has_index: bool, batch_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        partition = whole(Path(directory))
        segment = partition.segments[0]
        (before,) = read_range(partition.range(), FAILING)
        rows = {row["offset"]: row for row in before.to_pylist()}
        touched: set[int] = set()
        for share, data in overwritten:
            position = int(share * segment.size)
            data = data[: segment.size - position]
            segment.change(position, data)
            ends = [*segment.positions[1:], segment.size]
            touched |= {
                number
                for number, (begin, end) in enumerate(zip(segment.positions, ends, strict=True))
                if begin < position + len(data) and position < end
            }
        if not has_index:
            segment.path(".index").unlink()
        told: list[Damage] = []
        wanted = PASSING._replace(batch_bytes=batch_bytes)
        found = [row for batch in read_range(partition.range(), wanted, told.append) for row in batch.to_pylist()]
        assert [row["offset"] for row in found] == sorted({row["offset"] for row in found})
        # Behind damage a batch is believed only with what stands behind it: it may be part of a record's value.
        sound = {number for number in range(BATCHES) if number not in touched and number + 1 not in touched}
        assert sound <= {row["offset"] // 3 for row in found}
        assert all(row == rows[row["offset"]] for row in found if row["offset"] // 3 not in touched)
        lost = rows.keys() - {row["offset"] for row in found}
        assert bool(lost) <= bool(told)
