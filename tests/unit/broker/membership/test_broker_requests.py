"""What a broker asks the controllers for itself: blocks of producer ids, topics, places of replicas."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.membership.broker_requests import BrokerRequests
from broker.membership.controller_channel import ControllerChannel
from broker.membership.forwarder import ClientRequest, Forwarder, ForwardingFailed
from broker.metadata.automatic_topics import AutomaticTopic
from broker.peers.backoff import Backoff
from broker.runtime.manual_clock import ManualClock
from protocol.codec import decoder
from protocol.errors import ErrorCode
from protocol.headers import decode_request_header, frame_response
from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from protocol.messages.topics import CreateTopicsRequest, CreateTopicsResponse

ORDERS, PAYMENTS = bytes([1] * 16), bytes([2] * 16)
FIRST_DIR, SECOND_DIR = bytes([7] * 16), bytes([8] * 16)


class Controllers:
    """The controllers' leader. It answers with `answers` first, None being no answer, and then as it should."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.answers: deque[Any] = deque()
        self.created: list[CreateTopicsRequest] = []
        self.principals: list[str] = []
        self.refuses_topics = False
        self.gives_no_ids = False
        self.next_id = 1_000
        self.known_directories: list[bytes] | None = [FIRST_DIR, SECOND_DIR]
        """The log directories of this broker in the metadata."""
        self.assignments_fail = ErrorCode.NONE
        """What each replica is answered with."""
        self.closed = False

    async def ask(self, request: Any, answer: type) -> Any:
        self.asked.append(request)
        await asyncio.sleep(0)
        if self.answers:
            return self.answers.popleft()
        if isinstance(request, AllocateProducerIdsRequest):
            if self.gives_no_ids:
                return AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
            first, self.next_id = self.next_id, self.next_id + 1_000
            return AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=1_000)
        assert isinstance(request, AssignReplicasToDirsRequest)
        return assigned(request, self.assignments_fail)

    async def forward(self, request: ClientRequest) -> bytes:
        await asyncio.sleep(0)
        if self.refuses_topics:
            raise ForwardingFailed("no controller has answered within 60000 ms")
        self.principals.append(request.principal.name)
        header, position = decode_request_header(request.frame)
        wanted, _ = decoder(CreateTopicsRequest, header.api_version)(memoryview(request.frame), position)
        self.created.append(wanted)
        topics = [CreateTopicsResponse.Topic(name=topic.name, configs=[]) for topic in wanted.topics]
        chunks = frame_response(header.correlation_id, CreateTopicsResponse(topics=topics), header.api_version)
        return b"".join(bytes(cast(bytes, chunk)) for chunk in chunks)[4:]

    def close(self) -> None:
        self.closed = True


def assigned(request: AssignReplicasToDirsRequest, code: ErrorCode = ErrorCode.NONE) -> AssignReplicasToDirsResponse:
    """The answer in which every replica has the code."""
    of_directory = AssignReplicasToDirsResponse.Directory
    of_topic = of_directory.Topic
    return AssignReplicasToDirsResponse(
        directories=[
            of_directory(
                id=directory.id,
                topics=[
                    of_topic(
                        topic_id=topic.topic_id,
                        partitions=[
                            of_topic.Partition(partition_index=partition.partition_index, error_code=code)
                            for partition in topic.partitions
                        ],
                    )
                    for topic in directory.topics
                ],
            )
            for directory in request.directories
        ]
    )


def made_with(name: str) -> AutomaticTopic:
    return AutomaticTopic(50, 3, (("cleanup.policy", "compact"),)) if name == "__consumer_offsets" else AutomaticTopic()


def asking(test: Callable[[BrokerRequests, Controllers, Callable[[Callable[[], bool]], Awaitable[None]]], Any]) -> None:
    """Run a test beside the task that asks; the test is given a way to wait until something holds."""

    async def run() -> None:
        controllers, clock = Controllers(), ManualClock()
        requests = BrokerRequests(
            cast(ControllerChannel, controllers),
            cast(Forwarder, controllers),
            node_id=7,
            broker_epoch=lambda: 50,
            automatic_topic=made_with,
            known_directories=lambda: controllers.known_directories,
            clock=clock,
            backoff=Backoff(lambda: 0.5),
        )
        task = asyncio.ensure_future(requests.run())

        async def until(condition: Callable[[], bool]) -> None:
            for _ in range(10_000):
                if condition():
                    return
                await asyncio.sleep(0)
                clock.advance(1)
            raise AssertionError("it has not come to pass")

        try:
            await test(requests, controllers, until)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert controllers.closed

    asyncio.run(run())


