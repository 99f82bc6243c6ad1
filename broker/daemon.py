"""What is composed, in which order it starts, and the reverse order in which it stops."""

import asyncio
import logging
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from broker.apis import serve_all
from broker.archive_hold import ArchiveHold
from broker.clock import Clock, Ids, LoopClock, SystemIds
from broker.coordinators.group_coordinator import GroupCoordinator
from broker.directories import Directories
from broker.dispatch.dispatcher import Dispatcher
from broker.dispatch.handler_pool import HandlerPool
from broker.dispatch.registry import Registry
from broker.failed_directories import FailedDirectories
from broker.flushers import Flushers
from broker.hosting import Hosting
from broker.log_closing import close_logs
from broker.log_loading import LogLoading, Stopped
from broker.log_upkeep import LogUpkeep
from broker.metadata.configs import ConfigView
from broker.metadata.controller import Controller
from broker.metadata.formatting import read_bootstrap
from broker.metadata.image import InconsistentMetadata
from broker.metadata.log import MetadataLog, open_metadata_log
from broker.metadata.producer_ids import ProducerIds
from broker.metadata.publisher import Publisher
from broker.metadata.registration import Registration
from broker.metadata.settings_in_force import SettingsInForce
from broker.metrics.http import MetricsEndpoint, Readiness
from broker.metrics.rooms import PERIOD_MS, BrokerState, Rooms
from broker.network.acceptor import CannotListen
from broker.network.connection_limits import UnknownHost
from broker.network.socket_server import SocketServer
from broker.offload import WorkerThread
from broker.purgatory import Purgatory
from broker.replication.fetch_sessions import FetchSessions
from broker.replication.replica_manager import Failures, ReplicaManager
from broker.request.channel import RequestChannel
from broker.request.node import Endpoint, Node
from broker.slices import Slices
from broker.timing_wheel import TimingWheel
from broker.upkeep import Upkeep
from config.broker_settings import BrokerSettings
from config.listeners import Listener
from config.metrics_listener import METRICS_LISTENER
from protocol.primitives import Malformed
from storage.errors import LogDirFailed, StorageError
from storage.files import FileSystem
from storage.log_dir import LogDir
from storage.log_manager import LogManager
from storage.open_files import DEFAULT_LIMIT
from storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from broker.metrics.pages import Pages

log = logging.getLogger(__name__)


class CannotStart(Exception):
    """Why the daemon does not start, in one sentence."""


