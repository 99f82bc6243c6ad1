"""OffsetForLeaderEpoch: where a leader epoch ends, so that a log or a consumer can find where histories part."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.schema import Array, Int16, Int32, Int64, String, api_message, field, struct


@api_message(ApiKey.OFFSET_FOR_LEADER_EPOCH)
class OffsetForLeaderEpochRequest:
    replica_id: Int32 = field(since=3, default=-2)
    topics: Array[Topic]

    @struct
    class Topic:
        topic: String
        partitions: Array[Partition]

        @struct
        class Partition:
            partition: Int32
            current_leader_epoch: Int32 = -1
            leader_epoch: Int32


@api_message(ApiKey.OFFSET_FOR_LEADER_EPOCH)
class OffsetForLeaderEpochResponse:
    throttle_time_ms: Int32 = 0
    topics: Array[Topic] = field(mirrors="topics")

    @struct
    class Topic:
        topic: String
        partitions: Array[Partition] = field(mirrors="partitions")

        @struct
        class Partition:
            error_code: Int16 = 0
            partition: Int32
            leader_epoch: Int32 = -1
            end_offset: Int64 = -1
