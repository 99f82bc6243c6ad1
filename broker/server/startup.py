"""Opening a broker's data: from locked directories to partitions that are led and groups that have a coordinator."""

import asyncio
import os
import time
from typing import NamedTuple

from broker.controller.local_controller import Controller
from broker.coordinators.group_coordinator import GroupCoordinator
from broker.logs.background_tasks import LogBackgroundTasks
from broker.logs.loading import LogLoading
from broker.logs.removals import LogRemovals
from broker.logs.retention_hold import RetentionHold
from broker.metadata.broker_state import BrokerState
from broker.metadata.configs import ConfigView
from broker.metadata.dynamic_broker_config import DynamicBrokerConfig
from broker.metadata.image import MetadataImage
from broker.metadata.publisher import Publisher
from broker.metadata.registration import Registration
from broker.metrics.sources import MetricSources
from broker.raft.formatting import read_bootstrap
from broker.raft.metadata_log import MetadataLog, open_metadata_log
from broker.replication.replica_manager import ReplicaManager
from broker.request.node import Endpoint, Node
from broker.runtime.services import Services
from broker.runtime.shutdown import Shutdown
from broker.server.log_dir_failures import LogDirFailures
from broker.server.log_dirs import LogDirs
from broker.server.replica_assignment import ReplicaAssignment
from config.broker_settings import BrokerSettings
from config.listeners import Listener
from storage.log_manager import LogManager
from storage.topic_partition import TopicPartition


class ServerComponents(NamedTuple):
    """What a broker has once its data is open."""

    node: Node
    metadata_log: MetadataLog
    controller: Controller
    dynamic_config: DynamicBrokerConfig
    logs: LogManager
    log_dir_failures: LogDirFailures
    background_tasks: LogBackgroundTasks
    group_coordinator: GroupCoordinator

    @property
    def publisher(self) -> Publisher:
        """The metadata that everybody reads."""
        return self.metadata_log.publisher


