"""Verification of an archive against its manifest, file by file and offset by offset. Changes nothing in it."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.archive.archive import Archive
from pipeline.archive.compaction import located, read_compaction
from pipeline.archive.delta_table import StrangeTable, TableFile, published_files, read_table, table_file
from pipeline.archive.durable import sha256_of
from pipeline.archive.manifest import DELTA, ArchivedPartition, BatchesFile, RowsFile
from pipeline.archive.places import DELTA_TABLE, files_with_rows, stretch_of
from pipeline.archive.planning import read_plan
from pipeline.batches import Kept

_CHECKED_ROWS: Final = 1 << 20


class Finding(NamedTuple):
    """A fault or a remark of the verification of an archive."""

    is_damage: bool
    what: str
    """The kind of fault: `gap`, `overlap`, `missing`, `bytes`, `rows`, `offsets`, `batches`, `stray`, `delta`; of a
    remark: `gap`, `run`, `compaction`, `delta`."""
    path: str
    """The path of the file, or topic and partition."""
    text: str


def bytes_to_check(archive: Archive) -> int:
    """How many bytes `findings` reads."""
    manifest = archive.manifest
    return sum(file.bytes for file in manifest.files) + sum(file.bytes for file in manifest.batches)


def findings(archive: Archive, on_bytes: Callable[[int], None]) -> Iterator[Finding]:
    """Find all faults and remarks; `on_bytes` is called with the number of bytes that were read since its last call."""
    yield from _Verification(archive, on_bytes).findings()


class _Verification:
    def __init__(self, archive: Archive, on_bytes: Callable[[int], None]) -> None:
        self._archive = archive
        self._manifest = archive.manifest
        self._dest = archive.dest
        self._on_bytes = on_bytes
        self._compaction = read_compaction(archive.dest)
        self._plan = read_plan(archive.dest)

    def findings(self) -> Iterator[Finding]:
        if self._is_plan_open:
            yield Finding(False, "run", str(self._dest), "a run has not ended; the next one ends it")
        yield from self._strays()
        if self._manifest.table_format == DELTA:
            yield from self._delta_table()
        for (topic, partition), rows in _by_partition(self._manifest.files):
            yield from _overlaps(topic, partition, rows)
            for file in rows:
                yield from self._rows_file(file)
        batches = dict(_by_partition(self._manifest.batches))
        for topic, archived in sorted(self._manifest.topics.items()):
            for number, how_far in sorted(archived.partitions.items()):
                place = f"{topic}-{number}"
                files = batches.get((topic, number), [])
                for gap in how_far.gaps:
                    yield Finding(
                        False, "gap", place, f"offsets {gap.from_offset} to {gap.until_offset - 1}: {gap.reason}"
                    )
                yield from _coverage(place, how_far, files)
                yield from self._batches(place, (topic, number), files)

    @property
    def _is_plan_open(self) -> bool:
        return self._plan is not None and self._plan.number > self._manifest.plan

    def _strays(self) -> Iterator[Finding]:
        """Files that readers of the directory read, although the manifest does not name them."""
        known = {file.path for file in self._manifest.files}
        planned = set(self._plan.ranges) if self._plan is not None and self._is_plan_open else set()
        waiting = {one.directory for one in self._waiting()}
        for path in files_with_rows(self._dest):
            directory, _, name = path.rpartition("/")
            if path in known or directory in waiting:
                continue
            topic = path.partition("/")[0].partition("=")[2]
            if stretch_of(topic, name) not in planned:
                yield Finding(
                    True, "stray", path, "the manifest does not name it, and readers of the directory read it"
                )
        for directory in sorted(waiting):
            yield Finding(False, "compaction", directory, "a compaction has not ended; the next run ends it")

    def _waiting(self) -> list[Any]:
        """Successors of the published compaction that have not been exchanged with their directories yet."""
        compaction = self._compaction
        if compaction is None or compaction.version > self._manifest.version:
            return []
        return [one for one in compaction.successors if not (self._dest / one.directory / one.new).exists()]

    def _delta_table(self) -> Iterator[Finding]:
        """Check that the Delta table names the files of the manifest."""
        try:
            table = read_table(self._dest, self._manifest)
        except StrangeTable as error:
            yield Finding(True, "delta", DELTA_TABLE, str(error))
            return
        if table is not None and table.follows > self._manifest.version:
            return  # the archive has gone on meanwhile
        named: Mapping[str, TableFile] = table.files if table is not None else {}
        published = published_files(self._manifest)
        is_behind = table is None or table.follows < self._manifest.version
        if is_behind and named.keys() != published.keys():
            yield Finding(False, "delta", DELTA_TABLE, "it is behind the manifest; the next run ends it")
        for path in sorted(named.keys() | published.keys()):
            wrong = self._of_table(path, published.get(path), named.get(path), is_behind=is_behind)
            if wrong is not None:
                yield Finding(True, "delta", f"{DELTA_TABLE}/{path}", wrong)

    def _of_table(self, path: str, file: RowsFile | None, named: TableFile | None, *, is_behind: bool) -> str | None:
        """The fault of a file that is named by the manifest, the Delta table, or both; None if it is sound."""
        if not is_behind and (file is None or named is None):
            return f"the {'manifest' if file is None else 'table'} does not name it"
        if named is None:
            return None
        place = self._dest / DELTA_TABLE / path
        if not place.is_file():
            return "it is not there"
        if file is None:
            return None
        if named != (expected := table_file(self._manifest, file)):
            return f"the table says {named}, the manifest {expected}"
        published = located(self._dest, file.path, self._compaction)
        # Two names of one file, unless the archive has been copied.
        if published.exists() and not place.samefile(published) and sha256_of(place) != file.sha256:
            return f"it is another file than {file.path}"
        return None

    def _rows_file(self, file: RowsFile) -> Iterator[Finding]:
        path = located(self._dest, file.path, self._compaction)
        broken = self._broken(file, path)
        if broken is not None:
            yield broken
            return
        rows = 0
        last = file.from_offset - 1
        with pq.ParquetFile(path) as parquet:
            first: int | None = None
            for part in parquet.iter_batches(_CHECKED_ROWS, columns=["topic", "partition", "offset"]):
                offsets = part.column("offset").to_numpy()
                if not len(offsets):
                    continue
                first = int(offsets[0]) if first is None else first
                if int(offsets[0]) <= last or (np.diff(offsets) <= 0).any():
                    yield Finding(True, "offsets", file.path, f"its offsets do not rise behind {last}")
                    return
                last = int(offsets[-1])
                rows += len(offsets)
                for name, expected in (("topic", file.topic), ("partition", file.partition)):
                    found = set(part.column(name).unique().to_pylist())
                    if found != {expected}:
                        yield Finding(True, "rows", file.path, f"it has rows of {name} {found}, expected {expected}")
        if (rows, first, last) != (file.rows, file.first_offset, file.last_offset):
            yield Finding(
                True, "rows", file.path,
                f"it has {rows} rows with offsets {first} to {last}, "
                f"the manifest says {file.rows}, {file.first_offset} to {file.last_offset}",
            )  # fmt: skip
        if not file.from_offset <= file.first_offset <= file.last_offset < file.until_offset:
            yield Finding(
                True, "offsets", file.path,
                f"it has offsets {file.first_offset} to {file.last_offset}, and its name says others",
            )  # fmt: skip

    def _broken(self, file: RowsFile | BatchesFile, path: Path) -> Finding | None:
        """Check size and SHA-256 of a file against the manifest."""
        try:
            size = path.stat().st_size
            digest = sha256_of(path)
        except FileNotFoundError:
            return Finding(True, "missing", file.path, "it is not there")
        except OSError as error:
            return Finding(True, "bytes", file.path, f"it cannot be read: {error.strerror}")
        self._on_bytes(file.bytes)
        if size != file.bytes:
            return Finding(True, "bytes", file.path, f"it has {size} bytes, the manifest says {file.bytes}")
        if digest != file.sha256:
            return Finding(True, "bytes", file.path, f"its SHA-256 is {digest}, the manifest says {file.sha256}")
        return None

    def _batches(self, place: str, key: tuple[str, int], files: Sequence[BatchesFile]) -> Iterator[Finding]:
        """Check the files of a partition's batches, and that the archived rows belong to these batches."""
        rows = _Offsets(self._archive, key)
        next_offset = 0
        for file in files:
            path = located(self._dest, file.path, self._compaction)
            broken = self._broken(file, path)
            if broken is not None:
                yield broken
                continue
            found = rows.between(file.from_offset, file.until_offset)
            if found is None:
                return  # the files themselves have been reported
            if len(found) != file.rows:
                between = f"between {file.from_offset} and {file.until_offset}"
                yield Finding(True, "batches", place, f"its files have {len(found)} rows {between}, not {file.rows}")
            bases, nexts, counts, is_of_rows = _headers(path)
            if not len(bases):
                continue
            if int(nexts[-1]) <= next_offset or (bases[1:] < nexts[:-1]).any():
                yield Finding(True, "batches", file.path, "its batches do not follow one another")
                continue
            next_offset = int(nexts[-1])
            yield from _compared(place, found, bases, nexts, counts, is_of_rows)


