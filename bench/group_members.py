"""Members of a consumer group as bare sockets, so that the time of a rebalance is mostly the broker's.

A member does what a client's member does: it joins (twice, the second time with the member id from the first answer),
the leader assigns, all members sync. A client would learn at its next heartbeat that a rebalance has begun. A member
here sends heartbeats without an interval, so that only the broker is measured.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from typing import Final, Self

from bench.conversation import CLIENT_ID, BrokerRefused, Conversation, address_of
from bench.load import RECEIVE_BYTES, STALLED_S, LoadFailed
from protocol.errors import ErrorCode
from protocol.headers import decode_response, encode_request
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.group_membership import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from protocol.messages.groups import DeleteGroupsRequest, DeleteGroupsResponse

JOIN_VERSION: Final = 9
SYNC_VERSION: Final = 5
HEARTBEAT_VERSION: Final = 4
LEAVE_VERSION: Final = 5
PROTOCOL_TYPE: Final = "consumer"
PROTOCOLS: Final = ("range", "cooperative-sticky")
SESSION_TIMEOUT_MS: Final = 600_000
REBALANCE_TIMEOUT_MS: Final = 60_000
NOT_READY: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)
COORDINATOR_EXISTS_SOON_S: Final = 30.0


def subscription(topic: str) -> bytes:
    """The subscription of a member, version 0: the topics that it subscribes to."""
    name = topic.encode()
    return struct.pack(">hih", 0, 1, len(name)) + name + struct.pack(">i", -1)


def assignment(member_id: str, topic: str) -> bytes:
    """The assignment of a member: one partition. The user data has the member id, so that a mix-up is noticed."""
    name, user_data = topic.encode(), member_id.encode()
    return struct.pack(">hih", 0, 1, len(name)) + name + struct.pack(">iii", 1, 0, len(user_data)) + user_data


def delete_group(conversation: Conversation, group: str) -> None:
    """Delete a group without members. Looks up the coordinator first, which creates `__consumer_offsets`."""
    conversation.ask(FindCoordinatorRequest(key=group, coordinator_keys=[group]), FindCoordinatorResponse)
    deadline = time.monotonic() + COORDINATOR_EXISTS_SOON_S
    while True:
        answer = conversation.ask(DeleteGroupsRequest(groups_names=[group]), DeleteGroupsResponse)
        code = answer.results[0].error_code
        if code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
            return
        if code not in NOT_READY or time.monotonic() > deadline:
            raise BrokerRefused(f"DeleteGroups of {group} failed with error {code}")
        time.sleep(0.01)


class Member:
    """A member with a connection of its own and at most one request in flight. Its methods never wait for an answer."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self.group = group
        self.topic = topic
        self.member_id = ""
        self.generation = -1
        self.is_assigned = False
        """Whether the member has the assignment of `generation`, as far as it knows."""
        self.is_asking = False
        self.socket = socket.create_connection(address_of(bootstrap), timeout=STALLED_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._asked: type[object] = JoinGroupResponse
        self._received = bytearray()

    def join(self) -> None:
        self.is_assigned = False
        metadata = subscription(self.topic)
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequest.Protocol(name=name, metadata=metadata) for name in PROTOCOLS],
        )
        self._ask(request, JOIN_VERSION, JoinGroupResponse)

    def watch(self) -> None:
        """Send a heartbeat. If its answer says that the group rebalances, the member joins again."""
        request = HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.member_id)
        self._ask(request, HEARTBEAT_VERSION, HeartbeatResponse)

    def leave(self) -> None:
        self.generation = -1
        members = [LeaveGroupRequest.Member(member_id=self.member_id)]
        self._ask(LeaveGroupRequest(group_id=self.group, members=members), LEAVE_VERSION, LeaveGroupResponse)

    def _sync(self, joined: JoinGroupResponse) -> None:
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type=joined.protocol_type,
            protocol_name=joined.protocol_name,
            assignments=[  # none but the leader's
                SyncGroupRequest.Assignment(
                    member_id=member.member_id, assignment=assignment(member.member_id, self.topic)
                )
                for member in joined.members
            ],
        )
        self._ask(request, SYNC_VERSION, SyncGroupResponse)

    def _ask(self, request: object, version: int, answer: type[object]) -> None:
        self.is_asking = True
        self._asked = answer
        self.socket.sendall(encode_request(0, CLIENT_ID, request, version))

    def receive(self) -> None:
        """Receive answers, and send the next request of the protocol."""
        piece = self.socket.recv(RECEIVE_BYTES)
        if not piece:
            raise LoadFailed("the broker closed a member's connection")
        received = self._received
        received += piece
        if len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
            return
        payload, self._received = bytes(received[4:]), bytearray()
        self.is_asking = False
        if self._asked is JoinGroupResponse:
            self._joined(decode_response(JoinGroupResponse, JOIN_VERSION, payload)[1])
        elif self._asked is SyncGroupResponse:
            self._synced(decode_response(SyncGroupResponse, SYNC_VERSION, payload)[1])
        elif self._asked is HeartbeatResponse:
            code = decode_response(HeartbeatResponse, HEARTBEAT_VERSION, payload)[1].error_code
            if code == ErrorCode.REBALANCE_IN_PROGRESS:
                self.join()
            else:
                expect_success(code, "Heartbeat")
        else:
            answer = decode_response(LeaveGroupResponse, LEAVE_VERSION, payload)[1]
            for code in (answer.error_code, *(member.error_code for member in answer.members)):
                expect_success(code, "LeaveGroup")

    def _joined(self, answer: JoinGroupResponse) -> None:
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self.join()
            return
        expect_success(answer.error_code, "JoinGroup")
        self.member_id, self.generation = answer.member_id, answer.generation_id
        self._sync(answer)

    def _synced(self, answer: SyncGroupResponse) -> None:
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
            return
        expect_success(answer.error_code, "SyncGroup")
        if answer.assignment != assignment(self.member_id, self.topic):
            raise LoadFailed(f"{self.member_id} was given {answer.assignment!r}")
        self.is_assigned = True


