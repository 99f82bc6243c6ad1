"""Loops over headers that are written out for speed accept what `BatchWalk` accepts, whatever stands in a segment."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from config.log_config import LogConfig
from storage.batch.record_batch import HEADER_SIZE
from storage.batch.walk import EVERYTHING, BatchWalk, StoredBatch, WalkPolicy, in_memory
from storage.check.findings import Finding, Findings
from storage.check.log_check import Claims, LogExtent, check_log
from storage.file_names import LOG_SUFFIX, file_name
from storage.files import FileSystem
from storage.index.offset_index import ENTRY, MOST_RELATIVE_OFFSET
from storage.open_files import OpenFiles
from storage.segment import Segment
from storage.segment_files import FileSizes
from storage.segment_walk import CHECKED, SegmentWalk
from tests.support.any_segment import segments, with_each_field_changed

STOPPING: Final = WalkPolicy(checks_crc=True, checks_offsets=True)
INTERVAL: Final = 200


@contextmanager
def on_disk(content: bytes) -> Iterator[str]:
    """A partition's directory with this segment and no index."""
    with tempfile.TemporaryDirectory() as home:
        directory = Path(home, "orders-0")
        directory.mkdir()
        (directory / file_name(0, LOG_SUFFIX)).write_bytes(content)
        yield str(directory)


def walked(content: bytes, policy: WalkPolicy, chunk_bytes: int = 1 << 20) -> tuple[BatchWalk, list[StoredBatch]]:
    walk = BatchWalk(
        in_memory(content), 0, len(content), policy, most_offset=MOST_RELATIVE_OFFSET, chunk_bytes=chunk_bytes
    )
    return walk, list(walk)


@with_each_field_changed(chunk_bytes=100)
@given(content=segments(), chunk_bytes=st.integers(1, 500))
@settings(deadline=None)
def test_how_much_is_read_at_once_makes_no_difference(content: bytes, chunk_bytes: int) -> None:
    for policy in (WalkPolicy(), STOPPING, CHECKED):
        (at_once, given_at_once), (in_chunks, given_in_chunks) = (
            walked(content, policy, size) for size in (1 << 20, chunk_bytes)
        )

        assert given_in_chunks == given_at_once
        assert (in_chunks.position, in_chunks.fault, in_chunks.header, in_chunks.problem, in_chunks.damage) == (
            at_once.position, at_once.fault, at_once.header, at_once.problem, at_once.damage
        )  # fmt: skip


@with_each_field_changed(durable_offset=0)
@with_each_field_changed(durable_offset=EVERYTHING)
@given(content=segments(), durable_offset=st.sampled_from((0, 9, EVERYTHING)))
@settings(deadline=None)
def test_recovery_indexes_the_batches_that_a_walk_gives(content: bytes, durable_offset: int) -> None:
    expected = BatchWalk(
        in_memory(content), 0, len(content), CHECKED, most_offset=MOST_RELATIVE_OFFSET, durable_offset=durable_offset
    )
    batches = list(expected)

    with on_disk(content) as directory:
        file = FileSystem().open_read(f"{directory}/{file_name(0, LOG_SUFFIX)}")
        walk = SegmentWalk(
            file, len(content), base_offset=0, end_offset=None, durable_offset=durable_offset,
            index_interval_bytes=INTERVAL,
        )  # fmt: skip
        produced: list[tuple[int, bytes]] = []
        entries: list[tuple[int, int]] = []
        while walk.step():
            produced += [(producer, walk.chunk[at : at + HEADER_SIZE]) for producer, _, at in walk.produced]
            entries += ENTRY.iter_unpack(walk.offset_entries)

    assert (walk.position, walk.next_offset, walk.fault, walk.header, walk.problem, walk.damage) == (
        expected.position, expected.next_offset, expected.fault, expected.header, expected.problem, expected.damage
    )  # fmt: skip
    headers = [batch.header for batch in batches]
    assert produced == [
        (batch.header.producer_id, bytes(batch.data[:HEADER_SIZE])) for batch in batches if batch.header.has_producer_id
    ]
    assert walk.largest_timestamp == max((header.max_timestamp for header in headers), default=-1)
    assert walk.latest_epoch == max((header.partition_leader_epoch for header in headers), default=-1)
    assert set(entries) <= {(batch.header.last_offset, batch.position) for batch in batches}
    for (_, before), (_, after) in pairwise(entries):
        assert after > before


@with_each_field_changed()
@given(content=segments())
@settings(max_examples=60, deadline=None)
def test_an_offset_is_located_in_the_batch_that_a_walk_gives_for_it(content: bytes) -> None:
    walk, batches = walked(content, WalkPolicy())

    with on_disk(content) as directory:
        segment = Segment(
            FileSystem(), OpenFiles(10), directory, 0, config=LogConfig(), created_ms=0,
            found=FileSizes(len(content), 0, 0, -1),
        )  # fmt: skip
        segment.files.on_repair = lambda sentence: None
        try:
            for offset in (0, 1, *(batch.header.last_offset + more for batch in batches for more in (0, 1))):
                wanted = next((batch for batch in batches if batch.header.last_offset >= offset), None)
                place = segment.locate(offset)
                if wanted is not None and wanted.header.last_offset <= MOST_RELATIVE_OFFSET:
                    assert place == (wanted.position, len(wanted.data))
                elif walk.fault is None and wanted is None:
                    assert place is None
                else:
                    # A search goes on behind the damage, where the walk has stopped.
                    assert place is None or place.position != walk.position
        finally:
            segment.close()


@with_each_field_changed()
@given(content=segments())
@settings(max_examples=60, deadline=None)
def test_an_audit_passes_over_batches_that_it_would_not_complain_of(content: bytes) -> None:
    with on_disk(content) as directory:
        quick_extent, quick = audit(directory, given_batches=None)
        one_by_one: list[StoredBatch] = []
        extent, findings = audit(directory, given_batches=one_by_one)
    _, walked_batches = walked(content, STOPPING)

    assert (quick_extent, quick) == (extent, findings)
    positions = [batch.position for batch in walked_batches]
    taken = [batch.position for batch in one_by_one]
    assert taken == positions[: len(taken)]
    if not findings:
        assert taken == positions


def audit(directory: str, given_batches: list[StoredBatch] | None) -> tuple[LogExtent, list[Finding]]:
    """Only an audit that hands out no batch may pass over them."""
    found: list[Finding] = []
    findings = Findings(found.append, lambda size: None)
    claims = Claims(was_clean=False, producer_id_expiration_ms=1 << 60)
    if given_batches is None:
        extent = check_log(FileSystem(), directory, claims, findings, with_records=False)
    else:
        extent = check_log(FileSystem(), directory, claims, findings, given_batches.append, with_records=False)
    return extent, found


@given(segments(most_damages=0))
@settings(deadline=None)
def test_a_segment_without_damage_is_walked_to_its_end(content: bytes) -> None:
    for policy in (WalkPolicy(), STOPPING, CHECKED):
        walk, batches = walked(content, policy)

        assert (walk.position, walk.fault) == (len(content), None)
        assert b"".join(batch.data for batch in batches) == content
