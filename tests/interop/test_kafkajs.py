"""kafkajs, whose clients share no code with any other client here."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dev.broker_process import BrokerProcess
from dev.waiting import until
from tests.interop import programs
from tests.interop.conftest import installed
from tests.interop.programs import Running
from tests.support.clients import Client, Place, Record

SCRIPT = Path(__file__).resolve().parent / "kafkajs_call.js"
CONSUMER = SCRIPT.with_name("kafkajs_consumer.js")
GZIP = 1
TOPIC, BROKER = 2, 4
NOON_MS = 1_700_000_000_000


class Refused(Exception):
    """What kafkajs threw. `types` are the names of Kafka's error codes in it and in its parts."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(f"{error['name']}: {error['message']}")
        self.types = _types(error)


def _types(error: Mapping[str, Any]) -> set[str]:
    own = {error["type"]} if error["type"] else set()
    return own.union(*map(_types, error["parts"]))


class KafkaJs:
    """One Node.js process for each call, with the broker's address."""

    def __init__(self, node: str, directory: Path, bootstrap: str) -> None:
        self.command = ["env", f"NODE_PATH={directory / 'node_modules'}", node, str(SCRIPT), bootstrap]

    def call(self, client: str, call: str, *arguments: Any, **options: Any) -> Any:
        asked = {"client": client, "options": options, "call": call, "arguments": arguments}
        done = programs.run(self.command, stdin=json.dumps(asked).encode()).done()
        answer = json.loads(done.output)
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["result"]

    def begin(self, topic: str, **options: Any) -> Running:
        """A consumer that goes on until it is ended."""
        *node, _, bootstrap = self.command
        return Running([*node, str(CONSUMER), bootstrap, topic, json.dumps(options)])

    def admin(self, call: str, *arguments: Any) -> Any:
        return self.call("admin", call, *arguments)

    def send(
        self, topic: str, *messages: Mapping[str, Any], options: Mapping[str, Any] | None = None, **batch: Any
    ) -> Any:
        return self.call("producer", "send", {"topic": topic, "messages": messages, **batch}, **(options or {}))


def in_bytes(data: bytes) -> dict[str, str]:
    return {"base64": base64.b64encode(data).decode()}


@pytest.fixture(scope="session")
def kafkajs(broker: BrokerProcess) -> KafkaJs:
    node, directory = installed(programs.kafkajs)
    return KafkaJs(node, directory, broker.bootstrap)


# Admin: topics


def test_a_topic_is_created_once_and_listed(kafkajs: KafkaJs, client: Client, topic: str) -> None:
    configs = [{"name": "cleanup.policy", "value": "compact"}, {"name": "segment.ms", "value": "3600000"}]
    wanted = {"topic": topic, "numPartitions": 7, "replicationFactor": 1, "configEntries": configs}
    assert kafkajs.admin("createTopics", {"topics": [wanted]}) is True
    assert kafkajs.admin("createTopics", {"topics": [wanted]}) is False
    assert topic in kafkajs.admin("listTopics")
    assert client.partitions(topic) == list(range(7))
    assert client.topic_configs(topic)["cleanup.policy"] == "compact"


def test_a_topic_is_created_where_it_is_told_to_be(kafkajs: KafkaJs, broker: BrokerProcess, topic: str) -> None:
    node = kafkajs.admin("describeCluster")["controller"]
    assignment = [{"partition": number, "replicas": [node]} for number in range(3)]
    kafkajs.admin("createTopics", {"topics": [{"topic": topic, "replicaAssignment": assignment}]})
    (described,) = kafkajs.admin("fetchTopicMetadata", {"topics": [topic]})["topics"]
    assert [part["replicas"] for part in described["partitions"]] == [[node]] * 3


def test_a_creation_may_be_only_checked(kafkajs: KafkaJs, client: Client, topic: str) -> None:
    checked = {"topics": [{"topic": topic}], "validateOnly": True, "waitForLeaders": False}
    assert kafkajs.admin("createTopics", checked) is True
    assert topic not in client.topics()


