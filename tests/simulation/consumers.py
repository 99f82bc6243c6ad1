"""Consumers: reading partitions as clients do, while the run lasts and in the end."""

import asyncio
from collections import defaultdict
from typing import Final

from protocol.errors import ErrorCode
from protocol.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from storage.batch.record_batch import CONTROL_BIT, TRANSACTIONAL_BIT, computed_crc, read_header
from storage.batch.records import iterate_records
from tests.simulation.client import GROUP, SimulatedClient
from tests.simulation.cluster import require
from tests.simulation.history import History, Partition, StoredRecord

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
_ABORT: Final = 0
_EARLIEST: Final = -2
_LENGTH_BYTES: Final = 12
"""The base offset and the length stand before what the length counts."""


class Reader:
    """Reads one partition from an offset on, with the filter of its isolation level."""

    def __init__(
        self,
        client: SimulatedClient,
        partition: Partition,
        isolation_level: int,
        *,
        only_leaders: bool = True,
        topic_id: bytes | None = None,
    ) -> None:
        """``only_leaders``: whether it reads from the leader alone, and not from any replica (KIP-392). ``topic_id``:
        the one topic of this name that is to be read; None: any."""
        self._topic_id = topic_id
        self._client = client
        self._ask = client.ask_leader if only_leaders else client.ask_replica
        self.partition = partition
        self._isolation_level = isolation_level
        self.offset = 0
        self.end = -1
        """The high watermark, or the last stable offset, at the last answer."""
        self.high_watermark = -1

    async def read(self, *, max_wait_ms: int = 0) -> list[StoredRecord] | None:
        """The next records, possibly none; None where the broker has given no answer or another error."""
        topic, index = self.partition
        view = await self._client.topic(topic)
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            isolation_level=self._isolation_level,
            topics=[
                FetchRequest.Topic(
                    topic_id=self._topic_id or view.topic_id,
                    partitions=[
                        FetchRequest.Topic.Partition(
                            partition=index,
                            current_leader_epoch=view.leader_epochs.get(index, -1),
                            fetch_offset=self.offset,
                            partition_max_bytes=1 << 20,
                        )
                    ],
                )
            ],
        )
        answer = await self._ask(topic, index, request, FetchResponse, version=15, purpose="fetch")
        if answer is None:
            return None
        require(answer.error_code == ErrorCode.NONE, f"a fetch was answered with error {answer.error_code}")
        found = answer.responses[0].partitions[0]
        if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self.offset = await start_offset(self._client, self.partition)
            return None
        if found.error_code != ErrorCode.NONE:
            self._client.forget(topic)
            return None
        is_committed = self._isolation_level == READ_COMMITTED
        self.high_watermark = found.high_watermark
        self.end = found.last_stable_offset if is_committed else found.high_watermark
        return self._records_of(found, is_committed=is_committed)

    def _records_of(self, found: FetchResponse.Response.Partition, *, is_committed: bool) -> list[StoredRecord]:
        records: list[StoredRecord] = []
        received = found.records or b""
        assert isinstance(received, bytes | memoryview), "what a client receives is no region of a file"
        memory = memoryview(received)
        beginnings: dict[int, list[int]] = defaultdict(list)
        if is_committed:
            for one in found.aborted_transactions or ():
                beginnings[one.first_offset].append(one.producer_id)
        aborted: set[int] = set()
        while len(memory) >= _LENGTH_BYTES:
            header = read_header(memory)
            if len(memory) < header.size:
                break
            batch, memory = memory[: header.size], memory[header.size :]
            require(
                computed_crc(batch, 0, header.size) == header.crc,
                f"{self.partition}: the batch at offset {header.base_offset} has the wrong CRC",
            )
            last_offset = header.base_offset + header.last_offset_delta
            for first_offset in [one for one in beginnings if one <= last_offset]:
                aborted.update(beginnings.pop(first_offset))
            if header.attributes & CONTROL_BIT:
                marker = next(iterate_records(batch))
                if marker.key is not None and int.from_bytes(marker.key[2:4], "big") == _ABORT:
                    aborted.discard(header.producer_id)
            elif not (header.attributes & TRANSACTIONAL_BIT and header.producer_id in aborted):
                for record in iterate_records(batch):
                    if record.offset >= self.offset:
                        records.append(  # noqa: PERF401 - a comprehension would be longer
                            StoredRecord(
                                record.offset,
                                bytes(record.value or b""),
                                header.partition_leader_epoch,
                                bytes(record.key or b""),
                            )
                        )
            self.offset = max(self.offset, last_offset + 1)
        return records

    @property
    def has_reached_end(self) -> bool:
        """Whether everything is read up to the end that the last answer had."""
        return 0 <= self.end <= self.offset

    async def read_all(self, *, waits_for_transactions: bool = True) -> list[StoredRecord]:
        """Everything up to the high watermark, or up to the last stable offset, behind which a transaction may be open
        for ever whose coordinator has lost its memory."""
        records: list[StoredRecord] = []
        while not self.has_reached_end or (waits_for_transactions and self.offset < self.high_watermark):
            more = await self.read()
            records += more or ()
            if not more:
                await self._client.pause()
        return records


