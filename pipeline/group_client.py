"""GroupClient: lists groups, and reads and writes their committed offsets, by requests of our own.

librdkafka takes texts for C strings: it reads on behind the end of a committed metadata, adds a zero byte to a metadata
that it commits, and cuts the id of a group at a zero byte. Kafka Streams keeps bytes of its own in the metadata.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, Final, NamedTuple, TypeVar

from pipeline.errors import BrokerError
from protocol.errors import ErrorCode
from protocol.headers import decode_response, encode_request
from protocol.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.groups import ListGroupsRequest, ListGroupsResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.primitives import Malformed
from storage.sentinels import NO_OFFSET
from storage.topic_partition import TopicPartition

Answer = TypeVar("Answer")

_RETRY_S: Final = 0.05
_METADATA_VERSION: Final = 9
_LIST_VERSION: Final = 3
_FIND_VERSION: Final = 3
_FETCH_VERSION: Final = 6
_COMMIT_VERSION: Final = 8
"""Versions that Kafka has from 2.4 on."""

_GROUP: Final = 0
_SHARE: Final = "share"
"""The protocol type of share groups, which commit no offsets."""

_NOT_YET: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class Commit(NamedTuple):
    """The committed offset of a group for a partition."""

    offset: int
    leader_epoch: int
    """The leader epoch of the record before the offset; -1 where the consumer did not send it."""
    metadata: str


class GroupClient:
    """Asks the brokers of a cluster, over a connection for each call. All methods raise BrokerError."""

    def __init__(self, bootstrap: str, timeout_s: float) -> None:
        """``bootstrap``: addresses of listeners without TLS and SASL, separated by commas."""
        self._bootstrap = bootstrap
        self._timeout_s = timeout_s

    def groups(self) -> list[str]:
        """The groups that may have committed offsets, with members or only with offsets."""
        with self._connected(self._bootstrap) as connection:
            request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
            brokers = _ask(connection, request, _METADATA_VERSION, MetadataResponse).brokers
        found = set()
        for broker in brokers:
            with self._connected(f"{broker.host}:{broker.port}") as connection:
                for _ in self._attempts("the list of groups"):
                    answer = _ask(connection, ListGroupsRequest(), _LIST_VERSION, ListGroupsResponse)
                    if _is_done(answer.error_code, "the list of groups"):
                        break
            found |= {group.group_id for group in answer.groups if group.protocol_type != _SHARE}
        return sorted(found)

    def commits(self, group: str) -> dict[TopicPartition, Commit]:
        """The committed offsets of a group; none for an unknown group."""
        subject = f"offsets of group {group}"
        request = OffsetFetchRequest(group_id=group, topics=None)
        for connection in self._coordinators(group, subject):
            answer = _ask(connection, request, _FETCH_VERSION, OffsetFetchResponse)
            if _is_done(answer.error_code, subject):
                break
        return {
            TopicPartition(topic.name, one.partition_index): Commit(
                one.committed_offset, one.committed_leader_epoch, one.metadata or ""
            )
            for topic in answer.topics
            for one in topic.partitions
            if one.error_code == ErrorCode.NONE and one.committed_offset != NO_OFFSET
        }

    def commit(self, group: str, offsets: Mapping[TopicPartition, Commit]) -> None:
        """Commit offsets for a group without members. The group is created if it does not exist."""
        subject = f"commit for group {group}"
        request = OffsetCommitRequest(
            group_id=group,
            topics=[
                OffsetCommitRequest.Topic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequest.Topic.Partition(
                            partition_index=place.partition, committed_offset=commit.offset,
                            committed_leader_epoch=commit.leader_epoch, committed_metadata=commit.metadata,
                        )
                        for place, commit in of_topic
                    ],
                )
                for topic, of_topic in groupby(sorted(offsets.items()), key=lambda one: one[0].topic)
            ],
        )  # fmt: skip
        for connection in self._coordinators(group, subject):
            answer = _ask(connection, request, _COMMIT_VERSION, OffsetCommitResponse)
            codes = {partition.error_code for topic in answer.topics for partition in topic.partitions}
            if _is_done(next((code for code in codes if code != ErrorCode.NONE), ErrorCode.NONE), subject):
                return

    def _coordinators(self, group: str, subject: str) -> Iterator[socket.socket]:
        """Connections to the group's coordinator, again and again until the time is over. Asking for the coordinator
        brings the groups' topic into being."""
        for _ in self._attempts(subject):
            with self._connected(self._bootstrap) as connection:
                find = FindCoordinatorRequest(key=group, key_type=_GROUP)
                found = _ask(connection, find, _FIND_VERSION, FindCoordinatorResponse)
            if _is_done(found.error_code, subject):
                with self._connected(f"{found.host}:{found.port}") as connection:
                    yield connection

    def _attempts(self, subject: str) -> Iterator[None]:
        deadline_s = time.monotonic() + self._timeout_s
        while time.monotonic() < deadline_s:
            yield
            time.sleep(_RETRY_S)
        raise BrokerError(f"the broker at {self._bootstrap} was not ready within {self._timeout_s:.0f} s ({subject})")

    def _connected(self, addresses: str) -> socket.socket:
        """A connection to the first of these addresses that takes it."""
        reason: object = None
        for address in addresses.split(","):
            host, _, port = address.strip().rpartition(":")
            try:
                return socket.create_connection((host.strip("[]"), int(port)), self._timeout_s)
            except ValueError:
                reason = f"{address!r} is no host:port"
            except OSError as error:
                reason = error
        raise BrokerError(f"the broker at {addresses} did not answer: {reason}")


def _is_done(code: int, subject: str) -> bool:
    """Whether a request has succeeded; False if it may succeed a moment later. Raises BrokerError."""
    if code in _NOT_YET:
        return False
    if code == ErrorCode.NONE:
        return True
    try:
        name = ErrorCode(code).name
    except ValueError:
        name = f"error code {code}"
    raise BrokerError(f"the broker refused: {name} ({subject})", code)


def _ask(connection: socket.socket, request: Any, version: int, answer: type[Answer]) -> Answer:
    try:
        connection.sendall(encode_request(0, "ottla-pipeline", request, version))
        size = int.from_bytes(_receive(connection, 4), "big")
        return decode_response(answer, version, _receive(connection, size))[1]
    except (OSError, Malformed) as error:
        raise BrokerError(f"the broker did not answer {type(request).__name__}: {error}") from error


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        piece = connection.recv(size - len(received))
        if not piece:
            raise ConnectionError(f"the connection ended after {len(received)} of {size} bytes")
        received += piece
    return bytes(received)
