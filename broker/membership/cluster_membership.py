"""ClusterMembership: what a broker has with controllers that are other nodes, and the connections for it.

A connection for each purpose: the metadata log, registration and heartbeats, forwarded requests, ISRs, the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from broker.membership.forwarder import Forwarder
from broker.membership.membership import ALTER_PARTITION, DIRECTORY_ASSIGNMENTS, HEARTBEAT, Membership
from broker.membership.remote_channel import RemoteChannel
from broker.membership.topic_requests import TopicRequests
from broker.metadata.automatic_topics import automatic_topic
from broker.metadata.registration import Registration, RegistrationRefused
from broker.peers.connector import Connector
from broker.peers.endpoint import UNKNOWN_ID, PeerEndpoint
from broker.peers.errors import PeerError
from broker.peers.peer import Peer
from broker.peers.stats import PeerStats
from broker.raft.client import RaftListener
from broker.raft.observer import QuorumObserver
from broker.raft.remote_quorum import RemoteQuorum
from broker.runtime.backoff import Backoff
from broker.runtime.clock import Clock
from broker.runtime.shutdown import Shutdown
from broker.runtime.waiting import pause_until
from config.broker_settings import BrokerSettings
from config.quorum import controller_addresses
from protocol.api_keys import Versions
from protocol.errors import ErrorCode, described
from protocol.messages.cluster import DescribeClusterRequest, DescribeClusterResponse

log = logging.getLogger(__name__)

CONTROLLERS: Final = 2
"""The endpoint type of controllers in DescribeCluster (KIP-919)."""

_RAFT: Final = "raft-channel"
_FORWARDING: Final = "forwarding"

CHANNELS: Final = (_RAFT, HEARTBEAT, _FORWARDING, ALTER_PARTITION, DIRECTORY_ASSIGNMENTS)
"""The purposes of connections."""


class ClusterMembership(Membership):
    """The membership of a broker whose controllers are other nodes.

    `find_cluster_id` may be called first; `join` once, instead of `begin`.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        connector: Connector,
        clock: Clock,
        chance: Callable[[], float],
        shutdown: Shutdown,
    ) -> None:
        """``connector`` connects to controllers; the other arguments are those of `Membership`."""
        super().__init__(settings, clock=clock, chance=chance, shutdown=shutdown)
        self.connector = connector
        """Connects to controllers, and to other brokers."""
        self._bootstrap = [
            PeerEndpoint(UNKNOWN_ID if address.node_id is None else address.node_id, address.host, address.port)
            for address in controller_addresses(settings)
        ]
        self.channels = {name: PeerStats() for name in CHANNELS}
        """What the connections to controllers count, by their purpose."""
        self.raft: QuorumObserver
        self.quorum: RemoteQuorum
        self.forwarder: Forwarder
        self.topics: TopicRequests

    @property
    def controllers_versions(self) -> Mapping[int, Versions]:
        """The versions of the controllers' leader by API key; empty while none has answered."""
        return self._heartbeats.known_versions

    def _make_peer(self, channel: str, endpoint: PeerEndpoint) -> Peer:
        return Peer(
            endpoint,
            client_id=str(self._settings.node_id),
            connector=self.connector,
            clock=self._clock,
            backoff=Backoff(self._chance),
            request_timeout_ms=self._settings.controller_socket_timeout_ms,
            stats=self.channels[channel],
        )

    async def find_cluster_id(self) -> str:
        """Ask the bootstrap servers for the cluster's id, until a controller answers.

        Raises RegistrationRefused after `initial.broker.registration.timeout.ms`, or what ends the broker.
        """
        deadline_ms = self._clock.monotonic_ms() + self._settings.initial_broker_registration_timeout_ms
        peers = [self._make_peer(_RAFT, endpoint) for endpoint in self._bootstrap]
        backoff = Backoff(self._chance)
        try:
            while not self._shutdown.asked.is_set():
                for peer in peers:
                    if (cluster_id := await self._cluster_id_of(peer)) is not None:
                        return cluster_id
                now_ms = self._clock.monotonic_ms()
                if now_ms >= deadline_ms:
                    named = ", ".join(str(endpoint) for endpoint in self._bootstrap)
                    raise RegistrationRefused(f"no controller has told the id of the cluster: asked was {named}")
                await pause_until(self._clock, now_ms + backoff.next_ms())
        finally:
            for peer in peers:
                peer.close()
        raise self._shutdown.failure or RegistrationRefused("the broker was stopped before it was registered")

    async def _cluster_id_of(self, peer: Peer) -> str | None:
        try:
            answer = await peer.ask(
                DescribeClusterRequest(endpoint_type=CONTROLLERS),
                DescribeClusterResponse,
                timeout_ms=self._settings.controller_quorum_request_timeout_ms,
            )
        except PeerError:  # which the peer has logged
            return None
        if answer.error_code != ErrorCode.NONE:
            log.warning(
                "%s is no controller: it has answered with error %s", peer.endpoint, described(answer.error_code)
            )
            return None
        return answer.cluster_id

    # From the start to the stop

    def join(
        self,
        registration: Registration,
        *,
        cluster_id: str,
        previous_broker_epoch: int,
        listener: RaftListener,
    ) -> None:
        """Follow the metadata log, and register. ``listener`` gets the committed records; the other arguments are
        those of `begin`."""
        settings, clock = self._settings, self._clock
        self.raft = QuorumObserver(
            listener,
            node_id=settings.node_id,
            directory_id=registration.metadata_directory_id,
            cluster_id=cluster_id,
        )
        self.quorum = RemoteQuorum(
            self.raft,
            bootstrap=self._bootstrap,
            make_peer=partial(self._make_peer, _RAFT),
            clock=clock,
            chance=self._chance,
            request_timeout_ms=settings.controller_quorum_request_timeout_ms,
            retry_first_ms=settings.controller_quorum_retry_backoff_ms,
        )
        self.forwarder = Forwarder(self.channel(_FORWARDING), clock, Backoff(self._chance))
        self.topics = TopicRequests(
            self.forwarder, node_id=settings.node_id, automatic_topic=lambda name: automatic_topic(name, settings)
        )
        self.begin(
            registration,
            cluster_id=cluster_id,
            previous_broker_epoch=previous_broker_epoch,
            channels=self,
            metadata=listener,
            heartbeat_interval_ms=settings.broker_heartbeat_interval_ms,
        )
        self.run(self.quorum.run(), "metadata log")
        self.run(self.topics.run(), "new topics")

    def feature_channel(self, purpose: str) -> RemoteChannel:
        """Part of `Channels`: the heartbeats'. A heartbeat is given up after half a session."""
        self._heartbeats = self._channel(purpose, self._settings.broker_session_timeout_ms // 2)
        return self._heartbeats

    def channel(self, purpose: str) -> RemoteChannel:
        """Part of `Channels`."""
        return self._channel(purpose, self._settings.controller_socket_timeout_ms)

    def _channel(self, purpose: str, timeout_ms: int) -> RemoteChannel:
        return RemoteChannel(self.quorum, partial(self._make_peer, purpose), self._clock, timeout_ms=timeout_ms)