async def start_offset(client: SimulatedClient, partition: Partition) -> int:
    """Where a partition begins, asked for until its leader answers."""
    topic, index = partition
    of_topic = ListOffsetsRequest.Topic
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[of_topic(name=topic, partitions=[of_topic.Partition(partition_index=index, timestamp=_EARLIEST)])],
    )
    while True:
        answer = await client.ask_leader(topic, index, request, ListOffsetsResponse, version=7)
        if answer is not None:
            found = answer.topics[0].partitions[0]
            if found.error_code == ErrorCode.NONE:
                return found.offset
            client.forget(topic)
        await client.pause()


class Consumer:
    """Reads a partition while the run lasts, notes what it sees, and commits how far it has come."""

    def __init__(
        self, client: SimulatedClient, history: History, partition: Partition, isolation_level: int, *, may_change: bool
    ) -> None:
        """``may_change``: whether what was seen may be lost, and others stand there later."""
        self._client = client
        self._history = history
        self._reader = Reader(client, partition, isolation_level, only_leaders=client.random.random() < 0.5)
        self._may_change = may_change
        self.is_over = False

    async def run(self) -> None:
        """Read until `is_over`."""
        client, partition = self._client, self._reader.partition
        while not self.is_over:
            records = await self._reader.read(max_wait_ms=client.random.choice((0, 50, 500)))
            if records is None:
                await client.pause()
                continue
            for record in records:
                self._history.saw(partition, record, may_change=self._may_change)
            if records and client.random.random() < 0.5:
                await commit(client, self._history, partition, self._reader.offset)
            elif not records:
                await asyncio.sleep(client.random.uniform(0.01, 0.1))


async def commit(client: SimulatedClient, history: History, partition: Partition, offset: int) -> None:
    """Commit an offset for the client's group; what is not answered in the first try is given up."""
    topic, index = partition
    request = OffsetCommitRequest(
        group_id=client.name,
        topics=[
            OffsetCommitRequest.Topic(
                name=topic,
                partitions=[OffsetCommitRequest.Topic.Partition(partition_index=index, committed_offset=offset)],
            )
        ],
    )
    answer = await client.ask_coordinator(
        GROUP, client.name, request, OffsetCommitResponse, lambda one: one.topics[0].partitions[0].error_code, version=8
    )
    if answer is None:
        history.unanswered_offsets.setdefault((client.name, partition), set()).add(offset)
    elif answer.topics[0].partitions[0].error_code == ErrorCode.NONE:
        history.committed_offsets.setdefault((client.name, partition), []).append(offset)


async def committed_offset(client: SimulatedClient, group: str, partition: Partition) -> int:
    """The committed offset of a group, asked for until there is an answer; -1 where there is none."""
    topic, index = partition
    request = OffsetFetchRequest(
        group_id=group, topics=[OffsetFetchRequest.Topic(name=topic, partition_indexes=[index])]
    )
    while True:
        answer = await client.ask_coordinator(
            GROUP, group, request, OffsetFetchResponse, lambda one: one.error_code, version=7
        )
        if answer is not None and answer.error_code == ErrorCode.NONE:
            return answer.topics[0].partitions[0].committed_offset
        await client.pause()
