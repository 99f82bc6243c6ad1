"""The records of ``__consumer_offsets``: committed offsets, and what the groups of every kind are made of.

How they are framed is drawn in `protocol.records.coordinator_records`. The types 9 and 18 were never given out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias, get_args

from protocol.primitives import Buffer
from protocol.records.coordinator_records import UnknownRecord, by_type, decode_record, encode_key, encode_value
from protocol.schema import (
    NO_UUID,
    Array,
    Bytes,
    Int8,
    Int16,
    Int32,
    Int64,
    String,
    UInt16,
    Uuid,
    field,
    message,
    struct,
)

# Committed offsets ----------------------------------------------------------------------------------------------------


@message(key=0, versions=(0, 0), flexible_since=None)
class LegacyOffsetCommitKey:
    """As brokers before 0.9 wrote it."""

    group: String
    topic: String
    partition: Int32


@message(key=0, versions=(0, 0), flexible_since=None)
class LegacyOffsetCommitValue:
    offset: Int64
    metadata: String
    commit_timestamp: Int64


@message(key=1, versions=(0, 0), flexible_since=None)
class OffsetCommitKey:
    group: String
    topic: String
    partition: Int32


@message(key=1, versions=(0, 4), flexible_since=4)
class OffsetCommitValue:
    offset: Int64
    leader_epoch: Int32 = field(since=3, default=-1)
    metadata: String
    commit_timestamp: Int64
    expire_timestamp: Int64 = field(since=1, until=1, default=-1)
    topic_id: Uuid = field(since=4, tag=0, default=NO_UUID)


# Classic groups -------------------------------------------------------------------------------------------------------


@message(key=2, versions=(0, 0), flexible_since=None)
class GroupMetadataKey:
    group: String


@message(key=2, versions=(0, 4), flexible_since=4)
class GroupMetadataValue:
    protocol_type: String
    generation: Int32
    protocol: String | None
    leader: String | None
    current_state_timestamp: Int64 = field(since=2, default=-1)
    members: Array[MemberMetadata]

    @struct
    class MemberMetadata:
        member_id: String
        group_instance_id: String | None = field(since=3, nullable_since=3, default=None)
        client_id: String
        client_host: String
        rebalance_timeout: Int32 = field(since=1, default=-1)
        session_timeout: Int32
        subscription: Bytes
        assignment: Bytes


# Consumer groups (KIP-848) --------------------------------------------------------------------------------------------


@message(key=3, versions=(0, 0), flexible_since=None)
class ConsumerGroupMetadataKey:
    group_id: String


@message(key=3, versions=(0, 0), flexible_since=0)
class ConsumerGroupMetadataValue:
    epoch: Int32
    metadata_hash: Int64 = field(tag=0, default=0)


@message(key=4, versions=(0, 0), flexible_since=None)
class ConsumerGroupPartitionMetadataKey:
    group_id: String


@message(key=4, versions=(0, 0), flexible_since=0)
class ConsumerGroupPartitionMetadataValue:
    """Written up to Kafka 4.0; later brokers write its tombstone only."""

    topics: Array[TopicMetadata]

    @struct
    class TopicMetadata:
        topic_id: Uuid
        topic_name: String
        num_partitions: Int32
        partition_metadata: Array[PartitionMetadata]

        @struct
        class PartitionMetadata:
            partition: Int32
            racks: Array[String]


@message(key=5, versions=(0, 0), flexible_since=None)
class ConsumerGroupMemberMetadataKey:
    group_id: String
    member_id: String


@struct
class ClassicMemberMetadata:
    """What a member brings that joined a consumer group with the classic protocol."""

    session_timeout_ms: Int32 = 0
    supported_protocols: Array[ClassicProtocol] = field(default_factory=list)

    @struct
    class ClassicProtocol:
        name: String
        metadata: Bytes


@message(key=5, versions=(0, 0), flexible_since=0)
class ConsumerGroupMemberMetadataValue:
    """Where the tag of ``classic_member_metadata`` is missing, Kafka reads an empty struct: no classic member has to be
    written as null."""

    instance_id: String | None
    rack_id: String | None
    client_id: String
    client_host: String
    subscribed_topic_names: Array[String]
    subscribed_topic_regex: String | None
    rebalance_timeout_ms: Int32 = -1
    server_assignor: String | None
    classic_member_metadata: ClassicMemberMetadata | None = field(tag=0, default_factory=ClassicMemberMetadata)


@message(key=6, versions=(0, 0), flexible_since=None)
class ConsumerGroupTargetAssignmentMetadataKey:
    group_id: String


@message(key=6, versions=(0, 0), flexible_since=0)
class ConsumerGroupTargetAssignmentMetadataValue:
    assignment_epoch: Int32
    assignment_timestamp: Int64 = field(tag=0, default=0)


@message(key=7, versions=(0, 0), flexible_since=None)
class ConsumerGroupTargetAssignmentMemberKey:
    group_id: String
    member_id: String


@message(key=7, versions=(0, 0), flexible_since=0)
class ConsumerGroupTargetAssignmentMemberValue:
    topic_partitions: Array[TopicPartition]

    @struct
    class TopicPartition:
        topic_id: Uuid
        partitions: Array[Int32]


@message(key=8, versions=(0, 0), flexible_since=None)
class ConsumerGroupCurrentMemberAssignmentKey:
    group_id: String
    member_id: String


@message(key=8, versions=(0, 0), flexible_since=0)
class ConsumerGroupCurrentMemberAssignmentValue:
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: Array[TopicPartitions]
    partitions_pending_revocation: Array[TopicPartitions]

    @struct
    class TopicPartitions:
        topic_id: Uuid
        partitions: Array[Int32]
        assignment_epochs: Array[Int32] | None = field(tag=0, default_factory=list)
        """One for each partition. A missing tag reads as an empty list here too, so "not known" is written as null."""


@message(key=16, versions=(0, 0), flexible_since=None)
class ConsumerGroupRegularExpressionKey:
    group_id: String
    regular_expression: String


@message(key=16, versions=(0, 0), flexible_since=0)
class ConsumerGroupRegularExpressionValue:
    topics: Array[String]
    version: Int64
    timestamp: Int64


# Share groups (KIP-932) -----------------------------------------------------------------------------------------------


@message(key=10, versions=(0, 0), flexible_since=None)
class ShareGroupMemberMetadataKey:
    group_id: String
    member_id: String


@message(key=10, versions=(0, 0), flexible_since=0)
class ShareGroupMemberMetadataValue:
    rack_id: String | None
    client_id: String
    client_host: String
    subscribed_topic_names: Array[String]


@message(key=11, versions=(0, 0), flexible_since=None)
class ShareGroupMetadataKey:
    group_id: String


@message(key=11, versions=(0, 0), flexible_since=0)
class ShareGroupMetadataValue:
    epoch: Int32
    metadata_hash: Int64


@message(key=12, versions=(0, 0), flexible_since=None)
class ShareGroupTargetAssignmentMetadataKey:
    group_id: String


@message(key=12, versions=(0, 0), flexible_since=0)
class ShareGroupTargetAssignmentMetadataValue:
    assignment_epoch: Int32
    assignment_timestamp: Int64 = field(tag=0, default=0)


@message(key=13, versions=(0, 0), flexible_since=None)
class ShareGroupTargetAssignmentMemberKey:
    group_id: String
    member_id: String


@message(key=13, versions=(0, 0), flexible_since=0)
class ShareGroupTargetAssignmentMemberValue:
    topic_partitions: Array[TopicPartition]

    @struct
    class TopicPartition:
        topic_id: Uuid
        partitions: Array[Int32]


@message(key=14, versions=(0, 0), flexible_since=None)
class ShareGroupCurrentMemberAssignmentKey:
    group_id: String
    member_id: String


@message(key=14, versions=(0, 0), flexible_since=0)
class ShareGroupCurrentMemberAssignmentValue:
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: Array[TopicPartitions]

    @struct
    class TopicPartitions:
        topic_id: Uuid
        partitions: Array[Int32]


@message(key=15, versions=(0, 0), flexible_since=None)
class ShareGroupStatePartitionMetadataKey:
    group_id: String


@message(key=15, versions=(0, 0), flexible_since=0)
class ShareGroupStatePartitionMetadataValue:
    initializing_topics: Array[TopicPartitionsInfo]
    initialized_topics: Array[TopicPartitionsInfo]
    deleting_topics: Array[TopicInfo]

    @struct
    class TopicPartitionsInfo:
        topic_id: Uuid
        topic_name: String
        partitions: Array[Int32]

    @struct
    class TopicInfo:
        topic_id: Uuid
        topic_name: String


# Streams groups (KIP-1071) --------------------------------------------------------------------------------------------


@message(key=17, versions=(0, 0), flexible_since=None)
class StreamsGroupMetadataKey:
    group_id: String


@message(key=17, versions=(0, 0), flexible_since=0)
class StreamsGroupMetadataValue:
    epoch: Int32
    metadata_hash: Int64
    validated_topology_epoch: Int32 = field(tag=0, default=-1)
    last_assignment_configs: Array[LastAssignmentConfig] | None = field(tag=1, default_factory=list)
    stored_description_topology_epoch: Int32 = field(tag=2, default=-1)
    failed_description_topology_epoch: Int32 = field(tag=3, default=-1)

    @struct
    class LastAssignmentConfig:
        key: String
        value: String


@message(key=19, versions=(0, 0), flexible_since=None)
class StreamsGroupMemberMetadataKey:
    group_id: String
    member_id: String


@message(key=19, versions=(0, 0), flexible_since=0)
class StreamsGroupMemberMetadataValue:
    instance_id: String | None
    rack_id: String | None
    client_id: String
    client_host: String
    rebalance_timeout_ms: Int32 = -1
    topology_epoch: Int32
    process_id: String
    user_endpoint: Endpoint | None = None
    client_tags: Array[KeyValue]

    @struct
    class Endpoint:
        host: String
        port: UInt16

    @struct
    class KeyValue:
        key: String
        value: String


@message(key=20, versions=(0, 0), flexible_since=None)
class StreamsGroupTargetAssignmentMetadataKey:
    group_id: String


@message(key=20, versions=(0, 0), flexible_since=0)
class StreamsGroupTargetAssignmentMetadataValue:
    assignment_epoch: Int32
    assignment_timestamp: Int64 = field(tag=0, default=0)


@message(key=21, versions=(0, 0), flexible_since=None)
class StreamsGroupTargetAssignmentMemberKey:
    group_id: String
    member_id: String


@message(key=21, versions=(0, 0), flexible_since=0)
class StreamsGroupTargetAssignmentMemberValue:
    active_tasks: Array[TaskIds]
    standby_tasks: Array[TaskIds]
    warmup_tasks: Array[TaskIds]

    @struct
    class TaskIds:
        subtopology_id: String
        partitions: Array[Int32]


@message(key=22, versions=(0, 0), flexible_since=None)
class StreamsGroupCurrentMemberAssignmentKey:
    group_id: String
    member_id: String


@message(key=22, versions=(0, 0), flexible_since=0)
class StreamsGroupCurrentMemberAssignmentValue:
    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    active_tasks: Array[TaskIds]
    standby_tasks: Array[TaskIds]
    warmup_tasks: Array[TaskIds]
    active_tasks_pending_revocation: Array[TaskIds]
    standby_tasks_pending_revocation: Array[TaskIds]
    warmup_tasks_pending_revocation: Array[TaskIds]

    @struct
    class TaskIds:
        subtopology_id: String
        partitions: Array[Int32]
        assignment_epochs: Array[Int32] | None = field(tag=0, default_factory=list)


@message(key=23, versions=(0, 0), flexible_since=None)
class StreamsGroupTopologyKey:
    group_id: String


@message(key=23, versions=(0, 0), flexible_since=0)
class StreamsGroupTopologyValue:
    epoch: Int32
    subtopologies: Array[Subtopology]

    @struct
    class Subtopology:
        subtopology_id: String
        source_topics: Array[String]
        source_topic_regex: Array[String]
        state_changelog_topics: Array[TopicInfo]
        repartition_sink_topics: Array[String]
        repartition_source_topics: Array[TopicInfo]
        copartition_groups: Array[CopartitionGroup]

        @struct
        class TopicInfo:
            name: String
            partitions: Int32
            replication_factor: Int16
            topic_configs: Array[TopicConfig]

            @struct
            class TopicConfig:
                key: String
                value: String

        @struct
        class CopartitionGroup:
            source_topics: Array[Int16]
            source_topic_regex: Array[Int16]
            repartition_source_topics: Array[Int16]


# Reading and writing --------------------------------------------------------------------------------------------------

GroupKey: TypeAlias = (
    LegacyOffsetCommitKey
    | OffsetCommitKey
    | GroupMetadataKey
    | ConsumerGroupMetadataKey
    | ConsumerGroupPartitionMetadataKey
    | ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMetadataKey
    | ConsumerGroupTargetAssignmentMemberKey
    | ConsumerGroupCurrentMemberAssignmentKey
    | ShareGroupMemberMetadataKey
    | ShareGroupMetadataKey
    | ShareGroupTargetAssignmentMetadataKey
    | ShareGroupTargetAssignmentMemberKey
    | ShareGroupCurrentMemberAssignmentKey
    | ShareGroupStatePartitionMetadataKey
    | ConsumerGroupRegularExpressionKey
    | StreamsGroupMetadataKey
    | StreamsGroupMemberMetadataKey
    | StreamsGroupTargetAssignmentMetadataKey
    | StreamsGroupTargetAssignmentMemberKey
    | StreamsGroupCurrentMemberAssignmentKey
    | StreamsGroupTopologyKey
)

GroupValue: TypeAlias = (
    LegacyOffsetCommitValue
    | OffsetCommitValue
    | GroupMetadataValue
    | ConsumerGroupMetadataValue
    | ConsumerGroupPartitionMetadataValue
    | ConsumerGroupMemberMetadataValue
    | ConsumerGroupTargetAssignmentMetadataValue
    | ConsumerGroupTargetAssignmentMemberValue
    | ConsumerGroupCurrentMemberAssignmentValue
    | ShareGroupMemberMetadataValue
    | ShareGroupMetadataValue
    | ShareGroupTargetAssignmentMetadataValue
    | ShareGroupTargetAssignmentMemberValue
    | ShareGroupCurrentMemberAssignmentValue
    | ShareGroupStatePartitionMetadataValue
    | ConsumerGroupRegularExpressionValue
    | StreamsGroupMetadataValue
    | StreamsGroupMemberMetadataValue
    | StreamsGroupTargetAssignmentMetadataValue
    | StreamsGroupTargetAssignmentMemberValue
    | StreamsGroupCurrentMemberAssignmentValue
    | StreamsGroupTopologyValue
)


KEY_TYPES: Final[Mapping[int, type[GroupKey]]] = by_type(get_args(GroupKey))
"""The keys known here, by the type that they begin with."""

VALUE_TYPES: Final[Mapping[int, type[GroupValue]]] = by_type(get_args(GroupValue))
"""What belongs to each of them."""


class GroupRecord(NamedTuple):
    """One record, read."""

    key: GroupKey
    value: GroupValue | None
    """None: what the key names is gone."""
    version: int | None
    """Of the value."""


def encode_group_key(key: GroupKey) -> bytes:
    """Return the key of a record."""
    return encode_key(key)


def encode_group_value(value: GroupValue, version: int) -> bytes:
    """Return the value of a record; what ``version`` has no field for is left out."""
    return encode_value(value, version)


def encode_group_record(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """Return key and value of a record; no value is a tombstone."""
    if record.value is None or record.version is None:
        return encode_key(record.key), None
    return encode_key(record.key), encode_value(record.value, record.version)


def decode_group_record(key: Buffer, value: Buffer | None) -> GroupRecord | UnknownRecord:
    """Read a record of ``__consumer_offsets``.

    Raises `Malformed` for bytes that end too early, and for bytes left over.
    """
    return decode_record(GroupRecord, KEY_TYPES, VALUE_TYPES, key, value)
