"""ListPartitionReassignments: which partitions are moving to other brokers."""

from __future__ import annotations

from protocol.schema import Array, Int16, Int32, String, message, struct


@message(key=46, versions=(0, 0), flexible_since=0)
class ListPartitionReassignmentsRequest:
    timeout_ms: Int32 = 60_000
    topics: Array[Topic] | None = None

    @struct
    class Topic:
        name: String
        partition_indexes: Array[Int32]


@message(key=46, versions=(0, 0), flexible_since=0)
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
