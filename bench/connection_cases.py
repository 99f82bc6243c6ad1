"""Cases of many connections and of bad clients: memory of idle connections, fairness, and the latency of other
clients."""

from __future__ import annotations

import re
import select
import socket
import time
from pathlib import Path

from bench.conversation import Conversation, address_of, fetch_frame, produce_frame
from bench.disturbers import COLD_BYTES, GREEDY_BYTES
from bench.load import LoadFailed, run_load, run_paced
from bench.processes import Disturber, OwnBroker, memory_mb
from bench.raw_cases import Bench, check_produced, percentiles, values_in

API_VERSIONS_V0 = bytes.fromhex("0000000a 0012 0000 00000001 ffff")

IDLE = 10_000
IDLE_S = 5.0
ADDRESSES = 20
"""How many loopback addresses the connections come from: an address has 28,000 ports, and other cases need some too."""

ACTIVE = 2_000
ACTIVE_S = 10.0
ACTIVE_LEAST_S = 1.0
FETCHED_BYTES = 64 * 1024
PRODUCED_BYTES = 4 * 1024

COLD_BATCH_BYTES = 16 * 1024
COLD_LOG_BYTES = 512_000_000

PACED_RATE = 500
PACED_S = 4.0
PACED_LEAST_S = 1.0
DISTURBERS = ("trickle", "deaf", "pipeline", "greedy")
ANSWERED = re.compile(r"GOOD answered (\d+) requests since the last such line: p50 (\d+) us, .*p99 (\d+) us, p99\.9")


def connect_many(bootstrap: str, count: int) -> list[socket.socket]:
    """Open connections so slowly that the system drops no SYN: a lost SYN is repeated after a second only."""
    connections = []
    for number in range(count):
        connection = socket.socket()
        connection.bind((f"127.0.0.{1 + number % ADDRESSES}", 0))
        connection.connect(address_of(bootstrap))
        connections.append(connection)
        if number % 10 == 0:
            time.sleep(0.002)
    return connections


def idle_connections(directory: Path) -> dict[str, float]:
    """The memory and CPU of 10,000 connections on a new broker, after they have connected and after each has sent a
    request."""
    broker = OwnBroker(directory)
    connections: list[socket.socket] = []
    try:
        before_mb = memory_mb(broker.pid)[0]
        connections = connect_many(broker.bootstrap, IDLE)
        _ask_all(connections[-1:])
        connected_mb = memory_mb(broker.pid)[0] - before_mb
        _ask_all(connections)
        asked_mb = memory_mb(broker.pid)[0] - before_mb
        cpu = broker.cpu_seconds()
        time.sleep(IDLE_S)
        cpu = broker.cpu_seconds() - cpu
    finally:
        for connection in connections:
            connection.close()
        broker.close()
    return {"connected_mb": connected_mb, "asked_mb": asked_mb, "idle_cpu_percent": cpu / IDLE_S * 100}


def _ask_all(connections: list[socket.socket]) -> None:
    for connection in connections:
        connection.sendall(API_VERSIONS_V0)
    for connection in connections:
        size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
        connection.recv(size, socket.MSG_WAITALL)


class _Active:
    """A connection of the fairness case: it sends its request again as soon as the request is answered."""

    def __init__(self, connection: socket.socket, frame: bytes, *, counts_answers: bool) -> None:
        self.socket = connection
        self.frame = frame
        self.counts_answers = counts_answers
        self.served_bytes = 0
        """Bytes of the answers (fetch) or of the answered requests (produce)."""
        self._left = 0

    def ask(self) -> None:
        self.socket.sendall(self.frame)
        self._left = 4
        self._has_size = False

    def receive(self, view: memoryview) -> None:
        received = self.socket.recv_into(view)
        if not received:
            raise LoadFailed("the broker closed a connection")
        if self.counts_answers:
            self.served_bytes += received
        if not self._has_size:
            if received < 4:
                raise LoadFailed("the size of an answer came in pieces")
            self._has_size = True
            self._left = 4 + int.from_bytes(view[:4], "big")
        self._left -= received
        if not self._left:
            if not self.counts_answers:
                self.served_bytes += len(self.frame)
            self.ask()


def fairness(bench: Bench) -> dict[str, float]:
    """The shares of 2,000 connections with one request in flight each: one half fetches 64 KB, the other half produces
    4 KB."""
    with bench.topic(2) as topic:
        fill = produce_frame(topic, 0, records=values_in(FETCHED_BYTES), value_bytes=1_000)
        run_load(bench.broker.bootstrap, [fill], in_flight=1, requests=4, check=check_produced)
        fetching = fetch_frame(topic, [0], partition_bytes=FETCHED_BYTES)
        producing = produce_frame(topic, 1, records=values_in(PRODUCED_BYTES), value_bytes=1_000)
        sockets = connect_many(bench.broker.bootstrap, ACTIVE)
        try:
            active = [
                _Active(one, producing if number % 2 else fetching, counts_answers=number % 2 == 0)
                for number, one in enumerate(sockets)
            ]
            before = bench.broker.cpu_seconds()
            seconds = _saturate(active, max(ACTIVE_LEAST_S, ACTIVE_S * bench.scale))
            cpu = bench.broker.cpu_seconds() - before
        finally:
            for one in sockets:
                one.close()
    fetched = sorted(one.served_bytes for one in active if one.counts_answers)
    produced = sorted(one.served_bytes for one in active if not one.counts_answers)
    return {
        "fetch_ratio": fetched[0] / fetched[-1],
        "produce_ratio": produced[0] / produced[-1],
        "fetched_mb_s": sum(fetched) / seconds / 1e6,
        "produced_mb_s": sum(produced) / seconds / 1e6,
        "cores": cpu / seconds,
    }


