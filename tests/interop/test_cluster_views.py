"""What a member of a cluster tells its clients of the other brokers: whole answers, beside those of Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from dev.broker_process import BrokerProcess, port_below_client_ports
from protocol.messages.cluster import DescribeClusterRequest
from protocol.messages.config_resources import ListConfigResourcesRequest
from protocol.messages.delete_records import DeleteRecordsRequest
from protocol.messages.fetch import FetchRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from protocol.messages.produce import ProduceRequest
from protocol.messages.producers import DescribeProducersRequest
from protocol.messages.topic_partitions import DescribeTopicPartitionsRequest
from protocol.schema import describe
from tests.interop import programs
from tests.interop.clusters import Cluster, KafkaNode
from tests.interop.conftest import installed
from tests.support.batches import produced, record
from tests.support.clusters import Admin, Member
from tests.support.raw_client import RawClient
from tests.support.requests import fetch_request, produce_request

ORIGINAL, KILLED, MEMBER = 1, 2, 3
FAR: Final = "far"
"""A topic of broker 2 alone."""
SPREAD: Final = "spread"
"""A topic of all brokers; broker 2 leads the first partition while it lives."""
FOLLOWERS_ARE_READ_SINCE: Final = 11
"""From this version of Fetch on followers serve consumers (KIP-392): `test_reading_from_followers` compares that."""
PROTOCOLS: Final = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,OUTSIDE:PLAINTEXT"

Question = tuple[int, Any]
"""A version and a request."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """One controller of Kafka; a broker of Kafka and a member, both with the listener OUTSIDE; a broker without it."""
    cluster = Cluster(tmp_path, str(installed(programs.kafka_libraries)))
    try:
        cluster.add_controller(settings={"listener.security.protocol.map": PROTOCOLS})
        for node_id in (ORIGINAL, KILLED, MEMBER):
            node = node_of(cluster, node_id)
            listeners = f"PLAINTEXT://127.0.0.1:{node.port}"
            if node_id != KILLED:
                listeners += f",OUTSIDE://127.0.0.1:{port_below_client_ports(above=node.port)}"
                node.settings["broker.rack"] = f"rack-{node_id}"
            node.settings |= {
                "listeners": listeners,
                "advertised.listeners": listeners,
                "listener.security.protocol.map": PROTOCOLS,
                "inter.broker.listener.name": "PLAINTEXT",
                "auto.create.topics.enable": "false",
            }
            cluster.nodes[node_id] = node
            node.start()
        yield cluster
    finally:
        cluster.close()


def node_of(cluster: Cluster, node_id: int) -> BrokerProcess:
    """A broker that is not started yet: the member, or one of Kafka's."""
    if node_id == MEMBER:
        return Member(cluster.directory / "member", node_id=node_id, controllers=cluster.controllers)
    return KafkaNode(
        cluster.directory / f"kafka-{node_id}",
        role="broker",
        node_id=node_id,
        controllers=cluster.controllers,
        libraries=cluster.libraries,
    )


def versions(request: type[Any], *, since: int = 0) -> range:
    """The versions of a request from ``since`` on that are served here."""
    first, last = describe(request).versions
    return range(max(first, since), last + 1)


def about_the_cluster(topics: list[str]) -> Iterator[Question]:
    for version in versions(MetadataRequest):
        asked = [MetadataRequest.Topic(name=topic) for topic in [*topics, "nowhere", "a/b"]]
        yield version, MetadataRequest(topics=asked, allow_auto_topic_creation=False)
    for version in versions(DescribeClusterRequest):
        for endpoint_type in (1, 2, 3):
            for fenced in (False, True):
                yield (
                    version,
                    DescribeClusterRequest(endpoint_type=endpoint_type, include_fenced_brokers=fenced),
                )
    asked_partitions = [DescribeTopicPartitionsRequest.Topic(name=topic) for topic in [*topics, "nowhere"]]
    yield 0, DescribeTopicPartitionsRequest(topics=asked_partitions)
    yield 1, ListConfigResourcesRequest(resource_types=[4, 8])
    for version in versions(FindCoordinatorRequest, since=4):
        for key_type in (0, 1):
            yield version, FindCoordinatorRequest(key_type=key_type, coordinator_keys=[f"key-{n}" for n in range(12)])


