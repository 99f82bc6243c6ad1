"""DescribeClientQuotas and AlterClientQuotas: how much clients may send, fetch and ask for."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.schema import Array, Bool, Float64, Int8, Int16, Int32, String, api_message, field, struct


@api_message(ApiKey.DESCRIBE_CLIENT_QUOTAS)
class DescribeClientQuotasRequest:
    components: Array[Component]
    strict: Bool

    @struct
    class Component:
        entity_type: String
        match_type: Int8
        match: String | None


@api_message(ApiKey.DESCRIBE_CLIENT_QUOTAS)
class DescribeClientQuotasResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = field(default=None, told=(ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED_VERSION))
    entries: Array[Entry] | None = field(refused=None)

    @struct
    class Entry:
        entity: Array[Entity]
        values: Array[Value]

        @struct
        class Entity:
            entity_type: String
            entity_name: String | None

        @struct
        class Value:
            key: String
            value: Float64


@api_message(ApiKey.ALTER_CLIENT_QUOTAS)
class AlterClientQuotasRequest:
    entries: Array[Entry]
    validate_only: Bool

    @struct
    class Entry:
        entity: Array[Entity]
        ops: Array[Op]

        @struct
        class Entity:
            entity_type: String
            entity_name: String | None

        @struct
        class Op:
            key: String
            value: Float64
            remove: Bool


@api_message(ApiKey.ALTER_CLIENT_QUOTAS)
class AlterClientQuotasResponse:
    throttle_time_ms: Int32 = 0
    entries: Array[Entry] = field(mirrors="entries")

    @struct
    class Entry:
        error_code: Int16 = 0
        error_message: String | None = None
        entity: Array[Entity] = field(mirrors="entity")

        @struct
        class Entity:
            entity_type: String
            entity_name: String | None
