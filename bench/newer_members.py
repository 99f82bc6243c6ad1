"""Members of a consumer group of the newer protocol (KIP-848) as bare sockets: the time of a rebalance is the broker's.

A member does what a client's member does: it joins, takes over at once what a heartbeat assigns to it, and says so in
the next heartbeat. A client's heartbeats are 5 s apart. A member here sends them without an interval while the group
rebalances, so that only the broker is measured.
"""

from __future__ import annotations

import select
import socket
import time
import uuid
from typing import Final, Self

from bench.conversation import CLIENT_ID, Conversation, address_of
from bench.group_members import delete_group, expect_success
from bench.load import RECEIVE_BYTES, STALLED_S, LoadFailed
from config.resources import ConfigResource
from protocol.headers import decode_response, encode_request
from protocol.messages.configs import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

HEARTBEAT_VERSION: Final = 1
REBALANCE_TIMEOUT_MS: Final = 60_000
JOINING: Final = 0
LEAVING: Final = -1


class NewerMember:
    """A member with a connection of its own and at most one request in flight. Its methods never wait for an answer."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self.group = group
        self.topic = topic
        self.member_id = str(uuid.uuid4())
        self.epoch = JOINING
        self.partitions: frozenset[int] = frozenset()
        self.is_asking = False
        self.heartbeats = 0
        """How many it has sent."""
        self._topic_id = b""
        self._has_news = False
        """Whether the broker is to be told what this member has now."""
        self.socket = socket.create_connection(address_of(bootstrap), timeout=STALLED_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = bytearray()

    def join(self) -> None:
        self._ask(
            JOINING, rebalance_timeout_ms=REBALANCE_TIMEOUT_MS, subscribed_topic_names=[self.topic], topic_partitions=[]
        )

    def heartbeat(self) -> None:
        of_topic = ConsumerGroupHeartbeatRequest.TopicPartition
        owned = [of_topic(topic_id=self._topic_id, partitions=sorted(self.partitions))] if self.partitions else []
        self._ask(self.epoch, topic_partitions=owned if self._has_news else None)
        self._has_news = False

    def leave(self) -> None:
        self._ask(LEAVING)

    def _ask(self, epoch: int, **fields: object) -> None:
        self.is_asking = True
        self.heartbeats += 1
        request = ConsumerGroupHeartbeatRequest(
            **{"group_id": self.group, "member_id": self.member_id, "member_epoch": epoch, **fields}  # type: ignore[arg-type]
        )
        self.socket.sendall(encode_request(0, CLIENT_ID, request, HEARTBEAT_VERSION))

    def receive(self) -> None:
        """Receive an answer, and take over what it assigns."""
        piece = self.socket.recv(RECEIVE_BYTES)
        if not piece:
            raise LoadFailed("the broker closed a member's connection")
        self._received += piece
        if len(self._received) < 4 or len(self._received) < 4 + int.from_bytes(self._received[:4], "big"):
            return
        payload, self._received = bytes(self._received[4:]), bytearray()
        self.is_asking = False
        _, answer = decode_response(ConsumerGroupHeartbeatResponse, HEARTBEAT_VERSION, payload)
        expect_success(answer.error_code, "ConsumerGroupHeartbeat")
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            topics = answer.assignment.topic_partitions
            self._topic_id = bytes(topics[0].topic_id) if topics else self._topic_id
            self.partitions = frozenset(index for topic in topics for index in topic.partitions)
            self._has_news = True


class NewerGroup:
    """The members of one group, in one loop. A context: at its end all members leave and the group is deleted."""

    def __init__(self, bootstrap: str, group: str, topic: str, partitions: int) -> None:
        self._bootstrap = bootstrap
        self._group = group
        self._topic = topic
        self._partitions = partitions
        self.members: list[NewerMember] = []
        self._heartbeats_before = 0
        """Of members that have left."""
        self._poller = select.epoll()
        self._by_descriptor: dict[int, NewerMember] = {}

    def __enter__(self) -> Self:
        of_request = IncrementalAlterConfigsRequest.Resource
        # The broker would wait for a second between two assignments.
        change = of_request.Config(name="consumer.assignment.interval.ms", config_operation=0, value="0")
        resource = of_request(resource_type=ConfigResource.GROUP, resource_name=self._group, configs=[change])
        with Conversation(self._bootstrap) as conversation:
            delete_group(conversation, self._group)
            request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
            answer = conversation.ask(request, IncrementalAlterConfigsResponse)
            expect_success(answer.responses[0].error_code, "IncrementalAlterConfigs")
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        if failure is None:
            for member in self.members:
                member.leave()
            self._finish(self.members)
        for member in self.members:
            member.socket.close()
        self._poller.close()
        if failure is None:
            with Conversation(self._bootstrap) as conversation:
                delete_group(conversation, self._group)

    @property
    def heartbeats(self) -> int:
        """How many heartbeats the members have sent, those included that have left."""
        return self._heartbeats_before + sum(member.heartbeats for member in self.members)

    def form(self, count: int) -> float:
        """Seconds until ``count`` members, who all join an empty group at once, have all partitions."""
        self.members += [self._connect() for _ in range(count)]
        started = time.perf_counter()
        for member in self.members:
            member.join()
        return self._rebalance(JOINING) - started

    def add_member(self) -> float:
        """Seconds from a new member's first heartbeat until it and all others have their partitions."""
        last = self.members[0].epoch
        newcomer = self._connect()
        started = time.perf_counter()
        newcomer.join()
        self.members.append(newcomer)
        return self._rebalance(last) - started

    def remove_member(self) -> float:
        """Seconds from the last heartbeat of the newest member until all others have its partitions."""
        last = self.members[0].epoch
        leaver = self.members.pop()
        started = time.perf_counter()
        leaver.leave()
        ended = self._rebalance(last)
        self._finish([leaver])
        self._heartbeats_before += leaver.heartbeats
        self._poller.unregister(leaver.socket)
        del self._by_descriptor[leaver.socket.fileno()]
        leaver.socket.close()
        return ended - started

    def _connect(self) -> NewerMember:
        member = NewerMember(self._bootstrap, self._group, self._topic)
        self._by_descriptor[member.socket.fileno()] = member
        self._poller.register(member.socket, select.EPOLLIN)
        return member

    def _rebalance(self, last: int) -> float:
        """Wait until the members agree on an epoch after ``last``. Returns when they did."""
        while not self._agrees_after(last):
            for member in self.members:
                if not member.is_asking:
                    member.heartbeat()
            self._turn()
        ended = time.perf_counter()
        self._finish(self.members)
        return ended

    def _agrees_after(self, last: int) -> bool:
        """Whether all members are in the same epoch, which is later than ``last``, and each partition is one's."""
        epoch = self.members[0].epoch
        if epoch <= last or any(member.epoch != epoch for member in self.members):
            return False
        owned = [index for member in self.members for index in member.partitions]
        return len(owned) == self._partitions and len(set(owned)) == self._partitions

    def _finish(self, members: list[NewerMember]) -> None:
        while any(member.is_asking for member in members):
            self._turn()

    def _turn(self) -> None:
        """Receive for one turn."""
        events = self._poller.poll(STALLED_S)
        if not events:
            raise LoadFailed(f"no member of {self._group} was answered for {STALLED_S} s")
        for descriptor, _ in events:
            self._by_descriptor[descriptor].receive()
