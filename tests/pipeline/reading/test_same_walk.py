"""The loop that reads a range accepts what `BatchWalk` accepts, as far as offsets leave no gap."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import Damage, RecordsGone
from pipeline.reading.ranges import OffsetRange
from pipeline.reading.scan import Scan
from storage.batch.walk import BatchWalk, StoredBatch, WalkPolicy, in_memory
from storage.file_names import LOG_SUFFIX, file_name
from storage.index.offset_index import MOST_RELATIVE_OFFSET
from tests.support.any_segment import segments, with_each_field_changed


@with_each_field_changed(chunk_bytes=100)
@given(content=segments(), chunk_bytes=st.integers(1, 1000))
@settings(deadline=None)
def test_a_range_is_read_in_the_batches_that_a_walk_gives(content: bytes, chunk_bytes: int) -> None:
    walk = BatchWalk(
        in_memory(content), 0, len(content), WalkPolicy(checks_crc=True, checks_offsets=True),
        most_offset=MOST_RELATIVE_OFFSET,
    )  # fmt: skip
    batches = list(walk)
    in_a_row: list[StoredBatch] = []
    next_offset = 0
    for batch in batches:
        if batch.header.base_offset != next_offset:
            break
        in_a_row.append(batch)
        next_offset = batch.header.next_offset

    positions, told = read(content, next_offset, chunk_bytes)
    positions_of_more, told_of_more = read(content, next_offset + 2000, chunk_bytes)

    assert positions == [batch.position for batch in in_a_row]
    assert told == []
    assert positions_of_more[: len(positions)] == positions
    if walk.fault is not None and len(in_a_row) == len(batches):
        assert walk.position not in positions_of_more
        assert all(damage.position >= walk.position for damage in told_of_more)


def read(content: bytes, until_offset: int, chunk_bytes: int) -> tuple[list[int], list[Damage]]:
    """Where the batches of a range stand that begins at offset 0, in a segment of these bytes; and what is told to be
    damaged."""
    told: list[Damage] = []
    positions: list[int] = []
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, file_name(0, LOG_SUFFIX)).write_bytes(content)
        wanted = OffsetRange("orders", 0, directory, 0, until_offset)
        with suppress(RecordsGone):  # behind the damage nothing may be left
            for stretch in Scan(wanted, told.append, chunk_bytes=chunk_bytes).stretches():
                positions += [stretch.position + at for at in stretch.begins]
    return positions, told
