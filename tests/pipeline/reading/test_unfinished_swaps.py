"""Swaps that a power failure has interrupted are read as the next start of the broker finishes them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import pytest

from pipeline.reading.ranges import OffsetRange, Wanted
from pipeline.reading.reader import read_range
from pipeline.reading.segment_files import list_segments
from pipeline.source import split
from storage.batch.records import Record
from storage.cleaning.order import CleanedGroup
from tests.support.cleaning import COMPACTED, CompactedLog

CONFIG = COMPACTED.replace(segment_bytes=4000)
WANTED = Wanted(columns=("offset", "key", "value", "timestamp"))


class Swap(NamedTuple):
    """A log whose first segments have a copy with its `.swap` names, while none of them is gone."""

    orders: CompactedLog
    replaced: tuple[int, ...]
    """The base offsets of the segments that the copy contains."""
    end_offset: int
    """The last stable offset."""
    before: list[Record]
    """What a consumer of committed records got before the round."""

    def read(self, from_offset: int, *, are_aborts_indexed: bool = True, parts_of: int = 1 << 20) -> list[Record]:
        """What the pipeline reads, in parts of so many bytes."""
        whole = OffsetRange(
            "orders", 0, self.orders.home.directory, from_offset, self.end_offset,
            are_aborts_indexed=are_aborts_indexed,
        )  # fmt: skip
        return [
            Record(
                offset=row["offset"], key=row["key"], value=row["value"],
                timestamp=int(row["timestamp"].timestamp() * 1000 + 0.5),
            )
            for part in split(whole, parts_of)
            for batch in read_range(part, WANTED)
            for row in batch.to_pylist()
        ]  # fmt: skip

    def remove(self, *bases: int) -> None:
        """Let these segments be renamed, and their files be removed."""
        for base in bases:
            for path in Path(self.orders.home.directory).glob(f"{base:020d}.*"):
                if path.name.endswith((".log", "index")):
                    path.unlink()


@pytest.fixture
def swap(tmp_path: Path) -> Swap:
    return prepared(tmp_path)


def prepared(path: Path) -> Swap:
    orders = CompactedLog.make(path, CONFIG)
    for turn in range(3):
        orders.write((b"a", b"%d" % turn), (b"k%d" % turn, b"kept"), producer_id=7)
        orders.write((b"b", b"%d" % turn), producer_id=20, is_transactional=True)
        orders.end_transaction(20, commit=turn != 1)
        orders.roll()
    orders.write((b"a", b"last"))
    before = orders.committed()
    (group,) = (found for found in orders.copies() if isinstance(found, CleanedGroup))
    assert len(group.base_offsets) == 3
    orders.begin_swap(group).prepare()
    end_offset = orders.log.last_stable_offset
    orders.log.abandon()
    return Swap(orders, group.base_offsets, end_offset, before)


def subsets(bases: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for count in range(len(bases) + 1):
        yield from combinations(bases, count)


def test_whichever_of_the_replaced_segments_are_gone_the_copy_is_read_from_any_offset(tmp_path: Path) -> None:
    for number in range(8):
        swap = prepared(tmp_path / f"{number}")
        gone = list(subsets(swap.replaced))[number]
        swap.remove(*gone)
        found = {
            (start, is_indexed, size): swap.read(start, are_aborts_indexed=is_indexed, parts_of=size)
            for start in range(swap.end_offset)
            for is_indexed in (True, False)
            for size in (1 << 20, 100)
        }
        swap.orders.log = swap.orders.home.open()
        swap.orders.log.advance_high_watermark(swap.end_offset)
        kept = swap.orders.committed()
        assert len(kept) < len(swap.before)
        for (start, is_indexed, size), records in found.items():
            expected = [(one.offset, one.key, one.value, one.timestamp) for one in kept if one.offset >= start]
            read = [(one.offset, one.key, one.value, one.timestamp) for one in records]
            assert read == expected, (gone, start, is_indexed, size)
        swap.orders.log.abandon()


def test_a_copy_of_which_a_file_is_not_renamed_yet_does_not_count(swap: Swap) -> None:
    path = Path(swap.orders.home.directory) / f"{0:020d}.index"
    path.with_name(f"{path.name}.swap").rename(path.with_name(f"{path.name}.cleaned"))
    assert [one.offset for one in swap.read(0)] == [one.offset for one in swap.before]


def test_the_aborted_transactions_of_a_copy_are_known_after_it_has_got_its_own_name(swap: Swap) -> None:
    copy = list_segments(swap.orders.home.directory)[0]
    assert copy.path.endswith(".swap")
    swap.remove(*swap.replaced)
    before = copy.aborted_transactions()
    assert before
    for path in Path(swap.orders.home.directory).glob("*.swap"):
        path.rename(path.with_suffix(""))
    assert copy.aborted_transactions() == before
