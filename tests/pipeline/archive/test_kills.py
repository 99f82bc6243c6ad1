"""Kill -9 at every step that the disk shows: no reader sees a row twice or misses an archived row.

Here without Spark, whose workers do the same; `test_command.py` kills Spark itself.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dev.repository import REPOSITORY
from pipeline.archive.archive import Archive
from pipeline.archive.manifest import DELTA, PARQUET, TABLE_FORMATS
from pipeline.archive.verification import findings
from tests.pipeline.archive.archives import (
    Seen,
    archive,
    compacted,
    seen_by_delta,
    seen_by_duckdb,
    seen_by_pyarrow,
    source_of,
)
from tests.pipeline.archive.killed import RANGE_BYTES
from tests.support.batches import T, records
from tests.support.partitions import TOPIC, PartitionOnDisk

DAY_MS = 86_400_000
EVERY_STEP = 10_000
RECORDS = 40

RUN_STEPS = {
    "plan written", "attempt begun", "rows written", "rows placed", "batches placed", "receipt left",
    "manifest written", "manifest published", "run removed", "plan removed",
}  # fmt: skip
COMPACTION_STEPS = {
    "directory built", "compaction planned", "manifest written", "manifest published", "directory exchanged",
}  # fmt: skip
SETTLING_STEPS = {"replaced removed", "compaction forgotten"}
DELTA_STEPS = {"delta files linked", "delta committed", "delta files removed"}

in_every_format = pytest.mark.parametrize("table_format", TABLE_FORMATS)


@pytest.fixture
def log(tmp_path: Path) -> PartitionOnDisk:
    """Batches of five records over two days, so that ranges have files in two directories."""
    log = PartitionOnDisk(tmp_path / "orders-0")
    for number in range(RECORDS // 5):
        log.append(records(5, timestamp=T + (number * DAY_MS // 4) % (2 * DAY_MS)))
    return log


def rows_up_to(offset: int) -> Seen:
    return [(TOPIC, 0, number) for number in range(offset)]


def run_and_kill(what: str, dest: Path, log: PartitionOnDisk, step: int, *table_format: str) -> list[str]:
    """Let a process archive or compact until a step; the steps that it came to."""
    command = [sys.executable, "-m", "tests.pipeline.archive.killed", what, str(dest), str(log.directory)]
    done = subprocess.run(
        [*command, str(RECORDS), str(step), *table_format], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode in (0, -9), done.stderr
    steps = done.stdout.splitlines()
    assert (done.returncode == -9) == (len(steps) == step + 1), done.stderr
    return steps


def damages(dest: Path) -> list[str]:
    return [str(found) for found in findings(Archive.open(dest), lambda size: None) if found.is_damage]


def seen_at_rest(dest: Path, table_format: str) -> Seen:
    """What all readers see, who agree."""
    seen = seen_by_pyarrow(dest)
    assert seen == seen_by_duckdb(dest)
    assert table_format == PARQUET or seen == seen_by_delta(dest)
    return seen


@in_every_format
def test_a_run_killed_at_any_step_leaves_and_gives_every_row_once(
    tmp_path: Path, log: PartitionOnDisk, table_format: str
) -> None:
    steps = run_and_kill("archive", tmp_path / "whole", log, EVERY_STEP, table_format)
    assert set(steps) == RUN_STEPS | (DELTA_STEPS if table_format == DELTA else set())
    for step in range(len(steps)):
        dest = tmp_path / f"killed-at-{step}"
        archive(dest, source_of(log, until=10), range_bytes=RANGE_BYTES, table_format=table_format)

        ran = run_and_kill("archive", dest, log, step)

        if len(ran) <= step:
            break
        seen = seen_by_pyarrow(dest)
        assert seen == seen_by_duckdb(dest)
        assert len(set(seen)) == len(seen), f"doubled after {ran[-1]} ({step})"
        assert set(rows_up_to(10)) <= set(seen) <= set(rows_up_to(RECORDS)), f"after {ran[-1]} ({step})"
        if table_format == DELTA:
            is_done = "delta committed" in ran
            assert seen_by_delta(dest) == rows_up_to(RECORDS if is_done else 10), f"after {ran[-1]} ({step})"
        assert damages(dest) == [], f"after {ran[-1]} ({step})"
        archive(dest, source_of(log), range_bytes=RANGE_BYTES)
        assert seen_at_rest(dest, table_format) == rows_up_to(RECORDS), f"after {ran[-1]} ({step})"
        assert damages(dest) == [], f"after {ran[-1]} ({step})"


def test_an_archive_killed_at_any_step_of_becoming_a_delta_table_is_one_or_none(
    tmp_path: Path, log: PartitionOnDisk
) -> None:
    for step in range(EVERY_STEP):
        dest = tmp_path / f"killed-at-{step}"
        archive(dest, source_of(log), range_bytes=RANGE_BYTES)

        ran = run_and_kill("archive", dest, log, step, DELTA)

        if len(ran) <= step:
            assert set(ran) == {"manifest written", "manifest published", *DELTA_STEPS, "run removed", "plan removed"}
            break
        is_done = "delta committed" in ran
        assert seen_by_delta(dest) == (rows_up_to(RECORDS) if is_done else []), f"after {ran[-1]} ({step})"
        assert seen_at_rest(dest, PARQUET) == rows_up_to(RECORDS)
        assert damages(dest) == [], f"after {ran[-1]} ({step})"
        archive(dest, source_of(log), table_format=DELTA)
        assert seen_at_rest(dest, DELTA) == rows_up_to(RECORDS), f"after {ran[-1]} ({step})"
        assert damages(dest) == [], f"after {ran[-1]} ({step})"


@in_every_format
def test_a_compaction_killed_at_any_step_hides_no_row_and_doubles_none(
    tmp_path: Path, log: PartitionOnDisk, table_format: str
) -> None:
    steps: list[str] = []
    for step in range(EVERY_STEP):
        dest = tmp_path / f"killed-at-{step}"
        archive(dest, source_of(log), range_bytes=RANGE_BYTES, table_format=table_format)

        ran = run_and_kill("compact", dest, log, step)

        if len(ran) <= step:
            steps = ran
            break
        assert seen_at_rest(dest, table_format) == rows_up_to(RECORDS), f"after {ran[-1]} ({step})"
        assert damages(dest) == [], f"after {ran[-1]} ({step})"
        found = Archive.open(dest)
        assert sum(len(rows) for rows in found.rows(TOPIC, 0)) == RECORDS
        assert sum(batch.row.record_count for batch in found.batches(TOPIC, 0)) == RECORDS
        compacted(dest)
        assert seen_at_rest(dest, table_format) == rows_up_to(RECORDS), f"after {ran[-1]} ({step})"
        assert damages(dest) == [], f"after {ran[-1]} ({step})"
        assert len(Archive.open(dest).files()) == len({file.date for file in found.files()})
    assert set(steps) == COMPACTION_STEPS | (DELTA_STEPS if table_format == DELTA else set())


def test_what_a_compaction_has_replaced_is_removed_by_the_next_run_killed_or_not(
    tmp_path: Path, log: PartitionOnDisk
) -> None:
    for step in range(len(SETTLING_STEPS)):
        dest = tmp_path / f"killed-at-{step}"
        archive(dest, source_of(log), range_bytes=RANGE_BYTES)
        reader = Archive.open(dest)
        compacted(dest)
        assert sum(len(rows) for rows in reader.rows(TOPIC, 0)) == RECORDS, "who reads goes on reading"

        ran = run_and_kill("compact", dest, log, step)

        assert ran[-1] in SETTLING_STEPS
        assert seen_by_pyarrow(dest) == seen_by_duckdb(dest) == rows_up_to(RECORDS)
        archive(dest, source_of(log), range_bytes=RANGE_BYTES)
        assert seen_by_pyarrow(dest) == seen_by_duckdb(dest) == rows_up_to(RECORDS)
        assert not list(tmp_path.glob(".*")), "nothing is left beside the archive"
        assert damages(dest) == []
