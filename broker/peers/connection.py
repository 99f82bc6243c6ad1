"""One connection to a node: requests out, answers in, matched by correlation id in Kafka's order."""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from broker.peers.answer_buffer import AnswerBuffer
from broker.peers.connector import PeerTransport
from broker.peers.endpoint import PeerEndpoint
from broker.peers.errors import PeerAnswerInvalid, PeerError, PeerTimedOut, PeerUnreachable
from broker.peers.stats import PeerStats
from broker.peers.versions import NodeVersions, api_versions_request, decode_api_versions, version_to_ask_again
from broker.runtime.clock import Alarm, Clock
from broker.runtime.waiting import done_by
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.headers import encode_request
from protocol.messages.api_versions import ApiVersionsResponse
from protocol.primitives import Malformed
from protocol.schema import describe

Decode = Callable[[memoryview], tuple[int, Any]]
"""Reads an answer; returns its correlation id and itself. Raises `Malformed`."""

_LARGEST_CORRELATION_ID: Final = 2**31 - 1


class Exchange:
    """A request that was sent, and who waits for its answer."""

    __slots__ = ("alarm", "answer", "correlation_id", "decode", "largest_answer_bytes", "what")

    alarm: Alarm

    def __init__(self, correlation_id: int, what: str, decode: Decode, largest_answer_bytes: int) -> None:
        self.correlation_id = correlation_id
        self.what = what
        """For errors: ``Fetch version 18``."""
        self.decode = decode
        self.largest_answer_bytes = largest_answer_bytes
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        """Cancelled: nobody waits for the answer any more, it is dropped when it comes."""


