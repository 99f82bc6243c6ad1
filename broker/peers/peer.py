"""Peer: another node, as the coroutines of this broker see it that ask it something."""

import asyncio
import logging
from functools import partial
from typing import Final, TypeVar

from broker.peers.connection import PeerConnection
from broker.peers.connector import Connector
from broker.peers.endpoint import PeerEndpoint
from broker.peers.errors import PeerAnswerInvalid, PeerError, PeerUnreachable
from broker.peers.stats import PeerStats
from broker.peers.versions import NodeVersions
from broker.runtime.backoff import Backoff
from broker.runtime.clock import Clock
from broker.runtime.waiting import done_by, pause_until
from protocol.headers import decode_response
from protocol.schema import describe

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

LARGEST_ANSWER_BYTES: Final = 104_857_600
"""Kafka's default for `socket.request.max.bytes`."""


class Peer:
    """A node that this broker asks, over one connection that is made when it is needed.

    Several coroutines may ask at once: requests are sent without waiting for earlier answers, and answers come in the
    order of the requests. So a request that is not answered in time ends the connection, for those behind it, too. What
    must not wait behind another's long poll gets a peer of its own.
    """

    def __init__(
        self,
        endpoint: PeerEndpoint,
        *,
        client_id: str,
        connector: Connector,
        clock: Clock,
        backoff: Backoff,
        request_timeout_ms: int,
        stats: PeerStats,
        largest_answer_bytes: int = LARGEST_ANSWER_BYTES,
    ) -> None:
        self.endpoint = endpoint
        self._client_id = client_id
        self._connector = connector
        self._clock = clock
        self._backoff = backoff
        self._request_timeout_ms = request_timeout_ms
        self.stats = stats
        self._largest_answer_bytes = largest_answer_bytes
        self._connection: PeerConnection | None = None
        self._attempt: asyncio.Task[PeerConnection | None] | None = None
        self._next_attempt_ms = clock.monotonic_ms()
        self._reason = f"{endpoint} has not been asked yet"
        """Why there is no connection."""
        self._unreachable_since_ms: int | None = None
        self._is_closed = False

    async def ask(
        self,
        request: object,
        answer: type[Answer],
        *,
        version: int | None = None,
        timeout_ms: int | None = None,
        largest_answer_bytes: int = 0,
    ) -> Answer:
        """Send a request and return its answer, which may hold views of the memory that it was received into.

        Without a ``version`` it is the newest that both know: ApiVersions is asked for it, once on each connection.
        With one, nothing is asked before. Where there is no connection, the request waits for the next attempt to make
        one, which begins when the back-off is over, and fails if that fails.

        ``timeout_ms`` is the time of each step, as in Kafka: of the connection, of ApiVersions, and of the request from
        when it is sent. Over a slow line their sum may be more than any of them.

        A request that is cancelled leaves the connection to the others: its answer is dropped when it comes. If none
        comes within the request's time, the connection is closed as for any other request.

        Raises `PeerError`, and `Unencodable`.
        """
        connection = await self._connected(self._deadline_ms(timeout_ms))
        if version is None:
            version = await self._newest_version(connection, type(request), self._deadline_ms(timeout_ms))
        decode = partial(decode_response, answer, version)
        answered: asyncio.Future[Answer] = connection.send(
            request, version, decode, self._deadline_ms(timeout_ms), largest_answer_bytes
        )
        return await answered

    async def versions(self, *, timeout_ms: int | None = None) -> NodeVersions:
        """The versions of the node by API key, with its features, as it has named them on this connection.

        Raises `PeerError`.
        """
        deadline_ms = self._deadline_ms(timeout_ms)
        connection = await self._connected(deadline_ms)
        return await connection.versions(deadline_ms, self._request_timeout_ms)

    @property
    def known_versions(self) -> NodeVersions | None:
        """What the node has said on this connection; None if it has not been asked for its versions yet."""
        return None if self._connection is None else self._connection.known_versions

    def close(self) -> None:
        """Close the connection for good: requests that wait, and later ones, raise `PeerUnreachable`."""
        self._is_closed = True
        if self._attempt is not None:
            self._attempt.cancel()
        if self._connection is not None:
            self._connection.end(PeerUnreachable, "is asked no more")

    def _deadline_ms(self, timeout_ms: int | None) -> int:
        return self._clock.monotonic_ms() + (self._request_timeout_ms if timeout_ms is None else timeout_ms)

    async def _connected(self, deadline_ms: int) -> PeerConnection:
        """The connection; one attempt is made to make it."""
        if self._is_closed:
            raise PeerUnreachable(f"{self.endpoint} is asked no more")
        if self._connection is not None:
            return self._connection
        if self._attempt is None:
            self._attempt = asyncio.get_running_loop().create_task(self._connect())
        attempt = self._attempt  # that of all who ask now: it outlives the one that began it
        within_ms = deadline_ms - self._clock.monotonic_ms()
        if not await done_by(self._clock, deadline_ms, attempt):
            raise PeerUnreachable(f"there was no connection within {within_ms} ms; {self._reason}")
        if attempt.cancelled():
            raise PeerUnreachable(f"{self.endpoint} is asked no more")
        connection = attempt.result()
        if connection is None:
            raise PeerUnreachable(self._reason)
        return connection

    async def _connect(self) -> PeerConnection | None:
        try:
            await pause_until(self._clock, self._next_attempt_ms)
            connection = PeerConnection(
                self.endpoint,
                client_id=self._client_id,
                clock=self._clock,
                stats=self.stats,
                largest_answer_bytes=self._largest_answer_bytes,
                on_answer=self._on_answer,
                on_end=self._on_end,
            )
            try:
                transport = await self._connector.connect(self.endpoint, connection)
            except OSError as problem:
                self.stats.connections_failed += 1
                self._back_off()
                self._reason = f"{self.endpoint} cannot be reached: {problem}"
                self._failed()
                return None
            connection.begin(transport)
            if not connection.has_ended:
                self._connection = connection
            return connection
        finally:
            self._attempt = None

    async def _newest_version(self, connection: PeerConnection, request: type, deadline_ms: int) -> int:
        info = describe(request)
        theirs = await connection.versions(deadline_ms, self._request_timeout_ms)
        version = theirs.newest_common(info.key, info.versions)
        if version is not None:
            return version
        first, last = info.versions
        known = "versions {} to {}".format(*theirs[info.key]) if info.key in theirs else "no version"
        api = info.name.removesuffix("Request")
        raise PeerAnswerInvalid(
            f"{self.endpoint} knows {known} of {api}, this broker asks in versions {first} to {last}"
        )

    def _on_answer(self) -> None:
        self._backoff.reset()
        if self._unreachable_since_ms is not None:
            lasted_ms = self._clock.monotonic_ms() - self._unreachable_since_ms
            self._unreachable_since_ms = None
            log.info("%s answers again, after %d ms", self.endpoint, lasted_ms)

    def _on_end(self, connection: PeerConnection, problem: PeerError, is_failure: bool) -> None:
        if connection is self._connection:
            self._connection = None
        self._back_off()
        self._reason = str(problem)
        if is_failure and not self._is_closed:
            self._failed()

    def _back_off(self) -> None:
        self._next_attempt_ms = self._clock.monotonic_ms() + self._backoff.next_ms()

    def _failed(self) -> None:
        if self._unreachable_since_ms is None:
            self._unreachable_since_ms = self._clock.monotonic_ms()
            log.warning("%s; it counts as unreachable until it answers", self._reason)
