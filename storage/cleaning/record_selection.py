"""Which records of a batch stay, by the offset map.

Cleaning spends its time in these two loops. They read what `storage.batch.records` describes, and of it what is needed
here: offsets, timestamps, keys, and whether there is a value. They are compiled (bench: cleaning).
`storage.batch.records.walk` reads more of each record, and is a generator.
"""

from typing import Final, NamedTuple

from storage.batch.varints import VARINT_BYTES, VARLONG_BYTES, decode_signed, wrap_64
from storage.cleaning.offset_map import OffsetMap
from storage.errors import UndecodableRecords
from storage.sentinels import NO_TIMESTAMP

_LEAST_LENGTH: Final = 6


class Selection(NamedTuple):
    """The records of a batch that stay."""

    section: bytes
    """The records, one behind the other, as they were."""
    record_count: int
    max_timestamp: int
    """The largest timestamp of a record that stays, ms; -1 without any record."""
    has_tombstones: bool
    """Whether a record that stays has no value."""
    without_key: int
    """How many records go because they have no key."""


def note_keys(section: bytes, count: int, base_offset: int, from_offset: int, offsets: OffsetMap) -> bool:
    """Note the keys of the ``count`` records in ``section`` whose offset is ``from_offset`` or larger.

    Records without a key are passed over. False if the map has become full: the records behind are not noted. Raises
    UndecodableRecords.
    """
    position = index = 0
    total = len(section)
    try:
        while index < count:
            byte = section[position]
            if byte < 0x80:
                length = byte >> 1 ^ -(byte & 1)
                position += 1
            else:
                length, position = decode_signed(section, position, VARINT_BYTES)
            end = position + length
            if length < _LEAST_LENGTH or end > total:
                raise _misfit(index, length, total - position)
            position += 1
            while section[position] >= 0x80:
                position += 1
            position += 1
            byte = section[position]
            if byte < 0x80:
                delta = byte >> 1 ^ -(byte & 1)
                position += 1
            else:
                delta, position = decode_signed(section, position, VARINT_BYTES)
            byte = section[position]
            if byte < 0x80:
                length = byte >> 1 ^ -(byte & 1)
                position += 1
            else:
                length, position = decode_signed(section, position, VARINT_BYTES)
            if length > end - position:
                raise _misfit(index, length, end - position)
            offset = base_offset + delta
            if length >= 0 and offset >= from_offset:
                if not offsets.put(section[position : position + length], offset):
                    return False
                if offset > offsets.latest_offset:
                    offsets.latest_offset = offset
            position = end
            index += 1
    except IndexError:
        raise UndecodableRecords(f"record {index} of {count} is cut short at {total} bytes") from None
    except OverflowError as error:
        raise UndecodableRecords(f"record {index} holds {error}") from None
    return True


def select_records(
    section: bytes, count: int, base_offset: int, base_timestamp: int, offsets: OffsetMap, drops_tombstones: bool
) -> Selection:
    """Select those of the ``count`` records in ``section`` that stay: the last with its key, or behind the map.

    A record without a key goes. One without a value goes too with ``drops_tombstones``. Raises UndecodableRecords.
    """
    position = index = kept = start = without_key = 0
    total = len(section)
    latest_offset = offsets.latest_offset
    # Of the deltas: a timestamp and a sum that may wrap around are larger numbers than compiled code handles quickly.
    max_delta = 0
    has_tombstones = False
    stretches: list[bytes] = []
    try:
        while index < count:
            first = position
            byte = section[position]
            if byte < 0x80:
                length = byte >> 1 ^ -(byte & 1)
                position += 1
            else:
                length, position = decode_signed(section, position, VARINT_BYTES)
            end = position + length
            if length < _LEAST_LENGTH or end > total:
                raise _misfit(index, length, total - position)
            position += 1
            byte = section[position]
            if byte < 0x80:
                timestamp_delta = byte >> 1 ^ -(byte & 1)
                position += 1
            else:
                timestamp_delta, position = decode_signed(section, position, VARLONG_BYTES)
            byte = section[position]
            if byte < 0x80:
                delta = byte >> 1 ^ -(byte & 1)
                position += 1
            else:
                delta, position = decode_signed(section, position, VARINT_BYTES)
            byte = section[position]
            if byte < 0x80:
                length = byte >> 1 ^ -(byte & 1)
                position += 1
            else:
                length, position = decode_signed(section, position, VARINT_BYTES)
            behind_key = position + length if length > 0 else position
            if behind_key >= end:
                raise _misfit(index, length, end - position)
            is_tombstone = section[behind_key] == 1  # the varint of -1
            offset = base_offset + delta
            if offset > latest_offset:
                stays = True
            elif length < 0:
                stays = False
                without_key += 1
            elif offset < offsets.get(section[position:behind_key]):
                stays = False
            else:
                stays = not (is_tombstone and drops_tombstones)
            if stays:
                if not kept or timestamp_delta > max_delta:
                    max_delta = timestamp_delta
                if is_tombstone:
                    has_tombstones = True
                kept += 1
            else:
                if first > start:
                    stretches.append(section[start:first])
                start = end
            position = end
            index += 1
    except IndexError:
        raise UndecodableRecords(f"record {index} of {count} is cut short at {total} bytes") from None
    except OverflowError as error:
        raise UndecodableRecords(f"record {index} holds {error}") from None
    if position != total:
        raise UndecodableRecords(f"{total - position} bytes follow the last of {count} records")
    max_timestamp = wrap_64(base_timestamp + max_delta) if kept else NO_TIMESTAMP
    if not start:
        return Selection(section, kept, max_timestamp, has_tombstones, without_key)
    if total > start:
        stretches.append(section[start:])
    return Selection(b"".join(stretches), kept, max_timestamp, has_tombstones, without_key)


def _misfit(index: int, length: int, left: int) -> UndecodableRecords:
    return UndecodableRecords(f"record {index} has a length of {length} where {left} bytes are left")
