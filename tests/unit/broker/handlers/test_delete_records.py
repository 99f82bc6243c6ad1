"""DeleteRecords through the codec."""

from typing import Any

import pytest

from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from protocol.messages.list_offsets import ListOffsetsRequest
from storage.errors import DiskFull
from storage.log_dir import CheckpointWrite
from tests.support.broker import InProcessBroker
from tests.support.requests import fetch_request

Topic = DeleteRecordsRequest.Topic

UP_TO_HIGH_WATERMARK = -1


def request(offset: int, *, topic: str = "orders", partition: int = 0, timeout_ms: int = 5000) -> DeleteRecordsRequest:
    """Delete what stands before ``offset`` in one partition."""
    asked = Topic(name=topic, partitions=[Topic.Partition(partition_index=partition, offset=offset)])
    return DeleteRecordsRequest(topics=[asked], timeout_ms=timeout_ms)


def delete(
    broker: InProcessBroker, offset: int, version: int = 2, **where: Any
) -> DeleteRecordsResponse.Topic.Partition:
    """The answer for the one partition."""
    answer: DeleteRecordsResponse = broker.ask(request(offset, **where), version)
    return answer.topics[0].partitions[0]


def earliest(broker: InProcessBroker) -> int:
    """Where `orders` begins, as a consumer asks it."""
    asked = ListOffsetsRequest.Topic.Partition(partition_index=0, timestamp=-2)
    answer = broker.ask(
        ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsRequest.Topic(name="orders", partitions=[asked])]), 7
    )
    offset: int = answer.topics[0].partitions[0].offset
    return offset


@pytest.fixture(autouse=True)
def orders(broker: InProcessBroker) -> None:
    """Ten records in ten batches."""
    broker.create_topic("orders")
    for _ in range(10):
        broker.produce("orders", b"x")


@serves(DeleteRecordsRequest)
@every_version(DeleteRecordsRequest)
def test_records_before_the_offset_are_gone(broker: InProcessBroker, version: int) -> None:
    deleted = delete(broker, 3, version)
    assert (deleted.error_code, deleted.low_watermark) == (E.NONE, 3)
    assert earliest(broker) == 3
    for offset, code in ((2, E.OFFSET_OUT_OF_RANGE), (3, E.NONE)):
        assert broker.ask(fetch_request("orders", offset=offset), 12).responses[0].partitions[0].error_code == code


def test_minus_one_deletes_all_that_consumers_can_see(broker: InProcessBroker) -> None:
    assert delete(broker, UP_TO_HIGH_WATERMARK).low_watermark == 10
    assert earliest(broker) == 10
    assert broker.produce("orders", b"next") == 10


def test_what_is_deleted_already_stays_deleted(broker: InProcessBroker) -> None:
    delete(broker, 5)
    deleted = delete(broker, 2)
    assert (deleted.error_code, deleted.low_watermark) == (E.NONE, 5)


def test_an_answered_deletion_outlives_the_process(broker: InProcessBroker) -> None:
    """Kafka writes it down once a minute; here the answer waits for it."""
    delete(broker, 4)
    checkpoint = (broker.directory / "log-start-offset-checkpoint").read_text()
    assert checkpoint.splitlines() == ["0", "1", "orders 0 4"]
    broker.restart()
    assert earliest(broker) == 4


@serves(DeleteRecordsRequest, E.OFFSET_OUT_OF_RANGE, versions=[2])
@pytest.mark.parametrize("offset", [11, -2, 2**63 - 1, -(2**63)])
def test_an_offset_that_there_is_not_deletes_nothing(broker: InProcessBroker, offset: int) -> None:
    refused = delete(broker, offset)
    assert (refused.error_code, refused.low_watermark) == (E.OFFSET_OUT_OF_RANGE, -1)
    assert earliest(broker) == 0


@serves(DeleteRecordsRequest, E.POLICY_VIOLATION, versions=[2])
def test_a_topic_that_is_only_compacted_keeps_its_records(broker: InProcessBroker) -> None:
    broker.create_topic("compacted", cleanup_policy="compact")
    broker.create_topic("both", cleanup_policy="compact,delete")
    for offset in (0, -1, 100, -5):
        assert delete(broker, offset, topic="compacted").error_code == E.POLICY_VIOLATION
    assert delete(broker, 0, topic="both").error_code == E.NONE
    broker.create_topic("neither", cleanup_policy="")
    assert delete(broker, 0, topic="neither").error_code == E.NONE


