"""The same over real sockets: a broker of ours, and a node in the test that answers as it is told."""

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from broker.peers.answer_buffer import HEAD_BYTES
from broker.peers.connector import TcpConnector
from broker.peers.endpoint import UNKNOWN_ID, PeerEndpoint
from broker.peers.errors import PeerTimedOut, PeerUnreachable
from broker.peers.peer import Peer
from broker.peers.stats import PeerStats
from broker.runtime.backoff import Backoff
from broker.runtime.clock import Clock, LoopClock
from broker.runtime.manual_clock import ManualClock
from dev.repository import REPOSITORY
from dev.waiting import PATIENCE_S
from protocol.codec import decode
from protocol.headers import decode_request_header, frame_response
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.support.broker import InProcessBroker
from tests.support.requests import fetch_request
from tests.unit.broker.network.harness import on_both_loops
from tests.unit.broker.peers.harness import fetch, fetched

PATIENCE_MS = int(PATIENCE_S * 1000)


def peer_at(port: int, *, clock: Clock | None = None, host: str = "127.0.0.1") -> Peer:
    clock = clock or LoopClock(asyncio.get_running_loop(), time.time)
    return Peer(
        PeerEndpoint(UNKNOWN_ID, host, port),
        client_id="peer",
        connector=TcpConnector(clock),
        clock=clock,
        backoff=Backoff(lambda: 0.5),
        request_timeout_ms=PATIENCE_MS,
        stats=PeerStats(),
    )


class Node:
    """A server that answers each fetch with its `max_wait_ms` as the session id, when it may."""

    def __init__(self, *records: bytes) -> None:
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.asked = 0
        self._records = records
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server

    async def start(self, port: int = 0) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        found: int = self._server.sockets[0].getsockname()[1]
        return found

    async def stop(self) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        try:
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                header, position = decode_request_header(frame)
                request = decode(FetchRequest, header.api_version, frame, position)
                self.asked += 1
                await self.may_answer.wait()
                answer = fetched(request.max_wait_ms, *self._records)
                chunks: Any = frame_response(header.correlation_id, answer, header.api_version)
                writer.writelines(chunks)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


@asynccontextmanager
async def node(*records: bytes) -> AsyncIterator[tuple[Node, Peer]]:
    """A node, and a peer that asks it."""
    it = Node(*records)
    peer = peer_at(await it.start())
    try:
        yield it, peer
    finally:
        peer.close()
        await it.stop()


def ask(peer: Peer, number: int, **words: int) -> "asyncio.Task[FetchResponse]":
    return asyncio.get_running_loop().create_task(peer.ask(fetch(number), FetchResponse, version=18, **words))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)


def size_of_answer(records: bytes) -> int:
    chunks: Any = frame_response(0, fetched(0, records), 18)
    return sum(map(len, chunks))


