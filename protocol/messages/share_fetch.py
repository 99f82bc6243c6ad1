"""ShareFetch and ShareAcknowledge: records for the members of a share group."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.schema import (
    Array,
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    String,
    Uuid,
    api_message,
    field,
    frozen_struct,
    struct,
)


@frozen_struct
class CurrentLeader:
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


@struct
class NodeEndpoint:
    node_id: Int32
    host: String
    port: Int32
    rack: String | None = None


@api_message(ApiKey.SHARE_FETCH)
class ShareFetchRequest:
    group_id: String | None = None
    member_id: String | None
    share_session_epoch: Int32
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = 2147483647
    max_records: Int32
    batch_size: Int32
    share_acquire_mode: Int8 = field(since=2, default=0)
    is_renew_ack: Bool = field(since=2, default=False)
    topics: Array[Topic]
    forgotten_topics_data: Array[ForgottenTopicsData]

    @struct
    class Topic:
        topic_id: Uuid
        partitions: Array[Partition]

        @struct
        class Partition:
            partition_index: Int32
            acknowledgement_batches: Array[AcknowledgementBatch]

            @struct
            class AcknowledgementBatch:
                first_offset: Int64
                last_offset: Int64
                acknowledge_types: Array[Int8]

    @struct
    class ForgottenTopicsData:
        topic_id: Uuid
        partitions: Array[Int32]


@api_message(ApiKey.SHARE_FETCH)
class ShareFetchResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = field(default=None, refused=None)
    acquisition_lock_timeout_ms: Int32 = field(refused=0)
    responses: Array[Response]
    node_endpoints: Array[NodeEndpoint]

    @struct
    class Response:
        topic_id: Uuid
        partitions: Array[Partition]

        @struct
        class Partition:
            partition_index: Int32
            error_code: Int16 = 0
            error_message: String | None = None
            acknowledge_error_code: Int16
            acknowledge_error_message: String | None = None
            current_leader: CurrentLeader = CurrentLeader()
            records: Records
            acquired_records: Array[AcquiredRecord]

            @struct
            class AcquiredRecord:
                first_offset: Int64
                last_offset: Int64
                delivery_count: Int16


@api_message(ApiKey.SHARE_ACKNOWLEDGE)
class ShareAcknowledgeRequest:
    group_id: String | None = None
    member_id: String | None
    share_session_epoch: Int32
    is_renew_ack: Bool = field(since=2, default=False)
    topics: Array[Topic]

    @struct
    class Topic:
        topic_id: Uuid
        partitions: Array[Partition]

        @struct
        class Partition:
            partition_index: Int32
            acknowledgement_batches: Array[AcknowledgementBatch]

            @struct
            class AcknowledgementBatch:
                first_offset: Int64
                last_offset: Int64
                acknowledge_types: Array[Int8]


@api_message(ApiKey.SHARE_ACKNOWLEDGE)
class ShareAcknowledgeResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = field(default=None, refused=None)
    acquisition_lock_timeout_ms: Int32 = field(since=2, default=0)
    responses: Array[Response]
    node_endpoints: Array[NodeEndpoint]

    @struct
    class Response:
        topic_id: Uuid
        partitions: Array[Partition]

        @struct
        class Partition:
            partition_index: Int32
            error_code: Int16 = 0
            error_message: String | None = None
            current_leader: CurrentLeader = CurrentLeader()
