"""What a sample has written is walked batch by batch, and a byte that is not what was sent fails it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.load import LoadFailed
from bench.side_by_side.raw_workloads import whole_batches
from bench.side_by_side.verified import check_batches, records_in
from storage.batch.record_batch import stamp
from storage.batch.records import Record, encode_batch


def batches(*sizes: int) -> bytearray:
    """One behind the other, with so many records each."""
    found = bytearray()
    offset = 0
    for size in sizes:
        batch = bytearray(encode_batch([Record(timestamp=1, value=b"value") for _ in range(size)]))
        stamp(batch, offset, 0)
        offset += size
        found += batch
    return found


def test_the_records_of_all_segments_are_counted(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000000.log").write_bytes(batches(3, 4))
    (tmp_path / "00000000000000000007.log").write_bytes(batches(5))
    (tmp_path / "00000000000000000012.log").write_bytes(b"")

    assert records_in(tmp_path) == 12


def test_a_byte_that_was_not_sent_is_noticed(tmp_path: Path) -> None:
    content = batches(3, 4)
    content[-1] ^= 1
    (tmp_path / "00000000000000000000.log").write_bytes(content)

    with pytest.raises(LoadFailed, match=r"CRC of the batch at \d+ is not that of its bytes"):
        records_in(tmp_path)


def test_half_a_batch_at_the_end_is_noticed() -> None:
    with pytest.raises(LoadFailed, match="follow"):
        check_batches(memoryview(batches(3, 4))[:-1], "here")
    with pytest.raises(LoadFailed, match="are no batch"):
        check_batches(memoryview(batches(3) + b"x"), "here")


def test_the_part_of_a_batch_at_an_answers_end_is_left_out() -> None:
    whole = batches(3)

    assert whole_batches(memoryview(whole + batches(4)[:-1])) == whole
    assert whole_batches(memoryview(whole)) == whole
    assert not whole_batches(memoryview(whole)[:5])
