"""The records of ``__share_group_state``: how far each share group has come in each partition (KIP-932).

A snapshot says all that is known of a share partition, an update what has changed since. How records are framed is
drawn in `protocol.records.coordinator_records`.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from protocol.primitives import Buffer
from protocol.records.coordinator_records import UnknownRecord, by_type, decode_record, encode_key, encode_value
from protocol.schema import Array, Int8, Int16, Int32, Int64, String, Uuid, field, message, struct


@message(key=0, versions=(0, 0), flexible_since=None)
class ShareSnapshotKey:
    group_id: String
    topic_id: Uuid
    partition: Int32


@message(key=1, versions=(0, 0), flexible_since=None)
class ShareUpdateKey:
    group_id: String
    topic_id: Uuid
    partition: Int32


@struct
class StateBatch:
    first_offset: Int64
    last_offset: Int64
    delivery_state: Int8
    delivery_count: Int16


@message(key=0, versions=(0, 0), flexible_since=0)
class ShareSnapshotValue:
    snapshot_epoch: Int32
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = field(tag=0, default=-1)
    create_timestamp: Int64
    write_timestamp: Int64
    state_batches: Array[StateBatch]


@message(key=1, versions=(0, 0), flexible_since=0)
class ShareUpdateValue:
    snapshot_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = field(tag=0, default=-1)
    state_batches: Array[StateBatch]


ShareStateKey: TypeAlias = ShareSnapshotKey | ShareUpdateKey
ShareStateValue: TypeAlias = ShareSnapshotValue | ShareUpdateValue


class ShareStateRecord(NamedTuple):
    """One record, read."""

    key: ShareStateKey
    value: ShareStateValue | None
    """None behind the key of a snapshot: the state is deleted."""
    version: int | None
    """Of the value."""


_KEY_TYPES: Final = by_type((ShareSnapshotKey, ShareUpdateKey))
_VALUE_TYPES: Final = by_type((ShareSnapshotValue, ShareUpdateValue))


def encode_share_state_key(key: ShareStateKey) -> bytes:
    """Return the key of a record."""
    return encode_key(key)


def encode_share_state_value(value: ShareStateValue, version: int = 0) -> bytes:
    """Return the value of a record."""
    return encode_value(value, version)


def decode_share_state_record(key: Buffer, value: Buffer | None) -> ShareStateRecord | UnknownRecord:
    """Read a record of ``__share_group_state``.

    Raises `Malformed` for bytes that end too early, and for bytes left over.
    """
    return decode_record(ShareStateRecord, _KEY_TYPES, _VALUE_TYPES, key, value)
