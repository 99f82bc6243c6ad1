"""RemoteLetters: dead letters go to the leader of their queue. And whom a burial asks, and what an answer means."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from broker.metadata.image.metadata_image import MetadataDelta
from broker.runtime.manual_clock import ManualClock
from broker.share.remote_letters import ACKNOWLEDGED_IN_MS, MOST_BYTES, Letters, RemoteLetters
from config.resources import ConfigResource
from protocol.errors import ErrorCode as E
from protocol.messages.produce import ProduceResponse
from protocol.records.cluster_metadata import PartitionChangeRecord
from storage.topic_partition import TopicPartition
from tests.support.altered_configs import configure
from tests.support.broker import InProcessBroker, running_broker
from tests.support.leadership import OTHER, OURS, hand_over
from tests.support.share_groups import InMemoryPersister, ShareMember, codes, keep_states_in_memory
from tests.unit.broker.coordinators.brokers import Asked, Brokers, settle
from tests.unit.broker.peers.harness import by_hand

QUEUE = bytes([5] * 16)
BY_ID, BY_NAME = (0, 13), (0, 12)
RELEASE, REJECT = 2, 3


def answer(asked: Asked, *answered: E) -> None:
    """Answer the partitions of a request in their order."""
    left = iter(answered)
    of_topic = ProduceResponse.Response
    responses = [
        of_topic(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[
                of_topic.PartitionResponse(index=partition.index, error_code=next(left), base_offset=0)
                for partition in topic.partition_data
            ],
        )
        for topic in asked.message.topic_data
    ]
    asked.answer(ProduceResponse(responses=responses))


class Exchange:
    """Letters on their way to brokers 2 and 3."""

    def __init__(self, produce: tuple[int, int]) -> None:
        self.brokers = Brokers(ManualClock())
        self.brokers.known["produce"] = produce
        self.failures: list[BaseException] = []
        self.letters = RemoteLetters(self.brokers.nodes("dead-letters"), on_failure=self.failures.append)
        self.outcomes: list[tuple[str, E]] = []

    def append(self, leader_id: int, name: str, partition: int, size: int = 100) -> None:
        self.letters.append(
            leader_id,
            Letters(
                TopicPartition("dlq", partition),
                QUEUE,
                lambda: bytearray(size),
                lambda code: self.outcomes.append((name, code)),
            ),
        )


@asynccontextmanager
async def exchange(produce: tuple[int, int] = BY_ID) -> AsyncIterator[Exchange]:
    it = Exchange(produce)
    yield it
    await it.letters.close()
    assert it.failures == []


def partitions(asked: Asked) -> Sequence[int]:
    return [partition.index for topic in asked.message.topic_data for partition in topic.partition_data]


@by_hand
async def test_what_waits_for_a_leader_goes_in_one_request() -> None:
    async with exchange() as it:
        it.append(2, "first", 0)
        it.append(2, "second", 1)
        it.append(3, "elsewhere", 2)
        await settle()
        second, third = it.brokers.asked
        assert (second.node_id, partitions(second), third.node_id, partitions(third)) == (2, [0, 1], 3, [2])
        assert (second.version, second.message.acks, second.message.timeout_ms) == (13, -1, ACKNOWLEDGED_IN_MS)
        answer(second, E.NONE, E.NOT_LEADER_OR_FOLLOWER)
        answer(third, E.NONE)
        await settle()
        assert it.outcomes == [("first", E.NONE), ("second", E.NOT_LEADER_OR_FOLLOWER), ("elsewhere", E.NONE)]


@by_hand
async def test_a_leader_that_knows_topics_by_name_only_is_asked_so() -> None:
    async with exchange(BY_NAME) as it:
        it.append(2, "first", 0)
        await settle()
        asked = it.brokers.take()
        assert (asked.version, asked.message.topic_data[0].name) == (12, "dlq")
        answer(asked, E.NONE)
        await settle()
        assert it.outcomes == [("first", E.NONE)]


@by_hand
async def test_a_partition_has_one_batch_in_a_request_and_a_leader_one_request_in_flight() -> None:
    async with exchange() as it:
        it.append(2, "first", 0)
        it.append(2, "same partition", 0)
        await settle()
        asked = it.brokers.take()
        it.append(2, "later", 1)
        await settle()
        assert (partitions(asked), it.brokers.asked) == ([0], [])
        answer(asked, E.NONE)
        await settle()
        assert partitions(it.brokers.take()) == [0, 1]


@by_hand
async def test_a_request_is_not_larger_than_a_megabyte_and_a_batch() -> None:
    async with exchange() as it:
        for partition in range(3):
            it.append(2, str(partition), partition, size=MOST_BYTES // 2)
        await settle()
        asked = it.brokers.take()
        assert partitions(asked) == [0, 1]
        answer(asked, E.NONE, E.NONE)
        await settle()
        assert partitions(it.brokers.take()) == [2]


@by_hand
async def test_without_an_answer_nobody_knows() -> None:
    async with exchange() as it:
        it.append(2, "lost", 0)
        it.brokers.unreachable.add(3)
        it.append(3, "not sent", 0)
        await settle()
        it.brokers.take().lose()
        await settle()
        assert sorted(it.outcomes) == [("lost", E.NETWORK_EXCEPTION), ("not sent", E.NETWORK_EXCEPTION)]


@by_hand
async def test_an_answer_without_the_partition_is_no_success() -> None:
    async with exchange() as it:
        it.append(2, "first", 0)
        await settle()
        it.brokers.take().answer(ProduceResponse(responses=[]))
        await settle()
        assert it.outcomes == [("first", E.UNKNOWN_SERVER_ERROR)]


@by_hand
async def test_behind_the_end_nothing_is_sent() -> None:
    async with exchange() as it:
        it.append(2, "sent", 0)
        await settle()
        it.append(2, "waits", 0)
        await it.letters.close()
        assert it.outcomes == [("sent", E.NETWORK_EXCEPTION)], "what waits is not told of: its records stay as they are"


# A burial -------------------------------------------------------------------------------------------------------------


class Elsewhere:
    """`RemoteLetters` whose leaders the test plays."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, Letters]] = []

    def append(self, leader_id: int, letters: Letters) -> None:
        letters.make()
        self.asked.append((leader_id, letters))

    def answer(self, broker: InProcessBroker, code: E) -> None:
        """Answer the only request."""
        ((_, letters),) = self.asked
        self.asked.clear()

        async def call() -> None:
            letters.then(code)

        broker.run(call())
        broker.settle()


