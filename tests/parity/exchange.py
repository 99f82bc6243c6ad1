"""The language of the scripts: named requests to one broker over a socket, and what came back for each.

A script says only what is asked. It may use an answer for later requests (a topic's id, a session's), never judge it:
that is done by comparing what two brokers answered to the same script.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from protocol.api_keys import ApiKey
from protocol.codec import decode, encode
from protocol.errors import ErrorCode
from protocol.headers import decode_response, encode_request
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.topics import CreateTopicsRequest
from protocol.schema import describe
from tests.parity.comparison import CLOSED
from tests.parity.normalised import Moment, Normaliser
from tests.parity.plain import plain
from tests.support.server import BrokerProcess

NO_ANSWER = "no answer, and the connection stays open"
SILENCE = "nothing comes, nor does an answer to what is asked next"

PATIENCE_S = 8.0
"""How long an answer may take on a busy machine. Silence is no answer within this time."""

UNPLACED = "raw"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What came back for one step in one version."""

    api: str
    step: str
    version: str
    outcome: Any
    """The answer as normalised plain values, or one of the sentences above."""


class Closed(Exception):
    """The broker closed the connection."""


class Exchange:
    """One script's conversation with one broker."""

    def __init__(self, script: str, broker: BrokerProcess, normaliser: Normaliser) -> None:
        self.script = script
        self.broker = broker
        self.answered: list[Answered] = []
        self.topic_ids: dict[str, bytes] = {}
        self._normaliser = normaliser
        self._socket: socket.socket | None = None
        self._correlation_id = 0
        self._named: set[tuple[str, str, str]] = set()

    # Steps

    def ask(
        self, step: str, request: Any, version: int, *, client_id: str | None = "parity", patience_s: float = PATIENCE_S
    ) -> Any:
        """Ask, note what came back under the step's name, and return the answer (None where there is none)."""
        answer: Any = None
        sent_ms = _now_ms()
        try:
            answer = self._ask(request, version, client_id, patience_s)
            outcome: Any = plain(answer, version)
        except Closed:
            outcome = CLOSED
        except TimeoutError:
            outcome = SILENCE
        self._note(describe(type(request)).key, step, f"v{version}", outcome, sent_ms)
        return answer

    def ask_each(
        self,
        step: str,
        request: Any,
        *,
        since: int | None = None,
        until: int | None = None,
        versions: Iterable[int] | None = None,
        **options: Any,
    ) -> list[Any]:
        """Ask in every version of the API; `request` is one request for all, or makes one out of the version."""
        cls = type(request)
        if callable(request):
            cls = type(request(since if since is not None else 7))
        first, last = describe(cls).versions
        if versions is None:
            versions = range(first if since is None else since, (last if until is None else until) + 1)
        return [
            self.ask(step, request(version) if callable(request) else request, version, **options)
            for version in versions
        ]

    def ask_until(
        self, step: str, request: Any, version: int, condition: Callable[[Any], bool], *, patience_s: float = PATIENCE_S
    ) -> Any:
        """Ask again until the answer is as it will be in the end; only the last one is noted."""
        self.wait_until(request, version, condition, patience_s=patience_s)
        return self.ask(step, request, version)

    def tell(self, step: str, request: Any, version: int) -> None:
        """Send what should get no answer; what is asked next shows whether it got one."""
        sent_ms = _now_ms()
        try:
            self._send(self._encode(request, version, "parity"))
            expected = self._correlation_id + 1
            self._send(self._encode(ApiVersionsRequest(), 0, "parity"))
            payload = self._receive_frame(PATIENCE_S)
            if int.from_bytes(payload[:4], "big") == expected:
                outcome: Any = NO_ANSWER
            else:
                _, answer = decode_response(response_class(type(request)), version, payload)
                self._receive_frame(PATIENCE_S)
                outcome = plain(answer, version)
        except Closed:
            outcome = CLOSED
        self._note(describe(type(request)).key, step, f"v{version}", outcome, sent_ms)

    def send_bytes(self, step: str, data: bytes, *, api: int, then_nothing: bool = False, answer: Any = None) -> None:
        """Send bytes as they are on a connection of their own; `then_nothing` says that no more will come.

        `answer` is (response class, version) where an answer is to be read with it; else its bytes are noted.
        """
        self.hang_up()
        sent_ms = _now_ms()
        try:
            self._send(data)
            if then_nothing:
                self._connection().shutdown(socket.SHUT_WR)
            payload = self._receive_frame(PATIENCE_S)
            if answer is None:
                outcome: Any = payload.hex()
            else:
                outcome = plain(decode_response(answer[0], answer[1], payload)[1], answer[1])
        except Closed:
            outcome = CLOSED
        except TimeoutError:
            outcome = SILENCE
        self.hang_up()
        self._note(api, step, UNPLACED if answer is None else f"v{answer[1]}", outcome, sent_ms)

    # What the scripts need and nobody compares

    def create_topic(self, name: str, partitions: int = 1, **configs: object) -> bytes:
        """Create a topic, wait until it can be written and read, and return its id."""
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
        created = self._ask(request, 7, "parity", PATIENCE_S).topics[0]
        if created.error_code != ErrorCode.NONE:
            raise AssertionError(f"topic {name} was not created: {created}")
        self._normaliser.name_id(created.topic_id, name)
        self.topic_ids[name] = created.topic_id
        self.wait_for_topic(name, partitions)
        return self.topic_ids[name]

    def wait_for_topic(self, name: str, partitions: int = 1) -> None:
        """Wait until every partition of a topic can be written and read."""
        metadata = MetadataRequest(topics=[MetadataRequest.Topic(name=name)], allow_auto_topic_creation=False)
        self.wait_until(metadata, 12, lambda answer: len(answer.topics[0].partitions) == partitions)
        offsets = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsRequest.Topic(
                    name=name,
                    partitions=[
                        ListOffsetsRequest.Topic.Partition(partition_index=index, timestamp=-1)
                        for index in range(partitions)
                    ],
                )
            ],
        )
        self.wait_until(offsets, 7, lambda answer: all(not found.error_code for found in answer.topics[0].partitions))

    def wait_until(
        self, request: Any, version: int, condition: Callable[[Any], bool], *, patience_s: float = PATIENCE_S
    ) -> None:
        """Ask until the answer meets a condition. Raises `AssertionError` when patience is at an end."""
        deadline = time.monotonic() + patience_s
        while not condition(answer := self._ask(request, version, "parity", PATIENCE_S)):
            if time.monotonic() > deadline:
                raise AssertionError(f"after {patience_s} s the answer is still {answer}")

    def hang_up(self) -> None:
        """Close the connection; the next question opens another."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def frame(self, request: Any, version: int) -> bytes:
        """A request as it is sent, to be spoiled."""
        return self._encode(request, version, "parity")

    # The wire

    def _ask(self, request: Any, version: int, client_id: str | None, patience_s: float) -> Any:
        self._send(self._encode(request, version, client_id))
        payload = self._receive_frame(patience_s)
        cls = response_class(type(request))
        correlation_id, answer = decode_response(cls, version, payload)
        assert correlation_id == self._correlation_id, f"answer {correlation_id}, expected {self._correlation_id}"
        body = encode(answer, version)
        assert payload[4:] in (body, b"\0" + body), (
            f"{cls.__name__} v{version} holds what our declaration does not: {payload.hex()}, read as {answer}"
        )
        assert decode(cls, version, body) == answer
        return answer

    def _encode(self, request: Any, version: int, client_id: str | None) -> bytes:
        self._correlation_id += 1
        return encode_request(self._correlation_id, client_id, request, version)

    def _connection(self) -> socket.socket:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self.broker.port))
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._socket

    def _send(self, data: bytes) -> None:
        try:
            self._connection().sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            self.hang_up()
            raise Closed from None

    def _receive_frame(self, patience_s: float) -> bytes:
        self._connection().settimeout(patience_s)
        try:
            return self._receive(int.from_bytes(self._receive(4), "big"))
        except ConnectionResetError:
            self.hang_up()
            raise Closed from None
        except (Closed, TimeoutError):
            self.hang_up()
            raise

    def _receive(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            more = self._connection().recv(size - len(received))
            if not more:
                raise Closed
            received += more
        return bytes(received)

    def _note(self, key: int, step: str, version: str, outcome: Any, sent_ms: int) -> None:
        api = ApiKey(key).name if key in set(ApiKey) else f"API {key}"
        assert (api, step, version) not in self._named, f"{api} {version} has two steps named {step!r}"
        self._named.add((api, step, version))
        moment = Moment(
            script=self.script,
            api=api,
            step=step,
            sent_ms=sent_ms,
            received_ms=_now_ms(),
            port=self.broker.port,
            data_directory=str(self.broker.data_directory),
        )
        outcome = self._normaliser.normalise(outcome, moment)
        self.answered.append(Answered(api=api, step=step, version=version, outcome=outcome))


def response_class(request_class: type[Any]) -> type[Any]:
    """What answers a request."""
    name = request_class.__name__.removesuffix("Request") + "Response"
    return getattr(sys.modules[request_class.__module__], name)  # type: ignore[no-any-return]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
