"""A whole broker and any bytes on a connection to it: each request is answered or the connection closed, nothing is
held afterwards, nothing is unexpected, and the connection beside it is answered as before.

    how u8: 0 in one piece, n < 64 in pieces of n bytes; +128 hung up at the end | what a peer sends
"""

import asyncio
import atexit
import logging
import random
import shutil
import socket
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from broker.controller import topic_creation
from broker.dispatch.dispatcher import Dispatcher
from broker.dispatch.handler_pool import MOST_A_TURN, evaluate
from broker.network.buffer_pool import BufferPool, RequestMemory
from broker.network.connection import Connection
from broker.network.connection_limits import ConnectionLimits
from broker.network.processor import Processor, monotonic_us
from broker.network.processor_state import NetworkSettings
from broker.network.transport import PlaintextTransport, Transport
from broker.request.channel import RequestChannel
from broker.request.session import Peer, Session
from broker.request.stats import HandlerTurn
from protocol.headers import encode_request
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.topics import DeleteTopicsRequest
from tests.fuzz.batch_mutations import any_batch_changed
from tests.fuzz.decoders import REQUESTS, filled, versions_of
from tests.support.batches import EVERY_CODEC, produced
from tests.support.broker import InProcessBroker
from tests.support.requests import fetch_request, produce_request

PACKAGES = ("broker", "protocol", "storage")
MOST_BYTES = 1500

HANGS_UP = 0x80
_PIECE = 0x3F
_MOST_PIECES = 100
_MOST_TURNS = 20_000
_MOST_REQUEST = 4096
_MOST_TOPICS = 40
_MOST_ANSWERED = 16 << 20
_MOST_LOGGED = 1 << 18
_GOLDEN = Path(__file__).resolve().parent.parent / "golden"
ORDERS_ID = bytes(15) + b"\1"


class CountingIds:
    """The same ids in every run."""

    def __init__(self) -> None:
        self.given = 0

    def uuid(self) -> bytes:
        self.given += 1
        return self.given.to_bytes(16)


class Unexpected(logging.Handler):
    """Keeps what the broker says of its own bugs."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(self.format(record))


class Wires:
    """The part of an event loop that connections need, turned by hand: a try costs a tenth of what it costs in asyncio,
    and the order of things is the same each time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.create_future = loop.create_future
        self._readers: dict[int, Callable[[], None]] = {}
        self._writers: dict[int, Callable[[], None]] = {}
        self._soon: deque[Callable[[], None]] = deque()

    def add_reader(self, fd: int, callback: Callable[[], None]) -> None:
        self._readers[fd] = callback

    def remove_reader(self, fd: int) -> None:
        self._readers.pop(fd, None)

    def add_writer(self, fd: int, callback: Callable[[], None]) -> None:
        self._writers[fd] = callback

    def remove_writer(self, fd: int) -> None:
        self._writers.pop(fd, None)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._soon.append(callback)

    def read(self) -> None:
        for callback in tuple(self._readers.values()):
            callback()

    def write(self) -> None:
        while self._soon:
            self._soon.popleft()()
        for callback in tuple(self._writers.values()):
            callback()