def led_by(broker: InProcessBroker, topic: str, leader: int) -> None:
    """Another node leads the only partition of a topic, as published metadata has it."""
    hand_over(broker, topic, leader)
    metadata = broker.server.components.metadata
    delta = MetadataDelta(metadata.image)
    topic_id = metadata.image.topics.by_name[topic].topic_id
    delta.replay(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=leader))
    metadata.image = delta.apply(metadata.image.end_offset + 1)


def rejected(broker: InProcessBroker) -> tuple[Elsewhere, InMemoryPersister]:
    """Another node leads the dead letter queue; a member rejects two records."""
    elsewhere = Elsewhere()
    assert broker.server.share_delivery is not None
    broker.server.share_delivery._remote_letters = cast(Any, elsewhere)
    persister = keep_states_in_memory(broker)
    topic_id = broker.create_topic("jobs")
    broker.create_topic("dlq.jobs", errors_deadletterqueue_group_enable="true")
    configure(broker, ConfigResource.GROUP, "workers", "share.auto.offset.reset", "earliest")
    configure(broker, ConfigResource.GROUP, "workers", "errors.deadletterqueue.topic.name", "dlq.jobs")
    led_by(broker, "dlq.jobs", OTHER)
    broker.produce("jobs", b"a", b"b")
    anna = ShareMember(broker, topic_id)
    assert anna.acquire() == [(0, 1, 1)]
    assert codes(anna.acknowledge({(topic_id, 0): [(0, 1, REJECT)]})) == [E.NONE, E.NONE]
    broker.settle()
    return elsewhere, persister


def states(persister: InMemoryPersister) -> list[int]:
    return [batch.delivery_state for state in persister.writes for batch in state.batches]


def test_letters_go_to_the_leader_of_the_queue(broker: InProcessBroker) -> None:
    elsewhere, persister = rejected(broker)
    ((leader_id, letters),) = elsewhere.asked
    assert (leader_id, letters.destination) == (OTHER, TopicPartition("dlq.jobs", 0))
    assert letters.topic_id == broker.server.components.metadata.image.topics.by_name["dlq.jobs"].topic_id
    assert states(persister) == [3], "the records are on their way"
    elsewhere.answer(broker, E.NONE)
    assert states(persister) == [3, 4]
    assert broker.server.share_delivery.stats.dead_letters["workers"] == 2


