"""DescribeProducers: which producers a partition knows."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.schema import Array, Int16, Int32, Int64, String, api_message, field, struct


@api_message(ApiKey.DESCRIBE_PRODUCERS)
class DescribeProducersRequest:
    topics: Array[Topic]

    @struct
    class Topic:
        name: String
        partition_indexes: Array[Int32]


@api_message(ApiKey.DESCRIBE_PRODUCERS)
class DescribeProducersResponse:
    throttle_time_ms: Int32 = 0
    topics: Array[Topic] = field(mirrors="topics")

    @struct
    class Topic:
        name: String
        partitions: Array[Partition] = field(mirrors="partition_indexes")

        @struct
        class Partition:
            partition_index: Int32
            error_code: Int16 = 0
            error_message: String | None = None
            active_producers: Array[ActiveProducer]

            @struct
            class ActiveProducer:
                producer_id: Int64
                producer_epoch: Int32
                last_sequence: Int32 = -1
                last_timestamp: Int64 = -1
                coordinator_epoch: Int32
                current_txn_start_offset: Int64 = -1
