"""Groups in a directory that changes hands: what is to be seen of them, and members that outlive a broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from dev.broker_process import BrokerProcess
from dev.waiting import until
from protocol.errors import ErrorCode
from protocol.messages.committed_offsets import OffsetCommitRequest, OffsetDeleteRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.group_membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from protocol.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from tests.interop.directories import Visitor
from tests.parity.members import subscription
from tests.support.groups import commit_request, fetch_offsets_request
from tests.support.raw_client import RawClient

CLASSIC: Final = "classic"
LONG_MS: Final = 600_000
"""Longer than brokers need for taking turns: nobody is removed meanwhile."""

_NOT_YET: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)

Offsets = Mapping[tuple[str, int], int]


class OffsetSeen(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str


class MemberSeen(NamedTuple):
    instance_id: str | None
    client: tuple[str, str]
    """Its id and its host."""
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSeen:
    """What administrators see of a group; of one that is not classic only the kind and the offsets."""

    kind: str
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: Mapping[str, MemberSeen]
    offsets: Mapping[tuple[str, int], OffsetSeen]


class GroupVisitor(Visitor):
    """An administrator of groups, at whichever broker serves the directory now."""

    def await_coordinator(self) -> None:
        """Wait until every partition of the groups' topic is loaded."""
        found = FindCoordinatorRequest(coordinator_keys=["any"])
        until(lambda: self.ask(found, 4).coordinators[0].error_code == 0, "a coordinator")
        # The hash of a single character is its code.
        one_of_each_partition = DescribeGroupsRequest(groups=[chr(code) for code in range(50, 100)])
        until(
            lambda: all(group.error_code not in _NOT_YET for group in self.ask(one_of_each_partition, 6).groups),
            "loading the groups",
        )

    def groups(self) -> dict[str, GroupSeen]:
        """Look at every group."""
        self.await_coordinator()
        listed = self.ask(ListGroupsRequest(), 5)
        assert listed.error_code == 0, listed
        return {group.group_id: self._group(group) for group in listed.groups}

    def _group(self, listed: Any) -> GroupSeen:
        offsets = self.offsets(listed.group_id)
        if listed.group_type != CLASSIC:
            return GroupSeen(kind=listed.group_type, members={}, offsets=offsets)
        (group,) = self.ask(DescribeGroupsRequest(groups=[listed.group_id]), 6).groups
        assert group.error_code == 0, group
        assert (listed.group_state, listed.protocol_type) == (group.group_state, group.protocol_type)
        return GroupSeen(
            kind=CLASSIC,
            state=group.group_state,
            protocol_type=group.protocol_type,
            protocol=group.protocol_data,
            members={
                member.member_id: MemberSeen(
                    member.group_instance_id,
                    (member.client_id, member.client_host),
                    bytes(member.member_metadata),
                    bytes(member.member_assignment),
                )
                for member in group.members
            },
            offsets=offsets,
        )

    def offsets(self, group_id: str) -> dict[tuple[str, int], OffsetSeen]:
        """All that a group has committed."""
        (group,) = self.ask(fetch_offsets_request(9, group_id=group_id), 9).groups
        assert group.error_code == 0, group
        assert not any(partition.error_code for topic in group.topics for partition in topic.partitions)
        return {
            (topic.name, one.partition_index): OffsetSeen(
                one.committed_offset, one.committed_leader_epoch, one.metadata
            )
            for topic in group.topics
            for one in topic.partitions
        }

    def commit(self, group_id: str, offsets: Offsets, metadata: str = "") -> None:
        """Commit without being in the group."""
        self.await_coordinator()
        codes = _codes(self.ask(commit_request(offsets, group_id=group_id, metadata=metadata), 9))
        assert codes == {ErrorCode.NONE}, codes

    def delete_group(self, group_id: str) -> None:
        (result,) = self.ask(DeleteGroupsRequest(groups_names=[group_id]), 2).results
        assert result.error_code == 0, result

    def delete_offset(self, group_id: str, topic: str, partition: int) -> None:
        of_topic = OffsetDeleteRequest.Topic(
            name=topic, partitions=[OffsetDeleteRequest.Topic.Partition(partition_index=partition)]
        )
        answer = self.ask(OffsetDeleteRequest(group_id=group_id, topics=[of_topic]), 0)
        assert (answer.error_code, answer.topics[0].partitions[0].error_code) == (0, 0), answer


