"""A network processor: it owns its connections, has them send in turns, and closes those that are idle."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from time import monotonic_ns

from broker.network.buffer_pool import BufferPool
from broker.network.connection import Connection
from broker.network.connection_limits import ConnectionLimits
from broker.network.processor_state import NetworkSettings, ProcessorState
from broker.network.processor_stats import ListenerStats, ProcessorStats
from broker.network.send_turns import SendTurns
from broker.network.transport import Transport
from broker.request.channel import RequestChannel
from broker.request.session import Session
from broker.runtime.clock import Alarm, Clock

log = logging.getLogger(__name__)


def monotonic_us() -> int:
    """Microseconds on a clock that never goes back. (uvloop's own has milliseconds.)"""
    return monotonic_ns() // 1000


class Processor:
    """One of `num.network.threads`. Its connections' callbacks receive; its turns send."""

    def __init__(
        self,
        index: int,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        channel: RequestChannel,
        pool: BufferPool,
        settings: NetworkSettings,
        limits: ConnectionLimits,
        now_us: Callable[[], int] = monotonic_us,
    ) -> None:
        self.index = index
        self.settings = settings
        self.stats = ProcessorStats(now_us())
        self.turns = SendTurns(loop, channel, self.stats, now_us, self._on_failure)
        self._state = ProcessorState(
            loop=loop,
            clock=clock,
            channel=channel,
            pool=pool,
            settings=settings,
            stats=self.stats,
            turns=self.turns,
            now_us=now_us,
        )
        self.pool = pool
        self.memory = pool.memory
        self._clock = clock
        self._now_us = now_us
        self._limits = limits
        self._connections: dict[Connection, None] = {}
        """In the order in which they came: they are closed in it, too."""
        self._closed = self._on_closed
        """Bound once for all connections."""
        self._end: asyncio.Future[None] = loop.create_future()
        self._empty: asyncio.Event = asyncio.Event()
        self._idle_alarm: Alarm | None = None

    def __len__(self) -> int:
        return len(self._connections)

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._connections)

    @property
    def waiting_responses(self) -> int:
        """Connections whose answers wait for their turn (Kafka: ResponseQueueSize)."""
        return self.turns.waiting

    def idle_ratio(self) -> float:
        """The part of its life in which it had nothing to send."""
        lived_us = max(self._now_us() - self.stats.started_us, 1)
        return 1 - self.stats.busy_us / lived_us

    def adopt(self, transport: Transport, session: Session) -> Connection:
        """Make a connection of a transport and read it from now on. Raises `OSError` if the system cannot."""
        connection = Connection(self._state, transport, session, self._closed)
        self._connections[connection] = None
        try:
            connection.start()
        except OSError:
            self._connections.pop(connection, None)
            raise
        self.stats_of(session.peer.listener).connections_created += 1
        if self._idle_alarm is None and self.settings.connections_max_idle_ms >= 0:
            self._arm_idle_alarm(self.settings.connections_max_idle_ms)
        return connection

    def stats_of(self, listener: str) -> ListenerStats:
        """Where the connections of ``listener`` count."""
        return self.stats.of(listener)

    def _on_closed(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        self.stats_of(connection.peer.listener).connections_closed += 1
        self._limits.closed(connection.peer.listener, connection.peer.host)
        if not self._connections:
            self._empty.set()

    async def run(self) -> None:
        """Return when `close` is called. What goes wrong in a turn is raised here."""
        await self._end

    def _on_failure(self, error: Exception) -> None:
        if not self._end.done():
            self._end.set_exception(error)

    # Idle connections

    def _arm_idle_alarm(self, after_ms: int) -> None:
        self._idle_alarm = self._clock.call_at(self._clock.monotonic_ms() + after_ms, self._close_idle)

    def _close_idle(self) -> None:
        """Close every connection that has neither sent nor received for `connections.max.idle.ms`, though a request of
        it waits."""
        self._idle_alarm = None
        most_us = self.settings.connections_max_idle_ms * 1000
        oldest_us = now_us = self._now_us()
        for connection in tuple(self._connections):
            if now_us - connection.last_active_us >= most_us:
                log.info("Closing %s: idle for %d ms", connection.peer, (now_us - connection.last_active_us) // 1000)
                self.stats_of(connection.peer.listener).connections_expired += 1
                connection.close()
            else:
                oldest_us = min(oldest_us, connection.last_active_us)
        if self._connections:
            # Not more often than a hundredth of the time: they are looked at one by one.
            after_ms = (oldest_us + most_us - now_us + 999) // 1000
            self._arm_idle_alarm(max(after_ms, self.settings.connections_max_idle_ms // 100, 1))

    # The end

    def stop_reading(self) -> None:
        """Take no more requests. Every connection closes when its last answer is sent."""
        for connection in tuple(self._connections):
            connection.stop_reading()

    async def drained(self) -> None:
        """Wait until every connection is closed."""
        while self._connections:
            self._empty.clear()
            await self._empty.wait()

    def close(self) -> None:
        """Close every connection, whatever is under way, and let `run` return."""
        for connection in tuple(self._connections):
            connection.close()
        if self._idle_alarm is not None:
            self._idle_alarm.cancel()
        if not self._end.done():
            self._end.set_result(None)
