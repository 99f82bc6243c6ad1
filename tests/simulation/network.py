"""SimulatedNetwork: machines by name, and the streams of bytes between them, below the broker's own connections.

the bytes of a stream   arrive in their order, in pieces, after delays that the seed chooses; each connection has
                        delays of its own, so what is sent over two of them may be overtaken
a lost connection       ends at any byte: what is under way is dropped, and both ends see a reset, each at its own
                        time; one of them perhaps much later
a partition             holds everything between two machines until it heals, as TCP sends again what was lost; a
                        connection may also be lost over it
a killed process        its machine closes its connections: the other ends see that after a delay
a machine without power sends nothing: the other ends learn of it when they send something to the machine that has
                        started again, or from their own time-outs
"""

import asyncio
import contextvars
import errno
import os
import socket
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from broker.network.socket_options import SocketOptions
from broker.peers.connector import PeerTransport
from broker.peers.endpoint import PeerEndpoint
from storage.batch.record_batch import HEADER_SIZE, computed_crc
from tests.simulation.loop import Pollable, SimulatedLoop
from tests.simulation.process import CURRENT, SimulatedProcess
from tests.simulation.trace import Trace

FIRST_DESCRIPTOR: Final = 1 << 30
"""No real descriptor is as high: a call to the system with one of these fails (EBADF)."""

FIRST_PORT: Final = 40_000
"""The first port of those that clients get."""

WINDOW_BYTES: Final = 65_536
"""Bytes that a stream holds, sent and not received."""

CONNECT_TIMEOUT_S: Final = 10.0

LENGTH_BYTES: Final = 12
"""The base offset and the length of a batch, which the length does not count."""
CRC_COVERS_FROM: Final = 21
"""The bytes of a batch in front of this place are not covered by its CRC."""

_NOBODY: Final = contextvars.Context()
"""The network's own callbacks belong to no process: what was sent arrives although its sender has died."""


def _system_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def _is_between_brokers(sender: "SimulatedSocket") -> bool:
    return all(one.process.files is not None for one in (sender, sender.other))


def _first_batch_bytes(data: bytes) -> int:
    """The size of the record batch that these bytes begin with; 0 if they begin with none, or with a part of one."""
    if len(data) < HEADER_SIZE or data[16] != 2:
        return 0
    size = int.from_bytes(data[8:12], "big") + LENGTH_BYTES
    is_batch = HEADER_SIZE <= size <= len(data) and computed_crc(data, 0, size) == int.from_bytes(data[17:21], "big")
    return size if is_batch else 0


@dataclass(slots=True)
class Weather:
    """What the network is like. Times are in seconds; shares are of all pieces."""

    shortest_s: float = 0.000_05
    longest_s: float = 0.002
    slow_share: float = 0.02
    """The share of pieces that take `slowest_s` at most."""
    slowest_s: float = 0.2
    loss_share: float = 0.001
    damage_share: float = 0.0
    """The share of batches among those that brokers send to each other whose bytes are damaged on the way."""
    """The share of pieces whose connection is lost."""
    torn_share: float = 0.2
    """The share of sends that are taken in part, or that arrive in two pieces."""


