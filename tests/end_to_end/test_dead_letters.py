"""Two nodes: what a share group gives up goes to its dead letter queue, and its lag is told, whoever leads what."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

import pytest

from config.resources import ConfigResource
from dev.waiting import until
from protocol.errors import ErrorCode
from protocol.messages.configs import IncrementalAlterConfigsRequest
from protocol.messages.share_group_offsets import DescribeShareGroupOffsetsRequest
from tests.support.clusters import Admin, Cluster
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("OTTLA_TEST_BOOTSTRAP") or os.environ.get("OTTLA_TEST_KAFKA_LIBS")),
    reason="a cluster of another broker is not ours to judge",
)

confluent_kafka = pytest.importorskip("confluent_kafka")
if not hasattr(confluent_kafka, "ShareConsumer"):
    pytest.skip("this librdkafka has no share consumer", allow_module_level=True)

PRIMARY: Final = 1
STANDBY: Final = 2
SETTINGS: Final = {
    "share.coordinator.state.topic.replication.factor": "2",
    "share.coordinator.state.topic.min.isr": "1",
    "errors.deadletterqueue.auto.create.topics.enable": "true",
}
JOBS: Final = 10
"""In each partition."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A node and its standby."""
    with Cluster(tmp_path_factory.mktemp("pair")) as cluster:
        cluster.add_primary(PRIMARY, SETTINGS)
        cluster.add_member(STANDBY, SETTINGS)
        yield cluster


def configure(pair: Cluster, group_id: str, **configs: str) -> None:
    of_request = IncrementalAlterConfigsRequest.Resource
    changes = [
        of_request.Config(name=name.replace("_", "."), config_operation=0, value=value)
        for name, value in configs.items()
    ]
    resource = of_request(resource_type=ConfigResource.GROUP, resource_name=group_id, configs=changes)
    with RawClient(pair.nodes[PRIMARY].bootstrap) as client:
        answer = client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    assert answer.responses[0].error_code == ErrorCode.NONE, answer


def produce(pair: Cluster, topic: str, partitions: int) -> set[bytes]:
    """Write jobs to each partition."""
    producer = confluent_kafka.Producer({"bootstrap.servers": pair.bootstrap, "acks": "all"})
    jobs = {f"{topic} {partition} {number}".encode() for partition in range(partitions) for number in range(JOBS)}
    for job in jobs:
        producer.produce(topic, job, partition=int(job.split()[1]))
    assert producer.flush(60) == 0
    return jobs


def reject_all(pair: Cluster, topic: str, group_id: str, expected: set[bytes]) -> None:
    """A member of the group rejects all records of the topic."""
    options = {"bootstrap.servers": pair.bootstrap, "group.id": group_id, "share.acknowledgement.mode": "explicit"}
    seen: set[bytes] = set()
    with confluent_kafka.ShareConsumer({**options, "log_level": 0}) as consumer:
        consumer.subscribe([topic])

        def has_seen_all() -> bool:
            for message in consumer.poll(0.5):
                if message.error() is None:
                    seen.add(message.value())
                    consumer.acknowledge(message, confluent_kafka.AcknowledgeType.REJECT)
            return seen == expected

        until(has_seen_all, "the group has seen all jobs")
        consumer.commit_sync(30)


def lags(pair: Cluster, topic: str, group_id: str) -> list[int]:
    """The lag of the group in each partition, as the coordinator of the group describes it."""
    of_group = DescribeShareGroupOffsetsRequest.Group
    asked = DescribeShareGroupOffsetsRequest(groups=[of_group(group_id=group_id, topics=None)])
    for node in pair.nodes.values():
        with RawClient(node.bootstrap) as client:
            (group,) = client.ask(asked, 1).groups
        if group.error_code == ErrorCode.NONE:
            return [
                partition.lag for found in group.topics if found.topic_name == topic for partition in found.partitions
            ]
    return []


def letters(pair: Cluster, topic: str, count: int) -> dict[bytes, dict[str, str]]:
    """The headers of so many dead letters, by the value of the record."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": pair.bootstrap, "group.id": "reader", "auto.offset.reset": "earliest", "log_level": 0}
    )
    found: dict[bytes, dict[str, str]] = {}
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in partitions])

    def has_all() -> bool:
        for message in consumer.consume(100, timeout=0.5):
            if message.error() is None:
                found[message.value()] = {
                    name.removeprefix("__dlq.errors."): value.decode() for name, value in message.headers()
                }
        return len(found) >= count

    until(has_all, f"there are {count} dead letters")
    consumer.close()
    return found


@pytest.mark.timeout(300)
def test_letters_are_written_where_the_other_node_leads_the_queue(pair: Cluster) -> None:
    admin = Admin(pair.bootstrap)
    admin.create("jobs", [[PRIMARY, STANDBY], [STANDBY, PRIMARY]])
    admin.create("dlq.jobs", [[STANDBY, PRIMARY], [PRIMARY, STANDBY]], errors_deadletterqueue_group_enable="true")
    configure(
        pair,
        "workers",
        share_auto_offset_reset="earliest",
        errors_deadletterqueue_topic_name="dlq.jobs",
        errors_deadletterqueue_copy_record_enable="true",
    )
    jobs = produce(pair, "jobs", 2)
    reject_all(pair, "jobs", "workers", jobs)

    found = letters(pair, "dlq.jobs", len(jobs))

    assert set(found) == jobs
    assert {headers["partition"] for headers in found.values()} == {"0", "1"}
    assert {(headers["topic"], headers["group"]) for headers in found.values()} == {("jobs", "workers")}
    until(lambda: lags(pair, "jobs", "workers") == [0, 0], "nothing is left to do")
    produce(pair, "jobs", 2)
    assert lags(pair, "jobs", "workers") == [JOBS, JOBS], "each leader is asked for its end"


@pytest.mark.timeout(300)
def test_a_member_has_its_controllers_create_the_queue(pair: Cluster) -> None:
    Admin(pair.bootstrap).create("tasks", [[STANDBY]])
    configure(
        pair,
        "helpers",
        share_auto_offset_reset="earliest",
        errors_deadletterqueue_topic_name="dlq.made",
        errors_deadletterqueue_copy_record_enable="true",
    )
    tasks = produce(pair, "tasks", 1)
    reject_all(pair, "tasks", "helpers", tasks)

    until(lambda: "dlq.made" in Admin(pair.bootstrap).client.list_topics(timeout=10).topics, "the queue is created")
    assert set(letters(pair, "dlq.made", len(tasks))) == tasks
