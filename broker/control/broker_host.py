"""BrokerHost: the broker of a test process, and how another broker takes its place on the same ports.

A test begins with a broker that knows nothing of the test before it. Emptying a broker would have to know all that a
broker can remember; a new `BrokerServer` in the same process costs a few milliseconds, and has nothing to forget. The
listening sockets stay: a client that connects meanwhile waits in their backlog.

    directory/1   the data of the first broker, removed once the second has taken its place
    directory/2   the data of the second
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import socket
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from broker.control.calls import CannotDo
from broker.control.files import GoesWrong, TestFiles, all_is_well
from broker.control.happenings import Happenings, TellingClock
from broker.network.socket_options import SocketOptions, bound_socket
from broker.runtime import loggers
from broker.runtime.clock import Clock, LoopClock
from broker.runtime.manual_clock import ManualClock
from broker.server.broker_server import BrokerServer
from config.broker_settings import BrokerSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from broker.control.happenings import Handle
    from broker.request.response import ResponseSlot

log = logging.getLogger(__name__)

Prepare = Callable[[Path], None]
"""Makes the directory that a broker begins on."""

MANUAL: Final = "manual"
"""The value of `ottla.clock` for a clock that stands until it is moved."""


class BrokerHost:
    """Runs one broker at a time, on one event loop, with its data below a directory that belongs to the host."""

    def __init__(self, settings: BrokerSettings, directory: Path, *, wall_seconds: Callable[[], float]) -> None:
        """``directory`` exists and is empty. ``wall_seconds`` is the system's time, in seconds since 1970."""
        self._settings = settings
        self._directory = directory
        self._wall_seconds = wall_seconds
        self._sockets: list[socket.socket] = []
        """The listening sockets, in the order in which a broker binds them."""
        self._bound = 0
        """How many of them the broker of now has bound."""
        self._brokers = 0
        """How many brokers there have been."""
        self._changing = asyncio.Lock()
        self._log_levels = loggers.own_levels()
        """As each broker has them at its start; a client may change them."""
        self.is_ending = False
        """No broker follows the broker of now; what takes long ends early."""
        self._server: BrokerServer | None = None
        self.clock: Clock
        self.happenings = Happenings(asyncio.get_running_loop())
        self.around_requests: list[Callable[[Handle], Handle]] = [self.happenings.handling]
        """What wraps the serving of each request, the innermost first."""
        self.goes_wrong: GoesWrong = all_is_well
        """Which files fail."""
        self.on_change: list[Callable[[], None]] = []
        """Called when another broker begins."""

    @property
    def server(self) -> BrokerServer:
        """The broker of now. Raises `CannotDo` while another one takes its place, and at the end."""
        if self._server is None or not self._server.is_ready:
            raise CannotDo("the broker ends" if self.is_ending else "the broker begins anew")
        return self._server

    @property
    def requested(self) -> BrokerServer:
        """The broker whose request is being handled: its first requests come before calls may use it."""
        assert self._server is not None, "a broker that has ended handles its requests alone"
        return self._server

    @property
    def manual_clock(self) -> ManualClock | None:
        """The clock of the broker, where it stands until it is moved."""
        return self.clock if isinstance(self.clock, ManualClock) else None

    async def start(self, prepare: Prepare = Path.mkdir) -> None:
        """Start the first broker, on what ``prepare`` makes. Raises `CannotStart`."""
        async with self._changing:
            await self._start(prepare)

    async def reset(self, prepare: Prepare = Path.mkdir) -> None:
        """Let a broker take over that begins on what ``prepare`` makes, and return once it accepts requests: by default
        it is as the first one was at its start.

        Connections are closed, and what the last broker had is removed. Raises `CannotStart`.
        """
        async with self._changing:
            if self.is_ending:
                raise CannotDo("the broker ends")
            former = self.data_directory
            await self._stop()
            await self._start(prepare)
            asyncio.get_running_loop().run_in_executor(None, _remove, former)

    @asynccontextmanager
    async def while_it_stays(self) -> AsyncIterator[BrokerServer]:
        """The broker of now, which no other broker replaces meanwhile."""
        async with self._changing:
            yield self.server

    async def stop(self) -> None:
        """Stop the broker and close the ports."""
        self.is_ending = True
        async with self._changing:
            await self._stop()
            for one in self._sockets:
                one.close()

    @property
    def data_directory(self) -> Path:
        """Where the broker of now keeps its data."""
        return self._directory / str(self._brokers)

    async def _start(self, prepare: Prepare) -> None:
        self._brokers += 1
        self._bound = 0
        loggers.restore_levels(self._log_levels)
        prepare(self.data_directory)
        self.clock = self._make_clock()
        for begin in self.on_change:
            begin()
        server = BrokerServer(
            self._settings.replace(log_dirs=(str(self.data_directory),), metadata_log_dir=None),
            clock=TellingClock(self.clock, self.happenings.tell),
            # A client that closes waits for its last fetch, so that fetches wait by a clock that goes on.
            fetch_clock=TellingClock(self._make_clock_that_goes(), self.happenings.tell),
            worker=self.happenings.worker,
            around_requests=self._wrapped,
            files=TestFiles(self.goes_wrong),
            bind=self._bind,
        )
        self._server = server  # whose first request may come before `start` returns
        await server.start()
        self.happenings.tell()

    def _wrapped(self, handle: Handle) -> Handle:
        wrapped = handle
        for wrap in self.around_requests:
            wrapped = wrap(wrapped)

        def serve(slot: ResponseSlot) -> None:
            # What a broker that ends has still in its queue is nobody's business.
            (handle if self._server is None else wrapped)(slot)

        return serve

    async def _stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            # A client that does not take its last answers would hold the stop for seconds.
            server.socket_server.abort()
            try:
                await server.stop()
            except Exception:
                log.exception("the broker before has not stopped in order")

    def _make_clock(self) -> Clock:
        loop = asyncio.get_running_loop()
        if self._settings.ottla_clock == MANUAL:
            return ManualClock(now_ms=int(self._wall_seconds() * 1000), monotonic_ms=int(loop.time() * 1000))
        return self._make_clock_that_goes()

    def _make_clock_that_goes(self) -> LoopClock:
        return LoopClock(asyncio.get_running_loop(), self._wall_seconds)

    def _bind(self, host: str, port: int, options: SocketOptions) -> socket.socket:
        """A socket of this address: the second broker gets what the first one had. Raises `OSError`."""
        if self._bound == len(self._sockets):
            self._sockets.append(bound_socket(host, port, options))
        self._bound += 1
        return self._sockets[self._bound - 1].dup()


def _remove(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
