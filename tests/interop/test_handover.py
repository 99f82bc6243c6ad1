"""A single node of this broker becomes a member of a cluster of Apache Kafka's controllers, and its data moves on."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from dev.apache_kafka import ApacheKafka
from dev.broker_process import BrokerProcess, port_below_client_ports
from dev.kafka_jars import BEFORE, KAFKA_VERSION, release_of
from dev.repository import REPOSITORY
from tests.interop import programs
from tests.interop.clusters import CLUSTER, KafkaNode
from tests.interop.conftest import FEW_INTERNAL_PARTITIONS, installed
from tests.interop.java_tools import CLASSES, JavaTools
from tests.support.clusters import Admin, Load, numbers_in

_log = logging.getLogger(__name__)

CONTROLLER: Final = 200
OTTLA: Final = 1
KAFKA: Final = 5
GROUP: Final = "readers"
PATIENCE_S: Final = 90.0
LONG_TRANSACTION: Final = {"transactional.id": "shop", "transaction.timeout.ms": 600_000, "log_level": 0}
OF_A_CLUSTER: Final = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
OURS: Final = {**FEW_INTERNAL_PARTITIONS, "ottla.cluster.id": CLUSTER}


class TakenOver(ApacheKafka):
    """An Apache Kafka controller on a directory that `ottla cluster handover` has written, with its settings."""

    def command(self) -> list[str]:
        return self._java("kafka.Kafka", str(self.data_directory / "controller.properties"))

    def format(self) -> None:
        """The directory is formatted."""


class Move:
    """A node of this broker, and what takes over from it."""

    def __init__(self, directory: Path, libraries: str) -> None:
        self.directory = directory
        self.libraries = libraries
        port = port_below_client_ports()
        levels = {"ottla.release.version": self.release}
        self.ottla = BrokerProcess(directory / "ottla", port=port, settings=OURS | levels)
        self.controller = TakenOver(directory / "controller", settings=None, port=port + 1, libraries=libraries)
        self.controller.heap, self.controller.quick_start = "384M", True
        self.kafka = KafkaNode(
            directory / "kafka",
            role="broker",
            node_id=KAFKA,
            controllers=[self.controller.port],
            libraries=libraries,
            settings=OF_A_CLUSTER,
            port=port_below_client_ports(above=port + 1),
        )
        self.nodes: list[BrokerProcess] = [self.ottla, self.controller, self.kafka]
        self.ottla.start()

    @property
    def release(self) -> str:
        """The release of Kafka that takes over."""
        return release_of(self.libraries)

    @property
    def controllers(self) -> str:
        return self.controller.bootstrap

    def cluster(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `ottla cluster`."""
        command = [sys.executable, "-m", "ottla", "cluster", *words]
        return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=60)

    def hand_over(self) -> str:
        """Stop the node and give its metadata to the controller, which starts. Returns what the tool said."""
        self.ottla.stop()
        target, data = str(self.controller.data_directory), str(self.ottla.data_directory)
        done = self.cluster("handover", target, "--data", data, "--controller-id", str(CONTROLLER))
        assert done.returncode == 0, done.stderr
        return done.stdout

    def become_member(self) -> None:
        """Start the node on its data again, as a broker of the controller."""
        self.ottla.settings = {**OURS, **OF_A_CLUSTER, **self.membership}
        self.ottla.start()

    @property
    def membership(self) -> dict[str, str]:
        """The settings that `ottla cluster handover` names."""
        return {"process.roles": "broker", "controller.quorum.bootstrap.servers": self.controllers}

    def check(self, directory: Path, **settings: str) -> tuple[int, list[dict[str, Any]]]:
        """`ottla cluster check` of a node with this data directory: its exit code and verdicts."""
        given = {"log.dirs": str(directory), **{key.replace("_", "."): value for key, value in settings.items()}}
        options = [word for key, value in given.items() for word in ("-o", f"{key}={value}")]
        done = self.cluster("check", "--controllers", self.controllers, "--json", *options)
        assert done.stderr == ""
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]

    def join_kafka(self) -> None:
        """Start a broker of Kafka in the same cluster."""
        self.kafka.start()

    def at_controllers(self, tool: str, *words: str) -> list[str]:
        """What one of Kafka's tools prints that asks the controllers."""
        command = programs.java(Path(self.libraries))
        address = ["--bootstrap-controller", self.controllers]
        words = (*words, *address) if tool == "kafka-cluster" else (*address, *words)
        return programs.run([*command, self.class_of(tool), *words], timeout_s=PATIENCE_S).done().lines

    def class_of(self, tool: str) -> str:
        return "kafka.admin.ConfigCommand" if self.is_before and tool == "kafka-configs" else CLASSES[tool]

    @property
    def is_before(self) -> bool:
        return self.libraries.endswith(BEFORE)

    def at(self, node: BrokerProcess) -> JavaTools:
        """Kafka's newest tools, which ask this broker."""
        return JavaTools(installed(programs.java), node.bootstrap)

    def close(self) -> None:
        for node in self.nodes:
            node.close()


