"""The session of a connection: who is at its other end, what the client has said of itself, and its throttling."""

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from broker.request.permissions import Authorizer, Permissions

ANONYMOUS: Final = "User:ANONYMOUS"
"""Kafka's principal of a connection that no authentication was asked of."""


class ClientSoftware(NamedTuple):
    """The client library, as its ApiVersions request names it (KIP-511)."""

    name: str = "unknown"
    version: str = "unknown"


UNKNOWN_SOFTWARE: Final = ClientSoftware()


class SessionGate(Protocol):
    """The part of a gate that needs no request. `broker.request.gate.gate_of` gives the whole."""

    most_bytes: int
    """The largest request of a client that is not authenticated."""

    def close(self) -> None:
        """The connection is closed."""


class Peer:
    """The other end of a connection, by its address, and the listener that it came in on."""

    __slots__ = ("host", "listener", "port")

    def __init__(self, *, host: str, port: int, listener: str) -> None:
        self.host = host
        self.port = port
        self.listener = listener

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Session:
    """What is known of a connection's client. All requests of the connection share this object."""

    __slots__ = (
        "authorizer",
        "charge_network",
        "client_id",
        "gate",
        "is_authenticated",
        "is_by_token",
        "is_on_controller_listener",
        "is_plain",
        "peer",
        "permissions",
        "principal",
        "software",
        "throttle_time_ms",
        "throttled_until_ms",
    )

    def __init__(
        self,
        peer: Peer,
        *,
        principal: str = ANONYMOUS,
        is_authenticated: bool = True,
        is_on_controller_listener: bool = False,
        gate: SessionGate | None = None,
        authorizer: Authorizer | None = None,
    ) -> None:
        self.peer = peer
        self.gate = gate
        """What asks the client who it is; None on a listener without SASL."""
        self.is_on_controller_listener = is_on_controller_listener
        """The APIs of a controller are served to the client, not those of a broker."""
        self.is_plain = is_authenticated and not is_on_controller_listener
        """The client is authenticated, and served a broker's APIs: no more is asked of the session at a request."""
        self.principal = principal
        """In Kafka's form: type and name."""
        self.authorizer = authorizer
        """None where every principal may do everything."""
        self.permissions: Permissions | None = (
            None if authorizer is None else authorizer.permissions_of(principal, peer.host)
        )
        """What the principal may do; None where there is no authorizer."""
        self.is_by_token = False
        """The client has shown a delegation token: it may not ask for further ones."""
        self.is_authenticated = is_authenticated
        """False until a listener that asks for authentication has it. Until then few APIs are served."""
        self.client_id = ""
        """`client.id` of the latest request whose header was read, by which quotas go. Empty: the client gave none."""
        self.software = UNKNOWN_SOFTWARE
        self.charge_network: Callable[[int], None] | None = None
        """Told for how many microseconds the connection has been received from or sent to; None where nothing limits
        the client's time."""
        self.throttle_time_ms = 0
        """How long the client is throttled for, as its answers tell it (KIP-219). 0: the client is not throttled."""
        self.throttled_until_ms = 0
        """Monotonic time until which no further request of the client is read or evaluated. 0: not throttled."""

    def authenticate(self, principal: str, *, is_by_token: bool = False) -> None:
        """The client has proved to be ``principal``: all APIs of the listener are served to it from now on.

        ``is_by_token``: it has shown a delegation token of the principal.
        """
        self.principal = principal
        self.is_by_token = is_by_token
        if self.authorizer is not None:
            self.permissions = self.authorizer.permissions_of(principal, self.peer.host)
        self.is_authenticated = True
        self.is_plain = not self.is_on_controller_listener

    def ask_the_gate(self) -> None:
        """From now on the gate sees every request first: the client authenticates again, or has to."""
        self.is_plain = False
