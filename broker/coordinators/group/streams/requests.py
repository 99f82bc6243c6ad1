"""StreamsGroupHeartbeat and StreamsGroupDescribe, independent of the protocol's versions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from broker.coordinators.group.streams.assignor import TaskOffsets
from broker.coordinators.group.streams.member import Endpoint, HeldTasks, StreamsMember, Tasks
from broker.coordinators.group.streams.topology import Configured, InternalTopic, Status, Topology
from protocol.errors import ErrorCode


class StreamsHeartbeat(NamedTuple):
    """StreamsGroupHeartbeat: a member joins (epoch 0), is alive, or leaves (-1; -2: for a while). None where the
    request does not name a field: nothing has changed there."""

    group_id: str
    member_id: str
    member_epoch: int
    endpoint_epoch: int = 0
    """The version of the endpoints that the member knows."""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topology: Topology | None = None
    owned: Tasks | None = None
    """The tasks that the member has now."""
    process_id: str | None = None
    endpoint: Endpoint | None = None
    tags: Mapping[str, str] | None = None
    offsets: TaskOffsets | None = None
    end_offsets: TaskOffsets | None = None
    shuts_down: bool = False
    """The whole application is to stop."""
    client_id: str = ""
    client_host: str = ""
    knows_missing_tags: bool = True
    """Whether the version of the request has the status MISSING_CLIENT_TAGS: from version 1."""


class EndpointPartitions(NamedTuple):
    """Which partitions an instance of the application answers queries about."""

    endpoint: Endpoint
    active: Sequence[tuple[str, Sequence[int]]]
    """Topics with their partitions."""
    standby: Sequence[tuple[str, Sequence[int]]]


class StreamsHeartbeatAnswer(NamedTuple):
    """The answer to `StreamsHeartbeat`."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str = ""
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    task_offset_interval_ms: int = 0
    acceptable_recovery_lag: int = -1
    statuses: Sequence[Status] = ()
    tasks: HeldTasks | None = None
    """None where nothing has changed for the member."""
    endpoint_epoch: int = 0
    endpoints: Sequence[EndpointPartitions] | None = None
    """None where nothing has changed."""
    missing: Sequence[InternalTopic] = ()
    """Internal topics that are to be created."""


class DescribedStreamsMember(NamedTuple):
    member: StreamsMember
    target: Tasks
    offsets: TaskOffsets
    end_offsets: TaskOffsets


class DescribedStreamsGroup(NamedTuple):
    """A streams group as administrators see it."""

    group_id: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    topology: Topology | None
    configured: Configured | None
    """None where the topology has not been compared with the topics of the cluster yet."""
    members: Sequence[DescribedStreamsMember]


StreamsHeartbeatReply = Callable[[StreamsHeartbeatAnswer], None]
