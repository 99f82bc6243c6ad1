"""What `archive verify` finds, one damage at a time, and what it does not take for one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipeline.archive.archive import Archive
from pipeline.archive.manifest import Manifest, publish
from pipeline.archive.places import BOOKS
from pipeline.archive.verification import Finding, findings
from tests.pipeline.archive.archives import archive, source_of
from tests.support.batches import T, records
from tests.support.partitions import PartitionOnDisk

DAY_MS = 86_400_000


@pytest.fixture
def dest(tmp_path: Path) -> Path:
    """Three files of two dates."""
    log = PartitionOnDisk(tmp_path / "orders-0")
    for day in (0, 0, 1):
        log.append(records(5, timestamp=T + day * DAY_MS))
    archive(tmp_path / "archive", source_of(log), range_bytes=150)
    return tmp_path / "archive"


def found(dest: Path) -> list[Finding]:
    return list(findings(Archive.open(dest), lambda size: None))


def rows_files(dest: Path) -> list[Path]:
    return sorted(dest.rglob("*.parquet"))


def changed(dest: Path, change: Callable[[Manifest], Manifest]) -> None:
    """Publish a manifest that says something else."""
    publish(change(Archive.open(dest).manifest), dest, aside=dest / BOOKS / "aside", at=lambda step: None)


def remove(dest: Path) -> None:
    rows_files(dest)[0].unlink()


def flip_a_byte(dest: Path) -> None:
    path = rows_files(dest)[0]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(dest: Path) -> None:
    path = rows_files(dest)[0]
    path.write_bytes(path.read_bytes()[:-1])


def copy_to_another_name(dest: Path) -> None:
    path = rows_files(dest)[0]
    shutil.copy(path, path.with_name("part-0-100-200.parquet"))


def copy_to_a_name_that_is_nobodys(dest: Path) -> None:
    shutil.copy(rows_files(dest)[0], dest / "copy.parquet")


def forget_a_file(dest: Path) -> None:
    changed(dest, lambda manifest: replace(manifest, files=manifest.files[1:]))


def name_a_file_twice(dest: Path) -> None:
    changed(dest, lambda manifest: replace(manifest, files=(*manifest.files, manifest.files[0])))


def forget_batches(dest: Path) -> None:
    changed(dest, lambda manifest: replace(manifest, batches=manifest.batches[1:]))


def put_other_rows(dest: Path) -> None:
    """The file of the first range holds rows of the second one, and the manifest agrees with its bytes."""
    first, second = rows_files(dest)[:2]
    first.write_bytes(second.read_bytes())
    other = next(file for file in Archive.open(dest).manifest.files if file.path.endswith(second.name))

    def agree(manifest: Manifest) -> Manifest:
        files = [
            file._replace(sha256=other.sha256, bytes=other.bytes) if file.path.endswith(first.name) else file
            for file in manifest.files
        ]
        return replace(manifest, files=tuple(files))

    changed(dest, agree)


def leave_a_row_out(dest: Path) -> None:
    """One row less, and everything about the file says so; only the batches know of it."""
    from pipeline.archive.durable import sha256_of

    path = rows_files(dest)[0]
    pq.write_table(pq.ParquetFile(path).read().slice(1), path)

    def agree(manifest: Manifest) -> Manifest:
        files = [
            file._replace(sha256=sha256_of(path), bytes=path.stat().st_size, rows=file.rows - 1, first_offset=1)
            if file.path.endswith(path.name)
            else file
            for file in manifest.files
        ]
        return replace(manifest, files=tuple(files))

    changed(dest, agree)


def lose_batches(dest: Path) -> None:
    next((dest / BOOKS / "batches").rglob("*.batches")).unlink()


def test_nothing_is_found_where_nothing_is_wrong(dest: Path) -> None:
    assert found(dest) == []


@pytest.mark.parametrize(
    ("damage", "what", "said"),
    [
        (remove, "missing", "it is not there"),
        (flip_a_byte, "bytes", "its SHA-256 is"),
        (cut, "bytes", "bytes, the manifest says"),
        (copy_to_another_name, "stray", "readers of the directory read it"),
        (copy_to_a_name_that_is_nobodys, "stray", "readers of the directory read it"),
        (forget_a_file, "stray", "the manifest does not name it"),
        (name_a_file_twice, "overlap", "begin before those of"),
        (forget_batches, "gap", "offsets 0 to 4 are in no file, and the manifest has no such gap"),
        (put_other_rows, "rows", "it has 5 rows with offsets 5 to 9, the manifest says 5, 0 to 4"),
        (leave_a_row_out, "rows", "the batch at offset 0 has 5 records, the archive 4 rows of it"),
        (lose_batches, "missing", "it is not there"),
    ],
)
def test_damage_is_found(dest: Path, damage: Callable[[Path], None], what: str, said: str) -> None:
    damage(dest)

    all_found = found(dest)

    assert any(one.is_damage and one.what == what and said in one.text for one in all_found), all_found


def test_findings_can_be_json(dest: Path) -> None:
    remove(dest)

    entry = json.loads(json.dumps(found(dest)[0]._asdict()))

    assert set(entry) == {"is_damage", "what", "path", "text"}
