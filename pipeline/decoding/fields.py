"""Finding the positions of fields in a buffer, for all records of many batches at once.

Only the positions of the records have to be found one after the other, since each depends on the length of the record
before. This is a loop over lengths and nothing else. The fields inside are then read for all records together, column
by column, with numpy; a malformed record shows as an end of its fields that is not the end of the record.

A batch can be read if `storage.batch.records.walk` can read it: this is the same check, faster.
"""

from __future__ import annotations

from functools import cache
from itertools import repeat
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

import numpy as np

from pipeline.decoding.headers import Numbers
from pipeline.decoding.sections import Sections
from storage.batch.records import SMALLEST_RECORD
from storage.batch.varints import VARINT_BYTES, VARLONG_BYTES, decode_signed

MOST_HEADERS: Final = 1 << 21
"""The most headers that the records of a batch may have together: a header takes two bytes there, and thirty times as
many here."""


class Fields(NamedTuple):
    """The fields of records, an element for each record; positions are in the buffer that the records were read
    from."""

    batch: Numbers
    """The number of the record's batch."""
    timestamp_delta: Numbers
    offset_delta: Numbers
    key_at: Numbers
    key_size: Numbers
    """-1 for a null key."""
    value_at: Numbers
    value_size: Numbers
    header_count: Numbers
    headers: HeaderFields


class HeaderFields(NamedTuple):
    """The headers of all records, in the order of the records."""

    key_at: Numbers
    key_size: Numbers
    value_at: Numbers
    value_size: Numbers
    """-1 for a null value."""


def read_fields(sections: Sections) -> tuple[Fields, list[int]]:
    """The fields of all records, and the numbers of unreadable batches, whose records' fields mean nothing."""
    data = np.frombuffer(sections.data or b"\0", dtype=np.uint8)
    bad: set[int] = set()
    if (sections.headers.record_count == 1).all():
        # Nothing is to be found out where each batch has one record.
        at, counts = np.asarray(sections.begins, dtype=np.int64), sections.headers.record_count
    else:
        starts, counts, bad = _record_starts(sections)
        at = np.array(starts, dtype=np.int64)
    batch: Numbers = np.repeat(np.arange(len(counts)), counts)
    length, at, wrong = _varints(data, at, VARINT_BYTES)
    ends = at + length
    wrong |= (length < SMALLEST_RECORD - 1) | (ends > np.asarray(sections.ends, dtype=np.int64)[batch])
    timestamp_delta, at, too_long = _varints(data, at + 1, VARLONG_BYTES)
    wrong |= too_long
    offset_delta, at, too_long = _varints(data, at, VARINT_BYTES)
    wrong |= too_long
    key_size, key_at, too_long = _varints(data, at, VARINT_BYTES)
    wrong |= too_long
    value_size, value_at, too_long = _varints(data, key_at + np.maximum(key_size, 0), VARINT_BYTES)
    wrong |= too_long
    header_count, at, too_long = _varints(data, value_at + np.maximum(value_size, 0), VARINT_BYTES)
    wrong |= too_long
    # A header has two bytes at least, so there are never more than could be read.
    wrong |= (header_count < 0) | (at + 2 * header_count > ends)
    header_count = np.where(wrong, 0, header_count)
    wrong |= (np.bincount(batch, header_count, len(counts)) > MOST_HEADERS)[batch]
    header_count = np.where(wrong, 0, header_count)
    headers, at = _read_headers(sections.data, data, at, header_count, wrong)
    wrong |= at != ends
    # Between the sections there is something else: a record may end well, and before its batch or behind it.
    last = np.flatnonzero(np.diff(batch, append=-1))
    wrong[last] |= ends[last] != np.asarray(sections.ends, dtype=np.int64)[batch[last]]
    bad.update(np.unique(batch[wrong]).tolist())
    return Fields(
        batch, timestamp_delta, offset_delta, key_at, key_size, value_at, value_size, header_count, headers
    ), sorted(bad)


def _record_starts(sections: Sections) -> tuple[list[int], list[int], set[int]]:
    """The positions of all records, the number of records of each batch, and the batches with another number of records
    than their header has."""
    data = sections.data
    steps = _steps()
    starts: list[int] = []
    counts: list[int] = []
    bad: set[int] = set()
    add = starts.append
    for number, (position, end, count) in enumerate(
        zip(sections.begins, sections.ends, sections.headers.record_count.tolist(), strict=True)
    ):
        before = len(starts)
        if not 0 <= count * SMALLEST_RECORD <= end - position:
            bad.add(number)
            counts.append(0)
            continue
        try:
            for _ in repeat(None, count):
                add(position)
                (head,) = _unpack_head(data, position)
                step = steps[head]
                if step:
                    position += step
                else:
                    length, position = decode_signed(data, position, VARINT_BYTES)
                    if length < 0:
                        break
                    position += length
        except (StructError, IndexError, OverflowError):
            position = -1
        if position != end:
            bad.add(number)
            del starts[before:]
        counts.append(len(starts) - before)
    return starts, counts, bad


