"""The records of ``__transaction_state``: each transactional id, with the transaction that it has open or has ended.

How they are framed is drawn in `protocol.records.coordinator_records`; there is one type, 0.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from protocol.primitives import Buffer
from protocol.records.coordinator_records import UnknownRecord, by_type, decode_record, encode_key, encode_value
from protocol.schema import Array, Int8, Int16, Int32, Int64, String, field, message, struct


class TransactionStatus(IntEnum):
    """What has become of a transaction, as `TransactionLogValue.transaction_status` has it."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


@message(key=0, versions=(0, 0), flexible_since=None)
class TransactionLogKey:
    transactional_id: String


@message(key=0, versions=(0, 1), flexible_since=1)
class TransactionLogValue:
    producer_id: Int64
    previous_producer_id: Int64 = field(since=1, tag=0, default=-1)
    next_producer_id: Int64 = field(since=1, tag=1, default=-1)
    producer_epoch: Int16
    next_producer_epoch: Int16 = field(since=1, tag=3, default=-1)
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: Array[PartitionsSchema] | None
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    client_transaction_version: Int16 = field(since=1, tag=2, default=0)

    @struct
    class PartitionsSchema:
        topic: String
        partition_ids: Array[Int32]


class TransactionRecord(NamedTuple):
    """One record, read."""

    key: TransactionLogKey
    value: TransactionLogValue | None
    """None: the transactional id has expired."""
    version: int | None
    """Of the value."""


_KEY_TYPES: Final = by_type((TransactionLogKey,))
_VALUE_TYPES: Final = by_type((TransactionLogValue,))


def encode_transaction_key(key: TransactionLogKey) -> bytes:
    """Return the key of a record."""
    return encode_key(key)


def encode_transaction_value(value: TransactionLogValue, version: int) -> bytes:
    """Return the value of a record; what ``version`` has no field for is left out."""
    return encode_value(value, version)


def decode_transaction_record(key: Buffer, value: Buffer | None) -> TransactionRecord | UnknownRecord:
    """Read a record of ``__transaction_state``.

    Raises `Malformed` for bytes that end too early, and for bytes left over.
    """
    return decode_record(TransactionRecord, _KEY_TYPES, _VALUE_TYPES, key, value)
