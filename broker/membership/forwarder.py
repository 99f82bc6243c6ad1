"""Forwarder: hands clients' requests to the controllers' leader, and their answers back (KIP-590)."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final, NamedTuple

from broker.membership.controller_channel import ControllerChannel
from broker.request.context import RequestContext
from broker.runtime.backoff import Backoff
from broker.runtime.clock import Clock
from broker.runtime.waiting import pause_until
from protocol.errors import ErrorCode
from protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from protocol.records.principal import DefaultPrincipalData, encode_principal

TIMEOUT_MS: Final = 60_000
"""How long a leader is searched for, as in Kafka."""

_REQUEST_CORRELATION_ID: Final = slice(4, 8)
"""Behind the API key and the version of a request without its size."""

_RESPONSE_CORRELATION_ID: Final = slice(0, 4)


class ForwardingFailed(Exception):
    """No controller has answered the request, or its answer is of no use. It says why."""


class NotForwardable(Exception):
    """The controllers do not know the version of the request: the client's connection is closed, as in Kafka."""


class ClientRequest(NamedTuple):
    """A request as a client has sent it."""

    frame: bytes
    """The request with its header, without its size."""
    principal: DefaultPrincipalData
    address: bytes
    """The client's address: 4 bytes, or 16."""


class ForwardedClient(NamedTuple):
    """In whose name a request is forwarded."""

    principal: str
    """In Kafka's form: type and name."""
    host: str
    client_id: str
    is_by_token: bool = False

    @classmethod
    def of(cls, context: RequestContext) -> ForwardedClient:
        """The client of a request."""
        session = context.session
        return cls(session.principal, context.peer.host, context.client_id, session.is_by_token)

    def request(self, frame: bytes) -> ClientRequest:
        """A request of the client: ``frame`` with its header, without its size."""
        kind, _, name = self.principal.partition(":")
        principal = DefaultPrincipalData(type=kind, name=name, token_authenticated=self.is_by_token)
        return ClientRequest(frame, principal, ip_address(self.host.partition("%")[0]).packed)


class Forwarder:
    """Forwards requests for one broker. Several may be under way: the leader answers them in their order."""

    def __init__(
        self, channel: ControllerChannel, clock: Clock, backoff: Backoff, *, timeout_ms: int = TIMEOUT_MS
    ) -> None:
        """``channel`` is for forwarded requests alone."""
        self._channel = channel
        self._clock = clock
        self._backoff = backoff
        self._timeout_ms = timeout_ms
        self.waiting = 0
        """Requests that no controller has answered yet."""
        self.failures = 0
        """Requests that no controller has answered in time, or that the leader has refused to carry out."""

    async def forward(self, request: ClientRequest) -> bytes:
        """Have a request answered by the controllers' leader.

        A request whose connection was lost is sent again, as Kafka does: the leader may have carried it out already,
        and its second answer says so (a topic is there, for example).

        Returns:
            The answer with its header, without its size.

        Raises:
            ForwardingFailed: no leader has answered in time, or the leader has refused the envelope.
            NotForwardable: the leader does not know the request's version.
        """
        self.waiting += 1
        try:
            return await self._forward(request)
        except ForwardingFailed:
            self.failures += 1
            raise
        finally:
            self.waiting -= 1

    async def _forward(self, request: ClientRequest) -> bytes:
        envelope = EnvelopeRequest(
            request_data=request.frame,
            request_principal=encode_principal(request.principal),
            client_host_address=request.address,
        )
        deadline_ms = self._clock.monotonic_ms() + self._timeout_ms
        while (answer := await self._channel.ask(envelope, EnvelopeResponse)) is None:
            pause_ms = self._backoff.next_ms()
            if self._clock.monotonic_ms() + pause_ms >= deadline_ms:
                raise ForwardingFailed(f"no controller has answered within {self._timeout_ms} ms")
            await pause_until(self._clock, self._clock.monotonic_ms() + pause_ms)
        self._backoff.reset()
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            raise NotForwardable("the controllers do not know this version of the request")
        if answer.error_code != ErrorCode.NONE or answer.response_data is None:
            raise ForwardingFailed(f"the controllers' leader has refused the envelope with error {answer.error_code}")
        response = bytes(answer.response_data)
        asked, answered = request.frame[_REQUEST_CORRELATION_ID], response[_RESPONSE_CORRELATION_ID]
        if asked != answered:
            raise ForwardingFailed(
                f"the controllers' leader has answered request {_number(answered)} instead of {_number(asked)}"
            )
        return response


def _number(correlation_id: bytes) -> int:
    return int.from_bytes(correlation_id, "big", signed=True)
