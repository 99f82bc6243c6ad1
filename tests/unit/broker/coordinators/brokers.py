"""Other brokers, as the test plays them: what this broker asks them is held until the test answers it."""

import asyncio
from typing import Any, NamedTuple

from broker.peers.endpoint import PeerEndpoint
from broker.peers.nodes import Nodes
from broker.peers.peer import Peer
from broker.peers.stats import PeerStats
from broker.runtime.backoff import Backoff
from broker.runtime.manual_clock import ManualClock
from protocol.api_keys import ApiKey
from tests.unit.broker.peers.harness import Wire, versions

REQUEST_TIMEOUT_MS = 30_000
KNOWN = {"write_txn_markers": (1, 2), "add_partitions_to_txn": (0, 5)}
"""What a broker of Kafka 4.4.0 knows of what coordinators and leaders ask each other."""


class Asked(NamedTuple):
    """A request that a broker has received and not answered."""

    node_id: int
    version: int
    message: Any
    wire: "BrokerWire"
    index: int

    def answer(self, message: object) -> None:
        self.wire.answer(self.index, message)

    def lose(self) -> None:
        """Close the connection instead of an answer."""
        self.wire.lose()


class BrokerWire(Wire):
    """A connection that says at once which versions the broker knows."""

    def __init__(self, network: "Brokers", node_id: int, receiver: asyncio.BufferedProtocol) -> None:
        super().__init__(receiver)
        self._network = network
        self._node_id = node_id

    def write(self, data: bytes) -> None:
        super().write(data)
        index = len(self.requests) - 1
        header, message = self.requests[index]
        if header.api_key == ApiKey.API_VERSIONS:
            answer = self.answer_bytes(index, versions(**self._network.known))
            asyncio.get_running_loop().call_soon(self.send, answer)
        else:
            self._network.asked.append(Asked(self._node_id, header.api_version, message, self, index))


class Brokers:
    """The network: a `Connector` to brokers 2, 3 and 4."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.asked: list[Asked] = []
        """The requests without an answer, in their order."""
        self.known = dict(KNOWN)
        self.unreachable: set[int] = set()
        self.addresses = {node_id: PeerEndpoint(node_id, f"kafka-{node_id}", 9092) for node_id in (2, 3, 4)}

    async def connect(self, endpoint: PeerEndpoint, receiver: asyncio.BufferedProtocol) -> BrokerWire:
        """Part of `Connector`."""
        if endpoint.node_id in self.unreachable:
            raise OSError("connection refused")
        return BrokerWire(self, endpoint.node_id, receiver)

    def nodes(self, client_id: str) -> Nodes:
        """New connections, for one purpose."""

        def make_peer(endpoint: PeerEndpoint) -> Peer:
            return Peer(
                endpoint,
                client_id=client_id,
                connector=self,
                clock=self.clock,
                backoff=Backoff(lambda: 0.5),
                request_timeout_ms=REQUEST_TIMEOUT_MS,
                stats=PeerStats(),
            )

        return Nodes(self.addresses.get, make_peer)

    def take(self) -> Asked:
        """The only request without an answer."""
        (asked,) = self.asked
        self.asked.clear()
        return asked


async def settle() -> None:
    """Let everything happen that needs no time."""
    for _ in range(30):
        await asyncio.sleep(0)
