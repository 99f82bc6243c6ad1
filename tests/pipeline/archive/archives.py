"""An archive made without Spark, by what Spark's workers run; and what readers see who know no manifest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset
from deltalake import DeltaTable

from pipeline.archive.compaction import Summary, compact, settle
from pipeline.archive.locking import changing
from pipeline.archive.manifest import Manifest, read_manifest
from pipeline.archive.places import DELTA_LOG, DELTA_TABLE
from pipeline.archive.range_archiving import Receipt, Task, archive_range
from pipeline.archive.run import At, Known, Run, Settings, nothing, open_for_archiving
from pipeline.reading.ranges import Bounds
from pipeline.source import PartitionSource, split
from tests.support.partitions import TOPIC, PartitionOnDisk

CLUSTER = "Lq2xlGBqTcCbPwVhzU0q5A"
TOPIC_ID = "y3mDPk0eRV2o6n3j1uZkWQ"

Seen = list[tuple[str, int, int]]
"""Topic, partition and offset of each row."""


def source_of(
    log: PartitionOnDisk, *, start: int = 0, until: int | None = None, partition: int = 0, topic_id: str = TOPIC_ID
) -> PartitionSource:
    """A partition as it is now; everything in it is stable."""
    end = log.next_offset if until is None else until
    return PartitionSource(TOPIC, partition, str(log.directory), topic_id, Bounds(start, end, end), False)


def in_process(tasks: Sequence[Task], run: Path, at: At) -> list[Receipt]:
    """All tasks, one after the other."""
    return [archive_range(task, at) for task in tasks]


def archive(
    dest: Path, *sources: PartitionSource, at: At = nothing, range_bytes: int = 1 << 20, work: Any = in_process,
    known: Known | None = None, **settings: Any,
) -> Manifest:  # fmt: skip
    """One run over these partitions."""
    dest.mkdir(parents=True, exist_ok=True)
    chosen = Settings(**{"dest": dest, "name": "nightly", "cluster_id": CLUSTER, **settings})
    counts: dict[str, int] = {}
    for source in sources:
        counts[source.topic] = counts.get(source.topic, 0) + 1
    with changing(dest):
        manifest = open_for_archiving(chosen, at)
        one = Run(
            chosen, sources, lambda whole: split(whole, range_bytes), work, at=at,
            known=known or Known(partition_counts=counts),
        )  # fmt: skip
        return one.go(manifest, {source.topic for source in sources})


def compacted(dest: Path, *, at: At = nothing, target_bytes: int = 1 << 30) -> tuple[Manifest, Summary]:
    """Compact an archive."""
    with changing(dest):
        manifest = read_manifest(dest)
        assert manifest is not None
        manifest = settle(dest, manifest, at)
        return compact(dest, manifest, target_bytes, on_bytes=lambda size: None, at=at)


def seen_by_pyarrow(dest: Path) -> Seen:
    """What pyarrow finds in the directory, sorted."""
    found = pyarrow.dataset.dataset(dest, format="parquet", partitioning="hive")
    return _places(found.to_table(columns=["topic", "partition", "offset"])) if found.files else []


def seen_by_duckdb(dest: Path) -> Seen:
    """What DuckDB finds in the directory and everything below it, sorted."""
    files = f"{dest}/**/*.parquet"
    if not duckdb.sql(f"from glob('{files}')").fetchall():
        return []
    columns = 'topic, partition, "offset"'
    return sorted(duckdb.sql(f"select {columns} from read_parquet('{files}', hive_partitioning=true)").fetchall())


def open_delta_table(dest: Path) -> DeltaTable:
    """The archive as delta-rs finds it."""
    return DeltaTable(dest / DELTA_TABLE)


def seen_by_delta(dest: Path) -> Seen:
    """What delta-rs finds, sorted; nothing before the table has its first version."""
    if not any((dest / DELTA_LOG).glob("*.json")):
        return []
    return _places(open_delta_table(dest).to_pyarrow_table(columns=["topic", "partition", "offset"]))


def _places(table: pa.Table) -> Seen:
    return sorted(zip(*(table.column(name).to_pylist() for name in table.column_names), strict=True))
