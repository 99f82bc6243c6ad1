"""Reading an archive: opens the files that the manifest names, also while a compaction moves them."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.archive.compaction import located, read_compaction
from pipeline.archive.manifest import BatchesFile, Manifest, NoArchive, RowsFile, read_manifest
from pipeline.archive.record_encoding import encode_records
from pipeline.archive.rows_format import bounded_batches
from pipeline.batches import BATCH_SCHEMA, BatchRow, DamagedArchive, Kept, batch_from
from pipeline.recompression import recompress
from pipeline.schema import COLUMNS, arrow_schema
from storage.batch.record_batch import HEADER_SIZE, Buffer, Codec, computed_crc, write_header

_PIECE_BYTES: Final = 16 << 20
"""About how many bytes of batches are rebuilt at once."""
_MOST_PIECE_BATCHES: Final = 1 << 16
_BEHIND_EVERYTHING: Final = 2**63 - 1


class ArchivedBatch(NamedTuple):
    """A batch with the bytes that it had in the log."""

    row: BatchRow
    data: bytes
    """The whole batch; its CRC has been checked."""


class BatchExtent(NamedTuple):
    """Offsets, timestamp and size of a batch, which decide which segment it goes into."""

    base_offset: int
    last_offset: int
    max_timestamp: int
    size: int


class Archive:
    """An archive at one version of its manifest. It stays readable while one compaction replaces its files."""

    def __init__(self, dest: Path, manifest: Manifest) -> None:
        self.dest = dest
        self.manifest = manifest

    @classmethod
    def open(cls, dest: Path | str) -> "Archive":
        """Open the archive at its current manifest. Raises NoArchive."""
        place = Path(dest).resolve()
        manifest = read_manifest(place)
        if manifest is None:
            raise NoArchive(f"{dest} is no archive: it has no manifest")
        return cls(place, manifest)

    def path(self, file: RowsFile | BatchesFile) -> Path:
        """The path at which a file of the manifest is now."""
        return located(self.dest, file.path, read_compaction(self.dest))

    def files(self, topic: str | None = None, partition: int | None = None) -> list[RowsFile]:
        """The files with rows of all topics, of one topic or of one partition; sorted by topic, partition and
        offset."""
        return sorted(_chosen(self.manifest.files, topic, partition), key=lambda file: (file.stretch, file.path))

    def rows(
        self, topic: str, partition: int, from_offset: int = 0, until_offset: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a partition with all columns, in the order of their offsets. Raises DamagedArchive."""
        reader = _RowsReader(self, topic, partition)
        for first, end in reader.steps(from_offset, until_offset):
            rows = reader.between(first, end)
            if len(rows):
                yield rows

    def batches(
        self, topic: str, partition: int, from_offset: int = 0, until_offset: int | None = None
    ) -> Iterator[ArchivedBatch]:
        """The batches that have offsets from `from_offset` to before `until_offset`, as they were in the log, in order.

        The first batch may begin before `from_offset`, the last batch may end behind `until_offset`. Raises
        DamagedArchive.
        """
        reader = _RowsReader(self, topic, partition)
        ends = (end for _, end in reader.steps(from_offset, until_offset))
        for piece in self._batch_rows(topic, partition, from_offset, until_offset, ends):
            yield from _made(piece, reader)

    def extents(
        self, topic: str, partition: int, from_offset: int = 0, until_offset: int | None = None
    ) -> Iterator[BatchExtent]:
        """Offsets, timestamp and size of each of these batches, without reading their content. Raises
        DamagedArchive."""
        columns = ("base_offset", "last_offset_delta", "max_timestamp", "size")
        for rows in self._described(topic, partition, from_offset, until_offset, columns):
            for base, delta, time, size in zip(*(rows.column(name).to_pylist() for name in columns), strict=True):
                yield BatchExtent(base, base + delta, time, size)

    def _batch_rows(
        self, topic: str, partition: int, from_offset: int, until_offset: int | None, ends: Iterator[int]
    ) -> Iterator[list[BatchRow]]:
        """Rows of batches, in lists that stand for some MB of the log. No list has batches on both sides of one of
        `ends`, the ends of the row groups with their records: some MB of the log may decompress to as many GB."""
        piece: list[BatchRow] = []
        size = 0
        end = -1
        for rows in self._described(topic, partition, from_offset, until_offset, BATCH_SCHEMA.names):
            for entry in rows.to_pylist():
                row = batch_from(entry)
                if row.base_offset >= end:
                    if piece:
                        yield piece
                        piece, size = [], 0
                    end = next((end for end in ends if end > row.base_offset), _BEHIND_EVERYTHING)
                piece.append(row)
                size += row.size
                if size >= _PIECE_BYTES or len(piece) == _MOST_PIECE_BATCHES:
                    yield piece
                    piece, size = [], 0
        if piece:
            yield piece

    def _described(
        self, topic: str, partition: int, from_offset: int, until_offset: int | None, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """The given columns of the rows of batches, in order, each batch once."""
        last = -1
        for file in sorted(_chosen(self.manifest.batches, topic, partition), key=lambda file: file.from_offset):
            if file.until_offset <= from_offset or (until_offset is not None and file.from_offset >= until_offset):
                continue
            with _opened(self.path(file)) as parquet:
                for rows in bounded_batches(parquet, 1 << 12, columns):
                    bases = rows.column("base_offset").to_numpy()
                    # Where a range was cut inside of a batch, both sides have it.
                    highest = np.maximum.accumulate(np.concatenate(([last], bases)))
                    wanted = (bases > highest[:-1]) & (
                        bases + rows.column("last_offset_delta").to_numpy() >= from_offset
                    )
                    if until_offset is not None:
                        wanted &= bases < until_offset
                    last = int(highest[-1])
                    yield rows.filter(pa.array(wanted))


def _chosen(files: tuple[Any, ...], topic: str | None, partition: int | None) -> list[Any]:
    return [
        file for file in files if topic in (None, file.topic) and (partition is None or file.partition == partition)
    ]


def _opened(path: Path) -> Any:
    try:
        return pq.ParquetFile(path)
    except FileNotFoundError:
        raise DamagedArchive(f"{path} is gone; the manifest names it") from None
    except (OSError, pa.ArrowException) as error:
        raise DamagedArchive(f"{path} cannot be read: {error}") from error


class _RowsReader:
    """The rows of one partition, read from the files of all dates. Rows have to be requested in the order of their
    offsets."""

    def __init__(self, archive: Archive, topic: str, partition: int) -> None:
        self._archive = archive
        self._files = sorted(archive.files(topic, partition), key=lambda file: file.first_offset)
        self._open: dict[str, _RowGroups] = {}

    def steps(self, from_offset: int, until_offset: int | None) -> Iterator[tuple[int, int]]:
        """Ranges of offsets that are worth reading at once: those of the row groups."""
        at = from_offset
        for file in self._files:
            if until_offset is not None and file.first_offset >= until_offset:
                break
            if file.last_offset < at:
                continue
            with _opened(self._archive.path(file)) as parquet:
                bounds = _bounds(parquet)
            for _, last in bounds:
                end = last + 1 if until_offset is None else min(last + 1, until_offset)
                if end > at:
                    yield at, end
                    at = end

    def between(self, first: int, end: int) -> pa.RecordBatch:
        """The rows with offsets from ``first`` to before ``end``. ``first`` must not be below an earlier call's
        ``first``."""
        found = []
        for file in self._files:
            if file.first_offset >= end:
                break
            if file.last_offset < first:
                self._open.pop(file.path, None)
                continue
            if file.path not in self._open:
                self._open[file.path] = _RowGroups(self._archive.path(file))
            found += self._open[file.path].between(first, end)
        table = pa.Table.from_batches(found, arrow_schema(COLUMNS))
        if len(found) > 1:
            # Dates may alternate from one record to the next.
            offsets = table.column("offset").to_numpy()
            if (np.diff(offsets) <= 0).any():
                table = table.take(np.argsort(offsets, kind="stable"))
        batches = table.combine_chunks().to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], arrow_schema(COLUMNS))