def test_a_block_of_producer_ids_is_asked_for_until_the_controllers_give_it() -> None:
    async def test(requests: BrokerRequests, controllers: Controllers, until: Any) -> None:
        blocks: list[range] = []
        controllers.answers += [None, AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)]

        requests.allocate_producer_ids(blocks.append)
        requests.allocate_producer_ids(blocks.append)
        await until(lambda: len(blocks) == 2)

        assert blocks == [range(1_000, 2_000), range(2_000, 3_000)]
        assert controllers.asked[0] == AllocateProducerIdsRequest(broker_id=7, broker_epoch=50)
        assert len(controllers.asked) == 4

    asking(test)


def test_a_topic_is_created_with_the_clusters_defaults_and_a_coordinators_topic_with_the_brokers() -> None:
    async def test(requests: BrokerRequests, controllers: Controllers, until: Any) -> None:
        requests.auto_create(["orders", "__consumer_offsets", "orders"])
        await until(lambda: bool(controllers.created))

        orders, offsets = controllers.created[0].topics
        assert (orders.name, orders.num_partitions, orders.replication_factor, orders.configs) == ("orders", -1, -1, [])
        assert (offsets.num_partitions, offsets.replication_factor) == (50, 3)
        assert [(config.name, config.value) for config in offsets.configs] == [("cleanup.policy", "compact")]

    asking(test)


def test_a_topic_of_the_brokers_own_is_created_with_its_configs_and_whoever_waits_is_told() -> None:
    async def test(requests: BrokerRequests, controllers: Controllers, until: Any) -> None:
        told: list[str] = []
        requests.create_topic("dlq.jobs", [("message.timestamp.type", "CreateTime")], lambda: told.append("first"))
        requests.create_topic("dlq.jobs", [], lambda: told.append("second"))
        assert told == []
        await until(lambda: len(told) == 2)
        (topic,) = controllers.created[0].topics
        assert (topic.name, topic.num_partitions, topic.replication_factor) == ("dlq.jobs", -1, -1)
        assert [(config.name, config.value) for config in topic.configs] == [("message.timestamp.type", "CreateTime")]

        controllers.refuses_topics = True
        requests.create_topic("dlq.more", [], lambda: told.append("refused"))
        await until(lambda: told[2:] == ["refused"])

    asking(test)


def test_a_topic_that_could_not_be_created_is_asked_for_again_by_its_client() -> None:
    async def test(requests: BrokerRequests, controllers: Controllers, until: Any) -> None:
        controllers.refuses_topics = True
        requests.auto_create(["orders"])
        blocks: list[range] = []
        await until(lambda: not requests._new_topics)

        controllers.refuses_topics = False
        requests.allocate_producer_ids(blocks.append)
        await until(lambda: bool(blocks))
        assert controllers.created == []
        requests.auto_create(["orders"])
        await until(lambda: bool(controllers.created))

    asking(test)


def test_topics_that_an_application_needs_are_created_in_its_name_and_it_hears_why_some_are_not() -> None:
    async def test(requests: BrokerRequests, controllers: Controllers, until: Any) -> None:
        session = SimpleNamespace(principal="User:alice", is_by_token=False)
        of_alice: Any = SimpleNamespace(session=session, peer=SimpleNamespace(host="10.0.0.7"), client_id="app")
        answers: list[Any] = []
        wanted = {"state": AutomaticTopic(4, -1, (("cleanup.policy", "compact"),)), "other": AutomaticTopic(4, 2, ())}
        requests.create_in_the_name_of(of_alice, wanted, answers.append)
        await until(lambda: bool(answers))

        state, other = controllers.created[0].topics
        assert (state.name, state.num_partitions, state.replication_factor) == ("state", 4, -1)
        assert [(config.name, config.value) for config in state.configs] == [("cleanup.policy", "compact")]
        assert (other.name, other.replication_factor) == ("other", 2)
        assert answers == [{}]
        assert controllers.principals == ["alice"]
        controllers.refuses_topics = True
        requests.create_in_the_name_of(of_alice, wanted, answers.append)
        await until(lambda: len(answers) == 2)
        assert answers[1].keys() == {"state", "other"}

    asking(test)


