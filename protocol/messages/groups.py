"""DescribeGroups, ListGroups and DeleteGroups: groups as an administrator sees them."""

from __future__ import annotations

from protocol.messages.metadata import OPERATIONS_NOT_ASKED_FOR
from protocol.schema import Array, Bool, Bytes, Int16, Int32, String, field, message, struct


@message(key=15, versions=(0, 6), flexible_since=5)
class DescribeGroupsRequest:
    groups: Array[String]
    include_authorized_operations: Bool = field(since=3, default=False)


@message(key=15, versions=(0, 6), flexible_since=5)
class DescribeGroupsResponse:
    throttle_time_ms: Int32 = field(since=1, default=0)
    groups: Array[Group]

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


@message(key=16, versions=(0, 5), flexible_since=3)
class ListGroupsRequest:
    states_filter: Array[String] = field(since=4, default_factory=list)
    types_filter: Array[String] = field(since=5, default_factory=list)


@message(key=16, versions=(0, 5), flexible_since=3)
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


@message(key=42, versions=(0, 2), flexible_since=2)
class DeleteGroupsRequest:
    groups_names: Array[String]


@message(key=42, versions=(0, 2), flexible_since=2)
class DeleteGroupsResponse:
    throttle_time_ms: Int32 = 0
    results: Array[Result]

    @struct
    class Result:
        group_id: String
        error_code: Int16 = 0
