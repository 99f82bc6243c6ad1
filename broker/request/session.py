"""The session of a connection: who is at its other end, what the client has said of itself, and its throttling."""

from typing import Final, NamedTuple

ANONYMOUS: Final = "User:ANONYMOUS"
"""Kafka's principal of a connection that no authentication was asked of."""


class ClientSoftware(NamedTuple):
    """The client library, as its ApiVersions request names it (KIP-511)."""

    name: str = "unknown"
    version: str = "unknown"


UNKNOWN_SOFTWARE: Final = ClientSoftware()


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
        "_is_authenticated",
        "client_id",
        "is_on_controller_listener",
        "is_plain",
        "peer",
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
    ) -> None:
        self.peer = peer
        self.is_on_controller_listener = is_on_controller_listener
        """The APIs of a controller are served to the client, not those of a broker."""
        self.is_plain = is_authenticated and not is_on_controller_listener
        """The client is authenticated, and served a broker's APIs: no more is asked of the session at a request."""
        self.principal = principal
        """In Kafka's form: type and name."""
        self._is_authenticated = is_authenticated
        self.client_id = ""
        """`client.id` of the latest request whose header was read, by which quotas go. Empty: the client gave none."""
        self.software = UNKNOWN_SOFTWARE
        self.throttle_time_ms = 0
        """How long the client is throttled for, as its answers tell it (KIP-219). 0: the client is not throttled."""
        self.throttled_until_ms = 0
        """Monotonic time until which no further request of the client is read or evaluated. 0: not throttled."""

    @property
    def is_authenticated(self) -> bool:
        """False until a listener that asks for authentication has it. Until then few APIs are served."""
        return self._is_authenticated

    @is_authenticated.setter
    def is_authenticated(self, is_authenticated: bool) -> None:
        self._is_authenticated = is_authenticated
        self.is_plain = is_authenticated and not self.is_on_controller_listener
