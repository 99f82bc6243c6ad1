"""Batches whose records have a key and a value and no headers, as the coordinators' topics hold them.

A commit is one such batch of a hundred bytes, and a start reads all of them again. So neither way makes `Record`
objects, and what such batches usually look like is written and read in one pass (bench: commits, group-start).
"""

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from storage.batch.record_batch import MAGIC, TRANSACTIONAL_BIT, BatchHeader, Codec
from storage.batch.records import assemble_batch, read_bytes, walk
from storage.batch.varints import VARINT_BYTES, VARLONG_BYTES, decode_signed, encode_signed
from storage.sentinels import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE

Pair: TypeAlias = tuple[bytes | None, bytes | None]
"""Key and value of a record; a record without a value is a tombstone."""

READ_AT_ONCE: Final = 1_000
"""Records, which take half a millisecond. Of a larger batch one is read after the other, as they are asked for."""

_NULL: Final = 1
"""The varint of the length -1, which stands for null."""


def encode_pairs(
    pairs: Iterable[tuple[bytes, bytes | None]],
    *,
    timestamp: int,
    codec: Codec = Codec.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
) -> bytearray:
    """Encode one batch of records that all have the time ``timestamp`` (ms), without offsets yet.

    The bytes are those of `encode_batch`. Raises ValueError if there are no records.
    """
    parts: list[bytes] = []
    count = 0
    for key, value in pairs:
        delta = encode_signed(count)
        key_size = encode_signed(len(key))
        size = 3 + len(delta) + len(key_size) + len(key)
        if value is None:
            parts += (encode_signed(size + 1), b"\x00\x00", delta, key_size, key, b"\x01\x00")
        else:
            value_size = encode_signed(len(value))
            size += len(value_size) + len(value)
            parts += (encode_signed(size), b"\x00\x00", delta, key_size, key, value_size, value, b"\x00")
        count += 1
    if not count:
        raise ValueError("a batch of nothing")
    attributes = codec | TRANSACTIONAL_BIT if is_transactional else codec
    # The fields in their order: by name it takes twice as long.
    header = BatchHeader(
        0, 0, -1, MAGIC, 0, attributes, count - 1, timestamp, timestamp, producer_id, producer_epoch, base_sequence,
        count,
    )  # fmt: skip
    return assemble_batch(header, b"".join(parts))


def read_pairs(section: bytes, count: int) -> Iterable[Pair]:
    """Keys and values of the ``count`` records that `open_records` gives; offsets, times and headers are passed over.

    Raises UndecodableRecords where the structure breaks, as it is iterated over and behind what stands before that.
    """
    pairs = _read_plain(section, count) if count <= READ_AT_ONCE else None
    return _read_any(section, count) if pairs is None else pairs


def _read_any(section: bytes, count: int) -> Iterator[Pair]:
    for _, _, _, position, _ in walk(section, count, len(section)):
        key, position = read_bytes(section, position)
        value, _ = read_bytes(section, position)
        yield key, value


def _read_plain(section: bytes, count: int) -> list[Pair] | None:
    """Read pairs whose lengths take one byte or two and that have no headers. None for any others, damaged or not:
    `read_pairs` then reads them record by record."""
    pairs: list[Pair] = []
    position = 0
    try:
        for _ in range(count):
            length = section[position]
            position += 1
            if length > 0x7F:
                length += (section[position] - 1) << 7
                position += 1
                if length > 0x3FFF:
                    return None
            if length & 1:
                return None
            end = position + (length >> 1)
            position += 1
            if section[position] < 0x80:
                position += 1
            else:
                _, position = decode_signed(section, position, VARLONG_BYTES)
            if section[position] < 0x80:
                position += 1
            else:
                _, position = decode_signed(section, position, VARINT_BYTES)
            length = section[position]
            position += 1
            if length > 0x7F:
                length += (section[position] - 1) << 7
                position += 1
                if length > 0x3FFF:
                    return None
            key = value = None
            if not length & 1:
                start = position
                position += length >> 1
                key = section[start:position]
            elif length != _NULL:
                return None
            length = section[position]
            position += 1
            if length > 0x7F:
                length += (section[position] - 1) << 7
                position += 1
                if length > 0x3FFF:
                    return None
            if not length & 1:
                start = position
                position += length >> 1
                value = section[start:position]
            elif length != _NULL:
                return None
            if section[position] or position + 1 != end:
                return None
            position = end
            pairs.append((key, value))
    except (IndexError, OverflowError):
        return None
    return pairs if position == len(section) else None
