"""ListOffsets: where a partition begins and ends, and which offset a time stamp belongs to."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.schema import Array, Int8, Int16, Int32, Int64, String, api_message, field, struct


@api_message(ApiKey.LIST_OFFSETS)
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


@api_message(ApiKey.LIST_OFFSETS)
class ListOffsetsResponse:
    throttle_time_ms: Int32 = field(since=2, default=0)
    topics: Array[Topic] = field(mirrors="topics")

    @struct
    class Topic:
        name: String
        partitions: Array[Partition] = field(mirrors="partitions")

        @struct
        class Partition:
            partition_index: Int32
            error_code: Int16 = 0
            timestamp: Int64 = -1
            offset: Int64 = -1
            leader_epoch: Int32 = field(since=4, default=-1)
