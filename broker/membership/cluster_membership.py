"""ClusterMembership: what this broker has with controllers elsewhere, and the tasks and connections for it.

A connection for each purpose: the metadata log, registration and heartbeats, forwarded requests, ISRs, the rest.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping
from functools import partial
from typing import Any, Final

from broker.membership.alter_partition import AlterPartitionSender
from broker.membership.broker_requests import BrokerRequests
from broker.membership.forwarder import Forwarder
from broker.membership.member import BrokerMember, MemberSettings
from broker.membership.remote_channel import RemoteChannel
from broker.metadata.automatic_topics import automatic_topic
from broker.metadata.registration import Registration, RegistrationRefused, known_directories
from broker.peers.backoff import Backoff
from broker.peers.connector import Connector
from broker.peers.endpoint import UNKNOWN_ID, PeerEndpoint
from broker.peers.errors import PeerError
from broker.peers.peer import Peer
from broker.peers.stats import PeerStats
from broker.peers.waiting import pause_until, set_by
from broker.raft.client import RaftListener
from broker.raft.observer import QuorumObserver
from broker.raft.remote_quorum import RemoteQuorum
from broker.runtime.clock import Clock
from broker.runtime.shutdown import CONTROLLED_SHUTDOWN_MS, Shutdown, first_of
from config.broker_settings import BrokerSettings
from config.quorum import controller_addresses
from protocol.api_keys import Versions
from protocol.errors import ErrorCode, described
from protocol.messages.cluster import DescribeClusterRequest, DescribeClusterResponse

log = logging.getLogger(__name__)

CONTROLLERS: Final = 2
"""The endpoint type of controllers in DescribeCluster (KIP-919)."""

_RAFT: Final = "raft-channel"
_HEARTBEAT: Final = "heartbeat"
_FORWARDING: Final = "forwarding"
_ALTER_PARTITION: Final = "alter-partition"
_DIRECTORY_ASSIGNMENTS: Final = "directory-assignments"

CHANNELS: Final = (_RAFT, _HEARTBEAT, _FORWARDING, _ALTER_PARTITION, _DIRECTORY_ASSIGNMENTS)
"""The purposes of connections, by Kafka's names for them. Producer ids are asked for with the assignments."""


