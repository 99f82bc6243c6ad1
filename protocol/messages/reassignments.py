"""AlterPartitionReassignments and ListPartitionReassignments: partitions that move to other brokers."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.schema import Array, Bool, Int16, Int32, String, api_message, field, struct


@api_message(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
class AlterPartitionReassignmentsRequest:
    timeout_ms: Int32 = 60_000
    allow_replication_factor_change: Bool = field(since=1, default=True)
    topics: Array[Topic]

    @struct
    class Topic:
        name: String
        partitions: Array[Partition]

        @struct
        class Partition:
            partition_index: Int32
            replicas: Array[Int32] | None = None


@api_message(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Bool = field(since=1, default=True, mirrors="allow_replication_factor_change")
    error_code: Int16 = 0
    error_message: String | None = None
    responses: Array[Response] = field(mirrors="topics")

    @struct
    class Response:
        name: String
        partitions: Array[Partition] = field(mirrors="partitions")

        @struct
        class Partition:
            partition_index: Int32
            error_code: Int16 = 0
            error_message: String | None = None


@api_message(ApiKey.LIST_PARTITION_REASSIGNMENTS)
class ListPartitionReassignmentsRequest:
    timeout_ms: Int32 = 60_000
    topics: Array[Topic] | None = None

    @struct
    class Topic:
        name: String
        partition_indexes: Array[Int32]


@api_message(ApiKey.LIST_PARTITION_REASSIGNMENTS)
class ListPartitionReassignmentsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    topics: Array[Topic]

    @struct
    class Topic:
        name: String
        partitions: Array[Partition]

        @struct
        class Partition:
            partition_index: Int32
            replicas: Array[Int32]
            adding_replicas: Array[Int32]
            removing_replicas: Array[Int32]
