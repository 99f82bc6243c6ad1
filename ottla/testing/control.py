"""The client of a broker's control listener: calls by HTTP and JSON, over one connection for each thread."""

from __future__ import annotations

import http.client
import json
import threading
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from ottla.testing.errors import BrokerError, NotInTime


class Control:
    """Calls of one broker."""

    def __init__(self, url: str) -> None:
        """``url`` is `http://host:port`."""
        self._address = urlsplit(url).netloc
        self._of_thread = threading.local()

    def call(self, path: str, **arguments: Any) -> dict[str, Any]:
        """The answer of a call. Raises `BrokerError`, `NotInTime`."""
        given = {key: value for key, value in arguments.items() if value is not None}
        return self._ask("POST", path, json.dumps(given).encode())

    def read(self, path: str) -> dict[str, Any]:
        """The answer of a call that changes nothing. Raises `BrokerError`."""
        return self._ask("GET", path, None)

    def close(self) -> None:
        """Close the connection of this thread."""
        connection: http.client.HTTPConnection | None = getattr(self._of_thread, "connection", None)
        if connection is not None:
            connection.close()

    def _ask(self, method: str, path: str, body: bytes | None) -> dict[str, Any]:
        connection: http.client.HTTPConnection | None = getattr(self._of_thread, "connection", None)
        if connection is None:
            connection = self._of_thread.connection = http.client.HTTPConnection(self._address)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"} if body is not None else {})
            response = connection.getresponse()
            answer: dict[str, Any] = json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            connection.close()
            raise BrokerError(f"the broker does not answer {path}: {error or type(error).__name__}") from error
        if response.status == HTTPStatus.REQUEST_TIMEOUT:
            raise NotInTime(answer["error"], answer["found"])
        if response.status != HTTPStatus.OK:
            raise BrokerError(answer["error"])
        return answer
