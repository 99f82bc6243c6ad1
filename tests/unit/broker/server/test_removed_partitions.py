"""Another process removes a partition's files below the running broker: the other partitions go on."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.errors import ErrorCode as E
from protocol.messages.metadata import MetadataRequest
from protocol.messages.topics import DeleteTopicsRequest
from tests.support.batches import produced, record
from tests.support.broker import InProcessBroker, running_broker
from tests.support.requests import fetch_request, produce_request

LARGE = bytes(600_000)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[InProcessBroker]:
    """A broker with one directory, and the topic `orders` of two partitions with a record each."""
    with running_broker(tmp_path) as broker:
        broker.create_topic("orders", partitions=2, segment_bytes=1_048_576)
        for partition in (0, 1):
            broker.produce("orders", b"value", partition=partition)
        yield broker


def produce_code(broker: InProcessBroker, partition: int, value: bytes = b"value") -> int:
    answer = broker.ask(produce_request("orders", produced([record(value)]), partition=partition), 12)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


def fetched(broker: InProcessBroker, partition: int) -> tuple[int, bool]:
    """The error code, and whether there are records."""
    answer = broker.ask(fetch_request("orders", partition=partition), 12).responses[0].partitions[0]
    return answer.error_code, bool(answer.records)


def leader(broker: InProcessBroker, partition: int) -> int:
    (topic,) = broker.ask(MetadataRequest(topics=[MetadataRequest.Topic(name="orders")]), 12).topics
    return {one.partition_index: one.leader_id for one in topic.partitions}[partition]


def lose_partition_0(broker: InProcessBroker) -> None:
    """Remove the directory of orders-0; the broker notices it when it begins a new segment."""
    shutil.rmtree(broker.directory / "orders-0")
    assert E.KAFKA_STORAGE_ERROR in [produce_code(broker, 0, LARGE) for _ in range(2)]


def test_a_partition_whose_directory_is_removed_goes_offline_alone(
    broker: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    lose_partition_0(broker)

    assert produce_code(broker, 0) == E.KAFKA_STORAGE_ERROR
    assert fetched(broker, 0) == (E.KAFKA_STORAGE_ERROR, False)
    broker.wait_until(lambda: leader(broker, 0) == -1)
    assert (leader(broker, 1), produce_code(broker, 1), fetched(broker, 1)) == (1, E.NONE, (E.NONE, True))
    assert broker.server.failure is None
    assert [line for line in caplog.messages if "orders-0 is offline until the next start" in line]


def test_the_next_start_begins_it_without_records_and_says_so(
    broker: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    lose_partition_0(broker)

    broker.restart()

    assert "partitions without a directory begin without records: orders-0" in caplog.messages
    assert fetched(broker, 0) == (E.NONE, False)
    assert produce_code(broker, 0) == E.NONE
    assert fetched(broker, 1) == (E.NONE, True)


@pytest.mark.parametrize("is_noticed", [False, True])
def test_a_topic_whose_directory_is_removed_can_be_deleted_and_made_again(
    broker: InProcessBroker, is_noticed: bool
) -> None:
    if is_noticed:
        lose_partition_0(broker)
    else:
        shutil.rmtree(broker.directory / "orders-0")

    answer = broker.ask(DeleteTopicsRequest(topic_names=["orders"], timeout_ms=30_000), 5)
    assert answer.responses[0].error_code == E.NONE
    broker.wait_until(lambda: "orders" not in broker.topics())
    broker.create_topic("orders", partitions=2)

    assert [produce_code(broker, partition) for partition in (0, 1)] == [E.NONE, E.NONE]
    assert broker.server.failure is None


def test_a_segment_that_is_removed_takes_no_other_partition_with_it(broker: InProcessBroker) -> None:
    for _ in range(4):
        assert produce_code(broker, 0, LARGE) == E.NONE
    broker.restart()
    first, second, *_ = sorted((broker.directory / "orders-0").glob("*.log"))
    second.unlink()
    first.unlink()

    assert fetched(broker, 0) == (E.KAFKA_STORAGE_ERROR, False)
    assert fetched(broker, 1) == (E.NONE, True)
    assert broker.server.failure is None
