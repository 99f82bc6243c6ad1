"""Transactions that our own broker wrote, read, archived and restored: readers of committed records get those and no
others, and `ottla verify` finds the restored directory intact."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import pytest

from broker.tools import verify
from dev.broker_process import BrokerProcess
from pipeline.__main__ import main
from pipeline.errors import PipelineError
from pipeline.reading.ranges import Bounds, OffsetRange, Wanted
from pipeline.reading.reader import read_range
from pipeline.source import PartitionSource, Source
from storage.batch.record_batch import read_header
from tests.pipeline.archive.archives import seen_by_pyarrow
from tests.pipeline.restore.archiving import archive, restore, restored, stored
from tests.pipeline.spark.rows import READ_COMMITTED, READ_UNCOMMITTED, from_kafka_python
from tests.pipeline.written_transactions import (
    ABORTED,
    BEHIND,
    COMMITTED,
    END_OFFSET,
    FIRST_OFFSETS,
    LAST_STABLE_OFFSET,
    NEW,
    NO_TIMEOUTS,
    OLD,
    TOPIC,
    Ledger,
)

EVERYTHING = sorted(COMMITTED + ABORTED + BEHIND)
KEEP = ("--config", "retention.ms=-1")


@pytest.fixture
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Ledger:
    """The topic, by clients of transaction version 2 unless a test says otherwise; no broker works in the directory."""
    return Ledger(tmp_path / "ledger" / "data", getattr(request, "param", NEW))


of_each_version = pytest.mark.parametrize(
    "ledger", [OLD, NEW], ids=["transaction version 1", "transaction version 2"], indirect=True
)


@contextmanager
def broker_on(directory: Path) -> Iterator[BrokerProcess]:
    """A broker on a directory, which leaves the open transaction open."""
    process = BrokerProcess(directory.parent, settings={**NO_TIMEOUTS, "log.dirs": str(directory)})
    process.data_directory = directory
    with process:
        yield process
        process.stop()


class Consumed(NamedTuple):
    """The offsets that a consumer of each isolation level gets."""

    read_committed: list[int]
    read_uncommitted: list[int]


def consumed(directory: Path) -> Consumed:
    with broker_on(directory) as broker:
        return Consumed(
            *(
                [row.offset for row in from_kafka_python(broker.bootstrap, [TOPIC], isolation)]
                for isolation in (READ_COMMITTED, READ_UNCOMMITTED)
            )
        )


def partition_of(directory: Path) -> PartitionSource:
    with Source.open([str(directory)]) as source:
        (partition,) = source.partitions([TOPIC])
        return partition


def offsets(wanted: OffsetRange, *, read_committed: bool = True) -> list[int]:
    columns = Wanted(columns=["offset"], read_committed=read_committed)
    return [offset for batch in read_range(wanted, columns) for offset in batch.column("offset").to_pylist()]


def archived(dest: Path) -> list[int]:
    """The offsets of the rows in an archive that is intact."""
    assert main(["archive", "verify", "--dest", str(dest)]) == 0
    return [offset for _, _, offset in seen_by_pyarrow(dest)]


# Reading


@of_each_version
@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_committed_records_are_read_up_to_the_open_transaction(ledger: Ledger, is_killed: bool) -> None:
    directory = ledger.killed if is_killed else ledger.directory
    assert sorted(int(path.stem) for path in (directory / f"{TOPIC}-0").glob("*.log")) == FIRST_OFFSETS

    partition = partition_of(directory)

    assert partition.bounds == Bounds(0, END_OFFSET, LAST_STABLE_OFFSET)
    assert partition.are_aborts_indexed != is_killed
    assert offsets(partition.readable()) == COMMITTED
    assert offsets(partition.readable(read_committed=False), read_committed=False) == EVERYTHING
    assert consumed(directory) == (COMMITTED, EVERYTHING)


@of_each_version
def test_every_range_has_the_committed_records_of_its_offsets(ledger: Ledger) -> None:
    whole = partition_of(ledger.directory).readable()

    for from_offset, until_offset in combinations(range(LAST_STABLE_OFFSET + 1), 2):
        expected = [offset for offset in COMMITTED if from_offset <= offset < until_offset]
        for is_indexed in (True, False):
            part = whole._replace(from_offset=from_offset, until_offset=until_offset, are_aborts_indexed=is_indexed)
            assert offsets(part) == expected, part


def test_an_open_transaction_is_not_read_as_if_it_were_committed(ledger: Ledger) -> None:
    whole = partition_of(ledger.directory).readable()._replace(until_offset=END_OFFSET, are_aborts_indexed=False)

    with pytest.raises(PipelineError, match=f"has a transaction with offset {LAST_STABLE_OFFSET} that nothing behind"):
        offsets(whole)


# Archive and restore


@pytest.mark.parametrize(
    ("is_killed", "range_bytes"), [(False, 1 << 20), (True, 1)], ids=["stopped, at once", "killed, batch by batch"]
)
def test_what_was_archived_and_restored_is_read_as_before(
    ledger: Ledger, tmp_path: Path, is_killed: bool, range_bytes: int
) -> None:
    directory = ledger.killed if is_killed else ledger.directory
    archive(directory, tmp_path / "archive", range_bytes=range_bytes)
    assert archived(tmp_path / "archive") == COMMITTED

    target = restored(tmp_path / "archive", tmp_path / "target", *KEEP)

    expected = [batch for batch in stored(directory, TOPIC) if read_header(batch).base_offset < LAST_STABLE_OFFSET]
    assert stored(target, TOPIC) == expected
    assert verify.main([str(target)]) == verify.WHOLE
    assert consumed(target) == (COMMITTED, sorted(COMMITTED + ABORTED))
    for served in (target, directory):
        assert verify.main([str(served)]) == verify.WHOLE


def test_an_archive_of_all_records_is_restored_up_to_the_open_transaction(ledger: Ledger, tmp_path: Path) -> None:
    archive(ledger.directory, tmp_path / "archive", isolation=READ_UNCOMMITTED)
    assert archived(tmp_path / "archive") == EVERYTHING

    target = restored(tmp_path / "archive", tmp_path / "target", *KEEP)

    assert verify.main([str(target)]) == verify.WHOLE
    assert consumed(target) == (COMMITTED, sorted(COMMITTED + ABORTED))


@pytest.mark.parametrize("commit", [True, False], ids=["committed", "aborted"])
def test_the_archive_goes_on_when_the_open_transaction_has_ended(ledger: Ledger, tmp_path: Path, commit: bool) -> None:
    archive(ledger.directory, tmp_path / "archive")
    ledger.go_on(commit=commit)

    archive(ledger.directory, tmp_path / "archive")

    expected = COMMITTED + (BEHIND if commit else BEHIND[1:])
    assert archived(tmp_path / "archive") == expected
    target = restored(tmp_path / "archive", tmp_path / "target", *KEEP)
    assert stored(target, TOPIC) == stored(ledger.directory, TOPIC)
    assert verify.main([str(target)]) == verify.WHOLE
    assert consumed(target) == (expected, EVERYTHING)


@pytest.mark.parametrize(
    ("isolation", "expected"), [(READ_COMMITTED, COMMITTED), (READ_UNCOMMITTED, COMMITTED + BEHIND[1:])]
)
def test_no_record_that_was_not_committed_is_produced_anew(
    ledger: Ledger, own_broker: BrokerProcess, tmp_path: Path, isolation: str, expected: list[int]
) -> None:
    archive(ledger.directory, tmp_path / "archive", isolation=isolation)

    words = ("--mode", "produce", "--bootstrap", own_broker.bootstrap, "--offset-map", str(tmp_path / "map.json"))
    assert restore(tmp_path / "archive", *words, *KEEP) == 0

    with broker_on(ledger.directory) as broker:
        sources = from_kafka_python(broker.bootstrap, [TOPIC], READ_UNCOMMITTED)
    chosen = [row for row in sources if row.offset in expected]
    produced = from_kafka_python(own_broker.bootstrap, [TOPIC], READ_UNCOMMITTED)
    assert produced == [row._replace(offset=number) for number, row in enumerate(chosen)]