class SimulatedSocket(Pollable):
    """One end of a connection, with those methods of a `socket.socket` that the broker calls."""

    def __init__(self, network: "SimulatedNetwork", process: SimulatedProcess, address: tuple[str, int]) -> None:
        self.network = network
        self.process = process
        self.address = address
        self.descriptor = network.new_descriptor()
        self.other: SimulatedSocket
        """The other end."""
        self._arrived: deque[memoryview] = deque()
        self._arrived_bytes = 0
        self._under_way_bytes = 0
        """Bytes that are on their way to the other end."""
        self._next_arrival_s = 0.0
        """Nothing that is sent to this end arrives before this time."""
        self.is_closed = False
        self.is_aborted = False
        """Whether it was closed in haste: what was sent, and has not arrived, does not arrive any more."""
        self.is_reset = False
        self.has_ended = False
        """Whether the other end sends no more; what has arrived may still be received."""
        network.loop.watch(self)

    def __repr__(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    # As the loop sees it

    def is_readable(self) -> bool:
        return bool(self._arrived) or self.has_ended or self.is_reset

    def is_writable(self) -> bool:
        return self.is_reset or self._room > 0

    @property
    def _room(self) -> int:
        return WINDOW_BYTES - self._under_way_bytes - self.other._arrived_bytes

    # As its owner sees it

    def fileno(self) -> int:
        return -1 if self.is_closed else self.descriptor

    def setblocking(self, flag: bool) -> None:
        assert not flag

    def setsockopt(self, *options: Any) -> None:
        """Every option is taken, and none has an effect."""

    def getsockopt(self, *options: Any) -> bytes:
        raise _system_error(errno.ENOPROTOOPT)

    def getsockname(self) -> tuple[str, int]:
        return self.address

    def recv_into(self, memory: memoryview) -> int:
        self._check()
        received = 0
        while self._arrived and received < len(memory):
            piece = self._arrived[0]
            taken = min(len(piece), len(memory) - received)
            memory[received : received + taken] = piece[:taken]
            received += taken
            if taken == len(piece):
                self._arrived.popleft()
            else:
                self._arrived[0] = piece[taken:]
        if received:
            self._arrived_bytes -= received
            self.network.loop.may_be_ready(self.other.descriptor)
            return received
        if self.has_ended:
            return 0
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    def send(self, data: bytes | bytearray | memoryview, flags: int = 0) -> int:
        self._check()
        taken = min(self._room, len(data))
        if taken <= 0:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        network = self.network
        if taken > 1 and network.random.random() < network.weather.torn_share:
            taken = network.random.randint(1, taken)
        network.send(self, bytes(memoryview(data)[:taken]))
        return taken

    def sendmsg(self, pieces: Sequence[bytes], ancillary: Any = (), flags: int = 0) -> int:
        return self.send(b"".join(pieces), flags)

    def close(self) -> None:
        """Close this end; what was sent still arrives, and then the end."""
        if not self.is_closed:
            self.is_closed = True
            self.network.loop.unwatch(self.descriptor)
            self.network.closed(self)

    def _check(self) -> None:
        if self.is_closed:
            raise _system_error(errno.EBADF)
        if self.is_reset:
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))

    # As the network sees it

    def sent(self, size: int) -> None:
        self._under_way_bytes += size

    def arrives(self, data: bytes) -> None:
        """A piece arrives at this end."""
        self.other._under_way_bytes -= len(data)
        self._arrived.append(memoryview(data))
        self._arrived_bytes += len(data)
        self._may_be_ready()

    def ends(self) -> None:
        """The end of the stream arrives."""
        self.has_ended = True
        self._may_be_ready()

    def reset(self) -> None:
        """A reset arrives: nothing more can be sent or received."""
        self.is_reset = True
        self._arrived.clear()
        self._arrived_bytes = 0
        self._may_be_ready()

    def arrival_s(self, delay_s: float) -> float:
        """When something arrives at this end that is sent now and takes so long: not before what was sent before."""
        self._next_arrival_s = max(self._next_arrival_s, self.network.loop.time() + delay_s)
        return self._next_arrival_s

    def _may_be_ready(self) -> None:
        if not self.is_closed:
            self.network.loop.may_be_ready(self.descriptor)


