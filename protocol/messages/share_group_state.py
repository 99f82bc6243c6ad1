"""What the coordinator of a share group asks the keeper of its state, five APIs."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.schema import Array, Int8, Int16, Int32, Int64, String, Uuid, api_message, field, struct


@api_message(ApiKey.INITIALIZE_SHARE_GROUP_STATE)
class InitializeShareGroupStateRequest:
    group_id: String
    topics: Array[Topic]

    @struct
    class Topic:
        topic_id: Uuid
        partitions: Array[Partition]

        @struct
        class Partition:
            partition: Int32
            state_epoch: Int32
            start_offset: Int64


@api_message(ApiKey.INITIALIZE_SHARE_GROUP_STATE)
class InitializeShareGroupStateResponse:
    results: Array[Result] = field(mirrors="topics")

    @struct
    class Result:
        topic_id: Uuid
        partitions: Array[Partition] = field(mirrors="partitions")

        @struct
        class Partition:
            partition: Int32
            error_code: Int16 = 0
            error_message: String | None = None


@api_message(ApiKey.READ_SHARE_GROUP_STATE)
class ReadShareGroupStateRequest:
    group_id: String
    topics: Array[Topic]

    @struct
    class Topic:
        topic_id: Uuid
        partitions: Array[Partition]

        @struct
        class Partition:
            partition: Int32
            leader_epoch: Int32


@api_message(ApiKey.READ_SHARE_GROUP_STATE)
class ReadShareGroupStateResponse:
    results: Array[Result] = field(mirrors="topics")

    @struct
    class Result:
        topic_id: Uuid
        partitions: Array[Partition] = field(mirrors="partitions")

        @struct
        class Partition:
            partition: Int32
            error_code: Int16 = 0
            error_message: String | None = None
            state_epoch: Int32 = field(refused=0)
            start_offset: Int64 = field(refused=0)
            state_batches: Array[StateBatch]

            @struct
            class StateBatch:
                first_offset: Int64
                last_offset: Int64
                delivery_state: Int8
                delivery_count: Int16


@api_message(ApiKey.WRITE_SHARE_GROUP_STATE)
class WriteShareGroupStateRequest:
    group_id: String
    topics: Array[Topic]

    @struct
    class Topic:
        topic_id: Uuid
        partitions: Array[Partition]

        @struct
        class Partition:
            partition: Int32
            state_epoch: Int32
            leader_epoch: Int32
            start_offset: Int64
            delivery_complete_count: Int32 = field(since=1, default=-1)
            state_batches: Array[StateBatch]

            @struct
            class StateBatch:
                first_offset: Int64
                last_offset: Int64
                delivery_state: Int8
                delivery_count: Int16


@api_message(ApiKey.WRITE_SHARE_GROUP_STATE)
class WriteShareGroupStateResponse:
    results: Array[Result] = field(mirrors="topics")

    @struct
    class Result:
        topic_id: Uuid
        partitions: Array[Partition] = field(mirrors="partitions")

        @struct
        class Partition:
            partition: Int32
            error_code: Int16 = 0
            error_message: String | None = None


@api_message(ApiKey.DELETE_SHARE_GROUP_STATE)
class DeleteShareGroupStateRequest:
    group_id: String
    topics: Array[Topic]

    @struct
    class Topic:
        topic_id: Uuid
        partitions: Array[Partition]

        @struct
        class Partition:
            partition: Int32


@api_message(ApiKey.DELETE_SHARE_GROUP_STATE)
class DeleteShareGroupStateResponse:
    results: Array[Result] = field(mirrors="topics")

    @struct
    class Result:
        topic_id: Uuid
        partitions: Array[Partition] = field(mirrors="partitions")

        @struct
        class Partition:
            partition: Int32
            error_code: Int16 = 0
            error_message: String | None = None


@api_message(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY)
class ReadShareGroupStateSummaryRequest:
    group_id: String
    topics: Array[Topic]

    @struct
    class Topic:
        topic_id: Uuid
        partitions: Array[Partition]

        @struct
        class Partition:
            partition: Int32
            leader_epoch: Int32


@api_message(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY)
class ReadShareGroupStateSummaryResponse:
    results: Array[Result] = field(mirrors="topics")

    @struct
    class Result:
        topic_id: Uuid
        partitions: Array[Partition] = field(mirrors="partitions")

        @struct
        class Partition:
            partition: Int32
            error_code: Int16 = 0
            error_message: String | None = None
            state_epoch: Int32 = field(refused=0)
            leader_epoch: Int32 = field(refused=0)
            start_offset: Int64 = field(refused=0)
            delivery_complete_count: Int32 = field(since=1, default=-1)
