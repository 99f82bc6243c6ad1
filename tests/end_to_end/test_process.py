"""The process as its user meets it: one ready line, orderly ends, one sentence when it cannot start."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.broker_process import BrokerProcess
from dev.repository import REPOSITORY
from tests.support.clients import Record, connect, values

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("OTTLA_TEST_BOOTSTRAP") or os.environ.get("OTTLA_TEST_KAFKA_LIBS")),
    reason="the process of another broker is not ours to judge",
)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that is not started yet; any free port."""
    broker = BrokerProcess(tmp_path)
    try:
        yield broker
    finally:
        broker.close()


def run_to_its_end(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the daemon with a command line on which it must not start."""
    command = [sys.executable, "-m", "broker", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)


def assert_refused(result: subprocess.CompletedProcess[str], *words: str) -> None:
    assert result.returncode == 1, result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    last_line = result.stderr.strip().splitlines()[-1]
    for word in words:
        assert word in last_line, f"{word!r} is missing in: {last_line}"


def test_it_says_ready_once_and_nothing_else(process: BrokerProcess) -> None:
    process.start()

    assert f"listeners=PLAINTEXT://127.0.0.1:{process.port} " in process.ready_line
    assert process.port > 0
    assert process.node_id == 1
    assert len(process.cluster_id) == 22
    assert process.stop() == ""


def test_a_start_loads_what_every_broker_needs_and_the_rest_when_it_is_asked_for(
    process: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    process.start()

    loaded = imported(process)
    assert {"broker.handlers.produce", "broker.handlers.fetch", "broker.handlers.metadata"} <= loaded
    late = {
        "_ssl", "yaml", "prometheus_client", "difflib", "shutil", "http.server",
        "cramjam", "lz4", "zstandard", "re2",
        "broker.handlers.topics", "broker.handlers.group_membership", "broker.controller.topic_creation",
        "broker.coordinators.transaction", "broker.coordinators.transaction_coordinator",
        "broker.coordinators.share", "broker.coordinators.share_coordinator", "broker.coordinators.group.shard",
        "broker.coordinators.partition_writer", "storage.cleaning", "broker.server.topics_at_start", "broker.tools",
        "broker.security.acls", "config.authorizer",
        "broker.network.tls_transport", "broker.security.tls", "config.tls",
        "protocol.messages.group_membership", "protocol.messages.topics",
    }  # fmt: skip
    assert all(importlib.util.find_spec(name) for name in late), "a name that nothing has can not be found"
    assert not loaded & late

    connect("kafka-python", process.bootstrap).create_topic("orders")
    now = imported(process)
    assert {"broker.handlers.topics", "protocol.messages.topics"} <= now
    assert "broker.handlers.group_membership" not in now


def imported(process: BrokerProcess) -> set[str]:
    """The modules that a broker whose imports are profiled has loaded."""
    lines = process.log_path.read_text().splitlines()
    return {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}


def test_it_answers_from_the_moment_it_says_ready(process: BrokerProcess) -> None:
    process.start()

    with socket.create_connection(("127.0.0.1", process.port), timeout=60) as connection:
        # ApiVersions v0, correlation id 7, client id null.
        connection.sendall(bytes.fromhex("0000000a 0012 0000 00000007 ffff"))
        answer = connection.recv(4096)
    assert answer[4:10] == bytes.fromhex("00000007 0000")


def test_it_warns_of_a_listener_that_other_machines_can_use_without_authentication(process: BrokerProcess) -> None:
    process.settings = {
        "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://0.0.0.0:0",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "advertised.listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
        "inter.broker.listener.name": "INSIDE",
    }
    process.start()
    process.stop()

    (line,) = [line for line in process.log_text().splitlines() if "without authentication" in line]
    assert "OUTSIDE://0.0.0.0:" in line
    assert "INSIDE" not in line


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_stops_in_order(process: BrokerProcess, number: signal.Signals) -> None:
    process.start()
    connect("confluent-kafka", process.bootstrap).produce("t", [Record(value=b"v")])

    process.stop(number)

    assert (process.data_directory / ".kafka_cleanshutdown").exists()
    assert "Traceback" not in process.log_text()


def test_it_stops_in_order_with_clients_connected_and_waiting(process: BrokerProcess) -> None:
    process.start()
    idle = [socket.create_connection(("127.0.0.1", process.port)) for _ in range(20)]

    process.stop()

    for connection in idle:
        connection.close()
    assert "Traceback" not in process.log_text()


def test_a_new_directory_gets_an_identity_that_stays(process: BrokerProcess) -> None:
    process.start()
    cluster_id = process.cluster_id
    process.stop()

    process.start()

    assert process.cluster_id == cluster_id


def test_any_node_id_also_zero(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, settings={"node.id": "0"})
    try:
        broker.start()
        assert broker.node_id == 0
        client = connect("kafka-python", broker.bootstrap)
        client.produce("t", [Record(value=b"v")])
        assert values(client.consume_all("t")) == [b"v"]
        assert client.cluster().controller_id == 0
    finally:
        broker.close()


def test_a_second_process_on_the_same_directory_is_refused(process: BrokerProcess) -> None:
    process.start()

    second = run_to_its_end("-o", "listeners=PLAINTEXT://127.0.0.1:0", "-o", f"log.dirs={process.data_directory}")

    assert_refused(second, str(process.data_directory))
    process.stop()


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run_to_its_end("-o", f"listeners=PLAINTEXT://127.0.0.1:{port}", "-o", f"log.dirs={tmp_path / 'data'}")
    assert_refused(result, str(port))


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("num.partitions=zero", ["num.partitions", "zero"]),
        ("num.partitions=0", ["num.partitions", "0"]),
        ("num.partitons=3", ["num.partitons", "num.partitions"]),
        ("log.segment.bytes=100", ["log.segment.bytes", "100", "1048576"]),
        ("listeners=SSL://127.0.0.1:0", ["SSL", "ssl.keystore.location"]),
        ("listeners=nonsense", ["listeners", "nonsense"]),
        ("listeners=SASL_PLAINTEXT://127.0.0.1:0", ["sasl.enabled.mechanisms", "GSSAPI"]),
        ("max.connections.per.ip.overrides=no-such-host.invalid:5", ["no-such-host.invalid", "has no address"]),
    ],
)
def test_a_wrong_setting_is_one_sentence(tmp_path: Path, option: str, words: list[str]) -> None:
    result = run_to_its_end(
        *("-o", "listeners=PLAINTEXT://127.0.0.1:0", "-o", f"log.dirs={tmp_path / 'data'}", "-o", option)
    )
    assert_refused(result, *words)


def test_a_missing_settings_file_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "nowhere.yaml"

    assert_refused(run_to_its_end("--config", str(missing)), str(missing))


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("not a directory")

    result = run_to_its_end("-o", "listeners=PLAINTEXT://127.0.0.1:0", "-o", f"log.dirs={in_the_way}")

    assert_refused(result, str(in_the_way))


def test_a_kafka_server_properties_is_taken_as_it_is(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(
        "process.roles=broker,controller\nnode.id=5\ncontroller.quorum.bootstrap.servers=localhost:9093\n"
        "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://:9093\ncontroller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n"
        f"log.dirs={tmp_path / 'data'}\nnum.partitions=3\noffsets.topic.replication.factor=3\n"
    )

    class FromFile(BrokerProcess):
        def command(self) -> list[str]:
            return [sys.executable, "-m", "broker", "--config", str(properties)]

    broker = FromFile(tmp_path)
    try:
        broker.start()
        assert broker.node_id == 5
        client = connect("kafka-python", broker.bootstrap)
        client.produce("three", [Record(value=b"v", partition=2)])
        assert client.partitions("three") == [0, 1, 2]
        broker.stop()
    finally:
        broker.close()
