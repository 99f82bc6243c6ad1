"""The reader of record batches, the walk over records and every decompressor: only a StorageError may come out.

0 | a batch, compressed or not                             read as it is
1 | a batch whose records are compressed here              so that damage meets the records and not the codec
2 | codec u8 | compressed bytes                            opened within bounds
3 | batches                                                walked as recovery walks a segment's file
4 | a control batch                                        read as the marker that ends a transaction
"""

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

from storage.batch.compression import compress, decompress
from storage.batch.markers import read_marker
from storage.batch.record_batch import CODEC_BITS, HEADER_SIZE, LOG_OVERHEAD, MAGIC, Codec, read_header, write_header
from storage.batch.records import NOT_PLACED, assemble_batch, encode_batch, iterate_records
from storage.batch.walk import BatchWalk, in_memory
from storage.errors import DecompressionTooLarge, StorageError
from tests.fuzz.batch_mutations import with_another_field, with_other_records
from tests.support.batches import EVERY_CODEC, end_marker, produced, record, records

AS_IT_IS, COMPRESSED_HERE, STREAM, SEGMENT, MARKER = range(5)

PACKAGES = ("storage",)
MOST_BYTES = 4096
MOST_OPENED_BYTES = 1 << 20
_MOST_WALKED = 2000
"""Records; more teach nothing and take time."""


def check(data: bytes) -> None:
    """Read ``data`` as what its first byte says."""
    if not data:
        return
    kind, payload = data[0] % 5, data[1:]
    with suppress(StorageError):
        if kind == AS_IT_IS:
            _check_records(payload)
        elif kind == COMPRESSED_HERE:
            _check_records(_compressed(payload))
        elif kind == STREAM:
            _check_stream(payload)
        elif kind == SEGMENT:
            _check_segment(payload)
        else:
            header = read_header(payload)
            if header.magic == MAGIC and header.size == len(payload):
                read_marker(header, payload)


def _compressed(batch: bytes) -> bytes:
    header = read_header(batch)
    if header.attributes & CODEC_BITS > Codec.ZSTD:
        header = header._replace(attributes=header.attributes & ~CODEC_BITS)
    return bytes(assemble_batch(header._replace(magic=MAGIC), batch[HEADER_SIZE:]))


def _check_records(batch: bytes) -> None:
    if read_header(batch).record_count > _MOST_WALKED:
        return
    found = list(iterate_records(batch, most_bytes=MOST_OPENED_BYTES))
    if found:
        again = encode_batch(replace(one, offset=NOT_PLACED) for one in found)
        assert [(r.timestamp, r.key, r.value, r.headers) for r in iterate_records(again)] == [
            (r.timestamp, r.key, r.value, r.headers) for r in found
        ]


def _check_stream(data: bytes) -> None:
    if data:
        codec = EVERY_CODEC[data[0] % len(EVERY_CODEC)]
        with suppress(DecompressionTooLarge):
            assert len(decompress(codec, memoryview(data)[1:], MOST_OPENED_BYTES)) <= MOST_OPENED_BYTES


def _check_segment(content: bytes) -> None:
    position = 0
    for batch in BatchWalk(in_memory(content), 0, len(content), chunk_bytes=100):
        assert batch.position == position
        assert batch.header.size == len(batch.data)
        assert batch.data == content[position : position + batch.header.size]
        position += batch.header.size
    assert position <= len(content)


def mutate(data: bytes, most_bytes: int, seed: int, any_change: Callable[[bytes, int], bytes]) -> bytes:
    """Change a field or the records of a batch, or any bytes."""
    chance = random.Random(seed)
    kind = data[0] % 5 if data else STREAM
    if kind in (STREAM, SEGMENT) or not chance.randrange(3):
        return any_change(data, most_bytes)
    if chance.randrange(2):
        return data[:1] + with_another_field(data[1:], chance)
    return (data[:1] + with_other_records(data[1:], chance, any_change))[:most_bytes]


def seeds() -> Iterator[bytes]:
    """Batches of every codec, streams, a segment and both markers."""
    headers = [("h", b"1"), ("", None)]
    for codec in EVERY_CODEC:
        attributes = bytes([codec])
        for content in (records(1), records(3), [record(None, key=None, headers=headers)] * 2, [record(b"v" * 300)]):
            yield bytes([AS_IT_IS]) + bytes(produced(content, codec=codec))
            plain = bytearray(produced(content))
            write_header(plain, read_header(plain)._replace(attributes=int(codec)))
            yield bytes([COMPRESSED_HERE]) + bytes(plain)
        for payload in (b"", b"text " * 30, bytes(5000), bytes(range(256)) * 2):
            yield bytes([STREAM]) + attributes + compress(codec, payload)
    yield bytes([STREAM, Codec.SNAPPY]) + compress(Codec.SNAPPY, b"text " * 30)[20:]
    yield bytes([SEGMENT]) + bytes(produced(2)) + bytes(produced(1)) + bytes(produced(3))[: LOG_OVERHEAD + 30]
    for commit in (True, False):
        yield bytes([MARKER]) + bytes(end_marker(commit=commit, producer_id=7, producer_epoch=1))