@pytest.mark.parametrize(
    ("mistake", "type_"),
    [
        ({"replicationFactor": 3}, "INVALID_REPLICATION_FACTOR"),
        ({"numPartitions": 0}, "INVALID_PARTITIONS"),
        ({"configEntries": [{"name": "cleanup.policy", "value": "burn"}]}, "INVALID_CONFIG"),
        ({"configEntries": [{"name": "no.such.config", "value": "1"}]}, "INVALID_CONFIG"),
        ({"topic": "not a topic's name"}, "INVALID_TOPIC_EXCEPTION"),
    ],
)
def test_a_topic_that_can_not_be_is_refused(
    kafkajs: KafkaJs, client: Client, topic: str, mistake: dict[str, Any], type_: str
) -> None:
    with pytest.raises(Refused) as refused:
        kafkajs.admin("createTopics", {"topics": [{"topic": topic, **mistake}]})
    assert refused.value.types == {type_}
    assert topic not in client.topics()


def test_a_topic_is_deleted_and_a_missing_one_is_unknown(kafkajs: KafkaJs, client: Client, topic: str) -> None:
    client.create_topic(topic)
    kafkajs.admin("deleteTopics", {"topics": [topic]})
    assert topic not in kafkajs.admin("listTopics")
    with pytest.raises(Refused) as refused:
        kafkajs.admin("deleteTopics", {"topics": [topic]})
    assert refused.value.types == {"UNKNOWN_TOPIC_OR_PARTITION"}


def test_the_cluster_is_this_broker(kafkajs: KafkaJs, client: Client, broker: BrokerProcess) -> None:
    described = kafkajs.admin("describeCluster")
    cluster = client.cluster()
    assert described["clusterId"] == cluster.cluster_id
    assert [(node["nodeId"], node["host"], node["port"]) for node in described["brokers"]] == list(cluster.brokers)
    assert described["controller"] == cluster.controller_id


def test_partitions_are_added_and_never_taken_away(kafkajs: KafkaJs, client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=2)
    kafkajs.admin("createPartitions", {"topicPartitions": [{"topic": topic, "count": 6}]})
    assert client.partitions(topic) == list(range(6))
    for count in (6, 3):
        with pytest.raises(Refused) as refused:
            kafkajs.admin("createPartitions", {"topicPartitions": [{"topic": topic, "count": count}]})
        assert refused.value.types == {"INVALID_PARTITIONS"}
    client.produce(topic, [Record(value=b"into the new one", partition=5)])
    assert client.offsets(topic)[5] == (0, 1)


# Admin: offsets and records


def test_offsets_are_told_for_all_partitions_and_by_time(kafkajs: KafkaJs, client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=2)
    client.produce(topic, [Record(value=b"x", partition=1, timestamp_ms=NOON_MS + n * 1_000) for n in range(10)])
    empty = {"partition": 0, "offset": "0", "high": "0", "low": "0"}
    filled = {"partition": 1, "offset": "10", "high": "10", "low": "0"}
    offsets = kafkajs.admin("fetchTopicOffsets", topic)
    assert sorted(offsets, key=lambda found: found["partition"]) == [empty, filled]
    by_time = kafkajs.admin("fetchTopicOffsetsByTimestamp", topic, NOON_MS + 3_500)
    # kafkajs gives the end of a partition that has nothing so young.
    assert sorted((found["partition"], found["offset"]) for found in by_time) == [(0, "0"), (1, "4")]


def test_records_are_deleted_up_to_an_offset(kafkajs: KafkaJs, client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=3)
    client.produce(topic, [Record(value=b"%d" % n, partition=n % 3) for n in range(30)])
    up_to = [{"partition": 0, "offset": "4"}, {"partition": 1, "offset": "-1"}]
    kafkajs.admin("deleteTopicRecordsOf", {"topic": topic, "partitions": up_to})
    assert client.offsets(topic) == {0: (4, 10), 1: (10, 10), 2: (0, 10)}
    assert [record.value for record in client.consume(topic, partition=0, offset=4, count=1)] == [b"12"]


def test_records_beyond_the_end_can_not_be_deleted(kafkajs: KafkaJs, client: Client, topic: str) -> None:
    client.create_topic(topic)
    client.produce(topic, [Record(value=b"x")])
    with pytest.raises(Refused) as refused:
        kafkajs.admin("deleteTopicRecordsOf", {"topic": topic, "partitions": [{"partition": 0, "offset": "11"}]})
    assert refused.value.types == {"OFFSET_OUT_OF_RANGE"}
    assert client.offsets(topic) == {0: (0, 1)}


# Admin: configs


