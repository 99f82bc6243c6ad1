"""ConsumerGroupHeartbeat and ConsumerGroupDescribe, independent of the protocol's versions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from broker.coordinators.group.consumer.member import ConsumerMember, Owned
from broker.coordinators.group.modern.group import Assignment
from protocol.errors import ErrorCode


class ConsumerHeartbeat(NamedTuple):
    """ConsumerGroupHeartbeat: a member joins (epoch 0), is alive, or leaves (-1; -2: for a while). None where the
    request does not name a field: nothing has changed there."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: Sequence[str] | None = None
    regex: str | None = None
    regex_error: str | None = None
    """Why ``regex`` is no regular expression; None if it is one."""
    assignor: str | None = None
    owned: Assignment | None = None
    """The partitions that the member has now."""
    client_id: str = ""
    client_host: str = ""
    may_describe: Callable[[str], bool] = lambda topic: True
    """Whether the client may see a topic: a regular expression matches no other topics."""


class ConsumerHeartbeatAnswer(NamedTuple):
    """The answer to `ConsumerHeartbeat`."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Owned | None = None
    """None where nothing has changed for the member."""


class DescribedConsumerGroup(NamedTuple):
    """A consumer group as administrators see it."""

    group_id: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: Sequence[tuple[ConsumerMember, Assignment]]
    """Each member with its target assignment."""


ConsumerHeartbeatReply = Callable[[ConsumerHeartbeatAnswer], None]
