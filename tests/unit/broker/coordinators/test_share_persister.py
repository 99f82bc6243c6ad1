"""CoordinatedPersister, RemoteShareStates: whom this broker asks about states of share groups, and what it hears."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

from broker.coordinators.partitioning import partition_of
from broker.coordinators.remote_share_states import RemoteShareStates
from broker.coordinators.share.persister import NOT_COUNTED, SharePartitionKey, ShareState, StateBatch
from broker.coordinators.share.requests import Initialize, Read, StateAnswer, StateReply, StateRequest
from broker.coordinators.share_coordinator import ShareCoordinator, coordinator_key
from broker.coordinators.share_persister import FIRST_PAUSE_MS, MOST_ATTEMPTS, CoordinatedPersister
from broker.metadata.cache import MetadataCache
from broker.metadata.image.metadata_image import MetadataDelta
from broker.metadata.topic_rules import SHARE_GROUP_STATE
from broker.runtime.manual_clock import ManualClock
from protocol.errors import ErrorCode as E
from protocol.messages.share_group_state import (
    DeleteShareGroupStateResponse,
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadShareGroupStateSummaryResponse,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
)
from protocol.records.cluster_metadata import PartitionChangeRecord, PartitionRecord, TopicRecord
from tests.support.broker import InProcessBroker
from tests.unit.broker.coordinators.brokers import Brokers, settle
from tests.unit.broker.peers.harness import by_hand

OURS, SECOND, NOBODY = 1, 2, -1
STATE_ID = bytes(15) + b"\x02"
TOPIC = bytes(range(16))
KNOWN = {
    "initialize_share_group_state": (0, 0),
    "read_share_group_state": (0, 0),
    "write_share_group_state": (0, 1),
    "delete_share_group_state": (0, 0),
    "read_share_group_state_summary": (0, 1),
}


def key_in(index: int, group_id: str = "workers", skip: int = 0) -> SharePartitionKey:
    """A share partition whose state belongs to a partition of three."""
    found = [
        key
        for number in range(100)
        if partition_of(coordinator_key(key := SharePartitionKey(group_id, TOPIC, number)), 3) == index
    ]
    return found[skip]


HERE, THERE, NOWHERE = key_in(0), key_in(1), key_in(2)


class Local:
    """The coordinator on this broker."""

    def __init__(self) -> None:
        self.asked: list[StateRequest] = []
        self.codes: list[E] = []
        """What it answers, one after the other; then NONE."""

    def ask(self, request: StateRequest, reply: StateReply) -> None:
        self.asked.append(request)
        reply(StateAnswer(self.codes.pop(0) if self.codes else E.NONE))


class Exchange:
    """Broker 1, this broker, leads partition 0 of the states' topic, broker 2 partition 1, nobody partition 2."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.brokers = Brokers(self.clock)
        self.brokers.known.update(KNOWN)
        self.local = Local()
        self.metadata = MetadataCache()
        self.failures: list[BaseException] = []
        self.created = 0
        self.answers: list[Any] = []
        self.remote = RemoteShareStates(self.brokers.nodes("share-persister"), on_failure=self.failures.append)
        self.persister = CoordinatedPersister(
            cast(ShareCoordinator, self.local),
            node_id=OURS,
            metadata=self.metadata,
            create_topic=self._create,
            later=lambda after_ms, call: self.clock.call_at(self.clock.monotonic_ms() + after_ms, call),
            chance=lambda: 0.5,
            remote=self.remote,
        )

    def _create(self) -> None:
        self.created += 1

    def with_topic(self) -> None:
        records = (
            TopicRecord(name=SHARE_GROUP_STATE, topic_id=STATE_ID),
            *(
                PartitionRecord(
                    partition_id=index, topic_id=STATE_ID, replicas=[1, 2], isr=[1, 2], leader=leader,
                    leader_epoch=1, partition_epoch=1,
                )
                for index, leader in enumerate((OURS, SECOND, NOBODY))
            ),
        )  # fmt: skip
        self.publish(*records)

    def lead(self, index: int, leader: int) -> None:
        self.publish(PartitionChangeRecord(partition_id=index, topic_id=STATE_ID, leader=leader))

    def publish(self, *records: Any) -> None:
        delta = MetadataDelta(self.metadata.image)
        for record in records:
            delta.replay(record)
        self.metadata.image = delta.apply(self.metadata.image.end_offset + len(records))
        self.persister.apply(delta, self.metadata.image)

    def told(self, *answer: Any) -> None:
        """What the persister's callers are called with."""
        self.answers.append(answer[0] if len(answer) == 1 else answer)

    async def advance(self, by_ms: int) -> None:
        await settle()
        self.clock.advance(by_ms)
        await settle()


