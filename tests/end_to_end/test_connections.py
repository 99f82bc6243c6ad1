"""The limits on connections, from outside; and a process that has run out of what the system gives."""

from __future__ import annotations

import os
import resource
import select
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dev.broker_process import BrokerProcess
from dev.brokers import broker_for_tests
from dev.waiting import PATIENCE_S, until
from protocol.headers import decode_response, encode_request
from protocol.messages.produce import ProduceResponse
from tests.support.batches import produced, record
from tests.support.clients import Record, connect, values
from tests.support.requests import produce_request

ours_only = pytest.mark.skipif(
    bool(os.environ.get("OTTLA_TEST_KAFKA_LIBS")), reason="the limits are put on a process of ours"
)
pytestmark = pytest.mark.skipif(bool(os.environ.get("OTTLA_TEST_BOOTSTRAP")), reason="the settings are the test's own")

API_VERSIONS_V0 = bytes.fromhex("0000000a 0012 0000 00000007 ffff")

Start = Callable[..., BrokerProcess]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a broker with settings of the test's own; underscores for the dots."""
    started: list[BrokerProcess] = []

    def start(kind: Callable[..., BrokerProcess] = broker_for_tests, **settings: object) -> BrokerProcess:
        given = {key.replace("_", "."): str(value) for key, value in settings.items()}
        started.append(kind(tmp_path / "broker", settings=given))
        return started[-1].start()

    yield start
    for broker in started:
        broker.close()


class Connection:
    """A connection that asks for the versions."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.socket = socket.create_connection(("127.0.0.1", broker.port), timeout=PATIENCE_S)
        self.socket.sendall(API_VERSIONS_V0)

    def is_answered(self) -> bool:
        """Wait for the answer, or for the end of the connection."""
        try:
            return self.socket.recv(4096)[4:10] == bytes.fromhex("00000007 0000")
        except ConnectionResetError:
            return False

    def has_heard_nothing(self) -> bool:
        return not select.select([self.socket], [], [], 0)[0]

    def is_closed(self) -> bool:
        """Wait until the broker closes."""
        try:
            return self.socket.recv(4096) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.socket.close()


Ask = Callable[[BrokerProcess], Connection]


@pytest.fixture
def ask() -> Iterator[Ask]:
    """Connect and ask."""
    asked: list[Connection] = []

    def ask(broker: BrokerProcess) -> Connection:
        asked.append(Connection(broker))
        return asked[-1]

    yield ask
    for connection in asked:
        connection.close()


def test_above_max_connections_a_new_one_waits_until_another_closes(start: Start, ask: Ask) -> None:
    broker = start(max_connections=2)
    first, second, third = (ask(broker) for _ in range(3))
    assert first.is_answered()
    assert second.is_answered()
    # What the first asks again goes through all the loop while the third, if it had been let in, would be answered too.
    for _ in range(20):
        first.socket.sendall(API_VERSIONS_V0)
        assert first.is_answered()
    assert third.has_heard_nothing()
    first.close()
    assert third.is_answered()


def test_above_max_connections_per_ip_a_new_one_is_closed_at_once(start: Start, ask: Ask) -> None:
    broker = start(max_connections_per_ip=1000, max_connections_per_ip_overrides="localhost:2")
    kept: list[Connection] = []

    def two_are_let_in() -> bool:
        # Kafka may still count the connection that has seen it start.
        one = ask(broker)
        if one.is_answered():
            kept.append(one)
        return len(kept) == 2

    until(two_are_let_in, "letting two in")
    assert ask(broker).is_closed()
    kept[0].socket.sendall(API_VERSIONS_V0)
    assert kept[0].is_answered()


def test_above_max_connection_creation_rate_a_new_one_comes_late(start: Start, ask: Ask) -> None:
    broker = start(max_connection_creation_rate=1)
    began = time.monotonic()
    connections = [ask(broker) for _ in range(11)]
    assert all(one.is_answered() for one in connections)
    # Ten windows' worth come at once, the eleventh a second later: never earlier, however slow the machine is.
    assert time.monotonic() - began >= 0.99


def test_an_idle_connection_is_closed(start: Start, ask: Ask) -> None:
    broker = start(connections_max_idle_ms=1000)
    connection = ask(broker)
    assert connection.is_answered()
    assert connection.is_closed()


def test_a_request_above_socket_request_max_bytes_closes_the_connection_when_it_is_announced(
    start: Start, ask: Ask
) -> None:
    broker = start(socket_request_max_bytes=1000)
    connection = ask(broker)
    assert connection.is_answered()
    connection.socket.sendall((1001).to_bytes(4, "big"))
    assert connection.is_closed()
    assert ask(broker).is_answered()


class FewDescriptors(BrokerProcess):
    """A broker that may have 60 files open."""

    def command(self) -> list[str]:
        limited = "import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60)); "
        return [sys.executable, "-c", limited + "os.execv(sys.executable, sys.argv[1:])", *super().command()]


@ours_only
def test_without_descriptors_it_waits_and_goes_on_when_there_are_some(start: Start) -> None:
    broker = start(FewDescriptors)
    crowd = [socket.socket() for _ in range(80)]
    for one in crowd:
        one.setblocking(False)
        one.connect_ex(("127.0.0.1", broker.port))
    until(lambda: "accepts nothing for 1000 ms: Too many open files" in broker.log_text(), "running out")
    for one in crowd:
        one.close()

    client = connect("confluent-kafka", broker.bootstrap)
    client.produce("t", [Record(value=b"v")])
    assert values(client.consume_all("t")) == [b"v"]
    broker.stop()


@ours_only
def test_without_a_thread_what_is_to_be_flushed_waits_and_none_is_lost(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not hasattr(resource, "prlimit"):
        pytest.skip("the limits of another process cannot be changed here")
    # The start tries some threads. The C library must not keep their stacks for the next.
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.pthread.stack_cache_size=0")
    both = ",".join(str(tmp_path / name) for name in ("one", "other"))
    broker = start(log_dirs=both)
    client = connect("confluent-kafka", broker.bootstrap)
    client.create_topic("t", partitions=2, configs={"flush.messages": "1"})
    pid = broker.process.pid
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
    # Enough to work with, and less than a thread's stack.
    resource.prlimit(pid, resource.RLIMIT_AS, (pages * resource.getpagesize() + (6 << 20), resource.RLIM_INFINITY))
    with socket.create_connection(("127.0.0.1", broker.port), timeout=PATIENCE_S) as connection:
        # One of the two is in the directory whose flusher has had nothing to do so far, and waits for its thread.
        for partition in (0, 1):
            request = produce_request("t", produced([record(b"v")]), partition=partition)
            connection.sendall(encode_request(partition, "test", request, 9))
        until(lambda: "thread cannot start, its work waits for 1000 ms" in broker.log_text(), "running out")
        resource.prlimit(pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        for partition in (0, 1):
            size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
            _, answer = decode_response(ProduceResponse, 9, connection.recv(size, socket.MSG_WAITALL))
            (answered,) = answer.responses[0].partition_responses
            assert (answered.index, answered.error_code, answered.base_offset) == (partition, 0, 0)
    broker.stop()