class Startup:
    """Opens everything, once. Each part is put into `MetricSources` as it comes, so that metrics show it meanwhile."""

    def __init__(
        self,
        settings: BrokerSettings,
        services: Services,
        *,
        endpoints: tuple[Listener, ...],
        controller_endpoint: Listener,
        log_dirs: LogDirs,
        replicas: ReplicaManager,
        metric_sources: MetricSources,
        shutdown: Shutdown,
        most_open_files: int,
    ) -> None:
        """``endpoints``: where clients are told to connect. The directories are locked."""
        self._settings = settings
        self._services = services
        self._endpoints = endpoints
        self._controller_endpoint = controller_endpoint
        self._log_dirs = log_dirs
        self._replicas = replicas
        self._metric_sources = metric_sources
        self._shutdown = shutdown
        self._most_open_files = most_open_files

    async def run(self) -> ServerComponents:
        """Open everything. Raises StorageError, InconsistentMetadata, Malformed; `Stopped` while logs are loaded.

        Nobody may serve what it returns after the end was asked for: the node need not be registered then.
        """
        services, settings = self._services, self._settings
        node = self._identify()
        was_clean = self._log_dirs.begin_loading()
        self._metric_sources.state = BrokerState.RECOVERY
        metadata_log = self._metric_sources.metadata_log = self._open_metadata()
        image = metadata_log.publisher.image
        controller = Controller(metadata_log, ids=services.ids, settings=settings)
        dynamic_config = DynamicBrokerConfig(ConfigView(image, settings))
        metadata_log.publisher.subscribe(dynamic_config.apply)
        logs = await self._load_logs(image, dynamic_config)
        await self._take_office(controller, logs, was_clean=was_clean)
        log_dir_failures = LogDirFailures(
            log_dirs=self._log_dirs,
            logs=logs,
            replicas=self._replicas,
            controller=controller,
            scheduler=services.scheduler,
            call_soon=services.loop.call_soon,
            fail=self._shutdown.fail,
        )
        removals = LogRemovals(scheduler=services.scheduler, worker=services.housekeeper, replicas=self._replicas)
        self._assign_replicas(metadata_log.publisher, logs, removals)
        group_coordinator = self._make_group_coordinator(metadata_log.publisher)
        retention_hold = self._metric_sources.retention_hold = RetentionHold(group_coordinator.groups)
        background_tasks = LogBackgroundTasks(
            clock=services.clock,
            logs=logs,
            replicas=self._replicas,
            removals=removals,
            retention_hold=retention_hold,
            worker=services.housekeeper,
        )
        background_tasks.start(services.scheduler, settings)
        return ServerComponents(
            node=node,
            metadata_log=metadata_log,
            controller=controller,
            dynamic_config=dynamic_config,
            logs=logs,
            log_dir_failures=log_dir_failures,
            background_tasks=background_tasks,
            group_coordinator=group_coordinator,
        )

    def _identify(self) -> Node:
        now_ms = self._services.clock.now_ms()
        date = time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime(now_ms / 1000))
        self._log_dirs.identify(self._services.ids, now_ms, date, self._controller_endpoint)
        return Node(
            node_id=self._settings.node_id,
            cluster_id=self._log_dirs.cluster_id,
            rack=self._settings.broker_rack,
            endpoints={listener.name: Endpoint(listener.host, listener.port) for listener in self._endpoints},
        )

    def _open_metadata(self) -> MetadataLog:
        directory = self._log_dirs.for_metadata
        return open_metadata_log(
            self._services.files,
            self._settings,
            was_clean=directory.was_clean,
            clock=self._services.clock,
            flusher=self._services.flushers.of(directory.path),
            worker=self._services.housekeeper,
            on_fatal=self._shutdown.fail,
            once=self._services.scheduler.once,
        )

    async def _load_logs(self, image: MetadataImage, dynamic_config: DynamicBrokerConfig) -> LogManager:
        settings, ids = self._settings, self._services.ids
        logs = self._metric_sources.logs = LogManager(
            self._services.files,
            self._log_dirs.for_logs,
            producer_id_expiration_ms=dynamic_config.settings.producer_id_expiration_ms,
            most_open_files=self._most_open_files,
            walk_all_records=settings.ottla_records_validation == "full",
            chance=lambda: int.from_bytes(os.urandom(4), "big") >> 1,
        )

        def is_ours(topic_partition: TopicPartition, topic_id: bytes | None) -> bool:
            topic = image.topics_by_name.get(topic_partition.topic)
            return (
                topic is not None
                and topic.partition(topic_partition.partition) is not None
                and topic_id in (None, topic.topic_id)
            )

        loading = self._metric_sources.loading = LogLoading(
            logs,
            loop=self._services.loop,
            clock=self._services.clock,
            processes_per_directory=settings.num_recovery_threads_per_data_dir,
            recovery=settings.ottla_recovery,
            stop=self._shutdown.asked,
        )
        configs = ConfigView(image, settings)
        await loading.run(config_of=configs.topic_config, is_ours=is_ours, new_id=lambda: ids.uuid().hex())
        for directory, error in logs.failures:
            self._log_dirs.start_without(directory, error)
        logs.failures.clear()
        return logs

    async def _take_office(self, controller: Controller, logs: LogManager, *, was_clean: bool) -> None:
        """Register, and lead what is there: which directories can be used is known once the logs are loaded."""
        settings = self._settings
        registration = Registration(
            node_id=settings.node_id,
            incarnation_id=self._services.ids.uuid(),
            endpoints=self._endpoints,
            controller_endpoint=self._controller_endpoint,
            rack=settings.broker_rack,
            directories=self._log_dirs.online_ids,
        )
        found = {
            log.topic_partition: directory_id
            for directory_id, directory in self._log_dirs.by_id.items()
            for log in logs.in_directory(directory)
        }
        in_office = asyncio.Event()
        controller.take_office(
            registration,
            bootstrap=read_bootstrap(
                self._services.files,
                self._log_dirs.for_metadata.path,
                min_insync_replicas=settings.min_insync_replicas,
            ),
            was_clean=was_clean,
            found=found,
            then=in_office.set,
        )
        await self._shutdown.wait_unless(in_office)

    def _assign_replicas(self, publisher: Publisher, logs: LogManager, removals: LogRemovals) -> None:
        settings, services = self._settings, self._services
        assignment = ReplicaAssignment(
            node_id=settings.node_id,
            clock=services.clock,
            ids=services.ids,
            logs=logs,
            directories=self._log_dirs.by_id,
            disk_reserve_bytes=settings.ottla_disk_reserve_bytes,
            replicas=self._replicas,
            configs=ConfigView(publisher.image, settings),
            scheduler=services.scheduler,
            worker=services.housekeeper,
            removals=removals,
        )
        assignment.host_all(publisher.image)
        publisher.subscribe(assignment.apply)
        for removal, directory in logs.take_pending_removals():
            removals.remove_later(removal, directory)

    def _make_group_coordinator(self, publisher: Publisher) -> GroupCoordinator:
        settings, services = self._settings, self._services
        coordinator = self._metric_sources.group_coordinator = GroupCoordinator(
            settings,
            image=publisher.image,
            configs=ConfigView(publisher.image, settings),
            replicas=self._replicas,
            clock=services.clock,
            wheel=services.wheel,
            ids=services.ids,
            slices=services.slices,
            reader=services.reader,
            scheduler=services.scheduler,
        )
        publisher.subscribe(coordinator.apply)
        return coordinator
