"""Connections with TLS: what clients do to them, and what hostile peers do."""

import contextlib
import gc
import logging
import os
import socket
import ssl
from pathlib import Path

import pytest

from broker.network.connection import Connection
from broker.network.pauses import Pause
from broker.network.tls_transport import MOST_SENT_BYTES, RECEIVED_BYTES, RECORD_BYTES, TlsTransport
from broker.request.session import ANONYMOUS, Peer, Session
from storage.files import FileRegion, FileSystem
from tests.support.certificates import Authority
from tests.unit.broker.network.harness import Client, Network, frame, network, on_both_loops

AUTHORITY = Authority()
BROKER = AUTHORITY.issue("broker")
ALICE = AUTHORITY.issue("alice")


class Contexts:
    """What the two ends know of each other."""

    def __init__(self, directory: Path, *, asks: bool = False, shows: bool = False, trusts: bool = True) -> None:
        keys, alice = directory / "keys.pem", directory / "alice.pem"
        keys.write_text(BROKER.pem())
        alice.write_text(ALICE.pem())
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server.options |= ssl.OP_NO_RENEGOTIATION
        self.server.load_cert_chain(keys)
        self.client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if trusts:
            self.client.load_verify_locations(cadata=AUTHORITY.pem)
        if asks:
            self.server.verify_mode = ssl.CERT_REQUIRED
            self.server.load_verify_locations(cadata=AUTHORITY.pem)
        if shows:
            self.client.load_cert_chain(alice)


class TlsClient(Client):
    """The other end of a connection: TLS between its bytes and the wire, both in the test's hand."""

    def __init__(self, wire: socket.socket, context: ssl.SSLContext) -> None:
        super().__init__(wire)
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._in, self._out, server_hostname="localhost")

    def next_flight(self) -> bytes:
        """Go on with the handshake as far as it goes; return what the other end has to get."""
        self._take()
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self._out.read()

    def records(self, data: bytes) -> bytes:
        """The records that carry ``data``."""
        self.tls.write(data)
        return self._out.read()

    def send(self, data: bytes) -> None:
        super().send(self.records(data))

    def read(self) -> bytes:
        self._take()
        while True:
            try:
                data = self.tls.read(1 << 20)
            except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
                return self.received
            if not data:
                return self.received
            self.received += data

    def _take(self) -> None:
        while True:
            try:
                data = self.wire.recv(1 << 20)
            except (BlockingIOError, ConnectionResetError):
                return
            if not data:
                return
            self._in.write(data)


