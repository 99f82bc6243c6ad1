"""DescribeGroups, ListGroups and DeleteGroups: groups as an administrator sees them."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.messages.metadata import OPERATIONS_NOT_ASKED_FOR
from protocol.schema import Array, Bool, Bytes, Int16, Int32, String, api_message, field, struct


@api_message(ApiKey.DESCRIBE_GROUPS)
class DescribeGroupsRequest:
    groups: Array[String]
    include_authorized_operations: Bool = field(since=3, default=False)


@api_message(ApiKey.DESCRIBE_GROUPS)
class DescribeGroupsResponse:
    throttle_time_ms: Int32 = field(since=1, default=0)
    groups: Array[Group] = field(mirrors="groups")

    @struct
    class Group:
        error_code: Int16 = 0
        error_message: String | None = field(since=6, default=None)
        group_id: String
        group_state: String = ""
        protocol_type: String = ""
        protocol_data: String = ""
        members: Array[Member] = field(default_factory=list)
        authorized_operations: Int32 = field(since=3, default=OPERATIONS_NOT_ASKED_FOR)

        @struct
        class Member:
            member_id: String
            group_instance_id: String | None = field(since=4, default=None)
            client_id: String
            client_host: String
            member_metadata: Bytes = b""
            member_assignment: Bytes = b""


@api_message(ApiKey.LIST_GROUPS)
class ListGroupsRequest:
    states_filter: Array[String] = field(since=4, default_factory=list)
    types_filter: Array[String] = field(since=5, default_factory=list)


@api_message(ApiKey.LIST_GROUPS)
class ListGroupsResponse:
    throttle_time_ms: Int32 = field(since=1, default=0)
    error_code: Int16 = 0
    groups: Array[Group] = field(default_factory=list)

    @struct
    class Group:
        group_id: String
        protocol_type: String
        group_state: String = field(since=4, default="")
        group_type: String = field(since=5, default="")


@api_message(ApiKey.DELETE_GROUPS)
class DeleteGroupsRequest:
    groups_names: Array[String]


@api_message(ApiKey.DELETE_GROUPS)
class DeleteGroupsResponse:
    throttle_time_ms: Int32 = 0
    results: Array[Result] = field(mirrors="groups_names")

    @struct
    class Result:
        group_id: String
        error_code: Int16 = 0
        error_message: String | None = field(since=3, default=None)
