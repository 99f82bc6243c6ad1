"""The batches of a range as rows of `pipeline/batches.py`, made while the rows of their records are written.

A batch is stored as `Kept.ROWS` if encoding its rows gives its bytes. This is tried here, for many batches at once. A
batch for which it fails is stored with its payload. A batch without a codec needs no Python code of its own.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.archive.record_encoding import EncodedRecords, encode_records
from pipeline.batches import BATCH_SCHEMA, Kept
from pipeline.decoding.headers import whole_headers
from pipeline.reading.scan import Stretch
from pipeline.recompression import LEVELS, head_of, recompress
from pipeline.schema import COLUMNS, arrow_schema
from storage.batch.record_batch import (
    CODEC_BITS,
    CONTROL_BIT,
    HEADER_SIZE,
    LAYOUT,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    Codec,
)

_MOST_FAILURES: Final = 4
"""After so many batches in a row of one codec that cannot be recompressed to the same bytes, no further batch of that
codec is tried."""

_TAKEN_OVER: Final = tuple(name for name in BATCH_SCHEMA.names if name in LAYOUT)
"""The columns whose values are fields of the batch header."""

Numbers = Any
"""A numpy array."""


class _Stored(NamedTuple):
    """Batches as they are in the log. `headers` and `begins` have an element for each batch."""

    data: bytes
    begins: Numbers
    headers: Numbers
    """An array of `storage.batch.record_batch.LAYOUT`."""

    def part(self, chosen: slice) -> "_Stored":
        """A part of these batches."""
        return _Stored(self.data, self.begins[chosen], self.headers[chosen])

    @property
    def last_offsets(self) -> Numbers:
        return self.headers["base_offset"] + self.headers["last_offset_delta"]

    @property
    def payload_begins(self) -> Numbers:
        return self.begins + HEADER_SIZE

    @property
    def payload_ends(self) -> Numbers:
        return self.begins + LOG_OVERHEAD + self.headers["batch_length"]

    def payload(self, number: int) -> bytes:
        """The bytes behind the batch's header."""
        return self.data[int(self.payload_begins[number]) : int(self.payload_ends[number])]


