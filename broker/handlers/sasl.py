"""SaslHandshake and SaslAuthenticate on a listener without SASL (API keys 17 and 36; KIP-43, KIP-152, KIP-368)."""

from broker.request.context import RequestContext
from broker.request.faults import IllegalSaslState
from protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest


class SaslHandler:
    """Says that nothing is to be negotiated: a connection to such a listener is authenticated from the start."""

    def sasl_handshake(self, request: SaslHandshakeRequest, context: RequestContext) -> None:
        """Raises `IllegalSaslState`."""
        raise IllegalSaslState(f"the listener {context.peer.listener} has no SASL, {request.mechanism!r} included")

    def sasl_authenticate(self, request: SaslAuthenticateRequest, context: RequestContext) -> None:
        """Raises `IllegalSaslState`."""
        # The words are Kafka's.
        raise IllegalSaslState("SaslAuthenticate request received after successful authentication")