class _Offsets:
    """The offsets of a partition's rows. They have to be requested in rising order."""

    def __init__(self, archive: Archive, key: tuple[str, int]) -> None:
        self._archive = archive
        self._waiting = deque(sorted(archive.files(*key), key=lambda file: file.from_offset))
        self._held: list[Any] = []

    def between(self, from_offset: int, until_offset: int) -> Any:
        """The offsets from ``from_offset`` to before ``until_offset``, sorted; None if a file cannot be read."""
        while self._waiting and self._waiting[0].from_offset < until_offset:
            path = self._archive.path(self._waiting.popleft())
            try:
                table = pq.ParquetFile(path).read(["offset"])
            except (OSError, pa.ArrowException):
                return None
            self._held.append(table.column("offset").to_numpy())
        self._held = [offsets for offsets in self._held if len(offsets) and offsets[-1] >= from_offset]
        if not self._held:
            return np.zeros(0, dtype=np.int64)
        found = np.sort(np.concatenate(self._held))
        first, end = (int(np.searchsorted(found, bound)) for bound in (from_offset, until_offset))
        return found[first:end]


def _headers(path: Path) -> tuple[Any, Any, Any, Any]:
    """The batches in a file: base offsets, next offsets, record counts, and whether each is rebuilt from rows."""
    columns = ["base_offset", "last_offset_delta", "record_count", "kept"]
    table = pq.ParquetFile(path).read(columns)
    bases, deltas, counts, kept = (table.column(name).to_numpy().astype(np.int64) for name in columns)
    return bases, bases + deltas + 1, counts, kept == Kept.ROWS


