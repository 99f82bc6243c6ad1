"""An Apache Kafka broker joins the cluster of a running Ottla: registered, asked by clients, stopped, and back."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from dev.apache_kafka import ApacheKafka
from dev.broker_process import BrokerProcess, port_below_client_ports
from tests.interop import programs
from tests.interop.conftest import installed
from tests.interop.java_tools import CLASSES, JavaTools

PATIENCE_S: Final = 60.0
SESSION_MS: Final = 4_000
OTTLA: Final = {
    "controller.listener.names": "CONTROLLER",
    "broker.session.timeout.ms": str(SESSION_MS),
    "metadata.log.max.record.bytes.between.snapshots": "1500",
}


class KafkaBroker(ApacheKafka):
    """Apache Kafka as broker 2 of a cluster whose controller is an Ottla."""

    def __init__(self, directory: Path, ottla: BrokerProcess, *, port: int, libraries: str) -> None:
        super().__init__(directory, settings=None, port=port, libraries=libraries)
        self._ottla = ottla
        self.heap, self.quick_start = "512M", True

    def _write_properties(self) -> None:
        listener = f"PLAINTEXT://{self.bootstrap}"
        properties = {
            "process.roles": "broker",
            "node.id": "2",
            "listeners": listener,
            "advertised.listeners": listener,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self._ottla.port + 1}",
            "log.dirs": str(self.data_directory),
        }
        text = "".join(f"{key}={value}\n" for key, value in properties.items())
        (self.directory / "server.properties").write_text(text)

    def format(self) -> None:
        """Write the settings, and format the directory for Ottla's cluster if it is new."""
        self._write_properties()
        if (self.data_directory / "meta.properties").exists():
            return
        command = self._java(
            "kafka.tools.StorageTool",
            *("format", "-t", self._ottla.cluster_id, "--no-initial-controllers"),
            *("-c", str(self.directory / "server.properties")),
        )
        with self.log_path.open("ab") as log:
            subprocess.run(command, check=True, stdout=log, stderr=log)


@pytest.fixture
def ottla(tmp_path: Path) -> Iterator[BrokerProcess]:
    port = port_below_client_ports()
    listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 1}"
    process = BrokerProcess(tmp_path / "ottla", settings={**OTTLA, "listeners": listeners}, port=port)
    process.start()
    try:
        yield process
    finally:
        process.close()


@pytest.fixture
def kafka(ottla: BrokerProcess, tmp_path: Path) -> Iterator[KafkaBroker]:
    libraries = str(installed(programs.kafka_libraries))
    broker = KafkaBroker(
        tmp_path / "kafka", ottla, port=port_below_client_ports(above=ottla.port + 1), libraries=libraries
    )
    broker.start()
    try:
        yield broker
    finally:
        broker.close()


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} has not come to pass"
        time.sleep(0.05)


def leaders(bootstrap: str, topic: str) -> dict[int, int]:
    """The leader of each partition, as the broker at this address tells a client that has not asked another broker."""
    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(topic, timeout=30).topics[topic]
    return {} if found.error else {number: partition.leader for number, partition in found.partitions.items()}


def quorum(java: JavaTools, ottla: BrokerProcess) -> dict[int, str]:
    """The role of each node in the quorum, as Ottla's controller listener tells it."""
    command = [*java.command, CLASSES["kafka-metadata-quorum"]]
    words = ["--bootstrap-controller", f"127.0.0.1:{ottla.port + 1}", "describe", "--replication"]
    rows = [line.split() for line in programs.run([*command, *words], timeout_s=PATIENCE_S).done().lines]
    return {int(row[0]): row[-1] for row in rows if row[0].isdigit()}


@pytest.mark.timeout(300)
def test_a_kafka_broker_joins_forwards_and_comes_back(ottla: BrokerProcess, kafka: KafkaBroker) -> None:
    java = JavaTools(installed(programs.java), kafka.bootstrap)
    # Both take part in the quorum, and Kafka's clients see both brokers.
    assert quorum(java, ottla) == {1: "Leader", 2: "Observer"}
    brokers = [line for line in java.lines("kafka-broker-api-versions") if " -> (" in line]
    assert [line.partition(" ")[0] for line in sorted(brokers)] == sorted([ottla.bootstrap, kafka.bootstrap])
    assert "Leader" in "".join(java.lines("kafka-metadata-quorum", "describe", "--replication")), "by Envelope"

    # What a client asks of Kafka is decided by Ottla.
    created = java.lines("kafka-topics", "--create", "--topic", "first", "--replica-assignment", "2,1,2")
    assert created[-1] == "Created topic first."
    assert leaders(kafka.bootstrap, "first") == {0: 2, 1: 1, 2: 2}
    refused = java.run("kafka-topics", "--create", "--topic", "first").refused()
    assert "Topic 'first' already exists." in refused.said
    java.lines(
        *("kafka-configs", "--alter", "--entity-type", "topics", "--entity-name", "first"),
        *("--add-config", "retention.ms=123456"),
    )
    described = java.lines("kafka-configs", "--describe", "--entity-type", "topics", "--entity-name", "first")
    assert re.search(r"retention\.ms=123456 ", "".join(described))

    of_broker = ("--entity-type", "brokers", "--entity-name", "2")
    java.lines("kafka-configs", "--alter", *of_broker, "--add-config", "log.cleaner.threads=2")
    assert "log.cleaner.threads=2 " in "".join(java.lines("kafka-configs", "--describe", *of_broker))

    # Kafka leads what the controller gives it. Only Kafka is asked.
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "acks": "all"})
    producer.produce("first", b"one", partition=0)
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition("first", 0, 0)])
    message = consumer.poll(30)
    assert message is not None
    assert message.value() == b"one"
    consumer.close()

    # Ottla dies and comes back: another epoch of the same leader.
    ottla.kill()
    ottla.start()
    second = java.lines("kafka-topics", "--create", "--topic", "second", "--replica-assignment", "2")
    assert second[-1] == "Created topic second."
    assert leaders(kafka.bootstrap, "second") == {0: 2}

    # Kafka stops in order: nothing is led by it. It returns with an empty copy of the metadata: from a snapshot.
    kafka.stop()
    until(lambda: leaders(ottla.bootstrap, "first")[0] == -1, "a stopped broker leads nothing")
    snapshots = [path.name for path in ottla.data_directory.glob("__cluster_metadata-0/*.checkpoint")]
    assert any(not name.startswith("0" * 20) for name in snapshots), snapshots
    shutil.rmtree(kafka.data_directory / "__cluster_metadata-0")
    kafka.start()
    until(lambda: leaders(kafka.bootstrap, "first")[0] == 2, "a broker that is back leads what it had")
    assert leaders(kafka.bootstrap, "second") == {0: 2}
    loaded = [path.name for path in kafka.data_directory.glob("__cluster_metadata-0/*.checkpoint")]
    assert any(name in snapshots for name in loaded if not name.startswith("0" * 20)), (snapshots, loaded)

    # Kafka dies: its session is over after a while.
    kafka.kill()
    until(lambda: leaders(ottla.bootstrap, "first")[0] == -1, "a dead broker leads nothing")
    assert "fenced" in ottla.log_text()
