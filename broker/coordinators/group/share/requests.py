"""What share groups are asked, and what they answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from broker.coordinators.group.modern.group import Assignment
from protocol.errors import ErrorCode


class ShareHeartbeat(NamedTuple):
    """A member's heartbeat. With the epoch 0 it joins, with `LEAVES_EPOCH` it leaves."""

    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topics: Sequence[str] | None
    """None: as before."""


class ShareHeartbeatAnswer(NamedTuple):
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None
    """None: as before."""


class DescribedShareMember(NamedTuple):
    member_id: str
    rack_id: str | None
    epoch: int
    client_id: str
    client_host: str
    subscribed_topics: Sequence[str]
    """In alphabetical order."""
    assigned: Assignment

    @property
    def instance_id(self) -> None:
        """Share groups have no static members."""


class DescribedShareGroup(NamedTuple):
    group_id: str
    state: str
    epoch: int
    assignment_epoch: int
    members: Sequence[DescribedShareMember]


class NewOffsets(NamedTuple):
    """Where the group begins anew in a topic."""

    topic_id: bytes
    name: str
    offsets: Mapping[int, int]
    """By partition, all of which exist."""


class ChangedOffsets(NamedTuple):
    """What has become of a change of offsets."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    codes: Mapping[tuple[bytes, int], ErrorCode] = {}
    """The errors of partitions whose states could not be changed, by topic id and partition."""


class DeletedOffsets(NamedTuple):
    """What has become of the deletion of a topic's offsets."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    topic_id: bytes = bytes(16)


HeartbeatReply: TypeAlias = Callable[[ShareHeartbeatAnswer], None]
ChangeReply: TypeAlias = Callable[[ChangedOffsets], None]
DeletionReply: TypeAlias = Callable[[ErrorCode, str | None, Mapping[str, DeletedOffsets]], None]
"""Gets the error of the whole request, or what has become of each topic by its name."""
