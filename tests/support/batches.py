"""Record batches for tests: as a producer sends them, as a log holds them, and with one field made wrong."""

import struct
from collections.abc import Sequence
from typing import Any

from storage.batch.record_batch import Codec, read_header, seal, stamp, write_header
from storage.batch.records import Record, encode_batch

T = 1_700_000_000_000
"""The timestamp (ms) at which most tests take place."""

Headers = Sequence[tuple[str, bytes | None]]


def record(
    value: bytes | None = b"value", *, key: bytes | None = b"key", timestamp: int = T, headers: Headers = ()
) -> Record:
    """A record that is not in a log yet."""
    return Record(timestamp=timestamp, key=key, value=value, headers=list(headers))


def records(count: int, *, timestamp: int = T, value_bytes: int = 20) -> list[Record]:
    """`count` records with keys k0, k1 ..., a millisecond apart, values of `value_bytes`."""
    return [
        Record(timestamp=timestamp + index, key=b"k%d" % index, value=(b"%d " % index * value_bytes)[:value_bytes])
        for index in range(count)
    ]


def produced(content: int | Sequence[Record] = 1, **fields: Any) -> memoryview:
    """A writable batch as a producer sends it: with so many records, or with these; `fields` are those of
    `encode_batch`."""
    return memoryview(encode_batch(records(content) if isinstance(content, int) else content, **fields))


def stored(content: int | Sequence[Record] = 1, *, offset: int = 0, leader_epoch: int = 0, **fields: Any) -> bytes:
    """A batch as it is in a log, its first record at `offset`."""
    batch = encode_batch(records(content) if isinstance(content, int) else content, **fields)
    stamp(batch, offset, leader_epoch)
    return bytes(batch)


def changed(batch: bytes | bytearray | memoryview, **fields: int) -> memoryview:
    """A copy with other header fields, and the right CRC unless `crc` is among the fields."""
    copy = bytearray(batch)
    write_header(copy, read_header(copy)._replace(**fields))
    if "crc" not in fields:
        seal(copy)
    return memoryview(copy)


def end_marker(
    *, commit: bool, producer_id: int, producer_epoch: int, coordinator_epoch: int = 0, timestamp: int = T
) -> bytearray:
    """The control batch that ends a transaction in a partition (WriteTxnMarkers)."""
    key = struct.pack(">hh", 0, 1 if commit else 0)
    value = struct.pack(">hi", 0, coordinator_epoch)
    return encode_batch(
        [Record(timestamp=timestamp, key=key, value=value)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


NO_UTF8 = (b"\xff\xfe", b"a\xed\xa0\x80b", b"\xed\xa0A", b"\xe2\x82", b"\xf4\x90\x80\x80", b"\xe0\x80\x80")
"""Bytes that are no UTF-8; `new String(bytes, UTF_8)` of Java 17 decodes them to `AS_BY_JAVA`."""
AS_BY_JAVA = ("\ufffd\ufffd", "a\ufffdb", "\ufffdA", "\ufffd", "\ufffd\ufffd\ufffd\ufffd", "\ufffd\ufffd\ufffd")


def named(names: Sequence[bytes]) -> Record:
    """A record with headers of these names, which need not be text."""
    return record(headers=[(name.decode("utf-8", "surrogateescape"), b"") for name in names])


EVERY_CODEC = tuple(Codec)
COMPRESSING = tuple(codec for codec in Codec if codec is not Codec.NONE)