def test_configs_are_described_with_their_source(kafkajs: KafkaJs, client: Client, topic: str) -> None:
    client.create_topic(topic, configs={"retention.ms": "1000"})
    named = ["retention.ms", "cleanup.policy"]
    asked = {"includeSynonyms": True, "resources": [{"type": TOPIC, "name": topic, "configNames": named}]}
    (resource,) = kafkajs.admin("describeConfigs", asked)["resources"]
    entries = {entry["configName"]: entry for entry in resource["configEntries"]}
    assert (entries["retention.ms"]["configValue"], entries["retention.ms"]["configSource"]) == ("1000", 1)
    assert (entries["cleanup.policy"]["configValue"], entries["cleanup.policy"]["configSource"]) == ("delete", 5)
    assert entries["retention.ms"]["configSynonyms"][0]["configName"] == "retention.ms"


def test_configs_of_the_broker_are_described(kafkajs: KafkaJs, client: Client) -> None:
    node = str(client.cluster().controller_id)
    asked = {"includeSynonyms": False, "resources": [{"type": BROKER, "name": node}]}
    (resource,) = kafkajs.admin("describeConfigs", asked)["resources"]
    values = {entry["configName"]: entry["configValue"] for entry in resource["configEntries"]}
    assert values["node.id"] == node


def test_configs_of_a_missing_topic_are_refused(kafkajs: KafkaJs, topic: str) -> None:
    with pytest.raises(Refused) as refused:
        kafkajs.admin("describeConfigs", {"includeSynonyms": False, "resources": [{"type": TOPIC, "name": topic}]})
    assert refused.value.types == {"UNKNOWN_TOPIC_OR_PARTITION"}


def test_altered_configs_replace_what_was_set_before(kafkajs: KafkaJs, client: Client, topic: str) -> None:
    client.create_topic(topic, configs={"retention.ms": "1000", "max.message.bytes": "5000"})
    entries = [{"name": "retention.ms", "value": "7777"}]
    resource = {"type": TOPIC, "name": topic, "configEntries": entries}
    kafkajs.admin("alterConfigs", {"validateOnly": False, "resources": [resource]})
    configs = client.topic_configs(topic)
    assert configs["retention.ms"] == "7777"
    assert configs["max.message.bytes"] == "1048588"


def test_an_altered_config_must_be_a_good_one(kafkajs: KafkaJs, client: Client, topic: str) -> None:
    client.create_topic(topic)
    resource = {"type": TOPIC, "name": topic, "configEntries": [{"name": "retention.ms", "value": "tomorrow"}]}
    with pytest.raises(Refused) as refused:
        kafkajs.admin("alterConfigs", {"validateOnly": False, "resources": [resource]})
    assert refused.value.types == {"INVALID_CONFIG"}


def test_no_partition_is_on_the_move(kafkajs: KafkaJs, client: Client, topic: str) -> None:
    client.create_topic(topic)
    moving = kafkajs.admin("listPartitionReassignments", {"topics": [{"topic": topic, "partitions": [0]}]})
    assert moving["topics"] == []


# Producer


@pytest.mark.parametrize("acks", [-1, 1, 0])
def test_every_kind_of_acknowledgement_is_given(kafkajs: KafkaJs, client: Client, topic: str, acks: int) -> None:
    client.create_topic(topic)
    answered = kafkajs.send(topic, *({"value": str(n)} for n in range(50)), acks=acks)
    if acks == 0:
        assert answered == []
    else:
        (part,) = answered
        assert (part["partition"], part["errorCode"], part["baseOffset"]) == (0, 0, "0")
    received = client.consume(topic, partition=0, offset=0, count=50)
    assert [record.value for record in received] == [b"%d" % n for n in range(50)]


def test_records_come_back_as_they_were_sent(kafkajs: KafkaJs, client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=3)
    first = {
        "key": "ключ",
        "value": in_bytes(bytes(range(256))),
        "partition": 2,
        "timestamp": str(NOON_MS),
        "headers": {"text": "größe", "bytes": in_bytes(b"\x00\xff"), "twice": ["1", "2"]},
    }
    tombstone = {"key": in_bytes(b"\x80"), "value": None, "partition": 2, "timestamp": str(NOON_MS + 1)}
    kafkajs.send(topic, first, tombstone)
    one, two = client.consume(topic, partition=2, offset=0, count=2)
    assert (one.key, one.value, one.timestamp_ms) == ("ключ".encode(), bytes(range(256)), NOON_MS)
    assert one.headers == (("text", "größe".encode()), ("bytes", b"\x00\xff"), ("twice", b"1"), ("twice", b"2"))
    assert (two.key, two.value, two.headers) == (b"\x80", None, ())


