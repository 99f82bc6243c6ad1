"""Compaction of an archive: merges small files into large ones, and no reader sees a row twice or misses one meanwhile.

A directory of rows changes as a whole: its successor is built beside the archive, where no reader looks, out of links
to the files that stay and of new files; then the two change places. What was replaced stays there until the next run of
`archive` or `compact`, for readers that have it open.

    1  .DEST.replaced/      the successors are built      no manifest names them: a next run removes them
    2  compaction.json      names the successors
    3  manifest.json        names the new files; readers find them where they were built (`located`)
    4  the directories change places, one after the other  a next run goes on with it
    5  _delta               where the archive is a Delta table, too: its next version
    6  the next run removes .DEST.replaced/, compaction.json and the old files of batches
"""

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import pyarrow.parquet as pq

from pipeline.archive.delta_table import follow
from pipeline.archive.durable import make_directory, put, remove, sha256_of, sync, sync_directory, writing
from pipeline.archive.exchange import exchange, require_exchange
from pipeline.archive.manifest import BatchesFile, Manifest, RowsFile, publish
from pipeline.archive.places import BATCHES, BOOKS, COMPACTION, PLAN, Stretch, batches_path, rows_path
from pipeline.archive.rows_format import batches_writer, bounded_batches, rows_writer
from pipeline.batches import DamagedArchive
from pipeline.errors import PipelineError

_MERGED_ROWS: Final = 1 << 16
"""The most rows that are held in memory while files are merged."""

File = TypeVar("File", RowsFile, BatchesFile)


class Successor(NamedTuple):
    """A directory with the directory that was built to replace it."""

    directory: str
    """The path of the directory, relative to the archive."""
    built: str
    """The name of the built directory, below `beside(dest)`."""
    new: str
    """The name of a file that only the built directory has."""


class Compaction(NamedTuple):
    """The content of compaction.json."""

    version: int
    """The version of the manifest that names the new files."""
    successors: tuple[Successor, ...]
    new_batches: tuple[str, ...]
    old_batches: tuple[str, ...]


class Summary(NamedTuple):
    """The numbers of a compaction."""

    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int


def beside(dest: Path) -> Path:
    """The directory in which successors are built, and in which the replaced directories are left."""
    return dest.parent / f".{dest.name}.replaced"


def read_compaction(dest: Path) -> Compaction | None:
    """The compaction that is under way, or whose replaced files have not been removed yet; None if there is none."""
    try:
        entry = json.loads((dest / COMPACTION).read_bytes())
    except FileNotFoundError:
        return None
    return Compaction(
        entry["version"],
        tuple(Successor(**one) for one in entry["successors"]),
        tuple(entry["newBatches"]),
        tuple(entry["oldBatches"]),
    )


def located(dest: Path, path: str, compaction: Compaction | None) -> Path:
    """The current path of a file of the manifest: its final path, or a path in the successor that has not been
    exchanged yet, or in the directory that has been replaced."""
    place = dest / path
    if compaction is not None and not place.exists():
        directory, _, name = path.rpartition("/")
        for one in compaction.successors:
            if one.directory == directory:
                return beside(dest) / one.built / name
    return place


def settle(dest: Path, manifest: Manifest, at: Callable[[str], None]) -> Manifest:
    """Finish or undo an interrupted compaction, remove what the last compaction has replaced, and bring the Delta table
    up to date.

    Raises Unwritable, and what `follow` does.
    """
    compaction = read_compaction(dest)
    if compaction is not None:
        is_published = manifest.version >= compaction.version
        if is_published:
            _exchange(dest, compaction, at)
        for path in compaction.old_batches if is_published else compaction.new_batches:
            remove(dest / path)
    if beside(dest).exists():
        with writing(beside(dest)):
            shutil.rmtree(beside(dest))
        at("replaced removed")
    if compaction is not None:
        remove(dest / COMPACTION)
        at("compaction forgotten")
    if not (dest / PLAN).exists():
        _remove_strange_batches(dest, manifest)
    follow(dest, manifest, at)
    return manifest


def _remove_strange_batches(dest: Path, manifest: Manifest) -> None:
    """Remove files that a killed compaction had begun to write and that no manifest names."""
    known = {file.path for file in manifest.batches}
    for path in sorted((dest / BATCHES).rglob("*.batches")):
        if path.relative_to(dest).as_posix() not in known:
            remove(path)


def _exchange(dest: Path, compaction: Compaction, at: Callable[[str], None]) -> None:
    for one in compaction.successors:
        directory = dest / one.directory
        if not (directory / one.new).exists():
            exchange(directory, beside(dest) / one.built)
            at("directory exchanged")


def compact(
    dest: Path, manifest: Manifest, target_bytes: int, *, on_bytes: Callable[[int], None], at: Callable[[str], None]
) -> tuple[Manifest, Summary]:
    """Merge files below `target_bytes` into files of about that size; `on_bytes` gets the number of bytes read.

    The caller holds the lock and has called `settle`. Raises PipelineError if a run of the archive has not ended,
    NoExchange, Unwritable, DamagedArchive.
    """
    if (dest / PLAN).exists():
        raise PipelineError(f"a run of `archive` on {dest} has not ended; let it end first, with the same options")
    by_directory = list(_groups_by_directory(manifest, target_bytes))
    batches = list(_groups(manifest.batches, target_bytes))
    if not by_directory and not batches:
        return manifest, _summary(manifest, manifest)
    make_directory(beside(dest))
    require_exchange(dest / BOOKS, beside(dest))
    merged: list[RowsFile] = []
    replaced: set[str] = set()
    successors = []
    for number, (directory, groups) in enumerate(by_directory):
        new = _build(dest, directory, beside(dest) / str(number), groups, on_bytes)
        at("directory built")
        merged += new
        replaced.update(file.path for group in groups for file in group)
        successors.append(Successor(directory, str(number), new[0].path.rpartition("/")[2]))
    new_batches = [_merge_batches(dest, group, on_bytes) for group in batches]
    old_batches = [file.path for group in batches for file in group]
    compaction = Compaction(
        manifest.version + 1, tuple(successors), tuple(file.path for file in new_batches), tuple(old_batches)
    )
    _write(compaction, dest)
    at("compaction planned")
    changed = replace(
        manifest,
        files=(*(file for file in manifest.files if file.path not in replaced), *merged),
        batches=(*(file for file in manifest.batches if file.path not in set(old_batches)), *new_batches),
    )
    published = publish(changed, dest, aside=dest / BOOKS / "aside", at=at)
    _exchange(dest, compaction, at)
    follow(dest, published, at)
    return published, _summary(manifest, published)