def _compared(place: str, found: Any, bases: Any, nexts: Any, counts: Any, is_of_rows: Any) -> Iterator[Finding]:
    """Check that each row is in a batch, and that each batch has its rows."""
    inside: Any = np.searchsorted(bases, found, side="right") - 1
    strange = (inside < 0) | (found >= nexts[inside])
    if strange.any():
        offset = found[strange][0]
        yield Finding(True, "rows", place, f"it has a row of offset {offset}, which is in none of its batches")
        return
    held: Any = np.bincount(inside, minlength=len(bases))
    for number in np.flatnonzero(is_of_rows & (held != counts))[:1].tolist():
        counted = f"{counts[number]} records, the archive {held[number]} rows of it"
        yield Finding(True, "rows", place, f"the batch at offset {bases[number]} has {counted}")


def _by_partition(files: Iterable[Any]) -> Iterator[tuple[tuple[str, int], list[Any]]]:
    def place(file: Any) -> tuple[str, int]:
        return file.topic, file.partition

    for key, some in groupby(sorted(files, key=lambda file: (place(file), file.from_offset, file.path)), key=place):
        yield key, list(some)


def _overlaps(topic: str, partition: int, files: Sequence[RowsFile]) -> Iterator[Finding]:
    """Files of one date whose ranges of offsets overlap. Files of different dates may have the same range."""
    for date, some in groupby(
        sorted(files, key=lambda file: (file.date or "", file.from_offset)), lambda file: file.date
    ):
        before: RowsFile | None = None
        for file in some:
            if before is not None and file.from_offset < before.until_offset:
                yield Finding(
                    True, "overlap", file.path, f"its offsets begin before those of {before.path} of date {date} end"
                )
            before = file


def _coverage(place: str, how_far: ArchivedPartition, files: Sequence[BatchesFile]) -> Iterator[Finding]:
    """Check that batches and known gaps together cover the range that the manifest calls archived."""
    from_offset, until_offset, gaps = how_far
    at = from_offset
    covered = sorted([(file.from_offset, file.until_offset) for file in files] + [gap[:2] for gap in gaps])
    for first, end in covered:
        if first > at:
            yield Finding(
                True, "gap", place, f"offsets {at} to {first - 1} are in no file, and the manifest has no such gap"
            )
        at = max(at, end)
    if at != until_offset:
        yield Finding(True, "gap", place, f"it is archived up to {until_offset}, its files end at {at}")
    for before, file in pairwise(files):
        if file.from_offset < before.until_offset:
            yield Finding(True, "overlap", file.path, f"its batches begin before those of {before.path} end")
