"""Clients' requests that are handed to the controllers' leader."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import Any, TypeVar, cast

import pytest

from broker.membership.controller_channel import ControllerChannel
from broker.membership.forwarder import ClientRequest, Forwarder, ForwardingFailed, NotForwardable
from broker.runtime.backoff import Backoff
from broker.runtime.manual_clock import ManualClock
from protocol.errors import ErrorCode
from protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from protocol.records.principal import DefaultPrincipalData

T = TypeVar("T")

FRAME = bytes.fromhex("0013 0007 0000002a ffff 00 010203")
"""CreateTopics version 7, correlation id 42."""
RESPONSE = bytes.fromhex("0000002a 00 0405")
REQUEST = ClientRequest(FRAME, DefaultPrincipalData(type="User", name="ada"), bytes([127, 0, 0, 1]))


class Channel:
    """The controllers' leader; None is a request that gets no answer."""

    def __init__(self, *answers: EnvelopeResponse | None) -> None:
        self.answers = deque(answers)
        self.asked: list[EnvelopeRequest] = []

    async def ask(self, request: EnvelopeRequest, answer: type) -> Any:
        self.asked.append(request)
        await asyncio.sleep(0)
        return self.answers.popleft() if self.answers else None


def forward(channel: Channel) -> bytes:
    """Forward the request while time passes."""
    clock = ManualClock()
    forwarder = Forwarder(cast(ControllerChannel, channel), clock, Backoff(lambda: 0.5))

    async def run(forwarding: Coroutine[Any, Any, T]) -> T:
        task = asyncio.ensure_future(forwarding)
        while not task.done():
            await asyncio.sleep(0)
            clock.advance(1)
        return task.result()

    return asyncio.run(run(forwarder.forward(REQUEST)))


def test_the_leader_gets_request_principal_and_address_and_the_client_its_answer() -> None:
    channel = Channel(EnvelopeResponse(response_data=RESPONSE))

    assert forward(channel) == RESPONSE
    (asked,) = channel.asked
    assert (asked.request_data, asked.client_host_address) == (FRAME, bytes([127, 0, 0, 1]))
    # As Kafka writes it: version 0, then compact strings, false, no tagged fields.
    assert asked.request_principal == bytes.fromhex("0000 05 55736572 04 616461 00 00")


def test_a_request_without_an_answer_is_sent_again() -> None:
    channel = Channel(None, None, EnvelopeResponse(response_data=RESPONSE))

    assert forward(channel) == RESPONSE
    assert len(channel.asked) == 3


def test_after_a_minute_without_a_leader_it_fails() -> None:
    channel = Channel()

    with pytest.raises(ForwardingFailed, match="no controller has answered within 60000 ms"):
        forward(channel)

    assert len(channel.asked) > 50


def test_a_version_that_controllers_do_not_know_closes_the_connection() -> None:
    with pytest.raises(NotForwardable):
        forward(Channel(EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)))


def test_a_refused_envelope_is_an_error_with_its_code() -> None:
    with pytest.raises(ForwardingFailed, match="refused the envelope with error 31"):
        forward(Channel(EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)))


def test_the_answer_to_another_request_is_not_handed_on() -> None:
    with pytest.raises(ForwardingFailed, match="answered request 43 instead of 42"):
        forward(Channel(EnvelopeResponse(response_data=bytes.fromhex("0000002b 00 0405"))))