class SimulatedListener(Pollable):
    """A listening socket, with those methods of a `socket.socket` that the broker calls."""

    def __init__(self, network: "SimulatedNetwork", process: SimulatedProcess, address: tuple[str, int]) -> None:
        self._network = network
        self.process = process
        self.address = address
        self.descriptor = network.new_descriptor()
        self._backlog: deque[SimulatedSocket] = deque()
        self.is_listening = False
        network.loop.watch(self)

    def is_readable(self) -> bool:
        return bool(self._backlog)

    def is_writable(self) -> bool:
        return False

    def fileno(self) -> int:
        return self.descriptor

    def getsockname(self) -> tuple[str, int]:
        return self.address

    def getsockopt(self, *options: Any) -> bytes:
        raise _system_error(errno.ENOPROTOOPT)

    def setsockopt(self, *options: Any) -> None:
        """Every option is taken, and none has an effect."""

    def listen(self, backlog: int) -> None:
        self.is_listening = True

    def accept(self) -> tuple[SimulatedSocket, tuple[str, int]]:
        if not self._backlog:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        accepted = self._backlog.popleft()
        host, port = accepted.other.address
        return accepted, (self._network.ip_address(host), port)

    def wants_in(self, accepted: SimulatedSocket) -> None:
        """A connection is made, and waits to be accepted."""
        self._backlog.append(accepted)
        self._network.loop.may_be_ready(self.descriptor)

    def close(self) -> None:
        self._network.loop.unwatch(self.descriptor)
        self._network.unbind(self)
        for waiting in self._backlog:
            waiting.close()


