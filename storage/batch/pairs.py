"""Batches whose records are a key and a value and nothing else, as the coordinators' own topics hold them.

A commit is one such batch of a hundred bytes, and a start reads all of them again. So neither way makes `Record`
objects, and what such batches usually look like is written and read in one pass (bench: commits, group-start).
"""

from collections.abc import Iterable
from typing import Final, TypeAlias

from storage.batch.record_batch import (
    CODEC_BITS,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    Buffer,
    seal,
    write_header,
)
from storage.batch.records import MOST_BYTES_READ, iterate_records
from storage.batch.varints import VARINT_BYTES, VARLONG_BYTES, decode_signed, encode_signed

Pair: TypeAlias = tuple[bytes | None, bytes | None]
"""Key and value of a record; without a value it is a tombstone."""

_NULL: Final = 1
"""The length -1 as it is written."""


def encode_pairs(pairs: Iterable[tuple[bytes, bytes | None]], *, timestamp: int, base_sequence: int = -1) -> bytearray:
    """One batch of records that all have the time ``timestamp`` (ms), not yet placed in a log.

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
    section = b"".join(parts)
    batch = bytearray(HEADER_SIZE + len(section))
    batch[HEADER_SIZE:] = section
    write_header(
        batch,
        # In the order of the fields: by name it takes twice as long.
        BatchHeader(
            0, len(batch) - LOG_OVERHEAD, -1, MAGIC, 0, 0, count - 1, timestamp, timestamp, -1, -1, base_sequence, count
        ),
    )
    seal(batch)
    return batch


def read_pairs(batch: Buffer, header: BatchHeader, *, most_bytes: int = MOST_BYTES_READ) -> list[Pair]:
    """Keys and values of one batch, which begins with ``header``; offsets, times and headers are left aside.

    The CRC is not looked at. Raises UndecodableRecords and DecompressionTooLarge, as `iterate_records` does.
    """
    end = header.batch_length + LOG_OVERHEAD
    if not header.attributes & CODEC_BITS and header.magic == MAGIC and HEADER_SIZE < end <= len(batch):
        pairs = _read_plain(bytes(batch[HEADER_SIZE:end]), header.record_count)
        if pairs is not None:
            return pairs
    return [(record.key, record.value) for record in iterate_records(batch, most_bytes=most_bytes)]


def _read_plain(section: bytes, count: int) -> list[Pair] | None:
    """All pairs of a section without headers and with lengths of one byte or two; None for any other, damaged or not:
    `iterate_records` has the last word on these."""
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
