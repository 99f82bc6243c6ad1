"""What ten thousand strangers cost who begin a handshake and never end it, and whether others notice.

`python -m bench.half_open` starts a broker for each kind of handshake, opens `--count` connections from several
addresses, leaves them where they are, waits until the broker has closed all of them, and opens as many again. A client
on another listener produces a record a time meanwhile. The kinds: half a ClientHello, a TLS handshake up to the
broker's answer, a SCRAM login up to the broker's challenge.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import selectors
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Final

from bench.connection_cases import connect_many
from bench.conversation import Conversation, produce_frame
from bench.processes import memory_mb
from broker.tools import cert
from dev.broker_process import BrokerProcess, port_below_client_ports
from protocol.headers import encode_request
from protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

ALONE_S: Final = 5.0
"""How long the client on the other listener is measured before the strangers come."""
_TOPIC: Final = "orders"

Begin = Callable[[list[socket.socket]], None]
"""Brings connections to where they stay."""


def begin_hello(connections: list[socket.socket]) -> None:
    """Send half a ClientHello: the broker waits for the rest of the record."""
    hello = _client_hello()
    for connection in connections:
        connection.sendall(hello[: len(hello) // 2])


def begin_tls(connections: list[socket.socket]) -> None:
    """Send a ClientHello and take the broker's answer: it has made keys, and waits for the client's Finished."""
    hello = _client_hello()
    for connection in connections:
        connection.sendall(hello)
        connection.recv(1 << 16)


def begin_sasl(connections: list[socket.socket]) -> None:
    """Log in by SCRAM up to the broker's challenge."""
    frames = (
        encode_request(1, "stranger", SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1),
        encode_request(2, "stranger", SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=abc"), 2),
    )
    for connection in connections:
        for frame in frames:
            connection.sendall(frame)
            connection.recv(1 << 16)


KINDS: Final[dict[str, tuple[str, Begin]]] = {
    "half a ClientHello": ("TLS", begin_hello),
    "TLS up to Finished": ("TLS", begin_tls),
    "SCRAM up to the proof": ("SASL", begin_sasl),
}
"""The listener of each kind, and how it begins."""


def _client_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake without the other end")


class Guarded(BrokerProcess):
    """A broker with a plain listener, one with TLS and one with SASL."""

    def __init__(self, directory: Path, timeout_s: float) -> None:
        with redirect_stdout(StringIO()):
            assert cert.main([str(directory / "keys"), "localhost"]) == 0
        plain = port_below_client_ports()
        self.ports = {"TLS": port_below_client_ports(above=plain)}
        self.ports["SASL"] = port_below_client_ports(above=self.ports["TLS"])
        opened = {"PLAINTEXT": plain, **self.ports}
        super().__init__(
            directory,
            port=plain,
            settings={
                "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in opened.items()),
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TLS:SSL,SASL:SASL_PLAINTEXT",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(directory / "keys" / "broker.pem"),
                "sasl.enabled.mechanisms": "SCRAM-SHA-256",
                "ottla.authentication.timeout.ms": str(round(timeout_s * 1000)),
            },
        )


def produce_on(bootstrap: str, results: Pipe) -> None:
    """Produce a record a time until the pipe says stop; then send when each was sent, and how long it took."""
    frame = produce_frame(_TOPIC, 0, records=1, value_bytes=100)
    took: list[tuple[float, float]] = []
    with Conversation(bootstrap) as conversation:
        conversation.create_topic(_TOPIC, partitions=1)
        results.send("ready")
        while not results.poll():
            began = time.monotonic()
            conversation.exchange(frame)
            took.append((began, time.monotonic() - began))
            time.sleep(0.002)
    results.send(took)


def wait_until_closed(connections: list[socket.socket], patience_s: float) -> int:
    """Wait until the broker has closed the connections. Returns how many are still open when patience is at an end."""
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            connection.setblocking(False)
            selector.register(connection, selectors.EVENT_READ)
        deadline = time.monotonic() + patience_s
        while selector.get_map() and time.monotonic() < deadline:
            for key, _ in selector.select(0.5):
                assert isinstance(key.fileobj, socket.socket)
                try:
                    is_closed = not key.fileobj.recv(1 << 16)
                except ConnectionResetError:
                    is_closed = True
                if is_closed:
                    selector.unregister(key.fileobj)
        return len(selector.get_map())


def told(took: list[tuple[float, float]], since: float, until: float) -> str:
    """The median, the 99th percentile and the longest time of what was sent in a span, in milliseconds."""
    times = sorted(time_s * 1000 for began, time_s in took if since <= began < until)
    if not times:
        return "none"
    return f"{times[len(times) // 2]:.1f} / {times[len(times) * 99 // 100]:.1f} / {times[-1]:.0f} ms"


def measure(kind: str, count: int, timeout_s: float) -> bool:
    """Measure one kind and print its figures; whether all connections were closed in time."""
    listener, begin = KINDS[kind]
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    with tempfile.TemporaryDirectory() as directory:
        broker = Guarded(Path(directory), timeout_s)
        broker.start()
        neighbour = context.Process(target=produce_on, args=(broker.bootstrap, theirs))
        connections: list[socket.socket] = []
        try:
            neighbour.start()
            ours.recv()
            began = time.monotonic()
            time.sleep(ALONE_S)
            before_mb = memory_mb(broker.process.pid)[0]
            came = time.monotonic()
            connections = connect_many(f"127.0.0.1:{broker.ports[listener]}", count)
            begin(connections)
            held = time.monotonic()
            held_mb = memory_mb(broker.process.pid)[0]
            left = wait_until_closed(connections, 2 * timeout_s + 30)
            gone = time.monotonic()
            gone_mb = memory_mb(broker.process.pid)[0]
            for connection in connections:
                connection.close()
            connections = connect_many(f"127.0.0.1:{broker.ports[listener]}", count)
            begin(connections)
            again_mb = memory_mb(broker.process.pid)[0]
            ours.send("stop")
            took = ours.recv()
        finally:
            for connection in connections:
                connection.close()
            neighbour.terminate()
            neighbour.join()
            broker.close()
    more_mb = [mb - before_mb for mb in (held_mb, gone_mb, again_mb)]
    sys.stdout.write(
        f"{kind}: {count} in {held - came:.1f} s; {more_mb[0]:.0f} MB more ({more_mb[0] * 1000 / count:.1f} KB each), "
        f"{more_mb[1]:.0f} MB when they are gone, {more_mb[2]:.0f} MB with as many again; "
        f"{left} open {gone - held:.0f} s later (limit {timeout_s:.0f} s)\n"
        f"  a record beside them (p50 / p99 / longest): alone {told(took, began, came)}, while they come "
        f"{told(took, came, held)}, while they stay {told(took, held, gone)}\n"
    )
    sys.stdout.flush()
    return left == 0


def main() -> int:
    """Measure every kind; 1 if connections were left."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--timeout", type=float, default=30.0, help="ottla.authentication.timeout.ms, in seconds")
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard != resource.RLIM_INFINITY and hard < options.count + 100:
        raise SystemExit(f"this machine allows {hard} file descriptors, fewer than {options.count} connections take")
    measured = [measure(kind, options.count, options.timeout) for kind in KINDS]
    return 0 if all(measured) else 1


if __name__ == "__main__":
    raise SystemExit(main())
