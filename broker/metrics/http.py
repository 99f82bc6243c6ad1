"""The metrics endpoint: HTTP/1.1 as far as Prometheus, a health check or a browser need it, one request a connection.

    /metrics    all metrics
    /healthz    200 while the process works
    /readyz     200 once the broker accepts requests of Kafka's clients; 503 before, with how far the start has come

A client can cost little: a request is limited to a few kilobytes and seconds, so many connections are served at a time
and the others wait in the backlog, and a client that reads slowly is disconnected when too many pages are kept.
"""

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.network.acceptor import CannotListen
from broker.network.socket_options import SocketOptions, bound_socket
from broker.runtime.without_ssl import stand_in_where_ssl_is_missing
from broker.runtime.worker_thread import WorkerThread
from config.listen_address import METRICS_LISTENER, ListenAddress

if TYPE_CHECKING:
    from broker.metrics.pages import Page, Pages

log = logging.getLogger(__name__)

MOST_HEAD_BYTES: Final = 8192
"""The longest request line and headers, in bytes."""

MOST_CONNECTIONS: Final = 128
BACKLOG: Final = 1024
"""Connections that wait for their turn; the system may allow fewer."""

HEAD_S: Final = 5.0
"""How long a request may take to arrive, in seconds."""
ANSWER_S: Final = 30.0
"""How long an answer may take to be sent, in seconds."""
LAST_BYTES_S: Final = 1.0
"""How long the endpoint waits for the client to close, in seconds: closing first could lose the end of the answer."""

REST_S: Final = 1.0
"""How long the endpoint pauses when no file descriptor is left, in seconds."""

MOST_PAGES: Final = 4
"""Pages that may be kept for clients that are slow to read them."""

SUBJECTS: Final = "broker.metrics.subjects"
"""The module that imports all modules of families."""

_END: Final = b"\r\n\r\n"
_TEXT: Final = "text/plain; charset=utf-8"


class Readiness(NamedTuple):
    """Whether Kafka's clients are served, and a line of text about it."""

    is_ready: bool
    text: str


