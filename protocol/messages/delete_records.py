"""DeleteRecords: move the beginning of partitions forward."""

from __future__ import annotations

from protocol.schema import Array, Int16, Int32, Int64, String, message, struct


@message(key=21, versions=(0, 2), flexible_since=2)
class DeleteRecordsRequest:
    topics: Array[Topic]
    timeout_ms: Int32

    @struct
    class Topic:
        name: String
        partitions: Array[Partition]

        @struct
        class Partition:
            partition_index: Int32
            offset: Int64


@message(key=21, versions=(0, 2), flexible_since=2)
class DeleteRecordsResponse:
    throttle_time_ms: Int32 = 0
    topics: Array[Topic]

    @struct
    class Topic:
        name: String
        partitions: Array[Partition]

        @struct
        class Partition:
            partition_index: Int32
            low_watermark: Int64
            error_code: Int16 = 0
