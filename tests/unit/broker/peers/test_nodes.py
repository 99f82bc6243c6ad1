"""Which peer a node has: one at a time, at the address where the node is now."""

import pytest

from broker.peers.endpoint import PeerEndpoint
from broker.peers.errors import PeerUnreachable
from broker.peers.nodes import Nodes
from broker.peers.peer import Peer
from broker.runtime.backoff import Backoff
from tests.unit.broker.peers.harness import REQUEST_TIMEOUT_MS, PeerHarness, by_hand, fetched, peer


class Cluster:
    """Nodes that move as the test says."""

    def __init__(self, network: PeerHarness) -> None:
        self.addresses: dict[int, PeerEndpoint] = {
            3: PeerEndpoint(3, "kafka-3", 9092),
            4: PeerEndpoint(4, "kafka-4", 9092),
        }
        self._network = network
        self.nodes = Nodes(self.addresses.get, self._make_peer)

    def _make_peer(self, endpoint: PeerEndpoint) -> Peer:
        network = self._network
        return Peer(
            endpoint,
            client_id="broker-2-txn-marker-sender",
            connector=network,
            clock=network.clock,
            backoff=Backoff(lambda: 0.5),
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            stats=network.stats,
        )


def found(peer: Peer | None) -> Peer:
    assert peer is not None
    return peer


@by_hand
async def test_a_node_keeps_its_peer_and_nodes_have_a_peer_each() -> None:
    async with peer() as network:
        cluster = Cluster(network)
        assert len(cluster.nodes) == 0
        third = found(cluster.nodes.peer(3))
        assert third.endpoint == PeerEndpoint(3, "kafka-3", 9092)
        assert cluster.nodes.peer(3) is third
        assert found(cluster.nodes.peer(4)).endpoint == PeerEndpoint(4, "kafka-4", 9092)
        assert len(cluster.nodes) == 2
        assert network.attempts_ms == [], "no connection is made before something is asked"
        cluster.nodes.close()


@by_hand
async def test_a_node_without_an_address_has_no_peer_until_it_has_one() -> None:
    async with peer() as network:
        cluster = Cluster(network)
        assert cluster.nodes.peer(5) is None
        cluster.addresses[5] = PeerEndpoint(5, "kafka-5", 9092)
        assert found(cluster.nodes.peer(5)).endpoint.host == "kafka-5"
        cluster.nodes.close()


@pytest.mark.parametrize("address", [PeerEndpoint(3, "kafka-3", 19092), None])
@by_hand
async def test_a_node_that_moves_is_asked_no_more_at_its_old_address(address: PeerEndpoint | None) -> None:
    async with peer() as network:
        cluster = Cluster(network)
        network.peer = found(cluster.nodes.peer(3))
        asked = await network.fetch()

        if address is None:
            del cluster.addresses[3]
        else:
            cluster.addresses[3] = address
        moved = cluster.nodes.peer(3)

        with pytest.raises(PeerUnreachable):
            await asked
        assert network.wires[0].is_closed
        assert (moved and moved.endpoint) == address
        if moved is not None:
            network.peer = moved
            again = await network.fetch()
            network.wires[1].answer(0, fetched(7))
            assert (await again).session_id == 7
        cluster.nodes.close()


@by_hand
async def test_behind_the_close_no_node_is_asked() -> None:
    async with peer() as network:
        cluster = Cluster(network)
        network.peer = found(cluster.nodes.peer(3))
        asked = await network.fetch()
        cluster.nodes.close()
        with pytest.raises(PeerUnreachable):
            await asked
        assert cluster.nodes.peer(3) is None
        assert cluster.nodes.peer(4) is None
        assert len(cluster.nodes) == 0