class CannotAnswer(Exception):
    """A request that gets an error status, and the reason."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class _Request(NamedTuple):
    method: str
    path: str
    accept: str


class _Answer(NamedTuple):
    status: HTTPStatus
    content_type: str
    pieces: Sequence[bytes]

    @property
    def head(self) -> bytes:
        size = sum(map(len, self.pieces))
        return (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}\r\n"
            f"Content-Type: {self.content_type}\r\n"
            f"Content-Length: {size}\r\n"
            "Connection: close\r\n\r\n"
        ).encode()


def _text(status: HTTPStatus, text: str) -> _Answer:
    return _Answer(status, _TEXT, [f"{text}\n".encode()])


class MetricsEndpoint:
    """The metrics endpoint. It works from the first moment of the start to the last moment of the stop."""

    def __init__(
        self,
        listener: ListenAddress,
        *,
        is_given: bool,
        worker: WorkerThread,
        make_pages: Callable[[], "Pages"],
        readiness: Callable[[], Readiness],
        fail: Callable[[BaseException], None],
    ) -> None:
        """``is_given``: the settings name the port. ``make_pages`` is called for the first page, when ``worker`` has
        imported its modules; ``fail`` is called if the endpoint ends by a bug."""
        self._listener = listener
        self._is_given = is_given
        self._worker = worker
        self._make_pages = make_pages
        self._readiness = readiness
        self._fail = fail
        self._pages: Pages | None = None
        self._socket: socket.socket | None = None
        self._serving: asyncio.Task[None] | None = None
        self._connection_slots = asyncio.Semaphore(MOST_CONNECTIONS)
        self._readers: dict[Page, set[asyncio.Task[None] | None]] = {}
        """The tasks that send each page; the oldest pages come first."""

    @property
    def address(self) -> ListenAddress:
        """The address and port of the endpoint."""
        assert self._socket is not None, "open comes first"
        return ListenAddress(self._listener.host, self._socket.getsockname()[1])

    def open(self, reserved_ports: Collection[int]) -> None:
        """Bind the port and answer on it from now on. If the port is taken and the settings do not name it, another
        port is bound, none of ``reserved_ports``: the broker will bind these later. Raises `CannotListen`."""
        self._socket = self._bind(reserved_ports)
        self._serving = asyncio.create_task(self._serve(self._socket), name="metrics")

    async def close(self) -> None:
        """Answer no further request, and close the port."""
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.wait((self._serving,))
        if self._socket is not None:
            self._socket.close()

    def _bind(self, reserved_ports: Collection[int]) -> socket.socket:
        host, port = self._listener
        try:
            try:
                if port in reserved_ports:
                    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
                return _listening(host, port)
            except OSError:
                if self._is_given:
                    raise
                return _listening(host, 0)
        except OSError as error:
            reason = error.strerror or str(error)
            raise CannotListen(f"{METRICS_LISTENER}={self._listener} cannot be opened: {reason}") from error

    async def _serve(self, listening: socket.socket) -> None:
        try:
            await self._answer_all(listening)
        except Exception as error:
            log.critical("the metrics endpoint died", exc_info=error)
            self._fail(error)

    async def _answer_all(self, listening: socket.socket) -> None:
        """Accept connections and answer their requests, until cancelled."""
        is_other = self._listener.port not in (0, self.address.port)
        reason = f", since {self._listener} is taken" if is_other else ""
        log.info("metrics at http://%s/metrics%s", self.address, reason)
        try:
            async with asyncio.TaskGroup() as conversations:
                while True:
                    await self._connection_slots.acquire()
                    conversations.create_task(self._converse(await self._accepted(listening)))
        finally:
            if self._pages is not None:
                await self._pages.close()

    async def _accepted(self, listening: socket.socket) -> socket.socket:
        while True:
            try:
                connected, _ = await asyncio.get_running_loop().sock_accept(listening)
            except ConnectionError:
                continue  # the client has gone already
            except OSError as error:
                log.error("the metrics endpoint accepts nothing for %.0f s: %s", REST_S, error.strerror or error)
                await asyncio.sleep(REST_S)
            else:
                connected.setblocking(False)
                return connected

    async def _converse(self, connected: socket.socket) -> None:
        """Receive one request and answer it. A client that is too slow, or gone, is disconnected."""
        loop = asyncio.get_running_loop()
        try:
            await self._answer(connected)
            connected.shutdown(socket.SHUT_WR)
            async with asyncio.timeout(LAST_BYTES_S):
                while await loop.sock_recv(connected, MOST_HEAD_BYTES):
                    pass
        except (OSError, TimeoutError) as error:
            log.debug("closing a connection to the metrics endpoint: %s", error)
        finally:
            connected.close()
            self._connection_slots.release()

    async def _answer(self, connected: socket.socket) -> None:
        try:
            async with asyncio.timeout(HEAD_S):
                request = _parse(await _receive_head(connected))
            if request.path == "/metrics":
                try:
                    page = await self._page(request.accept)
                except Exception as error:
                    log.exception("a metrics page failed with a bug")
                    raise CannotAnswer(HTTPStatus.INTERNAL_SERVER_ERROR, "the log says what went wrong") from error
                with self._reading(page):
                    await _send(connected, request, _Answer(HTTPStatus.OK, page.content_type, page.pieces))
            else:
                await _send(connected, request, self._short_answer(request.path))
        except CannotAnswer as error:
            await _send(connected, None, _text(error.status, str(error)))

    def _short_answer(self, path: str) -> _Answer:
        match path:
            case "/healthz":
                return _text(HTTPStatus.OK, "alive")
            case "/readyz":
                is_ready, text = self._readiness()
                return _text(HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE, text)
            case "/":
                return _text(HTTPStatus.OK, "Ottla: /metrics /healthz /readyz")
        return _text(HTTPStatus.NOT_FOUND, "there are /metrics, /healthz and /readyz")

    async def _page(self, accept: str) -> "Page":
        if self._pages is None:
            await self._import()
        if self._pages is None:
            self._pages = self._make_pages()
        return await self._pages.page(accept)

    async def _import(self) -> None:
        """Import the library and the families in a thread: that takes as long as a thousand requests."""
        imported: asyncio.Future[object] = asyncio.get_running_loop().create_future()

        def done(module: object) -> None:
            if not imported.cancelled():
                imported.set_result(module)

        def failed(error: Exception) -> None:
            if not imported.cancelled():
                imported.set_exception(error)

        self._worker.submit(_import_subjects, done, failed)
        await imported

    @contextmanager
    def _reading(self, page: "Page") -> Iterator[None]:
        """Register a task that sends ``page``. If too many pages are kept, clients of the oldest are disconnected."""
        reader = asyncio.current_task()
        readers = self._readers.setdefault(page, set())
        readers.add(reader)
        if len(self._readers) > MOST_PAGES:
            for slow in self._readers.pop(next(iter(self._readers))):
                if slow is not None:
                    slow.cancel()
        try:
            yield
        finally:
            readers.discard(reader)
            if not readers:
                self._readers.pop(page, None)


def _import_subjects() -> object:
    with stand_in_where_ssl_is_missing():
        return import_module(SUBJECTS)


def _listening(host: str, port: int) -> socket.socket:
    listening = bound_socket(host, port, SocketOptions())
    try:
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening


async def _receive_head(connected: socket.socket) -> bytes:
    """The request line and headers, up to the empty line. Raises `CannotAnswer`."""
    head = b""
    while _END not in head:
        if len(head) >= MOST_HEAD_BYTES:
            raise CannotAnswer(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"a request has {MOST_HEAD_BYTES} bytes of headers at most"
            )
        received = await asyncio.get_running_loop().sock_recv(connected, MOST_HEAD_BYTES - len(head))
        if not received:
            raise ConnectionAbortedError("it hung up before its request was complete")
        head += received
    return head.partition(_END)[0]


def _parse(head: bytes) -> _Request:
    """Parse the request line and headers. Raises `CannotAnswer`."""
    line, *headers = head.decode("latin-1").split("\r\n")
    words = line.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise CannotAnswer(HTTPStatus.BAD_REQUEST, "a request begins with GET, a path and HTTP/1.1")
    method, target, _ = words
    if method not in ("GET", "HEAD"):
        raise CannotAnswer(HTTPStatus.METHOD_NOT_ALLOWED, "there is nothing here but to GET")
    accept = ",".join(
        value.strip()
        for name, separator, value in (header.partition(":") for header in headers)
        if separator and name.lower() == "accept"
    )
    return _Request(method, target.partition("?")[0], accept)


async def _send(connected: socket.socket, request: _Request | None, answer: _Answer) -> None:
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(ANSWER_S):
        await loop.sock_sendall(connected, answer.head)
        if request is None or request.method != "HEAD":
            for piece in answer.pieces:
                await loop.sock_sendall(connected, piece)