def about_a_partition(topic: str, topic_id: bytes, partition: int) -> Iterator[Question]:
    for version in versions(ProduceRequest, since=3):
        name, its_id = (topic, bytes(16)) if version < 13 else ("", topic_id)
        yield version, produce_request(name, produced([record()]), partition=partition, topic_id=its_id, acks=1)
    for version in versions(FetchRequest):
        name, its_id = (topic, bytes(16)) if version < 13 else ("", topic_id)
        yield version, fetch_request(name, partition=partition, topic_id=its_id, max_wait_ms=30_000)
    for version in versions(ListOffsetsRequest):
        for replica_id in (-1, -2, ORIGINAL):
            asked = ListOffsetsRequest.Topic.Partition(partition_index=partition, timestamp=-1)
            topics = [ListOffsetsRequest.Topic(name=topic, partitions=[asked])]
            yield version, ListOffsetsRequest(replica_id=replica_id, topics=topics)
    for version in versions(OffsetForLeaderEpochRequest):
        of_epoch = OffsetForLeaderEpochRequest.Topic.Partition(partition=partition, leader_epoch=0)
        yield (
            version,
            OffsetForLeaderEpochRequest(topics=[OffsetForLeaderEpochRequest.Topic(topic=topic, partitions=[of_epoch])]),
        )
    deletion = DeleteRecordsRequest.Topic.Partition(partition_index=partition, offset=0)
    yield (
        2,
        DeleteRecordsRequest(topics=[DeleteRecordsRequest.Topic(name=topic, partitions=[deletion])], timeout_ms=1_000),
    )
    yield (
        0,
        DescribeProducersRequest(topics=[DescribeProducersRequest.Topic(name=topic, partition_indexes=[partition])]),
    )


def comparable(answer: Any) -> str:
    """An answer without what is chance, order or the text of an error."""
    if hasattr(answer, "controller_id") and answer.controller_id > 0:
        answer.controller_id = 0
    for name in ("brokers", "topics", "config_resources"):
        getattr(answer, name, []).sort(key=repr)
    for topic in getattr(answer, "topics", []):
        topic.partitions.sort(key=lambda one: getattr(one, "partition_index", 0))
        for partition in topic.partitions:
            if getattr(partition, "error_message", None):
                partition.error_message = "a sentence"
    if getattr(answer, "error_message", None):
        answer.error_message = "a sentence"
    for topic in getattr(answer, "responses", []):
        for partition in getattr(topic, "partitions", []):
            partition.records = bytes(partition.records or b"")
    return repr(answer)


def compare(addresses: dict[int, str], questions: list[Question]) -> int:
    """Ask Kafka and the member the same. Returns how many answers were the same."""
    with RawClient(addresses[ORIGINAL]) as kafka, RawClient(addresses[MEMBER]) as member:
        for version, request in questions:
            theirs, ours = comparable(kafka.ask(request, version)), comparable(member.ask(request, version))
            if isinstance(request, DescribeClusterRequest):
                theirs, ours = (one.replace("controller_id=-1", "controller_id=0") for one in (theirs, ours))
            assert ours == theirs, f"{type(request).__name__} v{version} at {addresses[MEMBER]}: {request}"
    return len(questions)


@pytest.mark.timeout(300)
def test_a_member_answers_like_kafka_where_other_brokers_have_what_is_asked_for(
    cluster: Cluster,
) -> None:
    admin = Admin(cluster.nodes[ORIGINAL].bootstrap)
    admin.create(FAR, [[KILLED], [KILLED]])
    admin.create(SPREAD, [[KILLED, ORIGINAL, MEMBER], [ORIGINAL, KILLED, MEMBER], [MEMBER, KILLED, ORIGINAL]])
    inside = {node_id: cluster.nodes[node_id].bootstrap for node_id in (ORIGINAL, MEMBER)}
    outside = {node_id: cluster.nodes[node_id].settings["listeners"].rpartition("//")[2] for node_id in inside}
    with RawClient(inside[ORIGINAL]) as client:
        asked = [MetadataRequest.Topic(name=name) for name in (FAR, SPREAD)]
        id_of = {topic.name: topic.topic_id for topic in client.ask(MetadataRequest(topics=asked), 12).topics}

    def coordinators_are_there() -> bool:
        with RawClient(inside[ORIGINAL]) as client:
            found = [
                client.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["any"]), 4)
                for key_type in (0, 1)
            ]
        return not any(one.coordinators[0].error_code for one in found)

    admin.until(coordinators_are_there, "the coordinators are there")

    def both_see(brokers: int) -> bool:
        answers = []
        for address in inside.values():
            with RawClient(address) as client:
                asked = [MetadataRequest.Topic(name=name) for name in (FAR, SPREAD, "__consumer_offsets")]
                answers.append(client.ask(MetadataRequest(topics=asked), 12))
        return comparable(answers[0]) == comparable(answers[1]) and len(answers[0].brokers) == brokers

    def compare_all() -> int:
        questions = list(about_the_cluster([FAR, SPREAD, "__consumer_offsets"]))
        for partition in (0, 99):
            questions += about_a_partition(FAR, id_of[FAR], partition)
        return sum(compare(addresses, questions) for addresses in (inside, outside))

    admin.until(lambda: both_see(3), "both brokers have the same metadata")
    assert compare_all() > 200
    of_follower = [
        (version, request)
        for version, request in about_a_partition(SPREAD, id_of[SPREAD], 0)
        if not (isinstance(request, FetchRequest) and version >= FOLLOWERS_ARE_READ_SINCE)
    ]
    assert sum(compare(addresses, of_follower) for addresses in (inside, outside)) > 50
    cluster.nodes[KILLED].kill()
    admin.until(lambda: both_see(2), "broker 2 is fenced")
    assert compare_all() > 200
