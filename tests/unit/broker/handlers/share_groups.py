"""A broker with share groups, and members of them that ask as clients do."""

from typing import Any

from protocol.errors import ErrorCode as E
from protocol.messages.share_groups import ShareGroupDescribeRequest, ShareGroupHeartbeatRequest
from tests.support.broker import InProcessBroker
from tests.support.groups import create_offsets_topic
from tests.unit.broker.handlers.share_states import orders_and_states

G = "workers"

ASSIGNMENT_INTERVAL_MS = 1_000
"""`share.assignment.interval.ms`: partitions are shared out no more often than that."""


def with_share_groups(broker: InProcessBroker) -> bytes:
    """Make the coordinators' topics and a topic of three partitions; return its id."""
    topic_id = orders_and_states(broker)
    create_offsets_topic(broker)
    return topic_id


def heartbeat_request(
    member: str = "anna", epoch: int = 0, topics: list[str] | None = None, group_id: str = G, **fields: Any
) -> ShareGroupHeartbeatRequest:
    if topics is None and epoch == 0:
        topics = ["orders"]
    return ShareGroupHeartbeatRequest(
        group_id=group_id, member_id=member, member_epoch=epoch, subscribed_topic_names=topics, **fields
    )


def heartbeat(broker: InProcessBroker, member: str = "anna", epoch: int = 0, **fields: Any) -> Any:
    return broker.ask(heartbeat_request(member, epoch, **fields), 1)


def joined(broker: InProcessBroker, member: str = "anna", group_id: str = G) -> Any:
    """Let a member join, and come again until it has partitions; its last answer."""
    answer = heartbeat(broker, member, group_id=group_id)
    assert answer.error_code == E.NONE, answer

    def has_partitions() -> bool:
        nonlocal answer
        broker.advance(ASSIGNMENT_INTERVAL_MS)
        answer = heartbeat(broker, member, answer.member_epoch, topics=["orders"], group_id=group_id)
        return bool(answer.assignment.topic_partitions)

    broker.wait_until(has_partitions)
    return answer


def left(broker: InProcessBroker, member: str = "anna", group_id: str = G) -> None:
    assert heartbeat(broker, member, -1, group_id=group_id).error_code == E.NONE


def describe(broker: InProcessBroker, *group_ids: str, **fields: Any) -> Any:
    asked = {"include_authorized_operations": False, **fields}
    return broker.ask(ShareGroupDescribeRequest(group_ids=list(group_ids or (G,)), **asked), 1).groups
