"""A peer with a hand-moved clock, and a network below it in which the test is the node."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from broker.peers.endpoint import PeerEndpoint
from broker.peers.peer import Peer
from broker.peers.stats import PeerStats
from broker.runtime.backoff import Backoff
from broker.runtime.manual_clock import ManualClock
from protocol.api_keys import ApiKey
from protocol.codec import decode
from protocol.headers import RequestHeader, decode_request_header, frame_response
from protocol.messages.api_versions import ApiVersionsResponse
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.schema import describe, request_class

T = TypeVar("T")

NODE = PeerEndpoint(node_id=3, host="kafka-3", port=9092)
REQUEST_TIMEOUT_MS = 30_000
FETCH_VERSION = 18


def fetch(max_wait_ms: int = 500) -> FetchRequest:
    """A fetch of nothing; ``max_wait_ms`` tells one from another."""
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, topics=[])


def fetched(session_id: int = 0, *records: bytes) -> FetchResponse:
    """An answer to a fetch; ``session_id`` tells one from another."""
    partitions = [
        FetchResponse.Response.Partition(
            partition_index=index, error_code=0, high_watermark=0, aborted_transactions=None, records=memoryview(data)
        )
        for index, data in enumerate(records)
    ]
    responses = [FetchResponse.Response(topic_id=bytes(16), partitions=partitions)] if records else []
    return FetchResponse(session_id=session_id, responses=responses)


def find_coordinator() -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key="group")


def versions(**ranges: tuple[int, int]) -> ApiVersionsResponse:
    """An answer to ApiVersions; an API by its name in lower case, as in ``fetch=(4, 18)``."""
    return ApiVersionsResponse(
        api_keys=[
            ApiVersionsResponse.ApiVersion(api_key=ApiKey[name.upper()], min_version=first, max_version=last)
            for name, (first, last) in ranges.items()
        ]
    )


class Wire:
    """A connection, seen from the node."""

    def __init__(self, receiver: asyncio.BufferedProtocol) -> None:
        self._receiver = receiver
        self.requests: list[tuple[RequestHeader, Any]] = []
        self.is_closed = False
        """By the broker."""
        self.received_bytes = 0

    # Part of `PeerTransport`

    def write(self, data: bytes) -> None:
        self.received_bytes += len(data)
        header, position = decode_request_header(data[4:])
        self.requests.append((header, decode(request_class(header.api_key), header.api_version, data[4:], position)))

    def abort(self) -> None:
        self.is_closed = True

    # What the node does

    def answer(
        self, index: int, answer: object, *, version: int | None = None, correlation_id: int | None = None
    ) -> None:
        """Answer a request by its index."""
        self.send(self.answer_bytes(index, answer, version=version, correlation_id=correlation_id))

    def answer_bytes(
        self, index: int, answer: object, *, version: int | None = None, correlation_id: int | None = None
    ) -> bytes:
        header, _ = self.requests[index]
        known_id = header.correlation_id if correlation_id is None else correlation_id
        chunks: list[Any] = frame_response(known_id, answer, header.api_version if version is None else version)
        return b"".join(chunks)

    def send(self, data: bytes, *, piece: int = 1 << 30) -> None:
        """Send bytes, in pieces that are no larger than ``piece``."""
        while data:
            buffer: Any = self._receiver.get_buffer(-1)
            count = min(len(buffer), len(data), piece)
            buffer[:count] = data[:count]
            data = data[count:]
            self._receiver.buffer_updated(count)

    def lose(self, error: Exception | None = None) -> None:
        """Close the connection; or it breaks."""
        self._receiver.connection_lost(error)

    @property
    def asked(self) -> list[str]:
        """The requests so far: ``Fetch 18``."""
        return [
            f"{describe(type(request)).name.removesuffix('Request')} {header.api_version}"
            for header, request in self.requests
        ]


class PeerHarness:
    """The peer, and the network below it."""

    def __init__(self, endpoint: PeerEndpoint = NODE, **fields: Any) -> None:
        self.clock = ManualClock()
        self.stats = PeerStats()
        self.chance = 0.5
        self.attempts_ms: list[int] = []
        """When connections were asked for, counted from the start of the test."""
        self.wires: list[Wire] = []
        self.refusal: OSError | None = None
        """Connections fail with it."""
        self.holds = False
        """Connections are not made until `release`."""
        self.on_connect: Callable[[Wire], None] = lambda wire: None
        """What the node does with a connection before the broker knows of it."""
        self._released = asyncio.Event()
        self._start_ms = self.clock.monotonic_ms()
        self.tasks: list[asyncio.Task[Any]] = []
        self.peer = Peer(
            endpoint,
            client_id="broker-2-fetcher-0",
            connector=self,
            clock=self.clock,
            backoff=Backoff(lambda: self.chance),
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            stats=self.stats,
            **fields,
        )

    async def connect(self, endpoint: PeerEndpoint, receiver: asyncio.BufferedProtocol) -> Wire:
        """Part of `Connector`."""
        self.attempts_ms.append(self.now_ms)
        while self.holds:
            self._released.clear()
            await self._released.wait()
        if self.refusal is not None:
            raise self.refusal
        self.wires.append(Wire(receiver))
        self.on_connect(self.wires[-1])
        return self.wires[-1]

    def release(self) -> None:
        """Let the connections be made that are held."""
        self.holds = False
        self._released.set()

    @property
    def now_ms(self) -> int:
        """Time since the start of the test."""
        return self.clock.monotonic_ms() - self._start_ms

    @property
    def wire(self) -> Wire:
        """The newest connection."""
        return self.wires[-1]

    async def begin(self, asking: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Let a coroutine go as far as it can."""
        task = asyncio.get_running_loop().create_task(asking)
        self.tasks.append(task)
        await self.settle()
        return task

    async def fetch(self, max_wait_ms: int = 500, **words: Any) -> "asyncio.Task[FetchResponse]":
        """Begin to ask a fetch."""
        return await self.begin(self.peer.ask(fetch(max_wait_ms), FetchResponse, **{"version": FETCH_VERSION, **words}))

    async def find_coordinator(self) -> "asyncio.Task[FindCoordinatorResponse]":
        """Begin to ask something whose version is to be found out."""
        return await self.begin(self.peer.ask(find_coordinator(), FindCoordinatorResponse))

    async def advance(self, by_ms: int) -> None:
        """Move the clock, and let everything happen that is due then."""
        self.clock.advance(by_ms)
        await self.settle()

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)


@asynccontextmanager
async def peer(**fields: Any) -> AsyncIterator[PeerHarness]:
    """A peer that is closed behind the test, with whoever still asks it."""
    it = PeerHarness(**fields)
    try:
        yield it
    finally:
        it.peer.close()
        await it.settle()
        for task in it.tasks:
            assert task.done(), "a request waits for a peer that is closed"
            if not task.cancelled():
                task.exception()
        assert it.clock.alarms == 0, "no alarm is left"
        assert it.stats.requests_in_flight == 0


def by_hand(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test on a loop in which nothing waits for time."""

    def run(**arguments: Any) -> None:
        asyncio.run(test(**arguments))

    run.__name__ = test.__name__
    run.__signature__ = inspect.signature(test)  # type: ignore[attr-defined]
    return run
