"""The task that archives one range: it writes files of rows and of batches, and a receipt.

Everything is written into the run's directory first and renamed out of it. That directory gets another name when the
run is tried anew, so a task of a run that has died cannot put anything in place any more.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa

from pipeline.archive.describing import BatchDescriber
from pipeline.archive.durable import make_directory, put, sha256_of, sync, sync_directory, writing
from pipeline.archive.manifest import BatchesFile, Gap, RowsFile, from_entry, to_entry
from pipeline.archive.places import DATE, Stretch, batches_path, rows_path
from pipeline.archive.rows_format import batches_writer, rows_writer
from pipeline.decoding.headers import read_headers
from pipeline.errors import Damage, PipelineError
from pipeline.reading.ranges import OffsetRange, Wanted
from pipeline.reading.reader import read_range
from pipeline.reading.scan import Stretch as ScannedStretch
from pipeline.schema import COLUMNS
from storage.batch.record_batch import read_header

MOST_OPEN_FILES: Final = 100
"""For how many dates files are written at once. If a range has more dates, it is read again for the others."""

_MOST_ATTEMPTS: Final = 5
"""How often a range is archived anew because the cleaner has replaced its segments between two readings."""

_GROUP_BYTES: Final = 16 << 20
"""About how many bytes of a log become one row group of a file."""

_DAY_US: Final = 86_400_000_000
_EVERY_DATE: Final = 0


class Task(NamedTuple):
    """One range to archive, with its destination. It is pickled for Spark's workers."""

    dest: str
    run: str
    """The path of the run's directory, relative to `dest`."""
    stretch: Stretch
    """The planned offsets, from which the files have their names."""
    source: OffsetRange
    """The part of the planned offsets that can be read."""
    partition_by: tuple[str, ...]
    read_committed: bool
    skip_damaged: bool


class Receipt(NamedTuple):
    """The result of archiving a range. Its files are in place and on disk."""

    stretch: Stretch
    files: tuple[RowsFile, ...]
    batches: BatchesFile
    gaps: tuple[Gap, ...]
    """Ranges that were skipped because they are damaged."""


def receipt_path(run: Path, stretch: Stretch) -> Path:
    """The path of a range's receipt."""
    return run / f"{stretch.topic}-{stretch.stem}.json"


def read_receipt(path: Path) -> Receipt:
    """Read the receipt of a task."""
    entry = json.loads(path.read_bytes())
    return Receipt(
        Stretch(**entry["stretch"]),
        tuple(from_entry(RowsFile, file) for file in entry["files"]),
        from_entry(BatchesFile, entry["batches"]),
        tuple(from_entry(Gap, gap) for gap in entry["gaps"]),
    )


def archive_range(task: Task, at: Callable[[str], None]) -> Receipt:
    """Archive one range; `at` is called after every step that changes the disk.

    Raises DamagedLog, RecordsGone, Unwritable, PipelineError.
    """
    for _ in range(_MOST_ATTEMPTS):
        receipt = _RangeArchiving(task, at).run()
        if receipt is not None:
            return receipt
    raise PipelineError(
        f"{task.stretch} was compacted each of {_MOST_ATTEMPTS} times between two readings: run it again when the "
        "cleaner has less to do, or with a smaller --target-file-mb"
    )


