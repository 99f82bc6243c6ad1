"""A client for the bench's own requests beside the load: versions, topics, end offsets, on one blocking connection."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from typing import TypeVar

from protocol.headers import decode_response, encode_request
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.committed_offsets import OffsetCommitRequest, OffsetCommitResponse
from protocol.messages.configs import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from protocol.messages.fetch import FetchRequest
from protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from protocol.messages.produce import ProduceRequest
from protocol.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from protocol.schema import NO_UUID, describe
from storage.batch.records import Record, encode_batch

Answer = TypeVar("Answer")
CLIENT_ID = "bench"
TOPIC_EXISTS_SOON_S = 120.0
# By name, not by topic id, and old enough that other brokers answer them too.
PRODUCE_VERSION = 9
FETCH_VERSION = 12
COMMIT_VERSION = 9
TOPIC_RESOURCE = 2
SET = 0
END_OF_LOG = -1
READ_UNCOMMITTED = 0
READ_COMMITTED = 1
NOT_FOUND_YET = {3, 5, 6}  # UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER


class BrokerRefused(Exception):
    """The broker answered with an error code where the bench needs a success."""


def address_of(bootstrap: str) -> tuple[str, int]:
    host, _, port = bootstrap.rpartition(":")
    return host or "127.0.0.1", int(port)


class Conversation:
    """A blocking connection to a broker, with one request at a time."""

    def __init__(self, bootstrap: str) -> None:
        self._socket = socket.create_connection(address_of(bootstrap), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0
        versions = self._ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
        self.served = {api.api_key: (api.min_version, api.max_version) for api in versions.api_keys}

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, request: object, answer: type[Answer]) -> Answer:
        """Send a request in the newest version that both sides support, and return the answer."""
        info = describe(type(request))
        return self._ask(request, answer, min(info.versions[1], self.served[info.key][1]))

    def _ask(self, request: object, answer: type[Answer], version: int) -> Answer:
        self._correlation_id += 1
        frame = encode_request(self._correlation_id, CLIENT_ID, request, version)
        correlation_id, message = decode_response(answer, version, self.exchange(frame))
        assert correlation_id == self._correlation_id
        return message

    def exchange(self, frame: bytes) -> bytes:
        """Send a whole request, size included. Returns the bytes of the answer without the size."""
        self._socket.sendall(frame)
        return self._receive(int.from_bytes(self._receive(4), "big"))

    def _receive(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            piece = self._socket.recv(size - len(received))
            if not piece:
                raise BrokerRefused("the broker closed the connection")
            received += piece
        return bytes(received)

    def create_topic(self, topic: str, *, partitions: int, configs: Mapping[str, str] | None = None) -> None:
        """Create a topic and wait until every partition answers: a topic in the metadata may not have logs yet."""
        wanted = CreateTopicsRequest.Topic(
            name=topic,
            num_partitions=partitions,
            replication_factor=1,
            assignments=[],
            configs=[CreateTopicsRequest.Topic.Config(name=k, value=v) for k, v in (configs or {}).items()],
        )
        (created,) = self.ask(CreateTopicsRequest(topics=[wanted]), CreateTopicsResponse).topics
        if created.error_code:
            raise BrokerRefused(f"creating {topic} failed with error {created.error_code} ({created.error_message})")
        deadline = time.monotonic() + TOPIC_EXISTS_SOON_S
        while time.monotonic() < deadline:
            if self.leads_all(topic, partitions):
                return
            time.sleep(partitions * 20e-6)  # to ask about ten thousand is work too
        raise BrokerRefused(f"{topic} has no leaders after {TOPIC_EXISTS_SOON_S} s")

    def alter_topic(self, topic: str, configs: Mapping[str, str]) -> None:
        """Set configs of a topic, and leave its others as they are."""
        resource = IncrementalAlterConfigsRequest.Resource(
            resource_type=TOPIC_RESOURCE,
            resource_name=topic,
            configs=[
                IncrementalAlterConfigsRequest.Resource.Config(name=name, config_operation=SET, value=value)
                for name, value in configs.items()
            ],
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        (altered,) = self.ask(request, IncrementalAlterConfigsResponse).responses
        if altered.error_code:
            raise BrokerRefused(f"altering {topic} failed with error {altered.error_code} ({altered.error_message})")

    def commit(self, group: str, topic: str, offset: int) -> None:
        """Commit an offset for partition 0 of a topic, as a consumer that is no member of the group."""
        committed = OffsetCommitRequest.Topic(
            name=topic,
            partitions=[OffsetCommitRequest.Topic.Partition(partition_index=0, committed_offset=offset)],
        )
        request = OffsetCommitRequest(group_id=group, topics=[committed])
        (answer,) = self._ask(request, OffsetCommitResponse, COMMIT_VERSION).topics
        if answer.partitions[0].error_code:
            raise BrokerRefused(f"a commit of {group} failed with error {answer.partitions[0].error_code}")

    def delete_topic(self, topic: str) -> None:
        by_name = DeleteTopicsRequest.Topic(name=topic, topic_id=NO_UUID)
        asked = DeleteTopicsRequest(topics=[by_name], topic_names=[topic], timeout_ms=30_000)
        (deleted,) = self.ask(asked, DeleteTopicsResponse).responses
        if deleted.error_code:
            raise BrokerRefused(f"deleting {topic} failed with error {deleted.error_code}")

    def leads_all(self, topic: str, partitions: int) -> bool:
        """Whether the broker that is asked leads so many partitions of a topic."""
        return self._offset_answers(topic, partitions) is not None

    def end_offsets(self, topic: str, partitions: int) -> int:
        """The sum of the end offsets of all partitions: the number of records in a topic without removed records."""
        found = self._offset_answers(topic, partitions)
        if found is None:
            raise BrokerRefused(f"{topic} has lost a partition")
        return sum(found)

    def _offset_answers(self, topic: str, partitions: int) -> list[int] | None:
        asked = [
            ListOffsetsRequest.Topic.Partition(partition_index=number, timestamp=END_OF_LOG)
            for number in range(partitions)
        ]
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsRequest.Topic(name=topic, partitions=asked)], timeout_ms=10_000
        )
        (answer,) = self.ask(request, ListOffsetsResponse).topics
        codes = {partition.error_code for partition in answer.partitions}
        if codes & NOT_FOUND_YET:
            return None
        if codes != {0}:
            raise BrokerRefused(f"ListOffsets of {topic} failed with errors {sorted(codes)}")
        return [partition.offset for partition in answer.partitions]


def produce_frame(topic: str, partition: int, *, records: int, value_bytes: int, acks: int = -1) -> bytes:
    """The bytes of a Produce request, size included: one batch of `records` records with values of `value_bytes`."""
    now_ms = int(time.time() * 1000)
    value = (b"0123456789abcdef" * (value_bytes // 16 + 1))[:value_bytes]
    batch = encode_batch([Record(timestamp=now_ms, value=value) for _ in range(records)])
    request = ProduceRequest(
        acks=acks,
        timeout_ms=30_000,
        topic_data=[
            ProduceRequest.TopicData(
                name=topic,
                partition_data=[ProduceRequest.TopicData.PartitionData(index=partition, records=memoryview(batch))],
            )
        ],
    )
    return encode_request(0, CLIENT_ID, request, PRODUCE_VERSION)


def fetch_frame(
    topic: str,
    partitions: list[int],
    *,
    partition_bytes: int,
    fetch_offset: int = 0,
    session_id: int = 0,
    session_epoch: int = -1,
    isolation_level: int = READ_UNCOMMITTED,
) -> bytes:
    """The bytes of a Fetch request, size included. Without a session, each repetition gets the same records."""
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=0x7FFF_FFFF,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[
            FetchRequest.Topic(
                topic=topic,
                partitions=[
                    FetchRequest.Topic.Partition(
                        partition=number, fetch_offset=fetch_offset, partition_max_bytes=partition_bytes
                    )
                    for number in partitions
                ],
            )
        ],
    )
    return encode_request(0, CLIENT_ID, request, FETCH_VERSION)
