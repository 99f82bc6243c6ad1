"""Reading a range of a partition as Arrow record batches, without control batches and aborted transactions.

Left out are:
- control batches, ever; with `read_committed` the batches of aborted transactions;
- the records of a batch that lie outside the range: the first batch may begin before it, the last end behind it.

A batch that cannot be read as the log's own reader reads it is damage, and so is one with records outside its own
offsets or not in their order: a consumer that reads by offset would get such records twice or never.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from pipeline.decoding.columns import Columns
from pipeline.decoding.fields import MOST_HEADERS, read_fields
from pipeline.decoding.headers import Headers, Numbers, joined, read_headers
from pipeline.decoding.sections import Sections
from pipeline.errors import Damage, DamagedLog
from pipeline.reading.ranges import OffsetRange, Wanted
from pipeline.reading.scan import MOST_BATCH_BYTES, Scan, Stretch
from pipeline.reading.segment_files import raised_as_pipeline_errors
from pipeline.reading.transactions import AbortedTransactions, aborted_in
from storage.batch.record_batch import CODEC_BITS, CONTROL_BIT, HEADER_SIZE, LOG_OVERHEAD, read_header
from storage.batch.records import open_records, walk
from storage.errors import UndecodableRecords

OnDamage = Callable[[Damage], None]

MOST_RECORDS: Final = 1 << 21
"""The most records that a batch may have: a megabyte of zstd could hold enough records for some gigabytes of memory."""
MOST_ARROW_BYTES: Final = 32 << 20
"""The most bytes of an Arrow batch: its offsets have 32 bits, and it is copied on its way to Spark."""


def read_range(
    wanted_range: OffsetRange,
    wanted: Wanted,
    on_damage: OnDamage | None = None,
    on_stretch: Callable[[Stretch], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records of a range, in the order of their offsets, with the columns of `wanted`.

    `on_damage` is called for each damage that `skip_damaged` skips. `on_stretch` is called for all batches before their
    records are returned, also for batches without a record of the range. Raises RecordsGone, DamagedLog,
    PipelineError.
    """
    with raised_as_pipeline_errors():
        if wanted_range.from_offset < wanted_range.until_offset:
            yield from _Reading(wanted_range, wanted, on_damage, on_stretch).batches()