class _RowsWriter:
    """A Parquet file being written, in the run's directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = 0
        self.first_offset = self.last_offset = -1
        self._writer = rows_writer(path)

    def write(self, rows: pa.RecordBatch) -> None:
        self._writer.write_batch(rows)
        offsets = rows.column("offset")
        if not self.rows:
            self.first_offset = offsets[0].as_py()
        self.last_offset = offsets[-1].as_py()
        self.rows += len(rows)

    def close(self) -> None:
        self._writer.close()
        sync(self.path)


class _RangeArchiving:
    def __init__(self, task: Task, at: Callable[[str], None]) -> None:
        self._task = task
        self._at = at
        self._dest = Path(task.dest)
        self._run = self._dest / task.run
        # Spark may run a task twice: neither writes into the other's files.
        self._attempt = uuid4().hex[:8]
        self._wanted = Wanted(
            columns=COLUMNS,
            read_committed=task.read_committed,
            skip_damaged=task.skip_damaged,
            batch_bytes=_GROUP_BYTES,
        )
        self._damages: dict[int, str] = {}
        """Descriptions of damage, by the first damaged offset."""
        self._bases: list[int] = []
        self._nexts: list[int] = []
        self._leader_epoch = -1
        self._rows_described = 0
        """How many rows were read with the batches."""

    def run(self) -> Receipt | None:
        """Archive the range. None if it was compacted between two readings, so that its batches have other records than
        its rows: the files of another attempt replace those of this one, and the run removes what is left."""
        with writing(self._run):
            described = self._aside("batches")
            with batches_writer(described) as batches:
                describer = BatchDescriber()
                files, later = self._write_rows(self._read(describer, batches), frozenset())
                for rows in describer.finish():
                    batches.write_batch(rows)
            while later:
                done = frozenset(file.date for file in files)
                more, later = self._write_rows(self._read(None, None), done)
                files += more
            if sum(file.rows for file in files) != self._rows_described:
                described.unlink()
                return None
            # An empty table of batches is a file, too: it says that nothing is there.
            sync(described)
            batches_file = self._place_batches(described, sum(file.rows for file in files))
        receipt = Receipt(self._task.stretch, tuple(files), batches_file, tuple(self._gaps()))
        self._leave(receipt)
        return receipt

    def _read(self, describer: BatchDescriber | None, batches: Any) -> Iterator[pa.RecordBatch]:
        """Read the rows of the range. Meanwhile ``describer`` gets the batches, and its rows are written to
        ``batches``."""
        source = self._task.source
        if source.from_offset >= source.until_offset:
            return

        def see(stretch: ScannedStretch) -> None:
            if describer is not None:
                self._note_batches(stretch)
                describer.add(stretch)

        for rows in read_range(source, self._wanted, self._note, see):
            if len(rows) == 0:
                continue
            if describer is not None:
                self._rows_described += len(rows)
                for described in describer.take(rows):
                    batches.write_batch(described)
            yield rows

    def _write_rows(self, read: Iterator[pa.RecordBatch], done: frozenset[str | None]) -> tuple[list[RowsFile], bool]:
        """Write the rows of dates that are not in ``done``. Returns the files, and whether dates are left for which no
        file could be open."""
        writers: dict[int, _RowsWriter] = {}
        is_more = False
        skipped = {_day(date) for date in done}
        for rows in read:
            for day, part in self._by_day(rows):
                if day in skipped:
                    continue
                if day not in writers:
                    if len(writers) == MOST_OPEN_FILES:
                        is_more = True
                        continue
                    writers[day] = _RowsWriter(self._aside(f"{day}.rows"))
                writers[day].write(part)
        for writer in writers.values():
            writer.close()
        self._at("rows written")
        return [self._place_rows(day, writer) for day, writer in sorted(writers.items())], is_more

    def _by_day(self, rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        if DATE not in self._task.partition_by:
            yield _EVERY_DATE, rows
            return
        days = rows.column("timestamp").cast(pa.int64()).to_numpy() // _DAY_US
        if days[0] == days[-1] and (days == days[0]).all():
            yield int(days[0]), rows
            return
        for day in np.unique(days).tolist():
            yield day, rows.filter(pa.array(days == day))

    def _place_rows(self, day: int, writer: _RowsWriter) -> RowsFile:
        stretch = self._task.stretch
        date = str(np.datetime64(day, "D")) if DATE in self._task.partition_by else None
        path = rows_path(stretch, date)
        size, digest = writer.path.stat().st_size, sha256_of(writer.path)
        self._place(writer.path, path)
        self._at("rows placed")
        return RowsFile(
            path, stretch.topic, stretch.partition, date, stretch.from_offset, stretch.until_offset,
            writer.first_offset, writer.last_offset, writer.rows, size, digest,
        )  # fmt: skip

    def _place_batches(self, described: Path, rows: int) -> BatchesFile:
        stretch = self._task.stretch
        path = batches_path(stretch)
        size, digest = described.stat().st_size, sha256_of(described)
        self._place(described, path)
        self._at("batches placed")
        return BatchesFile(
            path, stretch.topic, stretch.partition, stretch.from_offset, stretch.until_offset, len(self._bases), rows,
            self._leader_epoch, size, digest,
        )  # fmt: skip

    def _place(self, aside: Path, path: str) -> None:
        target = self._dest / path
        make_directory(target.parent)
        aside.rename(target)
        sync_directory(target.parent)

    def _leave(self, receipt: Receipt) -> None:
        entry = {
            "stretch": receipt.stretch._asdict(),
            "files": [to_entry(file) for file in receipt.files],
            "batches": to_entry(receipt.batches),
            "gaps": [to_entry(gap) for gap in receipt.gaps],
        }
        path = receipt_path(self._run, receipt.stretch)
        put(json.dumps(entry).encode(), path, aside=self._aside("receipt"))
        self._at("receipt left")

    def _aside(self, name: str) -> Path:
        stretch = self._task.stretch
        return self._run / f"{stretch.topic}-{stretch.stem}.{self._attempt}.{name}"

    def _note_batches(self, stretch: ScannedStretch) -> None:
        headers = read_headers(stretch.data, stretch.begins)
        self._bases += headers.base_offset.tolist()
        self._nexts += (headers.base_offset + headers.last_offset_delta + 1).tolist()
        self._leader_epoch = read_header(stretch.data, stretch.begins[-1]).partition_leader_epoch

    def _note(self, damage: Damage) -> None:
        self._damages.setdefault(damage.offset, str(damage))

    def _gaps(self) -> Iterator[Gap]:
        """The damaged ranges, each up to the next undamaged batch."""
        until = self._task.source.until_offset
        for offset, what in sorted(self._damages.items()):
            number = int(np.searchsorted(self._bases, offset, side="right"))
            if number and offset < self._nexts[number - 1]:
                end = self._nexts[number - 1]  # its records cannot be decoded
            else:
                end = self._bases[number] if number < len(self._bases) else until
            yield Gap(offset, min(end, until), what)


def _day(date: str | None) -> int:
    return _EVERY_DATE if date is None else int(np.datetime64(date, "D").astype(np.int64))
