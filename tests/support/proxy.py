"""A TCP proxy that knows Kafka's frames: it shows every request and answer, and may lose or change an answer."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

SIZE = struct.Struct(">i")
REQUEST_START = struct.Struct(">hhi")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A request and, once it has come, its answer; frames without the four bytes of their size."""

    connection: int
    api_key: int
    api_version: int
    correlation_id: int
    request: bytes
    answer: bytes = b""


class FrameProxy:
    """A proxy that listens on `port` and passes all frames on to `target`.

    `on_request` sees each request before it is passed on. `on_answer` sees each answer before it is passed back; if it
    returns False, the answer is dropped and the client's connection is closed, as in a network failure; if it returns
    bytes, the client gets this frame instead. A broker's metadata has its advertised address, which must be the
    proxy's for the proxy to see more than the first connection.
    """

    def __init__(
        self,
        target: tuple[str, int],
        *,
        port: int = 0,
        on_request: Callable[[Exchange], None] | None = None,
        on_answer: Callable[[Exchange], bool | bytes] | None = None,
    ) -> None:
        self._target = target
        self._on_request = on_request
        self._on_answer = on_answer
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._connections = 0
        self._closed = False
        self._start(self._accept)

    def __enter__(self) -> FrameProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._closed = True
        _cut(self._listener)
        with self._lock:
            sockets = list(self._sockets)
        for each in sockets:
            _cut(each)
        for thread in self._threads:
            thread.join(10)

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            for each in (client, broker):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._sockets |= {client, broker}
            self._connections += 1
            open_requests: dict[int, Exchange] = {}
            self._start(self._pass_requests, client, broker, self._connections, open_requests)
            self._start(self._pass_answers, client, broker, open_requests)

    def _pass_requests(
        self, client: socket.socket, broker: socket.socket, connection: int, open_requests: dict[int, Exchange]
    ) -> None:
        with self._ending(client, broker):
            while (frame := _read_frame(client)) is not None:
                api_key, api_version, correlation_id = REQUEST_START.unpack_from(frame)
                exchange = Exchange(
                    connection=connection,
                    api_key=api_key,
                    api_version=api_version,
                    correlation_id=correlation_id,
                    request=frame,
                )
                open_requests[correlation_id] = exchange
                if self._on_request is not None:
                    self._on_request(exchange)
                broker.sendall(SIZE.pack(len(frame)) + frame)

    def _pass_answers(self, client: socket.socket, broker: socket.socket, open_requests: dict[int, Exchange]) -> None:
        with self._ending(client, broker):
            while (frame := _read_frame(broker)) is not None:
                (correlation_id,) = SIZE.unpack_from(frame)
                asked = open_requests.pop(correlation_id)
                answered = Exchange(
                    connection=asked.connection,
                    api_key=asked.api_key,
                    api_version=asked.api_version,
                    correlation_id=correlation_id,
                    request=asked.request,
                    answer=frame,
                )
                passed = True if self._on_answer is None else self._on_answer(answered)
                if passed is False:
                    break
                if passed is not True:
                    frame = passed
                client.sendall(SIZE.pack(len(frame)) + frame)

    @contextlib.contextmanager
    def _ending(self, *sockets: socket.socket) -> Iterator[None]:
        """End both connections behind the block, also if a function of the test raises: neither side waits for more."""
        try:
            with contextlib.suppress(OSError):
                yield
        finally:
            for each in sockets:
                _cut(each)
            with self._lock:
                self._sockets -= set(sockets)


def _cut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def _read_exactly(connection: socket.socket, size: int) -> bytes | None:
    received = bytearray()
    while len(received) < size:
        piece = connection.recv(min(size - len(received), 1 << 20))
        if not piece:
            return None
        received += piece
    return bytes(received)


def _read_frame(connection: socket.socket) -> bytes | None:
    """The next frame without its size; None at the end of the stream."""
    size = _read_exactly(connection, SIZE.size)
    return None if size is None else _read_exactly(connection, SIZE.unpack(size)[0])
