"""Files damaged while the broker was down: it starts, says in one line what it found, and serves what is readable."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dev.broker_process import BrokerProcess, port_below_client_ports
from tests.support.clients import Record, connect, values

pytestmark = pytest.mark.skipif(
    bool(os.environ.get("OTTLA_TEST_BOOTSTRAP") or os.environ.get("OTTLA_TEST_KAFKA_LIBS")),
    reason="what another broker does is in the tables of test_kafka_directory",
)

RECORDS = [b"record %d " % number + b"x" * 20_000 for number in range(300)]
FIRST = "00000000000000000000"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(
        tmp_path, port=port_below_client_ports(),
        settings={"log.segment.bytes": "1048576", "log.retention.ms": "-1"},
    )  # fmt: skip
    with process:
        yield process


def fill(broker: BrokerProcess, topic: str) -> Path:
    """Produce to a new topic, twenty records at a time; the directory of its partition."""
    client = connect("confluent-kafka", broker.bootstrap)
    client.create_topic(topic, partitions=1)
    for start in range(0, len(RECORDS), 20):
        records = [Record(value=value, timestamp_ms=10_000 + start) for value in RECORDS[start : start + 20]]
        client.produce(topic, records)
    return broker.data_directory / f"{topic}-0"


def consumed(broker: BrokerProcess, topic: str) -> list[bytes | None]:
    return values(connect("confluent-kafka", broker.bootstrap).consume_all(topic))


def lines_of_the_last_start(broker: BrokerProcess, word: str) -> list[str]:
    lines = broker.log_text(last_lines=10_000).splitlines()
    begin = max(number for number, line in enumerate(lines) if "loading logs from" in line)
    return [line for line in lines[begin:] if word in line]


def overwrite(path: Path, how: Callable[[bytes], bytes]) -> None:
    path.write_bytes(how(path.read_bytes()))


def test_a_torn_end_is_cut_off_after_a_kill(broker: BrokerProcess, topic: str) -> None:
    directory = fill(broker, topic)
    broker.kill()
    active = max(directory.glob("*.log"))
    size = active.stat().st_size
    overwrite(active, lambda content: content + b"\0" * 333)
    broker.start()

    assert consumed(broker, topic) == RECORDS
    (line,) = lines_of_the_last_start(broker, "bytes were cut off")
    assert f"{topic}-0: {active}, position {size}, offset 300: there are zeros where a batch is expected" in line
    assert "333 bytes were cut off" in line
    (line,) = lines_of_the_last_start(broker, f"recovered {topic}-0")
    assert "333 cut off, it ends at offset 300" in line


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_zeroed_index_costs_nothing_but_a_line(broker: BrokerProcess, topic: str, suffix: str) -> None:
    directory = fill(broker, topic)
    broker.stop()
    overwrite(directory / f"{FIRST}{suffix}", lambda content: bytes(len(content)))
    broker.start()

    client = connect("confluent-kafka", broker.bootstrap)
    assert consumed(broker, topic) == RECORDS
    assert values(client.consume(topic, partition=0, offset=25, count=1)) == [RECORDS[25]]
    assert client.offset_for_time(topic, 0, 10_020) == 20
    (line,) = lines_of_the_last_start(broker, f"{FIRST}{suffix}")
    assert "the indexes have been made anew" in line


def test_a_missing_index_is_made_anew_at_the_start(broker: BrokerProcess, topic: str) -> None:
    directory = fill(broker, topic)
    broker.stop()
    index = directory / f"{FIRST}.index"
    before = index.read_bytes()
    index.unlink()
    broker.start()

    assert index.read_bytes() == before
    assert consumed(broker, topic) == RECORDS
    assert len(lines_of_the_last_start(broker, f"{index} is missing: made anew")) == 1


def test_what_lies_behind_a_damaged_batch_stays_after_a_clean_stop(broker: BrokerProcess, topic: str) -> None:
    directory = fill(broker, topic)
    broker.stop()
    overwrite(directory / f"{FIRST}.log", lambda content: content[:-500] + bytes(400) + content[-100:])
    (directory / f"{FIRST}.index").unlink()
    broker.start()

    client = connect("confluent-kafka", broker.bootstrap)
    assert client.offsets(topic) == {0: (0, 300)}
    assert values(client.consume(topic, partition=0, offset=100, count=200)) == RECORDS[100:]
    (line,) = lines_of_the_last_start(broker, "names the CRC")
    assert "it is left so" in line


def test_a_lost_end_leaves_a_gap_and_no_offset_is_given_twice(broker: BrokerProcess, topic: str) -> None:
    directory = fill(broker, topic)
    broker.stop()
    active = max(directory.glob("*.log"))
    base_offset = int(active.name[:20])
    active.unlink()
    broker.start()

    client = connect("confluent-kafka", broker.bootstrap)
    (answer,) = client.produce(topic, [Record(value=b"after")])
    assert answer.offset == 300
    assert consumed(broker, topic) == [*RECORDS[:base_offset], b"after"]
    (line,) = lines_of_the_last_start(broker, "was on disk up to 300")
    assert f"ends at offset {base_offset}" in line


def test_torn_checkpoints_and_a_lost_topic_id_stop_nobody(broker: BrokerProcess, topic: str) -> None:
    directory = fill(broker, topic)
    broker.kill()
    checkpoint = broker.data_directory / "recovery-point-offset-checkpoint"
    checkpoint.write_bytes(b"0\n7\ntorn")
    (directory / "partition.metadata").write_bytes(b"")
    (directory / "leader-epoch-checkpoint").write_bytes(b"0\n1\n")
    broker.start()

    assert consumed(broker, topic) == RECORDS
    assert (directory / "partition.metadata").read_text().startswith("version: 0\ntopic_id: ")
    for path, words in (
        (checkpoint, "it counts as empty"),
        (directory / "partition.metadata", "the topic id is the one that the metadata has"),
        (directory / "leader-epoch-checkpoint", "the leader epochs have been taken from the batches"),
    ):
        (line,) = lines_of_the_last_start(broker, str(path))
        assert words in line
