"""Selecting the batches between two offsets of a partition; the last batch is cut at the end offset."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from storage.batch.record_batch import LOG_APPEND_TIME_BIT, Buffer, read_header
from storage.batch.records import MOST_BYTES_READ, assemble_batch, encode_fields, encode_record, iterate_records
from storage.batch.varints import wrap_64


class Offsets(NamedTuple):
    """A range of offsets of a partition: from ``from_offset`` to before ``until_offset``."""

    from_offset: int
    until_offset: int


def batches_within(batches: Iterable[Buffer], offsets: Offsets) -> Iterator[Buffer]:
    """The batches that have any of these offsets. A batch that begins before them stays whole, since a log may begin
    inside a batch. A batch that ends behind them loses the records there, since no log may end inside a batch."""
    for batch in batches:
        header = read_header(batch)
        if header.next_offset <= offsets.from_offset:
            continue
        if header.base_offset >= offsets.until_offset:
            return
        yield batch if header.next_offset <= offsets.until_offset else cut_batch(batch, offsets.until_offset)


def cut_batch(batch: Buffer, until_offset: int) -> bytearray:
    """A copy of a batch that ends at ``until_offset``, without the records from there on. ``until_offset`` is inside
    the batch."""
    header = read_header(batch)
    kept = [record for record in iterate_records(batch, most_bytes=MOST_BYTES_READ) if record.offset < until_offset]
    section = b"".join(
        encode_record(
            wrap_64(record.timestamp - header.base_timestamp), record.offset - header.base_offset, encode_fields(record)
        )
        for record in kept
    )
    max_timestamp = header.max_timestamp
    if not header.attributes & LOG_APPEND_TIME_BIT:
        max_timestamp = max((record.timestamp for record in kept), default=header.max_timestamp)
    return assemble_batch(
        header._replace(
            last_offset_delta=until_offset - 1 - header.base_offset,
            max_timestamp=max_timestamp,
            record_count=len(kept),
        ),
        section,
    )
