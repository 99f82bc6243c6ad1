"""A network processor: it owns its connections, gives each its turn to send, and closes those that idle."""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator
from time import monotonic_ns
from typing import Final

from broker.network.buffer_pool import SMALLEST_BUFFER, BufferPool
from broker.network.connection import MOST_BYTES_A_TURN, Connection
from broker.network.connection_limits import ConnectionLimits
from broker.network.connection_owner import ListenerStats, NetworkSettings
from broker.request.channel import RequestChannel
from broker.request.session import Session
from broker.runtime.clock import Alarm, Clock

log = logging.getLogger(__name__)

MOST_BYTES_ALONE: Final = 5 * MOST_BYTES_A_TURN
"""What a connection sends in a turn that it has for itself, while no request waits either: an answer of the megabyte
that consumers ask for, with what stands around it."""

MOST_BYTES_WHILE_OTHERS_WAIT: Final = MOST_BYTES_A_TURN // 2
"""What it sends in a turn while requests wait, or answers that have not had theirs (bench: disturbers greedy)."""


def monotonic_us() -> int:
    """Microseconds on a clock that never goes back. (uvloop's own has milliseconds.)"""
    return monotonic_ns() // 1000


class ProcessorStats:
    """What a processor has counted."""

    __slots__ = ("busy_us", "listeners", "started_us", "turns")

    def __init__(self, started_us: int) -> None:
        self.turns = 0
        self.started_us = started_us
        self.busy_us = 0
        """Time spent on sending."""
        self.listeners: dict[str, ListenerStats] = {}
        """By name."""


class Processor:
    """One of `num.network.threads`. Its connections' callbacks receive; its own task sends."""

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
        self.loop = loop
        self.channel = channel
        self.memory = pool.memory
        self.pool = pool
        self.scratch = pool.lend(SMALLEST_BUFFER)
        self.settings = settings
        self.now_us = now_us
        self.stats = ProcessorStats(now_us())
        self.clock = clock
        self._limits = limits
        self._connections: set[Connection] = set()
        self._touched: list[Connection] = []
        self._unfinished: list[Connection] = []
        """Those that had their turn and have more: behind all others (bench: disturbers greedy)."""
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
        return len(self._touched) + len(self._unfinished)

    def idle_ratio(self) -> float:
        """The part of its life in which it had nothing to send."""
        lived_us = max(self.now_us() - self.stats.started_us, 1)
        return 1 - self.stats.busy_us / lived_us

    def adopt(self, connected: socket.socket, session: Session) -> Connection:
        """Make a connection of a non-blocking socket and read it from now on. Raises `OSError` if the system cannot."""
        connection = Connection(self, connected, session)
        self._connections.add(connection)
        self.stats_of(session.peer.listener).connections_created += 1
        if self._idle_alarm is None and self.settings.connections_max_idle_ms >= 0:
            self._arm_idle_alarm(self.settings.connections_max_idle_ms)
        return connection

    def stats_of(self, listener: str) -> ListenerStats:
        """Part of `ConnectionOwner`."""
        known = self.stats.listeners.get(listener)
        if known is None:
            known = self.stats.listeners[listener] = ListenerStats()
        return known

    def touch(self, connection: Connection) -> None:
        """Part of `ConnectionOwner`: it has something to send. Its turn comes once, however many come: at the end of
        the handler's, or soon where no handler is at work."""
        if not self._touched and not self._unfinished:
            if self.channel.is_in_turn:
                self.channel.after_turn(self._turn)
            else:
                self.loop.call_soon(self._turn)
        self._touched.append(connection)

    def touch_again(self, connection: Connection) -> None:
        """Part of `ConnectionOwner`."""
        if not self._touched and not self._unfinished:
            self.loop.call_soon(self._turn)
        self._unfinished.append(connection)

    def bytes_a_turn(self, connection: Connection) -> int:
        """Part of `ConnectionOwner`."""
        others_wait = self._touched or self.channel.holds_others_than(connection.stream)
        return MOST_BYTES_WHILE_OTHERS_WAIT if others_wait else MOST_BYTES_ALONE

    def give_scratch(self) -> None:
        """Part of `ConnectionOwner`."""
        self.memory.count(self.scratch.capacity)
        self.scratch = self.pool.lend(SMALLEST_BUFFER)

    def closed(self, connection: Connection) -> None:
        """Part of `ConnectionOwner`."""
        self._connections.discard(connection)
        self.stats_of(connection.peer.listener).connections_closed += 1
        self._limits.closed(connection.peer.listener, connection.peer.host)
        if not self._connections:
            self._empty.set()

    async def run(self) -> None:
        """Send what is ready, turn by turn, until `close`. What goes wrong in a turn comes out of here."""
        await self._end

    def _turn(self) -> None:
        # A callback of its own, not a step of `run`: waking a task costs twice as much, at every single request.
        try:
            began_us = self.now_us()
            touched, self._touched = self._touched, []
            if self._unfinished:
                touched += self._unfinished
                self._unfinished.clear()
            if len(touched) == 1:
                most_bytes = self.bytes_a_turn(touched[0])
            else:
                most_bytes = MOST_BYTES_WHILE_OTHERS_WAIT if len(self.channel) else MOST_BYTES_A_TURN
            for connection in touched:
                connection.send_answers(most_bytes, began_us)
            self.stats.turns += 1
            self.stats.busy_us += self.now_us() - began_us
        except Exception as error:  # noqa: BLE001 - `run` raises it
            if not self._end.done():
                self._end.set_exception(error)

    # The idle

    def _arm_idle_alarm(self, after_ms: int) -> None:
        self._idle_alarm = self.clock.call_at(self.clock.monotonic_ms() + after_ms, self._close_idle)

    def _close_idle(self) -> None:
        """Close who has neither sent nor received for `connections.max.idle.ms`, a request that waits included."""
        self._idle_alarm = None
        most_us = self.settings.connections_max_idle_ms * 1000
        oldest_us = now_us = self.now_us()
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
        """Take no more requests. Every connection closes when its last answer is out."""
        for connection in tuple(self._connections):
            connection.stop_reading()

    async def drained(self) -> None:
        """Wait until every connection is closed."""
        while self._connections:
            self._empty.clear()
            await self._empty.wait()

    def close(self) -> None:
        """Close what is left, whatever is under way, and let `run` return."""
        for connection in tuple(self._connections):
            connection.close()
        if self._idle_alarm is not None:
            self._idle_alarm.cancel()
        if not self._end.done():
            self._end.set_result(None)
