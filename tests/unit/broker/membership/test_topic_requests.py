"""The topics that a broker asks the controllers for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

from broker.membership.forwarder import ClientRequest, Forwarder, ForwardingFailed
from broker.membership.topic_requests import TopicRequests
from broker.metadata.automatic_topics import AutomaticTopic
from broker.runtime.manual_clock import ManualClock
from protocol.codec import decoder
from protocol.headers import decode_request_header, frame_response
from protocol.messages.topics import CreateTopicsRequest, CreateTopicsResponse
from tests.unit.broker.membership.turns import until


class Controllers:
    """The controllers' leader."""

    def __init__(self) -> None:
        self.created: list[CreateTopicsRequest] = []
        self.principals: list[str] = []
        self.refuses = False

    async def forward(self, request: ClientRequest) -> bytes:
        await asyncio.sleep(0)
        if self.refuses:
            raise ForwardingFailed("no controller has answered within 60000 ms")
        self.principals.append(request.principal.name)
        header, position = decode_request_header(request.frame)
        wanted, _ = decoder(CreateTopicsRequest, header.api_version)(memoryview(request.frame), position)
        self.created.append(wanted)
        topics = [CreateTopicsResponse.Topic(name=topic.name, configs=[]) for topic in wanted.topics]
        chunks = frame_response(header.correlation_id, CreateTopicsResponse(topics=topics), header.api_version)
        return b"".join(bytes(cast(bytes, chunk)) for chunk in chunks)[4:]


def made_with(name: str) -> AutomaticTopic:
    return AutomaticTopic(50, 3, (("cleanup.policy", "compact"),)) if name == "__consumer_offsets" else AutomaticTopic()


def asking(test: Callable[[TopicRequests, Controllers, Callable[[Callable[[], bool]], Awaitable[None]]], Any]) -> None:
    """Run a test beside the task that asks; the test is given a way to wait until something holds."""

    async def run() -> None:
        controllers = Controllers()
        requests = TopicRequests(cast(Forwarder, controllers), node_id=7, automatic_topic=made_with)
        task = asyncio.ensure_future(requests.run())

        try:
            await test(requests, controllers, partial(until, clock=ManualClock()))
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())


def test_a_topic_is_created_with_the_clusters_defaults_and_a_coordinators_topic_with_the_brokers() -> None:
    async def test(requests: TopicRequests, controllers: Controllers, until: Any) -> None:
        requests.auto_create(["orders", "__consumer_offsets", "orders"])
        await until(lambda: bool(controllers.created))

        orders, offsets = controllers.created[0].topics
        assert (orders.name, orders.num_partitions, orders.replication_factor, orders.configs) == ("orders", -1, -1, [])
        assert (offsets.num_partitions, offsets.replication_factor) == (50, 3)
        assert [(config.name, config.value) for config in offsets.configs] == [("cleanup.policy", "compact")]

    asking(test)


def test_a_topic_of_the_brokers_own_is_created_with_its_configs_and_whoever_waits_is_told() -> None:
    async def test(requests: TopicRequests, controllers: Controllers, until: Any) -> None:
        told: list[str] = []
        requests.create_topic("dlq.jobs", [("message.timestamp.type", "CreateTime")], lambda: told.append("first"))
        requests.create_topic("dlq.jobs", [], lambda: told.append("second"))
        assert told == []
        await until(lambda: len(told) == 2)
        (topic,) = controllers.created[0].topics
        assert (topic.name, topic.num_partitions, topic.replication_factor) == ("dlq.jobs", -1, -1)
        assert [(config.name, config.value) for config in topic.configs] == [("message.timestamp.type", "CreateTime")]

        controllers.refuses = True
        requests.create_topic("dlq.more", [], lambda: told.append("refused"))
        await until(lambda: told[2:] == ["refused"])

    asking(test)


def test_a_topic_that_could_not_be_created_is_asked_for_again_by_its_client() -> None:
    async def test(requests: TopicRequests, controllers: Controllers, until: Any) -> None:
        controllers.refuses = True
        requests.auto_create(["orders"])
        await until(lambda: not requests._new_topics)

        controllers.refuses = False
        requests.auto_create(["payments"])
        await until(lambda: bool(controllers.created))
        assert [topic.name for topic in controllers.created[0].topics] == ["payments"]
        requests.auto_create(["orders"])
        await until(lambda: len(controllers.created) == 2)

    asking(test)


def test_topics_that_an_application_needs_are_created_in_its_name_and_it_hears_why_some_are_not() -> None:
    async def test(requests: TopicRequests, controllers: Controllers, until: Any) -> None:
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
        controllers.refuses = True
        requests.create_in_the_name_of(of_alice, wanted, answers.append)
        await until(lambda: len(answers) == 2)
        assert answers[1].keys() == {"state", "other"}

    asking(test)