def test_compressed_batches_for_several_topics_go_in_one_request(kafkajs: KafkaJs, client: Client, topic: str) -> None:
    topics = [f"{topic}-{number}" for number in range(3)]
    for name in topics:
        client.create_topic(name, partitions=2)
    messages = [{"value": f"{n} " * 200, "partition": n % 2} for n in range(100)]
    batch = {"compression": GZIP, "topicMessages": [{"topic": name, "messages": messages} for name in topics]}
    answered = kafkajs.call("producer", "sendBatch", batch)
    assert len(answered) == 6
    for name in topics:
        assert client.offsets(name) == {0: (0, 50), 1: (0, 50)}
        assert client.consume(name, partition=1, offset=0, count=1)[0].value == b"1 " * 200


def test_an_idempotent_producer_is_given_an_id(kafkajs: KafkaJs, client: Client, topic: str) -> None:
    client.create_topic(topic)
    idempotent = {"idempotent": True, "maxInFlightRequests": 1}
    kafkajs.send(topic, *({"value": str(n)} for n in range(20)), options=idempotent)
    assert client.offsets(topic) == {0: (0, 20)}


def test_a_topic_is_created_by_the_first_record_for_it(kafkajs: KafkaJs, client: Client, topic: str) -> None:
    kafkajs.send(topic, {"value": "first"})
    assert [record.value for record in client.consume_all(topic)] == [b"first"]


def test_a_missing_topic_stays_unknown_where_none_may_be_created(kafkajs: KafkaJs, topic: str) -> None:
    with pytest.raises(Refused) as refused:
        kafkajs.send(topic, {"value": "lost"}, options={"allowAutoTopicCreation": False})
    assert refused.value.types == {"UNKNOWN_TOPIC_OR_PARTITION"}


def test_a_record_beyond_the_limit_of_its_topic_is_refused(kafkajs: KafkaJs, client: Client, topic: str) -> None:
    client.create_topic(topic, configs={"max.message.bytes": "2000"})
    with pytest.raises(Refused) as refused:
        kafkajs.send(topic, {"value": "x" * 3_000})
    assert refused.value.types == {"MESSAGE_TOO_LARGE"}
    kafkajs.send(topic, {"value": "x" * 1_000})
    assert client.offsets(topic) == {0: (0, 1)}


# Consumers


@pytest.fixture
def group(topic: str) -> str:
    return f"group-of-{topic}"


def numbered(numbers: range) -> list[Record]:
    """For four partitions in turns."""
    return [Record(value=b"%d" % n, partition=n % 4) for n in numbers]


class Member:
    """A consumer that has joined a group, and what it has told."""

    def __init__(self, running: Running) -> None:
        self.running = running

    @property
    def events(self) -> list[dict[str, Any]]:
        events = [json.loads(line) for line in self.running.lines]
        assert not any("crashed" in event for event in events), events
        return events

    @property
    def assigned(self) -> list[int]:
        """Its partitions now."""
        return next((sorted(event["assigned"]) for event in reversed(self.events) if "assigned" in event), [])

    @property
    def values(self) -> list[int]:
        return [int(event["value"]) for event in self.events if "value" in event]

    @property
    def generations(self) -> int:
        return sum("assigned" in event for event in self.events)


def committed(client: Client, group: str, topic: str) -> dict[int, int]:
    found = client.committed(group, [Place(topic, number) for number in client.partitions(topic)])
    return {place.partition: one.offset for place, one in found.items()}


def test_a_consumer_goes_on_where_the_last_one_stopped(
    kafkajs: KafkaJs, client: Client, topic: str, group: str
) -> None:
    client.create_topic(topic)
    for first in (0, 10):
        client.produce(topic, [Record(value=b"%d" % n) for n in range(first, first + 10)])
        received = kafkajs.call("consumer", "receive", topic, 10, groupId=group)
        assert [(int(record["offset"]), record["value"]) for record in received] == [
            (n, str(n)) for n in range(first, first + 10)
        ]
        assert committed(client, group, topic) == {0: first + 10}


