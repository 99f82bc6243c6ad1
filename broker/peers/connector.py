"""How a connection to a node is made. TLS and SASL, and a simulated network, are other connectors."""

import asyncio
import socket
from contextlib import suppress
from typing import Final, Protocol

from broker.peers.endpoint import PeerEndpoint
from broker.runtime.clock import Clock
from broker.runtime.waiting import done_by

CONNECT_TIMEOUT_MS: Final = 10_000
"""Kafka's default for `socket.connection.setup.timeout.ms`."""


class PeerTransport(Protocol):
    """The sending end of a connection; an `asyncio.Transport` is one."""

    def write(self, data: bytes) -> None:
        """Send the bytes as soon as the node takes them. This neither blocks nor fails: the receiver is told of a lost
        connection, and nothing is written after that."""

    def abort(self) -> None:
        """Close the connection at once; what is not sent is dropped. The receiver's `connection_lost` may follow."""


class Connector(Protocol):
    """Makes connections."""

    async def connect(self, endpoint: PeerEndpoint, receiver: asyncio.BufferedProtocol) -> PeerTransport:
        """Make a connection, over which requests can be sent when this returns: handshakes and authentication are done.

        ``receiver`` is given what the node sends through `get_buffer` and `buffer_updated`, and told once by
        `connection_lost` that the connection is lost. Raises `OSError` with the reason where no connection can be made.
        """


class TcpConnector:
    """A `Connector` of plain TCP connections on the running loop."""

    __slots__ = ("_clock", "_timeout_ms")

    def __init__(self, clock: Clock, *, timeout_ms: int = CONNECT_TIMEOUT_MS) -> None:
        self._clock = clock
        self._timeout_ms = timeout_ms

    async def connect(self, endpoint: PeerEndpoint, receiver: asyncio.BufferedProtocol) -> PeerTransport:
        """Part of `Connector`. All addresses of the host are tried within the time-out."""
        loop = asyncio.get_running_loop()
        making = loop.create_task(loop.create_connection(lambda: receiver, endpoint.host, endpoint.port))
        try:
            if not await done_by(self._clock, self._clock.monotonic_ms() + self._timeout_ms, making):
                raise TimeoutError(f"no connection within {self._timeout_ms} ms")
            transport, _ = making.result()
        except (ValueError, OverflowError) as problem:
            # The loop's words for a host or a port that cannot exist.
            raise OSError(f"no such address: {problem}") from problem
        except BaseException:
            if not making.cancel() and making.exception() is None:
                making.result()[0].abort()
            raise
        connected = transport.get_extra_info("socket")
        # A connection that is lost already says so by itself; uvloop has no socket for it any more.
        with suppress(OSError):
            if connected is not None:
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return transport
