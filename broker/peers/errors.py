"""What can go wrong when a node is asked. Each error is one sentence: the node, what was found, what was expected."""


class PeerError(Exception):
    """A request that a node was to be asked has no answer."""


class PeerUnreachable(PeerError):
    """There is no connection to the node, or it was closed before the answer came."""


class PeerTimedOut(PeerError):
    """The node has not answered within the request's time. The connection is closed."""


class PeerAnswerInvalid(PeerError):
    """The node has sent what is no answer to the request; the connection is closed. Or the node and this broker have no
    version of the request in common; then the connection stays as it is."""
