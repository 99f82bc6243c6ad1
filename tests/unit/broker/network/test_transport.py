"""A connection knows its transport only: one with a handshake is read when that is done."""

import asyncio
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from broker.network.pauses import Pause
from broker.network.transport import MORE_FOLLOWS, Bytes, Handshake, PlaintextTransport, Region
from broker.request.session import Peer, Session
from dev.repository import REPOSITORY
from storage.files import FileRegion, FileSystem
from tests.unit.broker.network.harness import Client, Network, frame, network, on_both_loops

SOCKET_CALLS = ("recv(", "recv_into(", "sendmsg(", "sendall(", "sendfile(", ".makefile(", "TCP_CORK", "MSG_MORE")


class Greeting:
    """A `Transport` over a socket whose handshake is a line from the peer, and a line to the peer."""

    def __init__(self, wire: socket.socket, *, greeting: bytes = b"hello") -> None:
        self._plain = PlaintextTransport(wire)
        self._wire = wire
        self._greeting = greeting
        self._steps = [self._hear, self._answer]
        self.descriptor = wire.fileno()
        self.receive_into = self._plain.receive_into
        self.send = self._plain.send
        self.pending = None
        self.principal = None
        self.is_closed = False

    def handshake(self) -> Handshake:
        while self._steps:
            wanted = self._steps[0]()
            if wanted is not Handshake.DONE:
                return wanted
            self._steps.pop(0)
        return Handshake.DONE

    def _hear(self) -> Handshake:
        try:
            heard = self._wire.recv(len(self._greeting))
        except BlockingIOError:
            return Handshake.WANTS_READ
        if heard != self._greeting:
            raise ConnectionError(f"{heard!r} is no greeting")
        self._steps.insert(1, self._give_way)
        return Handshake.DONE

    def _give_way(self) -> Handshake:
        self._steps[0] = lambda: Handshake.DONE
        return Handshake.WANTS_WRITE

    def _answer(self) -> Handshake:
        self._wire.send(b"welcome")
        return Handshake.DONE

    def send_pieces(self, pieces: Sequence[Bytes], flags: int) -> int:
        return self._plain.send_pieces(pieces, flags)

    def send_region(self, region: Region, position: int, size: int) -> int:
        return self._plain.send_region(region, position, size)

    def cork(self, is_corked: bool) -> None:
        self._plain.cork(is_corked)

    def close(self) -> None:
        self.is_closed = True
        self._plain.close()


def connect(it: Network) -> tuple[Greeting, Client]:
    """A connection that begins with a greeting, and its other end."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    it.limits.opened("TLS", "10.0.0.1")
    it.clients.append(Client(theirs))
    return Greeting(ours), it.clients[-1]


def session() -> Session:
    return Session(Peer(host="10.0.0.1", port=4711, listener="TLS"))


@on_both_loops
async def test_requests_are_read_behind_the_handshake() -> None:
    async with network() as it:
        transport, client = connect(it)
        connection = it.processor.adopt(transport, session())
        assert connection.pauses == Pause.HANDSHAKE
        client.send(b"he")
        client.send(b"llo" + frame(b"?"))
        await it.until(lambda: client.read() == b"welcome")
        assert await it.requests(1) == [b"?"]
        assert connection.pauses == 0
        it.slots[0].fill([frame(b"!")])
        await it.until(lambda: client.read() == b"welcome" + frame(b"!"))


@on_both_loops
async def test_a_handshake_that_fails_closes_the_connection() -> None:
    async with network() as it:
        transport, client = connect(it)
        connection = it.processor.adopt(transport, session())
        client.send(b"GET / HTTP/1.1")
        await it.until(lambda: connection.is_closed)
        assert transport.is_closed
        assert len(it.processor) == 0
        assert it.limits.total == 0


@on_both_loops
async def test_a_handshake_that_fails_at_once_leaves_no_connection_behind() -> None:
    async with network() as it:
        transport, client = connect(it)
        client.send(b"GET / HTTP/1.1")
        await it.turns()
        assert it.processor.adopt(transport, session()).is_closed
        assert len(it.processor) == 0
        assert it.limits.total == 0
        stats = it.processor.stats_of("TLS")
        assert (stats.connections_created, stats.connections_closed) == (1, 1)


@on_both_loops
async def test_a_peer_that_does_not_greet_is_closed_as_idle() -> None:
    async with network(idle_ms=10_000) as it:
        transport, _ = connect(it)
        connection = it.processor.adopt(transport, session())
        it.clock.advance(10_000)
        assert connection.is_closed


@on_both_loops
async def test_at_a_stop_a_connection_in_its_handshake_closes() -> None:
    async with network() as it:
        transport, _ = connect(it)
        connection = it.processor.adopt(transport, session())
        it.processor.stop_reading()
        assert connection.is_closed
        await asyncio.wait_for(it.processor.drained(), 10)


def test_a_plaintext_transport_moves_the_sockets_own_bytes(tmp_path: Path) -> None:
    path = tmp_path / "records"
    path.write_bytes(b"0123456789")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        transport = PlaintextTransport(ours)
        assert transport.descriptor == ours.fileno()
        assert transport.handshake() is Handshake.DONE
        memory = bytearray(10)
        with pytest.raises(BlockingIOError):
            transport.receive_into(memoryview(memory))
        theirs.send(b"ask")
        assert (transport.receive_into(memoryview(memory)), memory[:3]) == (3, b"ask")

        part = FileRegion(FileSystem().open_read(str(path)), 2, 20)
        transport.cork(True)
        assert transport.send(b"head", MORE_FOLLOWS) == 4
        assert transport.send_pieces([b"-", memoryview(b"-")], 0) == 2
        assert transport.send_region(part, 4, 3) == 3
        assert transport.send_region(part, 8, 20) == 2, "the file ends there"
        assert transport.send_region(part, 10, 20) == 0
        transport.cork(False)
        assert theirs.recv(100) == b"head--45689"
        transport.close()
        assert theirs.recv(1) == b""


@pytest.mark.parametrize(
    "error", [BlockingIOError(), ConnectionResetError(), BrokenPipeError(), TimeoutError(), InterruptedError()]
)
def test_what_the_connection_refuses_is_no_fault_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: OSError
) -> None:
    def refuse(*_: object) -> NoReturn:
        raise error

    path = tmp_path / "records"
    path.write_bytes(b"0123456789")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        monkeypatch.setattr(os, "sendfile", refuse)
        with pytest.raises(type(error)):
            PlaintextTransport(ours).send_region(FileRegion(FileSystem().open_read(str(path)), 0, 10), 0, 10)
    assert caplog.text == ""


def test_no_other_module_of_the_network_touches_a_sockets_bytes() -> None:
    home = REPOSITORY / "broker" / "network"
    found = {
        path.name: [call for call in SOCKET_CALLS if call in path.read_text()]
        for path in home.glob("*.py")
        if path.name not in ("transport.py", "tls_transport.py")
    }
    assert {name: calls for name, calls in found.items() if calls} == {}
