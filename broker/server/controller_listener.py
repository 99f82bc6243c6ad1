"""ControllerListener: what this node, the only controller of its cluster, serves to brokers that join it."""

import logging
from collections.abc import Sequence
from typing import Final

from broker.controller.cluster_requests import ClusterRequests
from broker.dispatch.dispatcher import Dispatcher
from broker.dispatch.registry import Registry
from broker.raft.metadata_fetch import MetadataFetches
from broker.raft.quorum import voters_with_endpoints
from broker.raft.single_voter_log import SingleVoterLog
from broker.request.node import Endpoint, Node
from broker.runtime.purgatory import Purgatory
from broker.runtime.services import Services
from broker.server.controller_apis import serve_controller
from broker.server.controller_handlers import ControllerHandlers
from broker.server.handlers import Handlers
from config.listeners import Listener

log = logging.getLogger(__name__)

CHECKED_EVERY_MS: Final = 1_000
"""How often the sessions of brokers are looked at, at least: a session may begin behind a look."""

CHECKED_AFTER_MS: Final = 10
"""The shortest time between two looks."""


class ControllerListener:
    """The parts behind the controller listeners of one node. Made once the metadata log is open, before this node
    registers its own broker."""

    def __init__(
        self,
        metadata_log: SingleVoterLog,
        requests: ClusterRequests,
        *,
        services: Services,
        cluster_id: str,
        endpoints: Sequence[Listener],
        session_timeout_ms: int,
    ) -> None:
        """``endpoints``: the addresses that other nodes are given, with the ports that are bound.

        Raises StorageError where the metadata log cannot be written.
        """
        self._services = services
        self._endpoints = tuple(endpoints)
        self._session_timeout_ms = session_timeout_ms
        self._requests = requests
        self._node = Node(
            node_id=metadata_log.leader_id,
            cluster_id=cluster_id,
            rack=None,
            endpoints={listener.name: Endpoint(listener.host, listener.port) for listener in endpoints},
        )
        self._fetches = MetadataFetches(
            metadata_log,
            files=services.files,
            node=self._node,
            clock=services.clock,
            purgatory=Purgatory(services.wheel),
            read_ahead=services.read_ahead,
        )
        self.elect_leaders = self._requests.elect_leaders
        """Elects leaders, for clients of the broker of this node."""
        self.observers = self._fetches.observers
        """The nodes that follow the metadata log, for DescribeQuorum on each listener."""
        _write_endpoints(metadata_log, endpoints)

    def serve(self, registry: Registry, handlers: Handlers, dispatcher: Dispatcher) -> None:
        """Serve the APIs of a controller, and end the sessions of brokers that are silent.

        Args:
            registry: of the controller listeners, still empty.
            handlers: those of the node's broker, which the controller listeners share.
            dispatcher: of both registries.
        """
        serve_controller(
            registry,
            ControllerHandlers(
                broker=handlers,
                node=self._node,
                fetches=self._fetches,
                controller=self._requests,
                dispatch=dispatcher.handle,
            ),
        )
        # Brokers could not send heartbeats while the logs were loaded, however long that took.
        self._services.scheduler.once(self._session_timeout_ms, self._check_sessions)
        log.info("other brokers find the controller at %s", ", ".join(map(str, self._endpoints)))

    def stop(self) -> None:
        """Answer the fetches that wait; later fetches are told that this controller is being stopped."""
        self._fetches.stop()

    def _check_sessions(self) -> None:
        now_ms = self._services.clock.monotonic_ms()
        after_ms = self._requests.session_check(now_ms) - now_ms
        self._services.scheduler.once(max(min(after_ms, CHECKED_EVERY_MS), CHECKED_AFTER_MS), self._check_sessions)


def _write_endpoints(metadata_log: SingleVoterLog, endpoints: Sequence[Listener]) -> None:
    """Write this node's controller listeners into the metadata log, if the log has other addresses.

    Brokers ask the leader at the address that the voters of the log have. The record becomes durable with the
    registration, which comes after it.
    """
    voters = voters_with_endpoints(metadata_log.quorum, metadata_log.leader_id, endpoints)
    if voters is not None:
        metadata_log.append_control([voters])