class SimulatedNetwork:
    """All machines, listeners and connections of a run."""

    def __init__(self, loop: SimulatedLoop, random: Random, trace: Trace) -> None:
        self.loop = loop
        self.random = random
        self.trace = trace
        self.weather = Weather()
        self._descriptors = FIRST_DESCRIPTOR
        self._ports = FIRST_PORT
        self._listeners: dict[tuple[str, int], SimulatedListener] = {}
        self._sockets: dict[SimulatedSocket, None] = {}
        """Ends that are open, in the order in which they were made."""
        self._parted: dict[frozenset[str], list[Any]] = {}
        """Pairs of machines that a partition holds apart, with what waits for its end."""
        self._ip_addresses: dict[str, str] = {}
        self.without_power: set[str] = set()
        """Machines that are off."""

    def new_descriptor(self) -> int:
        self._descriptors += 1
        return self._descriptors

    def ip_address(self, host: str) -> str:
        """The address of a machine, as the system tells it of a connection."""
        return self._ip_addresses.setdefault(host, f"10.0.0.{len(self._ip_addresses) + 1}")

    # Listening and connecting

    def bind(self, host: str, port: int, options: SocketOptions) -> socket.socket:
        """Stands in for `broker.network.socket_options.bound_socket`, for the process that calls it."""
        process = CURRENT.get()
        assert process is not None
        assert port, "a port of the simulated network is given"
        address = process.host, port
        if address in self._listeners:
            raise _system_error(errno.EADDRINUSE)
        listener = self._listeners[address] = SimulatedListener(self, process, address)
        return listener  # type: ignore[return-value]  # it has what an acceptor calls

    def unbind(self, listener: SimulatedListener) -> None:
        if self._listeners.get(listener.address) is listener:
            del self._listeners[listener.address]

    async def connect(self, process: SimulatedProcess, host: str, port: int) -> SimulatedSocket:
        """Make a connection of ``process``. Raises `OSError`."""
        made: asyncio.Future[SimulatedSocket] = self.loop.create_future()

        def arrives() -> None:
            if made.done() or process.is_dead or host in self.without_power:
                return
            listener = self._listeners.get((host, port))
            if listener is None or not listener.is_listening:
                self._later(host, process.host, self._delay_s(), refused)
                return
            self._ports += 1
            ours = SimulatedSocket(self, process, (process.host, self._ports))
            theirs = SimulatedSocket(self, listener.process, (host, port))
            ours.other, theirs.other = theirs, ours
            self._sockets[ours] = self._sockets[theirs] = None
            self.trace.add(f"connected {ours!r} with {theirs!r}")
            listener.wants_in(theirs)
            self._later(host, process.host, theirs.arrival_s(self._delay_s()) - self.loop.time(), accepted, ours)

        def accepted(ours: SimulatedSocket) -> None:
            if made.done() or process.is_dead:
                ours.close()
            else:
                made.set_result(ours)

        def refused() -> None:
            if not made.done():
                made.set_exception(ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED)))

        self._later(process.host, host, self._delay_s(), arrives)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                return await made
        except TimeoutError:
            raise TimeoutError(errno.ETIMEDOUT, f"no connection with {host}:{port}") from None

    # Moving bytes

    def send(self, sender: SimulatedSocket, data: bytes) -> None:
        """Bytes leave: they arrive later, as a whole or in two pieces, or their connection is lost."""
        random, weather = self.random, self.weather
        self.trace.add(f"sent {sender!r}", data)
        sender.sent(len(data))
        if weather.damage_share and _is_between_brokers(sender):
            data = self._perhaps_damaged(data)
        if random.random() < weather.loss_share:
            kept = random.randint(0, len(data))
            if kept:
                self._deliver(sender, data[:kept])
            self.lose(sender)
            return
        if len(data) > 1 and random.random() < weather.torn_share:
            cut = random.randint(1, len(data) - 1)
            self._deliver(sender, data[:cut])
            self._deliver(sender, data[cut:])
        else:
            self._deliver(sender, data)

    def _perhaps_damaged(self, data: bytes) -> bytes:
        """The bytes; if they begin with a batch, one bit of it may be another, as its CRC shows."""
        size = _first_batch_bytes(data)
        if not size or self.random.random() >= self.weather.damage_share:
            return data
        place = self.random.randrange(CRC_COVERS_FROM, size)
        self.trace.add(f"damaged at {place}")
        return data[:place] + bytes([data[place] ^ (1 << self.random.randrange(8))]) + data[place + 1 :]

    def _deliver(self, sender: SimulatedSocket, data: bytes) -> None:
        receiver = sender.other
        self._to(receiver, lambda: self._arrive(receiver, data))

    def _arrive(self, receiver: SimulatedSocket, data: bytes) -> None:
        if receiver.is_reset or receiver.other.is_reset or receiver.other.is_aborted:
            return
        if receiver.is_closed:
            # Whoever sends to a closed end is answered by a reset; a machine without power answers nothing.
            if receiver.process.host not in self.without_power:
                self._to(receiver.other, receiver.other.reset)
            return
        receiver.arrives(data)

    def _to(self, receiver: SimulatedSocket, callback: Any) -> None:
        """Let something arrive at an end, behind all that was sent to it before."""
        at_s = receiver.arrival_s(self._delay_s())
        self._later(receiver.other.process.host, receiver.process.host, at_s - self.loop.time(), callback)

    def _later(self, sender: str, receiver: str, delay_s: float, callback: Any, *arguments: Any) -> None:
        pair = frozenset((sender, receiver))

        def arrives() -> None:
            held = self._parted.get(pair)
            if held is None:
                callback(*arguments)
            else:
                held.append(lambda: callback(*arguments))

        self.loop.call_at(self.loop.time() + delay_s, arrives, context=_NOBODY)

    def _delay_s(self) -> float:
        random, weather = self.random, self.weather
        if random.random() < weather.slow_share:
            return random.uniform(weather.longest_s, weather.slowest_s)
        return random.uniform(weather.shortest_s, weather.longest_s)

    # Ends

    def closed(self, end: SimulatedSocket) -> None:
        """An end was closed by its process."""
        self._sockets.pop(end, None)
        if not end.is_reset:
            self.trace.add(f"closed {end!r}")
            unread = end._arrived_bytes > 0
            self._to(end.other, end.other.reset if unread else end.other.ends)

    def lose(self, end: SimulatedSocket) -> None:
        """The connection is lost: each end sees it at its own time, one of them perhaps much later."""
        self.trace.add(f"lost {end!r}")
        for one in (end, end.other):
            delay_s = self._delay_s() if self.random.random() < 0.8 else self.random.uniform(0.1, 20.0)
            self.loop.call_at(self.loop.time() + delay_s, one.reset, context=_NOBODY)

    def process_died(self, process: SimulatedProcess, *, has_power: bool) -> None:
        """The process has been killed, or its machine has lost its power (then nobody is told)."""
        for listener in [one for one in self._listeners.values() if one.process is process]:
            self.loop.unwatch(listener.descriptor)
            self.unbind(listener)
        for end in [one for one in self._sockets if one.process is process]:
            self._sockets.pop(end, None)
            end.is_closed = True
            self.loop.unwatch(end.descriptor)
            if has_power:
                self._to(end.other, end.other.reset if end._arrived_bytes else end.other.ends)

    def part(self, one: str, other: str) -> None:
        """Hold two machines apart."""
        if self._parted.setdefault(frozenset((one, other)), []) == []:
            self.trace.add(f"parted {one} from {other}")

    def heal(self, one: str, other: str) -> None:
        """Bring two machines together again: what was held arrives in its order."""
        held = self._parted.pop(frozenset((one, other)), None)
        if held is None:
            return
        self.trace.add(f"together {one} and {other}")
        for arrives in held:
            self.loop.call_soon(arrives, context=_NOBODY)

    def heal_all(self) -> None:
        """End every partition."""
        for pair in list(self._parted):
            self.heal(*sorted(pair))


