"""Kafka's own tools for topics, configs, offsets and the cluster."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from dev.repository import REPOSITORY
from tests.interop.java_tools import JavaTools
from tests.support.clients import Client, Record

NOON_MS = 1_700_000_000_000
API_LINE = re.compile(r"^(?P<name>\w+)\((?P<key>\d+)\): (?P<versions>\d+(?: to \d+)?) \[usable: \d+\],?$")
DOCUMENTED = re.compile(r"^## \w+ \((?P<key>\d+)\): versions (?P<first>\d+)-(?P<last>\d+)$", re.MULTILINE)


@pytest.fixture(scope="session")
def node_id(client: Client) -> str:
    return str(client.cluster().controller_id)


# kafka-topics


def test_a_topic_is_created_described_and_listed(java: JavaTools, node_id: str, topic: str) -> None:
    configs = ("--config", "retention.ms=1000", "--config", "cleanup.policy=compact,delete")
    created = java.lines("kafka-topics", "--create", "--topic", topic, "--partitions", "5", *configs)
    assert created[-1] == f"Created topic {topic}."
    heading, *partitions = java.lines("kafka-topics", "--describe", "--topic", topic)
    assert re.search(rf"^Topic: {topic}\tTopicId: [\w-]{{22}}\tPartitionCount: 5\tReplicationFactor: 1\t", heading)
    assert "retention.ms=1000" in heading
    assert "cleanup.policy=compact,delete" in heading
    itself = f"Leader: {node_id}\tReplicas: {node_id}\tIsr: {node_id}\tElr: \tLastKnownElr:"
    assert [line.strip() for line in partitions] == [
        f"Topic: {topic}\tPartition: {number}\t{itself}" for number in range(5)
    ]
    assert topic in java.lines("kafka-topics", "--list")


def test_a_topic_that_exists_is_created_no_second_time(java: JavaTools, client: Client, topic: str) -> None:
    client.create_topic(topic)
    assert f"Topic '{topic}' already exists." in java.run("kafka-topics", "--create", "--topic", topic).refused().said
    java.run("kafka-topics", "--create", "--topic", topic, "--if-not-exists").done()


@pytest.mark.parametrize(
    ("mistake", "reason"),
    [
        (("--config", "cleanup.policy=burn"), "Invalid value burn for configuration cleanup.policy"),
        (("--replication-factor", "3"), "InvalidReplicationFactorException"),
    ],
)
def test_a_topic_that_can_not_be_is_refused(java: JavaTools, topic: str, mistake: tuple[str, ...], reason: str) -> None:
    assert reason in java.run("kafka-topics", "--create", "--topic", topic, *mistake).refused().said


@pytest.mark.parametrize(
    "trouble",
    [
        "--under-replicated-partitions",
        "--unavailable-partitions",
        "--under-min-isr-partitions",
    ],
)
def test_no_partition_is_in_trouble(java: JavaTools, client: Client, topic: str, trouble: str) -> None:
    client.create_topic(topic, partitions=20)
    assert java.lines("kafka-topics", "--describe", trouble) == []


def test_topics_with_configs_of_their_own_are_told_apart(java: JavaTools, client: Client, topic: str) -> None:
    client.create_topic(f"{topic}-own", configs={"retention.ms": "5000"})
    client.create_topic(f"{topic}-plain")
    listed = [line for line in java.lines("kafka-topics", "--describe", "--topics-with-overrides") if topic in line]
    assert any(f"{topic}-own" in line and "retention.ms=5000" in line for line in listed)


def test_partitions_are_added_and_never_taken_away(java: JavaTools, client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=2)
    client.produce(topic, [Record(value=b"before", partition=1)])
    java.run("kafka-topics", "--alter", "--topic", topic, "--partitions", "5").done()
    assert client.partitions(topic) == list(range(5))
    client.produce(topic, [Record(value=b"after", partition=4)])
    assert client.offsets(topic) == {0: (0, 0), 1: (0, 1), 2: (0, 0), 3: (0, 0), 4: (0, 1)}
    refused = java.run("kafka-topics", "--alter", "--topic", topic, "--partitions", "3").refused()
    assert "InvalidPartitionsException" in refused.said


def test_a_topic_is_deleted_and_a_missing_one_is_said_to_be_so(java: JavaTools, client: Client, topic: str) -> None:
    client.create_topic(topic)
    java.run("kafka-topics", "--delete", "--topic", topic).done()
    assert topic not in client.topics()
    refused = java.run("kafka-topics", "--delete", "--topic", topic).refused().said
    assert f"Topic '{topic}' does not exist as expected" in refused


# kafka-configs


def test_configs_of_a_topic_are_set_described_and_removed(java: JavaTools, client: Client, topic: str) -> None:
    client.create_topic(topic, configs={"retention.bytes": "4096"})
    change = ("--add-config", "max.message.bytes=5000,retention.ms=9", "--delete-config", "retention.bytes")
    assert java.lines("kafka-configs", "--alter", "--topic", topic, *change) == [
        f"Completed updating config for topic {topic}."
    ]
    heading, *entries = java.lines("kafka-configs", "--describe", "--topic", topic)
    assert heading == f"Dynamic configs for topic {topic} are:"
    assert {entry.split()[0] for entry in entries} >= {"max.message.bytes=5000", "retention.ms=9"}
    assert not any("retention.bytes" in entry for entry in entries)
    limit = next(entry for entry in entries if "max.message.bytes" in entry)
    assert "synonyms={DYNAMIC_TOPIC_CONFIG:max.message.bytes=5000, DEFAULT_CONFIG:message.max.bytes=1048588}" in limit
    everything = java.lines("kafka-configs", "--describe", "--topic", topic, "--all")
    assert any(entry.startswith("  retention.bytes=-1 sensitive=false") for entry in everything)


def test_a_changed_limit_holds_for_the_next_record(java: JavaTools, client: Client, topic: str) -> None:
    client.create_topic(topic, configs={"max.message.bytes": "500"})
    java.run("kafka-configs", "--alter", "--topic", topic, "--add-config", "max.message.bytes=5000").done()
    client.produce(topic, [Record(value=b"x" * 2_000)])
    assert client.offsets(topic) == {0: (0, 1)}


@pytest.mark.parametrize("change", ["retention.ms=tomorrow", "no.such.config=1"])
def test_a_config_that_can_not_be_is_refused(java: JavaTools, client: Client, topic: str, change: str) -> None:
    client.create_topic(topic)
    refused = java.run("kafka-configs", "--alter", "--topic", topic, "--add-config", change).refused()
    assert "InvalidConfigurationException" in refused.said
    assert client.topic_configs(topic)["retention.ms"] == "604800000"


def test_configs_of_a_missing_topic_can_not_be_set(java: JavaTools, topic: str) -> None:
    refused = java.run("kafka-configs", "--alter", "--topic", topic, "--add-config", "retention.ms=1").refused()
    assert "UnknownTopicOrPartitionException" in refused.said


def test_a_default_for_all_brokers_is_set_and_removed(java: JavaTools, client: Client, topic: str) -> None:
    client.create_topic(topic)
    java.run("kafka-configs", "--alter", "--broker-defaults", "--add-config", "log.retention.ms=7200000").done()
    described = java.lines("kafka-configs", "--describe", "--broker-defaults")
    assert any(line.startswith("  log.retention.ms=7200000 ") for line in described)
    assert client.topic_configs(topic)["retention.ms"] == "7200000"
    java.run("kafka-configs", "--alter", "--broker-defaults", "--delete-config", "log.retention.ms").done()
    assert client.topic_configs(topic)["retention.ms"] == "604800000"


def test_what_one_broker_was_started_with_is_described(java: JavaTools, node_id: str) -> None:
    everything = java.lines("kafka-configs", "--describe", "--broker", node_id, "--all")
    entry = next(line for line in everything if line.startswith("  log.dirs="))
    assert "sensitive=false" in entry
    assert "STATIC_BROKER_CONFIG:log.dirs=" in entry


def test_what_a_broker_must_be_started_with_can_not_be_changed(java: JavaTools, node_id: str) -> None:
    refused = java.run("kafka-configs", "--alter", "--broker", node_id, "--add-config", "node.id=7").refused()
    assert "InvalidRequestException" in refused.said


def test_the_loggers_of_a_broker_are_described(java: JavaTools, node_id: str) -> None:
    heading, *loggers = java.lines("kafka-configs", "--describe", "--broker-logger", node_id)
    assert heading == f"Dynamic configs for broker-logger {node_id} are:"
    assert loggers
    assert all(re.search(r"^  \S+=(TRACE|DEBUG|INFO|WARN|ERROR|FATAL) ", line) for line in loggers)


# kafka-get-offsets, kafka-delete-records


def test_offsets_are_listed_from_the_end_the_start_and_by_time(java: JavaTools, client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=3)
    client.produce(topic, [Record(value=b"x", partition=1, timestamp_ms=NOON_MS + n * 1_000) for n in range(10)])

    def offsets(*arguments: str) -> list[str]:
        return java.lines("kafka-get-offsets", *arguments)

    assert offsets("--topic", topic) == [f"{topic}:0:0", f"{topic}:1:10", f"{topic}:2:0"]
    assert offsets("--topic", topic, "--time", "earliest", "--partitions", "1") == [f"{topic}:1:0"]
    assert offsets("--topic-partitions", f"{topic}:1-3", "--time", "max-timestamp") == [f"{topic}:1:9"]
    assert offsets("--topic", topic, "--time", str(NOON_MS + 3_001)) == [f"{topic}:1:4"]


def test_offsets_of_a_missing_topic_are_refused(java: JavaTools, topic: str) -> None:
    refused = java.run("kafka-get-offsets", "--topic", topic).refused()
    assert "Could not match any topic-partitions with the specified filters" in refused.said


def test_records_are_deleted_up_to_an_offset_and_not_beyond_the_end(
    java: JavaTools, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create_topic(topic, partitions=4)
    client.produce(topic, [Record(value=b"x", partition=n % 3) for n in range(30)])
    wanted = [{"topic": topic, "partition": number, "offset": offset} for number, offset in enumerate((4, 11, -1))]
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps({"version": 1, "partitions": wanted}))
    said = java.lines("kafka-delete-records", "--offset-json-file", str(file))
    assert f"partition: {topic}-0\tlow_watermark: 4" in said
    assert f"partition: {topic}-2\tlow_watermark: 10" in said
    (refusal,) = (line for line in said if line.startswith(f"partition: {topic}-1"))
    assert "OffsetOutOfRangeException" in refusal
    assert client.offsets(topic) == {0: (4, 10), 1: (0, 10), 2: (10, 10), 3: (0, 0)}


# The cluster


def test_the_api_versions_are_those_that_the_documentation_promises(java: JavaTools) -> None:
    heading, *lines = java.lines("kafka-broker-api-versions")
    assert heading.startswith(f"{java.bootstrap} (id: ")
    found = [match for line in lines if (match := API_LINE.match(line.strip()))]
    offered = {int(match["key"]): match["versions"] for match in found}
    documented = DOCUMENTED.finditer((REPOSITORY / "docs" / "protocol-support.md").read_text())
    # Produce is listed from version 0 for the sake of old clients; versions 0-2 are not served.
    promised = {
        int(match["key"]): f"{0 if match['key'] == '0' else match['first']} to {match['last']}" for match in documented
    }
    single = {
        key: versions.split(" to ")[0] for key, versions in promised.items() if len(set(versions.split(" to "))) == 1
    }
    assert {**promised, **single}.items() <= offered.items()


def test_the_features_are_described(java: JavaTools) -> None:
    features = {line.split()[1]: line for line in java.lines("kafka-features", "describe")}
    assert re.search(r"FinalizedVersionLevel: 4\.\d-IV\d", features["metadata.version"])


def test_the_cluster_id_is_that_of_the_broker(java: JavaTools, client: Client) -> None:
    assert java.lines("kafka-cluster", "cluster-id") == [f"Cluster ID: {client.cluster().cluster_id}"]


def test_the_size_of_every_partition_is_told(java: JavaTools, client: Client, node_id: str, topic: str) -> None:
    client.create_topic(topic, partitions=2)
    client.produce(topic, [Record(value=b"x" * 1_000, partition=1)])
    said = java.lines("kafka-log-dirs", "--describe", "--topic-list", topic)
    (node,) = json.loads(said[-1])["brokers"]
    assert str(node["broker"]) == node_id
    (directory,) = node["logDirs"]
    assert directory["error"] is None
    sizes = {partition["partition"]: partition["size"] for partition in directory["partitions"]}
    assert set(sizes) == {f"{topic}-0", f"{topic}-1"}
    assert sizes[f"{topic}-0"] == 0
    assert 1_000 < sizes[f"{topic}-1"] < 1_200
    assert all(partition["isFuture"] is False and partition["offsetLag"] == 0 for partition in directory["partitions"])


def test_the_quorum_is_this_broker(java: JavaTools, client: Client, node_id: str) -> None:
    status = dict(
        re.split(r":\s+", line, maxsplit=1) for line in java.lines("kafka-metadata-quorum", "describe", "--status")
    )
    assert status["ClusterId"] == client.cluster().cluster_id
    assert status["LeaderId"] == node_id
    assert int(status["HighWatermark"]) > 0
    (voter,) = json.loads(status["CurrentVoters"])
    assert str(voter["id"]) == node_id
    _, leader = java.lines("kafka-metadata-quorum", "describe", "--replication")
    columns = leader.split()
    assert (columns[0], columns[3], columns[-1]) == (node_id, "0", "Leader")


def test_no_partition_is_on_the_move(java: JavaTools) -> None:
    assert java.lines("kafka-reassign-partitions", "--list") == ["No partition reassignments found."]


def test_a_reassignment_is_throttled_until_it_is_verified(
    java: JavaTools, client: Client, node_id: str, topic: str, tmp_path: Path
) -> None:
    client.create_topic(topic)
    plan = tmp_path / "plan.json"
    partition = {"topic": topic, "partition": 0, "replicas": [int(node_id)]}
    plan.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    reassign = ("kafka-reassign-partitions", "--reassignment-json-file", str(plan))

    said = java.lines(*reassign, "--execute", "--throttle", "1000000")

    assert f"Successfully started partition reassignment for {topic}-0" in said
    described = java.run("kafka-configs", "--describe", "--broker", node_id).done().said
    assert dict(re.findall(r"^ *(\S+)=(\d+) sensitive=false", described, re.MULTILINE)) == {
        "leader.replication.throttled.rate": "1000000",
        "follower.replication.throttled.rate": "1000000",
    }
    assert f"leader.replication.throttled.replicas=0:{node_id}" in "".join(
        java.lines("kafka-configs", "--describe", "--topic", topic)
    )
    said = java.lines(*reassign, "--verify")
    assert f"Reassignment of partition {topic}-0 is completed." in said
    for of in (("--broker", node_id), ("--topic", topic)):
        assert ".throttled." not in java.run("kafka-configs", "--describe", *of).done().said


def test_client_metrics_are_asked_for_described_listed_and_forgotten(java: JavaTools) -> None:
    wanted = ("--metrics", "org.apache.kafka.consumer.", "--interval", "30000", "--match", "client_id=shop")
    java.run("kafka-client-metrics", "--alter", "--name", "shops", *wanted).done()
    assert java.lines("kafka-client-metrics", "--list") == ["shops"]
    described = java.run("kafka-client-metrics", "--describe", "--name", "shops").done().said
    assert "metrics=org.apache.kafka.consumer." in described
    assert "interval.ms=30000" in described
    java.run("kafka-client-metrics", "--delete", "--name", "shops").done()
    assert java.lines("kafka-client-metrics", "--list") == []


def test_every_partition_has_its_preferred_leader(java: JavaTools, client: Client, topic: str) -> None:
    client.create_topic(topic)
    elect = ("--election-type", "preferred", "--topic", topic, "--partition", "0")
    assert java.lines("kafka-leader-election", *elect) == [f"Valid replica already elected for partitions {topic}-0"]


# Features that are off


def test_transactions_are_listed(java: JavaTools) -> None:
    assert java.lines("kafka-transactions", "list")[0].split() == [
        *("TransactionalId", "Coordinator", "ProducerId", "TransactionState"),
    ]


def test_acls_are_switched_off(java: JavaTools) -> None:
    assert "No Authorizer is configured" in java.run("kafka-acls", "--list").refused().said


def test_quotas_are_set_described_and_removed(java: JavaTools) -> None:
    for entity, quota in (
        (("--user", "alice", "--client", "shop"), "producer_byte_rate=1048576"),
        (("--client-defaults",), "request_percentage=50.5"),
        (("--ip", "10.0.0.1"), "connection_creation_rate=10"),
    ):
        java.run("kafka-configs", "--alter", *entity, "--add-config", quota).done()
        name, _, value = quota.partition("=")
        (line,) = java.lines("kafka-configs", "--describe", *entity)
        assert line.endswith(f"are {name}={float(value)}"), line
        java.run("kafka-configs", "--alter", *entity, "--delete-config", name).done()
        assert java.lines("kafka-configs", "--describe", *entity) == []


def test_a_scram_user_is_added(java: JavaTools) -> None:
    added = ("--alter", "--user", "alice", "--add-config", "SCRAM-SHA-256=[password=secret]")
    java.run("kafka-configs", *added).done()
