"""The archive as a Delta table, read by Delta Lake's own code on Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dev import spark_delta
from dev.maven import NoJars
from pipeline.archive.manifest import DELTA
from pipeline.archive.places import DELTA_TABLE
from pipeline.requirements import Missing, require_java
from tests.pipeline.archive.archives import archive, compacted, source_of
from tests.support.batches import T, record, records
from tests.support.partitions import PartitionOnDisk

JOB = Path(__file__).with_name("spark_delta_job.py")
DAY_MS = 86_400_000


@pytest.mark.timeout(400)
def test_a_stream_sees_every_row_once_over_runs_and_compactions(tmp_path: Path) -> None:
    try:
        require_java()
        jars = ",".join(map(str, spark_delta.jars()))
    except (Missing, NoJars) as reason:
        pytest.skip(str(reason))
    log, dest, out = PartitionOnDisk(tmp_path / "orders-0"), tmp_path / "archive", tmp_path / "out"

    def read() -> list[int]:
        """Let the stream go on; the offsets that the table has for who reads all of it."""
        command = [sys.executable, str(JOB), jars, str(dest / DELTA_TABLE), str(out)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        offsets: list[int] = json.loads(done.stdout)
        return offsets

    def streamed() -> list[int]:
        return sorted(pq.read_table(out / "rows", columns=["offset"]).column("offset").to_pylist())

    def produce_and_archive() -> None:
        for day in (0, 1):
            log.append([*records(4, timestamp=T + day * DAY_MS), record(b"", headers=[("a", None)])])
        archive(dest, source_of(log), range_bytes=150, table_format=DELTA)

    produce_and_archive()
    assert read() == streamed() == list(range(10))
    produce_and_archive()
    compacted(dest)
    produce_and_archive()
    compacted(dest)
    compacted(dest)

    assert read() == streamed() == list(range(30))