class _Reading:
    def __init__(
        self,
        wanted_range: OffsetRange,
        wanted: Wanted,
        on_damage: OnDamage | None,
        on_stretch: Callable[[Stretch], None] | None,
    ) -> None:
        self._range = wanted_range
        self._wanted = wanted
        self._batch_bytes = min(wanted.batch_bytes, MOST_ARROW_BYTES)
        self._on_damage = on_damage
        self._on_stretch = on_stretch

    def batches(self) -> Iterator[pa.RecordBatch]:
        aborted = aborted_in(self._range) if self._wanted.read_committed else AbortedTransactions()
        for sections in self._opened(aborted):
            yield from self._decoded(sections)

    def _damaged(self, damage: Damage) -> None:
        if not self._wanted.skip_damaged:
            raise DamagedLog(damage)
        if self._on_damage is not None:
            self._on_damage(damage)

    def _opened(self, aborted: AbortedTransactions) -> Iterator[Sections]:
        """The records sections of the batches to read, decompressed, some MB at a time."""
        opened = _Opened()
        for stretch in Scan(self._range, self._damaged, chunk_bytes=self._batch_bytes).stretches():
            if self._on_stretch is not None:
                self._on_stretch(stretch)
            headers = read_headers(stretch.data, stretch.begins)
            chosen = np.flatnonzero((headers.attributes & CONTROL_BIT == 0) & ~aborted.have(headers))
            headers = headers.chosen(chosen)
            begins: Numbers = np.asarray(stretch.begins, dtype=np.int64)[chosen]
            path, positions = stretch.segment.path, (begins + stretch.position).tolist()
            if not ((headers.attributes & CODEC_BITS != 0) | (headers.record_count > MOST_RECORDS)).any():
                # They stand in what was read as they are wanted.
                yield from opened.taken()
                ends = begins + headers.batch_length + LOG_OVERHEAD
                yield Sections(
                    stretch.data, (begins + HEADER_SIZE).tolist(), ends.tolist(), headers, [path] * len(ends), positions
                )  # fmt: skip
                continue
            readable: list[int] = []
            for number, (at, position) in enumerate(zip(begins.tolist(), positions, strict=True)):
                section = self._section(stretch.data, at, path, position)
                if section is not None:
                    opened.add(section, path, position)
                    readable.append(number)
                    if opened.size >= self._batch_bytes:
                        opened.headers.append(headers.chosen(readable))
                        readable = []
                        yield from opened.taken()
            opened.headers.append(headers.chosen(readable))
        yield from opened.taken()

    def _section(self, data: bytes, at: int, path: str, position: int) -> bytes | None:
        header = read_header(data, at)
        if header.record_count > MOST_RECORDS:
            offset = max(header.base_offset, self._range.from_offset)
            found, expected = f"a batch of {header.record_count} records", f"at most {MOST_RECORDS} of them"
            self._damaged(Damage(path, position, offset, found, expected))
            return None
        if header.record_count == 0 and header.size == HEADER_SIZE:
            return b""
        try:
            return open_records(memoryview(data)[at:], header, MOST_BATCH_BYTES)
        except UndecodableRecords as error:
            self._tell_unreadable(
                (path, position), header.base_offset, header.last_offset, header.record_count, str(error)
            )
            return None

    def _tell_unreadable(
        self, place: tuple[str, int], first_offset: int, last_offset: int, count: int, found: str
    ) -> None:
        offset = max(first_offset, self._range.from_offset)
        found = f"{found} (offsets {first_offset} to {last_offset})"
        self._damaged(Damage(*place, offset, found, f"{count} records that can be read, with rising offsets"))

    def _decoded(self, sections: Sections) -> Iterator[pa.RecordBatch]:
        fields, bad = read_fields(sections)
        columns = Columns(sections, fields, self._range.topic, self._range.partition)
        offsets = columns.offsets
        disordered = _disordered(sections, fields.batch, fields.offset_delta)
        for number in sorted({*bad, *disordered}):
            headers = sections.headers
            first_offset = int(headers.base_offset[number])
            last_offset = first_offset + int(headers.last_offset_delta[number])
            found = _why_unreadable(sections, number) if number in bad else "records whose offsets are not in order"
            count = int(headers.record_count[number])
            place = sections.paths[number], sections.positions[number]
            self._tell_unreadable(place, first_offset, last_offset, count, found)
        is_chosen = (offsets >= self._range.from_offset) & (offsets < self._range.until_offset)
        if bad or disordered:
            is_chosen &= ~np.isin(fields.batch, [*bad, *disordered])
        chosen = np.flatnonzero(is_chosen)
        if not len(chosen):
            return
        sizes = columns.bytes_up_to
        first = 0
        while first < len(chosen):
            before = sizes[chosen[first - 1]] if first else 0
            end = int(np.searchsorted(sizes[chosen], before + 2 * self._batch_bytes, side="right"))
            end = max(end, first + 1)
            part = chosen[first:end]
            is_everything = len(part) == len(columns)
            yield columns.batch(slice(None) if is_everything else part, self._wanted.columns)
            first = end


class _Opened:
    """Collects decompressed batches until they are large enough for one buffer."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._parts: list[bytes] = []
        self._begins: list[int] = []
        self._ends: list[int] = []
        self._paths: list[str] = []
        self._positions: list[int] = []
        self.headers: list[Headers] = []
        self.size = 0

    def add(self, section: bytes, path: str, position: int) -> None:
        """Add the section of a batch. The batch's header is added to `headers` with those of the stretch."""
        self._parts.append(section)
        self._begins.append(self.size)
        self.size += len(section)
        self._ends.append(self.size)
        self._paths.append(path)
        self._positions.append(position)

    def taken(self) -> Iterator[Sections]:
        """The collected batches as one buffer, if there are any. The collection is empty afterwards."""
        if self._parts:
            sections = Sections(
                b"".join(self._parts), self._begins, self._ends, joined(self.headers), self._paths, self._positions
            )  # fmt: skip
            self._clear()
            yield sections


def _disordered(sections: Sections, batch: Numbers, deltas: Numbers) -> list[int]:
    """The numbers of batches whose record offsets do not rise, or are outside the batch's range."""
    if not len(deltas):
        return []
    wrong = (deltas < 0) | (deltas > sections.headers.last_offset_delta[batch])
    wrong[1:] |= (deltas[1:] <= deltas[:-1]) & (batch[1:] == batch[:-1])
    found: list[int] = np.unique(batch[wrong]).tolist() if wrong.any() else []
    return found


def _why_unreadable(sections: Sections, number: int) -> str:
    """The error of `storage.batch.records.walk` for this batch."""
    section = sections.data[sections.begins[number] : sections.ends[number]]
    try:
        for _ in walk(section, int(sections.headers.record_count[number]), MOST_HEADERS):
            pass
    except UndecodableRecords as error:
        return str(error)
    return "records that cannot be read"