def bytes_to_merge(manifest: Manifest, target_bytes: int) -> int:
    """How many bytes `compact` would read."""
    rows = sum(file.bytes for group in _groups(manifest.files, target_bytes) for file in group)
    return rows + sum(file.bytes for group in _groups(manifest.batches, target_bytes) for file in group)


def _summary(before: Manifest, after: Manifest) -> Summary:
    return Summary(
        len(before.files), len(after.files), sum(file.bytes for file in before.files),
        sum(file.bytes for file in after.files),
    )  # fmt: skip


def _groups_by_directory(manifest: Manifest, target_bytes: int) -> Iterator[tuple[str, list[list[RowsFile]]]]:
    def directory(group: list[RowsFile]) -> str:
        return group[0].path.rpartition("/")[0]

    for name, groups in groupby(sorted(_groups(manifest.files, target_bytes), key=directory), key=directory):
        yield name, list(groups)


def _groups(files: Iterable[File], target_bytes: int) -> Iterator[list[File]]:
    """Groups of neighbouring files, in one directory and partition; each group is merged into one file."""

    def place(file: File) -> tuple[str, int]:
        return file.path.rpartition("/")[0], file.partition

    for _, neighbours in groupby(sorted(files, key=lambda file: (place(file), file.from_offset)), key=place):
        group: list[File] = []
        size = 0
        for file in neighbours:
            if group and size + file.bytes > target_bytes:
                if len(group) > 1:
                    yield group
                group, size = [], 0
            group.append(file)
            size += file.bytes
        if len(group) > 1:
            yield group


def _hull(group: Sequence[RowsFile] | Sequence[BatchesFile]) -> Stretch:
    first, last = group[0], group[-1]
    return Stretch(first.topic, first.partition, first.from_offset, last.until_offset)


def _build(
    dest: Path, directory: str, built: Path, groups: list[list[RowsFile]], on_bytes: Callable[[int], None]
) -> list[RowsFile]:
    """Build a directory's successor. Returns the files that only the successor has."""
    merged = {file.path.rpartition("/")[2] for group in groups for file in group}
    with writing(built):
        built.mkdir()
        shutil.copymode(dest / directory, built)
        for entry in sorted(os.listdir(dest / directory)):
            if entry not in merged:
                os.link(dest / directory / entry, built / entry)
        files = [_merge_rows(dest, group, built, on_bytes) for group in groups]
        sync_directory(built)
        sync_directory(built.parent)
    return files


def _merge_rows(dest: Path, group: list[RowsFile], built: Path, on_bytes: Callable[[int], None]) -> RowsFile:
    first, last = group[0], group[-1]
    stretch = _hull(group)
    path = rows_path(stretch, first.date)
    target = built / path.rpartition("/")[2]
    rows = _merge(dest, group, target, rows_writer, on_bytes)
    if rows != (expected := sum(file.rows for file in group)):
        raise DamagedArchive(f"the files of {stretch} have {rows} rows, and the manifest counts {expected}")
    return RowsFile(
        path, *stretch[:2], first.date, *stretch[2:], first.first_offset, last.last_offset, rows,
        target.stat().st_size, sha256_of(target),
    )  # fmt: skip


def _merge_batches(dest: Path, group: list[BatchesFile], on_bytes: Callable[[int], None]) -> BatchesFile:
    stretch = _hull(group)
    path = batches_path(stretch)
    target = dest / path
    with writing(target):
        # Until the manifest names the file, no reader opens it.
        count = _merge(dest, group, target, batches_writer, on_bytes)
        sync_directory(target.parent)
    return BatchesFile(
        path, *stretch, count, sum(file.rows for file in group), max(file.leader_epoch for file in group),
        target.stat().st_size, sha256_of(target),
    )  # fmt: skip


def _merge(
    dest: Path, group: Sequence[RowsFile] | Sequence[BatchesFile], target: Path, writer: Callable[[Path], Any],
    on_bytes: Callable[[int], None],
) -> int:  # fmt: skip
    """Append the rows of several files to one new file. Returns how many rows it has."""
    count = 0
    with writer(target) as merged:
        for file in group:
            with pq.ParquetFile(dest / file.path) as part:
                for rows in bounded_batches(part, _MERGED_ROWS):
                    merged.write_batch(rows)
                    count += len(rows)
            on_bytes(file.bytes)
    sync(target)
    return count


def _write(compaction: Compaction, dest: Path) -> None:
    entry = {
        "version": compaction.version,
        "successors": [one._asdict() for one in compaction.successors],
        "newBatches": compaction.new_batches,
        "oldBatches": compaction.old_batches,
    }
    put(json.dumps(entry).encode() + b"\n", dest / COMPACTION, aside=dest / BOOKS / "aside")
