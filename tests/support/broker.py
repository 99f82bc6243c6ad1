"""A whole broker inside the test: real files, real connections over a socket pair, a clock that the test moves."""

import asyncio
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from broker.network.connection import Connection
from broker.network.transport import PlaintextTransport
from broker.request.session import Peer, Session
from broker.runtime.clock import Ids
from broker.runtime.manual_clock import ManualClock
from broker.server.broker_server import BrokerServer
from config.parse import load_settings
from protocol.error_counts import ERROR_CODES
from protocol.errors import ErrorCode
from protocol.headers import decode_response, encode_request
from protocol.messages.metadata import MetadataRequest
from protocol.messages.produce import ProduceResponse
from protocol.messages.topics import CreateTopicsRequest, CreateTopicsResponse
from protocol.schema import describe
from storage.files import FileSystem
from tests.support.batches import produced, record
from tests.support.requests import produce_request

T = TypeVar("T")

TURNS_TO_SETTLE = 30
"""Loop turns after which everything has happened that needs neither time nor a thread."""

PATIENCE_S = 90.0

WITH_CONTROLLER_LISTENER = {
    "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "controller_listener_names": "CONTROLLER",
}
"""The settings of a broker whose controller serves other brokers, too."""


class ConnectionClosed(Exception):
    """The broker closed the connection instead of answering."""


class Client:
    """A connection to the broker in the test."""

    def __init__(self, broker: "InProcessBroker", ours: socket.socket, connection: Connection) -> None:
        self._broker = broker
        self.socket = ours
        self.connection = connection
        self._correlation_id = 0
        self._awaited: list[tuple[int, type[Any], int]] = []

    def ask(self, request: object, version: int, client_id: str | None = "test") -> Any:
        """Send a request and return its answer. Raises `ConnectionClosed`."""
        self.send(request, version, client_id)
        return self.receive()

    def send(self, request: object, version: int, client_id: str | None = "test") -> None:
        """Send a request; its answer is received later."""
        self._correlation_id += 1
        self._awaited.append((self._correlation_id, self._broker.response_class(type(request)), version))
        self.send_bytes(encode_request(self._correlation_id, client_id, request, version))

    def send_bytes(self, data: bytes) -> None:
        """Send any bytes."""
        self._broker.run(self._send(data))

    def receive(self) -> Any:
        """The next answer, in the order of the requests."""
        correlation_id, response_class, version = self._awaited.pop(0)
        payload = self.receive_payload()
        found, answer = decode_response(response_class, version, payload)
        assert found == correlation_id, f"answer {found} came where {correlation_id} was due"
        self._broker.saw(response_class, version, answer)
        return answer

    def receive_payload(self) -> bytes:
        """The bytes of the next answer, without their size."""
        size = int.from_bytes(self._broker.run(self.receive_bytes(4)), "big")
        return self._broker.run(self.receive_bytes(size))

    def has_no_answer(self) -> bool:
        """Whether no answer has come, although the loop has turned often enough for one."""
        self._broker.settle()
        try:
            return not self.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True

    def is_closed(self) -> bool:
        """Whether the broker has closed the connection without sending anything before."""
        try:
            return self._broker.run(self.receive_bytes(1)) == b""
        except ConnectionClosed:
            return True

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()
        self._broker.settle()

    async def _send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    async def receive_bytes(self, size: int) -> bytes:
        """The next bytes from the broker, so many of them. Raises `ConnectionClosed`."""
        received = b""
        async with asyncio.timeout(PATIENCE_S):
            while len(received) < size:
                try:
                    more = await asyncio.get_running_loop().sock_recv(self.socket, size - len(received))
                except ConnectionResetError:
                    more = b""
                if not more:
                    raise ConnectionClosed(f"after {len(received)} of {size} bytes")
                received += more
        return received


