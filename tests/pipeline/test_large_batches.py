"""Batches of hundreds of megabytes, and such as open to them: memory is bounded, or a sentence ends the command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dev.repository import REPOSITORY
from pipeline.archive.archive import Archive
from storage.batch.record_batch import Codec
from tests.pipeline.archive.archives import archive, compacted, source_of
from tests.support.batches import record
from tests.support.partitions import TOPIC, PartitionOnDisk, leave_in_order
from tests.support.pipeline_commands import JAVAS_OWN

MB = 1 << 20
SPARK = ["--master", "local[2]", "--spark-conf", "spark.driver.memory=512m"]
"""About as little as Spark starts with."""

KINDS: dict[str, tuple[Any, Codec]] = {
    "one record": (lambda: [record(bytes(300 * MB))], Codec.NONE),
    "many records": (lambda: [record(bytes(MB))] * 300, Codec.NONE),
    "a bomb": (lambda: [record(bytes(300 * MB))], Codec.ZSTD),
}


ARCHIVED_AND_MEASURED = r"""
import re
from pathlib import Path
from tests.pipeline.archive import killed
killed.main()
print(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1])
"""
"""Says last how many KB it has held at most. (What the system says to `wait4` includes who started it.)"""


def ottla(home: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pipeline", *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.usefixtures("spark")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("many records", ["stats", "--report", "new.json"]),
        ("a bomb", ["sql", "--output", "new.csv", "select * from orders"]),
        ("one record", ["archive", "--dest", "new"]),
    ],
)
def test_a_batch_beyond_the_limit_is_told_with_file_position_and_size(
    tmp_path: Path, kind: str, words: list[str]
) -> None:
    log = PartitionOnDisk(tmp_path / "data/orders-0")
    log.append(1)
    position = log.segments[0].size
    content, codec = KINDS[kind]
    log.append(content(), codec=codec)
    log.append(1)
    data = leave_in_order(tmp_path / "data")
    path = log.segments[0].path(".log")

    done = ottla(tmp_path, words[0], "--data-dir", data, *words[1:], *SPARK)

    said = rf"{re.escape(str(path))} at {position} \(offset 1\): found .*\b\d+ bytes\b.* 268435456 bytes"
    assert re.search(said, done.stderr), done.stderr
    said_by_us = [line for line in done.stderr.splitlines() if line != JAVAS_OWN]
    assert (done.returncode, done.stdout, len(said_by_us)) == (1, "", 1), done.stderr
    assert list(tmp_path.glob("new.*")) == []

    if words[0] == "archive":
        rows = [row for file in tmp_path.rglob("*.parquet") for row in pq.read_table(file).column("offset").to_pylist()]
        assert 1 not in rows, "what stands before and behind may be there already"
        passed_over = ottla(tmp_path, *words, "--data-dir", data, "--on-damage", "skip-batch", *SPARK)
        assert passed_over.returncode == 0, passed_over
        assert passed_over.stdout.startswith("archived 2 records in ")


@pytest.mark.usefixtures("spark")
@pytest.mark.timeout(300)
def test_rows_that_do_not_fit_into_sparks_memory_are_a_sentence(tmp_path: Path) -> None:
    log = PartitionOnDisk(tmp_path / "data/orders-0")
    for _ in range(4):
        log.append([record(bytes(200 * MB))], codec=Codec.ZSTD)
    data = leave_in_order(tmp_path / "data")

    done = ottla(
        tmp_path, "sql", "--data-dir", data, *SPARK, "--output", "new.csv", "select * from orders order by value"
    )

    # Before it, a worker of Spark's may have to say that the JVM has gone.
    sentence = done.stderr.splitlines()[-1]
    assert sentence.startswith("ottla pipeline sql: Spark has ended in the middle, as it does where its memory is too")
    assert (done.returncode, done.stdout) == (2, "")
    assert "at org." not in done.stderr
    assert list(tmp_path.glob("*new*")) == []


def made_again(dest: Path, expected: bytes) -> None:
    assert b"".join(batch.data for batch in Archive.open(dest).batches(TOPIC, 0)) == expected


def peak_bytes(work: Any) -> int:
    """What Arrow has held at most meanwhile."""
    before = pa.default_memory_pool()
    watched = pa.proxy_memory_pool(before)
    pa.set_memory_pool(watched)
    try:
        work()
        peak: int = watched.max_memory()
    finally:
        pa.set_memory_pool(before)
    return peak


def test_many_batches_that_open_to_much_are_read_and_made_again_a_few_at_a_time(tmp_path: Path) -> None:
    """Together they open to 640 MB, and are some KB in the log."""
    log = PartitionOnDisk(tmp_path / "orders-0")
    for _ in range(40):
        log.append([record(bytes(MB))] * 16, codec=Codec.ZSTD)
    dest = tmp_path / "archive"

    assert peak_bytes(lambda: archive(dest, source_of(log))) < 300 * MB
    for _ in range(2):
        assert peak_bytes(lambda: made_again(dest, log.segments[0].path(".log").read_bytes())) < 300 * MB
        assert peak_bytes(lambda: compacted(dest)) < 300 * MB


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_the_largest_batch_is_archived_within_what_the_page_says(tmp_path: Path, codec: Codec) -> None:
    log = PartitionOnDisk(tmp_path / "orders-0")
    log.append([record(bytes(250 * MB))], codec=codec)
    words = ("archive", str(tmp_path / "archive"), str(log.directory), "1", "10000")
    done = subprocess.run(
        [sys.executable, "-c", ARCHIVED_AND_MEASURED, *words], cwd=REPOSITORY, stdout=subprocess.PIPE, check=True
    )
    assert int(done.stdout.split()[-1]) < 1_700_000, "KB: docs/pipeline.md"