@on_both_loops
async def test_answers_that_fill_the_memory_to_its_last_byte_are_followed_by_others() -> None:
    records = next(bytes(size) for size in range(4096) if size_of_answer(bytes(size)) == 2048)
    async with node(records) as (it, peer):
        for number in range(3 * HEAD_BYTES // 2048):
            assert (await ask(peer, number)).session_id == number
        assert it.asked == 3 * HEAD_BYTES // 2048
        assert peer.stats.connections_made == 1


@on_both_loops
async def test_many_requests_at_once_are_answered_in_their_order() -> None:
    async with node() as (_, peer):
        answers = await asyncio.gather(*(ask(peer, number) for number in range(200)))
        assert [answer.session_id for answer in answers] == [*range(200)]


@on_both_loops
async def test_five_megabytes_come_as_they_were_sent_and_the_next_answer_leaves_them_alone() -> None:
    records = [bytes([number]) * 5_000_000 for number in (1, 2)]
    async with node(*records) as (_, peer):
        kept = await ask(peer, 1)
        for _ in range(3):
            await ask(peer, 2)
        for partition, sent in zip(kept.responses[0].partitions, records, strict=True):
            assert isinstance(partition.records, memoryview)
            assert partition.records == sent


@on_both_loops
async def test_a_node_that_is_started_again_between_two_requests_is_asked_over_a_new_connection() -> None:
    first, second = Node(), Node()
    port = await first.start()
    peer = peer_at(port)
    assert (await ask(peer, 1)).session_id == 1
    await first.stop()
    with pytest.raises(PeerUnreachable):
        await ask(peer, 2)
    await second.start(port)
    assert (await ask(peer, 3)).session_id == 3
    peer.close()
    await second.stop()


@on_both_loops
async def test_a_cancelled_request_leaves_the_connection_to_the_others() -> None:
    async with node() as (it, peer):
        it.may_answer.clear()
        cancelled, kept = ask(peer, 1), ask(peer, 2)
        await until(lambda: it.asked == 1)
        cancelled.cancel()
        it.may_answer.set()
        assert (await kept).session_id == 2
        assert cancelled.cancelled()


@on_both_loops
async def test_closing_ends_the_requests_that_wait_and_the_connection() -> None:
    async with node() as (it, peer):
        it.may_answer.clear()
        waiting = ask(peer, 1)
        await until(lambda: it.asked == 1)
        peer.close()
        with pytest.raises(PeerUnreachable, match="is asked no more"):
            await waiting


@on_both_loops
async def test_a_node_that_stops_answers_nobody() -> None:
    async with node() as (it, peer):
        it.may_answer.clear()
        waiting = ask(peer, 1)
        await until(lambda: it.asked == 1)
        await it.stop()
        with pytest.raises(PeerUnreachable, match="Fetch version 18 has no answer"):
            await waiting


@on_both_loops
async def test_a_request_has_its_time_on_the_loops_clock() -> None:
    async with node() as (it, peer):
        it.may_answer.clear()
        with pytest.raises(PeerTimedOut, match="did not answer Fetch version 18 within"):
            await ask(peer, 1, timeout_ms=200)
        it.may_answer.set()
        assert (await ask(peer, 2)).session_id == 2


@on_both_loops
async def test_a_node_that_closes_each_connection_at_once_is_unreachable() -> None:
    server = await asyncio.start_server(lambda _, writer: writer.transport.abort(), "127.0.0.1", 0)
    peer = peer_at(server.sockets[0].getsockname()[1])
    for _ in range(5):
        with pytest.raises(PeerUnreachable):
            await ask(peer, 1)
    peer.close()
    server.close()
    await server.wait_closed()


class Lost(asyncio.BufferedProtocol):
    """A receiver that closes its connection as soon as it is made."""

    def connection_made(self, transport: Any) -> None:
        transport.abort()

    def get_buffer(self, sizehint: int) -> bytearray:
        return bytearray(100)


@on_both_loops
async def test_a_connection_that_is_lost_while_it_is_made_is_no_error_of_the_connector() -> None:
    clock = LoopClock(asyncio.get_running_loop(), time.time)
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = PeerEndpoint(1, "127.0.0.1", server.getsockname()[1])
        transport = await TcpConnector(clock).connect(endpoint, Lost())
    transport.abort()


@on_both_loops
async def test_small_packets_leave_at_once() -> None:
    clock = LoopClock(asyncio.get_running_loop(), time.time)
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = PeerEndpoint(1, "127.0.0.1", server.getsockname()[1])
        transport: Any = await TcpConnector(clock).connect(endpoint, asyncio.BufferedProtocol())
        connected = transport.get_extra_info("socket")
        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        transport.abort()


@on_both_loops
async def test_a_port_that_nobody_listens_on_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    peer = peer_at(port)
    with pytest.raises(PeerUnreachable, match=rf"the node at 127\.0\.0\.1:{port} cannot be reached: .*Errno 111"):
        await ask(peer, 1)
    peer.close()


@on_both_loops
async def test_a_host_or_port_that_cannot_be_is_unreachable() -> None:
    for host, port in (("a" * 300, 9092), ("no such host", 9092), ("a\0b", 9092), ("127.0.0.1", 70_000)):
        peer = peer_at(port, host=host)
        with pytest.raises(PeerUnreachable, match="cannot be reached"):
            await ask(peer, 1)
        peer.close()


async def never(receiver: Callable[[], asyncio.BufferedProtocol], host: str, port: int) -> Any:
    await asyncio.get_running_loop().create_future()


def test_a_connection_that_is_not_made_in_time_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def try_it() -> None:
        clock = ManualClock()
        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", never)
        peer = peer_at(9092, clock=clock)
        waiting = ask(peer, 1)
        await until(lambda: clock.alarms == 2)
        clock.advance(10_000)
        with pytest.raises(PeerUnreachable, match="cannot be reached: no connection within 10000 ms"):
            await waiting
        assert len(asyncio.all_tasks()) == 1, "the attempt is over"
        peer.close()

    asyncio.run(try_it())


def test_an_attempt_that_is_cancelled_just_when_it_succeeds_leaves_no_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def try_it() -> None:
        made: list[asyncio.Transport] = []
        loop = asyncio.get_running_loop()
        create_connection: Callable[..., Awaitable[Any]] = loop.create_connection

        async def then_close(*words: Any) -> Any:
            transport, protocol = await create_connection(*words)
            made.append(transport)
            loop.call_soon(peer.close)
            return transport, protocol

        monkeypatch.setattr(loop, "create_connection", then_close)
        it = Node()
        peer = peer_at(await it.start())
        with pytest.raises(PeerUnreachable):
            await ask(peer, 1)
        await until(lambda: bool(made) and made[0].is_closing())
        await it.stop()

    asyncio.run(try_it())


def test_a_broker_is_asked_in_the_newest_common_versions(broker: InProcessBroker) -> None:
    broker.create_topic("orders")

    async def ask_it() -> None:
        peer = peer_at(broker.server.socket_server.listeners[0].port)
        answer = await peer.ask(MetadataRequest(topics=None), MetadataResponse)
        assert [topic.name for topic in answer.topics] == ["orders"]
        known = await peer.versions()
        assert known[1] == (4, 18)
        assert known.finalized_features["metadata.version"] == 33
        assert known.supported_features["kraft.version"] == (0, 1)
        peer.close()

    broker.run(ask_it())


def test_what_was_produced_is_fetched_from_a_broker(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    for number in range(6):
        broker.produce("orders", bytes([number]) * 900_000)
    log = broker.log("orders")

    async def fetch_it() -> None:
        peer = peer_at(broker.server.socket_server.listeners[0].port)
        request = fetch_request("orders", partition_max_bytes=10_000_000, max_bytes=10_000_000)
        answer = await peer.ask(request, FetchResponse, version=12)
        received = answer.responses[0].partitions[0].records
        assert isinstance(received, memoryview)
        assert len(received) > 5_000_000
        assert bytes(received) == segment.read_bytes()[: len(received)]
        assert answer.responses[0].partitions[0].high_watermark == log.log_end_offset == 6
        peer.close()

    (segment,) = (broker.directory / "orders-0").glob("*.log")
    broker.run(fetch_it())


WITHOUT_SSL = """
import socket, sys
from broker.runtime.without_ssl import import_event_loops
import_event_loops()
import asyncio, uvloop
from broker.peers.connector import TcpConnector
from broker.peers.endpoint import PeerEndpoint
from broker.runtime.clock import LoopClock

async def connect():
    with socket.create_server(("127.0.0.1", 0)) as server:
        endpoint = PeerEndpoint(1, "127.0.0.1", server.getsockname()[1])
        connector = TcpConnector(LoopClock(asyncio.get_running_loop(), lambda: 0.0))
        transport = await connector.connect(endpoint, asyncio.BufferedProtocol())
        transport.abort()

(uvloop.run if sys.argv[1] == "uvloop" else asyncio.run)(connect())
assert "ssl" not in sys.modules
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_connection_needs_no_openssl(loop: str) -> None:
    asked = subprocess.run(
        [sys.executable, "-P", "-c", WITHOUT_SSL, loop],
        env={"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (asked.returncode, asked.stderr) == (0, "")
