"""The records inside a batch: reading them, walking over them, and writing a new batch.

    length          varint     of all that follows
    attributes      i8         0; no bit has a meaning
    timestamp delta varlong    to the batch's base timestamp; ms
    offset delta    varint     to the batch's base offset
    key             varint length (-1: null), bytes
    value           varint length (-1: null), bytes
    headers         varint count, then {varint length, UTF-8 key, varint length (-1: null), value} each

Where the batch has a codec, all records together are one compressed stream.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from storage.batch.compression import compress, decompress
from storage.batch.record_batch import (
    CODEC_BITS,
    CONTROL_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    Codec,
    TimestampType,
    read_header,
    seal,
    stamp,
    write_header,
)
from storage.batch.varints import VARINT_BYTES, VARLONG_BYTES, decode_signed, encode_signed, wrap_64
from storage.errors import DecompressionTooLarge, RecordTooLarge, UndecodableRecords
from storage.sentinels import NO_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP

SMALLEST_RECORD: Final = 7
"""Bytes of a record with neither key, value nor headers: seven one-byte fields."""

NOT_PLACED: Final = -1
"""The offset of a record that has no place in a log yet."""

ANY_SIZE: Final = 0x7FFF_FFFF
"""A limit for bytes or headers that no record reaches."""

MOST_BYTES_READ: Final = 1 << 28
"""Bytes that a stored batch may decompress to where the caller gives no limit (256 MiB)."""


@dataclass(slots=True, kw_only=True)
class Record:
    """One record. Header keys are text; bytes that are not UTF-8 survive in them as lone surrogates (PEP 383)."""

    offset: int = NOT_PLACED
    timestamp: int = NO_TIMESTAMP
    key: bytes | None = None
    value: bytes | None = None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)


def open_records(batch: Buffer, header: BatchHeader, most_bytes: int) -> bytes:
    """The records section of `batch` as it was before compression; DecompressionTooLarge, UndecodableRecords."""
    section = memoryview(batch)[HEADER_SIZE : header.size]
    if not header.attributes & CODEC_BITS:
        return bytes(section)
    return decompress(header.codec, section, most_bytes)


def walk(
    section: bytes, count: int, most_headers: int, most_record_bytes: int = ANY_SIZE
) -> Iterator[tuple[int, int, bool, int, int]]:
    """Walk over `count` records that must fill `section` exactly; keys, values and headers are only measured.

    Yields (timestamp delta, offset delta, whether the key is null, position of the key's length, end of the record).
    From the key's length to the end nothing depends on the batch around the record. Raises UndecodableRecords, naming
    record and position, where the structure breaks or the section is too short or too long, RecordTooLarge at a record
    of more than `most_record_bytes` behind its length, and DecompressionTooLarge before walking over more than
    `most_headers` in all.
    """
    position = index = 0
    total = len(section)
    try:
        while index < count:
            # One-byte numbers are read in place, for speed: a record has six of them.
            byte = section[position]
            if byte < 0x80:
                length = byte >> 1 ^ -(byte & 1)
                position += 1
            else:
                length, position = decode_signed(section, position, VARINT_BYTES)
            if length > most_record_bytes:
                raise RecordTooLarge(f"record {index} has {length} bytes; up to {most_record_bytes} are allowed")
            end = position + length
            if end > total or length < SMALLEST_RECORD - 1:
                raise UndecodableRecords(
                    f"record {index} has {length} bytes of {total - position} that are left in its batch"
                )
            position += 1
            byte = section[position]
            if byte < 0x80:
                timestamp_delta = byte >> 1 ^ -(byte & 1)
                position += 1
            else:
                timestamp_delta, position = decode_signed(section, position, VARLONG_BYTES)
            byte = section[position]
            if byte < 0x80:
                offset_delta = byte >> 1 ^ -(byte & 1)
                position += 1
            else:
                offset_delta, position = decode_signed(section, position, VARINT_BYTES)
            fields = position
            byte = section[position]
            if byte < 0x80:
                length = byte >> 1 ^ -(byte & 1)
                position += 1
            else:
                length, position = decode_signed(section, position, VARINT_BYTES)
            key_is_null = length < 0
            if not key_is_null:
                position += length
            byte = section[position]
            if byte < 0x80:
                length = byte >> 1 ^ -(byte & 1)
                position += 1
            else:
                length, position = decode_signed(section, position, VARINT_BYTES)
            if length > 0:
                position += length
            header_count = section[position]
            position += 1
            if header_count:
                header_count, position = decode_signed(section, position - 1, VARINT_BYTES)
                most_headers -= header_count
                if most_headers < 0:
                    raise DecompressionTooLarge(f"record {index} has {header_count} headers, more than are walked over")
                position = _skip_headers(section, position, end, header_count)
            if position != end:
                raise UndecodableRecords(f"record {index} ends at {position} of its batch, its length says {end}")
            yield timestamp_delta, offset_delta, key_is_null, fields, end
            index += 1
    except IndexError:
        raise UndecodableRecords(f"record {index} of {count} is cut short at {total} bytes") from None
    except OverflowError as error:
        raise UndecodableRecords(f"record {index} holds {error}") from None
    if position != total:
        raise UndecodableRecords(f"{total - position} bytes follow the last of {count} records")


def _skip_headers(section: bytes, position: int, end: int, count: int) -> int:
    if count < 0:
        raise UndecodableRecords(f"a record has {count} headers")
    for _ in range(count):
        if position >= end:
            break
        length, position = decode_signed(section, position, VARINT_BYTES)
        if length < 0:
            raise UndecodableRecords("a header has no key")
        length, position = decode_signed(section, position + length, VARINT_BYTES)
        if length > 0:
            position += length
    else:
        return position
    raise UndecodableRecords(f"{count} headers reach beyond their record")


def iterate_records(
    batch: Buffer, *, most_bytes: int = MOST_BYTES_READ, most_record_bytes: int = ANY_SIZE
) -> Iterator[Record]:
    """All records of one batch, which begins with its header; the CRC is not looked at.

    Raises UndecodableRecords for bytes that are not a batch of magic 2 or whose records cannot be read,
    DecompressionTooLarge if they open to more than `most_bytes`, and RecordTooLarge at a record of a compressed batch
    that has more than `most_record_bytes` behind its length.
    """
    header = read_header(batch)
    if header.magic != MAGIC:
        raise UndecodableRecords(f"the batch at offset {header.base_offset} has magic {header.magic}, not {MAGIC}")
    if not HEADER_SIZE <= header.size <= len(batch):
        raise UndecodableRecords(
            f"the batch at offset {header.base_offset} says it has {header.size} bytes, there are {len(batch)}"
        )
    if header.record_count == 0 and header.size == HEADER_SIZE:
        return
    if header.record_count < 0:
        raise UndecodableRecords(f"the batch at offset {header.base_offset} counts {header.record_count} records")
    try:
        section = open_records(batch, header, most_bytes)
        yield from _records_of(section, header, most_record_bytes if header.attributes & CODEC_BITS else ANY_SIZE)
    except UndecodableRecords as error:
        raise type(error)(f"the batch at offset {header.base_offset}: {error}") from None


def _records_of(section: bytes, header: BatchHeader, most_record_bytes: int) -> Iterator[Record]:
    given = header.max_timestamp if header.attributes & LOG_APPEND_TIME_BIT else None
    for timestamp_delta, offset_delta, _, position, _ in walk(
        section, header.record_count, len(section), most_record_bytes
    ):
        key, position = read_bytes(section, position)
        value, position = read_bytes(section, position)
        count, position = decode_signed(section, position, VARINT_BYTES)
        headers: list[tuple[str, bytes | None]] = []
        for _ in range(count):
            name, position = read_bytes(section, position)
            content, position = read_bytes(section, position)
            headers.append(((name or b"").decode("utf-8", "surrogateescape"), content))
        yield Record(
            offset=wrap_64(header.base_offset + offset_delta),
            timestamp=wrap_64(header.base_timestamp + timestamp_delta) if given is None else given,
            key=key,
            value=value,
            headers=headers,
        )


def read_bytes(section: bytes, position: int) -> tuple[bytes | None, int]:
    """A key, a value or a part of a header that begins with its length, and the position behind it."""
    length, position = decode_signed(section, position, VARINT_BYTES)
    if length < 0:
        return None, position
    return section[position : position + length], position + length


def encode_fields(record: Record) -> bytes:
    """Key, value and headers, the part of a record that does not depend on its batch."""
    key, value, headers = record.key, record.value, record.headers
    parts = [b"\x01"] if key is None else [encode_signed(len(key)), key]
    parts += (b"\x01",) if value is None else (encode_signed(len(value)), value)
    parts.append(encode_signed(len(headers)))
    for name, content in headers:
        encoded = name.encode("utf-8", "surrogateescape")
        parts += (encode_signed(len(encoded)), encoded)
        parts += (b"\x01",) if content is None else (encode_signed(len(content)), content)
    return b"".join(parts)


def encode_record(timestamp_delta: int, offset_delta: int, fields: bytes) -> bytes:
    """One record with its length, out of deltas and what `encode_fields` gives."""
    body = b"".join((b"\x00", encode_signed(timestamp_delta), encode_signed(offset_delta), fields))
    return encode_signed(len(body)) + body


def encode_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    last_offset_delta: int | None = None,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    log_append_time: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
    partition_leader_epoch: int = NO_EPOCH,
) -> bytearray:
    """One batch of `records`, whose base timestamp is that of the first one.

    Records with an offset keep it (offsets rise from `base_offset` on); one that is NOT_PLACED follows the record
    before it. `last_offset_delta` is by default the last record's; a batch without records needs it. With
    LOG_APPEND_TIME, `log_append_time` (ms) becomes every record's time. Raises ValueError for records that no batch
    can hold.
    """
    encoded: list[bytes] = []
    base_timestamp = max_timestamp = NO_TIMESTAMP
    delta = -1
    for record in records:
        if not encoded:
            base_timestamp = record.timestamp
        next_delta = delta + 1 if record.offset == NOT_PLACED else record.offset - base_offset
        if next_delta <= delta:
            raise ValueError(f"offset {record.offset} does not follow {base_offset + delta} in its batch")
        delta = next_delta
        if record.timestamp > max_timestamp:
            max_timestamp = record.timestamp
        encoded.append(encode_record(wrap_64(record.timestamp - base_timestamp), delta, encode_fields(record)))
    if last_offset_delta is None:
        if not encoded:
            raise ValueError("a batch without records needs its last offset delta")
        last_offset_delta = delta
    elif last_offset_delta < delta:
        raise ValueError(f"the last offset delta {last_offset_delta} lies before the last record's, {delta}")
    attributes = codec | (TRANSACTIONAL_BIT if is_transactional else 0) | (CONTROL_BIT if is_control else 0)
    if timestamp_type is TimestampType.LOG_APPEND_TIME:
        if log_append_time is None:
            raise ValueError("a batch with LogAppendTime needs log_append_time")
        attributes |= LOG_APPEND_TIME_BIT
        max_timestamp = log_append_time
    return assemble_batch(
        BatchHeader(
            base_offset=base_offset,
            batch_length=0,
            partition_leader_epoch=partition_leader_epoch,
            magic=MAGIC,
            crc=0,
            attributes=attributes,
            last_offset_delta=last_offset_delta,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            record_count=len(encoded),
        ),
        b"".join(encoded),
        level,
    )


def assemble_batch(header: BatchHeader, section: bytes, level: int | None = None) -> bytearray:
    """A batch of `header` and a records `section`, compressed as the header says; length and crc are made here."""
    payload = compress(header.codec, section, level) if header.attributes & CODEC_BITS and section else section
    batch = bytearray(HEADER_SIZE + len(payload))
    batch[HEADER_SIZE:] = payload
    write_header(batch, header)
    stamp(batch, header.base_offset, header.partition_leader_epoch)  # and with them the length
    seal(batch)
    return batch