_HEAD: Final = Struct("<H")
_unpack_head = _HEAD.unpack_from


@cache
def _steps() -> list[int]:
    """The distance to the next record, by the first two bytes of a record; 0 where its length takes more than two
    bytes.

    One look-up instead of the arithmetic saves half of the time for finding the records (bench: decode). A negative
    length gives a meaningless distance, which is noticed when the fields are read.
    """
    first: Numbers
    second: Numbers
    first, second = np.meshgrid(np.arange(256), np.arange(256))
    two = np.where(second < 0x80, 2 + ((first & 0x7F | second << 7) >> 1), 0)
    found: list[int] = np.where(first < 0x80, 1 + (first >> 1), two).ravel().tolist()
    return found


def _varints(data: Numbers, at: Numbers, most_bytes: int) -> tuple[Numbers, Numbers, Numbers]:
    """The varints at these positions, the positions behind them, and which of them are longer than `most_bytes`.

    A position may lie behind the end of the data: then the number means nothing, and the position behind it lies there,
    too.
    """
    number = data.take(at, mode="clip").astype(np.int64)
    behind = at + 1
    too_long: Numbers = np.zeros(len(at), dtype=bool)
    longer = np.flatnonzero(number >= 0x80)
    if len(longer):
        sums = (number[longer] & 0x7F).astype(np.uint64)
        places = behind[longer]
        for shift in range(7, 7 * most_bytes, 7):
            byte = data.take(places, mode="clip").astype(np.uint64)
            sums |= (byte & np.uint64(0x7F)) << np.uint64(shift)
            places += 1
            goes_on = byte >= 0x80
            if not goes_on.all():
                ended = ~goes_on
                done = longer[ended]
                number[done] = sums[ended].view(np.int64)
                behind[done] = places[ended]
                longer, sums, places = longer[goes_on], sums[goes_on], places[goes_on]
            if not len(longer):
                break
        too_long[longer] = True
    if most_bytes == VARINT_BYTES:
        number &= 0xFFFFFFFF
        return number >> 1 ^ -(number & 1), behind, too_long
    unsigned = number.view(np.uint64)
    return (unsigned >> np.uint64(1)).view(np.int64) ^ -(number & 1), behind, too_long


_NONE: Final[Numbers] = np.zeros(0, dtype=np.int64)
_FEW_RECORDS: Final = 16
"""For so few records, reading header by header is faster than a round."""


def _read_headers(
    content: bytes, data: Numbers, at: Numbers, counts: Numbers, wrong: Numbers
) -> tuple[HeaderFields, Numbers]:
    """The headers at the positions ``at``, ``counts`` of each record, and the positions behind them. `data` are the
    bytes of `content` as an array.

    Read in rounds: the first header of all records that have a header, then the second. When few records have more
    headers, these are read header by header.
    """
    total = int(counts.sum())
    if not total:
        return HeaderFields(_NONE, _NONE, _NONE, _NONE), at
    at = at.copy()
    first = np.cumsum(counts) - counts
    fields = HeaderFields(*(np.zeros(total, dtype=np.int64) for _ in HeaderFields._fields))
    records = np.flatnonzero(counts)
    place = at[records]
    number = 0
    while len(records) > _FEW_RECORDS:
        key_size, key_at, is_wrong = _varints(data, place, VARINT_BYTES)
        is_wrong |= key_size < 0
        value_size, value_at, too_long = _varints(data, key_at + np.maximum(key_size, 0), VARINT_BYTES)
        is_wrong |= too_long
        place = value_at + np.maximum(value_size, 0)
        wrong[records[is_wrong]] = True
        slots = first[records] + number
        for field, found in zip(fields, (key_at, key_size, value_at, value_size), strict=True):
            field[slots] = found
        number += 1
        at[records] = place
        goes_on = counts[records] > number
        records, place = records[goes_on], place[goes_on]
    for record, position in zip(records.tolist(), place.tolist(), strict=True):
        slots = range(int(first[record]) + number, int(first[record] + counts[record]))
        try:
            at[record] = _read_one_by_one(content, position, fields, slots)
        except (IndexError, OverflowError):
            wrong[record] = True
    return fields, at


def _read_one_by_one(content: bytes, position: int, fields: HeaderFields, slots: range) -> int:
    """Read the headers of one record into the elements ``slots`` of ``fields``. Returns the position behind them.
    Raises IndexError, OverflowError."""
    for slot in slots:
        size, position = decode_signed(content, position, VARINT_BYTES)
        if size < 0:
            raise IndexError("a header without a key")
        fields.key_size[slot], fields.key_at[slot] = size, position
        size, position = decode_signed(content, position + size, VARINT_BYTES)
        fields.value_size[slot], fields.value_at[slot] = size, position
        position += max(size, 0)
    return position
