"""CreateTopics, DeleteTopics and CreatePartitions."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.schema import (
    NO_UUID,
    Array,
    Bool,
    Int8,
    Int16,
    Int32,
    String,
    Uuid,
    api_message,
    field,
    struct,
)


@api_message(ApiKey.CREATE_TOPICS)
class CreateTopicsRequest:
    topics: Array[Topic]
    timeout_ms: Int32 = 60_000
    validate_only: Bool = False

    @struct
    class Topic:
        name: String
        num_partitions: Int32
        replication_factor: Int16
        assignments: Array[Assignment]
        configs: Array[Config]

        @struct
        class Assignment:
            partition_index: Int32
            broker_ids: Array[Int32]

        @struct
        class Config:
            name: String
            value: String | None


@api_message(ApiKey.CREATE_TOPICS)
class CreateTopicsResponse:
    throttle_time_ms: Int32 = 0
    topics: Array[Topic] = field(mirrors="topics")

    @struct
    class Topic:
        name: String
        topic_id: Uuid = field(since=7, default=NO_UUID)
        error_code: Int16 = 0
        error_message: String | None = None
        topic_config_error_code: Int16 = field(since=5, tag=0, default=0)
        num_partitions: Int32 = field(since=5, default=-1)
        replication_factor: Int16 = field(since=5, default=-1)
        configs: Array[Config] | None = field(since=5, nullable_since=5, default_factory=list)

        @struct
        class Config:
            name: String
            value: String | None
            read_only: Bool
            config_source: Int8 = -1
            is_sensitive: Bool


@api_message(ApiKey.DELETE_TOPICS)
class DeleteTopicsRequest:
    topics: Array[Topic] = field(since=6, default_factory=list)
    topic_names: Array[String] = field(until=5, default_factory=list)
    timeout_ms: Int32

    @struct
    class Topic:
        name: String | None = None
        topic_id: Uuid


@api_message(ApiKey.DELETE_TOPICS)
class DeleteTopicsResponse:
    throttle_time_ms: Int32 = 0
    responses: Array[Response] = field(mirrors=("topics", "topic_names"))

    @struct
    class Response:
        name: String | None = field(nullable_since=6)
        topic_id: Uuid = field(since=6, default=NO_UUID, mirrors="topic_id")
        error_code: Int16 = 0
        error_message: String | None = field(since=5, default=None)


@api_message(ApiKey.CREATE_PARTITIONS)
class CreatePartitionsRequest:
    topics: Array[Topic]
    timeout_ms: Int32
    validate_only: Bool

    @struct
    class Topic:
        name: String
        count: Int32
        assignments: Array[Assignment] | None

        @struct
        class Assignment:
            broker_ids: Array[Int32]


@api_message(ApiKey.CREATE_PARTITIONS)
class CreatePartitionsResponse:
    throttle_time_ms: Int32 = 0
    results: Array[Result] = field(mirrors="topics")

    @struct
    class Result:
        name: String
        error_code: Int16 = 0
        error_message: String | None = None