@serves(DeleteRecordsRequest, E.INVALID_TOPIC_EXCEPTION, versions=[2])
def test_the_coordinators_topics_are_not_for_clients(broker: InProcessBroker) -> None:
    broker.create_topic("__consumer_offsets")
    assert delete(broker, 0, topic="__consumer_offsets").error_code == E.INVALID_TOPIC_EXCEPTION


@serves(DeleteRecordsRequest, E.UNKNOWN_TOPIC_OR_PARTITION, versions=[2])
@pytest.mark.parametrize(
    "where",
    [{"topic": "nowhere"}, {"topic": "a/b"}, {"topic": "__cluster_metadata"}, {"partition": 1}, {"partition": -1}],
)
def test_an_unknown_partition_is_named_so(broker: InProcessBroker, where: dict[str, Any]) -> None:
    refused = delete(broker, 0, **where)
    assert (refused.error_code, refused.low_watermark) == (E.UNKNOWN_TOPIC_OR_PARTITION, -1)


@serves(DeleteRecordsRequest, E.NOT_LEADER_OR_FOLLOWER, versions=[2])
def test_who_does_not_lead_deletes_nothing(broker: InProcessBroker) -> None:
    broker.server.components.replicas.partition("orders", 0).leader = 2
    assert delete(broker, 3).error_code == E.NOT_LEADER_OR_FOLLOWER


def test_a_partition_that_comes_twice_is_answered_once_by_its_last_offset(broker: InProcessBroker) -> None:
    partitions = [Topic.Partition(partition_index=0, offset=offset) for offset in (4, 2)]
    answer = broker.ask(
        DeleteRecordsRequest(
            topics=[Topic(name="orders", partitions=partitions), Topic(name="empty", partitions=[])], timeout_ms=5000
        ),
        2,
    )
    assert [(topic.name, [p.low_watermark for p in topic.partitions]) for topic in answer.topics] == [("orders", [2])]


@pytest.mark.parametrize("timeout_ms", [0, -5])
def test_what_is_done_at_once_needs_no_time(broker: InProcessBroker, timeout_ms: int) -> None:
    assert delete(broker, 3, timeout_ms=timeout_ms).low_watermark == 3


@serves(DeleteRecordsRequest, E.REQUEST_TIMED_OUT, versions=[2])
def test_a_replica_that_keeps_the_records_is_waited_for(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = broker.server.components.replicas.partition("orders", 0)
    monkeypatch.setattr(type(partition), "low_watermark", property(lambda self: 2))
    client = broker.connect()
    client.send(request(3, timeout_ms=500), 2)
    broker.wait_until(lambda: broker.server.components.replicas.delete_records_purgatory.stats.pending == 1)
    assert client.has_no_answer()

    broker.advance(500)

    late = client.receive().topics[0].partitions[0]
    assert (late.error_code, late.low_watermark) == (E.REQUEST_TIMED_OUT, -1)


def test_a_deletion_that_waits_is_told_that_its_topic_is_gone(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = broker.server.components.replicas.partition("orders", 0)
    monkeypatch.setattr(type(partition), "low_watermark", property(lambda self: 2))
    client = broker.connect()
    client.send(request(3), 2)
    broker.wait_until(lambda: broker.server.components.replicas.delete_records_purgatory.stats.pending == 1)

    broker.server.components.replicas.drop("orders", 0)

    assert client.receive().topics[0].partitions[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION


@serves(DeleteRecordsRequest, E.KAFKA_STORAGE_ERROR, versions=[2])
def test_a_deletion_that_cannot_be_written_down_is_not_answered_with_success(
    broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: CheckpointWrite) -> None:
        raise DiskFull("writing a checkpoint: no space left")

    with monkeypatch.context() as patched:
        patched.setattr(CheckpointWrite, "perform", full)
        assert delete(broker, 3).error_code == E.KAFKA_STORAGE_ERROR
    assert delete(broker, 3).low_watermark == 3