class BatchDescriber:
    """Takes the batches of a range, then the rows of their records; gives a row for each batch."""

    def __init__(self) -> None:
        self._waiting: deque[_Stored] = deque()
        """Batches that have not been described yet."""
        self._rows = pa.Table.from_batches([], arrow_schema(COLUMNS))
        """The rows of the waiting batches."""
        self._failures: dict[Codec, int] = {}
        self._levels: dict[Codec, int] = {}
        """The compression level that gave the last batch's bytes, by codec."""

    def add(self, stretch: Stretch) -> None:
        """Add whole batches with correct CRCs that follow the batches before. They have to be added before their
        rows."""
        begins: Numbers = np.array(stretch.begins, dtype=np.int64)
        self._waiting.append(_Stored(stretch.data, begins, whole_headers(stretch.data, stretch.begins)))

    def take(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take rows that follow the rows before. Gives the rows of the batches whose records are complete now."""
        self._rows = pa.concat_tables([self._rows, pa.Table.from_batches([rows])])
        yield from self._described(int(rows.column("offset")[-1].as_py()))

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Describe the remaining batches: there are no more rows."""
        yield from self._described(None)

    def _described(self, until: int | None) -> Iterator[pa.RecordBatch]:
        """Describe the batches that end before the offset ``until``, or all batches (None)."""
        waiting = self._waiting
        while waiting:
            stored = waiting.popleft()
            count = len(stored.begins)
            ready = count if until is None else int(np.searchsorted(stored.last_offsets, until))
            if ready < count:
                waiting.appendleft(stored.part(slice(ready, None)))
            if ready:
                yield self._describe(stored.part(slice(ready)))
            if ready < count:
                return

    def _describe(self, stored: _Stored) -> pa.RecordBatch:
        self._rows = self._rows.combine_chunks()
        offsets = self._rows.column("offset").to_numpy()
        firsts: Numbers = np.searchsorted(offsets, stored.headers["base_offset"].astype(np.int64))
        ends: Numbers = np.searchsorted(offsets, stored.last_offsets + 1)
        codecs: Numbers = stored.headers["attributes"] & CODEC_BITS
        is_tried = (stored.headers["record_count"] == ends - firsts) & self._may_come_out(stored.headers, codecs)
        encoded = self._encode(stored, firsts, ends, is_tried)
        counts = np.where(is_tried, ends - firsts, 0)
        section_ends = encoded.offsets[np.cumsum(counts)]
        section_begins = encoded.offsets[np.cumsum(counts) - counts]
        is_made: Numbers = np.zeros(len(counts), dtype=bool)
        plain = np.flatnonzero(is_tried & (codecs == Codec.NONE))
        is_made[plain] = _are_same(
            (encoded.data, section_begins[plain], section_ends[plain]),
            (stored.data, stored.payload_begins[plain], stored.payload_ends[plain]),
        )
        recompressed: dict[int, tuple[int, bytes]] = {}
        for number in np.flatnonzero(is_tried & (codecs != Codec.NONE)).tolist():
            records = bytes(encoded.data[int(section_begins[number]) : int(section_ends[number])])
            found = self._recompressed(Codec(int(codecs[number])), stored.payload(number), records)
            if found is not None:
                recompressed[number] = found
                is_made[number] = True
        self._rows = self._rows.slice(int(ends[-1]))
        return _as_rows(stored, is_made, recompressed)

    def _may_come_out(self, headers: Numbers, codecs: Numbers) -> Numbers:
        # The records' own times of LogAppendTime are not in the rows.
        known = [codec for codec in Codec if self._failures.get(codec, 0) < _MOST_FAILURES]
        return (headers["attributes"] & (CONTROL_BIT | LOG_APPEND_TIME_BIT) == 0) & np.isin(codecs, known)

    def _encode(self, stored: _Stored, firsts: Numbers, ends: Numbers, is_tried: Numbers) -> EncodedRecords:
        """The encoded records of all batches that are tried, one after another."""
        counts = (ends - firsts)[is_tried]
        total = int(counts.sum())
        if not total:
            return EncodedRecords(memoryview(b""), np.zeros(1, dtype=np.int64))
        bases: Numbers
        times: Numbers
        bases, times = (
            np.repeat(stored.headers[name][is_tried].astype(np.int64), counts)
            for name in ("base_offset", "base_timestamp")
        )
        numbers = np.arange(total) + np.repeat(firsts[is_tried] - (np.cumsum(counts) - counts), counts)
        is_one_piece = int(numbers[-1] - numbers[0]) == total - 1
        chosen = self._rows.slice(int(numbers[0]), total) if is_one_piece else self._rows.take(pa.array(numbers))
        (batch,) = chosen.combine_chunks().to_batches()
        return encode_records(batch, bases, times)

    def _recompressed(self, codec: Codec, original: bytes, records: bytes) -> tuple[int, bytes] | None:
        """The level and the head with which the codec compresses ``records`` to the bytes of ``original``; None if no
        level does."""
        head = head_of(codec, original)
        if head is not None:
            for level in self._levels_of(codec):
                if recompress(codec, head, level, records) == original:
                    self._failures[codec] = 0
                    self._levels[codec] = level
                    return level, head
        self._failures[codec] = self._failures.get(codec, 0) + 1
        return None

    def _levels_of(self, codec: Codec) -> Iterable[int]:
        """The levels to try: first the level of the last batch."""
        known = self._levels.get(codec)
        return sorted(LEVELS[codec], key=lambda level: level != known)


_Pieces = tuple[bytes | memoryview, Numbers, Numbers]
"""A buffer, and the positions in it at which pieces begin and end, both rising."""


def _are_same(some: _Pieces, others: _Pieces) -> Numbers:
    """Which pieces have the same bytes as the pieces of the same number in ``others``."""
    if not len(some[1]):
        return np.zeros(0, dtype=bool)
    return pc.equal(_gathered(some), _gathered(others)).to_numpy(zero_copy_only=False)


def _gathered(pieces: _Pieces) -> pa.LargeBinaryArray:
    """The pieces as an Arrow array. All bytes are first taken for pieces of an array, of which every second piece is
    taken."""
    data, begins, ends = pieces
    edges: Numbers = np.empty(2 * len(begins), dtype=np.int64)
    edges[0::2] = begins
    edges[1::2] = ends
    everything = pa.Array.from_buffers(
        pa.large_binary(), len(edges) - 1, [None, pa.py_buffer(edges), pa.py_buffer(data)]
    )
    return everything.take(pa.array(np.arange(0, len(edges), 2)))


def _as_rows(stored: _Stored, is_made: Numbers, recompressed: dict[int, tuple[int, bytes]]) -> pa.RecordBatch:
    count = len(is_made)
    columns: dict[str, Any] = {
        name: stored.headers[name].astype(BATCH_SCHEMA.field(name).type.to_pandas_dtype()) for name in _TAKEN_OVER
    }
    columns["size"] = (stored.headers["batch_length"] + LOG_OVERHEAD).astype(np.int32)
    columns["kept"] = np.where(is_made, Kept.ROWS, Kept.PAYLOAD).astype(np.int8)
    levels: list[int | None] = [None] * count
    heads: list[bytes | None] = [None] * count
    payloads: list[bytes | None] = [None] * count
    for number, (level, head) in recompressed.items():
        levels[number], heads[number] = level, head
    for number in np.flatnonzero(~is_made).tolist():
        payloads[number] = stored.payload(number)
    columns |= {"level": levels, "head": heads, "payload": payloads}
    return pa.RecordBatch.from_pydict(columns, schema=BATCH_SCHEMA)
