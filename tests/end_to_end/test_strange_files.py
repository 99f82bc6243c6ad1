"""A data directory in which something is not what it should be: a disk that is not mounted, a link, a pipe."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.broker_process import BrokerProcess
from dev.brokers import broker_for_tests
from dev.repository import REPOSITORY
from dev.waiting import until
from protocol.errors import ErrorCode
from tests.support.batches import produced, record
from tests.support.clients import Record, connect, values
from tests.support.raw_client import RawClient
from tests.support.requests import produce_request

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("OTTLA_TEST_BOOTSTRAP") or os.environ.get("OTTLA_TEST_KAFKA_LIBS")),
    reason="the directories of another broker are not ours to change",
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker with the directories `data`, which has the metadata, and `more`."""
    process = broker_for_tests(
        tmp_path, settings={"log.dirs": f"{tmp_path / 'data'},{tmp_path / 'more'}", "log.segment.delete.delay.ms": "0"}
    )
    with process:
        yield process


def why_it_does_not_start(broker: BrokerProcess) -> str:
    """The last line on stderr of a start that ends with exit code 1, and without a traceback."""
    ended = subprocess.run(broker.command(), cwd=REPOSITORY, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    return ended.stderr.splitlines()[-1]


def place_of(topic: str, directory: Path) -> Path:
    """A partition of the topic that stands in this data directory."""
    return next(path for path in sorted(directory.iterdir()) if path.name.startswith(f"{topic}-"))


def test_a_partition_whose_disk_is_not_mounted_refuses_the_start_in_one_sentence(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    connect("confluent-kafka", broker.bootstrap).create_topic("orders", partitions=2)
    broker.stop()
    partition = place_of("orders", tmp_path / "data")
    partition.rename(tmp_path / "unmounted")
    partition.symlink_to(tmp_path / "disk" / partition.name)

    assert why_it_does_not_start(broker) == (
        f"ottla: {partition} is a link to {tmp_path / 'disk' / partition.name} (No such file or directory), "
        f"expected the directory of partition {partition.name}"
    )


def test_where_another_directory_is_left_only_that_one_goes_offline(broker: BrokerProcess, tmp_path: Path) -> None:
    client = connect("confluent-kafka", broker.bootstrap)
    client.create_topic("orders", partitions=2)
    client.produce("orders", [Record(value=b"v", partition=index) for index in range(2)])
    broker.stop()
    lost = place_of("orders", tmp_path / "more")
    kept = place_of("orders", tmp_path / "data")
    lost.rename(tmp_path / "unmounted")
    lost.symlink_to(tmp_path / "disk")

    broker.start()

    client = connect("confluent-kafka", broker.bootstrap)
    partition = int(kept.name.removeprefix("orders-"))
    assert values(client.consume("orders", partition=partition, offset=0, count=1)) == [b"v"]
    with RawClient(broker.bootstrap) as raw:
        answer = raw.ask(produce_request("orders", produced([record()]), partition=1 - partition), 9)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert f"{tmp_path / 'more'} is offline" in broker.log_text()

    broker.stop()
    (tmp_path / "unmounted").rename(tmp_path / "disk")
    broker.start()

    client = connect("confluent-kafka", broker.bootstrap)
    assert values(client.consume("orders", partition=1 - partition, offset=0, count=1)) == [b"v"]


@pytest.mark.parametrize("name", ["meta.properties", ".kafka_cleanshutdown", "recovery-point-offset-checkpoint"])
def test_a_pipe_in_the_place_of_a_file_keeps_nobody_waiting(broker: BrokerProcess, tmp_path: Path, name: str) -> None:
    broker.stop()
    path = tmp_path / "data" / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)

    assert why_it_does_not_start(broker) == f"ottla: opening {path}: it is a pipe, expected a file"


def test_a_deleted_partition_that_was_a_link_takes_no_data_directory_with_it(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    connect("confluent-kafka", broker.bootstrap).create_topic("orders", partitions=2)
    broker.stop()
    partition = place_of("orders", tmp_path / "data")
    partition.rename(tmp_path / "elsewhere")
    partition.symlink_to(tmp_path / "elsewhere")
    broker.start()
    client = connect("confluent-kafka", broker.bootstrap)

    client.delete_topic("orders")

    until(
        lambda: not [path for path in (tmp_path / "data").iterdir() if path.name.startswith("orders-")],
        "the removal of the link",
    )
    client.create_topic("new", partitions=2)
    client.produce("new", [Record(value=b"v", partition=index) for index in range(2)])
    assert "offline" not in broker.log_text()
