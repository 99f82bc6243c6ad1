"""The image's entry point, started as a container engine would: KAFKA_… variables, SIGTERM, one volume."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from dev.broker_process import BrokerProcess, port_below_client_ports
from dev.repository import REPOSITORY
from ottla.testing.control import Control
from tests.support.clients import Record, connect, values

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("OTTLA_TEST_BOOTSTRAP") or os.environ.get("OTTLA_TEST_KAFKA_LIBS")),
    reason="another broker's image is not ours to judge",
)


class Container(BrokerProcess):
    """The process of a container: it knows its variables and its volume, and nothing of the command line."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        super().__init__(directory)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            metrics = f"127.0.0.1:{probe.getsockname()[1]}"
        self.environment = {
            "KAFKA_LOG_DIRS": str(self.data_directory),
            "KAFKA_OTTLA_PROMETHEUS_LISTENER": metrics,
            **environment,
        }

    def command(self) -> list[str]:
        return self.ottla("run")

    def ottla(self, command: str) -> list[str]:
        """What the image's entry point or its health check runs."""
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        return ["env", *variables, sys.executable, "-m", "ottla", command, "--container"]

    def health(self) -> tuple[int, str]:
        """What the health check says, and how it ends."""
        ended = subprocess.run(self.ottla("health"), cwd=REPOSITORY, capture_output=True, text=True, timeout=60)
        return ended.returncode, ended.stdout.strip()


@pytest.fixture
def port() -> int:
    return port_below_client_ports()


@pytest.fixture
def container(tmp_path: Path, port: int) -> Iterator[Container]:
    """What Kafka's compose file for one node says, on another port; not started yet."""
    container = Container(
        tmp_path,
        {
            "KAFKA_NODE_ID": "1",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT",
            "KAFKA_ADVERTISED_LISTENERS": f"OUTSIDE://127.0.0.1:{port}",
            "KAFKA_PROCESS_ROLES": "broker,controller",
            "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@broker:29093",
            "KAFKA_LISTENERS": f"CONTROLLER://:29093,OUTSIDE://:{port}",
            "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
            "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
            "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
            "KAFKA_HEAP_OPTS": "-Xmx512M",
            "KAFKA_LOG4J_ROOT_LOGLEVEL": "WARN",
            "KAFKA_CREATE_TOPICS": "orders:6:1,audit:1:1:compact",
        },
    )
    try:
        yield container
    finally:
        container.close()


def test_a_compose_file_of_kafkas_image_starts_a_broker_that_stock_clients_use(container: Container) -> None:
    container.start()

    client = connect("kafka-python", container.bootstrap)
    assert container.cluster_id == "4L6g3nShT-eMCtK--X86sw"
    assert client.topics() == {"orders", "audit"}
    assert client.partitions("orders") == [0, 1, 2, 3, 4, 5]
    client.produce("orders", [Record(value=b"v", partition=5)])
    assert values(client.consume("orders", partition=5, offset=0, count=1)) == [b"v"]
    said = container.log_text()
    assert "without effect here, where no Java runs: KAFKA_HEAP_OPTS" in said
    assert "without effect here, where log4j writes no log: KAFKA_LOG4J_ROOT_LOGLEVEL" in said


def test_a_container_that_is_made_anew_on_its_volume_goes_on(container: Container) -> None:
    container.start()
    connect("kafka-python", container.bootstrap).produce("orders", [Record(value=b"v", partition=0)])
    container.stop()
    assert "stopped cleanly" in container.log_text()

    container.start()

    client = connect("kafka-python", container.bootstrap)
    assert values(client.consume("orders", partition=0, offset=0, count=1)) == [b"v"]
    assert "recover" not in container.log_text()


def test_it_is_healthy_from_the_moment_it_accepts_requests_until_it_stops(container: Container) -> None:
    code, said = container.health()
    assert code == 1
    assert said.startswith("no broker answers on 127.0.0.1:")

    container.start()
    assert container.health() == (0, "ready")

    container.stop()
    assert container.health()[0] == 1


