"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs: the settings of topics, brokers, loggers and groups."""

from __future__ import annotations

from protocol.schema import Array, Bool, Int8, Int16, Int32, String, field, message, struct


@message(key=32, versions=(1, 4), flexible_since=4)
class DescribeConfigsRequest:
    resources: Array[Resource]
    include_synonyms: Bool = False
    include_documentation: Bool = field(since=3, default=False)

    @struct
    class Resource:
        resource_type: Int8
        resource_name: String
        configuration_keys: Array[String] | None


@message(key=32, versions=(1, 4), flexible_since=4)
class DescribeConfigsResponse:
    throttle_time_ms: Int32 = 0
    results: Array[Result]

    @struct
    class Result:
        error_code: Int16 = 0
        error_message: String | None = None
        resource_type: Int8
        resource_name: String
        configs: Array[Config]

        @struct
        class Config:
            name: String
            value: String | None
            read_only: Bool
            config_source: Int8 = -1
            is_sensitive: Bool
            synonyms: Array[Synonym] = field(default_factory=list)
            config_type: Int8 = field(since=3, default=0)
            documentation: String | None = field(since=3, default=None)

            @struct
            class Synonym:
                name: String
                value: String | None
                source: Int8


@message(key=33, versions=(0, 2), flexible_since=2)
class AlterConfigsRequest:
    resources: Array[Resource]
    validate_only: Bool = False

    @struct
    class Resource:
        resource_type: Int8
        resource_name: String
        configs: Array[Config]

        @struct
        class Config:
            name: String
            value: String | None


@message(key=33, versions=(0, 2), flexible_since=2)
class AlterConfigsResponse:
    throttle_time_ms: Int32 = 0
    responses: Array[Response]

    @struct
    class Response:
        error_code: Int16 = 0
        error_message: String | None = None
        resource_type: Int8
        resource_name: String


@message(key=44, versions=(0, 1), flexible_since=1)
class IncrementalAlterConfigsRequest:
    resources: Array[Resource]
    validate_only: Bool = False

    @struct
    class Resource:
        resource_type: Int8
        resource_name: String
        configs: Array[Config]

        @struct
        class Config:
            name: String
            config_operation: Int8
            value: String | None


@message(key=44, versions=(0, 1), flexible_since=1)
class IncrementalAlterConfigsResponse:
    throttle_time_ms: Int32 = 0
    responses: Array[Response]

    @struct
    class Response:
        error_code: Int16 = 0
        error_message: String | None = None
        resource_type: Int8
        resource_name: String
