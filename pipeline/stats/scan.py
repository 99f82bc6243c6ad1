"""One task of `stats`: counts ranges of partitions, batch by batch and record by record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.errors import Damage
from pipeline.reading.ranges import OffsetRange, Wanted
from pipeline.reading.reader import read_range
from pipeline.reading.scan import MOST_BATCH_BYTES, Scan
from pipeline.reading.segment_files import raised_as_pipeline_errors
from pipeline.stats.counts import Keys, Powers, Times
from storage.batch.record_batch import CODEC_BITS, CONTROL_BIT, HEADER_SIZE, BatchHeader, Codec, read_header
from storage.batch.records import open_records
from storage.errors import UndecodableRecords

_COLUMNS: Final = ("key", "value", "timestamp")
_US_A_MINUTE: Final = 60_000_000


@dataclass(slots=True)
class CodecCounts:
    """Counts of the batches with one codec."""

    batches: int = 0
    records: int = 0
    stored_bytes: int = 0
    """Bytes of the records sections, as they are in the file."""
    opened_bytes: int = 0
    """Bytes of the records sections, decompressed."""

    def merge(self, other: CodecCounts) -> None:
        """Add the counts of another object."""
        self.batches += other.batches
        self.records += other.records
        self.stored_bytes += other.stored_bytes
        self.opened_bytes += other.opened_bytes


@dataclass(slots=True)
class Counts:
    """Counts of a range, a partition, a topic, or all topics."""

    records: int = 0
    key_bytes: int = 0
    value_bytes: int = 0
    without_key: int = 0
    tombstones: int = 0
    """Records without a value."""
    without_time: int = 0
    batches: int = 0
    control_batches: int = 0
    """Markers of transactions."""
    batch_bytes: int = 0
    """Bytes of the batches in the files, headers included."""
    first_timestamp_ms: int | None = None
    last_timestamp_ms: int | None = None
    codecs: dict[str, CodecCounts] = field(default_factory=dict)
    times: Times = field(default_factory=Times)
    record_sizes: Powers = field(default_factory=Powers)
    batch_records: Powers = field(default_factory=Powers)
    batch_sizes: Powers = field(default_factory=Powers)
    keys: Keys = field(default_factory=Keys)
    damages: list[Damage] = field(default_factory=list)

    @property
    def stored_bytes(self) -> int:
        """Bytes of the records sections, as they are in the files."""
        return sum(codec.stored_bytes for codec in self.codecs.values())

    @property
    def opened_bytes(self) -> int:
        """Bytes of the records sections, decompressed."""
        return sum(codec.opened_bytes for codec in self.codecs.values())

    @property
    def compression_ratio(self) -> float | None:
        """Decompressed bytes per stored byte; None where there are no records."""
        return self.opened_bytes / self.stored_bytes if self.stored_bytes else None

    @property
    def mean_fill(self) -> float | None:
        """Records per batch."""
        batches = self.batches - self.control_batches
        return self.records / batches if batches else None

    def merge(self, other: Counts) -> None:
        """Add the counts of another object."""
        for name in ("records", "key_bytes", "value_bytes", "without_key", "tombstones", "without_time", "batches",
                     "control_batches", "batch_bytes"):  # fmt: skip
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.saw_times(other.first_timestamp_ms, other.last_timestamp_ms)
        for name, codec in other.codecs.items():
            self.codecs.setdefault(name, CodecCounts()).merge(codec)
        self.times.merge(other.times)
        self.record_sizes.merge(other.record_sizes)
        self.batch_records.merge(other.batch_records)
        self.batch_sizes.merge(other.batch_sizes)
        self.keys.merge(other.keys)
        self.damages += other.damages

    def saw_times(self, first_ms: int | None, last_ms: int | None) -> None:
        """Extend the range of timestamps."""
        if first_ms is not None and (self.first_timestamp_ms is None or first_ms < self.first_timestamp_ms):
            self.first_timestamp_ms = first_ms
        if last_ms is not None and (self.last_timestamp_ms is None or last_ms > self.last_timestamp_ms):
            self.last_timestamp_ms = last_ms


def scan_ranges(ranges: Sequence[OffsetRange], skip_damaged: bool) -> list[tuple[OffsetRange, Counts]]:
    """Count each range. Raises RecordsGone, and DamagedLog unless ``skip_damaged``."""
    return [(each, _scan(each, skip_damaged)) for each in ranges]


def _scan(wanted_range: OffsetRange, skip_damaged: bool) -> Counts:
    counts = Counts()
    wanted = Wanted(columns=_COLUMNS, read_committed=False, skip_damaged=skip_damaged)
    for batch in read_range(wanted_range, wanted, counts.damages.append):
        _count_records(batch, counts)
    # Damage has been reported by now.
    with raised_as_pipeline_errors():
        for stretch in Scan(wanted_range, _passed_over).stretches():
            view = memoryview(stretch.data)
            fills, sizes = [], []
            for at in stretch.begins:
                header = read_header(view, at)
                # A batch belongs to the range that has its end.
                if header.last_offset < wanted_range.until_offset:
                    _count_batch(header, view[at : at + header.size], counts)
                    sizes.append(header.size)
                    if not header.attributes & CONTROL_BIT:
                        fills.append(header.record_count)
            counts.batch_records.add(np.array(fills, dtype=np.int64))
            counts.batch_sizes.add(np.array(sizes, dtype=np.int64))
    return counts


def _passed_over(damage: Damage) -> None:
    pass


def _count_batch(header: BatchHeader, data: memoryview, counts: Counts) -> None:
    counts.batches += 1
    counts.batch_bytes += header.size
    if header.attributes & CONTROL_BIT:
        counts.control_batches += 1
        return
    number = header.attributes & CODEC_BITS
    stored = opened = header.size - HEADER_SIZE
    if number and stored:
        try:
            opened = len(open_records(data, header, MOST_BATCH_BYTES))
        except UndecodableRecords:
            return  # reported as damage, or it ended the reading
    codec = counts.codecs.setdefault(Codec(number).name.lower(), CodecCounts())
    codec.batches += 1
    codec.records += header.record_count
    codec.stored_bytes += stored
    codec.opened_bytes += opened


def _count_records(batch: pa.RecordBatch, counts: Counts) -> None:
    keys, values, timestamps = (batch.column(name) for name in _COLUMNS)
    key_sizes, value_sizes = _sizes(keys), _sizes(values)
    sizes = key_sizes + value_sizes
    counts.records += len(batch)
    counts.key_bytes += int(key_sizes.sum())
    counts.value_bytes += int(value_sizes.sum())
    counts.without_key += keys.null_count
    counts.tombstones += values.null_count
    counts.record_sizes.add(sizes)
    microseconds = timestamps.cast(pa.int64()).to_numpy(zero_copy_only=False)
    timed = microseconds >= 0
    counts.without_time += int(len(timed) - timed.sum())
    if timed.any():
        microseconds, sizes = microseconds[timed], sizes[timed]
        counts.times.add(microseconds // _US_A_MINUTE, sizes)
        counts.saw_times(int(microseconds.min()) // 1000, int(microseconds.max()) // 1000)
    occurring = pc.value_counts(keys.drop_null())
    counts.keys.add(occurring.field("values").to_pylist(), occurring.field("counts").to_pylist())


def _sizes(column: pa.Array) -> np.ndarray[Any, Any]:
    sizes: np.ndarray[Any, Any] = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
    return sizes.astype(np.int64)
