"""DeleteRecords: move the beginning of partitions forward."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.schema import Array, Int16, Int32, Int64, String, api_message, field, struct


@api_message(ApiKey.DELETE_RECORDS)
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


@api_message(ApiKey.DELETE_RECORDS)
class DeleteRecordsResponse:
    throttle_time_ms: Int32 = 0
    topics: Array[Topic] = field(mirrors="topics")

    @struct
    class Topic:
        name: String
        partitions: Array[Partition] = field(mirrors="partitions")

        @struct
        class Partition:
            partition_index: Int32
            low_watermark: Int64 = field(refused=-1)
            error_code: Int16 = 0