@pytest.fixture
def move(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Move]:
    version = getattr(request, "param", KAFKA_VERSION)
    one = Move(tmp_path, str(installed(lambda: programs.kafka_libraries(version))))
    try:
        yield one
    finally:
        one.close()


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
        time.sleep(0.05)


def create(bootstrap: str, topic: str, partitions: int = 1, **config: str) -> None:
    wanted = NewTopic(topic, partitions, config={key.replace("_", "."): value for key, value in config.items()})
    client = AdminClient({"bootstrap.servers": bootstrap})
    client.create_topics([wanted])[topic].result(60)


def add_user(bootstrap: str, name: str) -> None:
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192)
    wanted = UserScramCredentialUpsertion(name, credential, b"a secret")
    client = AdminClient({"bootstrap.servers": bootstrap})
    client.alter_user_scram_credentials([wanted])[name].result(60)


def produce(bootstrap: str, topic: str, values: range) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
    for value in values:
        producer.produce(topic, str(value).encode(), partition=0)
    assert producer.flush(60) == 0


def commit(bootstrap: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "log_level": 0})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def committed(bootstrap: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "log_level": 0})
    try:
        (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=30)
    except KafkaException:
        return -1
    finally:
        consumer.close()
    return int(found.offset)


def begun(bootstrap: str, topic: str) -> Producer:
    """A producer with an open transaction of one record."""
    producer = Producer({"bootstrap.servers": bootstrap, **LONG_TRANSACTION})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"in a transaction", key=b"k", partition=0)
    assert producer.flush(60) == 0
    return producer


def first_committed(bootstrap: str, topic: str) -> bytes | None:
    """The first record of a topic that a read_committed consumer gets."""
    settings = {"group.id": "none", "enable.auto.commit": False, "isolation.level": "read_committed", "log_level": 0}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(PATIENCE_S)
    consumer.close()
    return None if message is None else message.value()


def of_type(dumped: Sequence[str], kind: str) -> list[dict[str, Any]]:
    """The records of one type as `kafka-dump-log` reads them."""
    records = [json.loads(line.partition(" payload: ")[2]) for line in dumped if " payload: " in line]
    return [record["data"] for record in records if record["type"] == kind]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("move", [BEFORE, KAFKA_VERSION], indirect=True)
