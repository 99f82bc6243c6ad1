"""OwnClient: asks the broker of this process as any client asks it, over a socket that no listener has.

So that it works whatever the listeners demand, and what it writes goes the way of every record.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Final, TypeVar

from broker.control.arguments import BadArguments
from broker.control.calls import CannotDo
from broker.network.transport import PlaintextTransport
from broker.peers.connector import PeerTransport
from broker.peers.endpoint import UNKNOWN_ID, PeerEndpoint
from broker.peers.errors import PeerError
from broker.peers.peer import Peer
from broker.peers.stats import PeerStats
from broker.request.session import Peer as SessionPeer
from broker.request.session import Session
from broker.runtime.backoff import Backoff
from broker.runtime.clock import LoopClock
from protocol.primitives import Unencodable

if TYPE_CHECKING:
    from broker.control.broker_host import BrokerHost

Answer = TypeVar("Answer")

CLIENT_ID: Final = "ottla-control"
LISTENER: Final = "CONTROL"
"""The name of the listener that its connections seem to come in on."""

TIMEOUT_MS: Final = 30_000


class OwnClient:
    """One connection to the broker of now."""

    def __init__(self, host: BrokerHost) -> None:
        self._host = host
        self._peer: Peer | None = None

    def forget(self) -> None:
        """Another broker begins: the connection is to the one before."""
        if self._peer is not None:
            self._peer.close()
            self._peer = None

    async def ask(self, request: object, answer: type[Answer], *, version: int) -> Answer:
        """Send a request and return its answer. Raises `CannotDo` where another broker takes over meanwhile,
        and `BadArguments` where the protocol has no room for what is asked."""
        if self._peer is None:
            loop = asyncio.get_running_loop()
            self._peer = Peer(
                PeerEndpoint(UNKNOWN_ID, "this process", 0),
                client_id=CLIENT_ID,
                connector=self,
                clock=LoopClock(loop, loop.time),
                backoff=Backoff(lambda: 0.0),
                request_timeout_ms=TIMEOUT_MS,
                stats=PeerStats(),
            )
        try:
            return await self._peer.ask(request, answer, version=version)
        except Unencodable as error:
            raise BadArguments(str(error)) from error
        except PeerError as error:
            raise CannotDo(f"the broker begins anew, or ends: {error}") from error

    async def connect(self, endpoint: PeerEndpoint, receiver: asyncio.BufferedProtocol) -> PeerTransport:
        """Part of `Connector`: a pair of sockets, one of which a processor serves."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        session = Session(SessionPeer(host="127.0.0.1", port=0, listener=LISTENER))
        self._host.server.socket_server.processors[0].adopt(PlaintextTransport(theirs), session)
        transport, _ = await asyncio.get_running_loop().create_connection(lambda: receiver, sock=ours)
        return transport
