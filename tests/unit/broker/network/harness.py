"""A processor with a hand-moved clock, and connections whose other end is in the test's hand."""

import asyncio
import inspect
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from broker.dispatch.handler_pool import evaluate
from broker.network.buffer_pool import BufferPool, RequestMemory
from broker.network.connection import Connection
from broker.network.connection_limits import ConnectionLimits
from broker.network.processor import Processor
from broker.network.processor_state import NetworkSettings
from broker.network.transport import PlaintextTransport, Transport
from broker.request.channel import RequestChannel
from broker.request.response import ResponseSlot
from broker.request.session import Peer, Session
from broker.request.stats import HandlerTurn
from broker.runtime.manual_clock import ManualClock


def frame(payload: bytes) -> bytes:
    """A request or an answer with its size before it."""
    return len(payload).to_bytes(4, "big") + payload


class Client:
    """The other end of a connection."""

    def __init__(self, wire: socket.socket) -> None:
        self.wire = wire
        self.received = b""

    def send(self, data: bytes) -> None:
        self.wire.sendall(data)

    def send_some(self, data: bytes) -> int:
        """As much as the socket takes."""
        try:
            return self.wire.send(data)
        except BlockingIOError:
            return 0

    def read(self) -> bytes:
        """All that has come so far."""
        while True:
            try:
                data = self.wire.recv(1 << 20)
            except BlockingIOError:
                return self.received
            except ConnectionResetError:
                return self.received
            if not data:
                return self.received
            self.received += data

    def is_closed_by_broker(self) -> bool:
        try:
            return self.wire.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.wire.close()


@asynccontextmanager
async def network(**settings: Any) -> AsyncIterator["Network"]:
    """A network that is closed behind the test."""
    it = Network(**settings)
    try:
        yield it
    finally:
        for client in it.clients:
            client.close()
        it.processor.close()
        await it.task


class Network:
    """One processor, and a channel without handlers: the test answers."""

    def __init__(
        self,
        *,
        queued_max_requests: int = 500,
        memory_bytes: int = 256 << 20,
        max_in_flight: int = 64,
        idle_ms: int = 600_000,
        request_max_bytes: int = 104_857_600,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.clock = ManualClock()
        self.channel = RequestChannel(queued_max_requests)
        self.memory = RequestMemory(memory_bytes, self.loop.call_soon, self.clock)
        self.limits = ConnectionLimits()
        self.processor = Processor(
            0,
            loop=self.loop,
            clock=self.clock,
            channel=self.channel,
            pool=BufferPool(self.memory, self.clock),
            settings=NetworkSettings(
                max_in_flight=max_in_flight,
                connections_max_idle_ms=idle_ms,
                socket_request_max_bytes=request_max_bytes,
            ),
            limits=self.limits,
            now_us=self.clock.monotonic_us,
        )
        self.task = self.loop.create_task(self.processor.run())
        self.slots: list[ResponseSlot] = []
        """Every request that a handler would have taken, in order."""
        self.evaluated: list[bytes] = []
        """What requests said that `handle` has evaluated."""
        self.clients: list[Client] = []

    def connect(
        self, make_transport: Callable[[socket.socket], Transport] = PlaintextTransport
    ) -> tuple[Connection, Client]:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        self.limits.opened("PLAINTEXT", "10.0.0.1")
        client = Client(theirs)
        self.clients.append(client)
        session = Session(Peer(host="10.0.0.1", port=4711, listener="PLAINTEXT"))
        return self.processor.adopt(make_transport(ours), session), client

    async def turns(self, count: int = 5) -> None:
        """Let the loop turn, so that whatever can happen does."""
        for _ in range(count):
            await asyncio.sleep(0)

    async def until(self, condition: Callable[[], object], turns: int = 20_000) -> None:
        for _ in range(turns):
            if condition():
                return
            await asyncio.sleep(0)
        raise AssertionError("what the test waits for has not happened")

    async def take(self) -> None:
        """Be a handler: take what is in the channel."""
        while len(self.channel):
            self.slots += await self.channel.take(16)

    async def handle(self, *answers: bytes) -> list[bytes]:
        """Be a handler that keeps to the requests' order: evaluate what may be evaluated, and answer what is named in
        ``answers`` with itself. Return what the requests say that were evaluated so far."""

        def handle(slot: ResponseSlot) -> None:
            request = bytes(slot.frame)
            self.evaluated.append(request)
            self.slots.append(slot)
            if request in answers:
                slot.fill([frame(request)])

        await self.turns()
        while len(self.channel):
            for slot in await self.channel.take(16):
                evaluate(slot, HandlerTurn(0), handle)
        return self.evaluated

    async def requests(self, count: int) -> list[bytes]:
        """Wait until ``count`` requests have been taken in all; return what they say."""
        for _ in range(20_000):
            await self.take()
            if len(self.slots) >= count:
                return [bytes(slot.frame) for slot in self.slots]
            await asyncio.sleep(0)
        raise AssertionError(f"{len(self.slots)} of {count} requests have arrived")


def on_both_loops(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test on asyncio's own loop and on uvloop."""
    given = inspect.signature(test)

    @pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
    def run(loop: str, **arguments: Any) -> None:
        (uvloop.run if loop == "uvloop" else asyncio.run)(test(**arguments))

    run.__name__ = test.__name__
    run.__signature__ = given.replace(  # type: ignore[attr-defined]
        parameters=[inspect.Parameter("loop", inspect.Parameter.KEYWORD_ONLY), *given.parameters.values()][::-1]
    )
    return run
