"""Requests of group members and administrators, with defaults for the fields that most tests do not set."""

from collections.abc import Mapping, Sequence
from typing import Any

from protocol.messages.committed_offsets import OffsetCommitRequest, OffsetFetchRequest
from protocol.messages.group_membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from tests.support.broker import InProcessBroker

OFFSETS_TOPIC = "__consumer_offsets"


def join_request(
    group_id: str = "readers",
    member_id: str = "",
    *,
    protocols: Sequence[tuple[str, bytes]] = (("range", b"me"),),
    **fields: Any,
) -> JoinGroupRequest:
    """A JoinGroup request of a consumer."""
    return JoinGroupRequest(
        **{
            "group_id": group_id,
            "member_id": member_id,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer",
            "protocols": [JoinGroupRequest.Protocol(name=name, metadata=metadata) for name, metadata in protocols],
            **fields,
        }
    )


def sync_request(
    joined: JoinGroupResponse,
    assignments: Mapping[str, bytes] | None = None,
    *,
    group_id: str = "readers",
    **fields: Any,
) -> SyncGroupRequest:
    """A SyncGroup request of a member that has joined; the leader's has the assignments of all members."""
    return SyncGroupRequest(
        **{
            "group_id": group_id,
            "member_id": joined.member_id,
            "generation_id": joined.generation_id,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [
                SyncGroupRequest.Assignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in (assignments or {}).items()
            ],
            **fields,
        }
    )


def heartbeat_request(joined: JoinGroupResponse, *, group_id: str = "readers", **fields: Any) -> HeartbeatRequest:
    """A Heartbeat request of a member."""
    return HeartbeatRequest(
        **{"group_id": group_id, "member_id": joined.member_id, "generation_id": joined.generation_id, **fields}
    )


def leave_request(*member_ids: str, group_id: str = "readers") -> LeaveGroupRequest:
    """A LeaveGroup request; for one member in any version, for several in the versions that allow it."""
    return LeaveGroupRequest(
        group_id=group_id,
        member_id=member_ids[0] if member_ids else "",
        members=[LeaveGroupRequest.Member(member_id=member_id) for member_id in member_ids],
    )


def commit_request(
    offsets: Mapping[tuple[str, int], int],
    *,
    group_id: str = "readers",
    topic_ids: Mapping[str, bytes] | None = None,
    metadata: str | None = "",
    **fields: Any,
) -> OffsetCommitRequest:
    """An OffsetCommit request; offsets by topic and partition, each topic by itself; ``topic_ids`` for the versions
    with topic ids."""
    topic = OffsetCommitRequest.Topic
    return OffsetCommitRequest(
        group_id=group_id,
        topics=[
            topic(
                name=name,
                topic_id=(topic_ids or {}).get(name, bytes(16)),
                partitions=[
                    topic.Partition(partition_index=index, committed_offset=offset, committed_metadata=metadata)
                ],
            )
            for (name, index), offset in offsets.items()
        ],
        **fields,
    )


def fetch_offsets_request(
    version: int, *topics: tuple[str, Sequence[int]] | None, group_id: str = "readers", **fields: Any
) -> OffsetFetchRequest:
    """An OffsetFetch request for topics with their partitions, or for all (no topics), in one version's layout."""
    if version < 8:
        named = [OffsetFetchRequest.Topic(name=one[0], partition_indexes=list(one[1])) for one in topics if one]
        return OffsetFetchRequest(group_id=group_id, topics=named if topics else None, **fields)
    group_topic = OffsetFetchRequest.Group.Topic
    asked = [group_topic(name=one[0], partition_indexes=list(one[1])) for one in topics if one]
    group = OffsetFetchRequest.Group(group_id=group_id, topics=asked if topics else None)
    return OffsetFetchRequest(groups=[group], **fields)


class Consumer:
    """A member of a group, with a connection of its own."""

    def __init__(self, broker: InProcessBroker, group_id: str = "readers", **fields: Any) -> None:
        self.client = broker.connect()
        self._group_id = group_id
        self._fields = fields
        self.joined = JoinGroupResponse()

    def begin_join(self, version: int = 3) -> None:
        """Send JoinGroup; the answer is received later."""
        self.client.send(join_request(self._group_id, self.joined.member_id, **self._fields), version)

    def end_join(self) -> JoinGroupResponse:
        """Receive the answer to JoinGroup."""
        self.joined = self.client.receive()
        return self.joined

    def join(self, version: int = 3) -> JoinGroupResponse:
        """Join alone, or as the last of all members."""
        self.begin_join(version)
        return self.end_join()

    def begin_sync(self, version: int = 3) -> None:
        """Ask for the part that is one's own; the answer is fetched later."""
        self.client.send(sync_request(self.joined, group_id=self._group_id), version)

    def sync(self, assignments: Mapping[str, bytes] | None = None, version: int = 3) -> Any:
        """Send SyncGroup and receive the member's assignment."""
        return self.client.ask(sync_request(self.joined, assignments, group_id=self._group_id), version)

    def heartbeat(self, version: int = 3) -> int:
        """Send a heartbeat. Returns its error code."""
        answer = self.client.ask(heartbeat_request(self.joined, group_id=self._group_id), version)
        code: int = answer.error_code
        return code


def create_offsets_topic(broker: InProcessBroker, **configs: object) -> None:
    """Create ``__consumer_offsets`` as the first search for a coordinator does, but with fewer partitions."""
    broker.create_topic(OFFSETS_TOPIC, partitions=5, cleanup_policy="compact", **configs)
