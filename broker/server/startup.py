"""Startup: opens a broker's data, from locked directories to led partitions and loaded coordinators."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NamedTuple

from broker.controller.client import AutoCreation, ControllerClient
from broker.controller.local_controller import LocalController
from broker.coordinators.group_coordinator import GroupCoordinator
from broker.coordinators.marker_appender import MarkerAppender
from broker.coordinators.transaction.verification import PartitionVerifier
from broker.coordinators.transaction_coordinator import TransactionCoordinator
from broker.coordinators.transaction_markers import TransactionMarkers
from broker.fetch.sessions import FetchSessions
from broker.logs.background_tasks import LogBackgroundTasks
from broker.logs.cleaner import LogCleaner
from broker.logs.loading import LogLoading, Stopped
from broker.logs.removals import LogRemovals
from broker.logs.retention_hold import RetentionHold
from broker.metadata.broker_state import BrokerState
from broker.metadata.cache import MetadataCache
from broker.metadata.configs import ConfigView
from broker.metadata.dynamic_broker_config import DynamicBrokerConfig
from broker.metadata.loader import MetadataLoader
from broker.metadata.producer_ids import AllocateBlock, ProducerIds
from broker.metadata.registration import Registration
from broker.metadata.topic_rules import TRANSACTION_STATE
from broker.metrics.sources import MetricSources
from broker.raft.client import RaftClient
from broker.raft.formatting import read_bootstrap
from broker.raft.opening import open_metadata_log
from broker.raft.single_voter_log import SingleVoterLog
from broker.replication.log_start_checkpoints import LogStartCheckpoints
from broker.replication.partition import ALONE
from broker.replication.replica_manager import ReplicaManager
from broker.request.node import Endpoint, Node
from broker.runtime.purgatory import Purgatory
from broker.runtime.services import Services
from broker.runtime.shutdown import Shutdown
from broker.server.lifecycle import BrokerLifecycle
from broker.server.log_dirs import LogDirs
from broker.server.metadata_publisher import BrokerMetadataPublisher
from broker.server.replica_assignment import ReplicaAssignment
from config.broker_settings import BrokerSettings
from config.listeners import Listener
from storage.log_manager import LogManager
from storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from broker.membership.cluster_membership import ClusterMembership
    from broker.peers.connector import Connector
    from broker.replication.isr_alteration import IsrAlterer
    from broker.server.broker_replication import BrokerReplication
    from broker.server.controller_listener import ControllerListener


class ServerComponents(NamedTuple):
    """The parts of a broker that exist once its data is open."""

    node: Node
    metadata: MetadataCache
    raft: RaftClient
    metadata_log: SingleVoterLog | None
    """None where the controllers are other nodes."""
    controller: ControllerClient | None
    """None where the controllers are other nodes."""
    auto_creation: AutoCreation
    configs: ConfigView
    dynamic_config: DynamicBrokerConfig
    logs: LogManager
    replicas: ReplicaManager
    fetch_sessions: FetchSessions
    producer_ids: ProducerIds
    group_coordinator: GroupCoordinator
    transaction_coordinator: TransactionCoordinator
    verifier: PartitionVerifier
    marker_appender: MarkerAppender
    log_cleaner: LogCleaner
    publisher: BrokerMetadataPublisher
    controller_listener: ControllerListener | None
    """None where no other broker can reach this node's controller."""


class _Cluster(NamedTuple):
    """What the other parts need of the cluster, whether its controller is in this process or elsewhere."""

    node: Node
    raft: RaftClient
    auto_creation: AutoCreation
    allocate_producer_ids: AllocateBlock
    controller: ControllerClient | None = None
    metadata_log: SingleVoterLog | None = None
    controller_listener: ControllerListener | None = None