def test_two_consumers_share_a_topic_and_the_other_takes_over_from_one_that_leaves(
    kafkajs: KafkaJs, client: Client, topic: str, group: str
) -> None:
    client.create_topic(topic, partitions=4)
    with kafkajs.begin(topic, groupId=group, heartbeatInterval=250) as running_one:
        one = Member(running_one)
        until(lambda: one.assigned == [0, 1, 2, 3], "everything for the first")
        with kafkajs.begin(topic, groupId=group, heartbeatInterval=250) as running_other:
            other = Member(running_other)
            until(lambda: len(one.assigned) == len(other.assigned) == 2, "a part for each")
            assert sorted(one.assigned + other.assigned) == [0, 1, 2, 3]
            client.produce(topic, numbered(range(40)))
            until(lambda: len(one.values) + len(other.values) == 40, "40 records")
            for member in (one, other):
                assert sorted(member.values) == [n for n in range(40) if n % 4 in member.assigned]
            until(lambda: committed(client, group, topic) == dict.fromkeys(range(4), 10), "their commits")
            running_other.end()
            until(lambda: one.assigned == [0, 1, 2, 3], "everything for the one that stays")
        client.produce(topic, numbered(range(40, 60)))
        until(lambda: set(range(40, 60)) <= set(one.values), "20 records more")
        assert one.generations == 3
        until(lambda: committed(client, group, topic) == dict.fromkeys(range(4), 15), "its commits")
        running_one.end()
    assert client.describe_group(group).state == "Empty"


def test_a_group_is_listed_described_and_deleted(kafkajs: KafkaJs, client: Client, topic: str, group: str) -> None:
    client.create_topic(topic, partitions=4)
    with kafkajs.begin(topic, groupId=group) as running:
        until(lambda: Member(running).assigned == [0, 1, 2, 3], "its assignment")
        listed = {"groupId": group, "protocolType": "consumer"}
        assert listed in kafkajs.admin("listGroups")["groups"]
        (described,) = kafkajs.admin("describeGroups", [group])["groups"]
        assert (described["state"], described["protocol"]) == ("Stable", "RoundRobinAssigner")
        (member,) = described["members"]
        assert (member["clientId"], member["clientHost"]) == ("interop", "/127.0.0.1")
        with pytest.raises(Refused) as refused:
            kafkajs.admin("deleteGroups", [group])
        assert refused.value.types == {"NON_EMPTY_GROUP"}
        running.end()
    assert kafkajs.admin("deleteGroups", [group]) == [{"groupId": group, "errorCode": 0}]
    assert listed not in kafkajs.admin("listGroups")["groups"]


def test_offsets_of_a_group_are_set_reset_and_fetched(kafkajs: KafkaJs, client: Client, topic: str, group: str) -> None:
    client.create_topic(topic, partitions=2)
    client.produce(topic, [Record(value=b"%d" % n, partition=n % 2) for n in range(20)])
    wanted = [{"partition": 0, "offset": "4"}, {"partition": 1, "offset": "6"}]
    kafkajs.admin("setOffsets", {"groupId": group, "topic": topic, "partitions": wanted})
    assert committed(client, group, topic) == {0: 4, 1: 6}
    (fetched,) = kafkajs.admin("fetchOffsets", {"groupId": group, "topics": [topic]})
    assert [(one["partition"], one["offset"]) for one in fetched["partitions"]] == [(0, "4"), (1, "6")]
    kafkajs.admin("resetOffsets", {"groupId": group, "topic": topic, "earliest": True})
    (resolved,) = kafkajs.admin("fetchOffsets", {"groupId": group, "topics": [topic], "resolveOffsets": True})
    assert [(one["partition"], one["offset"]) for one in resolved["partitions"]] == [(0, "0"), (1, "0")]


def test_acls_are_described(kafkajs: KafkaJs) -> None:
    everything = {"resourceType": 2, "resourcePatternType": 1, "operation": 1, "permissionType": 1}
    with pytest.raises(Refused) as refused:
        kafkajs.admin("describeAcls", everything)
    assert refused.value.types == {"SECURITY_DISABLED"}


# What is still to come


def test_a_transaction_is_committed(kafkajs: KafkaJs, client: Client, topic: str) -> None:
    client.create_topic(topic)
    options = {"transactionalId": f"tx-{topic}", "idempotent": True, "maxInFlightRequests": 1}
    batch = {"topic": topic, "messages": [{"value": "all or nothing"}]}
    assert kafkajs.call("producer", "inTransaction", batch, **options) is True
    assert client.offsets(topic) == {0: (0, 2)}