class Member:
    """Somebody in a classic group, who stays in it from broker to broker."""

    def __init__(self, group_id: str, *, instance_id: str | None = None, protocol_type: str = "consumer") -> None:
        self.group_id = group_id
        self.instance_id = instance_id
        self.protocol_type = protocol_type
        self.id = ""
        self.generation = -1
        self.leader = ""
        self.assignment = b""
        self._connection: RawClient | None = None

    def meet(self, broker: BrokerProcess) -> Member:
        """Go to the broker that is there now."""
        self.part()
        self._connection = RawClient(broker.bootstrap)
        return self

    def part(self) -> None:
        """The connection ends, the membership does not."""
        if self._connection is not None:
            self._connection.close()

    def begin_join(self) -> None:
        """Join; the answer is fetched later. Who needs an id gets it first."""
        if not self.id and self.instance_id is None:
            answer = self._client.ask(self._joining(), 9)
            assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED, answer
            self.id = answer.member_id
        self._client.send(self._joining(), 9)

    def end_join(self) -> Any:
        answer = self._client.receive()
        assert answer.error_code == 0, answer
        self.id, self.generation, self.leader = answer.member_id, answer.generation_id, answer.leader
        return answer

    def join(self) -> Any:
        """Join where nobody is waited for."""
        self.begin_join()
        return self.end_join()

    def try_to_join(self) -> ErrorCode:
        """What the answer is for one who was not here before."""
        return ErrorCode(self._client.ask(self._joining(), 9).error_code)

    def sync(self, assignments: Mapping[str, bytes]) -> None:
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocol_name="range",
            assignments=[
                SyncGroupRequest.Assignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in (assignments if self.id == self.leader else {}).items()
            ],
        )
        answer = self._client.ask(request, 5)
        assert answer.error_code == 0, answer
        self.assignment = bytes(answer.assignment)

    def heartbeat(self) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.id,
            group_instance_id=self.instance_id,
        )
        return ErrorCode(self._client.ask(request, 4).error_code)

    def commit(self, offsets: Offsets, metadata: str = "", *, generation: int | None = None) -> ErrorCode:
        request: OffsetCommitRequest = commit_request(
            offsets,
            group_id=self.group_id,
            metadata=metadata,
            member_id=self.id,
            group_instance_id=self.instance_id,
            generation_id_or_member_epoch=self.generation if generation is None else generation,
        )
        (code,) = _codes(self._client.ask(request, 9))
        return code

    def leave(self) -> None:
        member = LeaveGroupRequest.Member(member_id=self.id, group_instance_id=self.instance_id)
        answer = self._client.ask(LeaveGroupRequest(group_id=self.group_id, members=[member]), 5)
        assert (answer.error_code, answer.members[0].error_code) == (0, 0), answer

    @property
    def _client(self) -> RawClient:
        assert self._connection is not None, "this member has met no broker"
        return self._connection

    def _joining(self) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=LONG_MS,
            rebalance_timeout_ms=LONG_MS,
            member_id=self.id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocols=[JoinGroupRequest.Protocol(name="range", metadata=subscription("read"))],
        )


def assign(members: Sequence[Member]) -> None:
    """Partition n of the topic for the nth of them. The others wait for what the leader brings, so it is first."""
    assignments = {member.id: assignment_of("read", number) for number, member in enumerate(members)}
    for member in sorted(members, key=lambda member: member.id != member.leader):
        member.sync(assignments)
    for member in members:
        assert member.assignment == assignments[member.id]


def come_together(incumbent: Member, newcomer: Member) -> None:
    """A member of a group learns by its heartbeats that another one joins, and joins again: a new generation."""
    newcomer.begin_join()
    until(lambda: incumbent.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS, "a rebalance")
    incumbent.begin_join()
    for member in (incumbent, newcomer):
        member.end_join()
    assert incumbent.generation == newcomer.generation
    assign([incumbent, newcomer])


def assignment_of(topic: str, *partitions: int) -> bytes:
    """What a leader sends to a consumer, in its first version."""
    numbers = b"".join(number.to_bytes(4, "big") for number in partitions)
    name = len(topic).to_bytes(2, "big") + topic.encode()
    return b"\0\0" + (1).to_bytes(4, "big") + name + len(partitions).to_bytes(4, "big") + numbers + bytes(4)


def _codes(answer: Any) -> set[ErrorCode]:
    return {ErrorCode(partition.error_code) for topic in answer.topics for partition in topic.partitions}
