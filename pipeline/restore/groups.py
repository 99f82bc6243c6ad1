"""Restoring the committed offsets of consumer groups."""

import socket
import time
from collections.abc import Iterable
from itertools import groupby
from typing import Any, Final, TypeVar

from pipeline.archive.manifest import CommittedOffset
from pipeline.broker import Broker, BrokerError, Commit
from protocol.errors import ErrorCode
from protocol.headers import decode_response, encode_request
from protocol.messages.committed_offsets import OffsetCommitRequest, OffsetCommitResponse
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from storage.topic_partition import TopicPartition

Answer = TypeVar("Answer")

_TIMEOUT_S: Final = 30.0
_RETRY_S: Final = 0.05
_COMMIT_VERSION: Final = 8
_FIND_VERSION: Final = 3
_GROUP: Final = 0
_NOT_YET: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


def commit_offsets(broker: Broker, committed: Iterable[CommittedOffset]) -> None:
    """Commit these offsets to any Kafka. Raises BrokerError; a group with members refuses.

    librdkafka adds a zero byte to the metadata of a committed offset; see `commit_as_archived`.
    """
    for group, places in groupby(sorted(committed), key=lambda one: one.group):
        broker.commit(
            group,
            {
                TopicPartition(one.topic, one.partition): Commit(one.offset, one.leader_epoch, one.metadata)
                for one in places
            },
        )


def commit_as_archived(bootstrap: str, committed: Iterable[CommittedOffset]) -> None:
    """Commit these offsets, with their exact metadata, to a broker that is alone in its cluster. Raises BrokerError.

    Kafka Streams stores data of its own in the metadata, and reads them strictly.
    """
    try:
        with socket.create_connection(_address(bootstrap), _TIMEOUT_S) as connection:
            for group, places in groupby(sorted(committed), key=lambda one: one.group):
                _commit(connection, group, list(places))
    except OSError as error:
        raise BrokerError(f"the broker at {bootstrap} did not answer: {error}") from error


def _address(bootstrap: str) -> tuple[str, int]:
    host, _, port = bootstrap.rpartition(":")
    return host, int(port)


def _commit(connection: socket.socket, group: str, places: list[CommittedOffset]) -> None:
    request = OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequest.Topic(
                name=topic,
                partitions=[
                    OffsetCommitRequest.Topic.Partition(
                        partition_index=one.partition, committed_offset=one.offset,
                        committed_leader_epoch=one.leader_epoch, committed_metadata=one.metadata,
                    )
                    for one in of_topic
                ],
            )
            for topic, of_topic in groupby(places, key=lambda one: one.topic)
        ],
    )  # fmt: skip
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        # Asking for the coordinator brings the groups' topic into being.
        find = FindCoordinatorRequest(key=group, key_type=_GROUP)
        code = _ask(connection, find, _FIND_VERSION, FindCoordinatorResponse).error_code
        if code == ErrorCode.NONE:
            answer = _ask(connection, request, _COMMIT_VERSION, OffsetCommitResponse)
            codes = {partition.error_code for topic in answer.topics for partition in topic.partitions}
            code = next((one for one in codes if one != ErrorCode.NONE), ErrorCode.NONE)
        if code == ErrorCode.NONE:
            return
        if code not in _NOT_YET or time.monotonic() > deadline:
            raise BrokerError(f"the broker refused commits for group {group}: {ErrorCode(code).name}", code)
        time.sleep(_RETRY_S)


def _ask(connection: socket.socket, request: Any, version: int, answer: type[Answer]) -> Answer:
    connection.sendall(encode_request(0, "ottla-pipeline", request, version))
    size = int.from_bytes(_receive(connection, 4), "big")
    return decode_response(answer, version, _receive(connection, size))[1]


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        piece = connection.recv(size - len(received))
        if not piece:
            raise ConnectionError(f"the connection ended after {len(received)} of {size} bytes")
        received += piece
    return bytes(received)
