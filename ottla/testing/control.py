"""The client of a broker's control listener: calls by HTTP and JSON, over connections that are kept for later calls."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from ottla.testing.errors import BrokerError, NotInTime, shown


class Control:
    """Calls of one broker."""

    def __init__(self, url: str) -> None:
        """``url`` is `http://host:port`."""
        self._address = urlsplit(url).netloc
        self._idle: list[http.client.HTTPConnection] = []
        """Connections that no call uses, whichever thread made them."""
        self._is_closed = False

    def call(self, path: str, **arguments: Any) -> dict[str, Any]:
        """The answer of a call. Raises `BrokerError`, `NotInTime`."""
        given = {key: value for key, value in arguments.items() if value is not None}
        return self._ask("POST", path, _as_json(path, given))

    def read(self, path: str) -> dict[str, Any]:
        """The answer of a call that changes nothing. Raises `BrokerError`."""
        return self._ask("GET", path, None)

    def close(self) -> None:
        """Close the connections; those of calls under way as soon as these are answered."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()

    def _ask(self, method: str, path: str, body: bytes | None) -> dict[str, Any]:
        connection = self._connection()
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"} if body is not None else {})
            response = connection.getresponse()
            answer: dict[str, Any] = json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            connection.close()
            raise BrokerError(f"the broker does not answer {path}: {error or type(error).__name__}") from error
        self._idle.append(connection)
        if self._is_closed:
            self.close()
        if response.status == HTTPStatus.REQUEST_TIMEOUT:
            raise NotInTime(answer["error"], answer["found"])
        if response.status != HTTPStatus.OK:
            raise BrokerError(answer["error"])
        return answer

    def _connection(self) -> http.client.HTTPConnection:
        """A connection that no other call uses."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return http.client.HTTPConnection(self._address)
            if not _is_closed(connection):
                return connection
            connection.close()


def _as_json(path: str, arguments: Mapping[str, object]) -> bytes:
    """A body. Raises `BrokerError`, which names an argument that JSON cannot have."""
    try:
        return json.dumps(arguments, default=_mapping_as_dict, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        if len(arguments) > 1:
            for name, value in arguments.items():
                _as_json(path, {name: value})
        given = ", ".join(f"{name} is {shown(value)}" for name, value in arguments.items())
        raise BrokerError(f"{path}: {given}, which cannot be written as JSON: {error}") from error


def _mapping_as_dict(given: object) -> dict[Any, Any]:
    if isinstance(given, Mapping):
        return dict(given)
    raise TypeError(f"{type(given).__name__} is no type of JSON")


def _is_closed(connection: http.client.HTTPConnection) -> bool:
    """Whether the broker has closed the connection meanwhile, as it does if there was no call for a minute."""
    if connection.sock is None:
        return True
    try:
        connection.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True  # the end of the stream, or bytes that no call has asked for