def test_a_kafka_controller_goes_on_with_what_a_single_node_has_decided(move: Move) -> None:
    ottla = move.ottla
    create(ottla.bootstrap, "orders", 3, retention_ms="1234567")
    create(ottla.bootstrap, "prices", cleanup_policy="compact", min_insync_replicas="1")
    add_user(ottla.bootstrap, "alice")
    produce(ottla.bootstrap, "orders", range(100))
    commit(ottla.bootstrap, "orders", 42)
    transaction = begun(ottla.bootstrap, "prices")

    said = move.hand_over()
    assert f"controller.quorum.bootstrap.servers={move.controllers}" in said

    # Kafka reads every record of the snapshot.
    (snapshot,) = move.controller.data_directory.glob("__cluster_metadata-0/*.checkpoint")
    words = ["--cluster-metadata-decoder", "--files", str(snapshot)]
    dump = [*programs.java(Path(move.libraries)), "org.apache.kafka.tools.DumpLogSegments", *words]
    dumped = programs.run(dump).done().lines
    topics = {one["name"]: one["topicId"] for one in of_type(dumped, "TOPIC_RECORD")}
    assert topics.keys() == {"orders", "prices", "__consumer_offsets", "__transaction_state"}
    assert [one["name"] for one in of_type(dumped, "USER_SCRAM_CREDENTIAL_RECORD")] == ["alice"]
    assert of_type(dumped, "REGISTER_CONTROLLER_RECORD") == []

    # Its controller leads, alone, with the levels of the node.
    move.controller.start()
    status = dict(
        line.split(maxsplit=1) for line in move.at_controllers("kafka-metadata-quorum", "describe", "--status")
    )
    assert (status["ClusterId:"], status["LeaderId:"]) == (ottla.cluster_id, str(CONTROLLER))
    features = "\n".join(move.at_controllers("kafka-features", "describe"))
    level = ".".join(move.release.split(".")[:2])
    assert re.search(rf"metadata\.version .*FinalizedVersionLevel: {level}-IV", features)
    assert re.search(r"transaction\.version .*FinalizedVersionLevel: 2", features)
    endpoints = move.at_controllers("kafka-cluster", "list-endpoints")
    assert [line.split()[0] for line in endpoints if line.split()[-1] == "controller"] == [str(CONTROLLER)]

    # The node may join, and so may a new one; another with its id may not.
    code, verdicts = move.check(ottla.data_directory)
    assert (code, [one for one in verdicts[:-1] if one["type"] != "ok"]) == (0, [])
    assert move.check(move.directory / "new", node_id="2")[0] == 0
    code, verdicts = move.check(move.directory / "new")
    assert (code, [one["about"] for one in verdicts if one["type"] == "fault"]) == (1, ["node.id"])

    # A broker of Kafka sees what the node had.
    move.join_kafka()
    kafka = move.at(move.kafka)
    described = "\n".join(kafka.lines("kafka-topics", "--describe", "--topic", "orders"))
    assert f"TopicId: {topics['orders']}" in described
    assert "retention.ms=1234567" in described
    assert len(re.findall(rf"Replicas: {OTTLA}\b", described)) == 3
    config = kafka.lines("kafka-configs", "--describe", "--entity-type", "topics", "--entity-name", "prices")
    assert any("cleanup.policy=compact" in line for line in config)
    users = kafka.lines("kafka-configs", "--describe", "--entity-type", "users", "--entity-name", "alice")
    assert any("SCRAM-SHA-256=" in line and "iterations=8192" in line for line in users)

    # The node comes back as a broker: its records, its group and its transaction go on.
    move.become_member()
    admin = Admin(ottla.bootstrap)
    admin.until(lambda: admin.leaders("orders") == 3 * [OTTLA], "the node leads its partitions again")
    assert numbers_in(ottla.bootstrap, "orders") == list(range(100))
    until(lambda: committed(ottla.bootstrap, "orders") == 42, "the group has its offset")
    transaction.commit_transaction(60)
    assert first_committed(ottla.bootstrap, "prices") == b"in a transaction"
    produce(ottla.bootstrap, "orders", range(100, 200))
    assert numbers_in(move.kafka.bootstrap, "orders") == list(range(200))
    create(ottla.bootstrap, "after")
    until(lambda: bool(admin.leaders("after")), "the controller makes topics")
    described = "\n".join(move.at(ottla).lines("kafka-topics", "--describe", "--topic", "after"))
    assert "PartitionCount: 1" in described, "a tool that asks the member first"


