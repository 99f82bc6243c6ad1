"""`ottla pipeline mirror`: topics copied to another Kafka, again and again, killed in between."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dev.broker_process import BrokerProcess
from dev.repository import REPOSITORY
from dev.waiting import until
from pipeline.__main__ import main
from tests.interop.directories import Visitor
from tests.pipeline.conftest import FIXTURES
from tests.pipeline.restore.test_segments import placed, records
from tests.pipeline.test_source import comparable, text
from tests.support.batches import AS_BY_JAVA, NO_UTF8, named
from tests.support.clients import Client, Received, Record, RequestFailed, connect
from tests.support.damage import break_batch
from tests.support.partitions import TOPIC, PartitionOnDisk, leave_in_order


def words(source: BrokerProcess, target: BrokerProcess, checkpoint: Path, *more: str) -> list[str]:
    """The command line."""
    return [
        *("mirror", "--data-dir", str(source.data_directory), "--bootstrap", source.bootstrap),
        *("--to", target.bootstrap, "--checkpoint", str(checkpoint), *more),
    ]


def read_from(broker: BrokerProcess, topic: str) -> list[Received]:
    return sorted(connect("kafka-python", broker.bootstrap).consume_all(topic), key=placed)


def test_partitions_times_headers_and_nulls_stay(
    own_broker: BrokerProcess, second: BrokerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client = connect("confluent-kafka", own_broker.bootstrap)
    client.create_topic("t", partitions=3, configs={"retention.ms": "-1", "compression.type": "zstd"})
    for partition in (0, 2):
        client.produce("t", records(100, first=partition * 100, partition=partition))
    line = words(own_broker, second.start(), tmp_path / "checkpoint")

    assert main(line) == 0
    assert read_from(second, "t") == read_from(own_broker, "t")
    assert connect("confluent-kafka", second.bootstrap).partitions("t") == [0, 1, 2]
    assert connect("confluent-kafka", second.bootstrap).topic_configs("t")["compression.type"] == "zstd"

    client.produce("t", records(10, first=1000, partition=1))
    assert main(line) == 0
    assert main(line) == 0
    assert read_from(second, "t") == read_from(own_broker, "t")
    said = capsys.readouterr().out
    assert [line.split()[1] for line in said.splitlines()] == ["200", "10", "0"]


def test_no_record_is_missing_in_apache_kafka_when_a_mirror_is_killed(
    own_broker: BrokerProcess, kafka: BrokerProcess, tmp_path: Path
) -> None:
    """It is killed when some of it has arrived, and started again: at least once."""
    client = connect("confluent-kafka", own_broker.bootstrap)
    client.create_topic("t", partitions=2, configs={"retention.ms": "-1"})
    count = 150_000
    for partition in (0, 1):
        # More than one stretch of a partition.
        client.produce(
            "t", [Record(value=b"%d" % number, key=b"k" * 200, partition=partition) for number in range(count)]
        )
    line = words(own_broker, kafka, tmp_path / "checkpoint")
    there = connect("confluent-kafka", kafka.bootstrap)

    for _ in range(2):
        kill_once_something_arrives(line, there)
    assert main(line) == 0

    for partition in (0, 1):
        _, end = there.offsets("t")[partition]
        numbers = [int(one.value or b"") for one in there.consume("t", partition=partition, offset=0, count=end)]
        first_seen = list(dict.fromkeys(numbers))
        assert first_seen == list(range(count)), "every record is there, and for the first time in its order"


def kill_once_something_arrives(line: list[str], there: Client) -> None:
    before = arrived(there, "t")
    process = subprocess.Popen([sys.executable, "-m", "pipeline", *line], cwd=REPOSITORY, stderr=subprocess.DEVNULL)
    until(lambda: arrived(there, "t") > before or process.poll() is not None, "something more has arrived")
    process.send_signal(signal.SIGKILL)
    process.wait()


def arrived(client: Client, topic: str) -> int:
    if topic not in client.topics():
        return 0
    try:
        return sum(end for _, end in client.offsets(topic).values())
    except RequestFailed:
        return 0  # it has just been made


def test_records_that_were_deleted_before_they_were_copied_are_told(
    own_broker: BrokerProcess, second: BrokerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client = connect("confluent-kafka", own_broker.bootstrap)
    client.create_topic("t", configs={"retention.ms": "-1"})
    client.produce("t", records(10))
    line = words(own_broker, second.start(), tmp_path / "checkpoint")
    assert main(line) == 0
    client.produce("t", records(10, first=10))
    with Visitor(own_broker.bootstrap) as visitor:
        visitor.delete_records("t", 15)

    assert main(line) == 2
    assert "the offsets 10 to 14 of t-0 have been deleted before they were copied" in capsys.readouterr().err
    assert main([*line, "--accept-gap"]) == 0
    assert len(read_from(second, "t")) == 15


@pytest.mark.parametrize("topics_there", [1, 2])
def test_what_a_mirror_refuses(
    own_broker: BrokerProcess, second: BrokerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    topics_there: int,
) -> None:  # fmt: skip
    client = connect("confluent-kafka", own_broker.bootstrap)
    client.create_topic("t", partitions=2)
    checkpoint = tmp_path / "checkpoint"

    assert main(words(own_broker, own_broker, checkpoint)) == 2
    assert "is the cluster that is read" in capsys.readouterr().err

    connect("confluent-kafka", second.start().bootstrap).create_topic("t", partitions=topics_there)
    code = main(words(own_broker, second, checkpoint))
    if topics_there == 1:
        assert code == 2
        assert "has 1 partitions of t, and 2 are copied" in capsys.readouterr().err
        return
    assert code == 0
    checkpoint.write_text("[]")
    assert main(words(own_broker, second, checkpoint)) == 2
    assert "is not the checkpoint of a mirror" in capsys.readouterr().err


def written_by_kafka(topic: str, partition: str) -> list[list[Any]]:
    """What Apache Kafka's own consumer has read of a partition, transactions that were aborted left out."""
    about = json.loads((FIXTURES / "expected.json").read_text())["topics"][topic]["records"][partition]
    visible = set(about["read_committed"])
    return [comparable(row)[1:] for row in about["read_uncommitted"] if row[0] in visible]


