"""What each API of share groups asks of an authorizer, where the cluster has share groups: as in `authorization`."""

from __future__ import annotations

from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.share_group_offsets import DescribeShareGroupOffsetsRequest
from protocol.messages.share_groups import ShareGroupHeartbeatRequest
from tests.parity.access import SETTINGS, USERS, allow_everything_from_here, log_in
from tests.parity.authorization.shares import CASES, GROUP
from tests.parity.connection import Connection
from tests.parity.exchange import Exchange
from tests.parity.members import await_groups
from tests.parity.scripts.authorization import ask_all

__all__ = ["SETTINGS", "USERS", "run"]

TOPICS = ("orders", "letters")
PATIENCE_S = 30.0


def run(exchange: Exchange) -> None:
    admin = log_in(exchange, "admin")
    before = allow_everything_from_here(exchange, admin)
    prepare(exchange, admin)
    ask_all(exchange, admin, CASES, before)


def prepare(exchange: Exchange, admin: Connection) -> None:
    """Share groups, two topics, and a group without members that has read them."""
    for name in TOPICS:
        exchange.create_topic(name, partitions=2)
    await_groups(exchange)
    find = FindCoordinatorRequest(key="", key_type=2, coordinator_keys=[f"{GROUP}:AAAAAAAAAAAAAAAAAAAAAQ:0"])
    exchange.wait_until(find, 6, lambda answer: answer.coordinators[0].error_code == 0, patience_s=PATIENCE_S)
    joining = ShareGroupHeartbeatRequest(
        group_id=GROUP, member_id="anna", member_epoch=0, subscribed_topic_names=[*TOPICS]
    )
    exchange.wait_until(joining, 1, lambda answer: not answer.error_code, patience_s=PATIENCE_S)
    of_group = DescribeShareGroupOffsetsRequest.Group
    described = DescribeShareGroupOffsetsRequest(groups=[of_group(group_id=GROUP, topics=None)])

    def has_states(answer: object) -> bool:
        exchange.ask(None, joining, 1)
        (group,) = answer.groups  # type: ignore[attr-defined]
        return len(group.topics) == len(TOPICS)

    exchange.wait_until(described, 1, has_states, patience_s=PATIENCE_S)
    exchange.ask(
        None,
        ShareGroupHeartbeatRequest(group_id=GROUP, member_id="anna", member_epoch=-1, subscribed_topic_names=None),
        1,
    )