def test_a_volume_of_another_cluster_is_refused(container: Container) -> None:
    container.start()
    container.stop()
    container.environment["CLUSTER_ID"] = "5L6g3nShT-eMCtK--X86sw"

    refused = subprocess.run(container.command(), cwd=REPOSITORY, capture_output=True, text=True, timeout=60)

    assert refused.returncode == 1
    sentence = "belongs to cluster 4L6g3nShT-eMCtK--X86sw, and ottla.cluster.id is 5L6g3nShT-eMCtK--X86sw"
    assert refused.stderr.splitlines()[-1].endswith(sentence)


def test_a_cluster_id_that_is_padded_is_kept_as_it_was_given(container: Container) -> None:
    container.environment["CLUSTER_ID"] = "Q2FzZVN0dWR5Q2x1c3Rlcg=="
    container.start()
    assert container.cluster_id == "Q2FzZVN0dWR5Q2x1c3Rlcg=="
    container.stop()

    container.start()

    assert container.cluster_id == "Q2FzZVN0dWR5Q2x1c3Rlcg=="
    admin = AdminClient({"bootstrap.servers": container.bootstrap})
    assert admin.list_topics(timeout=10).cluster_id == "Q2FzZVN0dWR5Q2x1c3Rlcg=="


def test_only_advertised_listeners_are_enough_and_every_interface_is_listened_on(tmp_path: Path, port: int) -> None:
    container = Container(tmp_path, {"KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://localhost:{port}"})
    try:
        container.start()
        assert f"listeners=PLAINTEXT://0.0.0.0:{port} " in container.ready_line
        with socket.create_connection(("127.0.0.2", port), timeout=60):
            pass
    finally:
        container.close()


def test_a_container_with_a_broker_for_tests_is_used_from_outside(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        metrics = f"127.0.0.1:{probe.getsockname()[1]}"
    environment = {
        **os.environ,
        "TMPDIR": str(tmp_path),
        "KAFKA_LISTENERS": "PLAINTEXT://:0",
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:0",
        "KAFKA_OTTLA_CONTROL_LISTENER": ":0",
        "KAFKA_OTTLA_PROMETHEUS_LISTENER": metrics,
    }
    words = [sys.executable, "-m", "ottla"]
    with subprocess.Popen(
        [*words, "run", "--container", "--test", "--log-level", "ERROR"],
        cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            said = json.loads(process.stdout.readline())
            for bootstrap, url in _with_a_fork(said["bootstrap"], said["control"]):
                connect("kafka-python", bootstrap).produce("orders", [Record(value=b"v")])
                control = Control(url)
                assert [record["value"] for record in control.call("/records/read", topic="orders")["records"]] == ["v"]
                control.close()
            port = int(said["control"].rpartition(":")[2])
            connection = http.client.HTTPConnection("127.0.0.1", port)
            connection.request("GET", "/clients", headers={"Host": f"elsewhere:{port}"})
            assert connection.getresponse().status == http.HTTPStatus.FORBIDDEN
            connection.close()
            health = subprocess.run(
                [*words, "health", "--container"], cwd=REPOSITORY, env=environment, capture_output=True, text=True
            )
            assert health.stdout == "ready\n"
        finally:
            process.terminate()
    assert process.returncode == 0
    assert list(tmp_path.iterdir()) == []


def _with_a_fork(bootstrap: str, control_url: str) -> Iterator[tuple[str, str]]:
    """The addresses of a broker for tests; then those of a fork, which has ports of its own."""
    assert bootstrap.startswith("localhost:")
    assert control_url.startswith("http://localhost:")
    control = Control(control_url)
    fork = control.call("/fork")
    control.close()
    assert fork["bootstrap"].startswith("localhost:")
    assert fork["bootstrap"] != bootstrap
    yield bootstrap, control_url
    yield fork["bootstrap"], fork["control"]