@asynccontextmanager
async def exchange(*, has_topic: bool = True) -> AsyncIterator[Exchange]:
    it = Exchange()
    if has_topic:
        it.with_topic()
    yield it
    await it.remote.close()
    assert it.failures == []


def result(response: Any, code: E = E.NONE, key: SharePartitionKey = THERE, **fields: Any) -> Any:
    partition = response.Result.Partition(partition=key.partition, error_code=code, **fields)
    return response(results=[response.Result(topic_id=key.topic_id, partitions=[partition])])


@by_hand
async def test_the_coordinator_here_is_asked_directly() -> None:
    async with exchange() as it:
        it.persister.initialize(HERE, 3, 7, it.told)
        assert it.local.asked == [Initialize(HERE, 3, 7)]
        assert it.answers == [E.NONE]


@by_hand
async def test_the_coordinator_elsewhere_is_asked_over_the_wire() -> None:
    async with exchange() as it:
        state = ShareState(3, 2, 7, 4, [StateBatch(8, 9, 2, 1)])
        it.persister.write(THERE, state, it.told)
        await settle()
        asked = it.brokers.take()
        assert (asked.node_id, asked.version, asked.message.group_id) == (SECOND, 1, "workers")
        (topic,) = asked.message.topics
        (partition,) = topic.partitions
        of_partition = WriteShareGroupStateRequest.Topic.Partition
        assert partition == of_partition(
            partition=THERE.partition,
            state_epoch=3,
            leader_epoch=2,
            start_offset=7,
            delivery_complete_count=4,
            state_batches=[of_partition.StateBatch(first_offset=8, last_offset=9, delivery_state=2, delivery_count=1)],
        )
        asked.answer(result(WriteShareGroupStateResponse))
        await settle()
        assert it.answers == [E.NONE]


@by_hand
async def test_what_was_read_elsewhere_is_as_if_it_was_read_here() -> None:
    async with exchange() as it:
        it.persister.read(THERE, 6, it.told)
        await settle()
        response = ReadShareGroupStateResponse
        batch = response.Result.Partition.StateBatch(first_offset=8, last_offset=9, delivery_state=2, delivery_count=1)
        it.brokers.take().answer(result(response, state_epoch=3, start_offset=7, state_batches=[batch]))
        await settle()
        assert it.answers == [(E.NONE, ShareState(3, 6, 7, NOT_COUNTED, [StateBatch(8, 9, 2, 1)]))]
        it.persister.summarize(THERE, 6, it.told)
        await settle()
        response = ReadShareGroupStateSummaryResponse
        it.brokers.take().answer(
            result(response, state_epoch=3, leader_epoch=5, start_offset=7, delivery_complete_count=2)
        )
        await settle()
        assert it.answers[1:] == [(E.NONE, ShareState(3, 5, 7, 2, ()))]


@by_hand
async def test_what_waits_for_a_coordinator_goes_in_one_request() -> None:
    async with exchange() as it:
        also_there = key_in(1, skip=1)
        it.persister.delete(THERE, it.told)
        it.persister.delete(THERE, it.told)
        it.persister.delete(also_there, it.told)
        it.persister.delete(key_in(1, "others"), it.told)
        await settle()
        first = it.brokers.take()
        assert [one.partition for one in first.message.topics[0].partitions] == [THERE.partition, also_there.partition]
        of = DeleteShareGroupStateResponse.Result
        partitions = [of.Partition(partition=one.partition) for one in first.message.topics[0].partitions]
        first.answer(DeleteShareGroupStateResponse(results=[of(topic_id=TOPIC, partitions=partitions)]))
        await settle()
        second = it.brokers.take()
        assert second.message.group_id == "others"
        second.answer(result(DeleteShareGroupStateResponse, key=key_in(1, "others")))
        await settle()
        third = it.brokers.take()
        third.answer(result(DeleteShareGroupStateResponse, E.UNKNOWN_SERVER_ERROR))
        await settle()
        assert it.answers == [E.NONE] * 3 + [E.UNKNOWN_SERVER_ERROR]


