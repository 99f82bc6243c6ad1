"""Opening a broker's data: from locked directories to partitions that are led and groups that have a coordinator."""

import asyncio
import os
import time
from typing import NamedTuple

from broker.archive_hold import ArchiveHold
from broker.coordinators.group_coordinator import GroupCoordinator
from broker.directories import Directories
from broker.ending import Ending
from broker.failed_directories import FailedDirectories
from broker.hosting import Hosting
from broker.log_loading import LogLoading
from broker.log_upkeep import LogUpkeep
from broker.machinery import Machinery
from broker.metadata.configs import ConfigView
from broker.metadata.controller import Controller
from broker.metadata.formatting import read_bootstrap
from broker.metadata.image import MetadataImage
from broker.metadata.log import MetadataLog, open_metadata_log
from broker.metadata.publisher import Publisher
from broker.metadata.registration import Registration
from broker.metadata.settings_in_force import SettingsInForce
from broker.metrics.rooms import BrokerState, Rooms
from broker.replication.replica_manager import ReplicaManager
from broker.request.node import Endpoint, Node
from config.broker_settings import BrokerSettings
from config.listeners import Listener
from storage.log_manager import LogManager
from storage.topic_partition import TopicPartition


class Opened(NamedTuple):
    """What a broker has once its data is open."""

    node: Node
    metadata_log: MetadataLog
    controller: Controller
    in_force: SettingsInForce
    logs: LogManager
    failed_directories: FailedDirectories
    log_upkeep: LogUpkeep
    group_coordinator: GroupCoordinator

    @property
    def publisher(self) -> Publisher:
        """The metadata that everybody reads."""
        return self.metadata_log.publisher


