"""Encoding rows of Arrow as the uncompressed records section of Kafka's batches, column by column.

    length, attributes 0, timestamp delta, offset delta, key length, key, value length, value, count of headers, headers

No record costs Python anything: numbers become varints in numpy, and Arrow joins the pieces.
"""

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Numbers = Any
"""A numpy array of int64."""

_MOST_VARINT_BYTES: Final = 10
_MICROSECONDS: Final = 1000
_NULL: Final = -1


class EncodedRecords(NamedTuple):
    """Encoded records, one after another."""

    data: memoryview
    offsets: Numbers
    """The position of each record, and the end of the last record."""

    def section(self, first: int, last: int) -> memoryview:
        """The bytes of the records with numbers from ``first`` to before ``last``."""
        return self.data[int(self.offsets[first]) : int(self.offsets[last])]


def encode_records(rows: pa.RecordBatch, base_offsets: Numbers, base_timestamps: Numbers) -> EncodedRecords:
    """Encode the rows as records. `base_offsets` and `base_timestamps` (ms) are the base values of each row's batch."""
    keys, values, headers = rows.column("key"), rows.column("value"), rows.column("headers")
    key_lengths, value_lengths = _lengths(keys), _lengths(values)
    header_counts = _of(pc.fill_null(pc.list_value_length(headers), 0))
    header_bytes, header_lengths = _encoded_headers(headers, header_counts)
    offset_deltas = _of(rows.column("offset")) - base_offsets
    timestamp_deltas = _of(rows.column("timestamp")) // _MICROSECONDS - base_timestamps
    attributes: Numbers = np.zeros(len(rows), dtype=np.int64)
    parts = [_varint(one) for one in (attributes, timestamp_deltas, offset_deltas, key_lengths)]
    middle, end = _varint(value_lengths), _varint(header_counts)
    lengths = sum(widths for _, widths in (*parts, middle, end))
    lengths = lengths + np.maximum(key_lengths, 0) + np.maximum(value_lengths, 0) + header_lengths
    joined = _join(
        _binary([_varint(lengths), *parts]), keys, _binary([middle]), values, _binary([end]), header_bytes
    )  # fmt: skip
    return EncodedRecords(*_buffers(joined))


def _encoded_headers(headers: pa.ListArray, counts: Numbers) -> tuple[pa.BinaryArray, Numbers]:
    """The encoded headers of each row, and their sizes in bytes."""
    flat = headers.flatten()
    if len(flat) == 0:
        return pa.nulls(len(headers), pa.binary()), np.zeros(len(headers), dtype=np.int64)
    keys, values = (pc.struct_field(flat, name) for name in ("key", "value"))
    keys = keys.cast(pa.binary())
    pieces = _join(_binary([_varint(_lengths(keys))]), keys, _binary([_varint(_lengths(values))]), values)
    data, offsets = _buffers(pieces)
    bounds = offsets[np.concatenate(([0], np.cumsum(counts)))]
    array = pa.Array.from_buffers(
        pa.binary(), len(headers), [None, pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(data)]
    )
    return array, np.diff(bounds).astype(np.int64)


def _of(numbers: pa.Array) -> Numbers:
    """An Arrow column without nulls as int64."""
    return numbers.cast(pa.int64()).to_numpy(zero_copy_only=False)


def _lengths(column: pa.Array) -> Numbers:
    return _of(pc.fill_null(pc.binary_length(column), _NULL))


def _varint(numbers: Numbers) -> tuple[Numbers, Numbers]:
    """Zigzag varints: a row of bytes for each number, as wide as the longest varint, and the length of each varint."""
    zigzag = (numbers << 1 ^ numbers >> 63).view(np.uint64)
    most = int(zigzag.max(initial=0))
    room = next(count for count in range(1, _MOST_VARINT_BYTES + 1) if most >> 7 * count == 0)
    widths: Numbers = np.ones(len(numbers), dtype=np.int64)
    for count in range(1, room):
        widths += zigzag >> np.uint64(7 * count) != 0
    data: Numbers = np.empty((len(numbers), room), dtype=np.uint8)
    for count in range(room):
        data[:, count] = (zigzag >> np.uint64(7 * count)) & np.uint64(0x7F)
        if count + 1 < room:
            data[:, count] |= np.where(widths > count + 1, 0x80, 0).astype(np.uint8)
    return data, widths


def _binary(varints: list[tuple[Numbers, Numbers]]) -> pa.BinaryArray:
    """The varints of each row, joined."""
    data = np.hstack([one for one, _ in varints])
    counts = np.hstack([np.arange(one.shape[1]) < widths[:, None] for one, widths in varints])
    ends = np.cumsum(sum(widths for _, widths in varints))
    offsets = np.concatenate(([0], ends)).astype(np.int32)
    return pa.Array.from_buffers(
        pa.binary(), len(data), [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data[counts]))]
    )


def _join(*columns: pa.Array) -> pa.BinaryArray:
    wide = [column.cast(pa.large_binary()) for column in columns]
    return pc.binary_join_element_wise(
        *wide, pa.scalar(b"", pa.large_binary()), null_handling="replace", null_replacement=b""
    )


def _buffers(column: pa.LargeBinaryArray) -> tuple[memoryview, Numbers]:
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int64)[column.offset : column.offset + len(column) + 1]
    return memoryview(data if data is not None else b""), bounds
