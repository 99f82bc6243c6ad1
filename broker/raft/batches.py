"""Encoding and decoding of metadata records in record batches, for the log and for snapshots.

    data record      key null      value  uvarint 1 (frame) | uvarint type | uvarint version | message
    control record   key  i16 0 | i16 type                   value  message of that type

A batch has either data records or control records. Records that must take effect together are in one batch.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from broker.metadata.image.records import Record
from protocol.records.cluster_metadata import decode_record, encode_record
from protocol.records.control_records import (
    ControlRecord,
    ControlRecordType,
    KRaftVersion,
    KRaftVoters,
    LeaderChange,
    SnapshotFooter,
    SnapshotHeader,
    decode_control_key,
    decode_control_value,
    encode_control_key,
    encode_control_value,
)
from storage.batch.record_batch import BatchHeader
from storage.batch.records import Record as LogRecord
from storage.batch.records import encode_batch, iterate_records
from storage.batch.walk import AtFault, BatchWalk, WalkPolicy, in_memory

WHOLE_OR_CUT_OFF: Final = WalkPolicy(at_fault=AtFault.RAISE)

_TYPES: Final[dict[type[ControlRecord], ControlRecordType]] = {
    LeaderChange: ControlRecordType.LEADER_CHANGE,
    SnapshotHeader: ControlRecordType.SNAPSHOT_HEADER,
    SnapshotFooter: ControlRecordType.SNAPSHOT_FOOTER,
    KRaftVersion: ControlRecordType.KRAFT_VERSION,
    KRaftVoters: ControlRecordType.KRAFT_VOTERS,
}


class MetadataBatch(NamedTuple):
    """A decoded batch of the metadata log or of a snapshot."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    size: int
    """Size of the batch in bytes, with its header."""
    timestamp_ms: int
    """When the batch was written (wall clock of its writer)."""
    records: list[Record]
    """Empty in a control batch."""
    control_records: list[ControlRecord]


def decode_batches(buffer: memoryview) -> Iterator[MetadataBatch]:
    """The batches in ``buffer``, which begins with a batch; a last batch that is cut off is left out.

    Raises:
        CorruptBatch, UndecodableRecords: the bytes are no batches.
        Malformed: a record can't be read.
    """
    for batch in BatchWalk(in_memory(buffer), 0, len(buffer), WHOLE_OR_CUT_OFF):
        yield decode_batch(batch.header, batch.data)


def decode_batch(header: BatchHeader, batch: memoryview) -> MetadataBatch:
    """Decode one whole batch. Raises the errors of `decode_batches`."""
    records: list[Record] = []
    control_records: list[ControlRecord] = []
    for record in iterate_records(batch):
        if header.is_control:
            record_type = decode_control_key(record.key or b"")
            if record_type is not None:
                control_records.append(decode_control_value(record_type, record.value or b""))
        elif record.value is not None:
            records.append(decode_record(record.value)[0])
    return MetadataBatch(
        base_offset=header.base_offset,
        next_offset=header.next_offset,
        leader_epoch=header.partition_leader_epoch,
        size=header.size,
        timestamp_ms=header.max_timestamp,
        records=records,
        control_records=control_records,
    )


def encode_records(
    records: Sequence[tuple[Record, int]], *, base_offset: int, leader_epoch: int, now_ms: int
) -> bytearray:
    """Encode a batch of metadata records, each with the version to write it in."""
    pairs = [(None, encode_record(record, version)) for record, version in records]
    return _encode(pairs, base_offset=base_offset, leader_epoch=leader_epoch, now_ms=now_ms, is_control=False)


def encode_control_records(
    records: Sequence[ControlRecord], *, base_offset: int, leader_epoch: int, now_ms: int
) -> bytearray:
    """Encode a control batch."""
    pairs = [(encode_control_key(_TYPES[type(record)]), encode_control_value(record)) for record in records]
    return _encode(pairs, base_offset=base_offset, leader_epoch=leader_epoch, now_ms=now_ms, is_control=True)


def _encode(
    pairs: Iterable[tuple[bytes | None, bytes]], *, base_offset: int, leader_epoch: int, now_ms: int, is_control: bool
) -> bytearray:
    return encode_batch(
        [
            LogRecord(offset=base_offset + index, timestamp=now_ms, key=key, value=value)
            for index, (key, value) in enumerate(pairs)
        ],
        base_offset=base_offset,
        partition_leader_epoch=leader_epoch,
        is_control=is_control,
    )