class Group:
    """The members of one group, in one loop. A context: at its end all members leave and the group is deleted."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._group = group
        self._topic = topic
        self.members: list[Member] = []
        self._poller = select.epoll()
        self._by_descriptor: dict[int, Member] = {}

    def __enter__(self) -> Self:
        with Conversation(self._bootstrap) as conversation:
            delete_group(conversation, self._group)
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        for member in self.members:
            member.socket.close()
        self._poller.close()
        if failure is None:
            leaving = [LeaveGroupRequest.Member(member_id=member.member_id) for member in self.members]
            with Conversation(self._bootstrap) as conversation:
                conversation.ask(LeaveGroupRequest(group_id=self._group, members=leaving), LeaveGroupResponse)
                delete_group(conversation, self._group)

    def form(self, count: int) -> float:
        """Seconds until ``count`` members, who all join an empty group at once, have their assignments."""
        newcomers = [self._connect() for _ in range(count)]
        self.members += newcomers
        started = time.perf_counter()
        for member in newcomers:
            member.join()
        while not self._agrees_after(-1):
            for member in self._turn():
                # The first ones may have formed a generation of their own; they hear of the next by their heartbeats.
                if member.is_assigned and not member.is_asking:
                    member.watch()
        ended = time.perf_counter()
        while any(member.is_asking for member in self.members):
            self._turn()
        return ended - started

    def add_member(self) -> float:
        """Seconds from a new member's first JoinGroup until all members have an assignment."""
        newcomer = self._connect()
        started = time.perf_counter()
        newcomer.join()
        while not newcomer.member_id:
            self._turn()
        return self._rebalance([*self.members, newcomer]) - started

    def remove_member(self) -> float:
        """Seconds from the LeaveGroup of the newest member until all other members have an assignment."""
        *others, leaver = self.members
        started = time.perf_counter()
        leaver.leave()
        ended = self._rebalance(others)
        while leaver.is_asking:
            self._turn()
        self._poller.unregister(leaver.socket)
        del self._by_descriptor[leaver.socket.fileno()]
        leaver.socket.close()
        return ended - started

    def _connect(self) -> Member:
        member = Member(self._bootstrap, self._group, self._topic)
        self._by_descriptor[member.socket.fileno()] = member
        self._poller.register(member.socket, select.EPOLLIN)
        return member

    def _rebalance(self, members: list[Member]) -> float:
        """Wait until ``members``, all members of the group, have an assignment in a new generation. Returns the time of
        the last one."""
        last = self.members[0].generation
        self.members = members
        for member in members:
            if not member.is_asking:
                member.watch()
        while not self._agrees_after(last):
            for member in self._turn():
                if member.generation == last and not member.is_asking:
                    member.watch()  # the heartbeat was quicker than what it asks about
        return time.perf_counter()

    def _agrees_after(self, last: int) -> bool:
        """Whether all members have an assignment of the same generation, which is later than ``last``."""
        generation = self.members[0].generation
        return generation > last and all(
            member.is_assigned and member.generation == generation for member in self.members
        )

    def _turn(self) -> list[Member]:
        """Receive for one turn. Returns the members that got an answer."""
        events = self._poller.poll(STALLED_S)
        if not events:
            raise LoadFailed(f"no member of {self._group} was answered for {STALLED_S} s")
        receivers = [self._by_descriptor[descriptor] for descriptor, _ in events]
        for member in receivers:
            member.receive()
        return receivers


def expect_success(code: int, what: str) -> None:
    if code:
        raise LoadFailed(f"{what} failed with error {code}")
