"""BrokerServer: makes the parts of a broker, starts them in order, and stops them in reverse order."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from broker.dispatch.dispatcher import Dispatcher
from broker.dispatch.handler_pool import HandlerPool
from broker.dispatch.registry import Registry
from broker.fetch.executor import FetchExecutor
from broker.logs.closing import close_logs
from broker.logs.loading import Stopped
from broker.membership.membership import Membership
from broker.metadata.broker_state import BrokerState
from broker.metadata.cache import MetadataCache
from broker.metadata.image.records import InconsistentMetadata, Record
from broker.metadata.registration import RegistrationRefused
from broker.metrics.http import MetricsEndpoint, Readiness
from broker.metrics.sources import PERIOD_MS, MetricSources
from broker.network.acceptor import Bind, CannotListen
from broker.network.connection_limits import UnknownHost
from broker.network.socket_options import bound_socket
from broker.network.socket_server import NO_GATES, NO_TRANSPORTS, SocketServer
from broker.raft.observers import Observers
from broker.request.channel import RequestChannel
from broker.request.response import ResponseSlot
from broker.runtime.clock import Clock, Ids
from broker.runtime.services import Services
from broker.runtime.shutdown import Shutdown, first_of
from broker.runtime.worker_thread import MakeThread, WorkerThread
from broker.server.apis import serve_all
from broker.server.handlers import Handlers
from broker.server.log_dirs import LogDirs
from broker.server.quota_enforcement import QuotaEnforcement
from broker.server.share_delivery import ShareDelivery
from broker.server.startup import ServerComponents, Startup
from config.broker_settings import BrokerSettings
from config.listen_address import METRICS_LISTENER
from config.listeners import Listener, with_bound_ports
from protocol.primitives import Malformed
from storage.errors import LogDirFailed, StorageError
from storage.files import FileSystem
from storage.open_files import DEFAULT_LIMIT

if TYPE_CHECKING:
    from broker.controller.client import ControllerClient
    from broker.metrics.pages import Pages
    from broker.peers.connector import Connector
    from broker.security.acls.standard_authorizer import StandardAuthorizer
    from broker.security.tls.listeners import TlsListeners
    from broker.server.authentication import Authentication

log = logging.getLogger(__name__)

Handle = Callable[[ResponseSlot], None]
"""Serves one request."""


class CannotStart(Exception):
    """Why the broker does not start, in one sentence."""


class BrokerServer:
    """A broker on one event loop. Nothing in it is global: a process may run several.

    `start` returns once requests are accepted, `wait` when a stop was asked for or the broker can't go on, `stop` when
    everything is closed in order.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        clock: Clock | None = None,
        fetch_clock: Clock | None = None,
        files: FileSystem | None = None,
        ids: Ids | None = None,
        worker: MakeThread = WorkerThread,
        bind: Bind = bound_socket,
        connector: "Connector | None" = None,
        most_open_files: int = DEFAULT_LIMIT,
        first_records: Sequence[Record] = (),
        around_requests: Callable[[Handle], Handle] | None = None,
    ) -> None:
        """``fetch_clock`` is the clock by which fetches wait, if it is another than ``clock``. ``worker`` makes all
        worker threads, ``bind`` the listening sockets; ``connector`` connects to other nodes.
        ``most_open_files``: how many files of segments may be open at a time. ``first_records``: what a cluster that
        is made by this start has beside its features. ``around_requests`` wraps what serves one request."""
        self._around_requests = around_requests
        self._settings = settings
        self._connector = connector
        self._most_open_files = most_open_files
        self.shutdown = Shutdown()
        self._is_ready = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._components: ServerComponents | None = None
        self._startup: Startup | None = None
        self._has_served = False
        """Whether the logs were used, so that a stop in order closes them in order."""
        self.services = services = Services(
            asyncio.get_running_loop(), clock=clock, files=files, ids=ids, worker=worker, fetch_clock=fetch_clock
        )
        self.log_dirs = LogDirs(services.files, settings, first_records)
        self.registry = Registry()
        self.controller_registry = Registry(self.registry.stats)
        """Of the controller listeners; its requests are counted with the others."""
        self._channel = RequestChannel(settings.queued_max_requests)
        self.metadata = MetadataCache()
        self._authentication = self._make_authentication()
        self.share_delivery: ShareDelivery | None = None
        self.authorizer = self._make_authorizer()
        self._tls = self._make_tls()
        try:
            self.socket_server = SocketServer(
                settings,
                loop=services.loop,
                clock=services.clock,
                channel=self._channel,
                bind=bind,
                controller_listeners=settings.opened_controller_listeners,
                gates=NO_GATES if self._authentication is None else self._authentication.gates,
                authorizer=self.authorizer,
                transports=NO_TRANSPORTS if self._tls is None else self._tls.transports,
                certified=() if self._tls is None else self._tls.certified,
            )
        except UnknownHost as error:
            raise CannotStart(str(error)) from error
        if settings.ottla_topics_at_start:
            from broker.server.topics_at_start import fault_of_names

            if fault := fault_of_names(settings.ottla_topics_at_start):
                raise CannotStart(fault)
        self._state = BrokerState.STARTING
        self.metric_sources = MetricSources(
            settings=settings,
            clock=services.clock,
            started_ms=services.clock.monotonic_ms(),
            channel=self._channel,
            processors=self.socket_server.processors,
            acceptors=self.socket_server.acceptors,
            registry=self.registry,
            metadata=self.metadata,
            state=lambda: self._state,
            flushers=lambda: services.flushers.stats,
        )
        if self._tls is not None:
            self.metric_sources.certificate_expiry_s = self._tls.expiry_s
        self.metrics = self._make_endpoint()

    @property
    def components(self) -> ServerComponents:
        """The parts that exist once the data is open."""
        assert self._components is not None, "its data is not open yet"
        return self._components

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration; -1 before."""
        return -1 if self._startup is None else self._startup.membership.broker_epoch

    def _begin_recovery(self) -> None:
        self._state = BrokerState.RECOVERY

    @property
    def failure(self) -> BaseException | None:
        """What keeps the broker from going on, or has kept it from closing in order."""
        return self.shutdown.failure

    @property
    def description(self) -> str:
        """The listeners and ids of the broker, as one line for the log and systemd."""
        node = self.components.node
        listeners = ",".join(map(str, self.socket_server.listeners))
        return f"listeners={listeners} node.id={node.node_id} cluster.id={node.cluster_id}"

    @property
    def progress(self) -> str:
        """How far the start has come, as one line for systemd and `/readyz`."""
        loading = self.metric_sources.loading
        return "starting" if loading is None else loading.progress

    @property
    def readiness(self) -> Readiness:
        """Whether the broker answers requests; if not, what it is doing."""
        if self.shutdown.asked.is_set():
            return Readiness(False, "stopping")
        if self._is_ready.is_set():
            return Readiness(True, "ready")
        return Readiness(False, self.progress)

    async def start(self) -> None:
        """Start, and return when requests are accepted. Raises `CannotStart`."""
        self.services.loop.set_exception_handler(self._callback_failed)
        self._running = asyncio.create_task(self._run(), name="daemon")
        ready = asyncio.create_task(self._is_ready.wait())
        await asyncio.wait((ready, self._running), return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if not self._is_ready.is_set():
            await self._running

    @property
    def is_ready(self) -> bool:
        """Whether it accepts requests, or has done so."""
        return self._is_ready.is_set()

    async def wait(self, stop: asyncio.Event) -> None:
        """Return when ``stop`` is set, or the broker can't go on: `failure` says why."""
        await first_of(stop, self.shutdown.asked)

    async def stop(self) -> None:
        """Stop in order: no new requests, the last answers out, logs closed, and the marker that says so."""
        self.shutdown.ask()
        if self._running is not None:
            await asyncio.wait((self._running,))
            if self._is_ready.is_set():  # else `start` has reported it
                self._running.result()

    # The order of things

    async def _run(self) -> None:
        """The whole life of the broker, from locking the directories to writing the clean-shutdown marker."""
        try:
            await self._open()
            if not self.shutdown.asked.is_set():
                await self._serve(self.components)
            failure = self.shutdown.failure
            if isinstance(failure, RegistrationRefused) and not self._is_ready.is_set():
                raise failure
        except Stopped:
            log.info("stopped while loading logs")
        except (StorageError, CannotListen, InconsistentMetadata, Malformed, RegistrationRefused) as error:
            raise CannotStart(str(error)) from error
        finally:
            await self._close()

    async def _open(self) -> None:
        """Lock the directories, bind the ports, then open the data."""
        self.log_dirs.lock()
        endpoints = self.socket_server.bind()
        startup = self._startup = Startup(
            self._settings,
            self.services,
            metadata=self.metadata,
            endpoints=endpoints,
            controller_endpoint=self._controller_endpoint(),
            opened_controller_endpoints=self._opened_controller_endpoints(),
            log_dirs=self.log_dirs,
            begin_recovery=self._begin_recovery,
            metric_sources=self.metric_sources,
            shutdown=self.shutdown,
            most_open_files=self._most_open_files,
            connector=self._connector,
        )
        if self.metrics is not None:
            self.metrics.open([listener.port for listener in self.socket_server.listeners])
        self._components = await startup.run()
        if self._tls is not None:
            self._open_tls(self._tls, self._components)
        if self._settings.ottla_topics_at_start:
            await self._create_topics(self._components)

    def _open_tls(self, tls: "TlsListeners", components: ServerComponents) -> None:
        """Read keys and certificates, and again with each change of this broker's dynamic configs."""
        from broker.security.tls.key_material import Unusable

        try:
            tls.open(components.configs.broker_texts().dynamic_broker)
        except Unusable as error:
            raise CannotStart(str(error)) from error
        components.dynamic_config.read_files = tls.reconfigure
        components.configs.check_files = tls.check

    async def _create_topics(self, components: ServerComponents) -> None:
        """Create the topics of `ottla.topics.at.start` that do not exist."""
        assert components.controller is not None, "the settings of a member name no topics"
        from broker.server.topics_at_start import create_topics_at_start

        are_there = asyncio.Event()
        faults: list[str] = []

        def then(fault: str | None) -> None:
            if fault is not None:
                faults.append(fault)
            are_there.set()

        create_topics_at_start(
            self._settings.ottla_topics_at_start,
            controller=components.controller,
            image=components.metadata.image,
            then=then,
        )
        await self.shutdown.wait_unless(are_there)
        if faults:
            raise CannotStart(faults[0])

    async def _serve(self, components: ServerComponents) -> None:
        """Accept and answer requests until a stop is asked for; return when the last answer has been sent."""
        if self.authorizer is not None:
            self.authorizer.load(components.metadata.image)
            self.metric_sources.authorizer = self.authorizer
            components.publisher.tell_first(self.authorizer)
        controller_listener = components.controller_listener
        assert self._startup is not None, "it has made the components"
        membership, replication = components.membership, self._startup.replication
        self.share_delivery = share_delivery = ShareDelivery(
            self._settings,
            self.services,
            components.replicas,
            components.metadata,
            components.configs,
            lambda: components.share_states.get().persister,
            components.auto_creation,
            self.metric_sources,
            remote_letters=replication.dead_letters,
        )
        handlers = Handlers(
            settings=self._settings,
            node=components.node,
            replicas=components.replicas,
            fetch_executor=FetchExecutor(components.replicas.fetch_purgatory, self.services.read_ahead),
            fetch_sessions=components.fetch_sessions,
            metadata_cache=components.metadata,
            config_view=components.configs,
            dynamic_config=components.dynamic_config,
            raft=components.raft,
            logs=components.logs,
            replica_moves=components.replica_moves,
            clock=self.services.clock,
            ids=self.services.ids,
            own_controller=components.controller,
            auto_creation=components.auto_creation,
            controllers=components.controllers,
            producer_ids=components.producer_ids,
            group_coordinators=components.group_coordinator.groups,
            late_transactions=components.transactions,
            share_states=components.share_states,
            worker=self.services.housekeeper,
            share_delivery=share_delivery,
            remote_end_offsets=replication.end_offsets,
            has_authorizer=self.authorizer is not None,
            elect=None if controller_listener is None else controller_listener.elect_leaders,
            observers=Observers() if controller_listener is None else controller_listener.observers,
        )
        serve_all(self.registry, handlers)
        dispatcher = Dispatcher(self.registry, self.controller_registry)
        self._enforce_quotas(components, dispatcher)
        if controller_listener is not None:
            controller_listener.serve(self.controller_registry, handlers, dispatcher)
        handle: Handle = dispatcher.handle
        pool = HandlerPool(
            self._channel,
            handle if self._around_requests is None else self._around_requests(handle),
            size=self._settings.num_io_threads,
            end_of_turn=components.replicas.appender.write_staged,
        )
        self.metric_sources.handlers = pool
        self.metric_sources.on_period += (
            self.registry.stats.rotate,
            *([] if components.metadata_log is None else [components.metadata_log.stats.rotate]),
            components.group_coordinator.groups.load_times.rotate,
            self.services.flushers.rotate,
        )
        self.services.scheduler.every(PERIOD_MS, self.metric_sources.period_is_over)
        if self._settings.delegation_token_secret_key and components.controller is not None:
            self._remove_expired_tokens(components.controller)

        def reconfigure(settings: BrokerSettings) -> None:
            """Apply changed settings to everything outside of the logs that can change while the broker runs."""
            self.socket_server.reconfigure(settings)
            pool.resize(settings.num_io_threads)
            components.logs.producer_id_expiration_ms = settings.producer_id_expiration_ms
            components.log_cleaner.reconfigure(settings)

        components.dynamic_config.subscribe(reconfigure)
        self._has_served = True
        if self._authentication is not None:
            self._authentication.start()
        self.socket_server.start()
        try:
            async with asyncio.TaskGroup() as tasks:
                serving = [tasks.create_task(self.socket_server.run()), tasks.create_task(pool.run())]
                cleaning = tasks.create_task(components.log_cleaner.run())
                tasks.create_task(components.replica_moves.run())
                # Groups first: markers of transactions that were being ended may be for their partitions.
                components.group_coordinator.start()
                components.transactions.start()
                components.share_states.start()
                await membership.unfence()
                if not self.shutdown.asked.is_set():
                    self._is_ready.set()
                    self._state = BrokerState.RUNNING
                    await self.shutdown.asked.wait()
                cleaning.cancel()
                components.replica_moves.end()
                await self._leave(membership)
                await self._drain(components)
                for task in serving:
                    task.cancel()
        except* Exception as group:
            self.shutdown.fail(group)
            log.critical("a task of the broker died", exc_info=group)

    def _enforce_quotas(self, components: ServerComponents, dispatcher: Dispatcher) -> None:
        """Hold clients to the quotas of the cluster, those of now and all later ones."""
        enforcement = QuotaEnforcement(
            self._settings,
            clock=self.services.clock,
            dispatcher=dispatcher,
            limits=self.socket_server.limits,
            resolver=self.services.housekeeper,
            sources=self.metric_sources,
        )
        enforcement.enforce(components.metadata.image)
        components.publisher.subscribe(enforcement)

    def _remove_expired_tokens(self, controller: "ControllerClient") -> None:
        """Remove delegation tokens that have expired, now and then."""
        clock = self.services.clock
        self.services.scheduler.every(
            self._settings.delegation_token_expiry_check_interval_ms,
            lambda: controller.remove_expired_delegation_tokens(clock.now_ms()),
        )

    async def _leave(self, membership: Membership) -> None:
        """Go on answering until other brokers lead this broker's partitions, where there are other brokers."""
        log.info("stopping")
        self._state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
        controller = self.components.controller
        if controller is None or controller.others:
            await membership.leave()

    async def _drain(self, components: ServerComponents) -> None:
        """Accept no new requests, answer those under way, and send the answers."""
        self.socket_server.stop_reading()
        if components.controller_listener is not None:
            components.controller_listener.stop()
        components.share_states.stop()
        components.transactions.stop()
        components.group_coordinator.stop()
        components.replicas.end_waiting()
        if self.share_delivery is not None:
            self.share_delivery.purgatory.close()
        await self.socket_server.drain()

    async def _close(self) -> None:
        """Close in reverse order what was opened. Logs that have failed are left for the next start to recover."""
        services, shutdown = self.services, self.shutdown
        services.scheduler.stop()
        services.flushers.do_without_threads()
        self.socket_server.close()
        broker_epoch = -1
        is_clean = False
        if self.metrics is not None:
            await self.metrics.close()
        if self._authentication is not None:
            await self._authentication.stop()
        served = self._components if self._has_served else None
        try:
            if self._components is not None:
                self._components.share_states.stop()
                self._components.transactions.stop()
                self._components.group_coordinator.stop()
            if self._startup is not None:
                await self._startup.replication.close()
            await services.reader.stop()
            await services.read_ahead.stop()
            await services.writer.stop()
            if served is not None and shutdown.failure is None:
                await served.membership.leave()
                broker_epoch = served.membership.broker_epoch
            if self._startup is not None:
                await self._startup.membership.close()
            await services.flushers.finish()
            # The housekeeper writes checkpoints too: not at the same time.
            await services.housekeeper.stop()
            if served is not None and shutdown.failure is None:
                await self._close_logs(served)
                is_clean = True
        finally:
            await services.flushers.stop()
            is_clean = self.log_dirs.release(broker_epoch=broker_epoch, is_clean=is_clean)
        if is_clean:
            log.info("stopped cleanly")

    async def _close_logs(self, components: ServerComponents) -> None:
        """Close all logs. If a log or a checkpoint cannot be written to its end, there is no clean-shutdown marker."""
        await close_logs(
            components.logs,
            make_worker=self.services.make_worker,
            clock=self.services.clock,
            threads_per_directory=self._settings.num_recovery_threads_per_data_dir,
        )
        for directory, error in dict(components.logs.failures).items():
            log.error("%s could not be closed in order: %s", directory.path, error)
            if directory.has_failed and not self.log_dirs.can_go_on:
                self.shutdown.fail(error)
        if components.metadata_log is None:
            return
        try:
            components.metadata_log.close()
        except StorageError as error:
            log.error("the metadata log could not be closed in order: %s", error)
            self.log_dirs.for_metadata.is_in_order = False
            if isinstance(error, LogDirFailed):
                self.shutdown.fail(error)

    # Parts

    def _make_authentication(self) -> "Authentication | None":
        if not any(listener.has_sasl for listener in self._settings.listeners):
            return None
        from broker.server.authentication import Authentication, CannotAuthenticate

        services = self.services
        try:
            return Authentication(
                self._settings, metadata=self.metadata, clock=services.clock, make_worker=services.make_worker
            )
        except CannotAuthenticate as error:
            raise CannotStart(str(error)) from error

    def _make_authorizer(self) -> "StandardAuthorizer | None":
        if not self._settings.authorizer_class_name:
            return None
        from broker.security.acls.standard_authorizer import StandardAuthorizer
        from config.authorizer import authorizer_settings

        told = authorizer_settings(self._settings)
        return StandardAuthorizer(told.super_users, allow_everyone_if_no_acl_found=told.allow_everyone_if_no_acl_found)

    def _make_tls(self) -> "TlsListeners | None":
        if not any(listener.has_tls for listener in self._settings.listeners):
            return None
        from broker.security.tls.listeners import TlsListeners

        return TlsListeners(self._settings, self.services.clock)

    def _make_endpoint(self) -> MetricsEndpoint | None:
        listener = self._settings.ottla_prometheus_listener
        if listener is None:
            return None
        return MetricsEndpoint(
            listener,
            is_given=METRICS_LISTENER in self._settings.given,
            worker=self.services.housekeeper,
            make_pages=self._make_pages,
            readiness=lambda: self.readiness,
            fail=self.shutdown.fail,
        )

    def _make_pages(self) -> "Pages":
        # Imported with the first page: with the library it would take a fifth of the time that a start may take.
        from broker.metrics.subjects import make_pages

        return make_pages(self.metric_sources)

    def _controller_endpoint(self) -> Listener:
        """The endpoint of this node's controller. Without a controller listener nothing listens there: it is the
        endpoint that a Kafka which takes the directory over would give its controller."""
        for listener in (*self._opened_controller_endpoints(), *self._settings.controller_listeners):
            return listener
        port = self._settings.controller_port(self.socket_server.listeners[0].port)
        return Listener(name="CONTROLLER", host="127.0.0.1", port=port)

    def _opened_controller_endpoints(self) -> tuple[Listener, ...]:
        """The addresses that other brokers are given for this node's controller."""
        opened = self.socket_server.controller_listeners
        ports = {listener.name: listener.port for listener in opened}
        return with_bound_ports(self._settings.advertised_controller_listeners, ports)

    # Failures

    def _callback_failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A callback on the loop has raised, which is a bug: the broker stops."""
        error = context.get("exception")
        log.critical("%s", context["message"], exc_info=error)
        self.shutdown.fail(error if isinstance(error, BaseException) else RuntimeError(context["message"]))
