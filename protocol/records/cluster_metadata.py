"""The records of ``__cluster_metadata``: what makes up a cluster's state.

A record's value, its key being null:

    frame version   uvarint, 1
    type            uvarint
    version         uvarint, of the type
    message         flexible in every version
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from protocol.codec import Unencodable, decoder, encode
from protocol.primitives import Buffer, Malformed, encode_uvarint, read_uvarint
from protocol.schema import (
    Array,
    Bool,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    String,
    UInt16,
    Uuid,
    describe,
    field,
    layout,
    message,
    struct,
)

FRAME_VERSION: Final = 1
NO_LEADER: Final = -1
"""The leader of a partition that has none."""
NO_LEADER_CHANGE: Final = -2
"""`PartitionChangeRecord.leader` of a change that leaves the leader alone."""


@message(key=0, versions=(0, 4), flexible_since=0)
class RegisterBrokerRecord:
    broker_id: Int32
    is_migrating_zk_broker: Bool = field(since=2, default=False)
    incarnation_id: Uuid
    broker_epoch: Int64
    end_points: Array[EndPoint]
    features: Array[Feature]
    rack: String | None = None
    fenced: Bool = True
    in_controlled_shutdown: Bool = field(since=1, default=False)
    log_dirs: Array[Uuid] = field(since=3, tag=0, default_factory=list)
    cordoned_log_dirs: Array[Uuid] | None = field(since=4, tag=1, default=None)

    @struct
    class EndPoint:
        name: String
        host: String
        port: UInt16
        security_protocol: Int16

    @struct
    class Feature:
        name: String
        min_supported_version: Int16
        max_supported_version: Int16


@message(key=1, versions=(0, 0), flexible_since=0)
class UnregisterBrokerRecord:
    broker_id: Int32
    broker_epoch: Int64


@message(key=2, versions=(0, 0), flexible_since=0)
class TopicRecord:
    name: String
    topic_id: Uuid


@message(key=3, versions=(0, 2), flexible_since=0)
class PartitionRecord:
    partition_id: Int32 = -1
    topic_id: Uuid
    replicas: Array[Int32]
    isr: Array[Int32]
    removing_replicas: Array[Int32] = field(default_factory=list)
    adding_replicas: Array[Int32] = field(default_factory=list)
    leader: Int32 = -1
    leader_recovery_state: Int8 = field(tag=0, default=0)
    leader_epoch: Int32 = -1
    partition_epoch: Int32 = -1
    directories: Array[Uuid] = field(since=1, default_factory=list)
    eligible_leader_replicas: Array[Int32] | None = field(since=2, tag=1, default=None)
    last_known_elr: Array[Int32] | None = field(since=2, tag=2, default=None)


@message(key=4, versions=(0, 0), flexible_since=0)
class ConfigRecord:
    resource_type: Int8
    resource_name: String
    name: String
    value: String | None


@message(key=5, versions=(0, 2), flexible_since=0)
class PartitionChangeRecord:
    partition_id: Int32 = -1
    topic_id: Uuid
    isr: Array[Int32] | None = field(tag=0, default=None)
    leader: Int32 = field(tag=1, default=NO_LEADER_CHANGE)
    replicas: Array[Int32] | None = field(tag=2, default=None)
    removing_replicas: Array[Int32] | None = field(tag=3, default=None)
    adding_replicas: Array[Int32] | None = field(tag=4, default=None)
    leader_recovery_state: Int8 = field(tag=5, default=-1)
    directories: Array[Uuid] | None = field(since=1, tag=8, default=None)
    eligible_leader_replicas: Array[Int32] | None = field(since=2, tag=6, default=None)
    last_known_elr: Array[Int32] | None = field(since=2, tag=7, default=None)


@message(key=7, versions=(0, 0), flexible_since=0)
class FenceBrokerRecord:
    id: Int32
    epoch: Int64


@message(key=8, versions=(0, 0), flexible_since=0)
class UnfenceBrokerRecord:
    id: Int32
    epoch: Int64


@message(key=9, versions=(0, 0), flexible_since=0)
class RemoveTopicRecord:
    topic_id: Uuid


@message(key=10, versions=(0, 0), flexible_since=0)
class DelegationTokenRecord:
    owner: String
    requester: String
    renewers: Array[String]
    issue_timestamp: Int64
    max_timestamp: Int64
    expiration_timestamp: Int64
    token_id: String


@message(key=11, versions=(0, 0), flexible_since=0)
class UserScramCredentialRecord:
    name: String
    mechanism: Int8
    salt: Bytes
    stored_key: Bytes
    server_key: Bytes
    iterations: Int32


@message(key=12, versions=(0, 0), flexible_since=0)
class FeatureLevelRecord:
    name: String
    feature_level: Int16


@message(key=14, versions=(0, 0), flexible_since=0)
class ClientQuotaRecord:
    entity: Array[Entity]
    key: String
    value: Float64
    remove: Bool

    @struct
    class Entity:
        entity_type: String
        entity_name: String | None


@message(key=15, versions=(0, 0), flexible_since=0)
class ProducerIdsRecord:
    broker_id: Int32
    broker_epoch: Int64 = -1
    next_producer_id: Int64


@message(key=17, versions=(0, 3), flexible_since=0)
class BrokerRegistrationChangeRecord:
    """``fenced`` and ``in_controlled_shutdown``: 1 becomes so, -1 is so no longer, 0 stays as it was."""

    broker_id: Int32
    broker_epoch: Int64
    fenced: Int8 = field(tag=0, default=0)
    in_controlled_shutdown: Int8 = field(since=1, tag=1, default=0)
    log_dirs: Array[Uuid] = field(since=2, tag=2, default_factory=list)
    cordoned_log_dirs: Array[Uuid] | None = field(since=3, tag=3, default=None)


@message(key=18, versions=(0, 0), flexible_since=0)
class AccessControlEntryRecord:
    id: Uuid
    resource_type: Int8
    resource_name: String
    pattern_type: Int8
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


@message(key=19, versions=(0, 0), flexible_since=0)
class RemoveAccessControlEntryRecord:
    id: Uuid


@message(key=20, versions=(0, 0), flexible_since=0)
class NoOpRecord:
    """Says that time went by."""


@message(key=21, versions=(0, 0), flexible_since=0)
class ZkMigrationStateRecord:
    zk_migration_state: Int8


@message(key=22, versions=(0, 0), flexible_since=0)
class RemoveUserScramCredentialRecord:
    name: String
    mechanism: Int8


@message(key=23, versions=(0, 0), flexible_since=0)
class BeginTransactionRecord:
    name: String | None = field(tag=0, default=None)


@message(key=24, versions=(0, 0), flexible_since=0)
class EndTransactionRecord:
    """What stands since the `BeginTransactionRecord` is true from here on."""


@message(key=25, versions=(0, 0), flexible_since=0)
class AbortTransactionRecord:
    reason: String | None = field(tag=0, default=None)


@message(key=26, versions=(0, 0), flexible_since=0)
class RemoveDelegationTokenRecord:
    token_id: String


@message(key=27, versions=(0, 0), flexible_since=0)
class RegisterControllerRecord:
    controller_id: Int32
    incarnation_id: Uuid
    zk_migration_ready: Bool
    end_points: Array[EndPoint]
    features: Array[Feature]

    @struct
    class EndPoint:
        name: String
        host: String
        port: UInt16
        security_protocol: Int16

    @struct
    class Feature:
        name: String
        min_supported_version: Int16
        max_supported_version: Int16


@message(key=28, versions=(0, 0), flexible_since=0)
class ClearElrRecord:
    topic_name: String


@message(key=29, versions=(0, 0), flexible_since=0)
class UnregisterControllerRecord:
    controller_id: Int32


class UnknownRecord(NamedTuple):
    """A record of a type or version that is not known here: kept, and written back as it came."""

    key: int
    version: int
    raw: bytes
    """The whole value, its frame included."""


MetadataRecord: TypeAlias = (
    RegisterBrokerRecord
    | UnregisterBrokerRecord
    | TopicRecord
    | PartitionRecord
    | ConfigRecord
    | PartitionChangeRecord
    | FenceBrokerRecord
    | UnfenceBrokerRecord
    | RemoveTopicRecord
    | DelegationTokenRecord
    | UserScramCredentialRecord
    | FeatureLevelRecord
    | ClientQuotaRecord
    | ProducerIdsRecord
    | BrokerRegistrationChangeRecord
    | AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | NoOpRecord
    | ZkMigrationStateRecord
    | RemoveUserScramCredentialRecord
    | BeginTransactionRecord
    | EndTransactionRecord
    | AbortTransactionRecord
    | RemoveDelegationTokenRecord
    | RegisterControllerRecord
    | ClearElrRecord
    | UnregisterControllerRecord
)

RECORD_TYPES: Final[Mapping[int, type[MetadataRecord]]] = {
    describe(cls).key: cls
    for cls in (
        RegisterBrokerRecord,
        UnregisterBrokerRecord,
        TopicRecord,
        PartitionRecord,
        ConfigRecord,
        PartitionChangeRecord,
        FenceBrokerRecord,
        UnfenceBrokerRecord,
        RemoveTopicRecord,
        DelegationTokenRecord,
        UserScramCredentialRecord,
        FeatureLevelRecord,
        ClientQuotaRecord,
        ProducerIdsRecord,
        BrokerRegistrationChangeRecord,
        AccessControlEntryRecord,
        RemoveAccessControlEntryRecord,
        NoOpRecord,
        ZkMigrationStateRecord,
        RemoveUserScramCredentialRecord,
        BeginTransactionRecord,
        EndTransactionRecord,
        AbortTransactionRecord,
        RemoveDelegationTokenRecord,
        RegisterControllerRecord,
        ClearElrRecord,
        UnregisterControllerRecord,
    )
}
"""The types of records known here, by the number that stands in their frame."""


def encode_record(record: MetadataRecord | UnknownRecord, version: int) -> bytes:
    """Return the value of a record in its frame; an unknown one goes out as it came in, whatever ``version`` is.

    Raises `Unencodable` where a field holds something that ``version`` has no place for: what an answer may leave out,
    a log must not lose.
    """
    if isinstance(record, UnknownRecord):
        return record.raw
    for left_out in layout(type(record)):
        if not left_out.is_in(version) and getattr(record, left_out.name) != left_out.make_default():
            raise Unencodable(
                f"{type(record).__name__} version {version} has no field for "
                f"{left_out.name}={getattr(record, left_out.name)!r}; it begins with version {left_out.since}"
            )
    frame = encode_uvarint(FRAME_VERSION) + encode_uvarint(describe(type(record)).key) + encode_uvarint(version)
    return frame + encode(record, version)


def decode_record(value: Buffer) -> tuple[MetadataRecord | UnknownRecord, int]:
    """Read a record's value; return it with the version it stood there in.

    Raises `Malformed` for another frame version, for bytes that end too early, and for bytes left over.
    """
    try:
        frame_version, position = read_uvarint(value, 0)
        if frame_version != FRAME_VERSION:
            raise Malformed(f"a metadata record has frame version {frame_version}, expected {FRAME_VERSION}")
        key, position = read_uvarint(value, position)
        version, position = read_uvarint(value, position)
    except IndexError as problem:
        raise Malformed(f"a metadata record of {len(value)} bytes ends inside its frame") from problem
    cls: type[Any] | None = RECORD_TYPES.get(key)
    if cls is None or version > describe(cls).versions[1]:
        return UnknownRecord(key=key, version=version, raw=bytes(value)), version
    record, end = decoder(cls, version)(value, position)
    if end != len(value):
        raise Malformed(f"{len(value) - end} bytes are left over behind a {cls.__name__} of version {version}")
    return record, version
