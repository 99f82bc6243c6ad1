"""EndOffsets, RemoteEndOffsets: which leader is asked for the end of a partition, and what is told of its answer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

from broker.coordinators.end_offsets import EndOffsets
from broker.coordinators.remote_end_offsets import FIRST_PAUSE_MS, MOST_ATTEMPTS, RemoteEndOffsets
from broker.metadata.cache import MetadataCache
from broker.metadata.image.metadata_image import MetadataDelta
from broker.runtime.manual_clock import ManualClock
from protocol.errors import ErrorCode as E
from protocol.messages.list_offsets import ListOffsetsResponse
from protocol.records.cluster_metadata import PartitionRecord, TopicRecord
from storage.topic_partition import TopicPartition
from tests.unit.broker.coordinators.brokers import Asked, Brokers, settle
from tests.unit.broker.peers.harness import by_hand

OURS, SECOND, THIRD, NOBODY = 1, 2, 3, -1
ORDERS = bytes(15) + b"\x01"
LEADERS = (OURS, SECOND, SECOND, THIRD, NOBODY, OURS)
"""Of the partitions; of the last one this broker has no replica yet."""


class Exchange:
    """This broker is broker 1."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.brokers = Brokers(self.clock)
        self.brokers.known["list_offsets"] = (1, 11)
        self.failures: list[BaseException] = []
        metadata = MetadataCache()
        delta = MetadataDelta(metadata.image)
        delta.replay(TopicRecord(name="orders", topic_id=ORDERS))
        for index, leader in enumerate(LEADERS):
            delta.replay(
                PartitionRecord(
                    partition_id=index, topic_id=ORDERS, replicas=[1, 2, 3], isr=[1, 2, 3], leader=leader,
                    leader_epoch=1, partition_epoch=1,
                )
            )  # fmt: skip
        metadata.image = delta.apply(1)
        hosted = {TopicPartition("orders", 0): SimpleNamespace(is_leader=True, log=SimpleNamespace(high_watermark=7))}
        replicas = SimpleNamespace(find=lambda topic, index: hosted.get(TopicPartition(topic, index)))
        self.remote = RemoteEndOffsets(
            self.brokers.nodes("end-offsets"),
            later=lambda after_ms, call: self.clock.call_at(self.clock.monotonic_ms() + after_ms, call),
            on_failure=self.failures.append,
        )
        self.ends = EndOffsets(cast(Any, replicas), metadata, node_id=OURS, remote=self.remote)
        self.answers: dict[int, tuple[E, int]] = {}

    def find(self, *indexes: int, topic: str = "orders") -> None:
        for index in indexes:
            self.ends.find(TopicPartition(topic, index), lambda *answer, index=index: self.told(index, *answer))  # type: ignore[misc]

    def told(self, index: int, code: E, offset: int) -> None:
        assert index not in self.answers, "it is told twice"
        self.answers[index] = code, offset


@asynccontextmanager
async def exchange() -> AsyncIterator[Exchange]:
    it = Exchange()
    yield it
    await it.remote.close()
    assert it.failures == []


def answer(asked: Asked, ends: dict[int, tuple[E, int]]) -> None:
    of_topic = ListOffsetsResponse.Topic
    partitions = [
        of_topic.Partition(partition_index=index, error_code=code, offset=offset)
        for index, (code, offset) in ends.items()
    ]
    asked.answer(ListOffsetsResponse(topics=[of_topic(name="orders", partitions=partitions)]))


@by_hand
async def test_what_is_led_here_is_known_at_once() -> None:
    async with exchange() as it:
        it.find(0, 5)
        it.find(9)
        assert it.answers == {
            0: (E.NONE, 7),
            5: (E.NOT_LEADER_OR_FOLLOWER, -1),
            9: (E.UNKNOWN_TOPIC_OR_PARTITION, -1),
        }
        it.find(4)
        assert it.answers[4] == (E.LEADER_NOT_AVAILABLE, -1)
        it.answers.clear()
        it.find(0, topic="nothing")
        assert it.answers == {0: (E.UNKNOWN_TOPIC_OR_PARTITION, -1)}


@by_hand
async def test_other_leaders_are_asked_each_for_all_its_partitions() -> None:
    async with exchange() as it:
        it.find(1, 2, 3)
        await settle()
        second, third = it.brokers.asked
        assert (second.node_id, third.node_id) == (SECOND, THIRD)
        (topic,) = second.message.topics
        assert [(one.partition_index, one.timestamp) for one in topic.partitions] == [(1, -1), (2, -1)]
        assert (second.message.replica_id, second.message.isolation_level) == (-1, 0)
        answer(second, {1: (E.NONE, 5), 2: (E.NOT_LEADER_OR_FOLLOWER, -1)})
        answer(third, {})
        await settle()
        assert it.answers == {1: (E.NONE, 5), 2: (E.NOT_LEADER_OR_FOLLOWER, -1), 3: (E.UNKNOWN_SERVER_ERROR, -1)}


@by_hand
async def test_a_partition_that_two_ask_for_is_asked_once() -> None:
    async with exchange() as it:
        it.find(1)
        it.ends.find(TopicPartition("orders", 1), lambda *told: it.told(100, *told))
        await settle()
        asked = it.brokers.take()
        assert len(asked.message.topics[0].partitions) == 1
        answer(asked, {1: (E.NONE, 5)})
        await settle()
        assert it.answers == {1: (E.NONE, 5), 100: (E.NONE, 5)}


@by_hand
async def test_a_leader_that_does_not_answer_is_asked_five_times() -> None:
    async with exchange() as it:
        it.find(1)
        for attempt in range(MOST_ATTEMPTS):
            await settle()
            assert it.answers == {}
            it.brokers.take().lose()
            await settle()
            for _ in range(FIRST_PAUSE_MS << attempt):
                it.clock.advance(1)
                await settle()
        assert it.answers == {1: (E.NETWORK_EXCEPTION, -1)}


@by_hand
async def test_who_waits_at_the_end_is_told() -> None:
    async with exchange() as it:
        it.find(1)
        await settle()
        it.find(2)
        await it.remote.close()
        it.find(3)
        assert it.answers == dict.fromkeys((1, 2, 3), (E.NETWORK_EXCEPTION, -1))