class ClusterMembership:
    """One broker's membership during one run of its process.

    `find_cluster_id` may be called first; `begin` once; then `caught_up`, `unfence` and `leave` in this order.
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
        """``shutdown`` is told of what ends the membership for good; ``chance`` returns a number from 0 to 1."""
        self._settings = settings
        self.connector = connector
        """Connects to controllers, and to other brokers."""
        self._clock = clock
        self._chance = chance
        self._shutdown = shutdown
        self._bootstrap = [
            PeerEndpoint(UNKNOWN_ID if address.node_id is None else address.node_id, address.host, address.port)
            for address in controller_addresses(settings)
        ]
        self._tasks: list[asyncio.Task[None]] = []
        self.channels = {name: PeerStats() for name in CHANNELS}
        """What the connections to controllers count, by their purpose."""
        self.raft: QuorumObserver
        self.quorum: RemoteQuorum
        self.member: BrokerMember
        self.forwarder: Forwarder
        self.requests: BrokerRequests
        self.isr_sender: AlterPartitionSender

    @property
    def controllers_versions(self) -> Mapping[int, Versions]:
        """The versions of the controllers' leader by API key; empty while none has answered."""
        return self._heartbeats.known_versions

    @property
    def broker_epoch(self) -> int:
        """The epoch of the registration, -1 before the first."""
        return self.member.broker_epoch

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

    def begin(
        self,
        registration: Registration,
        *,
        cluster_id: str,
        previous_broker_epoch: int,
        listener: RaftListener,
    ) -> None:
        """Follow the metadata log, and register.

        Args:
            registration: of this run of the process.
            cluster_id: that of the data directories.
            previous_broker_epoch: see `BrokerMember`.
            listener: gets the committed records.
        """
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
        self._heartbeats = self._channel(_HEARTBEAT, timeout_ms=settings.broker_session_timeout_ms // 2)
        self.member = BrokerMember(
            registration,
            cluster_id=cluster_id,
            previous_broker_epoch=previous_broker_epoch,
            channel=self._heartbeats,
            applied_offset=lambda: listener.image.end_offset - 1,
            metadata_version=lambda: listener.image.features.metadata_version,
            known_directories=lambda: known_directories(listener.image, settings.node_id),
            clock=clock,
            chance=self._chance,
            settings=MemberSettings(
                heartbeat_interval_ms=settings.broker_heartbeat_interval_ms,
                session_timeout_ms=settings.broker_session_timeout_ms,
                registration_timeout_ms=settings.initial_broker_registration_timeout_ms,
            ),
        )
        self.forwarder = Forwarder(self._channel(_FORWARDING), clock, Backoff(self._chance))
        self.requests = BrokerRequests(
            self._channel(_DIRECTORY_ASSIGNMENTS),
            self.forwarder,
            node_id=settings.node_id,
            broker_epoch=lambda: self.broker_epoch,
            automatic_topic=lambda name: automatic_topic(name, settings),
            known_directories=lambda: known_directories(listener.image, settings.node_id),
            clock=clock,
            backoff=Backoff(self._chance),
        )
        self.isr_sender = AlterPartitionSender(
            self._channel(_ALTER_PARTITION),
            node_id=settings.node_id,
            broker_epoch=lambda: self.broker_epoch,
            clock=clock,
        )
        self.run(self.quorum.run(), "metadata log")
        self.run(self.member.run(), "membership")
        self.run(self.requests.run(), "requests to the controllers")
        self.run(self.isr_sender.run(), "in-sync replicas")

    def run(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        """Run a task until `close`; what it raises stops the broker."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("this broker is no member of its cluster any more: %s", error)
            self._shutdown.fail(error)

    async def caught_up(self) -> None:
        """Return once this broker is registered and has replayed its registration, or a stop was asked for.

        Raises what has ended the membership.
        """
        await self._shutdown.wait_unless(self.member.caught_up)

    async def unfence(self) -> None:
        """The logs are there and requests are answered: return once this broker may lead, or a stop was asked for."""
        self.member.ready()
        await first_of(self.member.unfenced, self._shutdown.asked)

    async def leave(self) -> None:
        """Have other brokers lead the partitions of this broker, and return when it may stop (KIP-631).

        Without an answer of the controllers for the time of a session, other brokers lead them already, or none can.
        """
        if self._shutdown.failure is not None or not self.member.registered.is_set():
            return
        member = self.member
        member.shut_down()
        began_ms = self._clock.monotonic_ms()
        while not member.may_stop.is_set():
            answered_ms = max(member.answered_ms, began_ms)
            until_ms = min(began_ms + CONTROLLED_SHUTDOWN_MS, answered_ms + self._settings.broker_session_timeout_ms)
            if self._clock.monotonic_ms() >= until_ms:
                break
            await set_by(self._clock, until_ms, member.may_stop)
        if not member.may_stop.is_set():
            log.warning("stopping without the leave of the controllers, who have not answered")

    def directory_failed(self, directory_id: bytes | None) -> None:
        """Report a log directory that has failed; it stays offline until the next start. None has no id."""
        if directory_id is not None:
            self.member.directory_failed(directory_id)

    def cordon(self, directory_ids: Collection[bytes]) -> None:
        """Report exactly which log directories take no new replicas."""
        self.member.cordon(directory_ids)

    async def close(self) -> None:
        """End all tasks and connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _channel(self, name: str, *, timeout_ms: int | None = None) -> RemoteChannel:
        within_ms = self._settings.controller_socket_timeout_ms if timeout_ms is None else timeout_ms
        return RemoteChannel(self.quorum, partial(self._make_peer, name), self._clock, timeout_ms=within_ms)