def reassign_all(move: Move, asked: BrokerProcess, place: int) -> None:
    """Move every partition to one broker with Kafka's own tool, and wait for it."""
    known = AdminClient({"bootstrap.servers": asked.bootstrap}).list_topics(timeout=30).topics
    wanted = move.directory / "topics.json"
    wanted.write_text(json.dumps({"version": 1, "topics": [{"topic": topic} for topic in known]}))
    words = ("kafka-reassign-partitions", "--topics-to-move-json-file", str(wanted), "--broker-list", str(place))
    *_, proposed = move.at(asked).lines(*words, "--generate")
    reassign(move, asked, json.loads(proposed))
    admin = Admin(asked.bootstrap)
    assert all(admin.leaders(topic) == len(one.partitions) * [place] for topic, one in known.items())


def reassign(move: Move, asked: BrokerProcess, plan: dict[str, Any]) -> None:
    """Have a plan executed, and wait for its end."""
    path = move.directory / "plan.json"
    path.write_text(json.dumps(plan))
    words = ("kafka-reassign-partitions", "--reassignment-json-file", str(path))
    move.at(asked).run(*words, "--execute").done()
    until(lambda: "still in progress" not in move.at(asked).run(*words, "--verify").done().said, "all are moved")


def remove_broker(move: Move, node: BrokerProcess, node_id: int) -> None:
    """Stop a broker that leads nothing, and give its place up."""
    node.stop()
    removed = move.at_controllers("kafka-cluster", "unregister", "--id", str(node_id))
    assert removed == [f"Broker {node_id} is no longer registered."]


@pytest.mark.timeout(300)
def test_the_data_moves_to_kafka_and_back_below_its_clients(move: Move) -> None:
    ottla, kafka = move.ottla, move.kafka
    both = f"{ottla.bootstrap},{kafka.bootstrap}"
    create(ottla.bootstrap, "orders")
    create(ottla.bootstrap, "prices")
    commit(ottla.bootstrap, "orders", 42)
    transaction = begun(both, "prices")
    load = Load(both, "orders", rate_s=200)
    load.wait_for(200)

    # The controller takes over. For clients it is a restart of their broker.
    move.hand_over()
    move.controller.start()
    move.become_member()
    load.wait_for(200)

    # A broker of Kafka gets a copy of one partition, and then takes over all, those of groups and transactions too.
    move.join_kafka()
    handing_over_s = load.longest_pause_s
    load.times.clear()
    admin = Admin(both)
    for replicas in ([KAFKA, OTTLA], [KAFKA]):
        of_orders = {"topic": "orders", "partition": 0, "replicas": replicas}
        reassign(move, kafka, {"version": 1, "partitions": [of_orders]})
        admin.until(lambda replicas=replicas: admin.isrs("orders") == [set(replicas)], "they have the records")  # type: ignore[misc]
        load.wait_for(200)
    reassign_all(move, kafka, KAFKA)
    load.wait_for(200)
    moving_s = load.longest_pause_s
    transaction.commit_transaction(60)

    # The node is given up, and all of Kafka's features can be had.
    remove_broker(move, ottla, OTTLA)
    load.wait_for(200)
    load.end()
    move.at_controllers("kafka-features", "upgrade", "--release-version", KAFKA_VERSION.rpartition(".")[0])
    assert load.errors == []
    found = numbers_in(kafka.bootstrap, "orders")
    assert found == list(range(len(found)))
    assert set(load.acknowledged) <= set(found)
    until(lambda: committed(kafka.bootstrap, "orders") == 42, "the group has its offset")
    assert first_committed(kafka.bootstrap, "prices") == b"in a transaction"
    assert moving_s < 9.0, "no session had to end"
    _log.info("longest pause: %.1f s in steps 1 to 3, %.2f s in step 6", handing_over_s, moving_s)

    # The way back begins with a new node of ours, which has all of these features.
    second = BrokerProcess(move.directory / "second", port=port_below_client_ports(above=kafka.port))
    second.settings = {**OF_A_CLUSTER, **move.membership, "node.id": "7"}
    move.nodes.append(second)
    code, verdicts = move.check(second.data_directory, node_id="7")
    assert (code, [one for one in verdicts[:-1] if one["type"] != "ok"]) == (0, [])

    second.start()
    reassign_all(move, second, 7)
    remove_broker(move, kafka, KAFKA)
    assert numbers_in(second.bootstrap, "orders") == found
    until(lambda: committed(second.bootstrap, "orders") == 42, "the group has its offset")
    assert first_committed(second.bootstrap, "prices") == b"in a transaction"


