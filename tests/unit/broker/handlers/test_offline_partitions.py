"""What is answered for a partition whose data directory has failed, beside one that goes on."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.serving import assert_served, serves
from protocol.errors import ErrorCode as E
from protocol.messages.delete_records import DeleteRecordsRequest
from protocol.messages.fetch import FetchRequest
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.log_dirs import DescribeLogDirsRequest
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from protocol.messages.produce import ProduceRequest
from protocol.messages.topic_partitions import DescribeTopicPartitionsRequest
from tests.support.batches import produced, record
from tests.support.broker import Client, InProcessBroker, running_broker
from tests.support.files import FaultyFileSystem
from tests.support.requests import fetch_request, produce_request

ALIVE, OFFLINE = 0, 1
FIRST_SEGMENT = "b/orders-1/00000000000000000000.log"


@pytest.fixture
def files() -> FaultyFileSystem:
    return FaultyFileSystem()


@pytest.fixture
def broker(request: pytest.FixtureRequest, tmp_path: Path, files: FaultyFileSystem) -> Iterator[InProcessBroker]:
    """A broker with the directories `a`, which has the metadata, and `b`; and `orders` with a partition in each."""
    directories = ",".join(str(tmp_path / name) for name in ("a", "b"))
    with running_broker(tmp_path, files=files, log_dirs=directories) as broker:
        broker.create_topic("orders", partitions=2)
        broker.produce("orders", b"alive", partition=ALIVE)
        broker.produce("orders", b"lost", partition=OFFLINE)
        yield broker
        assert_served(request.node, broker.answered)


def offline_replicas(broker: InProcessBroker) -> list[list[int]]:
    answer = broker.ask(MetadataRequest(topics=[MetadataRequest.Topic(name="orders")]), 12)
    return [partition.offline_replicas for partition in answer.topics[0].partitions]


def lose(broker: InProcessBroker, files: FaultyFileSystem) -> None:
    """Let the directory `b` fail."""
    files.fail("write", errno.EIO, suffix=FIRST_SEGMENT)
    assert produce(broker, OFFLINE) == E.KAFKA_STORAGE_ERROR
    broker.wait_until(lambda: offline_replicas(broker) == [[], [1]])


def produce(broker: InProcessBroker, partition: int, version: int = 12) -> int:
    answer = broker.ask(produce_request("orders", produced([record()]), partition=partition), version)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


def fetch_both(client: Client, version: int = 12, **fields: int) -> dict[int, int]:
    """Error codes by partition."""
    request = fetch_request("orders", partition=ALIVE, offset=1, **fields)
    request.topics += fetch_request("orders", partition=OFFLINE, offset=1).topics
    client.send(request, version)
    return error_codes(client.receive())


def error_codes(answer: object) -> dict[int, int]:
    responses = answer.responses  # type: ignore[attr-defined]
    return {one.partition_index: one.error_code for topic in responses for one in topic.partitions}


@serves(ProduceRequest, E.KAFKA_STORAGE_ERROR, E.NONE, versions=[4, 12])
def test_produce(broker: InProcessBroker, files: FaultyFileSystem) -> None:
    lose(broker, files)
    for version in (4, 12):
        assert (produce(broker, OFFLINE, version), produce(broker, ALIVE, version)) == (E.KAFKA_STORAGE_ERROR, E.NONE)
    assert produce(broker, OFFLINE, 3) == E.NOT_LEADER_OR_FOLLOWER, "version 3 does not know the code"


@serves(FetchRequest, E.KAFKA_STORAGE_ERROR, E.NONE, versions=[6, 12])
@serves(FetchRequest, E.NOT_LEADER_OR_FOLLOWER, versions=[5])
def test_fetch_is_told_at_once(broker: InProcessBroker, files: FaultyFileSystem) -> None:
    lose(broker, files)
    client = broker.connect()
    for version, code in ((12, E.KAFKA_STORAGE_ERROR), (6, E.KAFKA_STORAGE_ERROR), (5, E.NOT_LEADER_OR_FOLLOWER)):
        assert fetch_both(client, version, max_wait_ms=10_000) == {ALIVE: E.NONE, OFFLINE: code}


@serves(ListOffsetsRequest, E.KAFKA_STORAGE_ERROR, E.NONE, versions=[9])
def test_list_offsets(broker: InProcessBroker, files: FaultyFileSystem) -> None:
    lose(broker, files)
    partitions = [ListOffsetsRequest.Topic.Partition(partition_index=index, timestamp=-1) for index in (ALIVE, OFFLINE)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsRequest.Topic(name="orders", partitions=partitions)])
    found = broker.ask(request, 9).topics[0].partitions
    assert [(one.error_code, one.offset) for one in found] == [(E.NONE, 1), (E.KAFKA_STORAGE_ERROR, -1)]


@serves(OffsetForLeaderEpochRequest, E.KAFKA_STORAGE_ERROR, E.NONE, versions=[4])
def test_offset_for_leader_epoch(broker: InProcessBroker, files: FaultyFileSystem) -> None:
    lose(broker, files)
    partitions = [
        OffsetForLeaderEpochRequest.Topic.Partition(partition=index, leader_epoch=0) for index in (ALIVE, OFFLINE)
    ]
    request = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderEpochRequest.Topic(topic="orders", partitions=partitions)]
    )
    found = broker.ask(request, 4).topics[0].partitions
    assert [(one.error_code, one.end_offset) for one in found] == [(E.NONE, 1), (E.KAFKA_STORAGE_ERROR, -1)]


@serves(DeleteRecordsRequest, E.KAFKA_STORAGE_ERROR, E.NONE, versions=[2])
def test_delete_records(broker: InProcessBroker, files: FaultyFileSystem) -> None:
    lose(broker, files)
    partitions = [DeleteRecordsRequest.Topic.Partition(partition_index=index, offset=1) for index in (ALIVE, OFFLINE)]
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsRequest.Topic(name="orders", partitions=partitions)], timeout_ms=1000
    )
    found = broker.ask(request, 2).topics[0].partitions
    assert [(one.error_code, one.low_watermark) for one in found] == [(E.NONE, 1), (E.KAFKA_STORAGE_ERROR, -1)]


@serves(DescribeLogDirsRequest, E.KAFKA_STORAGE_ERROR, E.NONE, versions=[4])
def test_describe_log_dirs(broker: InProcessBroker, files: FaultyFileSystem, tmp_path: Path) -> None:
    lose(broker, files)
    alive, failed = broker.ask(DescribeLogDirsRequest(topics=None), 4).results
    assert (alive.log_dir, alive.error_code, [topic.name for topic in alive.topics]) == (
        str(tmp_path / "a"),
        E.NONE,
        ["orders"],
    )
    assert (failed.log_dir, failed.error_code, failed.topics) == (str(tmp_path / "b"), E.KAFKA_STORAGE_ERROR, [])


@serves(MetadataRequest, E.LEADER_NOT_AVAILABLE, E.NONE, versions=[12])
def test_metadata_names_no_leader_as_kafka_does_it(broker: InProcessBroker, files: FaultyFileSystem) -> None:
    lose(broker, files)
    (topic,) = broker.ask(MetadataRequest(topics=[MetadataRequest.Topic(name="orders")]), 12).topics
    alive, offline = topic.partitions

    def told(one: MetadataResponse.Topic.Partition) -> tuple[object, ...]:
        return one.error_code, one.leader_id, one.leader_epoch, one.replica_nodes, one.offline_replicas

    assert told(alive) == (E.NONE, 1, 0, [1], [])
    assert told(offline) == (E.LEADER_NOT_AVAILABLE, -1, 1, [1], [1])


def test_described_partitions_have_no_error_as_kafka_does_it(broker: InProcessBroker, files: FaultyFileSystem) -> None:
    lose(broker, files)
    request = DescribeTopicPartitionsRequest(topics=[DescribeTopicPartitionsRequest.Topic(name="orders")])
    (topic,) = broker.ask(request, 0).topics
    assert [(one.error_code, one.leader_id, one.offline_replicas) for one in topic.partitions] == [
        (E.NONE, 1, []),
        (E.NONE, -1, [1]),
    ]


# Requests that wait ---------------------------------------------------------------------------------------------------


def test_a_fetch_that_waits_is_told(broker: InProcessBroker, files: FaultyFileSystem) -> None:
    client = broker.connect()
    request = fetch_request("orders", partition=OFFLINE, offset=1, max_wait_ms=10_000)
    request.topics += fetch_request("orders", partition=ALIVE, offset=1).topics
    client.send(request, 12)
    assert client.has_no_answer()

    lose(broker, files)

    assert error_codes(client.receive()) == {OFFLINE: E.KAFKA_STORAGE_ERROR, ALIVE: E.NONE}


def test_a_fetch_of_a_session_that_waits_is_told(broker: InProcessBroker, files: FaultyFileSystem) -> None:
    client = broker.connect()
    begun = client.ask(fetch_request("orders", partition=OFFLINE, offset=1, session_epoch=0), 12)
    again = fetch_request("orders", session_id=begun.session_id, session_epoch=1, max_wait_ms=10_000)
    again.topics.clear()
    client.send(again, 12)
    assert client.has_no_answer()

    lose(broker, files)

    assert error_codes(client.receive()) == {OFFLINE: E.KAFKA_STORAGE_ERROR}


def test_a_produce_that_waits_for_its_flush_is_told(broker: InProcessBroker, files: FaultyFileSystem) -> None:
    broker.create_topic("safe", partitions=2, flush_messages=1)
    files.fail("fsync", suffix="b/safe-1/00000000000000000000.log")
    client = broker.connect()
    request = produce_request("safe", produced([record()]), partition=ALIVE)
    request.topic_data += produce_request("safe", produced([record()]), partition=OFFLINE).topic_data
    client.send(request, 12)

    answer = client.receive()

    codes = {one.index: one.error_code for topic in answer.responses for one in topic.partition_responses}
    assert codes == {ALIVE: E.NONE, OFFLINE: E.KAFKA_STORAGE_ERROR}
    assert produce(broker, OFFLINE) == E.KAFKA_STORAGE_ERROR, "the directory is gone for its other partitions too"


def test_a_deletion_that_waits_is_told(
    broker: InProcessBroker, files: FaultyFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = broker.server.components.replicas.partition("orders", OFFLINE)
    monkeypatch.setattr(type(partition), "low_watermark", property(lambda self: 0))
    client = broker.connect()
    deletion = DeleteRecordsRequest.Topic.Partition(partition_index=OFFLINE, offset=1)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsRequest.Topic(name="orders", partitions=[deletion])], timeout_ms=10_000
    )
    client.send(request, 2)
    broker.wait_until(lambda: broker.server.components.replicas.delete_records_purgatory.stats.pending == 1)

    lose(broker, files)

    assert client.receive().topics[0].partitions[0].error_code == E.KAFKA_STORAGE_ERROR