class Startup:
    """Opens everything, once. Each part is put into `MetricSources` as it is made, so that metrics show it."""

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
        lifecycle: BrokerLifecycle,
        metric_sources: MetricSources,
        shutdown: Shutdown,
        most_open_files: int,
        connector: Connector | None = None,
    ) -> None:
        """``endpoints``: the addresses that clients are given, ``opened_controller_endpoints``: those that brokers are
        given which join this node's cluster. The directories are locked. ``connector`` connects to
        other nodes; None stands for TCP."""
        self._settings = settings
        self._services = services
        self._metadata = metadata
        self._endpoints = endpoints
        self._controller_endpoint = controller_endpoint
        self._opened_controller_endpoints = opened_controller_endpoints
        self._log_dirs = log_dirs
        self._lifecycle = lifecycle
        self._metric_sources = metric_sources
        self._shutdown = shutdown
        self._connector = connector
        self.membership: ClusterMembership | None = None
        """Made by `run` where the controllers are other nodes; closed by the caller."""
        self.replication: BrokerReplication | None = None
        """Made by `run` where there may be other brokers; closed by the caller."""
        self._logs = LogManager(
            services.files,
            log_dirs.for_logs,
            most_open_files=most_open_files,
            walk_all_records=settings.ottla_records_validation == "full",
            chance=lambda: int.from_bytes(os.urandom(4), "big") >> 1,
        )
        self._replicas = self._make_replicas()
        self._fetch_sessions = FetchSessions(
            services.clock,
            services.ids,
            self._replicas.fetch_purgatory,
            slots=settings.max_incremental_fetch_session_cache_slots,
        )
        self._was_clean = False
        self._transaction_markers: TransactionMarkers
        metric_sources.logs = self._logs
        metric_sources.replicas = self._replicas
        metric_sources.fetch_sessions = self._fetch_sessions

    async def run(self) -> ServerComponents:
        """Open everything. Raises StorageError, InconsistentMetadata, Malformed; `Stopped` while logs are loaded.

        The result must not be used for serving after a stop was asked for: the node need not be registered then.
        """
        services, settings = self._services, self._settings
        loader = MetadataLoader(self._metadata)
        cluster = await (self._join_cluster(loader) if settings.is_member else self._open_cluster(loader))
        configs = ConfigView(self._metadata, settings)
        dynamic_config = DynamicBrokerConfig(configs)
        self._logs.producer_id_expiration_ms = dynamic_config.settings.producer_id_expiration_ms
        await self._load_logs(configs)
        if cluster.controller is not None:
            await self._register(cluster.controller, was_clean=self._was_clean)
        removals = LogRemovals(scheduler=services.scheduler, worker=services.housekeeper, replicas=self._replicas)
        log_cleaner = self._make_log_cleaner(dynamic_config.settings, removals)
        if self.membership is not None:
            self.replication = self._replicate(self.membership.isr_sender, log_cleaner)
        elif cluster.controller_listener is not None:
            self.replication = self._replicate(cluster.controller_listener.isrs, log_cleaner)
        replica_assignment = self._assign_replicas(configs, removals, log_cleaner)
        producer_ids = ProducerIds(cluster.allocate_producer_ids)
        group_coordinator = self._make_group_coordinator(configs)
        marker_appender = MarkerAppender(self._replicas, group_coordinator.groups)
        transaction_coordinator = self._make_transaction_coordinator(producer_ids, marker_appender)
        marker_appender.route(TRANSACTION_STATE, transaction_coordinator.transactions)
        verifier = self._make_verifier(transaction_coordinator)
        publisher = BrokerMetadataPublisher(
            dynamic_config=dynamic_config,
            replica_assignment=replica_assignment,
            group_coordinator=group_coordinator,
            replication=self.replication,
            transaction_markers=self._transaction_markers,
        )
        loader.publish_to(publisher.publish)
        self._start_background_tasks(group_coordinator, removals)
        return ServerComponents(
            node=cluster.node,
            metadata=self._metadata,
            raft=cluster.raft,
            metadata_log=cluster.metadata_log,
            controller=cluster.controller,
            auto_creation=cluster.auto_creation,
            configs=configs,
            dynamic_config=dynamic_config,
            logs=self._logs,
            replicas=self._replicas,
            fetch_sessions=self._fetch_sessions,
            producer_ids=producer_ids,
            group_coordinator=group_coordinator,
            transaction_coordinator=transaction_coordinator,
            verifier=verifier,
            marker_appender=marker_appender,
            log_cleaner=log_cleaner,
            publisher=publisher,
            controller_listener=cluster.controller_listener,
        )

    async def _open_cluster(self, loader: MetadataLoader) -> _Cluster:
        """Open the metadata log in this process, whose controller decides."""
        node = self._identify()
        self._begin_loading()
        metadata_log = self._metric_sources.metadata_log = self._open_metadata_log(loader)
        self._log_dirs.complete_ids(self._services.ids, self._date())
        controller = LocalController(metadata_log, loader, ids=self._services.ids, settings=self._settings)
        self._metric_sources.controller = controller
        return _Cluster(
            node=node,
            raft=metadata_log,
            auto_creation=controller,
            allocate_producer_ids=controller.allocate_producer_ids,
            controller=controller,
            metadata_log=metadata_log,
            controller_listener=self._make_controller_listener(metadata_log, controller, node.cluster_id),
        )

    def _make_controller_listener(
        self, metadata_log: SingleVoterLog, controller: LocalController, cluster_id: str
    ) -> ControllerListener | None:
        if not self._opened_controller_endpoints:
            return None
        from broker.controller.cluster_requests import ClusterSettings
        from broker.server.controller_listener import ControllerListener

        settings = self._settings
        listener = ControllerListener(
            metadata_log,
            controller,
            services=self._services,
            cluster_id=cluster_id,
            endpoints=self._opened_controller_endpoints,
            settings=ClusterSettings(
                session_timeout_ms=settings.broker_session_timeout_ms,
                rebalances_leaders=settings.auto_leader_rebalance_enable,
                rebalance_interval_ms=settings.leader_imbalance_check_interval_seconds * 1000,
            ),
        )
        self._metric_sources.observers = listener.observers
        return listener

    async def _join_cluster(self, loader: MetadataLoader) -> _Cluster:
        """Register with controllers elsewhere, and replay their metadata log up to the registration.

        The clean-shutdown markers stay until then: a start that the controllers refuse leaves the directories as they
        were. Raises RegistrationRefused, and `Stopped` where a stop was asked for.
        """
        from broker.membership.cluster_membership import ClusterMembership
        from broker.peers.connector import TcpConnector

        settings, services, log_dirs = self._settings, self._services, self._log_dirs
        membership = self.membership = ClusterMembership(
            settings,
            connector=self._connector or TcpConnector(services.clock),
            clock=services.clock,
            chance=lambda: services.ids.uuid()[0] / 0xFF,
            shutdown=self._shutdown,
        )
        is_new = log_dirs.is_new and settings.ottla_cluster_id is None
        node = self._identify(await membership.find_cluster_id() if is_new else None)
        log_dirs.complete_ids(services.ids, self._date())
        directory_id = log_dirs.metadata_directory_id
        assert directory_id is not None, "every directory has an id now"
        membership.begin(
            self._registration(),
            cluster_id=node.cluster_id,
            previous_broker_epoch=log_dirs.last_broker_epoch,
            directory_id=directory_id,
            listener=loader,
        )
        self._metric_sources.membership = membership
        self._metric_sources.channels.update(membership.channels)
        self._metric_sources.on_period.append(membership.quorum.rotate)
        await membership.caught_up()
        if self._shutdown.asked.is_set():
            raise Stopped
        self._lifecycle.become_member(membership)
        self._begin_loading()
        return _Cluster(
            node=node,
            raft=membership.raft,
            auto_creation=membership.requests,
            allocate_producer_ids=membership.requests.allocate_producer_ids,
        )

    def _begin_loading(self) -> None:
        self._was_clean = self._log_dirs.begin_loading()
        self._lifecycle.state = BrokerState.RECOVERY

    def _make_replicas(self) -> ReplicaManager:
        settings, services = self._settings, self._services
        wheel = services.wheel
        return ReplicaManager(
            services.clock,
            logs=self._logs,
            log_starts=LogStartCheckpoints(self._logs, services.housekeeper),
            writer=services.writer,
            call_soon=services.loop.call_soon,
            flusher_of=lambda partition: services.flushers.of(partition.log_dir.path),
            produce_purgatory=Purgatory(wheel, purge_interval=settings.producer_purgatory_purge_interval_requests),
            fetch_purgatory=Purgatory(wheel, purge_interval=settings.fetch_purgatory_purge_interval_requests),
            delete_records_purgatory=Purgatory(
                wheel, purge_interval=settings.delete_records_purgatory_purge_interval_requests
            ),
            on_directory_failed=self._lifecycle.directory_failed,
            on_partition_removed=self._lifecycle.partition_removed,
        )

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
            was_clean=directory.was_clean,
            clock=self._services.clock,
            flusher=self._services.flushers.of(directory.path),
            worker=self._services.housekeeper,
            on_fatal=self._shutdown.fail,
            once=self._services.scheduler.once,
            listener=loader,
        )

    async def _load_logs(self, configs: ConfigView) -> None:
        settings, ids = self._settings, self._services.ids
        topics = self._metadata.image.topics

        def is_ours(topic_partition: TopicPartition, topic_id: bytes | None) -> bool:
            topic = topics.by_name.get(topic_partition.topic)
            partition = None if topic is None else topic.partition(topic_partition.partition)
            if topic is None or partition is None or topic_id not in (None, topic.topic_id):
                return False
            return not settings.is_member or settings.node_id in partition.replicas

        loading = self._metric_sources.loading = LogLoading(
            self._logs,
            loop=self._services.loop,
            clock=self._services.clock,
            make_worker=self._services.make_worker,
            processes_per_directory=settings.num_recovery_threads_per_data_dir,
            recovery=settings.ottla_recovery,
            stop=self._shutdown.asked,
        )
        await loading.run(config_of=configs.topic_config, is_ours=is_ours, new_id=lambda: ids.uuid().hex())
        for directory, error in self._logs.take_failures():
            self._log_dirs.start_without(directory, error)

    def _registration(self) -> Registration:
        """The registration of this run, with the log directories that can be used by now."""
        return Registration(
            node_id=self._settings.node_id,
            incarnation_id=self._services.ids.uuid(),
            endpoints=self._endpoints,
            controller_endpoint=self._controller_endpoint,
            rack=self._settings.broker_rack,
            directories=self._log_dirs.online_ids,
        )

    async def _register(self, controller: ControllerClient, *, was_clean: bool) -> None:
        """Register, and lead the partitions. The usable directories are known only once the logs are loaded."""
        found = {
            log.topic_partition: directory_id
            for directory_id, directory in self._log_dirs.by_id.items()
            for log in self._logs.in_directory(directory)
        }
        bootstrap = read_bootstrap(
            self._services.files,
            self._log_dirs.for_metadata.path,
            min_insync_replicas=self._settings.min_insync_replicas,
        )
        await self._lifecycle.register(
            controller, self._registration(), bootstrap=bootstrap, was_clean=was_clean, found=found
        )

    def _assign_replicas(
        self, configs: ConfigView, removals: LogRemovals, log_cleaner: LogCleaner
    ) -> ReplicaAssignment:
        settings, services = self._settings, self._services
        assignment = ReplicaAssignment(
            node_id=settings.node_id,
            clock=services.clock,
            ids=services.ids,
            logs=self._logs,
            directories=self._log_dirs.by_id,
            disk_reserve_bytes=settings.ottla_disk_reserve_bytes,
            replicas=self._replicas,
            metadata=self._metadata,
            configs=configs,
            scheduler=services.scheduler,
            worker=services.housekeeper,
            removals=removals,
            log_cleaner=log_cleaner,
            view=ALONE if self.replication is None else self.replication.view,
            lag_max_ms=settings.replica_lag_time_max_ms,
            assign_directory=None if self.membership is None else self.membership.requests.assign_directory,
        )
        assignment.host_all()
        for removal, directory in self._logs.take_pending_removals():
            removals.remove_later(removal, directory)
        return assignment

    def _replicate(self, alterer: IsrAlterer, log_cleaner: LogCleaner) -> BrokerReplication:
        from broker.peers.connector import TcpConnector
        from broker.server.broker_replication import BrokerReplication

        replication = BrokerReplication(
            self._settings,
            self._services,
            connector=self._connector or TcpConnector(self._services.clock),
            metadata=self._metadata,
            logs=self._logs,
            log_dirs=self._log_dirs,
            replicas=self._replicas,
            log_cleaner=log_cleaner,
            alterer=alterer,
            shutdown=self._shutdown,
        )
        self._metric_sources.channels.update(replication.channels)
        return replication

    def _make_group_coordinator(self, configs: ConfigView) -> GroupCoordinator:
        settings, services = self._settings, self._services
        coordinator = self._metric_sources.group_coordinator = GroupCoordinator(
            settings,
            metadata=self._metadata,
            configs=configs,
            replicas=self._replicas,
            clock=services.clock,
            wheel=services.wheel,
            ids=services.ids,
            slices=services.slices,
            reader=services.reader,
            scheduler=services.scheduler,
        )
        return coordinator

    def _make_transaction_coordinator(
        self, producer_ids: ProducerIds, marker_appender: MarkerAppender
    ) -> TransactionCoordinator:
        services = self._services
        markers = self._transaction_markers = TransactionMarkers(
            marker_appender,
            node_id=self._settings.node_id,
            replicas=self._replicas,
            metadata=self._metadata,
            later=services.scheduler.once,
            remote=None if self.replication is None else self.replication.markers,
        )
        coordinator = self._metric_sources.transaction_coordinator = TransactionCoordinator(
            self._settings,
            metadata=self._metadata,
            replicas=self._replicas,
            producer_ids=producer_ids,
            markers=markers,
            clock=services.clock,
            slices=services.slices,
            reader=services.reader,
            scheduler=services.scheduler,
        )
        return coordinator

    def _make_verifier(self, coordinator: TransactionCoordinator) -> PartitionVerifier:
        """What says whether a transaction may write to a partition: the coordinator here, or the one that it has."""
        if self.replication is None:
            return coordinator
        from broker.coordinators.verification_router import VerificationRouter

        return VerificationRouter(
            coordinator,
            self.replication.verification,
            node_id=self._settings.node_id,
            metadata=self._metadata,
            clock=self._services.clock,
            later=self._services.scheduler.once,
            stats=coordinator.stats.verification,
            retry_max_ms=self._settings.add_partitions_to_txn_retry_backoff_max_ms,
        )

    def _make_log_cleaner(self, settings: BrokerSettings, removals: LogRemovals) -> LogCleaner:
        services = self._services
        cleaner = self._metric_sources.log_cleaner = LogCleaner(
            make_worker=services.make_worker,
            clock=services.clock,
            logs=self._logs,
            replicas=self._replicas,
            removals=removals,
            checkpoint_writer=services.housekeeper,
            settings=settings,
        )
        return cleaner

    def _start_background_tasks(self, group_coordinator: GroupCoordinator, removals: LogRemovals) -> None:
        hold = self._metric_sources.retention_hold = RetentionHold(group_coordinator.groups)
        background_tasks = LogBackgroundTasks(
            clock=self._services.clock,
            logs=self._logs,
            replicas=self._replicas,
            removals=removals,
            retention_hold=hold,
            worker=self._services.housekeeper,
        )
        background_tasks.start(self._services.scheduler, self._settings)
