"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: groups of the newer protocol of consumers (KIP-848)."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.metadata import OPERATIONS_NOT_ASKED_FOR
from protocol.schema import Array, Bool, Int8, Int16, Int32, String, Uuid, api_message, field, struct


@struct
class AssignmentByName:
    topic_partitions: Array[TopicPartitionsByName]


@struct
class TopicPartitions:
    topic_id: Uuid
    partitions: Array[Int32]


@struct
class TopicPartitionsByName:
    topic_id: Uuid
    topic_name: String
    partitions: Array[Int32]


@api_message(ApiKey.CONSUMER_GROUP_HEARTBEAT)
class ConsumerGroupHeartbeatRequest:
    group_id: String
    member_id: String
    member_epoch: Int32
    instance_id: String | None = None
    rack_id: String | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: Array[String] | None = None
    subscribed_topic_regex: String | None = field(since=1, default=None)
    server_assignor: String | None = None
    topic_partitions: Array[TopicPartition] | None = None

    @struct
    class TopicPartition:
        topic_id: Uuid
        partitions: Array[Int32]


@api_message(ApiKey.CONSUMER_GROUP_HEARTBEAT)
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = field(default=None, told=(ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED_ASSIGNOR))
    member_id: String | None = None
    member_epoch: Int32 = field(refused=0)
    heartbeat_interval_ms: Int32 = field(refused=0)
    assignment: Assignment | None = None

    @struct
    class Assignment:
        topic_partitions: Array[TopicPartitions]


@api_message(ApiKey.CONSUMER_GROUP_DESCRIBE)
class ConsumerGroupDescribeRequest:
    group_ids: Array[String]
    include_authorized_operations: Bool


@api_message(ApiKey.CONSUMER_GROUP_DESCRIBE)
class ConsumerGroupDescribeResponse:
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
        assignor_name: String = field(refused="")
        members: Array[Member]
        authorized_operations: Int32 = OPERATIONS_NOT_ASKED_FOR

        @struct
        class Member:
            member_id: String
            instance_id: String | None = None
            rack_id: String | None = None
            member_epoch: Int32
            client_id: String
            client_host: String
            subscribed_topic_names: Array[String]
            subscribed_topic_regex: String | None = None
            assignment: AssignmentByName
            target_assignment: AssignmentByName
            member_type: Int8 = field(since=1, default=-1)