def test_letters_that_are_under_way_when_the_group_leaves_are_not_written_again(broker: InProcessBroker) -> None:
    elsewhere, persister = rejected(broker)
    delivery = broker.server.share_delivery
    assert delivery is not None
    delivery.partitions.remove_group("workers")
    assert not delivery.partitions.hosted()
    elsewhere.answer(broker, E.NONE)
    assert states(persister) == [3, 4]


def test_records_that_are_given_up_with_the_last_session_have_letters(broker: InProcessBroker) -> None:
    keep_states_in_memory(broker)
    topic_id = broker.create_topic("jobs")
    broker.create_topic("dlq.jobs", errors_deadletterqueue_group_enable="true")
    configure(broker, ConfigResource.GROUP, "workers", "share.auto.offset.reset", "earliest")
    configure(broker, ConfigResource.GROUP, "workers", "errors.deadletterqueue.topic.name", "dlq.jobs")
    configure(broker, ConfigResource.GROUP, "workers", "share.delivery.count.limit", "2")
    broker.produce("jobs", b"a")
    anna = ShareMember(broker, topic_id)
    assert anna.acquire() == [(0, 0, 1)]
    assert anna.acquire({(topic_id, 0): [(0, 0, RELEASE)]}) == [(0, 0, 2)]
    anna.client.close()
    broker.wait_until(lambda: broker.log("dlq.jobs").log_end_offset == 1)


def test_letters_are_sent_again_while_that_may_help(broker: InProcessBroker) -> None:
    elsewhere, persister = rejected(broker)
    for pause_ms in (1_000, 2_000, 4_000, 8_000):
        elsewhere.answer(broker, E.NOT_LEADER_OR_FOLLOWER)
        broker.advance(pause_ms - 1)
        assert elsewhere.asked == []
        broker.advance(1)
    elsewhere.answer(broker, E.NETWORK_EXCEPTION)
    stats = broker.server.share_delivery.stats
    assert (states(persister), stats.failed_dead_letter_requests["workers"]) == ([3, 4], 1)
    assert (stats.dead_letter_requests["workers"], stats.dead_letters["workers"]) == (5, 0)


def test_letters_that_the_leader_never_takes_are_given_up_at_once(broker: InProcessBroker) -> None:
    elsewhere, persister = rejected(broker)
    elsewhere.answer(broker, E.MESSAGE_TOO_LARGE)
    stats = broker.server.share_delivery.stats
    assert (states(persister), stats.failed_dead_letter_requests["workers"]) == ([3, 4], 1)


def test_letters_follow_the_leader(broker: InProcessBroker) -> None:
    elsewhere, persister = rejected(broker)
    led_by(broker, "dlq.jobs", OURS)
    elsewhere.answer(broker, E.NOT_LEADER_OR_FOLLOWER)
    broker.advance(1_000)
    broker.settle()
    assert elsewhere.asked == []
    assert broker.log("dlq.jobs").log_end_offset == 2
    assert states(persister) == [3, 4]


def test_a_member_has_the_controllers_create_the_queue(tmp_path: Path) -> None:
    class Requests:
        def __init__(self) -> None:
            self.created: list[Any] = []

        def create_topic(self, name: str, configs: Any, then: Any) -> None:
            self.created.append((name, dict(configs)))
            then()

    with running_broker(tmp_path, errors_deadletterqueue_auto_create_topics_enable="true") as broker:
        requests = Requests()
        delivery = broker.server.share_delivery
        assert delivery is not None
        delivery._auto_creation = cast(Any, requests)
        keep_states_in_memory(broker)
        topic_id = broker.create_topic("jobs")
        configure(broker, ConfigResource.GROUP, "workers", "share.auto.offset.reset", "earliest")
        configure(broker, ConfigResource.GROUP, "workers", "errors.deadletterqueue.topic.name", "dlq.jobs")
        broker.produce("jobs", b"a")
        anna = ShareMember(broker, topic_id)
        assert anna.acquire() == [(0, 0, 1)]
        anna.acknowledge({(topic_id, 0): [(0, 0, REJECT)]})
        broker.settle()
        configs = {"errors.deadletterqueue.group.enable": "true", "message.timestamp.type": "CreateTime"}
        assert requests.created == [("dlq.jobs", configs)]
        broker.create_topic("dlq.jobs", **{name.replace(".", "_"): value for name, value in configs.items()})
        broker.advance(1_000)
        broker.settle()
        assert broker.log("dlq.jobs").log_end_offset == 1