class InProcessBroker:
    """A broker that starts at once and runs while the test waits. It remembers which answers it has seen."""

    def __init__(
        self,
        directory: Path,
        ids: Ids | None = None,
        *,
        files: FileSystem | None = None,
        beside: "InProcessBroker | None" = None,
        **settings: object,
    ) -> None:
        """``beside``: another broker, whose loop and clock this broker has too. Both run whenever one of them does."""
        self.directory = directory
        self._ids = ids
        self._files = files
        self._settings = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(directory),
            "ottla.prometheus.listener": "127.0.0.1:0",
            **{key.replace("_", "."): str(value) for key, value in settings.items()},
        }
        self._beside = beside
        self._runner = asyncio.Runner() if beside is None else beside._runner
        self.clock = ManualClock() if beside is None else beside.clock
        self.answered: set[tuple[int, int, int]] = set()
        """(API key, version, error code) of every answer."""
        self._clients: list[Client] = []
        try:
            self.start()
        except BaseException:
            if beside is None:
                self._runner.close()
            raise

    def start(self) -> None:
        """Start a broker server on the directory."""
        settings = load_settings(None, list(self._settings.items())).settings

        async def start() -> BrokerServer:
            server = BrokerServer(settings, clock=self.clock, files=self._files, ids=self._ids)
            await server.start()
            return server

        self.server = self.run(start() if self._beside is None else self._as_time_passes(start()))
        self._client: Client | None = None

    def stop(self) -> None:
        """Stop the broker cleanly."""
        for client in self._clients:
            client.close()
        self._clients.clear()
        stop = self.server.stop()
        self.run(stop if self._beside is None else self._as_time_passes(stop))

    async def _as_time_passes(self, awaitable: Awaitable[T]) -> T:
        """Move the clock until what needs the other broker is done."""
        doing = asyncio.ensure_future(awaitable)
        while not doing.done():
            self.clock.advance(5)
            await asyncio.sleep(0.001)
        return await doing

    def restart(self) -> None:
        """Stop the broker cleanly and start it again on the same files."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop the broker and the loop."""
        self.stop()
        if self._beside is None:
            self._runner.close()

    def connect(self, listener: str = "PLAINTEXT", processor: int = 0, host: str = "127.0.0.1") -> Client:
        """Open a connection, as if it came in through ``listener`` from ``host``, at the processor with this index."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        acceptors = {one.listener: one for one in self.server.socket_server.acceptors}
        if listener in acceptors:
            session = acceptors[listener].session_of(host, len(self._clients) + 1)
        else:
            session = Session(Peer(host=host, port=len(self._clients) + 1, listener=listener))

        async def adopt() -> Connection:
            return self.server.socket_server.processors[processor].adopt(PlaintextTransport(theirs), session)

        client = Client(self, ours, self.run(adopt()))
        self._clients.append(client)
        return client

    def forget(self, client: Client) -> None:
        """Close a client's connection, and forget the client."""
        client.close()
        self._clients.remove(client)

    def ask(self, request: object, version: int, client_id: str | None = "test") -> Any:
        """Send a request on a connection that stays open, and return its answer."""
        if self._client is None:
            self._client = self.connect()
        try:
            return self._client.ask(request, version, client_id)
        except ConnectionClosed:
            self._client = None
            raise

    def settle(self) -> None:
        """Let the loop turn until everything has happened that needs no time."""

        async def turn() -> None:
            for _ in range(TURNS_TO_SETTLE):
                await asyncio.sleep(0)

        self.run(turn())

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Let the loop turn until ``condition`` holds; threads may take some time for it."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, "it did not come to pass"
            self.run(asyncio.sleep(0.001))

    def run(self, awaitable: Any) -> Any:
        """Run an awaitable on the broker's loop."""
        return self._runner.run(awaitable)

    @property
    def held_bytes(self) -> int:
        """Memory that all connections together hold for requests."""
        return self.server.socket_server.processors[0].memory.used_bytes

    def advance(self, by_ms: int) -> None:
        """Move the clock forward."""

        async def advance() -> None:
            self.clock.advance(by_ms)

        self.run(advance())
        self.settle()

    # What most tests need

    def create_topic(self, name: str, partitions: int = 1, **configs: object) -> bytes:
        """Create a topic and return its id once all its partitions can be written to."""
        topic_id = self.begin_topic(name, partitions, **configs)
        while any(self.server.components.replicas.find(name, index) is None for index in range(partitions)):
            self.advance(1)
        return topic_id

    def begin_topic(self, name: str, partitions: int = 1, **configs: object) -> bytes:
        """Create a topic and return its id when the answer has come; its partitions may not be ready yet."""
        request = CreateTopicsRequest(
            topics=[
                CreateTopicsRequest.Topic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=1,
                    assignments=[],
                    configs=[
                        CreateTopicsRequest.Topic.Config(name=key.replace("_", "."), value=str(value))
                        for key, value in configs.items()
                    ],
                )
            ]
        )
        answer: CreateTopicsResponse = self.ask(request, 7)
        assert answer.topics[0].error_code == ErrorCode.NONE, answer.topics[0]
        return answer.topics[0].topic_id

    def produce(self, topic: str, *values: bytes, partition: int = 0) -> int:
        """Append one batch and return its base offset."""
        answer = self.ask(
            produce_request(topic, produced([record(value) for value in values]), partition=partition), 12
        )
        of_partition: ProduceResponse.Response.PartitionResponse = answer.responses[0].partition_responses[0]
        assert of_partition.error_code == ErrorCode.NONE, of_partition
        return of_partition.base_offset

    def topics(self) -> set[str]:
        """The names of all topics."""
        answer = self.ask(MetadataRequest(topics=None), 12)
        return {topic.name for topic in answer.topics}

    def log(self, topic: str, partition: int = 0) -> Any:
        """The log of a partition."""
        return self.server.components.replicas.partition(topic, partition).log

    def response_class(self, request_class: type[Any]) -> type[Any]:
        """The response class of a request class."""
        name = request_class.__name__.removesuffix("Request") + "Response"
        return getattr(sys.modules[request_class.__module__], name)

    def saw(self, response_class: type[Any], version: int, answer: object) -> None:
        """Remember the error codes of an answer."""
        key = describe(response_class).key
        for code in {*error_codes(answer)} or {ErrorCode.NONE}:
            self.answered.add((key, version, code))


def error_codes(answer: object) -> Iterator[int]:
    """All error codes in an answer, at any depth."""
    for name in getattr(type(answer), "__slots__", ()):
        value = getattr(answer, name)
        if name in ERROR_CODES:
            yield value
        elif isinstance(value, list):
            for item in value:
                yield from error_codes(item)
        elif not isinstance(value, str | bytes | int | memoryview | None):
            yield from error_codes(value)


@contextmanager
def running_broker(
    directory: Path, *, files: FileSystem | None = None, beside: InProcessBroker | None = None, **settings: object
) -> Iterator[InProcessBroker]:
    """A context with a running broker."""
    broker = InProcessBroker(directory, files=files, beside=beside, **settings)
    try:
        yield broker
    finally:
        broker.close()


@contextmanager
def running_member(directory: Path, controller: InProcessBroker, **settings: object) -> Iterator[InProcessBroker]:
    """A context with node 2, a broker without a controller. ``controller`` runs `WITH_CONTROLLER_LISTENER`."""
    (listener,) = controller.server.socket_server.controller_listeners
    with running_broker(
        directory,
        beside=controller,
        process_roles="broker",
        node_id=2,
        controller_quorum_bootstrap_servers=f"{listener.host}:{listener.port}",
        **settings,
    ) as member:
        yield member