def connect(it: Network, contexts: Contexts) -> tuple[Connection, TlsClient]:
    """A connection whose handshake is to come, and its other end."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    it.limits.opened("TLS", "10.0.0.1")
    client = TlsClient(theirs, contexts.client)
    it.clients.append(client)
    scratch = memoryview(bytearray(RECEIVED_BYTES))
    transport = TlsTransport(
        ours, contexts.server, lambda certificate: "User:alice" if certificate else ANONYMOUS, scratch
    )
    return it.processor.adopt(transport, Session(Peer(host="10.0.0.1", port=4711, listener="TLS"))), client


async def shake_hands(it: Network, connection: Connection, client: TlsClient) -> None:
    """The whole handshake."""
    for _ in range(1000):
        if flight := client.next_flight():
            client.wire.sendall(flight)
        await it.turns(2)
        if not connection.pauses & Pause.HANDSHAKE or connection.is_closed:
            client.next_flight()
            return
    raise AssertionError("the handshake does not end")


async def connected(it: Network, contexts: Contexts) -> tuple[Connection, TlsClient]:
    connection, client = connect(it, contexts)
    await shake_hands(it, connection, client)
    return connection, client


@on_both_loops
async def test_requests_and_answers_pass_in_records(tmp_path: Path) -> None:
    async with network() as it:
        connection, client = await connected(it, Contexts(tmp_path))
        client.send(frame(b"one") + frame(b"two"))
        assert await it.requests(2) == [b"one", b"two"]
        for slot in it.slots:
            slot.fill([frame(b"yes")])
        await it.until(lambda: client.read() == frame(b"yes") * 2)
        stats = it.processor.stats_of("TLS").authentication
        assert (stats.successes, stats.failures, connection.session.principal) == (1, 0, ANONYMOUS)


@on_both_loops
async def test_the_first_request_may_come_with_the_end_of_the_handshake(tmp_path: Path) -> None:
    async with network() as it:
        _, client = connect(it, Contexts(tmp_path))
        client.wire.sendall(client.next_flight())
        await it.turns(3)
        client.wire.sendall(client.next_flight() + client.records(frame(b"at once")))
        assert await it.requests(1) == [b"at once"]


@on_both_loops
async def test_a_large_request_comes_in_whatever_pieces_its_records_have(tmp_path: Path) -> None:
    async with network() as it:
        _, client = await connected(it, Contexts(tmp_path))
        large = os.urandom(700_000)
        sent = memoryview(client.records(frame(large) + frame(b"small")))
        while sent:
            sent = sent[client.send_some(bytes(sent[:50_001])) :]
            await it.turns(1)
        assert await it.requests(2) == [large, b"small"]


@on_both_loops
async def test_what_openssl_has_is_read_without_the_wire(tmp_path: Path) -> None:
    """Requests that a record carries beyond those that may be in the channel: no descriptor tells of them."""
    async with network(queued_max_requests=2) as it:
        _, client = await connected(it, Contexts(tmp_path))
        client.send(b"".join(frame(b"%d" % number + bytes(1500)) for number in range(9)))
        assert [request[:1] for request in await it.requests(9)] == [b"%d" % number for number in range(9)]


@on_both_loops
async def test_an_answer_goes_on_where_the_wire_was_full(tmp_path: Path) -> None:
    async with network() as it:
        _, client = await connected(it, Contexts(tmp_path))
        client.send(frame(b"?") * 3)
        await it.requests(3)
        records = os.urandom(3 * MOST_SENT_BYTES + 17)
        path = tmp_path / "segment"
        path.write_bytes(records)
        file = FileSystem().open_read(str(path))
        large = os.urandom(5 * RECORD_BYTES + 3)
        it.slots[0].fill([b"head", FileRegion(file, 5, len(records) - 5), b"tail", FileRegion(file, 0, 3)])
        it.slots[1].fill([large[:100], large[100:]])
        it.slots[2].fill([b"x" * 2000] * 40)
        expected = b"head" + records[5:] + b"tail" + records[:3] + large + b"x" * 80_000
        await it.until(lambda: len(client.read()) >= len(expected))
        assert client.received == expected


@on_both_loops
async def test_a_certificate_says_who_the_client_is(tmp_path: Path) -> None:
    async with network() as it:
        connection, _ = await connected(it, Contexts(tmp_path, asks=True, shows=True))
        assert connection.session.principal == "User:alice"
        assert connection.session.is_plain


@on_both_loops
async def test_a_client_without_the_certificate_that_is_asked_for_is_not_let_in(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with network() as it:
        with caplog.at_level(logging.INFO):
            connection, client = await connected(it, Contexts(tmp_path, asks=True))
            await it.until(lambda: connection.is_closed)
        assert "its handshake on TLS has failed: peer did not return a certificate" in caplog.text
        assert it.processor.stats_of("TLS").authentication.failures == 1
        assert it.slots == []
        client.close()


@on_both_loops
async def test_a_client_that_does_not_trust_the_broker_is_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with network() as it:
        connection, client = connect(it, Contexts(tmp_path, trusts=False))
        client.wire.sendall(client.next_flight())
        await it.turns(3)
        with pytest.raises(ssl.SSLCertVerificationError):
            client.next_flight()
        client.wire.sendall(client._out.read())
        with caplog.at_level(logging.INFO):
            await it.until(lambda: connection.is_closed)
        assert "alert unknown ca" in caplog.text
        assert len(caplog.records) == 1


@pytest.mark.parametrize("said", [frame(b"\0\22\0\3"), b"GET / HTTP/1.1\r\n\r\n", bytes(5), os.urandom(300)])
@on_both_loops
async def test_what_is_no_tls_closes_the_connection(
    tmp_path: Path, said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with network() as it:
        connection, client = connect(it, Contexts(tmp_path))
        with caplog.at_level(logging.INFO):
            client.wire.sendall(said)
            await it.turns(3)
            client.wire.shutdown(socket.SHUT_WR)
            await it.until(lambda: connection.is_closed)
        assert len(caplog.records) <= 1
        assert it.limits.total == 0


@on_both_loops
async def test_a_handshake_that_is_cut_at_any_byte_leaves_nothing_behind(tmp_path: Path) -> None:
    contexts = Contexts(tmp_path, asks=True, shows=True)
    async with network() as it:
        neighbour = await connected(it, contexts)
        probe, client = connect(it, contexts)
        hello = client.next_flight()
        client.wire.sendall(hello)
        await it.turns(3)
        answer = client.next_flight()
        probe.close()
        for flights, size in ((0, len(hello)), (1, len(answer))):
            for missing in range(1, size + 1):
                connection, client = connect(it, contexts)
                if flights:
                    client.wire.sendall(client.next_flight())
                    await it.turns(2)
                client.wire.sendall(client.next_flight()[:-missing])
                client.close()
                await it.until(lambda connection=connection: connection.is_closed)  # type: ignore[misc]
                assert connection.session.principal == ANONYMOUS
        assert it.slots == []
        assert len(it.processor) == 1
        neighbour[1].send(frame(b"still here"))
        assert await it.requests(1) == [b"still here"]


@on_both_loops
async def test_a_client_that_stalls_has_a_minute(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with network() as it:
        contexts = Contexts(tmp_path)
        silent, _ = connect(it, contexts)
        slow, client = connect(it, contexts)
        client.wire.sendall(client.next_flight()[:100])
        served, _ = await connected(it, contexts)
        await it.turns()
        it.clock.advance(59_999)
        assert not silent.is_closed
        with caplog.at_level(logging.INFO):
            it.clock.advance(1)
        assert silent.is_closed
        assert slow.is_closed
        assert not served.is_closed
        assert "its handshake on TLS is not done in 60000 ms" in caplog.text
        assert it.processor.stats_of("TLS").authentication.failures == 2


@on_both_loops
async def test_a_record_that_was_tampered_with_closes_the_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with network() as it:
        connection, client = await connected(it, Contexts(tmp_path))
        record = bytearray(client.records(frame(b"one")))
        record[-1] ^= 1
        with caplog.at_level(logging.INFO):
            client.wire.sendall(record)
            await it.until(lambda: connection.is_closed)
        assert it.slots == []
        assert "bad record mac" in caplog.text


@on_both_loops
async def test_the_end_of_a_stream_is_seen_behind_a_full_record(tmp_path: Path) -> None:
    async with network() as it:
        connection, client = await connected(it, Contexts(tmp_path))
        last = client.records(frame(bytes(RECORD_BYTES - 4)))
        with pytest.raises(ssl.SSLError):
            client.tls.unwrap()
        client.wire.sendall(last + client._out.read())
        assert len((await it.requests(1))[0]) == RECORD_BYTES - 4
        it.slots[0].fill([frame(b"bye")])
        await it.until(lambda: connection.is_closed)
        assert client.read() == frame(b"bye")


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
@on_both_loops
async def test_both_versions_are_spoken(tmp_path: Path, version: str) -> None:
    contexts = Contexts(tmp_path)
    contexts.client.maximum_version = contexts.client.minimum_version = ssl.TLSVersion[version]
    async with network() as it:
        _, client = await connected(it, contexts)
        client.send(frame(b"?"))
        assert await it.requests(1) == [b"?"]
        assert client.tls.version() == version.replace("_", ".")


@pytest.mark.parametrize("goes", ["before a hello", "within a hello", "before it is done", "served", "too late"])
@on_both_loops
async def test_a_connection_that_is_closed_is_freed_without_the_collector(tmp_path: Path, goes: str) -> None:
    async with network() as it:
        gc.collect()
        gc.disable()
        others = set(map(id, connections_in_memory()))  # of other tests; without the collector no address comes again
        try:
            connection, client = connect(it, Contexts(tmp_path))
            if goes == "served":
                await shake_hands(it, connection, client)
                client.send(frame(b"asked"))
                await it.handle(b"asked")
                await it.until(lambda: client.read() == frame(b"asked"))
                it.slots.clear()
            elif goes != "before a hello":
                hello = client.next_flight()
                client.wire.sendall(hello[:50] if goes == "within a hello" else hello)
                await it.turns()
            if goes == "too late":
                it.clock.advance(600_000)
            else:
                client.close()
            del connection
            await it.until(lambda: not len(it.processor))
            await it.turns()
            assert [one for one in connections_in_memory() if id(one) not in others] == []
        finally:
            gc.enable()


def connections_in_memory() -> list[object]:
    return [one for one in gc.get_objects() if isinstance(one, Connection | TlsTransport)]
