"""DescribeAcls, CreateAcls and DeleteAcls: who may do what."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.schema import Array, Int8, Int16, Int32, String, api_message, field, struct


@api_message(ApiKey.DESCRIBE_ACLS)
class DescribeAclsRequest:
    resource_type_filter: Int8
    resource_name_filter: String | None
    pattern_type_filter: Int8 = 3
    principal_filter: String | None
    host_filter: String | None
    operation: Int8
    permission_type: Int8


@api_message(ApiKey.DESCRIBE_ACLS)
class DescribeAclsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    resources: Array[Resource]

    @struct
    class Resource:
        resource_type: Int8
        resource_name: String
        pattern_type: Int8 = 3
        acls: Array[Acl]

        @struct
        class Acl:
            principal: String
            host: String
            operation: Int8
            permission_type: Int8


@api_message(ApiKey.CREATE_ACLS)
class CreateAclsRequest:
    creations: Array[Creation]

    @struct
    class Creation:
        resource_type: Int8
        resource_name: String
        resource_pattern_type: Int8 = 3
        principal: String
        host: String
        operation: Int8
        permission_type: Int8


@api_message(ApiKey.CREATE_ACLS)
class CreateAclsResponse:
    throttle_time_ms: Int32 = 0
    results: Array[Result] = field(mirrors="creations")

    @struct
    class Result:
        error_code: Int16 = 0
        error_message: String | None = None


@api_message(ApiKey.DELETE_ACLS)
class DeleteAclsRequest:
    filters: Array[Filter]

    @struct
    class Filter:
        resource_type_filter: Int8
        resource_name_filter: String | None
        pattern_type_filter: Int8 = 3
        principal_filter: String | None
        host_filter: String | None
        operation: Int8
        permission_type: Int8


@api_message(ApiKey.DELETE_ACLS)
class DeleteAclsResponse:
    throttle_time_ms: Int32 = 0
    filter_results: Array[FilterResult] = field(mirrors="filters")

    @struct
    class FilterResult:
        error_code: Int16 = 0
        error_message: String | None = None
        matching_acls: Array[MatchingAcl]

        @struct
        class MatchingAcl:
            error_code: Int16 = 0
            error_message: String | None = None
            resource_type: Int8
            resource_name: String
            pattern_type: Int8 = 3
            principal: String
            host: String
            operation: Int8
            permission_type: Int8
