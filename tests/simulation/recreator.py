"""Recreator: creates a topic, writes to it, deletes it and creates another of the same name, while the run lasts."""

from typing import Final

from protocol.errors import ErrorCode
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.messages.topics import DeleteTopicsRequest, DeleteTopicsResponse
from storage.batch.records import Record, encode_batch
from tests.simulation.client import SimulatedClient
from tests.simulation.cluster import require
from tests.simulation.consumers import READ_UNCOMMITTED, Reader
from tests.simulation.history import StoredRecord

FLEETING: Final = ("fleeting", 0)


class Recreator:
    """The only client that uses the topic `FLEETING`. A value names the topic of that name that it was sent to."""

    def __init__(self, client: SimulatedClient, *, replicas: int, is_kept: bool) -> None:
        """``is_kept``: whether no acknowledged record may be lost in this run."""
        self._client = client
        self._replicas = replicas
        self._is_kept = is_kept
        self._acknowledged: dict[int, bytes] = {}
        self._topic_id = b""
        self._former = {b""}
        self.is_over = False

    async def run(self) -> None:
        """Go on until `is_over`; a topic is there in the end."""
        client, random = self._client, self._client.random
        while True:
            await client.create_topic(FLEETING[0], 1, replicas=self._replicas)
            await self._find()
            self._acknowledged.clear()
            for number in range(random.randint(1, 15)):
                await self._write(b"%s:%d" % (self._topic_id.hex().encode(), number))
            await self.check()
            if self.is_over:
                return
            await self._delete()

    async def _find(self) -> None:
        """Find the new topic's id; a broker may still know a former topic."""
        while self._topic_id in self._former:
            await self._client.pause()
            self._client.forget(FLEETING[0])
            self._topic_id = (await self._client.topic(FLEETING[0])).topic_id

    async def _write(self, value: bytes) -> None:
        """Write a value once, or give it up: by topic id, so that it can't come to the next topic of the name."""
        batch = encode_batch([Record(timestamp=self._client.clock.now_ms(), key=None, value=value)])
        request = ProduceRequest(
            acks=-1,
            timeout_ms=2_000,
            topic_data=[
                ProduceRequest.TopicData(
                    topic_id=self._topic_id,
                    partition_data=[
                        ProduceRequest.TopicData.PartitionData(index=FLEETING[1], records=memoryview(batch))
                    ],
                )
            ],
        )
        answer = await self._client.ask_leader(*FLEETING, request, ProduceResponse, version=13)
        found = None if answer is None else answer.responses[0].partition_responses[0]
        if found is not None and found.error_code == ErrorCode.NONE:
            self._acknowledged[found.base_offset] = value
        else:
            self._client.forget(FLEETING[0])
            await self._client.pause()

    async def check(self) -> None:
        """Read the topic, and compare."""
        reader = Reader(self._client, FLEETING, READ_UNCOMMITTED, topic_id=self._topic_id)
        records: dict[int, StoredRecord] = {}
        # A new leader's high watermark may still be below what was acknowledged.
        last = max(self._acknowledged, default=-1) if self._is_kept else -1
        while reader.offset <= last or not reader.has_reached_end:
            records.update((one.offset, one) for one in await reader.read() or ())
            if not reader.has_reached_end:
                await self._client.pause()
        own = self._topic_id.hex().encode() + b":"
        for record in records.values():
            require(record.value.startswith(own), f"the topic {own!r} has {record.value!r} of a former one")
        for offset, value in self._acknowledged.items() if self._is_kept else ():
            found = records.get(offset)
            require(
                found is not None and found.value == value,
                f"{FLEETING}: {value!r} was acknowledged at offset {offset}, and {found!r} is there",
            )

    async def _delete(self) -> None:
        """Delete the topic, trying until a broker says that it is gone: by its id, since what is tried once too often
        must not delete the next topic."""
        request = DeleteTopicsRequest(
            topics=[DeleteTopicsRequest.Topic(name=None, topic_id=self._topic_id)], timeout_ms=2_000
        )
        while True:
            answer = await self._client.ask(self._client.any_broker, request, DeleteTopicsResponse, version=6)
            if answer is not None:
                code = answer.responses[0].error_code
                require(code != ErrorCode.UNKNOWN_SERVER_ERROR, "a deletion was answered with UNKNOWN_SERVER_ERROR")
                if code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID):
                    self._former.add(self._topic_id)
                    return
            await self._client.pause()
