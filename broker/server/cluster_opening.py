"""ClusterOpening: opens this node's own metadata log, or joins the cluster of controllers elsewhere."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from broker.controller.broker_changes import FoundLogs
from broker.controller.client import AutoCreation
from broker.controller.cluster_requests import ClusterRequests, ClusterSettings
from broker.controller.local_channel import LocalChannel
from broker.controller.local_controller import LocalController
from broker.logs.loading import Stopped
from broker.membership.membership import Membership
from broker.metadata.cache import MetadataCache
from broker.metadata.image.records import Record
from broker.metadata.loader import MetadataLoader
from broker.metadata.registration import Registration
from broker.metrics.sources import MetricSources
from broker.raft.client import RaftClient
from broker.raft.formatting import read_bootstrap
from broker.raft.opening import open_metadata_log
from broker.raft.single_voter_log import SingleVoterLog
from broker.request.node import Endpoint, Node
from broker.runtime.services import Services
from broker.runtime.shutdown import Shutdown
from broker.server.log_dirs import LogDirs
from config.broker_settings import BrokerSettings
from config.listeners import Listener
from config.release_versions import NEWEST
from storage.log_manager import LogManager

if TYPE_CHECKING:
    from broker.membership.cluster_membership import ClusterMembership
    from broker.peers.connector import Connector
    from broker.server.controller_listener import ControllerListener

log = logging.getLogger(__name__)


class OpenedCluster(NamedTuple):
    """What the other parts need of the cluster, whether its controller is in this process or elsewhere."""

    node: Node
    raft: RaftClient
    auto_creation: AutoCreation
    controllers: ClusterMembership | None = None
    """The controllers where they are other nodes; else the next two are there."""
    controller: LocalController | None = None
    metadata_log: SingleVoterLog | None = None
    controller_listener: ControllerListener | None = None


class ClusterOpening:
    """Opens what this node knows of its cluster, once: `open` where the controller is in this process, else `join`."""

    def __init__(
        self,
        settings: BrokerSettings,
        services: Services,
        *,
        metadata: MetadataCache,
        endpoints: tuple[Listener, ...],
        controller_endpoint: Listener,
        opened_controller_endpoints: tuple[Listener, ...],
        log_dirs: LogDirs,
        begin_recovery: Callable[[], None],
        metric_sources: MetricSources,
        shutdown: Shutdown,
        connector: Connector | None,
    ) -> None:
        """The arguments are those of `broker.server.startup.Startup`."""
        self._settings = settings
        self._services = services
        self._metadata = metadata
        self._endpoints = endpoints
        self._controller_endpoint = controller_endpoint
        self._opened_controller_endpoints = opened_controller_endpoints
        self._log_dirs = log_dirs
        self._begin_recovery = begin_recovery
        self._metric_sources = metric_sources
        self._shutdown = shutdown
        self._connector = connector
        self._was_clean = False
        self._requests: ClusterRequests | None = None
        self._controllers = self._make_controllers() if settings.is_member else None
        self.membership: Membership = self._controllers or Membership(
            settings, clock=services.clock, chance=self._chance, shutdown=shutdown
        )
        """Closed by the caller, also where `join` or `register` raises."""

    def _chance(self) -> float:
        return self._services.ids.uuid()[0] / 0xFF

    def _make_controllers(self) -> ClusterMembership:
        from broker.membership.cluster_membership import ClusterMembership
        from broker.peers.connector import TcpConnector

        clock = self._services.clock
        return ClusterMembership(
            self._settings,
            connector=self._connector or TcpConnector(clock),
            clock=clock,
            chance=self._chance,
            shutdown=self._shutdown,
        )

    async def open(self, loader: MetadataLoader) -> OpenedCluster:
        """Open the metadata log in this process, whose controller decides.

        The clean-shutdown markers stay until it is replayed: a start that is refused leaves the directories as they
        were.
        """
        node = self._identify()
        metadata_log = self._metric_sources.metadata_log = self._open_metadata_log(loader)
        self._log_dirs.complete_ids(self._services.ids, self._date())
        controller = LocalController(metadata_log, loader, ids=self._services.ids, settings=self._settings)
        self._metric_sources.controller = controller
        settings = self._settings
        requests = self._requests = ClusterRequests(
            controller,
            cluster_id=node.cluster_id,
            clock=self._services.clock,
            settings=ClusterSettings(
                rebalances_leaders=settings.auto_leader_rebalance_enable,
                rebalance_interval_ms=settings.leader_imbalance_check_interval_seconds * 1000,
            ),
            others_can_join=bool(self._opened_controller_endpoints),
        )
        return OpenedCluster(
            node=node,
            raft=metadata_log,
            auto_creation=controller,
            controller=controller,
            metadata_log=metadata_log,
            controller_listener=self._make_controller_listener(metadata_log, requests, node.cluster_id),
        )

    def _make_controller_listener(
        self, metadata_log: SingleVoterLog, requests: ClusterRequests, cluster_id: str
    ) -> ControllerListener | None:
        if not self._opened_controller_endpoints:
            return None
        from broker.server.controller_listener import ControllerListener

        listener = ControllerListener(
            metadata_log,
            requests,
            services=self._services,
            cluster_id=cluster_id,
            endpoints=self._opened_controller_endpoints,
            session_timeout_ms=self._settings.broker_session_timeout_ms,
        )
        self._metric_sources.observers = listener.observers
        return listener

    async def join(self, loader: MetadataLoader) -> OpenedCluster:
        """Register with controllers elsewhere, and replay their metadata log up to the registration.

        The clean-shutdown markers stay until then: a start that the controllers refuse leaves the directories as they
        were. Raises RegistrationRefused, and `Stopped` where a stop was asked for.
        """
        settings, services, log_dirs, membership = self._settings, self._services, self._log_dirs, self._controllers
        assert membership is not None, "the controllers are other nodes"
        is_new = log_dirs.is_new and settings.ottla_cluster_id is None
        node = self._identify(await membership.find_cluster_id() if is_new else None)
        log_dirs.complete_ids(services.ids, self._date())
        registration = self._registration()
        membership.join(
            registration._replace(directories=sorted(registration.directories)),  # as Kafka does
            cluster_id=node.cluster_id,
            previous_broker_epoch=log_dirs.last_broker_epoch,
            listener=loader,
        )
        self._metric_sources.membership = membership
        self._metric_sources.channels.update(membership.channels)
        self._metric_sources.on_period.append(membership.quorum.rotate)
        await membership.registered()
        if self._shutdown.asked.is_set():
            raise Stopped
        self._begin_loading()
        return OpenedCluster(
            node=node,
            raft=membership.raft,
            auto_creation=membership.topics,
            controllers=membership,
        )

    def _begin_loading(self) -> None:
        self._was_clean = self._log_dirs.begin_loading()
        self._begin_recovery()

    def _identify(self, cluster_id: str | None = None) -> Node:
        now_ms = self._services.clock.now_ms()
        self._log_dirs.identify(
            self._services.ids, now_ms, self._date(), self._controller_endpoint, cluster_id=cluster_id
        )
        return Node(
            node_id=self._settings.node_id,
            cluster_id=self._log_dirs.cluster_id,
            rack=self._settings.broker_rack,
            endpoints={listener.name: Endpoint(listener.host, listener.port) for listener in self._endpoints},
        )

    def _date(self) -> str:
        """The date of `meta.properties`, as Java writes it."""
        return time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime(self._services.clock.now_ms() / 1000))

    def _open_metadata_log(self, loader: MetadataLoader) -> SingleVoterLog:
        directory = self._log_dirs.for_metadata
        return open_metadata_log(
            self._services.files,
            self._settings,
            directory_id=self._log_dirs.metadata_directory_id,
            was_clean=directory.last_broker_epoch is not None,
            clock=self._services.clock,
            flusher=self._services.flushers.of(directory.path),
            worker=self._services.housekeeper,
            on_fatal=self._shutdown.fail,
            once=self._services.scheduler.once,
            listener=loader,
            begin=self._begin_loading,
        )

    def _registration(self) -> Registration:
        """The registration of this run, with the log directories that can be used by now."""
        directory_id = self._log_dirs.metadata_directory_id
        assert directory_id is not None, "every directory has an id now"
        return Registration(
            metadata_directory_id=directory_id,
            node_id=self._settings.node_id,
            incarnation_id=self._services.ids.uuid(),
            endpoints=self._endpoints,
            controller_endpoint=self._controller_endpoint,
            rack=self._settings.broker_rack,
            directories=self._log_dirs.online_ids,
            cordoned=self._log_dirs.cordoned_ids,
        )

    async def register(self, controller: LocalController, cluster_id: str, logs: LogManager) -> None:
        """Register with the controller in this process, and lead the partitions: what the logs have is known now.

        The broker may lead at once, and its silence is no news: it sends a heartbeat when something has changed. Raises
        StorageError, or the error that keeps the broker from going on; returns early if a stop was asked for.
        """
        assert self._requests is not None, "the metadata log is open"
        requests, registration = self._requests, self._registration()
        controller.begin(registration, self._bootstrap)
        requests.loaded(
            FoundLogs(
                {
                    log.topic_partition: directory_id
                    for directory_id, directory in self._log_dirs.by_id.items()
                    for log in logs.in_directory(directory)
                },
                was_clean=self._was_clean,
                is_complete=len(registration.directories) == len(self._log_dirs.for_logs),
                cordoned=registration.cordoned,
            )
        )
        membership = self.membership
        membership.begin(
            registration,
            cluster_id=cluster_id,
            # The markers say whether the last run stopped cleanly; those of an older Kafka name no epoch.
            previous_broker_epoch=controller.broker_epoch if self._was_clean else -1,
            channels=LocalChannel(requests),
            metadata=self._metadata,
            heartbeat_interval_ms=None,
        )
        membership.member.ready()
        await self._shutdown.wait_unless(membership.member.unfenced)

    def _bootstrap(self) -> Sequence[Record]:
        """The features and configs of a new cluster."""
        return read_bootstrap(
            self._services.files,
            self._log_dirs.for_metadata.path,
            min_insync_replicas=self._settings.min_insync_replicas,
        )


def log_older_levels(levels: Mapping[str, int]) -> None:
    """Say which features of this node's own cluster are off or at an older level, if any."""
    older = [
        f"{name} {levels.get(name, 0)} of {level}"
        for name, level in NEWEST.levels.items()
        if levels.get(name, 0) < level
    ]
    if older:
        log.info(
            "features that are off or at an older level: %s; `ottla features upgrade --release-version %s` raises "
            "them, and then no Kafka before %s opens the directory",
            ", ".join(older),
            NEWEST.release,
            NEWEST.oldest_kafka,
        )
