"""Nodes: the other brokers that this broker asks for one purpose, each over a connection of its own."""

import logging
from collections.abc import Callable

from broker.peers.endpoint import PeerEndpoint
from broker.peers.peer import Peer

log = logging.getLogger(__name__)


class Nodes:
    """A `Peer` for each node that has been asked for. What must not wait behind other requests has its own `Nodes`."""

    def __init__(
        self, address_of: Callable[[int], PeerEndpoint | None], make_peer: Callable[[PeerEndpoint], Peer]
    ) -> None:
        """``address_of`` says where a node can be reached now, by its id; None where that is not known."""
        self._address_of = address_of
        self._make_peer = make_peer
        self._peers: dict[int, Peer] = {}
        self._is_closed = False

    def __len__(self) -> int:
        """How many nodes have a peer."""
        return len(self._peers)

    def peer(self, node_id: int) -> Peer | None:
        """The node's peer; None where the node has no address, and behind `close`.

        A node that has another address than the last time, or none, is asked no more at the old address: requests that
        wait there raise `PeerUnreachable`.
        """
        if self._is_closed:
            return None
        address = self._address_of(node_id)
        peer = self._peers.get(node_id)
        if peer is not None:
            if peer.endpoint == address:
                return peer
            log.info("%s is asked no more: node %d is at %s now", peer.endpoint, node_id, address or "no address")
            del self._peers[node_id]
            peer.close()
        if address is None:
            return None
        peer = self._peers[node_id] = self._make_peer(address)
        return peer

    def close(self) -> None:
        """Close all connections for good: requests that wait raise `PeerUnreachable`."""
        self._is_closed = True
        peers, self._peers = self._peers, {}
        for peer in peers.values():
            peer.close()
