"""Produce: append record batches to partitions.

Versions 0 to 2 are advertised but not served, as Kafka does it: old librdkafka looks for them to switch on features.
"""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.schema import (
    NO_UUID,
    Array,
    Int16,
    Int32,
    Int64,
    ReceivedRecords,
    String,
    Uuid,
    api_message,
    field,
    frozen_struct,
    struct,
)


@api_message(ApiKey.PRODUCE)
class ProduceRequest:
    transactional_id: String | None = None
    acks: Int16 = field(unanswered=0)
    timeout_ms: Int32
    topic_data: Array[TopicData]

    @struct
    class TopicData:
        name: String = field(until=12, default="")
        topic_id: Uuid = field(since=13, default=NO_UUID)
        partition_data: Array[PartitionData]

        @struct
        class PartitionData:
            index: Int32
            records: ReceivedRecords | None


@api_message(ApiKey.PRODUCE)
class ProduceResponse:
    responses: Array[Response] = field(mirrors="topic_data")
    throttle_time_ms: Int32 = 0
    node_endpoints: Array[NodeEndpoint] = field(since=10, tag=0, default_factory=list)

    @struct
    class Response:
        name: String = field(until=12, default="", mirrors="name")
        topic_id: Uuid = field(since=13, default=NO_UUID, mirrors="topic_id")
        partition_responses: Array[PartitionResponse] = field(mirrors="partition_data")

        @struct
        class PartitionResponse:
            @struct
            class RecordError:
                batch_index: Int32
                batch_index_error_message: String | None = None

            @frozen_struct
            class CurrentLeader:
                leader_id: Int32 = -1
                leader_epoch: Int32 = -1

            index: Int32
            error_code: Int16 = 0
            base_offset: Int64 = field(refused=-1)
            log_append_time_ms: Int64 = -1
            log_start_offset: Int64 = field(since=5, default=-1)
            record_errors: Array[RecordError] = field(since=8, default_factory=list)
            error_message: String | None = field(since=8, default=None)
            current_leader: CurrentLeader = field(since=10, tag=0, default=CurrentLeader())

    @struct
    class NodeEndpoint:
        node_id: Int32
        host: String
        port: Int32
        rack: String | None = None