class Daemon:
    """A broker on one event loop. Nothing in it is global: a process may run several.

    `start` returns once requests are accepted, `wait` when somebody wants a stop or the broker can't go on, `stop` when
    everything is closed in order.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        clock: Clock | None = None,
        files: FileSystem | None = None,
        ids: Ids | None = None,
        most_open_files: int = DEFAULT_LIMIT,
    ) -> None:
        """``most_open_files``: how many files of segments may be open at a time."""
        loop = asyncio.get_running_loop()
        self._settings = settings
        self._loop = loop
        self._clock = clock or LoopClock(loop, time.time)
        self._files = files or FileSystem()
        self._ids = ids or SystemIds(os.urandom)
        self._most_open_files = most_open_files
        self.failure: BaseException | None = None
        """What keeps the broker from going on, or has kept it from closing in order."""
        self._has_failed = asyncio.Event()
        self._stop_asked = asyncio.Event()
        self._is_ready = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

        self._wheel = TimingWheel(self._clock)
        self._upkeep = Upkeep(self._wheel)
        self._writer = WorkerThread("writer", loop, self._clock)
        self._housekeeper = WorkerThread("housekeeper", loop, self._clock)
        self._reader = WorkerThread("reader", loop, self._clock)
        self._slices = Slices(loop.call_soon)
        self._flushers = Flushers(loop, self._clock)

        self._channel = RequestChannel(settings.queued_max_requests)
        try:
            self.socket_server = SocketServer(settings, loop=loop, clock=self._clock, channel=self._channel)
        except UnknownHost as error:
            raise CannotStart(str(error)) from error
        if settings.ottla_topics_at_start:
            from broker.topics_at_start import fault_of_names

            if fault := fault_of_names(settings.ottla_topics_at_start):
                raise CannotStart(fault)
        self.registry = Registry()
        self._directories = Directories(self._files, settings)
        self._produce_purgatory = Purgatory(
            self._wheel, purge_interval=settings.producer_purgatory_purge_interval_requests
        )
        self._fetch_purgatory = Purgatory(self._wheel, purge_interval=settings.fetch_purgatory_purge_interval_requests)
        self._delete_records_purgatory = Purgatory(
            self._wheel, purge_interval=settings.delete_records_purgatory_purge_interval_requests
        )
        self.replicas = ReplicaManager(
            self._clock,
            writer=self._writer,
            call_soon=loop.call_soon,
            flusher_of=lambda partition: self._flushers.of(partition.log_dir.path),
            produce_purgatory=self._produce_purgatory,
            fetch_purgatory=self._fetch_purgatory,
            delete_records_purgatory=self._delete_records_purgatory,
            save_log_starts=self._save_log_starts,
            on_disk_failure=self._disk_failed,
        )
        self._in_force: SettingsInForce | None = None
        self.fetch_sessions = FetchSessions(
            self._clock,
            self._ids,
            self._fetch_purgatory,
            slots=settings.max_incremental_fetch_session_cache_slots,
        )
        self._logs: LogManager | None = None
        self.loading: LogLoading | None = None
        """How far opening the logs has come."""
        self._log_upkeep: LogUpkeep | None = None
        self._failed_directories: FailedDirectories | None = None
        self._metadata_log: MetadataLog | None = None
        self._controller: Controller | None = None
        self.group_coordinator: GroupCoordinator | None = None
        self.node: Node | None = None
        self.rooms = Rooms(
            settings=settings,
            clock=self._clock,
            started_ms=self._clock.monotonic_ms(),
            channel=self._channel,
            processors=self.socket_server.processors,
            acceptors=self.socket_server.acceptors,
            registry=self.registry,
            replicas=self.replicas,
            fetch_sessions=self.fetch_sessions,
            flushers=lambda: self._flushers.stats,
        )
        self.metrics = self._make_endpoint()

    @property
    def description(self) -> str:
        """Where it listens and who it is, for whoever waits for it."""
        assert self.node is not None, "it has not started"
        listeners = ",".join(map(str, self.socket_server.listeners))
        return f"listeners={listeners} node.id={self.node.node_id} cluster.id={self.node.cluster_id}"

    @property
    def progress(self) -> str:
        """How far the start has come, for whoever waits for it."""
        return "starting" if self.loading is None else self.loading.progress

    @property
    def publisher(self) -> Publisher:
        """The metadata that everybody reads."""
        assert self._metadata_log is not None, "it has not started"
        return self._metadata_log.publisher

    async def start(self) -> None:
        """Start, and return when requests are accepted. Raises `CannotStart`."""
        self._loop.set_exception_handler(self._callback_failed)
        self._running = asyncio.create_task(self._run(), name="daemon")
        ready = asyncio.create_task(self._is_ready.wait())
        await asyncio.wait((ready, self._running), return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if not self._is_ready.is_set():
            await self._running

    async def wait(self, stop: asyncio.Event) -> None:
        """Return when ``stop`` is set, or the broker can't go on: `failure` says why."""
        await first_of(stop, self._stop_asked)

    async def stop(self) -> None:
        """Stop in order: no new requests, the last answers out, logs closed, and the marker that says so."""
        self._stop_asked.set()
        if self._running is not None:
            await asyncio.wait((self._running,))
            if self._is_ready.is_set():  # else `start` has told
                self._running.result()

    def expire_waiting(self) -> None:
        """Answer every request that waits as if its time were over."""
        self._produce_purgatory.expire_all()
        self._fetch_purgatory.expire_all()
        self._delete_records_purgatory.expire_all()

    def fail(self, error: BaseException) -> None:
        """The broker can't go on: whoever waits for it is told, and will stop it."""
        if self.failure is None:
            self.failure = error
        self._has_failed.set()
        self._stop_asked.set()

    # The order of things

    async def _run(self) -> None:
        """Everything from the lock to the marker."""
        try:
            await self._open()
            if not self._stop_asked.is_set():
                await self._serve()
        except Stopped:
            log.info("stopped while loading logs")
        except (StorageError, CannotListen, InconsistentMetadata, Malformed) as error:
            raise CannotStart(str(error)) from error
        finally:
            await self._close()

    async def _open(self) -> None:
        """Directories, metadata, logs."""
        self._directories.lock()
        endpoints = self.socket_server.bind()
        if self.metrics is not None:
            self.metrics.open([listener.port for listener in self.socket_server.listeners])
        controller_endpoint = self._controller_endpoint()
        date = time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime(self._clock.now_ms() / 1000))
        self._directories.identify(self._ids, self._clock.now_ms(), date, controller_endpoint)
        self.node = Node(
            node_id=self._settings.node_id,
            cluster_id=self._directories.cluster_id,
            rack=self._settings.broker_rack,
            endpoints={listener.name: Endpoint(listener.host, listener.port) for listener in endpoints},
        )
        was_clean = self._directories.begin_loading()
        self.rooms.state = BrokerState.RECOVERY
        self._open_metadata()
        self._in_force = SettingsInForce(ConfigView(self.publisher.image, self._settings))
        self.publisher.subscribe(self._in_force.apply)
        await self._load_logs()
        await self._take_office(endpoints, controller_endpoint, was_clean=was_clean)
        self._host_partitions()
        await self._create_topics()

    def _open_metadata(self) -> None:
        settings = self._settings
        directory = self._directories.for_metadata
        self._metadata_log = open_metadata_log(
            self._files,
            settings,
            was_clean=directory.was_clean,
            clock=self._clock,
            flusher=self._flushers.of(directory.path),
            worker=self._housekeeper,
            on_fatal=self.fail,
            once=self._upkeep.once,
        )
        self.rooms.metadata_log = self._metadata_log
        self._controller = Controller(self._metadata_log, ids=self._ids, settings=settings)

    async def _take_office(
        self, endpoints: tuple[Listener, ...], controller_endpoint: Listener, *, was_clean: bool
    ) -> None:
        """Register, and lead what is there: which directories can be used is known once the logs are loaded."""
        assert self._controller is not None
        assert self._logs is not None
        settings = self._settings
        registration = Registration(
            node_id=settings.node_id,
            incarnation_id=self._ids.uuid(),
            endpoints=endpoints,
            controller_endpoint=controller_endpoint,
            rack=settings.broker_rack,
            directories=self._directories.online_ids,
        )
        found = {
            log.topic_partition: directory_id
            for directory_id, directory in self._directories.by_id.items()
            for log in self._logs.in_directory(directory)
        }
        in_office = asyncio.Event()
        self._controller.take_office(
            registration,
            bootstrap=read_bootstrap(
                self._files,
                self._directories.for_metadata.path,
                min_insync_replicas=settings.min_insync_replicas,
            ),
            was_clean=was_clean,
            found=found,
            then=in_office.set,
        )
        await first_of(in_office, self._stop_asked)
        if self.failure is not None:
            raise self.failure

    async def _load_logs(self) -> None:
        assert self._in_force is not None
        image = self.publisher.image
        configs = ConfigView(image, self._settings)
        self._logs = self.rooms.logs = LogManager(
            self._files,
            self._directories.for_logs,
            producer_id_expiration_ms=self._in_force.settings.producer_id_expiration_ms,
            most_open_files=self._most_open_files,
            walk_all_records=self._settings.ottla_records_validation == "full",
            chance=lambda: int.from_bytes(os.urandom(4), "big") >> 1,
        )

        def is_ours(topic_partition: TopicPartition, topic_id: bytes | None) -> bool:
            topic = image.topics_by_name.get(topic_partition.topic)
            return (
                topic is not None
                and topic.partition(topic_partition.partition) is not None
                and topic_id in (None, topic.topic_id)
            )

        self.loading = self.rooms.loading = LogLoading(
            self._logs,
            loop=self._loop,
            clock=self._clock,
            processes_per_directory=self._settings.num_recovery_threads_per_data_dir,
            recovery=self._settings.ottla_recovery,
            stop=self._stop_asked,
        )
        await self.loading.run(config_of=configs.topic_config, is_ours=is_ours, new_id=lambda: self._ids.uuid().hex())
        for directory, error in self._logs.failures:
            self._directories.start_without(directory, error)
        self._logs.failures.clear()

    def _host_partitions(self) -> None:
        assert self._logs is not None
        assert self._controller is not None
        self._failed_directories = FailedDirectories(
            directories=self._directories,
            logs=self._logs,
            replicas=self.replicas,
            controller=self._controller,
            upkeep=self._upkeep,
            call_soon=self._loop.call_soon,
            fail=self.fail,
        )
        publisher = self.publisher
        configs = ConfigView(publisher.image, self._settings)
        hosting = Hosting(
            node_id=self._settings.node_id,
            clock=self._clock,
            ids=self._ids,
            logs=self._logs,
            directories=self._directories.by_id,
            disk_reserve_bytes=self._settings.ottla_disk_reserve_bytes,
            replicas=self.replicas,
            configs=configs,
            upkeep=self._upkeep,
            worker=self._housekeeper,
            on_disk_failure=self._disk_failed,
        )
        hosting.host_all(publisher.image)
        publisher.subscribe(hosting.apply)
        for removal, directory in self._logs.take_pending_removals():
            hosting.remove_later(removal, directory)
        self.group_coordinator = self.rooms.group_coordinator = GroupCoordinator(
            self._settings,
            image=publisher.image,
            configs=configs,
            replicas=self.replicas,
            clock=self._clock,
            wheel=self._wheel,
            ids=self._ids,
            slices=self._slices,
            reader=self._reader,
            upkeep=self._upkeep,
        )
        publisher.subscribe(self.group_coordinator.apply)
        self.rooms.archive_hold = ArchiveHold(self.group_coordinator.groups)
        self._log_upkeep = LogUpkeep(
            clock=self._clock,
            logs=self._logs,
            replicas=self.replicas,
            hosting=hosting,
            archive_hold=self.rooms.archive_hold,
            worker=self._housekeeper,
            on_disk_failure=self._disk_failed,
        )
        self._log_upkeep.start(self._upkeep, self._settings)

    async def _create_topics(self) -> None:
        """Those that the settings want and that are not there."""
        if not self._settings.ottla_topics_at_start:
            return
        from broker.topics_at_start import create_topics_at_start

        assert self._controller is not None
        are_there = asyncio.Event()
        faults: list[str] = []

        def then(fault: str | None) -> None:
            if fault is not None:
                faults.append(fault)
            are_there.set()

        create_topics_at_start(
            self._settings.ottla_topics_at_start, controller=self._controller, image=self.publisher.image, then=then
        )
        await first_of(are_there, self._stop_asked)
        if self.failure is not None:
            raise self.failure
        if faults:
            raise CannotStart(faults[0])

    async def _serve(self) -> None:
        """Accept and answer requests until somebody wants a stop; return when the last answer is out."""
        assert self._controller is not None
        assert self._in_force is not None
        assert self._metadata_log is not None
        assert self._logs is not None
        assert self.group_coordinator is not None
        assert self.node is not None
        serve_all(
            self.registry,
            settings=self._settings,
            node=self.node,
            replicas=self.replicas,
            fetch_sessions=self.fetch_sessions,
            metadata_log=self._metadata_log,
            logs=self._logs,
            clock=self._clock,
            controller=self._controller,
            producer_ids=ProducerIds(self._controller.allocate_producer_ids),
            groups=self.group_coordinator.groups,
        )
        pool = HandlerPool(
            self._channel,
            Dispatcher(self.registry).handle,
            size=self._settings.num_io_threads,
            end_of_turn=self.replicas.appender.write_staged,
        )
        self.rooms.handlers = pool
        self.rooms.on_period += (
            self.registry.stats.rotate,
            self._metadata_log.stats.rotate,
            self.group_coordinator.groups.load_times.rotate,
            self._flushers.rotate,
        )
        self._upkeep.every(PERIOD_MS, self.rooms.period_is_over)
        self._in_force.subscribe(lambda settings: self._reconfigure(settings, pool))
        self.socket_server.start()
        try:
            async with asyncio.TaskGroup() as tasks:
                sending = tasks.create_task(self.socket_server.run())
                handling = tasks.create_task(pool.run())
                self._is_ready.set()
                self.group_coordinator.start()
                self.rooms.state = BrokerState.RUNNING
                await self._stop_asked.wait()
                await self._drain()
                for task in (sending, handling):
                    task.cancel()
        except* Exception as group:
            self.fail(group)
            log.critical("a task of the broker died", exc_info=group)

    async def _drain(self) -> None:
        """No new requests; what is under way is answered, and the answers go out."""
        log.info("stopping")
        self.rooms.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
        self.socket_server.stop_reading()
        assert self.group_coordinator is not None
        self.group_coordinator.stop()
        self.expire_waiting()
        await self.socket_server.drain()

    def _reconfigure(self, settings: BrokerSettings, pool: HandlerPool) -> None:
        """Everything outside of the logs that can be changed while it runs takes its new settings."""
        assert self._logs is not None
        self.socket_server.reconfigure(settings)
        pool.resize(settings.num_io_threads)
        self._logs.producer_id_expiration_ms = settings.producer_id_expiration_ms

    async def _close(self) -> None:
        """Everything that was opened, in reverse. What has failed is left for the next start to recover."""
        self._upkeep.stop()
        self.socket_server.close()
        broker_epoch = -1
        is_clean = False
        if self.metrics is not None:
            await self.metrics.close()
        try:
            if self.group_coordinator is not None:
                self.group_coordinator.stop()
            await self._reader.stop()
            await self._writer.stop()
            if self._is_ready.is_set() and self.failure is None:
                broker_epoch = await self._leave_office()
            await self._flushers.finish()
            # It writes checkpoints too: not at the same time.
            await self._housekeeper.stop()
            if self._is_ready.is_set() and self.failure is None:
                await self._close_logs()
                is_clean = True
        finally:
            await self._flushers.stop()
            is_clean = self._directories.release(broker_epoch=broker_epoch, is_clean=is_clean)
        if is_clean:
            log.info("stopped cleanly")

    async def _leave_office(self) -> int:
        """Write into the metadata log that this node goes; the broker epoch that it had."""
        assert self._controller is not None
        left = asyncio.Event()
        try:
            self._controller.leave_office(left.set)
        except StorageError as error:
            # Whoever starts here next registers anew in any case.
            log.warning("the metadata log could not be told that this node stops: %s", error)
        else:
            await first_of(left, self._has_failed)
        return self._controller.broker_epoch

    async def _close_logs(self) -> None:
        """Close all logs. Where one of them, or a checkpoint, cannot be written to its end, no marker is left."""
        assert self._logs is not None
        assert self._metadata_log is not None
        await close_logs(
            self._logs,
            loop=self._loop,
            clock=self._clock,
            threads_per_directory=self._settings.num_recovery_threads_per_data_dir,
        )
        for directory, error in dict(self._logs.failures).items():
            log.error("%s could not be closed in order: %s", directory.path, error)
            if directory.has_failed and not self._directories.survives_without(directory):
                self.fail(error)
        try:
            self._metadata_log.close()
        except StorageError as error:
            log.error("the metadata log could not be closed in order: %s", error)
            self._directories.for_metadata.is_in_order = False
            if isinstance(error, LogDirFailed):
                self.fail(error)

    # Metrics

    def _make_endpoint(self) -> MetricsEndpoint | None:
        listener = self._settings.ottla_prometheus_listener
        if listener is None:
            return None
        return MetricsEndpoint(
            listener,
            is_given=METRICS_LISTENER in self._settings.given,
            worker=self._housekeeper,
            make_pages=self._make_pages,
            readiness=self._readiness,
            fail=self.fail,
        )

    def _make_pages(self) -> "Pages":
        # Not before somebody wants a page: with the library it is a fifth of what a start may cost.
        from broker.metrics.subjects import make_pages

        return make_pages(self.rooms)

    def _readiness(self) -> Readiness:
        if self._stop_asked.is_set():
            return Readiness(False, "stopping")
        if self._is_ready.is_set():
            return Readiness(True, "ready")
        return Readiness(False, self.progress)

    # Parts

    def _controller_endpoint(self) -> Listener:
        """Where a Kafka that takes the directory over would put its controller. Nothing listens there."""
        for listener in self._settings.controller_listeners:
            return listener
        port = self._settings.controller_port(self.socket_server.listeners[0].port)
        return Listener(name="CONTROLLER", host="127.0.0.1", port=port)

    def _save_log_starts(self, done: Callable[[Failures], None]) -> None:
        assert self._log_upkeep is not None, "no request comes before the logs are loaded"
        self._log_upkeep.save_log_starts(done)

    # Failures

    def _disk_failed(self, directory: LogDir, error: StorageError) -> None:
        assert self._failed_directories is not None, "nobody reads or writes before the logs are loaded"
        self._failed_directories.disk_failed(directory, error)

    def _callback_failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A callback of ours has raised: a bug, after which nothing is certain."""
        error = context.get("exception")
        log.critical("%s", context["message"], exc_info=error)
        self.fail(error if isinstance(error, BaseException) else RuntimeError(context["message"]))


async def first_of(*events: asyncio.Event) -> None:
    """Return when one of ``events`` is set."""
    waiting = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
