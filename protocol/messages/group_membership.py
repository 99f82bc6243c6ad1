"""JoinGroup, Heartbeat, LeaveGroup and SyncGroup: what a member asks the coordinator of its group."""

from __future__ import annotations

from protocol.api_keys import ApiKey
from protocol.schema import Array, Bool, Bytes, Int16, Int32, String, api_message, field, struct


@api_message(ApiKey.JOIN_GROUP)
class JoinGroupRequest:
    group_id: String
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = field(since=1, default=-1)
    member_id: String
    group_instance_id: String | None = field(since=5, default=None)
    protocol_type: String
    protocols: Array[Protocol]
    reason: String | None = field(since=8, default=None)

    @struct
    class Protocol:
        name: String
        metadata: Bytes


@api_message(ApiKey.JOIN_GROUP)
class JoinGroupResponse:
    throttle_time_ms: Int32 = field(since=2, default=0)
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: String | None = field(since=7, default=None)
    protocol_name: String | None = field(nullable_since=7, default="")
    leader: String = ""
    skip_assignment: Bool = field(since=9, default=False)
    member_id: String = ""
    members: Array[Member] = field(default_factory=list)

    @struct
    class Member:
        member_id: String
        group_instance_id: String | None = field(since=5, default=None)
        metadata: Bytes


@api_message(ApiKey.HEARTBEAT)
class HeartbeatRequest:
    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = field(since=3, default=None)


@api_message(ApiKey.HEARTBEAT)
class HeartbeatResponse:
    throttle_time_ms: Int32 = field(since=1, default=0)
    error_code: Int16 = 0


@api_message(ApiKey.LEAVE_GROUP)
class LeaveGroupRequest:
    group_id: String
    member_id: String = field(until=2, default="")
    members: Array[Member] = field(since=3, default_factory=list)

    @struct
    class Member:
        member_id: String
        group_instance_id: String | None = None
        reason: String | None = field(since=5, default=None)


@api_message(ApiKey.LEAVE_GROUP)
class LeaveGroupResponse:
    throttle_time_ms: Int32 = field(since=1, default=0)
    error_code: Int16 = 0
    members: Array[Member] = field(since=3, default_factory=list)

    @struct
    class Member:
        member_id: String
        group_instance_id: String | None
        error_code: Int16 = 0


@api_message(ApiKey.SYNC_GROUP)
class SyncGroupRequest:
    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = field(since=3, default=None)
    protocol_type: String | None = field(since=5, default=None)
    protocol_name: String | None = field(since=5, default=None)
    assignments: Array[Assignment]

    @struct
    class Assignment:
        member_id: String
        assignment: Bytes


@api_message(ApiKey.SYNC_GROUP)
class SyncGroupResponse:
    throttle_time_ms: Int32 = field(since=1, default=0)
    error_code: Int16 = 0
    protocol_type: String | None = field(since=5, default=None)
    protocol_name: String | None = field(since=5, default=None)
    assignment: Bytes = b""
