"""HeartbeatRefused: why a heartbeat is not answered as its member wants; and whether it comes from a static member."""

from __future__ import annotations

from typing import Any

from broker.coordinators.group.modern.group import GroupWithTargets, MemberT
from protocol.errors import ErrorCode


class HeartbeatRefused(Exception):
    """The request is not allowed in the state that the group is in."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def unknown_member(group_id: str, member_id: str) -> HeartbeatRefused:
    """The refusal of a request whose sender is not a member."""
    return HeartbeatRefused(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}.")


def sender(group: GroupWithTargets[MemberT, Any], member_id: str, instance_id: str | None) -> MemberT:
    """The member that sends a request, with its instance id if it is static. Raises `HeartbeatRefused`."""
    if instance_id is None:
        if (member := group.members.get(member_id)) is None:
            raise unknown_member(group.group_id, member_id)
        return member
    static = group.static_member(instance_id)
    if static is None:
        raise HeartbeatRefused(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if static.member_id != member_id:
        raise HeartbeatRefused(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {static.member_id}.",
        )
    return static
