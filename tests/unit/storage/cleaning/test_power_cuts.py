"""Whenever the power fails in a round, the log has each group of segments or its copy, and the table is whole."""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from storage.batch.records import Record
from storage.cleaning.order import CleanedGroup
from tests.support.cleaning import COMPACTED, CompactedLog, table
from tests.support.disk import EVERYTHING, NOTHING
from tests.support.files import PowerLost
from tests.support.logs import LogHome
from tests.support.memory import directory_in_memory

CONFIG = COMPACTED.replace(segment_bytes=700, delete_retention_ms=1000)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory for the files of a simulated disk."""
    with TemporaryDirectory(prefix="power-", dir=directory_in_memory()) as path:
        yield Path(path)


def dirty_log(path: Path) -> CompactedLog:
    """A log that takes two copies: updates, tombstones, and transactions that were committed and aborted; flushed."""
    orders = CompactedLog.make(path, CONFIG)
    for turn in range(4):
        orders.write((b"a", b"%d" % turn), (b"k%d" % turn, b"x" * 30), producer_id=7)
        orders.write((b"b", b"%d" % turn), producer_id=20, is_transactional=True)
        orders.end_transaction(20, commit=turn != 2)
        orders.write((b"k%d" % (turn - 1), None))
        orders.roll()
    orders.write((b"a", b"last"))
    orders.log.flush(orders.home.now_ms)
    return orders


def lose_power(orders: CompactedLog, changes: int, seed: int, *, reorders: bool, recovery_point: int) -> bool:
    """Clean a log, lose the power after so many changes, and start again; whether it was lost before the end."""
    files = orders.home.files
    files.lose_power_after(changes)
    was_lost = False
    try:
        orders.clean()
    except PowerLost:
        was_lost = True
    orders.log.abandon()
    files.cut_power_by_chance(str(orders.home.path), seed, reorders=reorders)
    orders.log = orders.home.open(recovery_point=recovery_point)
    orders.log.advance_high_watermark(orders.log.log_end_offset)
    return was_lost


def test_the_segments_or_their_copies_are_there_whenever_the_power_is_cut(tmp_path: Path) -> None:
    written = dirty_log(tmp_path / "written")
    groups = [found.base_offsets for found in written.copies() if isinstance(found, CleanedGroup)]
    assert len(groups) == 2
    before, end, producers = table(written.committed()), written.log.log_end_offset, last_sequences(written)
    written.log.abandon()
    reference = copy_of(written, tmp_path / "reference", end)
    reference.clean()
    cleaned = reference.records()

    changes, was_lost, seen = 0, True, set()
    while was_lost:
        for seed in ((NOTHING, EVERYTHING)[changes % 2], changes + 2):
            orders = copy_of(written, tmp_path / f"{changes}-{seed}", end)
            # In turns: names reach the disk in their order or in any; the start checks all batches or none.
            reorders, is_checked = changes % 4 > 1, changes % 8 > 3
            was_lost = lose_power(orders, changes, seed, reorders=reorders, recovery_point=0 if is_checked else end)
            assert table(orders.committed()) == before
            assert (orders.log.log_end_offset, last_sequences(orders)) == (end, producers)
            assert not [name for name in orders.home.names() if name.endswith((".cleaned", ".swap", ".deleted"))]
            seen.add(copied_of(orders, groups))
            orders.log.flush(orders.home.now_ms)
            orders.clean()
            assert orders.records() == cleaned
            orders.log.close(orders.home.now_ms)
        changes += 1
    assert changes > 60
    assert seen == {(False, False), (True, False), (True, True)}


def copy_of(written: CompactedLog, path: Path, end_offset: int) -> CompactedLog:
    """The same files again, all of them on disk."""
    shutil.copytree(written.home.path, path)
    home = LogHome(path, config=CONFIG)
    log = home.open(recovery_point=end_offset)
    log.advance_high_watermark(log.log_end_offset)
    return CompactedLog(home, log)


def copied_of(orders: CompactedLog, groups: Sequence[tuple[int, ...]]) -> tuple[bool, ...]:
    """For each group whether the log has its copy; otherwise it has all of its segments."""
    bases = [base for base in orders.log.segments.bases if base <= groups[-1][-1]]
    copied = tuple(group[-1] not in bases for group in groups)
    assert bases == [
        base for group, is_copied in zip(groups, copied, strict=True) for base in (group[:1] if is_copied else group)
    ]
    return copied


def last_sequences(orders: CompactedLog) -> dict[int, int]:
    """The last sequence number of each producer."""
    return {entry.producer_id: entry.last_sequence for entry in orders.log.producers}


def test_a_record_is_kept_until_what_supersedes_it_is_on_disk(tmp_path: Path) -> None:
    orders = CompactedLog.make(tmp_path)
    orders.write((b"a", b"flushed"), (b"b", b"flushed"))
    orders.roll()
    orders.log.flush(orders.home.now_ms)
    flushed: list[Record] = orders.records()
    orders.write((b"a", b"not flushed"))
    orders.log.roll(orders.home.now_ms)
    orders.write((b"c", b"not flushed"))
    assert orders.candidate().end_offset == 2
    assert lose_power(orders, 10_000, NOTHING, reorders=False, recovery_point=2) is False
    assert orders.records() == flushed
