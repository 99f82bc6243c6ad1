"""The archive as a Delta table, read by delta-rs, independently of the code that writes it."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pytest
from deltalake import DeltaTable, write_deltalake

from pipeline.archive.archive import Archive
from pipeline.archive.delta_table import StrangeTable
from pipeline.archive.durable import Unwritable
from pipeline.archive.manifest import DELTA, PARQUET, read_manifest
from pipeline.archive.places import BOOKS, DELTA_LOG, DELTA_TABLE
from pipeline.archive.verification import Finding, findings
from pipeline.errors import PipelineError
from pipeline.requirements import Missing
from tests.pipeline.archive.archives import (
    archive,
    compacted,
    open_delta_table,
    seen_by_delta,
    seen_by_duckdb,
    seen_by_pyarrow,
    source_of,
)
from tests.support.batches import T, record, records
from tests.support.partitions import TOPIC, PartitionOnDisk

DAY_S = 86_400
RANGE_BYTES = 150
"""A batch or two become a file."""
BY_OFFSET = [("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")]


@pytest.fixture
def log(tmp_path: Path) -> PartitionOnDisk:
    """Twenty records of every kind, of two dates."""
    log = PartitionOnDisk(tmp_path / "orders-0")
    for day in (0, 0, 1, 1):
        at = T + day * DAY_S * 1000
        log.append(records(3, timestamp=at))
        headers = [("a", None), ("", b"x"), ("a", b"")]
        log.append([record(None, key=None, timestamp=at), record(b"", key=b"", timestamp=at, headers=headers)])
    return log


@pytest.fixture
def dest(tmp_path: Path) -> Path:
    return tmp_path / "archive"


def offsets(dest: Path) -> list[int]:
    """What every reader sees, of the directory or of the Delta table."""
    seen = seen_by_pyarrow(dest)
    assert seen == seen_by_duckdb(dest) == seen_by_delta(dest)
    return [offset for _, _, offset in seen]


def published_rows(dest: Path) -> pa.Table:
    """The rows of the files that the manifest names."""
    found = Archive.open(dest)
    paths = [str(found.path(file)) for file in found.files()]
    return pyarrow.dataset.dataset(paths, format="parquet").to_table().sort_by(BY_OFFSET)


def said(dest: Path, version: int, kind: str) -> list[dict[str, Any]]:
    """What a version of the table says of this kind."""
    lines = (dest / DELTA_LOG / f"{version:020d}.json").read_text().splitlines()
    return [line[kind] for line in map(json.loads, lines) if kind in line]


def found(dest: Path) -> list[Finding]:
    return list(findings(Archive.open(dest), lambda size: None))


def second_names(dest: Path) -> list[Path]:
    return sorted((dest / DELTA_TABLE).rglob("*.rows"))


def test_the_table_has_the_rows_of_the_archive_after_each_run(log: PartitionOnDisk, dest: Path) -> None:
    for until in (5, 10, 18, 20):
        archive(dest, source_of(log, until=until), range_bytes=RANGE_BYTES, table_format=DELTA)

        rows, published = open_delta_table(dest).to_pyarrow_table().sort_by(BY_OFFSET), published_rows(dest)
        assert len(rows) == until
        assert rows.drop_columns("date").cast(published.schema).equals(published)
        assert set(rows.column("date").to_pylist()) == {file.date for file in Archive.open(dest).files()}
        assert found(dest) == []


def test_a_run_is_a_version_and_nothing_new_is_none(log: PartitionOnDisk, dest: Path) -> None:
    archive(dest, source_of(log, until=10), table_format=DELTA)
    archive(dest, source_of(log, until=10))
    manifest = archive(dest, source_of(log))

    table = open_delta_table(dest)
    # The first one names nothing, as the first manifest does.
    assert table.version() == 2
    assert table.transaction_version("archive.nightly") == manifest.version
    assert [len(said(dest, version, "add")) for version in range(3)] == [0, 1, 1]
    assert [one["dataChange"] for one in said(dest, 2, "add")] == [True]
    assert table.protocol().min_reader_version == 1, "every program that knows Delta can read it"


def test_an_archive_of_parquet_becomes_a_table_in_one_version_and_stays_one(log: PartitionOnDisk, dest: Path) -> None:
    archive(dest, source_of(log, until=10), range_bytes=RANGE_BYTES)
    archive(dest, source_of(log, until=15), range_bytes=RANGE_BYTES)
    assert not (dest / DELTA_TABLE).exists()

    archive(dest, source_of(log, until=15), table_format=DELTA)

    assert open_delta_table(dest).version() == 0
    assert offsets(dest) == list(range(15))
    archive(dest, source_of(log))
    assert offsets(dest) == list(range(20))
    with pytest.raises(PipelineError, match="is a Delta table, too, and is kept as one: leave --format out"):
        archive(dest, source_of(log), table_format=PARQUET)


def test_rows_can_be_put_by_topic_only(log: PartitionOnDisk, dest: Path) -> None:
    archive(dest, source_of(log, until=10), partition_by=("topic",), table_format=DELTA)
    archive(dest, source_of(log), partition_by=("topic",))
    compacted(dest)

    assert offsets(dest) == list(range(20))
    assert open_delta_table(dest).metadata().partition_columns == ["topic"]
    assert found(dest) == []


def test_a_compaction_is_a_version_without_new_rows(log: PartitionOnDisk, dest: Path) -> None:
    archive(dest, source_of(log), range_bytes=RANGE_BYTES, table_format=DELTA)
    before = [one["path"] for one in said(dest, 1, "add")]

    compacted(dest)

    removed, added = said(dest, 2, "remove"), said(dest, 2, "add")
    assert sorted(one["path"] for one in removed) == sorted(before)
    assert len(added) == 2, "one a date"
    assert not any(one["dataChange"] for one in removed + added)
    assert offsets(dest) == list(range(20))
    assert found(dest) == []


def test_who_has_opened_the_table_reads_on_after_compactions(log: PartitionOnDisk, dest: Path) -> None:
    archive(dest, source_of(log), range_bytes=RANGE_BYTES, table_format=DELTA)
    week = 7 * DAY_S
    for path in second_names(dest):
        os.utime(path, (path.stat().st_mtime - 2 * week,) * 2)
    reader, older = open_delta_table(dest), len(second_names(dest))
    compacted(dest)
    compacted(dest)
    assert not list(dest.parent.glob(".*")), "the archive itself has let go of the old files"

    assert len(reader.to_pyarrow_table()) == 20
    reader.load_as_version(1)
    assert len(reader.to_pyarrow_table()) == 20
    assert len(second_names(dest)) == older + 2


def test_what_was_replaced_more_than_a_week_ago_goes_with_the_next_run(log: PartitionOnDisk, dest: Path) -> None:
    archive(dest, source_of(log, until=15), range_bytes=RANGE_BYTES, table_format=DELTA)
    compacted(dest)
    version = dest / DELTA_LOG / f"{2:020d}.json"
    (long_ago,) = {one["deletionTimestamp"] for one in said(dest, 2, "remove")}
    version.write_text(version.read_text().replace(str(long_ago), str(long_ago - 8 * DAY_S * 1000)))
    orphan = dest / DELTA_TABLE / "topic=orders/part-0-0-1.rows"
    orphan.write_bytes(b"")
    os.utime(orphan, (0, 0))

    archive(dest, source_of(log))

    assert {path.relative_to(dest / DELTA_TABLE).as_posix() for path in second_names(dest)} == {
        one["path"] for one in said(dest, 2, "add") + said(dest, 3, "add")
    }
    assert offsets(dest) == list(range(20))


def test_old_versions_are_read_from_a_checkpoint(log: PartitionOnDisk, dest: Path) -> None:
    archive(dest, source_of(log, until=5), table_format=DELTA)
    open_delta_table(dest).alter.set_table_properties({"delta.checkpointInterval": "2"})
    for until in (8, 10, 13, 15):
        archive(dest, source_of(log, until=until))
    assert len(list((dest / DELTA_LOG).glob("*.checkpoint.parquet"))) == 2

    for version in range(5):
        (dest / DELTA_LOG / f"{version:020d}.json").unlink()
    archive(dest, source_of(log))

    assert seen_by_delta(dest) == [(TOPIC, 0, offset) for offset in range(20)]
    assert found(dest) == [], "a checkpoint is not taken for a file of rows"
    assert len(seen_by_pyarrow(dest)) == 20, "nor by pyarrow"


def test_a_record_of_any_time_leaves_the_table_readable(log: PartitionOnDisk, dest: Path) -> None:
    # Somebody takes microseconds for milliseconds, somebody has no clock.
    log.append([record(timestamp=T * 1000), record(timestamp=-1), record(timestamp=-62_200_000_000_000)])

    archive(dest, source_of(log), table_format=DELTA)

    assert [offset for _, _, offset in seen_by_delta(dest)] == list(range(23))
    rows = open_delta_table(dest).to_pyarrow_table(columns=["offset"], filters=[("date", "=", "55840-11-08")])
    assert rows.column("offset").to_pylist() == [20]


def test_another_writer_of_the_table_ends_the_run_and_loses_nothing(log: PartitionOnDisk, dest: Path) -> None:
    archive(dest, source_of(log, until=15), range_bytes=RANGE_BYTES, table_format=DELTA)
    open_delta_table(dest).optimize.compact()

    with pytest.raises(StrangeTable, match=r"another program has written to .*_delta; remove it, and the next run"):
        archive(dest, source_of(log))
    assert [one.what for one in found(dest) if one.is_damage] == ["stray", "stray", "delta"]
    shutil.rmtree(dest / DELTA_TABLE)
    assert [one.text for one in found(dest)] == ["it is behind the manifest; the next run ends it"]
    archive(dest, source_of(log))

    assert offsets(dest) == list(range(20))
    assert found(dest) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.alter.add_constraint({"few": "offset < 1000"}),
        lambda table: write_deltalake(table, table.to_pyarrow_table(), mode="append"),
        lambda table: write_deltalake(table, table.to_pyarrow_table(), mode="append", schema_mode="merge"),
    ],
)
def test_whatever_else_another_writer_changes_is_noticed(
    log: PartitionOnDisk, dest: Path, change: Callable[[DeltaTable], Any]
) -> None:
    archive(dest, source_of(log), table_format=DELTA)
    change(open_delta_table(dest))

    with pytest.raises(StrangeTable):
        archive(dest, source_of(log))


def test_maintenance_by_others_takes_nothing_from_the_archive(log: PartitionOnDisk, dest: Path) -> None:
    archive(dest, source_of(log, until=10), range_bytes=RANGE_BYTES, table_format=DELTA)
    compacted(dest)
    others = open_delta_table(dest)
    others.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
    others.create_checkpoint()
    others.compact_logs(0, 1)
    assert found(dest) == []

    archive(dest, source_of(log))

    assert [offset for _, _, offset in seen_by_delta(dest)] == list(range(20))
    assert found(dest) == []


def test_what_a_killed_writer_has_left_in_the_log_is_in_nobodys_way(log: PartitionOnDisk, dest: Path) -> None:
    archive(dest, source_of(log, until=10), table_format=DELTA)
    (dest / DELTA_LOG / f"{2:020d}.json#1").write_text('{"add":{"path":"half of')

    archive(dest, source_of(log))

    assert offsets(dest) == list(range(20))
    assert found(dest) == []


def test_a_version_that_a_power_cut_has_torn_ends_the_run_with_what_helps(log: PartitionOnDisk, dest: Path) -> None:
    archive(dest, source_of(log, until=10), table_format=DELTA)
    version = dest / DELTA_LOG / f"{1:020d}.json"
    whole = version.read_bytes()
    version.write_bytes(whole[:-20])

    with pytest.raises(StrangeTable, match=r"_delta cannot be read \(.*\); remove it, and the next run makes it anew"):
        archive(dest, source_of(log))
    (damage,) = found(dest)
    assert (damage.is_damage, damage.what) == (True, "delta")
    version.write_bytes(b"")
    archive(dest, source_of(log))

    assert offsets(dest) == list(range(20))
    assert found(dest) == []


def test_a_copy_without_second_names_is_whole_and_goes_on(log: PartitionOnDisk, dest: Path) -> None:
    archive(dest, source_of(log, until=15), range_bytes=RANGE_BYTES, table_format=DELTA)
    copy = dest.with_name("a copy, of 2026")
    shutil.copytree(dest, copy)

    assert found(copy) == []
    archive(copy, source_of(log))
    compacted(copy)

    assert offsets(copy) == list(range(20))
    assert found(copy) == []


def test_where_files_cannot_have_second_names_nothing_is_made(
    log: PartitionOnDisk, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, target: Path) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(Path, "hardlink_to", refuse)

    with pytest.raises(Unwritable, match=r"a Delta table needs second names \(hard links\) for files, which"):
        archive(dest, source_of(log), table_format=DELTA)

    assert read_manifest(dest) is None
    archive(dest, source_of(log))


def test_without_the_library_nothing_is_made_and_no_run_leaves_the_table_behind(
    log: PartitionOnDisk, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive(dest, source_of(log, until=10), table_format=DELTA)
    other = dest.with_name("other")
    monkeypatch.setitem(sys.modules, "deltalake.transaction", None)

    for place in (dest, other):
        with pytest.raises(Missing, match=r"needs deltalake .* or newer: pip install 'ottla\[spark,delta\]'"):
            archive(place, source_of(log), table_format=DELTA if place == other else None)

    assert read_manifest(other) is None
    assert offsets(dest) == list(range(10))


def forget_a_version(dest: Path) -> None:
    (dest / DELTA_LOG / f"{1:020d}.json").unlink()


def add_a_file_twice(dest: Path) -> None:
    """Another name of a file that is there, as if it had not been compacted away."""
    version = dest / DELTA_LOG / f"{1:020d}.json"
    lines = version.read_text().splitlines()
    (added, *_) = [line for line in lines if "add" in json.loads(line)]
    os.link(second_names(dest)[0], dest / DELTA_TABLE / "topic=orders/part-0-0-1.rows")
    path = json.loads(added)["add"]["path"]
    version.write_text("\n".join([*lines, added.replace(path, "topic=orders/part-0-0-1.rows")]))


def lose_a_second_name(dest: Path) -> None:
    second_names(dest)[0].unlink()


def put_another_file(dest: Path) -> None:
    first, second = second_names(dest)[:2]
    first.unlink()
    os.link(second, first)


def count_other_rows(dest: Path) -> None:
    version = dest / DELTA_LOG / f"{1:020d}.json"
    version.write_text(version.read_text().replace(r"\"numRecords\": 3", r"\"numRecords\": 2"))


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (forget_a_version, "cannot be read"),
        (add_a_file_twice, "the manifest does not name it"),
        (lose_a_second_name, "it is not there"),
        (put_another_file, "it is another file than topic=orders/date=2023-11-14/part-0-0-3.parquet"),
        (count_other_rows, "the table says"),
    ],
)
def test_verify_compares_the_table_with_the_manifest(
    log: PartitionOnDisk, dest: Path, damage: Callable[[Path], None], text: str
) -> None:
    archive(dest, source_of(log, until=10), range_bytes=RANGE_BYTES, table_format=DELTA)
    archive(dest, source_of(log), range_bytes=RANGE_BYTES)
    assert found(dest) == []

    damage(dest)

    all_found = found(dest)
    assert any(one.is_damage and one.what == "delta" and text in one.text for one in all_found), all_found


def test_archives_of_before_there_were_formats_are_read(log: PartitionOnDisk, dest: Path) -> None:
    archive(dest, source_of(log, until=10))
    manifest = dest / BOOKS / "manifest.json"
    entry = json.loads(manifest.read_text())
    del entry["tableFormat"]
    manifest.write_text(json.dumps(entry))

    assert archive(dest, source_of(log)).table_format == PARQUET
