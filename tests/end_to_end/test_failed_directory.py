"""One of two data directories goes away below the broker, and comes back at its next start."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.broker_process import BrokerProcess
from dev.brokers import broker_for_tests
from dev.waiting import until
from protocol.errors import ErrorCode
from protocol.messages.metadata import MetadataRequest
from tests.support.batches import produced, record
from tests.support.clients import Client, Record, connect, values
from tests.support.raw_client import RawClient
from tests.support.requests import produce_request

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("OTTLA_TEST_BOOTSTRAP")), reason="the directories of another broker are not ours to take away"
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker with the directories `data`, which has the metadata, and `more`; it looks after them all the time."""
    directories = f"{tmp_path / 'data'},{tmp_path / 'more'}"
    process = broker_for_tests(
        tmp_path, settings={"log.dirs": directories, "replica.high.watermark.checkpoint.interval.ms": "50"}
    )
    with process:
        yield process


@pytest.fixture
def client(client_name: str, broker: BrokerProcess) -> Client:
    return connect(client_name, broker.bootstrap)


def has_leader(bootstrap: str, topic: str, partition: int) -> bool:
    with RawClient(bootstrap) as raw:
        (told,) = raw.ask(MetadataRequest(topics=[MetadataRequest.Topic(name=topic)]), 12).topics
        return bool({one.partition_index: one.leader_id for one in told.partitions}[partition] >= 0)


def code_of_produce(bootstrap: str, topic: str, partition: int) -> int:
    with RawClient(bootstrap) as raw:
        answer = raw.ask(produce_request(topic, produced([record()]), partition=partition), 9)
        code: int = answer.responses[0].partition_responses[0].error_code
        return code


def test_the_other_directory_goes_on_and_everything_is_there_when_it_is_back(
    broker: BrokerProcess, client: Client, tmp_path: Path
) -> None:
    client.create_topic("orders", partitions=4)
    for partition in range(4):
        client.produce("orders", [Record(value=b"first", partition=partition)])
    more = tmp_path / "more"
    lost = next(index for index in range(4) if (more / f"orders-{index}").exists())
    kept = next(index for index in range(4) if not (more / f"orders-{index}").exists())

    more.rename(tmp_path / "away")
    until(lambda: not has_leader(broker.bootstrap, "orders", lost), "the loss of the directory")

    client.produce("orders", [Record(value=b"second", partition=kept)])
    assert values(client.consume("orders", partition=kept, offset=0, count=2)) == [b"first", b"second"]
    assert code_of_produce(broker.bootstrap, "orders", lost) == ErrorCode.KAFKA_STORAGE_ERROR
    client.create_topic("new", partitions=2)
    client.produce("new", [Record(value=b"value", partition=index) for index in range(2)])

    broker.stop()
    (tmp_path / "away").rename(more)
    broker.start()

    until(lambda: has_leader(broker.bootstrap, "orders", lost), "its return")
    client.produce("orders", [Record(value=b"second", partition=lost)])
    assert values(client.consume("orders", partition=lost, offset=0, count=2)) == [b"first", b"second"]
