"""StreamsGroupHeartbeat, StreamsGroupDescribe and StreamsGroupTopologyDescriptionUpdate (KIP-1071)."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.metadata import OPERATIONS_NOT_ASKED_FOR
from protocol.schema import Array, Bool, Int8, Int16, Int32, Int64, String, UInt16, api_message, field, struct


@struct
class Assignment:
    active_tasks: Array[TaskIds]
    standby_tasks: Array[TaskIds]
    warmup_tasks: Array[TaskIds]


@struct
class Endpoint:
    host: String
    port: UInt16


@struct
class KeyValue:
    key: String
    value: String


@struct
class Status:
    status_code: Int8
    status_detail: String


@struct
class TaskIds:
    subtopology_id: String
    partitions: Array[Int32]


@struct
class TaskOffset:
    subtopology_id: String
    partition: Int32
    offset: Int64


@struct
class TopicInfo:
    name: String
    partitions: Int32
    replication_factor: Int16
    topic_configs: Array[KeyValue]


@struct
class TopicPartition:
    topic: String
    partitions: Array[Int32]


@struct
class TopologyDescription:
    subtopologies: Array[TopologyDescriptionSubtopology]
    global_stores: Array[TopologyDescriptionGlobalStore]


@struct
class TopologyDescriptionGlobalStore:
    source: TopologyDescriptionNode
    processor: TopologyDescriptionNode


@struct
class TopologyDescriptionSubtopology:
    subtopology_id: String
    nodes: Array[TopologyDescriptionNode]


@struct
class TopologyDescriptionNode:
    name: String
    node_type: Int8
    source_topics: Array[String]
    sink_topic: String | None = None
    stores: Array[String]
    successors: Array[String]


@api_message(ApiKey.STREAMS_GROUP_HEARTBEAT)
class StreamsGroupHeartbeatRequest:
    group_id: String
    member_id: String
    member_epoch: Int32
    endpoint_information_epoch: Int32
    instance_id: String | None = None
    rack_id: String | None = None
    rebalance_timeout_ms: Int32 = -1
    topology: Topology | None = None
    active_tasks: Array[TaskIds] | None = None
    standby_tasks: Array[TaskIds] | None = None
    warmup_tasks: Array[TaskIds] | None = None
    process_id: String | None = None
    user_endpoint: Endpoint | None = None
    client_tags: Array[KeyValue] | None = None
    task_offsets: Array[TaskOffset] | None = None
    task_end_offsets: Array[TaskOffset] | None = None
    shutdown_application: Bool = False

    @struct
    class Topology:
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
            class CopartitionGroup:
                source_topics: Array[Int16]
                source_topic_regex: Array[Int16]
                repartition_source_topics: Array[Int16]


@api_message(ApiKey.STREAMS_GROUP_HEARTBEAT)
class StreamsGroupHeartbeatResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = field(
        default=None, told=(ErrorCode.INVALID_REQUEST, ErrorCode.STREAMS_INVALID_TOPOLOGY)
    )
    member_id: String = field(refused="")
    member_epoch: Int32 = field(refused=0)
    heartbeat_interval_ms: Int32 = field(refused=0)
    acceptable_recovery_lag_legacy: Int32 = field(until=0, default=0)
    task_offset_interval_ms: Int32 = field(refused=0)
    acceptable_recovery_lag: Int64 = field(since=1, default=-1)
    status: Array[Status] | None
    active_tasks: Array[TaskIds] | None = None
    standby_tasks: Array[TaskIds] | None = None
    warmup_tasks: Array[TaskIds] | None = None
    topology_description_required: Bool = field(since=1, default=False)
    endpoint_information_epoch: Int32 = field(refused=0)
    partitions_by_user_endpoint: Array[PartitionsByUserEndpoint] | None = None

    @struct
    class PartitionsByUserEndpoint:
        user_endpoint: Endpoint
        active_partitions: Array[TopicPartition]
        standby_partitions: Array[TopicPartition]


@api_message(ApiKey.STREAMS_GROUP_DESCRIBE)
class StreamsGroupDescribeRequest:
    group_ids: Array[String]
    include_authorized_operations: Bool
    include_topology_description: Bool = field(since=1, default=False)


@api_message(ApiKey.STREAMS_GROUP_DESCRIBE)
class StreamsGroupDescribeResponse:
    throttle_time_ms: Int32 = 0
    groups: Array[Group] = field(mirrors="group_ids")

    @struct
    class Group:
        error_code: Int16 = 0
        error_message: String | None = field(default=None, refused=None)
        group_id: String
        group_state: String = field(refused="")
        group_epoch: Int32 = field(refused=0)
        assignment_epoch: Int32 = field(refused=0)
        topology: Topology | None = None
        members: Array[Member]
        authorized_operations: Int32 = OPERATIONS_NOT_ASKED_FOR
        topology_description: TopologyDescription | None = field(since=1, default=None)
        topology_description_status: Int8 = field(since=1, default=0)
        assignor_name: String | None = field(since=1, default=None)

        @struct
        class Topology:
            epoch: Int32
            subtopologies: Array[Subtopology] | None = None

            @struct
            class Subtopology:
                subtopology_id: String
                source_topics: Array[String]
                repartition_sink_topics: Array[String]
                state_changelog_topics: Array[TopicInfo]
                repartition_source_topics: Array[TopicInfo]

        @struct
        class Member:
            member_id: String
            member_epoch: Int32
            instance_id: String | None = None
            rack_id: String | None = None
            client_id: String
            client_host: String
            topology_epoch: Int32
            process_id: String
            user_endpoint: Endpoint | None = None
            client_tags: Array[KeyValue]
            task_offsets: Array[TaskOffset]
            task_end_offsets: Array[TaskOffset]
            assignment: Assignment
            target_assignment: Assignment
            is_classic: Bool


@api_message(ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE)
class StreamsGroupTopologyDescriptionUpdateRequest:
    group_id: String
    member_id: String
    topology_epoch: Int32
    topology_description: TopologyDescription


@api_message(ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE)
class StreamsGroupTopologyDescriptionUpdateResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = field(default=None, told=(ErrorCode.UNSUPPORTED_VERSION,))