class Victim:
    """The broker that is tried: its handlers below a processor of ours. A new one takes its place when too much has
    been created in it."""

    def __init__(
        self,
        make_session: Callable[[InProcessBroker], Session] | None = None,
        make_transport: Callable[[socket.socket], Transport] = PlaintextTransport,
    ) -> None:
        """``make_session`` and ``make_transport``: of the connection that the bytes come in on."""
        self._make_transport = make_transport
        self._make_session = make_session or (lambda broker: _plain_session())
        self.unexpected = Unexpected()
        logging.getLogger().addHandler(self.unexpected)
        self._asked = encode_request(1, "neighbour", ApiVersionsRequest(), 0)
        self._begin()
        atexit.register(self._end)

    def _begin(self) -> None:
        self._directory = tempfile.mkdtemp(prefix="frames-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
        self.broker = InProcessBroker(Path(self._directory), ids=CountingIds(), num_partitions=1)
        for name in ("orders", "golden"):
            self.broker.create_topic(name)
        self._dispatcher = Dispatcher(self.broker.server.registry)
        self._wires = Wires(self.broker.run(_running_loop()))
        self._channel = RequestChannel(500)
        self._memory = RequestMemory(1 << 20, self._wires.call_soon, self.broker.clock)
        self._processor = Processor(
            0,
            loop=self._wires,  # type: ignore[arg-type]
            clock=self.broker.clock,
            channel=self._channel,
            pool=BufferPool(self._memory, self.broker.clock),
            settings=NetworkSettings(socket_request_max_bytes=_MOST_REQUEST),
            limits=ConnectionLimits(),
        )
        self._neighbour, _ = self._connect(_plain_session(), PlaintextTransport)
        self.unexpected.said.clear()

    def _end(self) -> None:
        self._processor.close()
        self._neighbour.close()
        self.broker.close()
        shutil.rmtree(self._directory)

    def _connect(
        self, session: Session, make_transport: Callable[[socket.socket], Transport]
    ) -> tuple[socket.socket, Connection]:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        return ours, self._processor.adopt(make_transport(theirs), session)

    def renew_if_full(self) -> None:
        """Begin anew with an empty broker where this one has become another."""
        topics = self.broker.server.components.metadata.image.topics.by_name
        if (
            len(topics) > _MOST_TOPICS
            or "orders" not in topics
            or len(topics["orders"].partitions) != 1
            or self.broker.log("orders").size > _MOST_LOGGED
        ):
            self._end()
            self._begin()

    def _turn(self) -> None:
        """Read, handle, send: one turn of the loop."""
        self.broker.clock.advance(0)
        self._wires.read()
        while len(self._channel):
            turn = HandlerTurn(monotonic_us())
            try:
                self._channel.take(MOST_A_TURN).send(None)
            except StopIteration as taken:
                for slot in taken.value:
                    evaluate(slot, turn, self._dispatcher.handle)
            self.broker.server.components.replicas.appender.write_staged()
            turn.ended_us = monotonic_us()
        self._wires.write()

    def converse(self, pieces: Iterable[bytes], hangs_up: bool) -> Session:
        """Send the pieces and take the answers, until the broker closes. Returns the session of the connection."""
        session = self._make_session(self.broker)
        ours, connection = self._connect(session, self._make_transport)
        answered = 0
        try:
            for piece in pieces:
                try:
                    ours.send(piece)
                except (BrokenPipeError, ConnectionResetError):
                    break  # closed already
                self._turn()
                answered += _taken(ours)
            if hangs_up:
                ours.close()
            else:
                ours.shutdown(socket.SHUT_WR)
            for turn in range(_MOST_TURNS):
                self._turn()
                if connection.is_closed and not self._memory.used_bytes:
                    break
                if not hangs_up:
                    answered += _taken(ours)
                if turn % 4 == 3:
                    # Whoever waits has waited long enough; a topic is created by way of a thread.
                    of = self.broker.server.components.replicas
                    for purgatory in (of.produce_purgatory, of.fetch_purgatory, of.delete_records_purgatory):
                        purgatory.expire_all()
                    self.broker.run(asyncio.sleep(0 if turn < 8 else 0.0002))
            assert connection.is_closed, f"neither answered nor closed: {connection}"
            assert self._memory.used_bytes == 0, f"{self._memory.used_bytes} bytes are held for nobody"
            assert answered < _MOST_ANSWERED, f"answered with {answered} bytes"
            self._neighbour.send(self._asked)
            self._turn()
            assert self._neighbour.recv(1000)[4:10] == b"\0\0\0\1\0\0", "the neighbour is not answered"
        finally:
            ours.close()
        return session


def _plain_session() -> Session:
    return Session(Peer(host="10.0.0.1", port=4711, listener="PLAINTEXT"))


async def _running_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def _taken(ours: socket.socket) -> int:
    try:
        return len(ours.recv(1 << 16))
    except (BlockingIOError, ConnectionResetError):
        return 0


_victim: Victim | None = None


def check(data: bytes) -> None:
    """Send ``data`` as its first byte says."""
    global _victim
    if not data:
        return
    most_partitions = topic_creation.MAX_PARTITIONS_PER_REQUEST
    # Ten thousand partitions, which one request may ask for, would take the time of all other tries.
    topic_creation.MAX_PARTITIONS_PER_REQUEST = 20  # type: ignore[misc]
    try:
        if _victim is None:
            _victim = Victim()
        attack(_victim, data)
    finally:
        topic_creation.MAX_PARTITIONS_PER_REQUEST = most_partitions  # type: ignore[misc]


def attack(victim: Victim, data: bytes) -> Session:
    """Send ``data`` to a victim as its first byte says. Returns the session of the connection."""
    victim.unexpected.said.clear()
    session = victim.converse(_pieces(data), bool(data[0] & HANGS_UP))
    assert not victim.unexpected.said, "\n".join(victim.unexpected.said)
    assert victim.broker.server.failure is None, victim.broker.server.failure
    victim.renew_if_full()
    return session


def _pieces(data: bytes) -> Iterator[bytes]:
    stream = data[1:]
    size = data[0] & _PIECE or len(stream) or 1
    cut = min(size * _MOST_PIECES, len(stream))
    for start in range(0, cut, size):
        yield stream[start : min(start + size, cut)]
    if cut < len(stream):
        yield stream[cut:]


# Mutation that knows the form -----------------------------------------------------------------------------------------


def mutate(data: bytes, most_bytes: int, seed: int, any_change: Callable[[bytes, int], bytes]) -> bytes:
    """Change how it is sent, the bytes of one request (its size made right again), their order, or any bytes."""
    chance = random.Random(seed)
    how = data[:1] or b"\0"
    frames = list(_frames(data[1:]))
    if not frames or not chance.randrange(10):
        return any_change(data, most_bytes)
    number = chance.randrange(len(frames))
    match chance.randrange(12):
        case 0:
            how = bytes([chance.choice((0, 0, 1, 3, 4, 5, 17, HANGS_UP, HANGS_UP | 7))])
        case 1:
            frames.insert(number, chance.choice(_dictionary()))
        case 2:
            frames.insert(number, frames[number])
        case 3 if len(frames) > 1:
            del frames[number]
        case 4:
            frames[number] = any_batch_changed(frames[number], chance)
        case _:
            frames[number] = any_change(frames[number], 2000)
    return (how + b"".join(len(frame).to_bytes(4) + frame for frame in frames))[:most_bytes]


def _frames(stream: bytes) -> Iterator[bytes]:
    position = 0
    while len(stream) - position > 4:
        size = int.from_bytes(stream[position : position + 4], signed=True)
        if not 0 < size <= len(stream) - position - 4:
            return
        position += 4 + size
        yield stream[position - size : position]


_requests: list[bytes] = []


def _dictionary() -> list[bytes]:
    if not _requests:
        _requests.extend(_all_requests())
    return _requests


def _all_requests() -> Iterator[bytes]:
    """A request of every API that is declared, in every version, and those that clients were seen to send."""
    for cls in REQUESTS.values():
        for version in versions_of(cls):
            for count in (0, 1):
                yield encode_request(count, "fuzz", filled(cls, version, count), version)[4:]
    for path in sorted(_GOLDEN.glob("*/*.request.hex")):
        yield bytes.fromhex(path.read_text())
    for codec in EVERY_CODEC:
        for version, topic_id in ((3, bytes(16)), (9, bytes(16)), (13, ORDERS_ID)):
            batch = produced(2, codec=codec)
            for acks in (-1, 0):
                request = produce_request("orders", batch, acks=acks, topic_id=topic_id)
                yield encode_request(1, "fuzz", request, version)[4:]
    for version, topic_id in ((4, bytes(16)), (12, bytes(16)), (17, ORDERS_ID)):
        yield encode_request(2, "fuzz", fetch_request("orders", topic_id=topic_id), version)[4:]
        waiting = fetch_request("orders", topic_id=topic_id, offset=1 << 40, max_wait_ms=500, min_bytes=9999)
        yield encode_request(3, "fuzz", waiting, version)[4:]
    deletion = DeleteTopicsRequest(topic_names=["golden"], timeout_ms=1000)
    yield encode_request(4, "fuzz", deletion, 5)[4:]


def seeds() -> Iterator[bytes]:
    """Each request alone, all at once, and what is no request."""
    requests = list(_all_requests())
    for number, request in enumerate(requests):
        yield bytes([(0, 7, HANGS_UP)[number % 3]]) + len(request).to_bytes(4) + request
    rng = random.Random(1)
    for _ in range(40):
        some = rng.sample(requests, 4)
        yield bytes([rng.choice((0, 13))]) + b"".join(len(frame).to_bytes(4) + frame for frame in some)
    yield b"\0GET / HTTP/1.1\r\nHost: broker\r\n\r\n"
    yield bytes.fromhex("00 16030100c8010000c40303") + bytes(32)
    for size in (0, -1, 4097, 2**31 - 1, -(2**31)):
        yield b"\0" + size.to_bytes(4, signed=True) + b"rest"
