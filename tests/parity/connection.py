"""One connection to a broker, with nothing between the script and the bytes."""

from __future__ import annotations

import socket
import sys
from dataclasses import dataclass
from typing import Any

from protocol.codec import decode, encode
from protocol.headers import decode_response, encode_request


class Closed(Exception):
    """The broker closed the connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request that was sent, and may still wait for its answer."""

    request: Any
    version: int
    correlation_id: int
    sent_ms: int


class Connection:
    """ServerComponents by the first bytes to be sent, and by the next ones after it ended."""

    def __init__(self, port: int, *, from_address: str | None = None) -> None:
        """``from_address``: the address that the broker sees the client under."""
        self.correlation_id = 0
        self._port = port
        self._source = None if from_address is None else (from_address, 0)
        self._socket: socket.socket | None = None

    def encode(self, request: Any, version: int, client_id: str | None) -> bytes:
        """A request under the next correlation id, as it is sent."""
        self.correlation_id += 1
        return encode_request(self.correlation_id, client_id, request, version)

    def send(self, data: bytes) -> None:
        """Send bytes as they are. Raises `Closed`."""
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), source_address=self._source)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            self.hang_up()
            raise Closed from None

    def receive_frame(self, patience_s: float) -> bytes:
        """The next answer without its size. Raises `Closed` and `TimeoutError`, and hangs up then."""
        try:
            return self._receive(int.from_bytes(self._receive(4, patience_s), "big"), patience_s)
        except (ConnectionResetError, Closed):
            self.hang_up()
            raise Closed from None
        except TimeoutError:
            self.hang_up()
            raise

    def receive_answer(self, asked: Asked, patience_s: float) -> Any:
        """The answer to the oldest request that has none yet. Raises as `receive_frame` does."""
        payload = self.receive_frame(patience_s)
        cls, version = response_class(type(asked.request)), asked.version
        correlation_id, answer = decode_response(cls, version, payload)
        assert correlation_id == asked.correlation_id, f"answer {correlation_id}, expected {asked.correlation_id}"
        body = encode(answer, version)
        assert payload[4:] in (body, b"\0" + body), (
            f"{cls.__name__} v{version} holds what our declaration does not: {payload.hex()}, read as {answer}"
        )
        assert decode(cls, version, body) == answer
        return answer

    def finish_sending(self) -> None:
        """Say that no more will come; what was asked can still be answered."""
        if self._socket is not None:
            self._socket.shutdown(socket.SHUT_WR)

    def hang_up(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _receive(self, size: int, patience_s: float) -> bytes:
        if self._socket is None:
            raise Closed
        self._socket.settimeout(patience_s)
        received = bytearray()
        while len(received) < size:
            more = self._socket.recv(size - len(received))
            if not more:
                raise Closed
            received += more
        return bytes(received)


def response_class(request_class: type[Any]) -> type[Any]:
    """What answers a request."""
    name = request_class.__name__.removesuffix("Request") + "Response"
    return getattr(sys.modules[request_class.__module__], name)  # type: ignore[no-any-return]
