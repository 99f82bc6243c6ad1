"""Members of consumer groups, each on a connection of its own, in the language of the scripts.

A request that is given a name is noted, and so compared; one without is there so that the next has something to meet.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.group_membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from protocol.messages.groups import DescribeGroupsRequest
from tests.parity.connection import Asked
from tests.parity.exchange import PATIENCE_S, Exchange

Protocols: TypeAlias = Sequence[tuple[str, bytes]]


def subscription(*topics: str, user_data: bytes = b"") -> bytes:
    """What consumers send as metadata, in its first version; Kafka reads the topics."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", len(user_data)) + user_data


RANGE: Final[Protocols] = (("range", subscription("orders")),)
CHANGED: Final[Protocols] = (("range", subscription("orders", "payments")),)

ONE_GROUP_OF_EACH_PARTITION = [chr(code) for code in range(50, 100)]
"""The hash of a single character is its code: these fall to the 50 partitions of the coordinator, one each."""

JOIN_VERSIONS = range(10)
NEEDS_AN_ID = 4
"""From this version on a member without an id is only given one at its first join."""
KNOWS_INSTANCES = 5


def await_coordinator(exchange: Exchange) -> None:
    """Wait until every partition of the coordinator is there and loaded; from then on time is held."""
    await_groups(exchange)
    exchange.hold_time()


def await_groups(exchange: Exchange) -> None:
    """Wait until every partition of the coordinator is there and loaded."""
    coordinators = FindCoordinatorRequest(coordinator_keys=["any"])
    exchange.wait_until(coordinators, 4, lambda answer: not answer.coordinators[0].error_code, patience_s=60.0)
    groups = DescribeGroupsRequest(groups=ONE_GROUP_OF_EACH_PARTITION)
    loaded = (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND)
    exchange.wait_until(
        groups, 6, lambda answer: all(group.error_code in loaded for group in answer.groups), patience_s=60.0
    )


