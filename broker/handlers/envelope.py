"""Envelope: a request that a client has sent to a broker, handed on by that broker (API key 58; KIP-590)."""

import logging
import socket
from collections.abc import Callable
from typing import Final

from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import (
    ClusterAuthorizationFailed,
    InvalidRequest,
    PrincipalDeserializationFailure,
    UnsupportedVersion,
)
from broker.request.response import RequestStream, ResponseSlot
from broker.request.session import Peer, Session
from protocol.api_keys import FORWARDED, ApiKey
from protocol.errors import ErrorCode
from protocol.headers import peek_api
from protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from protocol.primitives import Malformed, received
from protocol.records.principal import DefaultPrincipalData, decode_principal

log = logging.getLogger(__name__)

FORWARDABLE: Final = FORWARDED | {ApiKey.ALLOCATE_PRODUCER_IDS}
"""The APIs whose requests a broker may hand on, as in Kafka."""

_FAMILIES: Final = {4: socket.AF_INET, 16: socket.AF_INET6}
_SIZE_BYTES: Final = 4
_NO_PORT: Final = 0
"""An envelope does not say which port the client has."""


class EnvelopeHandler:
    """Has the request in an envelope answered as if its client had sent it here."""

    def __init__(self, dispatch: Callable[[ResponseSlot], None]) -> None:
        """``dispatch`` answers a request, or closes its slot where the request cannot be read."""
        self._dispatch = dispatch

    def envelope(self, request: EnvelopeRequest, context: RequestContext) -> None:
        """Answer with the answer to the request inside.

        Raises `ClusterAuthorizationFailed`, `InvalidRequest`, `UnsupportedVersion`, `PrincipalDeserializationFailure`.
        """
        if not context.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER):
            raise ClusterAuthorizationFailed(f"{context.session.principal} may not hand requests on")
        principal = _principal(request.request_principal)
        session = Session(
            Peer(host=_host(request.client_host_address), port=_NO_PORT, listener=context.peer.listener),
            principal=f"{principal.type}:{principal.name}",
            is_on_controller_listener=context.session.is_on_controller_listener,
            authorizer=context.session.authorizer,
        )
        session.is_by_token = principal.token_authenticated
        # A copy of its own: what the request inside waits for may outlive the memory of the envelope.
        frame = bytes(request.request_data)
        _check_forwardable(frame)
        stream = RequestStream(session, _nothing_is_held)
        self._dispatch(ResponseSlot(_Sender(context), stream, memoryview(frame), context.slot.received_us))


class _Sender:
    """The broker that has sent an envelope, as the owner of the slot of the request inside (a `SlotOwner`)."""

    __slots__ = ("_context",)

    def __init__(self, context: RequestContext) -> None:
        self._context = context

    def slot_filled(self, slot: ResponseSlot) -> None:
        """Put the answer into an answer to the envelope."""
        answer = b"".join(received(chunk) for chunk in slot.chunks)
        self._context.respond(EnvelopeResponse(response_data=answer[_SIZE_BYTES:]))

    def close_at(self, slot: ResponseSlot, reason: str) -> None:
        """The request cannot be read: refuse the envelope. Its connection serves other clients, too."""
        log.info("Refused an envelope of %s for a client at %s: %s", self._context.peer, slot.peer.host, reason)
        self._context.respond(EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST))

    def frame_released(self) -> None:
        """The memory of the request inside belongs to no connection."""

    def throttle(self, throttle_time_ms: int) -> None:
        """The answer tells the client's broker, which throttles the client."""


def _check_forwardable(frame: bytes) -> None:
    try:
        api_key, version = peek_api(frame)
    except Malformed as error:
        raise InvalidRequest(f"the envelope has no request: {error}") from None
    if api_key not in FORWARDABLE:
        raise InvalidRequest(f"API {api_key} is not forwarded")
    first, last = ApiKey(api_key).versions
    if not first <= version <= last:
        raise UnsupportedVersion(f"{ApiKey(api_key).title} has the versions {first} to {last}, forwarded was {version}")


def _host(address: bytes) -> str:
    family = _FAMILIES.get(len(address))
    if family is None:
        raise InvalidRequest(f"a client's address of {len(address)} bytes, expected 4 or 16")
    return socket.inet_ntop(family, bytes(address))


def _principal(data: bytes | None) -> DefaultPrincipalData:
    if data is None:
        raise PrincipalDeserializationFailure("the envelope names no principal")
    try:
        return decode_principal(data)
    except Malformed as error:
        raise PrincipalDeserializationFailure(str(error)) from None


def _nothing_is_held(slots: object) -> None:
    """The stream of a single request puts nothing back."""
