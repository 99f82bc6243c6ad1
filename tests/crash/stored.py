"""The batches, offsets, epochs and topics of a broker, requested over the wire without a client library."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from protocol.messages.configs import DescribeConfigsRequest
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from storage.batch.checksum import crc32c
from storage.batch.record_batch import ATTRIBUTES_POSITION, HEADER_SIZE, read_header
from storage.batch.records import iterate_records
from tests.crash.promises import Promise, require
from tests.crash.topics import Place
from tests.support.raw_client import RawClient
from tests.support.requests import fetch_request

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4

_EARLIEST: Final = -2
_LATEST: Final = -1
_A_FETCH_BYTES: Final = 16 << 20


class Batch(NamedTuple):
    """A batch as it was read, but for its records."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    crc: int
    size: int
    max_timestamp: int


class Stored:
    """One connection to a broker, for questions."""

    def __init__(self, bootstrap: str) -> None:
        self._client = RawClient(bootstrap)

    def close(self) -> None:
        self._client.close()

    def ask(self, request: Any, version: int) -> Any:
        """Any question at all. Raises OSError when the broker goes away meanwhile."""
        return self._client.ask(request, version)

    def topics(self) -> dict[str, MetadataResponse.Topic]:
        """All topics, by name."""
        answer = self.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False), 12)
        return {topic.name: topic for topic in answer.topics}

    def config(self, resource_type: int, name: str, key: str) -> str | None:
        """One config of a topic, or with the name "" of all brokers. None where nothing is set for all brokers."""
        resource = DescribeConfigsRequest.Resource(
            resource_type=resource_type, resource_name=name, configuration_keys=[key]
        )
        (result,) = self.ask(DescribeConfigsRequest(resources=[resource]), 4).results
        require(result.error_code == 0, Promise.METADATA, f"configs of {name!r}: error {result.error_code}")
        return next((entry.value for entry in result.configs), None)

    def bounds(self, place: Place) -> tuple[int, int]:
        """Where a partition begins and ends."""
        return self.offset_at(place, _EARLIEST), self.offset_at(place, _LATEST)

    def offset_at(self, place: Place, timestamp_ms: int) -> int:
        """The first offset with that time or a later one."""
        found = self._offset(place, timestamp_ms)
        require(found.error_code == 0, Promise.NOTHING_MISSING, f"ListOffsets of {place}: error {found.error_code}")
        return int(found.offset)

    def is_served(self, place: Place) -> bool:
        """Whether the partition can be asked for anything."""
        return bool(self._offset(place, _LATEST).error_code == 0)

    def _offset(self, place: Place, timestamp_ms: int) -> Any:
        asked = ListOffsetsRequest.Topic.Partition(partition_index=place.partition, timestamp=timestamp_ms)
        topic = ListOffsetsRequest.Topic(name=place.topic, partitions=[asked])
        return self.ask(ListOffsetsRequest(replica_id=-1, topics=[topic]), 7).topics[0].partitions[0]

    def epoch_end(self, place: Place, leader_epoch: int) -> int:
        """The offset behind the last record of that epoch, or of the last one before it."""
        asked = OffsetForLeaderEpochRequest.Topic.Partition(partition=place.partition, leader_epoch=leader_epoch)
        topic = OffsetForLeaderEpochRequest.Topic(topic=place.topic, partitions=[asked])
        found = self.ask(OffsetForLeaderEpochRequest(topics=[topic]), 4).topics[0].partitions[0]
        require(found.error_code == 0, Promise.EPOCH_ENDS, f"epoch {leader_epoch} of {place}: error {found.error_code}")
        return int(found.end_offset)

    def batches(self, place: Place, start: int, end: int) -> Iterator[tuple[Batch, memoryview]]:
        """The batches from the one that holds ``start`` up to ``end``, each with all of its bytes.

        Each begins where the one before it ended, and has the checksum that it says.
        """
        expected = start
        while expected < end:
            answer = self._fetch(place, expected, _A_FETCH_BYTES)
            before = expected
            for batch, data in _whole_batches(answer):
                fits = batch.base_offset <= expected if expected == start else batch.base_offset == expected
                require(
                    fits and batch.last_offset >= expected,
                    Promise.CONTINUOUS,
                    f"{place}: offset {expected} was due, {batch.base_offset}..{batch.last_offset} came",
                )
                require(
                    batch.crc == crc32c(data[ATTRIBUTES_POSITION:]),
                    Promise.CONTINUOUS,
                    f"{place}: the batch at {batch.base_offset}, {batch.size} bytes, has not the checksum that it says",
                )
                expected = batch.last_offset + 1
                yield batch, data
            require(expected > before, Promise.CONTINUOUS, f"{place} gave nothing at {before}, and ends at {end}")

    def batch_at(self, place: Place, offset: int) -> Batch | None:
        """The first batch of a fetch at ``offset`` that wants as little as possible."""
        return next((batch for batch, _ in _whole_batches(self._fetch(place, offset, 1))), None)

    def _fetch(self, place: Place, offset: int, most_bytes: int) -> memoryview:
        request = fetch_request(
            place.topic, partition=place.partition, offset=offset, partition_max_bytes=most_bytes, max_bytes=2**31 - 1
        )
        partition = self.ask(request, 12).responses[0].partitions[0]
        require(
            partition.error_code == 0, Promise.CONTINUOUS, f"fetch of {place} at {offset}: error {partition.error_code}"
        )
        return memoryview(partition.records or b"")


def values_in(data: memoryview) -> list[tuple[int, bytes | None]]:
    """Offset and value of every record in a batch."""
    return [(record.offset, record.value) for record in iterate_records(data)]


def _whole_batches(data: memoryview) -> Iterator[tuple[Batch, memoryview]]:
    position = 0
    while len(data) - position >= HEADER_SIZE:
        header = read_header(data, position)
        size = header.size
        if not HEADER_SIZE <= size <= len(data) - position:
            return
        yield (
            Batch(
                header.base_offset, header.last_offset, header.partition_leader_epoch, header.crc, size,
                header.max_timestamp,
            ),
            data[position : position + size],
        )  # fmt: skip
        position += size
