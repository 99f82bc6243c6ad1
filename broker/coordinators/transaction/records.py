"""Records of ``__transaction_state``, in the versions that Kafka 4.4.0 writes."""

from collections.abc import Iterable
from typing import Final, TypeAlias

from broker.coordinators.result import CoordinatorResult
from broker.coordinators.transaction.requests import BUMPS_EPOCH_SINCE
from broker.coordinators.transaction.transaction import Transaction
from protocol.primitives import Buffer, Malformed
from protocol.records.coordinator_records import UnknownRecord
from protocol.records.transaction_state import (
    TransactionLogKey,
    TransactionLogValue,
    TransactionRecord,
    TransactionStatus,
    decode_transaction_record,
    encode_transaction_key,
    encode_transaction_value,
)
from storage.topic_partition import TopicPartition

TransactionResult: TypeAlias = CoordinatorResult[TransactionRecord]

PLAIN_VERSION: Final = 0
"""The version of values where `transaction.version` is 0; it has no field for producer ids before and behind."""
FLEXIBLE_VERSION: Final = 1

_WRITTEN: Final = frozenset(TransactionStatus) - {TransactionStatus.DEAD, TransactionStatus.PREPARE_EPOCH_FENCE}


def transaction_record(transaction: Transaction, version: int) -> TransactionRecord:
    """The record of a state, with a value of ``version``."""
    partitions: dict[str, list[int]] = {}
    for topic, partition in sorted(transaction.partitions):
        partitions.setdefault(topic, []).append(partition)
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.status,
        transaction_partitions=(
            None
            if transaction.status is TransactionStatus.EMPTY
            else [
                TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=indexes)
                for topic, indexes in partitions.items()
            ]
        ),
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
        client_transaction_version=transaction.client_version,
    )
    return TransactionRecord(TransactionLogKey(transactional_id=transaction.transactional_id), value, version)


def tombstone(transactional_id: str) -> TransactionRecord:
    """The record with which a transactional id is forgotten."""
    return TransactionRecord(TransactionLogKey(transactional_id=transactional_id), None, None)


def transaction_of(transactional_id: str, value: TransactionLogValue) -> Transaction:
    """The state that a record holds."""
    return Transaction(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        status=TransactionStatus(value.transaction_status),
        partitions=frozenset(_partitions(value.transaction_partitions or ())),
        updated_ms=value.transaction_last_update_timestamp_ms,
        started_ms=value.transaction_start_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_version=value.client_transaction_version,
    )


def _partitions(topics: Iterable[TransactionLogValue.PartitionsSchema]) -> Iterable[TopicPartition]:
    for topic in topics:
        for index in topic.partition_ids:
            yield TopicPartition(topic.topic, index)


def encode(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    """Key and value of a record."""
    if record.value is None or record.version is None:
        return encode_transaction_key(record.key), None
    return encode_transaction_key(record.key), encode_transaction_value(record.value, record.version)


def decode(key: Buffer, value: Buffer | None) -> TransactionRecord | UnknownRecord:
    """The record of a key and a value. Raises `Malformed`, also for a value that no Kafka writes."""
    record = decode_transaction_record(key, value)
    if isinstance(record, TransactionRecord) and record.value is not None:
        why = _why_never_written(record.value)
        if why:
            raise Malformed(f"{record.key.transactional_id!r} has {why}, which is never written")
    return record


def _why_never_written(value: TransactionLogValue) -> str:
    """What no coordinator can have written, and could not be acted upon; empty if it is sound."""
    if value.transaction_status not in _WRITTEN:
        return f"the state {value.transaction_status}"
    if value.producer_id < 0 or value.producer_epoch < 0:
        return f"producer id {value.producer_id} and epoch {value.producer_epoch}"
    if not 0 <= value.client_transaction_version <= BUMPS_EPOCH_SINCE:
        return f"the transaction version {value.client_transaction_version}"
    return ""
