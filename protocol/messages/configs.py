"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs: the settings of topics, brokers, loggers and groups."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.schema import Array, Bool, Int8, Int16, Int32, String, api_message, field, struct


@api_message(ApiKey.DESCRIBE_CONFIGS)
class DescribeConfigsRequest:
    resources: Array[Resource]
    include_synonyms: Bool = False
    include_documentation: Bool = field(since=3, default=False)

    @struct
    class Resource:
        resource_type: Int8
        resource_name: String
        configuration_keys: Array[String] | None


@api_message(ApiKey.DESCRIBE_CONFIGS)
class DescribeConfigsResponse:
    throttle_time_ms: Int32 = 0
    results: Array[Result] = field(mirrors="resources")

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


@api_message(ApiKey.ALTER_CONFIGS)
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


@api_message(ApiKey.ALTER_CONFIGS)
class AlterConfigsResponse:
    throttle_time_ms: Int32 = 0
    responses: Array[Response] = field(mirrors="resources")

    @struct
    class Response:
        error_code: Int16 = 0
        error_message: String | None = None
        resource_type: Int8
        resource_name: String


@api_message(ApiKey.INCREMENTAL_ALTER_CONFIGS)
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


@api_message(ApiKey.INCREMENTAL_ALTER_CONFIGS)
class IncrementalAlterConfigsResponse:
    throttle_time_ms: Int32 = 0
    responses: Array[Response] = field(mirrors="resources")

    @struct
    class Response:
        error_code: Int16 = 0
        error_message: String | None = None
        resource_type: Int8
        resource_name: String
