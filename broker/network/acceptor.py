"""One listener: it accepts connections, as far as the limits allow, and hands them to the processors in turn."""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from broker.network.connection_limits import ConnectionLimits
from broker.network.processor import Processor
from broker.network.socket_options import SocketOptions, bound_socket, is_loopback, leave_unpaced, plain_address
from broker.network.transport import PlaintextTransport, SendfileRefusals, Transport
from broker.request.session import Peer, Session
from broker.runtime.clock import Alarm, Clock

if TYPE_CHECKING:
    from broker.request.gate import Gate
    from broker.request.permissions import Authorizer

log = logging.getLogger(__name__)

MOST_A_TURN: Final = 32
"""Connections accepted before the loop turns."""

MOST_REFUSED: Final = 256
"""Connections that are held until they are closed for the quota of their address; more of them are closed at once."""

REST_MS: Final = 1_000
"""How long nothing is accepted when the system is out of descriptors or memory, or forbids it."""

_OF_THE_PEER: Final = frozenset(
    {
        *(errno.ECONNABORTED, errno.ECONNRESET, errno.EPROTO, errno.ETIMEDOUT, errno.ENETDOWN, errno.ENETUNREACH),
        *(errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENOPROTOOPT, errno.EOPNOTSUPP),
    }
)
"""The errors of accept(2) that belong to one connection, which is no longer in the backlog. After another error (no
descriptor, no memory, a sandbox that forbids the call) the listener would be acceptable again at once."""


Bind = Callable[[str, int, SocketOptions], socket.socket]
"""Makes a socket that has this host and port, and does not listen yet. Raises `OSError`."""

MakeTransport = Callable[[socket.socket], Transport]
"""Makes the transport of a connection that was accepted. Raises `OSError`."""


class CannotListen(Exception):
    """A listener that cannot be opened: which, and why."""


class AcceptorStats:
    """What an acceptor has counted."""

    __slots__ = ("accepted", "blocked_ms", "delayed", "refused", "rests")

    def __init__(self) -> None:
        self.accepted = 0
        self.refused = 0
        """Connections closed for the limits of their address."""
        self.blocked_ms = 0
        """Time in which no connection was accepted for a limit on connections, or on new ones a second."""
        self.delayed = 0
        """Connections that had to wait because there were too many new ones a second."""
        self.rests = 0
        """Times the system had no descriptor or memory for another connection."""