@pytest.mark.timeout(300)
def test_brokers_that_had_joined_the_node_follow_the_controller_at_the_same_address(move: Move) -> None:
    ottla, kafka = move.ottla, move.kafka
    ottla.stop()
    ottla.settings |= {
        "listeners": f"PLAINTEXT://{ottla.bootstrap},CONTROLLER://{move.controllers}",
        "controller.listener.names": "CONTROLLER",
    }
    ottla.start()
    kafka.start()
    admin = Admin(kafka.bootstrap)
    admin.create("both", [[KAFKA, OTTLA], [OTTLA, KAFKA]])
    load = Load(kafka.bootstrap, "both", rate_s=200)
    load.wait_for(200)

    move.hand_over()
    move.controller.start()
    load.wait_for(200)
    admin.until(lambda: admin.leaders("both") == [KAFKA, KAFKA], "Kafka leads what the node has led")
    create(kafka.bootstrap, "meanwhile")
    move.become_member()
    admin.until(lambda: admin.isrs("both") == 2 * [{KAFKA, OTTLA}], "the node is in sync again")
    load.end()

    assert load.errors == []
    found = numbers_in(f"{ottla.bootstrap}", "both")
    assert found == list(range(len(found)))
    assert set(load.acknowledged) <= set(found)


@pytest.mark.timeout(300)
def test_a_node_on_the_controllers_directory_needs_no_kafka_any_more(move: Move) -> None:
    ottla = move.ottla
    create(ottla.bootstrap, "orders")
    commit(ottla.bootstrap, "orders", 42)
    load = Load(ottla.bootstrap, "orders", rate_s=200)
    load.wait_for(200)
    move.hand_over()
    move.controller.start()
    move.become_member()
    create(ottla.bootstrap, "under-kafka")
    load.wait_for(200)

    # The controller stops, and a node of ours goes on as that controller, and as a broker of the same id.
    move.controller.stop()
    port = port_below_client_ports(above=move.kafka.port)
    last = BrokerProcess(move.directory / "last", port=port)
    last.data_directory = move.controller.data_directory
    last.settings = {
        **OURS,
        "node.id": str(CONTROLLER),
        "listeners": f"PLAINTEXT://{last.bootstrap},CONTROLLER://{move.controllers}",
        "controller.listener.names": "CONTROLLER",
    }
    move.nodes.append(last)
    last.start()
    load.wait_for(200)
    reassign_all(move, last, CONTROLLER)
    load.wait_for(200)
    remove_broker(move, ottla, OTTLA)
    load.end()

    last.stop()
    last.settings = {**OURS, "node.id": str(CONTROLLER)}
    last.start()
    assert load.errors == []
    found = numbers_in(last.bootstrap, "orders")
    assert found == list(range(len(found)))
    assert set(load.acknowledged) <= set(found)
    assert committed(last.bootstrap, "orders") == 42
    topics = AdminClient({"bootstrap.servers": last.bootstrap}).list_topics(timeout=30).topics
    assert topics.keys() == {"orders", "under-kafka", "__consumer_offsets"}
