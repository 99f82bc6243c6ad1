"""What only controllers decide is forwarded to them, in the client's name; loggers are changed here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from broker.dispatch.dispatcher import Dispatcher
from broker.dispatch.registry import Registry
from broker.handlers.alter_configs import AlterConfigsHandler
from broker.handlers.forwarding import ForwardingHandler
from broker.membership.forwarder import ClientRequest, Forwarder, ForwardingFailed, NotForwardable
from broker.metadata.configs import ConfigView
from config.resources import ConfigResource
from protocol.api_keys import ApiKey
from protocol.codec import decoder
from protocol.errors import ErrorCode
from protocol.headers import decode_request_header, decode_response, encode_request, frame_response
from protocol.messages.configs import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from protocol.messages.topics import CreateTopicsRequest, CreateTopicsResponse
from tests.support.slots import Owner, slot_of

ORDERS = CreateTopicsRequest.Topic(name="orders", num_partitions=3, replication_factor=2, assignments=[], configs=[])


class Controllers:
    """The controllers' leader: answers what is forwarded to it by `answer`, or raises it."""

    def __init__(self, answer: Callable[[Any], Any] | Exception) -> None:
        self._answer = answer
        self.forwarded: list[ClientRequest] = []

    async def forward(self, request: ClientRequest) -> bytes:
        self.forwarded.append(request)
        await asyncio.sleep(0)
        if isinstance(self._answer, Exception):
            raise self._answer
        header, position = decode_request_header(request.frame)
        kind = {19: CreateTopicsRequest, 44: IncrementalAlterConfigsRequest}[header.api_key]
        asked, _ = decoder(kind, header.api_version)(memoryview(request.frame), position)
        chunks = frame_response(header.correlation_id, self._answer(asked), header.api_version)
        return b"".join(bytes(cast(bytes, chunk)) for chunk in chunks)[4:]


def ask(request: Any, version: int, controllers: Controllers) -> tuple[Owner, bytes | None]:
    """Send a client's request to a member. Returns its connection, and the answer without its size, if there is one."""

    async def run() -> tuple[Owner, bytes | None]:
        forwarding = ForwardingHandler(cast(Forwarder, controllers))
        configs = AlterConfigsHandler(forwarding.alter_configs, cast(ConfigView, _Configs()))
        registry = Registry()
        registry.serve(ApiKey.CREATE_TOPICS, lambda: forwarding.forward)
        registry.serve(ApiKey.INCREMENTAL_ALTER_CONFIGS, lambda: configs.incremental_alter_configs)
        owner = Owner()
        slot = slot_of(encode_request(42, "a client", request, version)[4:], owner)
        Dispatcher(registry).handle(slot)
        for _ in range(100):
            if slot.is_filled:
                break
            await asyncio.sleep(0)
        assert slot.is_filled
        chunks = b"".join(bytes(cast(bytes, chunk)) for chunk in slot.chunks)
        return owner, chunks[4:] if chunks else None

    return asyncio.run(run())


class _Configs:
    """The configs of broker 7, whose id loggers are named by."""

    def check_broker_id(self, name: str, what: str, *, otherwise: str) -> None:
        assert name == "7"


def test_a_request_goes_to_the_controllers_as_it_came_and_the_answer_back_as_it_is() -> None:
    topic = CreateTopicsResponse.Topic(name="orders", num_partitions=3, configs=[])
    controllers = Controllers(lambda _: CreateTopicsResponse(topics=[topic]))

    owner, answer = ask(CreateTopicsRequest(topics=[ORDERS]), 7, controllers)

    (forwarded,) = controllers.forwarded
    assert forwarded.frame == encode_request(42, "a client", CreateTopicsRequest(topics=[ORDERS]), 7)[4:]
    assert (forwarded.principal.type, forwarded.principal.name) == ("User", "ANONYMOUS")
    assert forwarded.address == bytes([10, 0, 0, 1])
    assert answer is not None
    correlation_id, response = decode_response(CreateTopicsResponse, 7, answer)
    assert (correlation_id, [one.name for one in response.topics]) == (42, ["orders"])
    assert owner.closed is None


def test_without_a_controller_the_client_is_told_that_it_has_taken_too_long(caplog: pytest.LogCaptureFixture) -> None:
    controllers = Controllers(ForwardingFailed("no controller has answered within 60000 ms"))

    _, answer = ask(CreateTopicsRequest(topics=[ORDERS]), 7, controllers)

    assert answer is not None
    _, response = decode_response(CreateTopicsResponse, 7, answer)
    assert [one.error_code for one in response.topics] == [ErrorCode.REQUEST_TIMED_OUT]
    assert "was not answered by the controllers: no controller has answered" in caplog.text


def test_a_version_that_the_controllers_do_not_know_closes_the_connection() -> None:
    controllers = Controllers(NotForwardable("the controllers do not know this version of the request"))

    owner, answer = ask(CreateTopicsRequest(topics=[ORDERS]), 7, controllers)

    assert answer is None
    assert owner.closed == "the controllers do not know this version of the request"


def test_loggers_are_changed_here_and_all_else_by_the_controllers() -> None:
    of_request = IncrementalAlterConfigsRequest.Resource
    level = of_request.Config(name="broker.peers", config_operation=0, value="DEBUG")
    retention = of_request.Config(name="retention.ms", config_operation=0, value="1000")
    request = IncrementalAlterConfigsRequest(
        resources=[
            of_request(resource_type=ConfigResource.BROKER_LOGGER, resource_name="7", configs=[level]),
            of_request(resource_type=ConfigResource.TOPIC, resource_name="orders", configs=[retention]),
        ],
        validate_only=True,
    )

    def altered(asked: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
        of_response = IncrementalAlterConfigsResponse.Response
        return IncrementalAlterConfigsResponse(
            responses=[
                of_response(
                    error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    error_message="no such topic",
                    resource_type=one.resource_type,
                    resource_name=one.resource_name,
                )
                for one in asked.resources
            ]
        )

    controllers = Controllers(altered)

    _, answer = ask(request, 1, controllers)

    (forwarded,) = controllers.forwarded
    rest = IncrementalAlterConfigsRequest(resources=request.resources[1:], validate_only=True)
    assert forwarded.frame == encode_request(42, "a client", rest, 1)[4:]
    assert answer is not None
    _, response = decode_response(IncrementalAlterConfigsResponse, 1, answer)
    assert [(one.resource_name, one.error_code, one.error_message) for one in response.responses] == [
        ("7", ErrorCode.NONE, None),
        ("orders", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such topic"),
    ]
