"""ShareGroupHeartbeat and ShareGroupDescribe: groups whose members share partitions (KIP-932)."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.metadata import OPERATIONS_NOT_ASKED_FOR
from protocol.schema import Array, Bool, Int16, Int32, String, Uuid, api_message, field, struct


@struct
class DescribedAssignment:
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


@api_message(ApiKey.SHARE_GROUP_HEARTBEAT)
class ShareGroupHeartbeatRequest:
    group_id: String
    member_id: String
    member_epoch: Int32
    rack_id: String | None = None
    subscribed_topic_names: Array[String] | None = None


@api_message(ApiKey.SHARE_GROUP_HEARTBEAT)
class ShareGroupHeartbeatResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = field(default=None, told=(ErrorCode.INVALID_REQUEST,))
    member_id: String | None = None
    member_epoch: Int32 = field(refused=0)
    heartbeat_interval_ms: Int32 = field(refused=0)
    assignment: Assignment | None = None

    @struct
    class Assignment:
        topic_partitions: Array[TopicPartitions]


@api_message(ApiKey.SHARE_GROUP_DESCRIBE)
class ShareGroupDescribeRequest:
    group_ids: Array[String]
    include_authorized_operations: Bool


@api_message(ApiKey.SHARE_GROUP_DESCRIBE)
class ShareGroupDescribeResponse:
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
            rack_id: String | None = None
            member_epoch: Int32
            client_id: String
            client_host: String
            subscribed_topic_names: Array[String]
            assignment: DescribedAssignment
