"""A client without a library: one request after the other over a socket, with this project's own codecs."""

from __future__ import annotations

import select
import socket
import sys
from collections import deque
from typing import Any

from protocol.headers import decode_response, encode_request


class RawClient:
    """A connection to the broker at an address."""

    def __init__(self, bootstrap: str, *, client_id: str = "raw") -> None:
        self._client_id = client_id
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=60)
        self._correlation_id = 0
        self._asked: deque[tuple[int, Any, int]] = deque()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def ask(self, request: Any, version: int) -> Any:
        """Send a request and return its answer. Raises OSError if the connection ends before."""
        self.send(request, version)
        return self.receive()

    def send(self, request: Any, version: int) -> None:
        """Send a request; its answer is received later."""
        self._correlation_id += 1
        self._asked.append((self._correlation_id, request, version))
        self._socket.sendall(encode_request(self._correlation_id, self._client_id, request, version))

    def send_bytes(self, data: bytes) -> None:
        """Send bytes that may be no request."""
        self._socket.sendall(data)

    def receive(self) -> Any:
        """The answer to the oldest unanswered request."""
        asked_id, request, version = self._asked.popleft()
        size = int.from_bytes(self._receive(4), "big")
        name = type(request).__name__.removesuffix("Request") + "Response"
        response_class = getattr(sys.modules[type(request).__module__], name)
        correlation_id, answer = decode_response(response_class, version, self._receive(size))
        assert correlation_id == asked_id, f"answer {correlation_id} came for {asked_id}"
        return answer

    def has_no_answer(self) -> bool:
        """Whether nothing has come that was not received yet."""
        return not select.select([self._socket], [], [], 0)[0]

    def _receive(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            piece = self._socket.recv(min(size - len(received), 1 << 20))
            if not piece:
                raise ConnectionError(f"the broker closed the connection after {len(received)} of {size} bytes")
            received += piece
        return bytes(received)