class Opening:
    """Opens everything, once. What comes into being is put into `Rooms`, so that metrics can tell of it meanwhile."""

    def __init__(
        self,
        settings: BrokerSettings,
        machinery: Machinery,
        *,
        endpoints: tuple[Listener, ...],
        controller_endpoint: Listener,
        directories: Directories,
        replicas: ReplicaManager,
        rooms: Rooms,
        ending: Ending,
        most_open_files: int,
    ) -> None:
        """``endpoints``: where clients are told to connect. The directories are locked."""
        self._settings = settings
        self._machinery = machinery
        self._endpoints = endpoints
        self._controller_endpoint = controller_endpoint
        self._directories = directories
        self._replicas = replicas
        self._rooms = rooms
        self._ending = ending
        self._most_open_files = most_open_files

    async def run(self) -> Opened:
        """Open everything. Raises StorageError, InconsistentMetadata, Malformed; `Stopped` while logs are loaded.

        Nobody may serve what it returns after the end was asked for: the node need not be registered then.
        """
        machinery, settings = self._machinery, self._settings
        node = self._identify()
        was_clean = self._directories.begin_loading()
        self._rooms.state = BrokerState.RECOVERY
        metadata_log = self._rooms.metadata_log = self._open_metadata()
        image = metadata_log.publisher.image
        controller = Controller(metadata_log, ids=machinery.ids, settings=settings)
        in_force = SettingsInForce(ConfigView(image, settings))
        metadata_log.publisher.subscribe(in_force.apply)
        logs = await self._load_logs(image, in_force)
        await self._take_office(controller, logs, was_clean=was_clean)
        failed_directories = FailedDirectories(
            directories=self._directories,
            logs=logs,
            replicas=self._replicas,
            controller=controller,
            upkeep=machinery.upkeep,
            call_soon=machinery.loop.call_soon,
            fail=self._ending.fail,
        )
        hosting = self._host_partitions(metadata_log.publisher, logs, failed_directories)
        group_coordinator = self._coordinate_groups(metadata_log.publisher)
        archive_hold = self._rooms.archive_hold = ArchiveHold(group_coordinator.groups)
        log_upkeep = LogUpkeep(
            clock=machinery.clock,
            logs=logs,
            replicas=self._replicas,
            hosting=hosting,
            archive_hold=archive_hold,
            worker=machinery.housekeeper,
            on_disk_failure=failed_directories.disk_failed,
        )
        log_upkeep.start(machinery.upkeep, settings)
        return Opened(
            node=node,
            metadata_log=metadata_log,
            controller=controller,
            in_force=in_force,
            logs=logs,
            failed_directories=failed_directories,
            log_upkeep=log_upkeep,
            group_coordinator=group_coordinator,
        )

    def _identify(self) -> Node:
        now_ms = self._machinery.clock.now_ms()
        date = time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime(now_ms / 1000))
        self._directories.identify(self._machinery.ids, now_ms, date, self._controller_endpoint)
        return Node(
            node_id=self._settings.node_id,
            cluster_id=self._directories.cluster_id,
            rack=self._settings.broker_rack,
            endpoints={listener.name: Endpoint(listener.host, listener.port) for listener in self._endpoints},
        )

    def _open_metadata(self) -> MetadataLog:
        directory = self._directories.for_metadata
        return open_metadata_log(
            self._machinery.files,
            self._settings,
            was_clean=directory.was_clean,
            clock=self._machinery.clock,
            flusher=self._machinery.flushers.of(directory.path),
            worker=self._machinery.housekeeper,
            on_fatal=self._ending.fail,
            once=self._machinery.upkeep.once,
        )

    async def _load_logs(self, image: MetadataImage, in_force: SettingsInForce) -> LogManager:
        settings, ids = self._settings, self._machinery.ids
        logs = self._rooms.logs = LogManager(
            self._machinery.files,
            self._directories.for_logs,
            producer_id_expiration_ms=in_force.settings.producer_id_expiration_ms,
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

        loading = self._rooms.loading = LogLoading(
            logs,
            loop=self._machinery.loop,
            clock=self._machinery.clock,
            processes_per_directory=settings.num_recovery_threads_per_data_dir,
            recovery=settings.ottla_recovery,
            stop=self._ending.asked,
        )
        configs = ConfigView(image, settings)
        await loading.run(config_of=configs.topic_config, is_ours=is_ours, new_id=lambda: ids.uuid().hex())
        for directory, error in logs.failures:
            self._directories.start_without(directory, error)
        logs.failures.clear()
        return logs

    async def _take_office(self, controller: Controller, logs: LogManager, *, was_clean: bool) -> None:
        """Register, and lead what is there: which directories can be used is known once the logs are loaded."""
        settings = self._settings
        registration = Registration(
            node_id=settings.node_id,
            incarnation_id=self._machinery.ids.uuid(),
            endpoints=self._endpoints,
            controller_endpoint=self._controller_endpoint,
            rack=settings.broker_rack,
            directories=self._directories.online_ids,
        )
        found = {
            log.topic_partition: directory_id
            for directory_id, directory in self._directories.by_id.items()
            for log in logs.in_directory(directory)
        }
        in_office = asyncio.Event()
        controller.take_office(
            registration,
            bootstrap=read_bootstrap(
                self._machinery.files,
                self._directories.for_metadata.path,
                min_insync_replicas=settings.min_insync_replicas,
            ),
            was_clean=was_clean,
            found=found,
            then=in_office.set,
        )
        await self._ending.wait_unless(in_office)

    def _host_partitions(
        self, publisher: Publisher, logs: LogManager, failed_directories: FailedDirectories
    ) -> Hosting:
        settings, machinery = self._settings, self._machinery
        hosting = Hosting(
            node_id=settings.node_id,
            clock=machinery.clock,
            ids=machinery.ids,
            logs=logs,
            directories=self._directories.by_id,
            disk_reserve_bytes=settings.ottla_disk_reserve_bytes,
            replicas=self._replicas,
            configs=ConfigView(publisher.image, settings),
            upkeep=machinery.upkeep,
            worker=machinery.housekeeper,
            on_disk_failure=failed_directories.disk_failed,
        )
        hosting.host_all(publisher.image)
        publisher.subscribe(hosting.apply)
        for removal, directory in logs.take_pending_removals():
            hosting.remove_later(removal, directory)
        return hosting

    def _coordinate_groups(self, publisher: Publisher) -> GroupCoordinator:
        settings, machinery = self._settings, self._machinery
        coordinator = self._rooms.group_coordinator = GroupCoordinator(
            settings,
            image=publisher.image,
            configs=ConfigView(publisher.image, settings),
            replicas=self._replicas,
            clock=machinery.clock,
            wheel=machinery.wheel,
            ids=machinery.ids,
            slices=machinery.slices,
            reader=machinery.reader,
            upkeep=machinery.upkeep,
        )
        publisher.subscribe(coordinator.apply)
        return coordinator
