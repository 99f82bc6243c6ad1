"""Arrow columns made from the fields of records, without a loop over records."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from pipeline.decoding.fields import Fields
from pipeline.decoding.headers import Numbers
from pipeline.decoding.sections import Sections
from pipeline.schema import HEADERS, arrow_schema
from storage.batch.record_batch import LOG_APPEND_TIME_BIT

MOST_MS: Final = (2**63 - 1) // 1000
"""The latest time, in milliseconds, that Arrow's 64 bits of microseconds hold; the earliest is its negative."""

# In Java three bytes that would be a surrogate are one malformed character, in Python three.
_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT: Final = "\ufffd".encode()


class Columns:
    """The records of opened batches, from which Arrow columns are made."""

    def __init__(self, sections: Sections, fields: Fields, topic: str, partition: int) -> None:
        self._buffer = pa.py_buffer(sections.data)
        self._fields = fields
        self._topic = topic
        self._partition = partition
        self._batches = sections.headers
        self.offsets: Numbers = sections.headers.base_offset[fields.batch] + fields.offset_delta
        self._header_firsts = np.cumsum(fields.header_count) - fields.header_count

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def bytes_up_to(self) -> Numbers:
        """For each record, the total bytes of keys, values and headers up to its end."""
        fields = self._fields
        sizes = np.maximum(fields.key_size, 0) + np.maximum(fields.value_size, 0)
        if len(fields.headers.key_size):
            totals = np.maximum(fields.headers.key_size, 0) + np.maximum(fields.headers.value_size, 0)
            up_to = np.concatenate(([0], np.cumsum(totals)))
            sizes = sizes + up_to[self._header_firsts + fields.header_count] - up_to[self._header_firsts]
        return np.cumsum(sizes)

    def batch(self, chosen: Numbers | slice, names: Sequence[str]) -> pa.RecordBatch:
        """These columns of the chosen records: a slice, or their numbers, rising."""
        return pa.RecordBatch.from_arrays([_MAKERS[name](self, chosen) for name in names], schema=arrow_schema(names))

    def _key(self, chosen: Any) -> pa.Array:
        return _gather(self._buffer, self._fields.key_at[chosen], self._fields.key_size[chosen])

    def _value(self, chosen: Any) -> pa.Array:
        return _gather(self._buffer, self._fields.value_at[chosen], self._fields.value_size[chosen])

    def _topics(self, chosen: Any) -> pa.Array:
        return pa.repeat(pa.scalar(self._topic, pa.string()), len(self.offsets[chosen]))

    def _partitions(self, chosen: Any) -> pa.Array:
        return pa.repeat(pa.scalar(self._partition, pa.int32()), len(self.offsets[chosen]))

    def _offset(self, chosen: Any) -> pa.Array:
        return pa.array(self.offsets[chosen])

    def _timestamp(self, chosen: Any) -> pa.Array:
        batch = self._fields.batch[chosen]
        times = self._batches.base_timestamp[batch] + self._fields.timestamp_delta[chosen]
        given = self._batches.attributes[batch] & LOG_APPEND_TIME_BIT != 0
        if given.any():
            times = np.where(given, self._batches.max_timestamp[batch], times)
        beyond = (times > MOST_MS) | (times < -MOST_MS)
        if beyond.any():
            return pa.array(np.where(beyond, 0, times) * 1000, mask=beyond).view(pa.timestamp("us", tz="UTC"))
        return pa.array(times * 1000).view(pa.timestamp("us", tz="UTC"))

    def _timestamp_type(self, chosen: Any) -> pa.Array:
        types = (self._batches.attributes & LOG_APPEND_TIME_BIT != 0).astype(np.int32)
        return pa.array(types[self._fields.batch[chosen]])

    def _headers(self, chosen: Any) -> pa.Array:
        counts = self._fields.header_count[chosen]
        firsts = self._header_firsts[chosen]
        total = int(counts.sum())
        list_type = arrow_schema([HEADERS]).field(0).type
        if not total:
            return pa.nulls(len(counts), list_type)
        ends = np.cumsum(counts)
        numbers = np.arange(total) + np.repeat(firsts - (ends - counts), counts)
        headers = self._fields.headers
        keys = _gather(self._buffer, headers.key_at[numbers], headers.key_size[numbers])
        values = _gather(self._buffer, headers.value_at[numbers], headers.value_size[numbers])
        entries = pa.StructArray.from_arrays([_as_text(keys), values], fields=list(list_type.value_type))
        offsets = np.concatenate(([0], ends)).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), entries, type=list_type, mask=pa.array(counts == 0))


_MAKERS: Final[dict[str, Callable[[Columns, Any], pa.Array]]] = {
    "key": Columns._key,
    "value": Columns._value,
    "topic": Columns._topics,
    "partition": Columns._partitions,
    "offset": Columns._offset,
    "timestamp": Columns._timestamp,
    "timestampType": Columns._timestamp_type,
    HEADERS: Columns._headers,
}


def _gather(buffer: pa.Buffer, at: Numbers, size: Numbers) -> pa.Array:
    """The bytes at rising positions ``at`` with these sizes; null where a size is negative.

    The buffer is read as an array of strings, of which Arrow copies every second string, all at once.
    """
    count = len(at)
    if not count:
        return pa.array([], pa.binary())
    is_null = size < 0
    edges: Numbers = np.empty(2 * count, dtype=np.int32)
    edges[0::2] = at
    edges[1::2] = at + np.maximum(size, 0)
    everything = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(edges), buffer])
    wanted = pa.array(np.arange(0, 2 * count, 2), mask=is_null if is_null.any() else None)
    return everything.take(wanted)


def _as_text(keys: pa.Array) -> pa.Array:
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        distinct = keys.dictionary_encode()
        texts = pa.array([java_text(key) for key in distinct.dictionary.to_pylist()], pa.string())
        return texts.take(distinct.indices)


def java_text(data: bytes) -> str:
    """Decode UTF-8 as Java's `String` does: with as many U+FFFD for malformed bytes as Java gives."""
    return _SURROGATE.sub(_REPLACEMENT, data).decode("utf-8", "replace")
