"""DescribeShareGroupOffsets, AlterShareGroupOffsets and DeleteShareGroupOffsets."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.schema import Array, Int16, Int32, Int64, String, Uuid, api_message, field, struct


@api_message(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS)
class DescribeShareGroupOffsetsRequest:
    groups: Array[Group]

    @struct
    class Group:
        group_id: String
        topics: Array[Topic] | None

        @struct
        class Topic:
            topic_name: String
            partitions: Array[Int32]


@api_message(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS)
class DescribeShareGroupOffsetsResponse:
    throttle_time_ms: Int32 = 0
    groups: Array[Group] = field(mirrors="groups")

    @struct
    class Group:
        group_id: String
        topics: Array[Topic]
        error_code: Int16 = 0
        error_message: String | None = field(default=None, refused=None)

        @struct
        class Topic:
            topic_name: String
            topic_id: Uuid
            partitions: Array[Partition]

            @struct
            class Partition:
                partition_index: Int32
                start_offset: Int64
                leader_epoch: Int32
                lag: Int64 = field(since=1, default=-1)
                error_code: Int16 = 0
                error_message: String | None = None


@api_message(ApiKey.ALTER_SHARE_GROUP_OFFSETS)
class AlterShareGroupOffsetsRequest:
    group_id: String
    topics: Array[Topic]

    @struct
    class Topic:
        topic_name: String
        partitions: Array[Partition]

        @struct
        class Partition:
            partition_index: Int32
            start_offset: Int64


@api_message(ApiKey.ALTER_SHARE_GROUP_OFFSETS)
class AlterShareGroupOffsetsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    responses: Array[Response]

    @struct
    class Response:
        topic_name: String
        topic_id: Uuid
        partitions: Array[Partition]

        @struct
        class Partition:
            partition_index: Int32
            error_code: Int16 = 0
            error_message: String | None = None


@api_message(ApiKey.DELETE_SHARE_GROUP_OFFSETS)
class DeleteShareGroupOffsetsRequest:
    group_id: String
    topics: Array[Topic]

    @struct
    class Topic:
        topic_name: String


@api_message(ApiKey.DELETE_SHARE_GROUP_OFFSETS)
class DeleteShareGroupOffsetsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    responses: Array[Response]

    @struct
    class Response:
        topic_name: String
        topic_id: Uuid
        error_code: Int16 = 0
        error_message: String | None = None