class PeerConnection(asyncio.BufferedProtocol):
    """A connection from when a connector makes it until it is lost."""

    def __init__(
        self,
        endpoint: PeerEndpoint,
        *,
        client_id: str,
        clock: Clock,
        stats: PeerStats,
        largest_answer_bytes: int,
        on_answer: Callable[[], None],
        on_end: "Callable[[PeerConnection, PeerError, bool], None]",
    ) -> None:
        """``on_answer`` is called after each answer that could be read. ``on_end`` is called once, with the reason, and
        whether that is a failure, as all is but the end of a connection that had answered and was idle."""
        self._endpoint = endpoint
        self._client_id = client_id
        self._clock = clock
        self._stats = stats
        self._largest_answer_bytes = largest_answer_bytes
        self._on_answer = on_answer
        self._on_end = on_end
        self._transport: PeerTransport | None = None
        self._buffer = AnswerBuffer()
        self._unanswered: deque[Exchange] = deque()
        self._correlation_id = -1
        self._versions: asyncio.Task[NodeVersions] | None = None
        self._has_answered = False
        self._problem: PeerError | None = None
        """Why the connection has ended."""

    @property
    def has_ended(self) -> bool:
        return self._problem is not None

    def begin(self, transport: PeerTransport) -> None:
        """The connection is made. It may have ended already, when the node sent what nobody had asked for."""
        self._stats.connections_made += 1
        self._transport = transport
        if self._problem is not None:
            self._close()

    def send(
        self, request: object, version: int, decode: Decode, deadline_ms: int, largest_answer_bytes: int = 0
    ) -> "asyncio.Future[Any]":
        """Send a request. The future gets its answer, or a `PeerError`; whoever needs it no more cancels it.

        Raises `Unencodable`, and `PeerUnreachable` where the connection has ended.
        """
        if self._problem is not None or self._transport is None:
            raise PeerUnreachable(f"{self._endpoint} was not asked: {self._problem or 'there is no connection yet'}")
        correlation_id = self._correlation_id + 1 if self._correlation_id < _LARGEST_CORRELATION_ID else 0
        data = encode_request(correlation_id, self._client_id, request, version)
        self._correlation_id = correlation_id
        what = f"{describe(type(request)).name.removesuffix('Request')} version {version}"
        exchange = Exchange(correlation_id, what, decode, max(self._largest_answer_bytes, largest_answer_bytes))
        within_ms = deadline_ms - self._clock.monotonic_ms()
        exchange.alarm = self._clock.call_at(deadline_ms, lambda: self._time_is_over(exchange, within_ms))
        self._unanswered.append(exchange)
        self._stats.requests_sent += 1
        self._stats.requests_in_flight += 1
        self._stats.bytes_out += len(data)
        self._transport.write(data)
        return exchange.answer

    @property
    def known_versions(self) -> NodeVersions | None:
        """The answer to ApiVersions; None before it has come."""
        asked = self._versions
        if asked is None or not asked.done() or asked.cancelled() or asked.exception() is not None:
            return None
        return asked.result()

    async def versions(self, deadline_ms: int, longest_ms: int) -> NodeVersions:
        """What the node answers to ApiVersions. It is asked once, for all who want to know, and has ``longest_ms``.

        Raises `PeerError`. A deadline that comes before the answer ends the connection.
        """
        if self._versions is None:
            asking = self._ask_versions(self._clock.monotonic_ms() + longest_ms)
            self._versions = asyncio.get_running_loop().create_task(asking)
            self._versions.add_done_callback(_look_at)
        within_ms = deadline_ms - self._clock.monotonic_ms()
        if not await done_by(self._clock, deadline_ms, self._versions):
            raise self.end(PeerTimedOut, f"did not answer ApiVersions within {within_ms} ms")
        problem_of_all = self._versions.exception()
        if isinstance(problem_of_all, PeerError):
            raise type(problem_of_all)(str(problem_of_all))  # each who waits gets one of its own
        return self._versions.result()

    async def _ask_versions(self, deadline_ms: int) -> NodeVersions:
        version: int | None = ApiKey.API_VERSIONS.versions[1]
        while version is not None:
            decode = partial(decode_api_versions, version)
            answer: ApiVersionsResponse = await self.send(api_versions_request(), version, decode, deadline_ms)
            version = version_to_ask_again(answer, version)
        if answer.error_code != ErrorCode.NONE:
            raise self.end(PeerAnswerInvalid, f"answered ApiVersions with error {answer.error_code}")
        return NodeVersions(answer)

    # What the transport calls

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer.space()

    def buffer_updated(self, nbytes: int) -> None:
        if self._problem is not None:
            return
        self._stats.bytes_in += nbytes
        self._buffer.received(nbytes)
        while self._problem is None:
            if not self._unanswered:
                if unread := self._buffer.unread_bytes:
                    self._invalid(None, f"sent {unread} bytes although no request is unanswered")
                return
            due = self._unanswered[0]
            try:
                payload = self._buffer.cut(due.largest_answer_bytes)
                if payload is None:
                    return
                self._take(due, payload)
            except Malformed as problem:
                self._invalid(due, f"sent what is no answer to {due.what}: {problem}")

    def connection_lost(self, exc: Exception | None) -> None:
        self.end(PeerUnreachable, "closed the connection" if exc is None else f"is connected no more: {exc}")

    def end(self, kind: type[PeerError], reason: str, blamed: Exchange | None = None) -> PeerError:
        """Close the connection for ``reason``, whose subject is the node. The request that is ``blamed`` fails with an
        error of this kind, which is returned; the others that are unanswered fail with `PeerUnreachable`."""
        problem = kind(f"{self._endpoint} {reason}")
        if self._problem is not None:
            return problem
        self._problem = problem
        self._buffer.clear()  # more may come until the transport is closed, and needs a place
        unanswered, self._unanswered = self._unanswered, deque()
        for exchange in unanswered:
            exchange.alarm.cancel()
            if exchange.answer.done():
                continue
            lost = PeerUnreachable(f"{problem}; {exchange.what} has no answer")
            exchange.answer.set_exception(problem if exchange is blamed else lost)
        self._stats.requests_in_flight -= len(unanswered)
        self._stats.requests_timed_out += kind is PeerTimedOut
        self._close()
        self._on_end(self, problem, bool(unanswered) or not self._has_answered or kind is not PeerUnreachable)
        return problem

    def _take(self, due: Exchange, payload: memoryview) -> None:
        correlation_id = int.from_bytes(payload[:4], "big", signed=True)
        if correlation_id != due.correlation_id:
            raise Malformed(f"its correlation id is {correlation_id}, {due.correlation_id} was expected")
        answer = None if due.answer.done() else due.decode(payload)[1]
        self._unanswered.popleft()
        due.alarm.cancel()
        self._stats.requests_answered += 1
        self._stats.requests_in_flight -= 1
        self._has_answered = True
        if not due.answer.done():
            due.answer.set_result(answer)
        self._on_answer()

    def _time_is_over(self, exchange: Exchange, within_ms: int) -> None:
        self.end(PeerTimedOut, f"did not answer {exchange.what} within {within_ms} ms", exchange)

    def _invalid(self, due: Exchange | None, reason: str) -> None:
        self.end(PeerAnswerInvalid, reason, due)

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.abort()
            self._stats.connections_closed += 1


def _look_at(task: "asyncio.Task[NodeVersions]") -> None:
    """Those who wanted to know may be gone: then nobody else takes the task's error, and asyncio would complain."""
    if not task.cancelled():
        task.exception()