class Acceptor:
    """The listening socket of one listener."""

    def __init__(
        self,
        listener: str,
        host: str,
        port: int,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        processors: Sequence[Processor],
        limits: ConnectionLimits,
        options: SocketOptions,
        refusals: SendfileRefusals | None = None,
        backlog: int = 50,
        bind: Bind = bound_socket,
        is_for_controllers: bool = False,
        make_gate: "Callable[[], Gate] | None" = None,
        make_transport: MakeTransport | None = None,
        authorizer: "Authorizer | None" = None,
    ) -> None:
        """``is_for_controllers``: the listener's connections are served the APIs of a controller. ``make_gate``: asks a
        client of the listener who it is. ``make_transport``: for listeners whose bytes are not plain. ``authorizer``
        knows what clients may do."""
        self.listener = listener
        self.host = host
        """Empty: every address of this machine."""
        self.port = port
        """0 until `bind` has found a free one."""
        self.stats = AcceptorStats()
        self._loop = loop
        self._clock = clock
        self._processors = processors
        self._limits = limits
        self._options = options
        self._refusals = refusals
        self._backlog = backlog
        self._bind = bind
        self.is_for_controllers = is_for_controllers
        self.is_local = True
        """Whether only this machine can connect, once `bind` was called."""
        self._make_gate = make_gate
        self._authorizer = authorizer
        self._make_transport = make_transport or self._plain_transport
        self._next_processor = 0
        self._socket: socket.socket | None = None
        self._system_control: bytes | None = None
        """The system's congestion control, where this listener's connections begin with another one."""
        self._is_accepting = False
        self._alarm: Alarm | None = None
        """When the rest is over, or the delay of a connection."""
        self._delayed: tuple[socket.socket, str, int] | None = None
        """A connection that came too early, with its address and port; the connections behind it are in the backlog."""
        self._blocked_since_ms: int | None = None
        self._refused: set[socket.socket] = set()
        """Connections that are closed after a while, for the quota of their address."""
        limits.register(listener, self._close_excess)

    def bind(self) -> int:
        """Reserve the address and return its port. No client can connect yet. Raises `CannotListen`."""
        try:
            self._socket = self._bind(self.host, self.port, self._options)
        except OSError as error:
            reason = error.strerror or str(error)
            raise CannotListen(f"{self.listener}://{self.host}:{self.port} cannot be opened: {reason}") from error
        address, self.port = self._socket.getsockname()[:2]
        self.is_local = is_loopback(plain_address(address))
        return self.port

    def start(self) -> None:
        """Accept connections from now on. Raises `CannotListen`."""
        assert self._socket is not None, "bind comes before start"
        try:
            self._system_control = leave_unpaced(self._socket)
            self._socket.listen(self._backlog)
        except OSError as error:
            reason = error.strerror or str(error)
            raise CannotListen(f"{self.listener}://{self.host}:{self.port} cannot listen: {reason}") from error
        self._accept_again()

    def close(self) -> None:
        """Accept nothing more; connections in the backlog are refused by the system."""
        self._pause()
        if self._alarm is not None:
            self._alarm.cancel()
        if self._delayed is not None:
            self._delayed[0].close()
            self._delayed = None
        while self._refused:
            self._refused.pop().close()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _on_acceptable(self) -> None:
        assert self._socket is not None
        for _ in range(MOST_A_TURN):
            if not self._limits.may_accept(self.listener):
                self._wait_for_limit()
                return
            try:
                accepted, address = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno not in _OF_THE_PEER:
                    self._rest(error)
                    return
                # The peer has gone already.
                log.debug("Nothing to accept on %s: %s", self.listener, error)
                continue
            host, port = plain_address(address[0]), address[1]
            delay_ms = self._limits.delay_ms(self.listener, self._clock.monotonic_ms())
            if delay_ms:
                self._delay(accepted, host, port, delay_ms)
                return
            self._admit(accepted, host, port)

    def _admit(self, accepted: socket.socket, host: str, port: int) -> None:
        of_addresses = self._limits.of_addresses
        if of_addresses is not None:
            delay_ms = of_addresses.delay_ms(host, self._clock.monotonic_ms())
            if delay_ms:
                self._close_later(accepted, host, delay_ms)
                return
        if not self._limits.opened(self.listener, host):
            self.stats.refused += 1
            log.info(
                "Refused a connection from %s on %s: it has %d already (max.connections.per.ip)",
                host,
                self.listener,
                self._limits.most_for(host),
            )
            accepted.close()
            return
        # There may be fewer processors than at the last time.
        processor = self._processors[self._next_processor % len(self._processors)]
        self._next_processor = (self._next_processor + 1) % len(self._processors)
        transport: Transport | None = None
        try:
            self._options.prepare_connection(accepted, host, self._system_control)
            transport = self._make_transport(accepted)
            processor.adopt(transport, self.session_of(host, port))
        except OSError as error:
            log.debug("Lost %s:%d before its first request: %s", host, port, error)
            if transport is not None:
                transport.close()
            accepted.close()
            self._limits.closed(self.listener, host)
            return
        self.stats.accepted += 1
        self._close_excess()

    def _plain_transport(self, accepted: socket.socket) -> Transport:
        return PlaintextTransport(accepted, self._refusals)

    def session_of(self, host: str, port: int) -> Session:
        """The session of a new connection from this address."""
        gate = None if self._make_gate is None else self._make_gate()
        return Session(
            Peer(host=host, port=port, listener=self.listener),
            is_authenticated=gate is None,
            is_on_controller_listener=self.is_for_controllers,
            gate=gate,
            authorizer=self._authorizer,
        )

    def _close_excess(self) -> None:
        """Close the idlest connections of unprotected listeners, while there are more than the broker's limit."""
        while self._limits.is_exceeded:
            connections = (connection for processor in self._processors for connection in processor)
            unprotected = (one for one in connections if not self._limits.is_protected(one.peer.listener))
            idlest = min(unprotected, key=lambda one: one.last_active_us, default=None)
            if idlest is None:
                return
            most = self._limits.settings.max_connections
            log.info("Closing %s: the broker has more than %d connections (max.connections)", idlest.peer, most)
            idlest.close()

    def _delay(self, accepted: socket.socket, host: str, port: int, delay_ms: int) -> None:
        """There are too many new connections a second: the newest waits, and those behind it wait in the backlog."""
        self._pause()
        self.stats.delayed += 1
        self._delayed = accepted, host, port
        now_ms = self._clock.monotonic_ms()
        self._blocked_since_ms = now_ms
        self._alarm = self._clock.call_at(now_ms + delay_ms, self._on_delay_over)

    def _close_later(self, accepted: socket.socket, host: str, delay_ms: int) -> None:
        """The address opens too many connections a second. A client that is refused at once would try again at once."""
        self.stats.refused += 1
        log.info(
            "Refused a connection from %s on %s: it opens too many a second (the quota connection_creation_rate)",
            host,
            self.listener,
        )
        if len(self._refused) >= MOST_REFUSED:
            accepted.close()
            return
        self._refused.add(accepted)
        self._clock.call_at(self._clock.monotonic_ms() + delay_ms, lambda: self._close_refused(accepted))

    def _close_refused(self, accepted: socket.socket) -> None:
        accepted.close()
        self._refused.discard(accepted)

    def _on_delay_over(self) -> None:
        self._alarm = None
        self._on_limit_changed()

    def _wait_for_limit(self) -> None:
        """A limit is reached: leave further connections in the backlog until one closes."""
        self._pause()
        self._blocked_since_ms = self._clock.monotonic_ms()
        self._limits.when_changed(self._on_limit_changed)

    def _on_limit_changed(self) -> None:
        if self._socket is None:
            return
        if not self._limits.may_accept(self.listener):
            self._limits.when_changed(self._on_limit_changed)
            return
        if self._blocked_since_ms is not None:
            self.stats.blocked_ms += self._clock.monotonic_ms() - self._blocked_since_ms
            self._blocked_since_ms = None
        if self._delayed is not None:
            delayed, self._delayed = self._delayed, None
            self._admit(*delayed)
        self._accept_again()

    def _rest(self, error: OSError) -> None:
        """The system is out of descriptors or memory, or forbids the call. The connection stays in the backlog, and the
        socket, if it were watched on, would be acceptable again at once."""
        self._pause()
        self.stats.rests += 1
        log.error("%s accepts nothing for %d ms: %s", self.listener, REST_MS, error.strerror or error)
        self._alarm = self._clock.call_at(self._clock.monotonic_ms() + REST_MS, self._on_rested)

    def _on_rested(self) -> None:
        self._alarm = None
        self._accept_again()

    def _pause(self) -> None:
        if self._is_accepting and self._socket is not None:
            self._is_accepting = False
            self._loop.remove_reader(self._socket.fileno())

    def _accept_again(self) -> None:
        if not self._is_accepting and self._socket is not None:
            self._is_accepting = True
            self._loop.add_reader(self._socket.fileno(), self._on_acceptable)
