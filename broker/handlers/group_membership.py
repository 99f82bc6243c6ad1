"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: being a member of a group (API keys 11 to 14; KIP-62, KIP-345)."""

from typing import Final

from broker.coordinators.group.requests import (
    Heartbeat,
    Join,
    Joined,
    LeavingMember,
    Left,
    Protocol,
    Sync,
    Synced,
)
from broker.coordinators.group_coordinator import Groups
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import CoordinatorLoadInProgress, Fault, GroupAuthorizationFailed, InvalidGroupId
from protocol.errors import ErrorCode
from protocol.messages.group_membership import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

REBALANCE_TIMEOUT_SINCE_VERSION: Final = 1
MEMBER_ID_REQUIRED_SINCE_VERSION: Final = 4
NO_PROTOCOL_IS_NULL_SINCE_VERSION: Final = 7
SKIP_ASSIGNMENT_SINCE_VERSION: Final = 9

PROTOCOL_NAMED_SINCE_VERSION: Final = 5
"""Of SyncGroup."""

MANY_MEMBERS_SINCE_VERSION: Final = 3
"""Of LeaveGroup."""


class GroupMembershipHandler:
    """Asks the coordinator of the group."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def join_group(self, request: JoinGroupRequest, context: RequestContext) -> None:
        """Take part in the next generation; answered when that is complete."""
        version = context.api_version
        try:
            _check(request.group_id, context)
            coordinator = self._groups.of(request.group_id)
        except Fault as fault:
            context.respond(_joined(Joined(error=fault.code), version))
            return
        join = Join(
            group_id=request.group_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            client_id=context.client_id or "",
            client_host=f"/{context.peer.host}",
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=(
                request.rebalance_timeout_ms
                if version >= REBALANCE_TIMEOUT_SINCE_VERSION
                else request.session_timeout_ms
            ),
            protocol_type=request.protocol_type,
            protocols=[Protocol(protocol.name, protocol.metadata) for protocol in request.protocols],
            needs_known_id=version >= MEMBER_ID_REQUIRED_SINCE_VERSION,
            may_skip_assignment=version >= SKIP_ASSIGNMENT_SINCE_VERSION,
            reason=request.reason or "",
        )
        coordinator.write(coordinator.shard.join(join, lambda joined: context.respond(_joined(joined, version))))

    def sync_group(self, request: SyncGroupRequest, context: RequestContext) -> SyncGroupResponse | None:
        """Tell a member its part; answered when its leader has brought the assignment."""
        if context.api_version >= PROTOCOL_NAMED_SINCE_VERSION and None in (
            request.protocol_type,
            request.protocol_name,
        ):
            return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        _check(request.group_id, context)
        coordinator = self._groups.of(request.group_id)
        sync = Sync(
            group_id=request.group_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation=request.generation_id,
            protocol_type=request.protocol_type,
            protocol=request.protocol_name,
            assignments={assigned.member_id: assigned.assignment for assigned in request.assignments},
        )
        coordinator.write(coordinator.shard.sync(sync, lambda synced: context.respond(_synced(synced))))
        return None

    def heartbeat(self, request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
        """A member is alive; the answer may tell it to join again."""
        _check(request.group_id, context)
        try:
            coordinator = self._groups.of(request.group_id)
        except CoordinatorLoadInProgress:
            # All sessions begin anew when the group is loaded.
            return HeartbeatResponse()
        heartbeat = Heartbeat(
            group_id=request.group_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation=request.generation_id,
        )
        return HeartbeatResponse(error_code=coordinator.shard.heartbeat(heartbeat))

    def leave_group(self, request: LeaveGroupRequest, context: RequestContext) -> None:
        """Let members go: the client itself, or those that an administrator names."""
        _check(request.group_id, context)
        coordinator = self._groups.of(request.group_id)
        if context.api_version >= MANY_MEMBERS_SINCE_VERSION:
            members = [
                LeavingMember(member.member_id, member.group_instance_id, member.reason or "")
                for member in request.members
            ]
        else:
            members = [LeavingMember(request.member_id)]
        version = context.api_version
        coordinator.write(
            coordinator.shard.leave(
                request.group_id, members, lambda left: context.respond(_left(left, members, version))
            )
        )


def _check(group_id: str, context: RequestContext) -> None:
    """Raises `GroupAuthorizationFailed`, `InvalidGroupId`."""
    if not context.may(Operation.READ, ResourceType.GROUP, group_id):
        raise GroupAuthorizationFailed(f"{context.session.principal} may not be a member of group {group_id!r}")
    if not group_id:
        raise InvalidGroupId("a group has a name")


def _joined(joined: Joined, version: int) -> JoinGroupResponse:
    no_protocol = None if version >= NO_PROTOCOL_IS_NULL_SINCE_VERSION else ""
    return JoinGroupResponse(
        error_code=joined.error,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol or no_protocol,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=[
            JoinGroupResponse.Member(
                member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
            )
            for member in joined.members
        ],
    )


def _synced(synced: Synced) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=synced.error,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol,
        assignment=synced.assignment,
    )


def _left(left: Left, members: list[LeavingMember], version: int) -> LeaveGroupResponse:
    if version < MANY_MEMBERS_SINCE_VERSION:
        return LeaveGroupResponse(error_code=left.error or next(iter(left.members), ErrorCode.NONE))
    return LeaveGroupResponse(
        error_code=left.error,
        members=[
            LeaveGroupResponse.Member(
                member_id=member.member_id, group_instance_id=member.instance_id, error_code=error
            )
            for member, error in zip(members, left.members, strict=False)
        ],
    )