@by_hand
async def test_the_topic_is_created_and_what_waits_for_it_is_asked_at_once() -> None:
    async with exchange(has_topic=False) as it:
        it.persister.initialize(HERE, 1, 0, it.told)
        assert (it.created, it.answers) == (1, [])
        it.with_topic()
        assert it.answers == [E.NONE]
        await it.advance(60_000)
        assert len(it.local.asked) == 1


@by_hand
async def test_what_may_pass_is_tried_again_for_a_while() -> None:
    async with exchange() as it:
        it.local.codes = [E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_COORDINATOR]
        it.persister.read(HERE, 2, it.told)
        await it.advance(FIRST_PAUSE_MS - 1)
        assert len(it.local.asked) == 1
        await it.advance(1)
        assert len(it.local.asked) == 2
        await it.advance(2 * FIRST_PAUSE_MS)
        assert it.local.asked == [Read(HERE, 2)] * 3
        assert it.answers == [(E.NONE, None)]
        it.local.codes = [E.COORDINATOR_LOAD_IN_PROGRESS] * 9
        it.persister.read(HERE, 2, it.told)
        await it.advance(120_000)
        assert len(it.local.asked) == 3 + MOST_ATTEMPTS
        assert it.answers[1:] == [(E.COORDINATOR_LOAD_IN_PROGRESS, None)]


@by_hand
async def test_what_will_not_pass_is_not_tried_again() -> None:
    async with exchange() as it:
        it.local.codes = [E.FENCED_STATE_EPOCH]
        it.persister.write(HERE, ShareState(1, 0, 0, NOT_COUNTED, ()), it.told)
        assert it.answers == [E.FENCED_STATE_EPOCH]


@by_hand
async def test_a_lost_answer_is_asked_for_again_where_the_coordinator_is_then() -> None:
    async with exchange() as it:
        it.persister.initialize(THERE, 1, 0, it.told)
        it.persister.initialize(NOWHERE, 1, 0, it.told)
        await settle()
        it.brokers.take().lose()
        await settle()
        assert it.answers == []
        it.lead(1, OURS)
        it.lead(2, SECOND)
        assert it.local.asked == [Initialize(THERE, 1, 0)]
        await it.advance(1_000)
        asked = it.brokers.take()
        assert isinstance(asked.message, InitializeShareGroupStateRequest)
        asked.answer(result(InitializeShareGroupStateResponse, key=NOWHERE))
        await settle()
        assert it.answers == [E.NONE, E.NONE]


@by_hand
async def test_nobody_waits_for_a_broker_that_stops() -> None:
    async with exchange() as it:
        it.persister.initialize(NOWHERE, 1, 0, it.told)
        it.persister.read(THERE, 0, it.told)
        await settle()
        assert isinstance(it.brokers.take().message, ReadShareGroupStateRequest)
        it.persister.stop()
        await it.remote.close()
        it.persister.delete(HERE, it.told)
        assert it.answers == [E.COORDINATOR_NOT_AVAILABLE, (E.NETWORK_EXCEPTION, None), E.COORDINATOR_NOT_AVAILABLE]


def test_a_whole_broker_keeps_states(broker: InProcessBroker) -> None:
    topic_id = broker.create_topic("orders")
    persister = broker.server.components.share_states.get().persister
    key = SharePartitionKey("workers", topic_id, 0)
    answers: list[Any] = []

    def ask(call: Callable[[], None]) -> Any:
        async def run() -> None:
            call()

        before = len(answers)
        broker.run(run())
        broker.wait_until(lambda: len(answers) > before)
        return answers[-1]

    assert ask(lambda: persister.initialize(key, 1, 5, answers.append)) is E.NONE
    state = ShareState(1, 0, 6, 1, (StateBatch(8, 9, 2, 1),))
    assert ask(lambda: persister.write(key, state, answers.append)) is E.NONE
    found = ask(lambda: persister.read(key, 0, lambda *answer: answers.append(answer)))
    assert found == (E.NONE, state._replace(delivery_complete_count=NOT_COUNTED))
    assert ask(lambda: persister.summarize(key, 0, lambda *answer: answers.append(answer))) == (
        E.NONE,
        state._replace(batches=()),
    )
    assert ask(lambda: persister.delete(key, answers.append)) is E.NONE
