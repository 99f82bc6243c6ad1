"""Records of ``__share_group_state``, as Kafka 4.4.0 writes them."""

from collections.abc import Iterable
from typing import Final, TypeAlias

from broker.coordinators.result import CoordinatorResult
from broker.coordinators.share.persister import SharePartitionKey, StateBatch
from broker.coordinators.share.state import SharePartitionState
from protocol.primitives import Buffer, Malformed
from protocol.records import share_state
from protocol.records.coordinator_records import UnknownRecord
from protocol.records.share_state import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareStateRecord,
    ShareUpdateKey,
    ShareUpdateValue,
    decode_share_state_record,
    encode_share_state_key,
    encode_share_state_value,
)

ShareResult: TypeAlias = CoordinatorResult[ShareStateRecord]

VERSION: Final = 0


def snapshot(key: SharePartitionKey, state: SharePartitionState) -> ShareStateRecord:
    """The record that says all of a share partition."""
    value = ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        create_timestamp=state.created_ms,
        write_timestamp=state.written_ms,
        state_batches=_batches(state.batches),
    )
    return ShareStateRecord(ShareSnapshotKey(**key._asdict()), value, VERSION)


def update(
    key: SharePartitionKey,
    *,
    snapshot_epoch: int,
    leader_epoch: int,
    start_offset: int,
    delivery_complete_count: int,
    batches: Iterable[StateBatch],
) -> ShareStateRecord:
    """The record that says what has changed of a share partition."""
    value = ShareUpdateValue(
        snapshot_epoch=snapshot_epoch,
        leader_epoch=leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=delivery_complete_count,
        state_batches=_batches(batches),
    )
    return ShareStateRecord(ShareUpdateKey(**key._asdict()), value, VERSION)


def tombstone(key: SharePartitionKey) -> ShareStateRecord:
    """The record with which the state of a share partition is deleted."""
    return ShareStateRecord(ShareSnapshotKey(**key._asdict()), None, None)


def _batches(batches: Iterable[StateBatch]) -> list[share_state.StateBatch]:
    return [share_state.StateBatch(**batch._asdict()) for batch in batches]


def encode(record: ShareStateRecord) -> tuple[bytes, bytes | None]:
    """Key and value of a record."""
    if record.value is None:
        return encode_share_state_key(record.key), None
    return encode_share_state_key(record.key), encode_share_state_value(record.value)


def decode(key: Buffer, value: Buffer | None) -> ShareStateRecord | UnknownRecord:
    """The record of a key and a value. Raises `Malformed`, also for batches that are none."""
    record = decode_share_state_record(key, value)
    if isinstance(record, ShareStateRecord) and record.value is not None:
        for batch in record.value.state_batches:
            if batch.last_offset < batch.first_offset or batch.first_offset < 0:
                raise Malformed(f"a batch of the offsets {batch.first_offset} to {batch.last_offset}")
    return record
