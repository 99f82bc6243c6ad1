"""Transaction markers: control batches of one record, with which a coordinator ends a transaction (KIP-98).

    key     i16 version (0)    i16 type: 0 abort, 1 commit; control records of other types are no markers
    value   i16 version (0)    i32 epoch of the coordinator

The batch has the producer id and the epoch of the transaction, and no sequence number. It takes one offset.
"""

from struct import Struct
from typing import Final, NamedTuple

from storage.batch.record_batch import BatchHeader
from storage.batch.records import Record, encode_batch, iterate_records
from storage.errors import UndecodableRecords
from storage.files import Buffer

_KEY: Final = Struct(">hh")
_VALUE: Final = Struct(">hi")
_VERSION: Final = 0
_ABORT, _COMMIT = 0, 1


class Marker(NamedTuple):
    """The end of a transaction, as its coordinator wrote it into the log."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    offset: int
    timestamp: int


def encode_marker(
    *, producer_id: int, producer_epoch: int, coordinator_epoch: int, is_commit: bool, timestamp: int
) -> bytearray:
    """The batch of a marker, 78 bytes; ``timestamp`` in milliseconds since 1970."""
    record = Record(
        key=_KEY.pack(_VERSION, _COMMIT if is_commit else _ABORT),
        value=_VALUE.pack(_VERSION, coordinator_epoch),
        timestamp=timestamp,
    )
    return encode_batch(
        [record], producer_id=producer_id, producer_epoch=producer_epoch, is_transactional=True, is_control=True
    )


def read_marker(header: BatchHeader, batch: Buffer) -> Marker | None:
    """The transaction marker in a control batch; None for another kind of control batch. Raises UndecodableRecords."""
    if not header.is_control or not header.has_producer_id:
        return None
    for record in iterate_records(batch):
        if record.key is None or record.value is None or len(record.key) < 4 or len(record.value) < 6:
            raise UndecodableRecords(f"the control record at offset {record.offset} is too short for a marker")
        _, kind = _KEY.unpack_from(record.key)
        if kind not in (_ABORT, _COMMIT):
            return None
        _, coordinator_epoch = _VALUE.unpack_from(record.value)
        return Marker(
            header.producer_id, header.producer_epoch, coordinator_epoch, kind == _COMMIT, header.last_offset,
            header.max_timestamp,
        )  # fmt: skip
    return None