def test_the_controllers_are_told_where_replicas_are_until_they_have_it() -> None:
    async def test(requests: BrokerRequests, controllers: Controllers, until: Any) -> None:
        controllers.answers += [None, AssignReplicasToDirsResponse(error_code=77, directories=[])]
        requests.assign_directory(ORDERS, 0, FIRST_DIR)
        requests.assign_directory(ORDERS, 1, SECOND_DIR)
        requests.assign_directory(PAYMENTS, 0, FIRST_DIR)
        await until(lambda: len(controllers.asked) == 3 and not requests._places)

        asked = controllers.asked[-1]
        assert (asked.broker_id, asked.broker_epoch) == (7, 50)
        assert {
            (bytes(directory.id), bytes(topic.topic_id), partition.partition_index)
            for directory in asked.directories
            for topic in directory.topics
            for partition in topic.partitions
        } == {(FIRST_DIR, ORDERS, 0), (SECOND_DIR, ORDERS, 1), (FIRST_DIR, PAYMENTS, 0)}

    asking(test)


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER]
)
def test_a_replica_that_is_gone_is_not_told_of_again_and_another_error_is(code: ErrorCode) -> None:
    async def test(requests: BrokerRequests, controllers: Controllers, until: Any) -> None:
        known: list[int] = []
        controllers.assignments_fail = ErrorCode.UNKNOWN_SERVER_ERROR
        requests.assign_directory(ORDERS, 0, FIRST_DIR, lambda: known.append(0))
        await until(lambda: len(controllers.asked) == 2)
        assert requests.unassigned_directories == 1

        controllers.assignments_fail = code
        await until(lambda: requests.unassigned_directories == 0)
        asked = len(controllers.asked)
        assert known == [], "the controllers do not have the directory of a replica that is gone"
        controllers.assignments_fail = ErrorCode.NONE
        requests.assign_directory(ORDERS, 1, FIRST_DIR, lambda: known.append(1))
        await until(lambda: known == [1])
        assert len(controllers.asked) == asked + 1

    asking(test)


def test_what_is_asked_again_holds_up_no_other_request() -> None:
    async def test(requests: BrokerRequests, controllers: Controllers, until: Any) -> None:
        clock = requests._clock
        controllers.assignments_fail = ErrorCode.UNKNOWN_SERVER_ERROR
        requests.assign_directory(ORDERS, 0, FIRST_DIR)
        await until(lambda: len(controllers.asked) == 10)  # a pause is a second by now

        began_ms, blocks = clock.monotonic_ms(), list[range]()
        requests.allocate_producer_ids(blocks.append)
        await until(lambda: bool(blocks))
        requests.auto_create(["orders"])
        await until(lambda: bool(controllers.created))
        assert clock.monotonic_ms() - began_ms < 50

        controllers.gives_no_ids = True
        requests.allocate_producer_ids(blocks.append)
        requests.auto_create(["payments"])
        await until(lambda: len(controllers.created) == 2)
        assert len(blocks) == 1, "the topic does not wait for the producer ids"

    asking(test)


def test_more_of_what_is_asked_again_ends_no_pause() -> None:
    async def test(requests: BrokerRequests, controllers: Controllers, until: Any) -> None:
        controllers.assignments_fail = ErrorCode.UNKNOWN_SERVER_ERROR
        requests.assign_directory(ORDERS, 0, FIRST_DIR)
        await until(lambda: len(controllers.asked) == 10)
        began_ms = requests._clock.monotonic_ms()
        for index in range(1, 100):
            requests.assign_directory(ORDERS, index, FIRST_DIR)
            await asyncio.sleep(0)
        await until(lambda: len(controllers.asked) == 11)
        assert requests._clock.monotonic_ms() - began_ms > 500

    asking(test)


def test_replicas_that_come_while_the_controllers_are_told_are_told_without_a_pause() -> None:
    async def test(requests: BrokerRequests, controllers: Controllers, until: Any) -> None:
        requests.assign_directory(ORDERS, 0, FIRST_DIR)
        await until(lambda: len(controllers.asked) == 1)
        began_ms = requests._clock.monotonic_ms()
        requests.assign_directory(ORDERS, 1, FIRST_DIR)
        await until(lambda: requests.unassigned_directories == 0)
        assert requests._clock.monotonic_ms() - began_ms < 10

    asking(test)


@pytest.mark.parametrize("known", [None, []])
def test_below_the_level_that_has_directories_the_controllers_are_told_of_no_replica(
    known: list[bytes] | None,
) -> None:
    """Also not while this broker's registration has no directories yet: the replica's would be none of its own."""

    async def test(requests: BrokerRequests, controllers: Controllers, until: Any) -> None:
        controllers.known_directories = known
        moves: list[str] = []
        requests.assign_directory(ORDERS, 0, FIRST_DIR)
        requests.assign_directory(ORDERS, 1, SECOND_DIR, lambda: moves.append("may go on"))
        assert (moves, requests.unassigned_directories) == (["may go on"], 0)

        controllers.known_directories = [FIRST_DIR, SECOND_DIR]
        requests.assign_directory(ORDERS, 2, FIRST_DIR)
        await until(lambda: bool(controllers.asked) and requests.unassigned_directories == 0)
        (asked,) = controllers.asked
        assert [partition.partition_index for partition in asked.directories[0].topics[0].partitions] == [2]

    asking(test)