class Member:
    """One member of one group: it knows its id and generation from the answers it got."""

    def __init__(
        self,
        exchange: Exchange,
        group_id: str,
        client_id: str | None = "a",
        *,
        instance_id: str | None = None,
        protocols: Protocols = RANGE,
        session_timeout_ms: int = 30_000,
        rebalance_timeout_ms: int = 30_000,
    ) -> None:
        self.exchange = exchange
        self.connection = exchange.connect()
        self.group_id = group_id
        self.client_id = client_id
        self.instance_id = instance_id
        self.protocols = protocols
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.id = ""
        self.generation = -1

    # Joining

    def joining(self, **fields: Any) -> JoinGroupRequest:
        protocols = fields.pop("protocols", self.protocols)
        return JoinGroupRequest(
            **{
                "group_id": self.group_id,
                "session_timeout_ms": self.session_timeout_ms,
                "rebalance_timeout_ms": self.rebalance_timeout_ms,
                "member_id": self.id,
                "group_instance_id": self.instance_id,
                "protocol_type": "consumer",
                "protocols": [JoinGroupRequest.Protocol(name=name, metadata=data) for name, data in protocols],
                **fields,
            }
        )

    def join(self, step: str | None = None, version: int = 9, **fields: Any) -> Any:
        """Join, or rejoin, where the answer need not wait for others."""
        return self.joined(step, self.start_joining(version, **fields))

    def start_joining(self, version: int = 9, **fields: Any) -> Asked:
        """Join; `joined` waits for the answer."""
        return self.exchange.send(self.joining(**fields), version, client_id=self.client_id, over=self.connection)

    def joined(self, step: str | None, asked: Asked, *, patience_s: float = PATIENCE_S) -> Any:
        answer = self.exchange.answer(step, asked, over=self.connection, patience_s=patience_s)
        if answer is not None and answer.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.id = answer.member_id
            self.generation = answer.generation_id
        return answer

    def join_without_the_others(self, step: str | None = None, **fields: Any) -> Any:
        """Rejoin, and be answered when the time of those who do not is over."""
        joins = self.start_joining(**fields)
        await_state(self.exchange, self.group_id, "PreparingRebalance")
        self.exchange.pass_time(self.rebalance_timeout_ms)
        return self.joined(step, joins)

    def start_entering(self, version: int = 9, **fields: Any) -> Asked:
        """Join for the first time, with an id where one is needed; `joined` waits for the answer."""
        if self.instance_id is None and version >= NEEDS_AN_ID:
            self.join(None, version, **fields)
        return self.start_joining(version, **fields)

    def enter(self, step: str | None = None, version: int = 9, **fields: Any) -> Any:
        """Join for the first time, into a group that waits for nobody else."""
        return self.joined(step, self.start_entering(version, **fields))

    def lead(self, version: int = 9) -> Member:
        """Enter a group in which nobody is, and assign it everything."""
        self.enter(None, version)
        self.sync(assignments={self.id: b"everything"})
        return self

    # In a group

    def ask(self, step: str | None, request: Any, version: int) -> Any:
        return self.exchange.ask(step, request, version, client_id=self.client_id, over=self.connection)

    def syncing(self, assignments: Mapping[str, bytes] | None = None, **fields: Any) -> SyncGroupRequest:
        return SyncGroupRequest(
            **{
                "group_id": self.group_id,
                "generation_id": self.generation,
                "member_id": self.id,
                "group_instance_id": self.instance_id,
                "protocol_type": "consumer",
                "protocol_name": self.protocols[0][0],
                "assignments": [
                    SyncGroupRequest.Assignment(member_id=member_id, assignment=assignment)
                    for member_id, assignment in (assignments or {}).items()
                ],
                **fields,
            }
        )

    def sync(self, step: str | None = None, version: int = 5, **fields: Any) -> Any:
        return self.ask(step, self.syncing(**fields), version)

    def start_syncing(self, version: int = 5, **fields: Any) -> Asked:
        """Sync; `synced` waits for the answer."""
        return self.exchange.send(self.syncing(**fields), version, client_id=self.client_id, over=self.connection)

    def synced(self, step: str | None, asked: Asked) -> Any:
        return self.exchange.answer(step, asked, over=self.connection)

    def beating(self, **fields: Any) -> HeartbeatRequest:
        return HeartbeatRequest(
            **{
                "group_id": self.group_id,
                "generation_id": self.generation,
                "member_id": self.id,
                "group_instance_id": self.instance_id,
                **fields,
            }
        )

    def heartbeat(self, step: str | None = None, version: int = 4, **fields: Any) -> Any:
        return self.ask(step, self.beating(**fields), version)

    def await_rebalance(self) -> None:
        """Heartbeat until the answer says that there is one."""
        self.exchange.wait_until(self.beating(), 4, lambda answer: answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS)

    def leave(self, step: str | None = None, version: int = 5, **fields: Any) -> Any:
        leaving = LeaveGroupRequest.Member(member_id=self.id, group_instance_id=self.instance_id)
        request = LeaveGroupRequest(**{"group_id": self.group_id, "member_id": self.id, "members": [leaving], **fields})
        return self.ask(step, request, version)


def two_members(exchange: Exchange, group_id: str, version: int = 9, **options: Any) -> tuple[Member, Member]:
    """A leader and a follower who have joined a generation, which nobody has synced yet."""
    leader = Member(exchange, group_id, "a", **options).lead(version)
    return leader, second_member(leader, version, **options)


def second_member(leader: Member, version: int = 9, **options: Any) -> Member:
    """Who joins a leader that was alone."""
    follower = Member(leader.exchange, leader.group_id, "b", **options)
    waiting = follower.start_entering(version)
    leader.await_rebalance()
    leader.join(None, version)
    follower.joined(None, waiting)
    return follower


def a_pair(exchange: Exchange, group_id: str, version: int = 9, **options: Any) -> tuple[Member, Member]:
    """A leader and a follower of a stable group."""
    leader, follower = two_members(exchange, group_id, version, **options)
    leader.sync(assignments={leader.id: b"first half", follower.id: b"second half"})
    follower.sync()
    return leader, follower


def await_state(exchange: Exchange, group_id: str, state: str, members: int | None = None) -> None:
    """Wait until a group is described in a state, and with so many members."""
    exchange.wait_until(
        DescribeGroupsRequest(groups=[group_id]),
        6,
        lambda answer: answer.groups[0].group_state == state and members in (None, len(answer.groups[0].members)),
    )


def described(exchange: Exchange, step: str | None, group_id: str) -> None:
    """Note how a group looks from outside."""
    exchange.ask(step, DescribeGroupsRequest(groups=[group_id]), 6)
