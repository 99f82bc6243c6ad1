"""Whether a request comes from a member of a streams group, with its epoch and with tasks that exist (KIP-1071)."""

from __future__ import annotations

from broker.coordinators.group.modern.refused import HeartbeatRefused
from broker.coordinators.group.streams.member import StreamsMember, Tasks
from broker.coordinators.group.streams.requests import StreamsHeartbeat
from broker.coordinators.group.streams.topology import Configured
from protocol.errors import ErrorCode


def check_epoch(member: StreamsMember, heartbeat: StreamsHeartbeat) -> None:
    """Raises `HeartbeatRefused` for an epoch that is not the member's.

    The epoch before is valid, too, if the member has only tasks that it should have: the answer with its new epoch may
    be lost.
    """
    received = heartbeat.member_epoch
    if received == member.epoch:
        return
    size = "greater"
    if received < member.epoch:
        size = "smaller"
        has_only_assigned = heartbeat.owned is not None and member.assigned.has_all_of(heartbeat.owned)
        if received == member.previous_epoch and has_only_assigned:
            return
    raise HeartbeatRefused(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The streams group member has a {size} member epoch ({received}) than the one known by the group coordinator "
        f"({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def check_tasks(configured: Configured, owned: Tasks | None) -> None:
    """Raises `HeartbeatRefused` for tasks that do not exist."""
    for tasks in owned or ():
        for subtopology_id, partitions in tasks.items():
            subtopology = configured.subtopologies.get(subtopology_id)
            if subtopology is None:
                raise HeartbeatRefused(
                    ErrorCode.INVALID_REQUEST, f"Subtopology {subtopology_id} does not exist in the topology."
                )
            for partition in sorted(partitions):
                if not 0 <= partition < subtopology.tasks:
                    raise HeartbeatRefused(
                        ErrorCode.INVALID_REQUEST,
                        f"Task {partition} for subtopology {subtopology_id} is invalid. Number of tasks for this "
                        f"subtopology: {subtopology.tasks}",
                    )


def has_since(member: StreamsMember, subtopology: str | None, partition: int, epoch: int) -> bool:
    """Whether the member has had the active task since this epoch or longer."""
    if subtopology is None:
        return False
    since = member.assigned.active.get(subtopology, {}).get(partition)
    if since is None:
        since = member.pending_revocation.active.get(subtopology, {}).get(partition)
    return since is not None and since <= epoch