def _bounds(parquet: Any) -> list[tuple[int, int]]:
    """First and last offset of each row group."""
    column = COLUMNS.index("offset")
    groups = (parquet.metadata.row_group(number) for number in range(parquet.metadata.num_row_groups))
    found = (_column(group, "offset", column).statistics for group in groups)
    return [(statistics.min, statistics.max) for statistics in found]


def _column(group: Any, name: str, at_least: int) -> Any:
    numbers = range(at_least, group.num_columns)
    return next(column for column in map(group.column, numbers) if column.path_in_schema == name)


class _RowGroups:
    """A Parquet file of rows. Each row group is read once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._parquet = _opened(path)
        self._bounds = _bounds(self._parquet)
        self._held: dict[int, pa.RecordBatch] = {}

    def between(self, first: int, end: int) -> list[pa.RecordBatch]:
        parts = []
        for number, (least, most) in enumerate(self._bounds):
            if most < first:
                self._held.pop(number, None)
            elif least < end:
                rows = self._group(number)
                offsets = rows.column("offset").to_numpy()
                low, high = (int(np.searchsorted(offsets, bound)) for bound in (first, end))
                if high > low:
                    parts.append(rows.slice(low, high - low))
        return parts

    def _group(self, number: int) -> pa.RecordBatch:
        if number not in self._held:
            try:
                table = self._parquet.read_row_group(number, columns=list(COLUMNS))
            except (OSError, pa.ArrowException) as error:
                raise DamagedArchive(f"{self._path} cannot be read: {error}") from error
            (self._held[number],) = table.cast(arrow_schema(COLUMNS)).combine_chunks().to_batches()
        return self._held[number]


def _made(piece: list[BatchRow], reader: _RowsReader) -> Iterator[ArchivedBatch]:
    """Rebuild consecutive batches with their bytes."""
    of_rows = [row for row in piece if row.kept == Kept.ROWS]
    sections: Iterator[memoryview] = iter(())
    if of_rows:
        sections = _sections(of_rows, reader.between(of_rows[0].base_offset, of_rows[-1].next_offset))
    for row in piece:
        if row.kept == Kept.ROWS:
            payload: Buffer = next(sections)
            if row.codec is not Codec.NONE:
                payload = recompress(row.codec, row.head or b"", row.level or 0, bytes(payload))
        else:
            payload = row.payload or b""
        yield ArchivedBatch(row, _checked(row, payload))


def _sections(batches: list[BatchRow], rows: pa.RecordBatch) -> Iterator[memoryview]:
    """The encoded records section of each batch."""
    offsets = rows.column("offset").to_numpy()
    firsts: Any = np.searchsorted(offsets, np.array([row.base_offset for row in batches]))
    ends: Any = np.searchsorted(offsets, np.array([row.next_offset for row in batches]))
    counts = ends - firsts
    for row, count in zip(batches, counts.tolist(), strict=True):
        if row.record_count != count:
            raise DamagedArchive(
                f"the batch at offset {row.base_offset} has {row.record_count} records, the archive {count} of them"
            )
    if counts.sum() != len(rows):
        # Between them are rows of batches that are kept whole.
        rows = rows.take(np.concatenate([np.arange(*one) for one in zip(firsts, ends, strict=True)]))
    bases: Any = np.repeat(np.array([row.base_offset for row in batches], dtype=np.int64), counts)
    times: Any = np.repeat(np.array([row.base_timestamp for row in batches], dtype=np.int64), counts)
    encoded = encode_records(rows, bases, times)
    bounds = np.concatenate(([0], np.cumsum(counts))).tolist()
    for first, end in pairwise(bounds):
        yield encoded.section(first, end)


def _checked(row: BatchRow, payload: Buffer) -> bytes:
    header = bytearray(HEADER_SIZE)
    write_header(header, row.header)
    data = b"".join((header, payload))
    if len(data) != row.size or computed_crc(data, 0, len(data)) != row.crc:
        raise DamagedArchive(
            f"what is archived of the batch at offset {row.base_offset} makes {len(data)} bytes of the CRC "
            f"{computed_crc(data, 0, len(data)):08x}, it had {row.size} bytes of the CRC {row.crc:08x}"
        )
    return data
