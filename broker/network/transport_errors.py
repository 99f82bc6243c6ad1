"""The errors of transports that are a peer's fault."""


class HandshakeFailed(OSError):
    """The peer is not let in; the words say why, and stand in the log."""


class PeerViolation(OSError):
    """The peer breaks the rules of the transport; the words say which, and stand in the log."""
