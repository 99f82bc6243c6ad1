"""Whether a request comes from a member of a consumer group, and with its epoch (KIP-848)."""

from __future__ import annotations

from typing import Final

from broker.coordinators.group.consumer.member import ConsumerMember
from broker.coordinators.group.consumer.requests import ConsumerHeartbeat
from broker.coordinators.group.modern.refused import HeartbeatRefused
from protocol.errors import ErrorCode

JOINS: Final = 0
"""The epoch with which a member joins."""


def check_heartbeat(member: ConsumerMember, heartbeat: ConsumerHeartbeat) -> None:
    """Raises `HeartbeatRefused` for an epoch that is not the member's.

    The epoch before is valid, too, if the member has only partitions that it should have: the answer with its new epoch
    may be lost.
    """
    received = heartbeat.member_epoch
    if received in (JOINS, member.epoch):
        return
    if received > member.epoch:
        size = "greater"
    elif received == member.previous_epoch and _owns_only_assigned(member, heartbeat):
        return
    else:
        size = "smaller"
    raise HeartbeatRefused(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {size} member epoch ({received}) than the one known by the group coordinator "
        f"({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _owns_only_assigned(member: ConsumerMember, heartbeat: ConsumerHeartbeat) -> bool:
    if heartbeat.owned is None:
        return False
    return all(
        topic_id in member.assigned and partitions <= member.assigned[topic_id].keys()
        for topic_id, partitions in heartbeat.owned.items()
    )


def check_epoch(member: ConsumerMember, epoch: int) -> ErrorCode:
    """NONE if a commit or a read of committed offsets comes with the member's epoch."""
    if epoch == member.epoch:
        return ErrorCode.NONE
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