def _saturate(active: list[_Active], least_s: float) -> float:
    poller = select.epoll()
    view = memoryview(bytearray(1 << 20))
    by_descriptor = {one.socket.fileno(): one for one in active}
    for descriptor in by_descriptor:
        poller.register(descriptor, select.EPOLLIN)
    started = time.perf_counter()
    for one in active:
        one.ask()
    while (seconds := time.perf_counter() - started) < least_s:
        for descriptor, _ in poller.poll(1.0):
            by_descriptor[descriptor].receive(view)
    poller.close()
    return seconds


def disturbers(directory: Path, scale: float) -> dict[str, float]:
    """The p99 of 500 one-record requests a second, measured inside the broker, beside each disturber; and beside a busy
    loop that takes the same share of a processor as the disturber."""
    listeners = "GOOD://127.0.0.1:0,BAD://127.0.0.1:0"
    settings = {
        "listeners": listeners,
        "listener.security.protocol.map": "GOOD:PLAINTEXT,BAD:PLAINTEXT",
        "inter.broker.listener.name": "GOOD",
        "fetch.max.bytes": str(2 * GREEDY_BYTES),
    }
    paced_s = max(PACED_LEAST_S, PACED_S * scale)
    broker = OwnBroker(directory, settings=settings)
    try:
        with Conversation(broker.bootstrap) as conversation:
            conversation.create_topic("bench-bad", partitions=2)
            conversation.create_topic("bench-good", partitions=1)
        fill = produce_frame("bench-bad", 0, records=values_in(1_000_000), value_bytes=1_000)
        run_load(broker.bootstrap, [fill], in_flight=2, requests=GREEDY_BYTES // len(fill) + 2, check=check_produced)
        figures: dict[str, float] = {}
        _undisturbed_p99(broker, paced_s)
        for kind in DISTURBERS:
            with Disturber(kind, "--bootstrap", broker.listeners["BAD"], "--topic", "bench-bad") as disturber:
                disturbed_us, share = _p99_beside(broker, disturber, paced_s)
            with Disturber("spin", "--share", str(share)) as busy_loop:
                compared_us, _ = _p99_beside(broker, busy_loop, paced_s)
            figures[f"{kind}_ratio"] = disturbed_us / compared_us
            figures[f"{kind}_p99_us"] = disturbed_us
            figures[f"{kind}_busy_loop_p99_us"] = compared_us
            figures[f"{kind}_cores"] = share
    finally:
        broker.close()
    return figures


def _p99_beside(broker: OwnBroker, disturber: Disturber, seconds: float) -> tuple[float, float]:
    """The p99 in microseconds, and the share of a processor that the other process took."""
    before, started = disturber.cpu_seconds(), time.perf_counter()
    p99_us = _undisturbed_p99(broker, seconds)
    return p99_us, min((disturber.cpu_seconds() - before) / (time.perf_counter() - started), 1.0)


def _undisturbed_p99(broker: OwnBroker, seconds: float) -> float:
    frame = produce_frame("bench-good", 0, records=1, value_bytes=100)
    with socket.create_connection(address_of(broker.listeners["GOOD"])) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        broker.latency_line("GOOD")
        started = time.perf_counter()
        asked = 0
        while (elapsed := time.perf_counter() - started) < seconds:
            # It sleeps: one that spins between its requests would itself be the third process on two processors.
            time.sleep(max(asked / PACED_RATE - elapsed, 0))
            connection.sendall(frame)
            size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
            connection.recv(size, socket.MSG_WAITALL)
            asked += 1
        found = ANSWERED.search(broker.latency_line("GOOD"))
    assert found is not None, "the broker has logged no latencies"
    if int(found[1]) < asked:
        raise LoadFailed(f"{asked} requests were answered, the broker has counted {found[1]}")
    return float(found[3])


def cold_reader(directory: Path) -> dict[str, float]:
    """The latency of 500 one-record requests a second, as their client sees it: while a consumer reads a log that is
    not in the page cache, and without that consumer."""
    broker = OwnBroker(directory)
    try:
        with Conversation(broker.bootstrap) as conversation:
            conversation.create_topic("bench-cold", partitions=1)
            conversation.create_topic("bench-good", partitions=1)
        records = values_in(COLD_BATCH_BYTES)
        fill = produce_frame("bench-cold", 0, records=records, value_bytes=1_000)
        batches = COLD_LOG_BYTES // len(fill)
        run_load(broker.bootstrap, [fill], in_flight=2, requests=batches, check=check_produced)
        frame = produce_frame("bench-good", 0, records=1, value_bytes=100)
        requests = int(PACED_RATE * PACED_S)
        alone = run_paced(broker.bootstrap, [frame], rate=PACED_RATE, requests=requests)
        log = broker.data_directory / "bench-cold-0" / f"{0:020d}.log"
        reader = Disturber(
            "cold", "--bootstrap", broker.bootstrap, "--topic", "bench-cold", "--log", str(log),
            "--records", str(batches * records), "--step", str(COLD_BYTES // COLD_BATCH_BYTES * records),
        )  # fmt: skip
        with reader:
            beside = run_paced(broker.bootstrap, [frame], rate=PACED_RATE, requests=requests)
    finally:
        broker.close()
    return percentiles(beside) | {f"alone_{name}": figure for name, figure in percentiles(alone).items()}
