"""DescribeTopicPartitions: topics with their partitions, page by page."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.messages.metadata import OPERATIONS_NOT_ASKED_FOR
from protocol.schema import NO_UUID, Array, Bool, Int16, Int32, String, Uuid, api_message, field, struct


@struct
class Cursor:
    topic_name: String
    partition_index: Int32


@api_message(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
class DescribeTopicPartitionsRequest:
    topics: Array[Topic]
    response_partition_limit: Int32 = 2000
    cursor: Cursor | None = None

    @struct
    class Topic:
        name: String


@api_message(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
class DescribeTopicPartitionsResponse:
    throttle_time_ms: Int32 = 0
    topics: Array[Topic] = field(mirrors="topics")
    next_cursor: Cursor | None = None

    @struct
    class Topic:
        error_code: Int16 = 0
        name: String | None
        topic_id: Uuid = NO_UUID
        is_internal: Bool = False
        partitions: Array[Partition]
        topic_authorized_operations: Int32 = OPERATIONS_NOT_ASKED_FOR

        @struct
        class Partition:
            error_code: Int16 = 0
            partition_index: Int32
            leader_id: Int32
            leader_epoch: Int32 = -1
            replica_nodes: Array[Int32]
            isr_nodes: Array[Int32]
            eligible_leader_replicas: Array[Int32] | None = None
            last_known_elr: Array[Int32] | None = None
            offline_replicas: Array[Int32]
