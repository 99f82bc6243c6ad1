"""Gate: what stands between a connection and the handlers until the client has said who it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

from broker.request.session import Session, SessionGate

if TYPE_CHECKING:
    from broker.request.context import RequestContext
    from broker.request.response import ResponseSlot
    from broker.request.stats import AuthenticationStats
    from protocol.messages.sasl import (
        SaslAuthenticateRequest,
        SaslAuthenticateResponse,
        SaslHandshakeRequest,
        SaslHandshakeResponse,
    )


class GatedConnection(Protocol):
    """A connection as its gate sees it."""

    session: Session

    @property
    def authentication_stats(self) -> AuthenticationStats:
        """Where the connection's listener is counted."""

    def authenticated(self) -> None:
        """The bounds of a client that is not authenticated hold no longer."""

    def close(self) -> None:
        """Close at once."""


class Gate(SessionGate, Protocol):
    """The authentication of one connection. While the session is not plain, the gate sees every request first."""

    def begin(self, connection: GatedConnection) -> None:
        """The connection is there."""

    def take(self, slot: ResponseSlot) -> bool:
        """Serve, or refuse by closing, what comes from a client that is not authenticated. False: a handler is to serve
        the request, and nothing has been done."""

    def admit(self, api_key: int, context: RequestContext) -> None:
        """Let a request through to its handler that `take` has left. Raises a `Fault` that refuses the request."""

    def handshake(self, request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
        """Begin an exchange of tokens by the mechanism that the client names. Raises a `Fault`."""

    def authenticate(
        self, request: SaslAuthenticateRequest, context: RequestContext
    ) -> SaslAuthenticateResponse | None:
        """Take a token; None: the answer comes later. Raises a `Fault`."""


def gate_of(session: Session) -> Gate | None:
    """The gate of a session; None on a listener without SASL."""
    return cast("Gate | None", session.gate)
