"""The network as the broker server sees it: all listeners and processors, opened, changed and drained together."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from broker.network.acceptor import Acceptor, Bind, MakeTransport
from broker.network.buffer_pool import BufferPool, RequestMemory
from broker.network.connection_limits import ConnectionLimits, UnknownHost, limit_settings
from broker.network.latencies import LatencyReport
from broker.network.processor import Processor
from broker.network.processor_pool import ProcessorPool
from broker.network.processor_state import NetworkSettings
from broker.network.socket_options import SocketOptions, bound_socket
from broker.network.transport import SendfileRefusals
from broker.request.channel import RequestChannel
from broker.request.session import ANONYMOUS
from broker.runtime.clock import Clock
from config.broker_settings import BrokerSettings
from config.listeners import Listener

if TYPE_CHECKING:
    from broker.request.gate import Gate
    from broker.request.permissions import Authorizer

log = logging.getLogger(__name__)

DRAIN_S: Final = 5.0
"""How long a clean stop waits until clients have taken their last answers."""

NO_GATES: "Final[Mapping[str, Callable[[], Gate]]]" = {}
"""No listener asks a client who it is."""

NO_TRANSPORTS: Final[Mapping[str, MakeTransport]] = {}
"""All listeners are plain."""


class SocketServer:
    """Acceptors and processors of one broker, and the limits on connections that they share.

    In this order: `bind` reserves the ports, `start` accepts connections and `run` serves them, `stop_reading` ends
    the taking of requests, `drain` waits until the last answers are sent. `close` may come at any time.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        channel: RequestChannel,
        bind: Bind = bound_socket,
        controller_listeners: Sequence[Listener] = (),
        gates: "Mapping[str, Callable[[], Gate]]" = NO_GATES,
        transports: Mapping[str, MakeTransport] = NO_TRANSPORTS,
        certified: Collection[str] = (),
        authorizer: "Authorizer | None" = None,
    ) -> None:
        """Nothing is opened yet. ``bind`` makes the listening sockets; ``controller_listeners`` are opened beside those
        for clients. ``gates`` makes the gate of a connection, for listeners that have one, and ``transports`` its
        transport, for listeners that are not plain; ``certified`` has the listeners whose clients have to show a
        certificate. ``authorizer`` knows what clients may do. Raises `UnknownHost`."""
        self._settings = settings
        self._bind = bind
        self._gates = gates
        self._transports = transports
        self._certified = certified
        self._authorizer = authorizer
        self._controller_listeners = tuple(controller_listeners)
        self._loop = loop
        self._clock = clock
        self._channel = channel
        self.limits = ConnectionLimits(limit_settings(settings))
        memory = RequestMemory(settings.queued_max_request_bytes, loop.call_soon, clock)
        self._buffers = BufferPool(memory, clock)
        self._pool = self._make_processors()
        self.processors = self._pool.processors
        self.acceptors = self._make_acceptors()
        self.latencies = LatencyReport(self.processors)

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """The addresses that are listened on for clients; port 0 until `bind` has found a free one."""
        return self._listened_on(is_for_controllers=False)

    @property
    def controller_listeners(self) -> tuple[Listener, ...]:
        """The same for brokers that ask the controller."""
        return self._listened_on(is_for_controllers=True)

    def _listened_on(self, *, is_for_controllers: bool) -> tuple[Listener, ...]:
        return tuple(
            Listener(name=one.listener, host=one.host, port=one.port)
            for one in self.acceptors
            if one.is_for_controllers is is_for_controllers
        )

    def bind(self) -> tuple[Listener, ...]:
        """Reserve the ports, and return the addresses to be registered and given to clients. Raises `CannotListen`."""
        bound = {acceptor.listener: acceptor.bind() for acceptor in self.acceptors}
        return self._settings.advertised_on(bound)

    def start(self) -> None:
        """Accept connections from now on. Raises `CannotListen`."""
        for acceptor in self.acceptors:
            acceptor.start()
        self._warn_of_open_listeners()

    def _warn_of_open_listeners(self) -> None:
        reached = [
            f"{one.listener}://{one.host}:{one.port}"
            for one in self.acceptors
            if not (one.is_local or one.listener in self._gates or one.listener in self._certified)
        ]
        if reached:
            log.warning(
                "other machines can connect without authentication, and %s: %s",
                "read, write and change everything"
                if self._authorizer is None
                else f"do what ACLs and super.users allow {ANONYMOUS}",
                ", ".join(reached),
            )

    async def run(self) -> None:
        """Run the processors until `drain` is done. What goes wrong in one of them ends all and is raised here."""
        await self._pool.run()

    def reconfigure(self, settings: BrokerSettings) -> None:
        """Apply the settings that can change while the broker runs. Limits that name a host without an address are not
        applied."""
        try:
            self.limits.update(limit_settings(settings))
        except UnknownHost as error:
            log.warning("connection limits stay as they were: %s", error)
        self._pool.resize(settings.num_network_threads)

    def stop_reading(self) -> None:
        """No new connections and no more requests. Every connection closes when its last answer is sent."""
        self.close()
        self._pool.stop_reading()

    async def drain(self) -> None:
        """Return when the last answers are sent, or `DRAIN_S` are over; close what is left, and let `run` return."""
        try:
            async with asyncio.timeout(DRAIN_S):
                await self._pool.drained()
        except TimeoutError:
            log.warning("some clients did not take their last answers within %.0f s", DRAIN_S)
        self._pool.close()

    def abort(self) -> None:
        """Close the ports and every connection now: answers that are under way are dropped."""
        self.close()
        self._pool.close()

    def close(self) -> None:
        """Give the ports back; connections in a backlog are refused by the system."""
        self._buffers.close()
        for acceptor in self.acceptors:
            acceptor.close()

    def _make_processors(self) -> ProcessorPool:
        settings = self._settings
        network = NetworkSettings(
            socket_request_max_bytes=settings.socket_request_max_bytes,
            max_in_flight=settings.ottla_connection_max_in_flight,
            connections_max_idle_ms=settings.connections_max_idle_ms,
            handshake_timeout_ms=settings.ottla_authentication_timeout_ms,
        )

        def make(index: int) -> Processor:
            processor = Processor(
                index,
                loop=self._loop,
                clock=self._clock,
                channel=self._channel,
                pool=self._buffers,
                settings=network,
                limits=self.limits,
            )
            for listener in (*settings.listeners, *self._controller_listeners):
                processor.stats_of(
                    listener.name
                )  # metrics list every listener from the start, not from its first connection on
            return processor

        return ProcessorPool(make, settings.num_network_threads)

    def _make_acceptors(self) -> list[Acceptor]:
        settings = self._settings
        options = SocketOptions(
            send_buffer_bytes=settings.socket_send_buffer_bytes,
            receive_buffer_bytes=settings.socket_receive_buffer_bytes,
        )
        refusals = SendfileRefusals()
        return [
            Acceptor(
                listener.name,
                listener.host,
                listener.port,
                loop=self._loop,
                clock=self._clock,
                processors=self.processors,
                limits=self.limits,
                options=options,
                refusals=refusals,
                backlog=settings.socket_listen_backlog_size,
                bind=self._bind,
                is_for_controllers=is_for_controllers,
                make_gate=self._gates.get(listener.name),
                authorizer=self._authorizer,
                make_transport=self._transports.get(listener.name),
            )
            for listeners, is_for_controllers in ((settings.listeners, False), (self._controller_listeners, True))
            for listener in listeners
        ]
