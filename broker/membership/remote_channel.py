"""RemoteChannel: asks whichever controller leads, over a connection that serves one purpose."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from broker.membership.controller_channel import Answer
from broker.peers.endpoint import PeerEndpoint
from broker.peers.errors import PeerError
from broker.peers.peer import Peer
from broker.raft.remote_quorum import RemoteQuorum
from broker.runtime.clock import Clock
from broker.runtime.waiting import done_by
from protocol.api_keys import Versions
from protocol.errors import ErrorCode

SOCKET_TIMEOUT_MS: Final = 30_000
"""Kafka's default for `controller.socket.timeout.ms`."""


class RemoteChannel:
    """The `ControllerChannel` of a broker whose controllers are other nodes: a connection to their leader.

    A request that waits for long must not share it with another purpose.
    """

    def __init__(
        self,
        quorum: RemoteQuorum,
        make_peer: Callable[[PeerEndpoint], Peer],
        clock: Clock,
        *,
        timeout_ms: int = SOCKET_TIMEOUT_MS,
    ) -> None:
        """``timeout_ms``: how long a leader is searched for, and how long it may take to answer."""
        self._quorum = quorum
        self._make_peer = make_peer
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._peer: Peer | None = None
        self._known_versions: Mapping[int, Versions] = {}

    async def ask(self, request: object, answer: type[Answer]) -> Answer | None:
        """Ask the leader. None if there is none, or it does not answer, or it leads no more. Raises Unencodable."""
        peer = await self._leader()
        if peer is None:
            return None
        try:
            found = await peer.ask(request, answer, timeout_ms=self._timeout_ms)
        except PeerError:  # which the peer has logged
            return None
        return None if found.error_code == ErrorCode.NOT_CONTROLLER else found

    async def finalized_features(self) -> Mapping[str, int] | None:
        """The feature levels that the cluster has finalised, as the leader says; None if it does not answer."""
        peer = await self._leader()
        if peer is None:
            return None
        try:
            return (await peer.versions(timeout_ms=self._timeout_ms)).finalized_features
        except PeerError:
            return None

    @property
    def known_versions(self) -> Mapping[int, Versions]:
        """The versions by API key that the last leader on this connection has named; empty before."""
        known = None if self._peer is None else self._peer.known_versions
        if known is not None:
            self._known_versions = known
        return self._known_versions

    def close(self) -> None:
        """Close the connection: what waits for an answer gets none."""
        if self._peer is not None:
            self._peer.close()

    async def _leader(self) -> Peer | None:
        leader = asyncio.ensure_future(self._quorum.leader())
        try:
            if not await done_by(self._clock, self._clock.monotonic_ms() + self._timeout_ms, leader):
                return None
        finally:
            leader.cancel()
        endpoint = leader.result()
        if self._peer is None or self._peer.endpoint != endpoint:
            self.close()
            self._peer = self._make_peer(endpoint)
        return self._peer
