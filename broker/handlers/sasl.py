"""SaslHandshake and SaslAuthenticate (API keys 17 and 36; KIP-43, KIP-152, KIP-368)."""

from broker.request.context import RequestContext
from broker.request.faults import IllegalSaslState
from broker.request.gate import gate_of
from protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)


class SaslHandler:
    """Asks the gate of the connection. On a listener without SASL there is none: a connection to it is authenticated
    from the start, and nothing is to be negotiated."""

    def sasl_handshake(self, request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
        """Raises `IllegalSaslState`."""
        gate = gate_of(context.session)
        if gate is None:
            raise IllegalSaslState(f"the listener {context.peer.listener} has no SASL, {request.mechanism!r} included")
        return gate.handshake(request, context)

    def sasl_authenticate(
        self, request: SaslAuthenticateRequest, context: RequestContext
    ) -> SaslAuthenticateResponse | None:
        """Raises `IllegalSaslState`."""
        gate = gate_of(context.session)
        if gate is None:
            # The words are Kafka's.
            raise IllegalSaslState("SaslAuthenticate request received after successful authentication")
        return gate.authenticate(request, context)