def mirrored(broker: BrokerProcess, topic: str, partition: str) -> list[list[Any]]:
    """The same as it has arrived."""
    return [
        [one.timestamp_ms, text(one.key), text(one.value), [[name, text(value)] for name, value in one.headers]]
        for one in read_from(broker, topic)
        if one.partition == int(partition)
    ]


@pytest.fixture
def keeping(second: BrokerProcess) -> BrokerProcess:
    """A broker that deletes nothing, however old."""
    second.settings["log.retention.ms"] = "-1"
    return second.start()


def test_all_that_apache_kafka_wrote_arrives(
    kafka_directory: Callable[[str], Path], keeping: BrokerProcess, tmp_path: Path
) -> None:
    data = kafka_directory("kafka-dir")
    expected = json.loads((FIXTURES / "expected.json").read_text())["topics"]

    line = ["mirror", "--data-dir", str(data), "--to", keeping.bootstrap, "--checkpoint", str(tmp_path / "checkpoint")]
    assert main(line) == 0

    assert connect("confluent-kafka", keeping.bootstrap).topics() == set(expected)
    for topic, about in expected.items():
        for partition in about["records"]:
            assert mirrored(keeping, topic, partition) == written_by_kafka(topic, partition), f"{topic}-{partition}"


def test_header_names_that_are_no_text_arrive_as_java_reads_them(keeping: BrokerProcess, tmp_path: Path) -> None:
    PartitionOnDisk(tmp_path / "data/orders-0").append([named([b"ok", *NO_UTF8])])
    data = leave_in_order(tmp_path / "data")

    line = ["mirror", "--data-dir", str(data), "--to", keeping.bootstrap, "--checkpoint", str(tmp_path / "checkpoint")]
    assert main(line) == 0

    (arrived_there,) = read_from(keeping, TOPIC)
    assert [name for name, _ in arrived_there.headers] == ["ok", *AS_BY_JAVA]


def test_damage_ends_a_mirror_or_is_passed_over(
    kafka_directory: Callable[[str], Path], keeping: BrokerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the checkpoint names has arrived; the rest comes when somebody says what is to be done."""
    data, checkpoint = kafka_directory("kafka-dir"), tmp_path / "checkpoint"
    path = data / "plain-0" / f"{0:020d}.log"
    position, offset = break_batch(path, 2)
    line = ["mirror", "--data-dir", str(data), "--to", keeping.bootstrap, "--checkpoint", str(checkpoint)]

    assert main(line) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert f"{path} at {position} (offset {offset}): found the CRC" in said.err
    assert said.err.count("\n") == 1
    arrived_by_then = json.loads(checkpoint.read_bytes())["topics"]
    assert {"keyed", "codecs"} <= arrived_by_then.keys() <= set(connect("kafka-python", keeping.bootstrap).topics())
    assert "plain" not in arrived_by_then

    assert main([*line, "--on-damage", "skip-batch"]) == 0
    assert f"{path} at {position} (offset {offset}): found the CRC" in capsys.readouterr().err
    for topic, partition in (("keyed", "0"), ("codecs", "0"), ("rolled", "0"), ("txn", "0")):
        assert mirrored(keeping, topic, partition) == written_by_kafka(topic, partition), f"{topic}-{partition}"
    # What was on its way when the first one ended may have come twice.
    once = {timestamp: [timestamp, *rest] for timestamp, *rest in mirrored(keeping, "plain", "0")}
    whole = written_by_kafka("plain", "0")
    assert list(once.values()) == whole[:offset] + whole[offset + 1 :]
