"""Startup: opens a broker's data, from locked directories to led partitions and loaded coordinators."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

from broker.controller.client import AutoCreation
from broker.controller.local_controller import LocalController
from broker.coordinators.group_coordinator import GroupCoordinator
from broker.fetch.sessions import FetchSessions
from broker.logs.background_tasks import LogBackgroundTasks
from broker.logs.cleaner import LogCleaner
from broker.logs.loading import LogLoading
from broker.logs.removals import LogRemovals
from broker.logs.replica_moves import ReplicaMoves
from broker.logs.retention_hold import RetentionHold
from broker.membership.membership import Membership
from broker.metadata.cache import MetadataCache
from broker.metadata.configs import ConfigView
from broker.metadata.dynamic_broker_config import DynamicBrokerConfig
from broker.metadata.loader import MetadataLoader
from broker.metadata.producer_ids import ProducerIds
from broker.metadata.topic_rules import SHARE_GROUP_STATE, TRANSACTION_STATE
from broker.metrics.sources import MetricSources
from broker.raft.client import RaftClient
from broker.raft.single_voter_log import SingleVoterLog
from broker.replication.disk_reserve import DiskReserve
from broker.replication.log_start_checkpoints import LogStartCheckpoints
from broker.replication.replica_manager import ReplicaManager
from broker.request.node import Node
from broker.runtime.purgatory import Purgatory
from broker.runtime.rate import SimpleRate
from broker.runtime.services import Services
from broker.runtime.shutdown import Shutdown
from broker.server.cluster_opening import ClusterOpening, log_older_levels
from broker.server.directory_reports import DirectoryReports
from broker.server.late_parts import LateParts, ShareStateParts, TransactionParts
from broker.server.log_dirs import LogDirs
from broker.server.metadata_publisher import BrokerMetadataPublisher
from broker.server.no_replication import NoReplication
from broker.server.replica_assignment import ReplicaAssignment
from config.broker_settings import BrokerSettings
from config.listeners import Listener
from config.replication_quotas import copied_bytes_per_second
from storage.errors import StorageError
from storage.log_dir import LogDir
from storage.log_manager import LogManager
from storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from broker.coordinators.share_coordinator import ShareCoordinator
    from broker.coordinators.transaction.verification import PartitionVerifier
    from broker.coordinators.transaction_coordinator import TransactionCoordinator
    from broker.membership.cluster_membership import ClusterMembership
    from broker.metadata.image.topics import PartitionImage, TopicImage
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
    controllers: ClusterMembership | None
    """The controllers where they are other nodes."""
    controller: LocalController | None
    """None where the controllers are other nodes."""
    membership: Membership
    auto_creation: AutoCreation
    configs: ConfigView
    dynamic_config: DynamicBrokerConfig
    logs: LogManager
    replicas: ReplicaManager
    fetch_sessions: FetchSessions
    producer_ids: ProducerIds
    group_coordinator: GroupCoordinator
    share_states: LateParts[ShareStateParts]
    transactions: LateParts[TransactionParts]
    log_cleaner: LogCleaner
    background_tasks: LogBackgroundTasks
    replica_moves: ReplicaMoves
    publisher: BrokerMetadataPublisher
    controller_listener: ControllerListener | None
    """None where no other broker can reach this node's controller."""

    @property
    def transaction_coordinator(self) -> TransactionCoordinator:
        """The transaction coordinator; it is made if it has not been needed yet."""
        return self.transactions.get().coordinator

    @property
    def share_coordinator(self) -> ShareCoordinator:
        """The share coordinator; it is made if it has not been needed yet."""
        return self.share_states.get().coordinator


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
        begin_recovery: Callable[[], None],
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
        self._opening = ClusterOpening(
            settings,
            services,
            metadata=metadata,
            endpoints=endpoints,
            controller_endpoint=controller_endpoint,
            opened_controller_endpoints=opened_controller_endpoints,
            log_dirs=log_dirs,
            begin_recovery=begin_recovery,
            metric_sources=metric_sources,
            shutdown=shutdown,
            connector=connector,
        )
        self._log_dirs = log_dirs
        self.membership = self._opening.membership
        """Closed by the caller."""
        self._reports = DirectoryReports(settings.node_id, log_dirs, self.membership, metadata, shutdown)
        self._metric_sources = metric_sources
        self._shutdown = shutdown
        self._connector = connector
        self.replication: BrokerReplication | NoReplication = NoReplication()
        """Made by `run` where there may be other brokers; closed by the caller."""
        self._logs = LogManager(
            services.files,
            log_dirs.for_logs,
            most_open_files=most_open_files,
            walk_all_records=settings.ottla_records_validation == "full",
            chance=lambda: int.from_bytes(os.urandom(4), "big") >> 1,
        )
        self._log_starts = LogStartCheckpoints(self._logs, services.housekeeper)
        self._disk_reserves = {
            directory: DiskReserve(directory, reserve_bytes=settings.ottla_disk_reserve_bytes)
            for directory in log_dirs.for_logs
        }
        self._replicas = self._make_replicas()
        self._fetch_sessions = FetchSessions(
            services.clock,
            services.ids,
            self._replicas.fetch_purgatory,
            slots=settings.max_incremental_fetch_session_cache_slots,
        )
        metric_sources.logs = self._logs
        metric_sources.replicas = self._replicas
        metric_sources.fetch_sessions = self._fetch_sessions

    async def run(self) -> ServerComponents:
        """Open everything. Raises StorageError, InconsistentMetadata, Malformed; `Stopped` while logs are loaded.

        The result must not be used for serving after a stop was asked for: the node need not be registered then.
        """
        services, settings = self._services, self._settings
        loader = MetadataLoader(self._metadata)
        cluster = await (self._opening.join(loader) if settings.is_member else self._opening.open(loader))
        configs = ConfigView(self._metadata, settings)
        dynamic_config = DynamicBrokerConfig(configs)
        dynamic_config.subscribe(self._reports.cordon)
        self._logs.producer_id_expiration_ms = dynamic_config.settings.producer_id_expiration_ms
        await self._load_logs(configs)
        self._reports.report_failed_before()
        if cluster.controller is not None:
            await self._opening.register(cluster.controller, cluster.node.cluster_id, self._logs)
            log_older_levels(self._metadata.image.features.levels)
        removals = LogRemovals(scheduler=services.scheduler, worker=services.housekeeper, replicas=self._replicas)
        log_cleaner = self._make_log_cleaner(dynamic_config.settings, removals)
        if settings.is_member or cluster.controller_listener is not None:
            # There may be other brokers.
            self.replication = self._replicate(self.membership.alter_isrs(), log_cleaner)
        replica_moves = self._make_replica_moves(configs, removals, log_cleaner)
        replica_assignment = self._assign_replicas(configs, removals, log_cleaner, replica_moves)
        producer_ids = ProducerIds(self.membership.producer_ids.allocate)
        share_states = LateParts(
            SHARE_GROUP_STATE, self._replicas, lambda: self._make_share_states(cluster.auto_creation)
        )
        self._metric_sources.share_coordinator = lambda: share_states.get().coordinator
        group_coordinator = self._make_group_coordinator(configs, share_states)
        transactions = LateParts(
            TRANSACTION_STATE, self._replicas, lambda: self._make_transactions(producer_ids, group_coordinator)
        )
        self._metric_sources.transaction_coordinator = lambda: transactions.get().coordinator
        publisher = BrokerMetadataPublisher(
            dynamic_config=dynamic_config,
            replica_assignment=replica_assignment,
            group_coordinator=group_coordinator,
            transactions=transactions,
            share_states=share_states,
            membership=self.membership,
            replication=self.replication,
        )
        dynamic_config.read_again()  # the image has changed while logs were loaded, and nothing was published
        dynamic_config.warn_of_min_insync_replicas()
        loader.publish_to(publisher.publish)
        background_tasks = self._start_background_tasks(group_coordinator, removals)
        return ServerComponents(
            node=cluster.node,
            metadata=self._metadata,
            raft=cluster.raft,
            metadata_log=cluster.metadata_log,
            controllers=cluster.controllers,
            controller=cluster.controller,
            membership=self.membership,
            auto_creation=cluster.auto_creation,
            configs=configs,
            dynamic_config=dynamic_config,
            logs=self._logs,
            replicas=self._replicas,
            fetch_sessions=self._fetch_sessions,
            producer_ids=producer_ids,
            group_coordinator=group_coordinator,
            share_states=share_states,
            transactions=transactions,
            log_cleaner=log_cleaner,
            background_tasks=background_tasks,
            replica_moves=replica_moves,
            publisher=publisher,
            controller_listener=cluster.controller_listener,
        )

    def _make_replicas(self) -> ReplicaManager:
        settings, services = self._settings, self._services
        wheel = services.wheel
        return ReplicaManager(
            services.clock,
            logs=self._logs,
            log_starts=self._log_starts,
            writer=services.writer,
            call_soon=services.loop.call_soon,
            flusher_of=lambda partition: services.flushers.of(partition.log_dir.path),
            produce_purgatory=Purgatory(wheel, purge_interval=settings.producer_purgatory_purge_interval_requests),
            fetch_purgatory=Purgatory(
                services.fetch_wheel, purge_interval=settings.fetch_purgatory_purge_interval_requests
            ),
            delete_records_purgatory=Purgatory(
                wheel, purge_interval=settings.delete_records_purgatory_purge_interval_requests
            ),
            on_directory_failed=self._directory_failed,
            on_partition_removed=self._reports.partition_removed,
        )

    def _directory_failed(self, directory: LogDir, error: StorageError, partitions: Collection[TopicPartition]) -> None:
        if self._metric_sources.replica_moves is not None:
            self._metric_sources.replica_moves.directory_failed(directory)
        self._reports.directory_failed(directory, error, partitions)

    async def _load_logs(self, configs: ConfigView) -> None:
        settings, ids = self._settings, self._services.ids
        topics = self._metadata.image.topics

        def known(topic_partition: TopicPartition) -> tuple[TopicImage | None, PartitionImage | None]:
            topic = topics.by_name.get(topic_partition.topic)
            return topic, None if topic is None else topic.partition(topic_partition.partition)

        def assigned(topic_partition: TopicPartition) -> LogDir | None:
            _, partition = known(topic_partition)
            return None if partition is None else self._log_dirs.by_id.get(partition.directory_of(settings.node_id))

        def is_ours(topic_partition: TopicPartition, topic_id: bytes | None) -> bool:
            topic, partition = known(topic_partition)
            if topic is None or partition is None or not topic.owns(topic_id):
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
        await loading.run(
            config_of=configs.topic_config, is_ours=is_ours, assigned=assigned, new_id=lambda: ids.uuid().hex()
        )
        for directory, error in self._logs.take_failures():
            self._log_dirs.start_without(directory, error)

    def _make_replica_moves(self, configs: ConfigView, removals: LogRemovals, log_cleaner: LogCleaner) -> ReplicaMoves:
        settings, services = self._settings, self._services
        moves = self._metric_sources.replica_moves = ReplicaMoves(
            clock=services.clock,
            ids=services.ids,
            call_soon=services.loop.call_soon,
            make_worker=services.make_worker,
            workers=max(settings.num_replica_alter_log_dirs_threads or len(settings.log_dirs), 1),
            logs=self._logs,
            log_starts=self._log_starts,
            replicas=self._replicas,
            removals=removals,
            log_cleaner=log_cleaner,
            disk_reserves=self._disk_reserves,
            directory_id=self._log_dirs.id_of,
            assign=self.membership.directories.assign,
            max_bytes_per_second=lambda: copied_bytes_per_second(configs.broker_texts()),
            rate=SimpleRate(
                windows=settings.alter_log_dirs_replication_quota_window_num,
                window_ms=settings.alter_log_dirs_replication_quota_window_size_seconds * 1_000,
            ),
        )
        return moves

    def _assign_replicas(
        self, configs: ConfigView, removals: LogRemovals, log_cleaner: LogCleaner, replica_moves: ReplicaMoves
    ) -> ReplicaAssignment:
        settings, services = self._settings, self._services
        assignment = ReplicaAssignment(
            node_id=settings.node_id,
            clock=services.clock,
            ids=services.ids,
            logs=self._logs,
            directories=self._log_dirs.by_id,
            replicas=self._replicas,
            metadata=self._metadata,
            configs=configs,
            scheduler=services.scheduler,
            worker=services.housekeeper,
            removals=removals,
            log_cleaner=log_cleaner,
            replica_moves=replica_moves,
            disk_reserves=self._disk_reserves,
            view=self.replication.view,
            lag_max_ms=settings.replica_lag_time_max_ms,
            assign_directory=self._reports.assign,
            is_member=settings.is_member,
        )
        assignment.host_all()
        for removal, directory in self._logs.take_pending_removals():
            removals.remove_later(removal, directory)
        replica_moves.resume()
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
        self._metric_sources.replication_throttles = replication.throttles
        return replication

    def _make_group_coordinator(
        self, configs: ConfigView, share_states: LateParts[ShareStateParts]
    ) -> GroupCoordinator:
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
            housekeeper=services.housekeeper,
            scheduler=services.scheduler,
            persister=lambda: share_states.get().persister,
        )
        return coordinator

    def _make_share_states(self, auto_creation: AutoCreation) -> ShareStateParts:
        from broker.coordinators.share_coordinator import ShareCoordinator
        from broker.coordinators.share_persister import CoordinatedPersister

        services = self._services
        coordinator = ShareCoordinator(
            self._settings,
            metadata=self._metadata,
            replicas=self._replicas,
            clock=services.clock,
            slices=services.slices,
            reader=services.reader,
            scheduler=services.scheduler,
        )
        persister = CoordinatedPersister(
            coordinator,
            node_id=self._settings.node_id,
            metadata=self._metadata,
            create_topic=lambda: auto_creation.auto_create([SHARE_GROUP_STATE]),
            later=services.scheduler.once,
            chance=lambda: services.ids.uuid()[0] / 0xFF,
            remote=self.replication.share_states,
        )
        self._metric_sources.on_period += (coordinator.shares.load_times.rotate, coordinator.stats.write_times.rotate)
        return ShareStateParts(coordinator, persister)

    def _make_transactions(self, producer_ids: ProducerIds, group_coordinator: GroupCoordinator) -> TransactionParts:
        from broker.coordinators.marker_appender import MarkerAppender
        from broker.coordinators.transaction_coordinator import TransactionCoordinator
        from broker.coordinators.transaction_markers import TransactionMarkers

        services = self._services
        marker_appender = MarkerAppender(self._replicas, group_coordinator.groups)
        markers = TransactionMarkers(
            marker_appender,
            node_id=self._settings.node_id,
            replicas=self._replicas,
            metadata=self._metadata,
            later=services.scheduler.once,
            remote=self.replication.markers,
        )
        coordinator = TransactionCoordinator(
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
        marker_appender.route(TRANSACTION_STATE, coordinator.transactions)
        self._metric_sources.on_period += (
            coordinator.transactions.load_times.rotate,
            coordinator.stats.verification.times.rotate,
        )
        return TransactionParts(coordinator, markers, marker_appender, self._make_verifier(coordinator))

    def _make_verifier(self, coordinator: TransactionCoordinator) -> PartitionVerifier:
        """What says whether a transaction may write to a partition: the coordinator here, or the one that it has."""
        remote = self.replication.verification
        if remote is None:
            return coordinator
        from broker.coordinators.verification_router import VerificationRouter

        return VerificationRouter(
            coordinator,
            remote,
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
            interval=services.scheduler.interval,
        )
        return cleaner

    def _start_background_tasks(self, group_coordinator: GroupCoordinator, removals: LogRemovals) -> LogBackgroundTasks:
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
        return background_tasks
