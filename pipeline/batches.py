"""A row of the archive for each record batch, enough to rebuild the batch's bytes from the rows of its records.

An archive keeps such a row for each batch, control batches included. The row has what cannot be derived from the
records: the header, and as little else as is needed to get the same bytes back.

    kept     what the payload (all bytes behind the 61 of the header) is rebuilt from
    ROWS     the rows: encoded anew and, where the batch has a codec, compressed like `head` at `level`
    PAYLOAD  `payload` itself: control batches, records that are not archived (of aborted transactions, or deleted),
             batches of LogAppendTime, which hides the records' own times, and batches whose compression cannot be
             repeated
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

import pyarrow as pa

from pipeline.errors import DAMAGED, PipelineError
from storage.batch.record_batch import (
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    Codec,
)


class Kept(IntEnum):
    """What the payload of a batch is rebuilt from."""

    ROWS = 0
    PAYLOAD = 1


class BatchRow(NamedTuple):
    """One batch of an archived range."""

    base_offset: int
    last_offset_delta: int
    partition_leader_epoch: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    size: int
    """The size of the batch in the log, in bytes, header included."""
    crc: int
    kept: int
    level: int | None = None
    """The compression level; None where the payload is stored, or is not compressed."""
    head: bytes | None = None
    """The first bytes of the producer's compressed payload, which show the compressor's options."""
    payload: bytes | None = None

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Codec:
        return self.header.codec

    @property
    def header(self) -> BatchHeader:
        """The header as it was in the log."""
        return BatchHeader(
            self.base_offset, self.size - LOG_OVERHEAD, self.partition_leader_epoch, MAGIC, self.crc, self.attributes,
            self.last_offset_delta, self.base_timestamp, self.max_timestamp, self.producer_id, self.producer_epoch,
            self.base_sequence, self.record_count,
        )  # fmt: skip


BATCH_SCHEMA: Final = pa.schema(
    [
        pa.field("base_offset", pa.int64(), nullable=False),
        pa.field("last_offset_delta", pa.int32(), nullable=False),
        pa.field("partition_leader_epoch", pa.int32(), nullable=False),
        pa.field("attributes", pa.int16(), nullable=False),
        pa.field("base_timestamp", pa.int64(), nullable=False),
        pa.field("max_timestamp", pa.int64(), nullable=False),
        pa.field("producer_id", pa.int64(), nullable=False),
        pa.field("producer_epoch", pa.int16(), nullable=False),
        pa.field("base_sequence", pa.int32(), nullable=False),
        pa.field("record_count", pa.int32(), nullable=False),
        pa.field("size", pa.int32(), nullable=False),
        pa.field("crc", pa.uint32(), nullable=False),
        pa.field("kept", pa.int8(), nullable=False),
        pa.field("level", pa.int16()),
        pa.field("head", pa.binary()),
        pa.field("payload", pa.binary()),
    ]
)
"""The columns of `BatchRow`, in the same order."""


class DamagedArchive(PipelineError):
    """The batch cannot be rebuilt with the bytes that were archived."""

    exit_code = DAMAGED


def batch_from(row: Mapping[str, Any]) -> BatchRow:
    """A `BatchRow` from a row of Arrow (`RecordBatch.to_pylist`)."""
    return BatchRow(**{name: row[name] for name in BATCH_SCHEMA.names})