class SimulatedConnector:
    """A `broker.peers.connector.Connector` on the simulated network."""

    def __init__(self, network: SimulatedNetwork) -> None:
        self._network = network

    async def connect(self, endpoint: PeerEndpoint, receiver: asyncio.BufferedProtocol) -> PeerTransport:
        process = CURRENT.get()
        assert process is not None, "only a process makes connections"
        made = await self._network.connect(process, endpoint.host, endpoint.port)
        return StreamTransport(self._network.loop, made, receiver)


class StreamTransport:
    """A `PeerTransport` of a simulated socket: hands on what arrives, and keeps what the socket does not take yet."""

    def __init__(self, loop: SimulatedLoop, connected: SimulatedSocket, receiver: asyncio.BufferedProtocol) -> None:
        self._loop = loop
        self._socket = connected
        self._receiver = receiver
        self._unsent = bytearray()
        self._is_over = False
        loop.add_reader(connected.descriptor, self._on_readable)

    def write(self, data: bytes) -> None:
        if self._is_over:
            return
        if self._unsent:
            self._unsent += data
            return
        self._unsent += data
        self._send()

    def abort(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._unsent.clear()
            self._socket.is_aborted = True
            self._socket.close()
            self._loop.call_soon(self._receiver.connection_lost, None)

    def _send(self) -> None:
        try:
            while self._unsent:
                sent = self._socket.send(self._unsent)
                del self._unsent[:sent]
        except BlockingIOError:
            self._loop.add_writer(self._socket.descriptor, self._on_writable)
        except OSError as error:
            self._lost(error)

    def _on_writable(self) -> None:
        self._loop.remove_writer(self._socket.descriptor)
        self._send()

    def _on_readable(self) -> None:
        memory = memoryview(self._receiver.get_buffer(-1))
        assert memory, "a transport of uvloop ends by an error where a protocol has no room"
        try:
            received = self._socket.recv_into(memory)
        except BlockingIOError:
            return
        except OSError as error:
            self._lost(error)
            return
        if received:
            self._receiver.buffer_updated(received)
        else:
            self._lost(None)

    def _lost(self, error: OSError | None) -> None:
        if not self._is_over:
            self._is_over = True
            self._socket.close()
            # As asyncio's transports do it: never from within a call of the receiver.
            self._loop.call_soon(self._receiver.connection_lost, error)
