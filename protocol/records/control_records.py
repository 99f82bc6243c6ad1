"""Control records: what a log says about itself, in batches that consumers skip.

key     version   i16, 0
        type      i16
value   version   i16
        fields    of the type: an end of a transaction is not flexible, all others are
"""

from __future__ import annotations

import struct as binary
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final, TypeAlias

from protocol.codec import decode, encode
from protocol.primitives import Buffer, Malformed
from protocol.schema import NO_UUID, Array, Int16, Int32, Int64, String, UInt16, Uuid, describe, field, message, struct

_KEY: Final = binary.Struct(">hh")
_VERSION: Final = binary.Struct(">h")


class ControlRecordType(IntEnum):
    """What a control record is about, by the number in its key."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@message(key=ControlRecordType.COMMIT, versions=(0, 0), flexible_since=None)
class EndTransactionMarker:
    """The value of both ends of a transaction, `ControlRecordType.ABORT` and `ControlRecordType.COMMIT`."""

    version: Int16 = 0
    coordinator_epoch: Int32


@message(key=ControlRecordType.LEADER_CHANGE, versions=(0, 1), flexible_since=0)
class LeaderChange:
    version: Int16 = 0
    leader_id: Int32
    voters: Array[Voter]
    granting_voters: Array[Voter]

    @struct
    class Voter:
        voter_id: Int32
        voter_directory_id: Uuid = field(since=1, default=NO_UUID)


@message(key=ControlRecordType.SNAPSHOT_HEADER, versions=(0, 0), flexible_since=0)
class SnapshotHeader:
    version: Int16 = 0
    last_contained_log_timestamp: Int64


@message(key=ControlRecordType.SNAPSHOT_FOOTER, versions=(0, 0), flexible_since=0)
class SnapshotFooter:
    version: Int16 = 0


@message(key=ControlRecordType.KRAFT_VERSION, versions=(0, 0), flexible_since=0)
class KRaftVersion:
    version: Int16 = 0
    kraft_version: Int16


@message(key=ControlRecordType.KRAFT_VOTERS, versions=(0, 0), flexible_since=0)
class KRaftVoters:
    version: Int16 = 0
    voters: Array[Voter]

    @struct
    class Voter:
        voter_id: Int32
        voter_directory_id: Uuid
        endpoints: Array[Endpoint]
        kraft_version_feature: KRaftVersionFeature

        @struct
        class Endpoint:
            name: String
            host: String
            port: UInt16

        @struct
        class KRaftVersionFeature:
            min_supported_version: Int16
            max_supported_version: Int16


ControlRecord: TypeAlias = (
    EndTransactionMarker | LeaderChange | SnapshotHeader | SnapshotFooter | KRaftVersion | KRaftVoters
)

_VALUES: Final[Mapping[ControlRecordType, type[ControlRecord]]] = {
    ControlRecordType.ABORT: EndTransactionMarker,
    ControlRecordType.COMMIT: EndTransactionMarker,
    ControlRecordType.LEADER_CHANGE: LeaderChange,
    ControlRecordType.SNAPSHOT_HEADER: SnapshotHeader,
    ControlRecordType.SNAPSHOT_FOOTER: SnapshotFooter,
    ControlRecordType.KRAFT_VERSION: KRaftVersion,
    ControlRecordType.KRAFT_VOTERS: KRaftVoters,
}


def encode_control_key(record_type: ControlRecordType) -> bytes:
    """Return the key of a control record."""
    return _KEY.pack(0, record_type)


def decode_control_key(key: Buffer) -> ControlRecordType | None:
    """Return what a control record is about; None for a type not known here, which is to be skipped.

    A key of a later version begins like ours. Raises `Malformed`.
    """
    if len(key) < _KEY.size:
        raise Malformed(f"the key of a control record has {len(key)} bytes, expected {_KEY.size}")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise Malformed(f"the key of a control record has version {version}")
    try:
        return ControlRecordType(number)
    except ValueError:
        return None


def encode_control_value(record: ControlRecord) -> bytes:
    """Return the value of a control record in the version that it names itself."""
    return encode(record, record.version)


def decode_control_value(record_type: ControlRecordType, value: Buffer) -> ControlRecord:
    """Read the value of a control record.

    A marker of a transaction in a later version is read as far as ours goes. Raises `Malformed`.
    """
    if len(value) < _VERSION.size:
        raise Malformed(f"the value of a {record_type.name} record has {len(value)} bytes and no version")
    (version,) = _VERSION.unpack_from(value)
    cls: type[Any] = _VALUES[record_type]
    newest = describe(cls).versions[1]
    if cls is EndTransactionMarker:
        version = min(version, newest)
    if not 0 <= version <= newest:
        raise Malformed(f"the value of a {record_type.name} record has version {version}, known are 0 to {newest}")
    record: ControlRecord = decode(cls, version, value)
    return record
