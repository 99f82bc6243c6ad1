"""ControlServer: the control listener, HTTP/1.1 and JSON, for tests in any language.

    GET  /openapi.json      the calls, described for machines and readers
    GET  /…, POST /…        the calls (`broker.control.calls`)

It listens on loopback only, but in a container. A page in a browser on the same machine could reach it: so a call needs
a Host of loopback or a name that the broker advertises, which a name that is rebound is not, and a POST the content
type of JSON, which a page may not send elsewhere unasked.

Python's own HTTP server has a thread for each connection; what a call does runs on the broker's loop.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from broker.control.arguments import BadArguments, read_arguments
from broker.control.calls import CHANGES, READS, Answer, Call, CannotDo, NotInTime
from broker.control.openapi import described

log = logging.getLogger(__name__)

MOST_BODY_BYTES: Final = 64 << 20
"""The longest body: seeds are the longest."""

IDLE_S: Final = 60.0
"""How long a client may take for its next request, in seconds."""
LAST_BYTES_S: Final = 1.0
"""How long clients may take for their last answers when the listener closes, in seconds."""

_MOST_DIGITS: Final = 18
_PIECE_BYTES: Final = 1 << 16
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
_JSON: Final = "application/json"


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # `server_close` waits for them: a thread that outlives the loop could hold up the exit
    request_queue_size = 128

    calls: Mapping[tuple[str, str], Call]
    names: frozenset[str]

    def __init__(self, address: tuple[str, int], loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(address, _Conversation)
        self._loop = loop
        self._changed = threading.Condition()
        self._connections: set[socket.socket] = set()
        self._running: set[Future[Answer]] = set()
        self._is_closing = False

    def opened(self, connection: socket.socket) -> None:
        """Take note of a connection that begins."""
        with self._changed:
            self._connections.add(connection)
            if self._is_closing:
                self._shut(socket.SHUT_RD)

    def closed(self, connection: socket.socket) -> None:
        """Forget a connection that has ended."""
        with self._changed:
            self._connections.discard(connection)
            self._changed.notify_all()

    def run(self, call: Call, arguments: object) -> Answer:
        """What the call answers, which runs on the loop. Raises what the call raises, and `CancelledError` if the
        listener closes."""
        with self._changed:
            if self._is_closing:
                raise CancelledError
            running = asyncio.run_coroutine_threadsafe(_awaited(call, arguments), self._loop)
            self._running.add(running)
        try:
            return running.result()
        finally:
            with self._changed:
                self._running.discard(running)

    def close_connections(self) -> None:
        """Cancel the calls under way, and end each connection after its answer."""
        with self._changed:
            self._is_closing = True
            for running in self._running:
                running.cancel()
            self._shut(socket.SHUT_RD)
            self._changed.wait_for(lambda: not self._connections, LAST_BYTES_S)
            self._shut(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """Log why a connection has ended: because of a bug, or because the client had gone before it had its answer."""
        level = logging.DEBUG if isinstance(sys.exception(), OSError) else logging.ERROR
        log.log(level, "the connection of %s has ended", client_address, exc_info=True)

    def _shut(self, ways: int) -> None:
        for connection in self._connections:
            with suppress(OSError):  # the client has closed it
                connection.shutdown(ways)


class ControlServer:
    """Answers calls until it is closed."""

    def __init__(
        self,
        host: str,
        port: int,
        calls: Sequence[Call],
        *,
        loop: asyncio.AbstractEventLoop,
        names: Collection[str] = (),
    ) -> None:
        """Binds the port; 0 is one that the system chooses. ``names`` are those under which clients know this machine,
        beside the names of loopback. Raises `OSError`."""
        self._server = _Server((host, port), loop)
        self._server.calls = {(call.method, call.path): call for call in calls}
        self._server.names = _LOOPBACK.union(names)
        self._thread = threading.Thread(target=self._server.serve_forever, name="control", daemon=True)

    @property
    def address(self) -> tuple[str, int]:
        """The host and port that it listens on."""
        host, port, *_ = self._server.server_address
        return str(host), int(port)

    def start(self) -> None:
        """Answer from now on."""
        self._thread.start()

    def close(self) -> None:
        """End: no connection and no thread is left. Calls under way are cancelled, and answered so.

        Not for the loop's own thread: the calls end on the loop.
        """
        with suppress(OSError):  # a system that does not know this looks for the end twice a second
            self._server.socket.shutdown(socket.SHUT_RDWR)
        self._server.shutdown()
        self._server.close_connections()
        self._server.server_close()


class _Refused(Exception):
    """A request that gets an error status and this sentence."""

    def __init__(self, status: HTTPStatus, sentence: str, **more: Any) -> None:
        super().__init__(sentence)
        self.status = status
        self.more = more


class _Conversation(BaseHTTPRequestHandler):
    """The requests of one connection."""

    server: _Server
    protocol_version = "HTTP/1.1"
    server_version = "Ottla"
    timeout = IDLE_S
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.server.opened(self.connection)

    def finish(self) -> None:
        self.server.closed(self.connection)
        super().finish()

    def do_GET(self) -> None:
        self._answer(READS)

    def do_POST(self) -> None:
        self._answer(CHANGES)

    def _answer(self, method: str) -> None:
        try:
            status, answer = HTTPStatus.OK, self._answer_to(method)
        except _Refused as refused:
            status, answer = refused.status, {"error": str(refused), **refused.more}
        self._send(status, answer)
        if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            # A connection that closes with unread bytes takes the answer from a client that still sends.
            with suppress(OSError):
                while self.rfile.read1(_PIECE_BYTES):
                    pass

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Part of `BaseHTTPRequestHandler`: what HTTP itself forbids is refused as JSON, too."""
        self.close_connection = True
        self._send(HTTPStatus(code), {"error": message or HTTPStatus(code).phrase})

    def _send(self, status: HTTPStatus, answer: Answer) -> None:
        body = json.dumps(answer).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", _JSON)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def _answer_to(self, method: str) -> Answer:
        body = self._body()
        host = self.headers.get("Host", "")
        names = self.server.names
        if host.rpartition(":")[0] not in names and host not in names:
            raise _Refused(HTTPStatus.FORBIDDEN, f"the Host is {host!r}, and calls are for {', '.join(sorted(names))}")
        path, is_asked, _ = self.path.partition("?")
        if is_asked:
            raise _Refused(HTTPStatus.BAD_REQUEST, f"{path}: the arguments are in the body, and not behind a '?'")
        calls = self.server.calls
        if (method, path) == (READS, "/openapi.json"):
            return described(calls.values())
        call = calls.get((method, path))
        if call is None:
            others = [one for one in (READS, CHANGES) if (one, path) in calls]
            if others:
                raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED, f"{path} is for {others[0]}")
            raise _Refused(HTTPStatus.NOT_FOUND, f"there is no {path}: GET /openapi.json lists what there is")
        if method == CHANGES and self.headers.get_content_type() != _JSON:
            raise _Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"the Content-Type of a POST is {_JSON}")
        return self._run(call, body)

    def _body(self) -> bytes:
        length = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not (length.isascii() and length.isdigit()):
            self.close_connection = True
            raise _Refused(HTTPStatus.LENGTH_REQUIRED, "a body has a Content-Length")
        if len(length) > _MOST_DIGITS or int(length) > MOST_BODY_BYTES:
            self.close_connection = True
            raise _Refused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body has {length} bytes, {MOST_BODY_BYTES} are allowed"
            )
        return self.rfile.read(int(length))

    def _run(self, call: Call, body: bytes) -> Answer:
        try:
            given: object = json.loads(body or b"{}")
        except (ValueError, RecursionError) as error:
            raise _Refused(HTTPStatus.BAD_REQUEST, f"{call.path}: the body is no JSON: {error}") from error
        try:
            return self.server.run(call, read_arguments(call.arguments, given))
        except BadArguments as error:
            raise _Refused(HTTPStatus.BAD_REQUEST, f"{call.path}: {error}") from error
        except CannotDo as error:
            raise _Refused(HTTPStatus.CONFLICT, str(error)) from error
        except NotInTime as error:
            raise _Refused(HTTPStatus.REQUEST_TIMEOUT, str(error), found=error.found) from error
        except CancelledError:
            raise _Refused(HTTPStatus.SERVICE_UNAVAILABLE, "the broker stops") from None
        except Exception as error:
            log.exception("%s met a bug", call.path)
            raise _Refused(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}") from error

    def log_message(self, format: str, *arguments: object) -> None:
        log.debug(format, *arguments)


async def _awaited(call: Call, arguments: object) -> Answer:
    return await call.run(arguments)
