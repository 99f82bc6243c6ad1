"""Requests to the group coordinator and its answers, independent of the protocol's versions.

They are named tuples: a dataclass takes ten times as long to be declared, and the broker has 150 ms to start.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from broker.coordinators.result import ProducerIdAndEpoch
from protocol.errors import ErrorCode
from protocol.schema import NO_UUID
from storage.sentinels import NO_EPOCH, NO_TIMESTAMP

NO_GENERATION: Final = -1


class Protocol(NamedTuple):
    """A protocol (a way to assign partitions) that a member supports, with the member's metadata for the leader."""

    name: str
    metadata: bytes


class Join(NamedTuple):
    """JoinGroup: a member wants to be in the next generation."""

    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Sequence[Protocol]
    member_id: str = ""
    """Empty where the member has no member id yet."""
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    """The client's address as Kafka shows it: ``/127.0.0.1``."""
    needs_known_id: bool = True
    """A new dynamic member is only handed its id and has to come again with it (KIP-394; JoinGroup from version 4)."""
    may_skip_assignment: bool = True
    """A static leader that comes back may be answered to leave the assignment as it is (KIP-814; from version 9)."""
    reason: str = ""


class JoinedMember(NamedTuple):
    """A member as it is described to the leader."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class Joined(NamedTuple):
    """The answer to `Join`."""

    error: ErrorCode = ErrorCode.NONE
    member_id: str = ""
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: Sequence[JoinedMember] = ()
    """All members in the leader's answer; empty in the others' answers."""


class Sync(NamedTuple):
    """SyncGroup: a member asks for its assignment; the leader brings the assignments of all members."""

    group_id: str
    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    """Both None where the request's version does not carry them."""
    assignments: Mapping[str, bytes] = MappingProxyType({})
    """Assignments by member id."""


class Synced(NamedTuple):
    """The answer to `Sync`."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class Heartbeat(NamedTuple):
    """Heartbeat: a member is alive. The answer is an error code."""

    group_id: str
    member_id: str
    generation: int
    instance_id: str | None = None


class LeavingMember(NamedTuple):
    """LeaveGroup: a member that leaves, or that an administrator removes by its instance id."""

    member_id: str
    instance_id: str | None = None
    reason: str = ""


class Left(NamedTuple):
    """The answer to leaving: an error for the whole request, and one for each member in the order of the request."""

    error: ErrorCode = ErrorCode.NONE
    members: Sequence[ErrorCode] = ()


class TopicPartitionName(NamedTuple):
    """A partition by its topic's name."""

    topic: str
    partition: int


class OffsetToCommit(NamedTuple):
    """An offset of a commit. Its partition is known to exist."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    expire_timestamp: int = NO_TIMESTAMP
    """Milliseconds since 1970, where the client asked for its own retention time (versions 2 to 4)."""
    topic_id: bytes = NO_UUID


class Commit(NamedTuple):
    """OffsetCommit or TxnOffsetCommit: offsets of a member, or of a consumer that is no member. The answer is an error
    code for each."""

    group_id: str
    offsets: Sequence[OffsetToCommit]
    generation: int = NO_GENERATION
    member_id: str = ""
    instance_id: str | None = None
    knows_member_epochs: bool = True
    """Whether the version of the request is for members of consumer groups: OffsetCommit from version 9."""
    unknown_group_error: ErrorCode = ErrorCode.GROUP_ID_NOT_FOUND
    """The error where there is no such group: ILLEGAL_GENERATION up to version 8 of OffsetCommit, and up to version 5
    of TxnOffsetCommit."""
    transaction: ProducerIdAndEpoch | None = None
    """The producer in whose transaction the offsets are committed. The group's partition of ``__consumer_offsets`` is
    known to be in the transaction."""


class CommittedOffset(NamedTuple):
    """The committed offset of a group for a partition. Immutable: a commit replaces it."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int
    """Milliseconds since 1970; -1: the offset expires by ``offsets.retention.minutes``."""
    topic_id: bytes


class FetchedOffset(NamedTuple):
    """The answer for one partition: no offset (-1) where none is committed."""

    topic: str
    partition: int
    error: ErrorCode
    committed: CommittedOffset | None


class DescribedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribedGroup(NamedTuple):
    """A classic group as administrators see it. Metadata is empty unless the group is Stable. While a new generation
    forms, the assignments are those of the generation before."""

    group_id: str
    state: str
    protocol_type: str = ""
    protocol: str = ""
    members: Sequence[DescribedMember] = ()


class ListedGroup(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    type: str
    """``classic``, ``consumer``, ``share`` or ``streams``."""
    members: int


JoinReply = Callable[[Joined], None]
SyncReply = Callable[[Synced], None]
