"""ListOffsets: where a partition begins and ends, and which offset a time stamp belongs to."""

from __future__ import annotations

from protocol.schema import Array, Int8, Int16, Int32, Int64, String, field, message, struct


@message(key=2, versions=(1, 11), flexible_since=6)
class ListOffsetsRequest:
    replica_id: Int32
    isolation_level: Int8 = field(since=2, default=0)
    topics: Array[Topic]
    timeout_ms: Int32 = field(since=10, default=0)

    @struct
    class Topic:
        name: String
        partitions: Array[Partition]

        @struct
        class Partition:
            partition_index: Int32
            current_leader_epoch: Int32 = field(since=4, default=-1)
            timestamp: Int64


@message(key=2, versions=(1, 11), flexible_since=6)
class ListOffsetsResponse:
    throttle_time_ms: Int32 = field(since=2, default=0)
    topics: Array[Topic]

    @struct
    class Topic:
        name: String
        partitions: Array[Partition]

        @struct
        class Partition:
            partition_index: Int32
            error_code: Int16 = 0
            timestamp: Int64 = -1
            offset: Int64 = -1
            leader_epoch: Int32 = field(since=4, default=-1)
