"""An Apache Kafka broker joins the cluster of a running Ottla: registered, asked by clients, in sync, stopped, back."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from dev.broker_process import BrokerProcess, port_below_client_ports
from dev.kafka_jars import BEFORE, KAFKA_VERSION, release_of
from tests.interop import programs
from tests.interop.clusters import CLUSTER, KafkaNode
from tests.interop.conftest import installed
from tests.interop.java_tools import ADDRESS_AFTER_SUBCOMMAND, CLASSES, JavaTools
from tests.support.clusters import PATIENCE_S, Admin, Load, await_in_sync, numbers_in

OTTLA: Final = {
    "controller.listener.names": "CONTROLLER",
    "broker.session.timeout.ms": "4000",
    "metadata.log.max.record.bytes.between.snapshots": "1500",
    "ottla.cluster.id": CLUSTER,
}
TOPIC: Final = "shared"
REPLICAS: Final = "2:1,1:2"


@pytest.fixture(params=[KAFKA_VERSION, BEFORE])
def libraries(request: pytest.FixtureRequest) -> str:
    """The jars of a Kafka."""
    return str(installed(lambda: programs.kafka_libraries(request.param)))


@pytest.fixture
def ottla(libraries: str, tmp_path: Path) -> Iterator[BrokerProcess]:
    """A node with the feature levels of the Kafka."""
    port = port_below_client_ports()
    listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 1}"
    settings = {**OTTLA, "listeners": listeners, "ottla.release.version": release_of(libraries)}
    with BrokerProcess(tmp_path / "ottla", settings=settings, port=port) as process:
        yield process


@pytest.fixture
def kafka(libraries: str, ottla: BrokerProcess, tmp_path: Path) -> Iterator[KafkaNode]:
    broker = KafkaNode(
        tmp_path / "kafka",
        role="broker",
        node_id=2,
        controllers=[ottla.port + 1],
        libraries=libraries,
        port=port_below_client_ports(above=ottla.port + 1),
    )
    with broker:
        yield broker


class ControllerTools:
    """Kafka's tools, sent straight to Ottla's controller listener."""

    def __init__(self, java: JavaTools, ottla: BrokerProcess) -> None:
        self._java = java
        self._address = ("--bootstrap-controller", f"127.0.0.1:{ottla.port + 1}")

    def lines(self, tool: str, *arguments: str) -> list[str]:
        after = tool in ADDRESS_AFTER_SUBCOMMAND
        words = (*arguments, *self._address) if after else (*self._address, *arguments)
        return programs.run([*self._java.command, CLASSES[tool], *words], timeout_s=PATIENCE_S).done().lines


def roles(lines: list[str]) -> dict[int, str]:
    """The role of each node in the quorum."""
    return {int(row[0]): row[-1] for row in (line.split() for line in lines) if row and row[0].isdigit()}


def snapshots(process: BrokerProcess) -> set[str]:
    """The snapshots of the metadata that a node has written or loaded."""
    found = process.data_directory.glob("__cluster_metadata-0/*.checkpoint")
    return {path.name for path in found if not path.name.startswith("0" * 20)}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("libraries", [KAFKA_VERSION], indirect=True)
def test_kafkas_tools_ask_the_controller_listener(ottla: BrokerProcess) -> None:
    tools = ControllerTools(JavaTools(installed(programs.java), ottla.bootstrap), ottla)
    admin = Admin(ottla.bootstrap)
    admin.create("orders", [[1]])

    assert roles(tools.lines("kafka-metadata-quorum", "describe", "--replication")) == {1: "Leader"}
    status = "\n".join(tools.lines("kafka-metadata-quorum", "describe", "--status"))
    assert f'"endpoints": ["CONTROLLER://127.0.0.1:{ottla.port + 1}"]' in status
    assert tools.lines("kafka-cluster", "cluster-id") == [f"Cluster ID: {CLUSTER}"]
    assert any("metadata.version" in line and "4.4-IV2" in line for line in tools.lines("kafka-features", "describe"))
    of_topic = ("--entity-type", "topics", "--entity-name", "orders")
    tools.lines("kafka-configs", "--alter", *of_topic, "--add-config", "retention.ms=123456")
    described = JavaTools(installed(programs.java), ottla.bootstrap).lines("kafka-configs", "--describe", *of_topic)
    assert "retention.ms=123456 " in "".join(described)


@pytest.mark.timeout(300)
def test_a_kafka_broker_joins_and_what_clients_ask_of_it_is_decided_by_ottla(
    ottla: BrokerProcess, kafka: KafkaNode
) -> None:
    java = JavaTools(installed(programs.java), kafka.bootstrap)
    tools = ControllerTools(java, ottla)
    # Both are in the quorum, and Kafka's clients see both brokers.
    assert roles(tools.lines("kafka-metadata-quorum", "describe", "--replication")) == {1: "Leader", 2: "Observer"}
    assert roles(java.lines("kafka-metadata-quorum", "describe", "--replication")) == {1: "Leader", 2: "Observer"}
    brokers = [line.partition(" ")[0] for line in java.lines("kafka-broker-api-versions") if " -> (" in line]
    assert sorted(brokers) == sorted([ottla.bootstrap, kafka.bootstrap])

    created = java.lines("kafka-topics", "--create", "--topic", TOPIC, "--replica-assignment", REPLICAS)
    assert created[-1] == f"Created topic {TOPIC}."
    refused = java.run("kafka-topics", "--create", "--topic", TOPIC).refused()
    assert f"Topic '{TOPIC}' already exists." in refused.said
    of_broker = ("--entity-type", "brokers", "--entity-name", "2")
    java.lines("kafka-configs", "--alter", *of_broker, "--add-config", "log.cleaner.threads=2")
    assert "log.cleaner.threads=2 " in "".join(java.lines("kafka-configs", "--describe", *of_broker))
    admin = Admin(kafka.bootstrap)
    admin.until(lambda: admin.leaders(TOPIC) == [2, 1], "the topic has its leaders")
    java.lines("kafka-topics", "--delete", "--topic", TOPIC)
    admin.until(lambda: TOPIC not in admin.client.list_topics(timeout=10).topics, "the topic is gone")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("libraries", [KAFKA_VERSION], indirect=True)
def test_partitions_of_both_are_in_sync_through_deaths_and_stops(ottla: BrokerProcess, kafka: KafkaNode) -> None:
    both = f"{ottla.bootstrap},{kafka.bootstrap}"
    java, admin = JavaTools(installed(programs.java), kafka.bootstrap), Admin(both)
    admin.create(TOPIC, [[2, 1], [1, 2]])
    loads = [Load(both, TOPIC, partition=partition, acks="all", rate_s=200) for partition in (0, 1)]
    for load in loads:
        load.wait_for(100)
    await_in_sync({1: ottla, 2: kafka}, TOPIC)

    # Ottla dies and comes back: the same leader of the quorum in another epoch.
    ottla.kill()
    ottla.start()
    for load in loads:
        load.wait_for(100)
    await_in_sync({1: ottla, 2: kafka}, TOPIC)

    # Kafka stops in order, and hands over. It returns without its copy of the metadata: a snapshot is its beginning.
    kafka.stop()
    admin.until(lambda: admin.leaders(TOPIC) == [1, 1], "Ottla leads what Kafka led")
    for load in loads:
        load.wait_for(50)
    assert snapshots(ottla)
    shutil.rmtree(kafka.data_directory / "__cluster_metadata-0")
    kafka.start()
    assert snapshots(kafka) & snapshots(ottla)
    admin.until(lambda: admin.isrs(TOPIC) == [{1, 2}, {1, 2}], "Kafka has caught up")
    java.lines("kafka-leader-election", "--election-type", "preferred", "--all-topic-partitions")
    admin.until(lambda: admin.leaders(TOPIC) == [2, 1], "Kafka leads what it led")
    for load in loads:
        load.wait_for(50)

    # Kafka dies: its session is over after a while.
    kafka.kill()
    admin.until(lambda: admin.leaders(TOPIC) == [1, 1], "Ottla leads alone")
    for load in loads:
        load.wait_for(50)
        load.end()
    for partition, load in enumerate(loads):
        assert not load.errors
        assert numbers_in(ottla.bootstrap, TOPIC, partition) == sorted(load.acknowledged)
