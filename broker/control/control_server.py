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
import threading
from collections.abc import Collection, Mapping, Sequence
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

_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
_JSON: Final = "application/json"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    calls: Mapping[tuple[str, str], Call]
    loop: asyncio.AbstractEventLoop
    names: frozenset[str]


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
        self._server = _Server((host, port), _Conversation)
        self._server.calls = {(call.method, call.path): call for call in calls}
        self._server.loop = loop
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
        """Take no further request; those under way go on."""
        self._server.shutdown()
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

    def do_GET(self) -> None:
        self._answer(READS)

    def do_POST(self) -> None:
        self._answer(CHANGES)

    def _answer(self, method: str) -> None:
        try:
            status, answer = HTTPStatus.OK, self._answer_to(method)
        except _Refused as refused:
            status, answer = refused.status, {"error": str(refused), **refused.more}
        body = json.dumps(answer).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", _JSON)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _answer_to(self, method: str) -> Answer:
        body = self._body()
        host = self.headers.get("Host", "")
        names = self.server.names
        if host.rpartition(":")[0] not in names and host not in names:
            raise _Refused(HTTPStatus.FORBIDDEN, f"the Host is {host!r}, and calls are for {', '.join(sorted(names))}")
        path = self.path.partition("?")[0]
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
        if not (length.isascii() and length.isdigit()):
            self.close_connection = True
            raise _Refused(HTTPStatus.LENGTH_REQUIRED, "a body has a Content-Length")
        if int(length) > MOST_BODY_BYTES:
            self.close_connection = True
            raise _Refused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body has {length} bytes, {MOST_BODY_BYTES} are allowed"
            )
        return self.rfile.read(int(length))

    def _run(self, call: Call, body: bytes) -> Answer:
        try:
            arguments: object = read_arguments(call.arguments, json.loads(body or b"{}"))
        except (BadArguments, ValueError) as error:
            raise _Refused(HTTPStatus.BAD_REQUEST, f"{call.path}: {error}") from error
        running = asyncio.run_coroutine_threadsafe(_awaited(call, arguments), self.server.loop)
        try:
            return running.result()
        except CannotDo as error:
            raise _Refused(HTTPStatus.CONFLICT, str(error)) from error
        except NotInTime as error:
            raise _Refused(HTTPStatus.REQUEST_TIMEOUT, str(error), found=error.found) from error
        except asyncio.CancelledError:
            raise _Refused(HTTPStatus.SERVICE_UNAVAILABLE, "the broker stops") from None
        except Exception as error:
            log.exception("%s met a bug", call.path)
            raise _Refused(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}") from error

    def log_message(self, format: str, *arguments: object) -> None:
        log.debug(format, *arguments)


async def _awaited(call: Call, arguments: object) -> Answer:
    return await call.run(arguments)
