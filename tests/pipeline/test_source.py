"""The source of topics: bounds from the directories without a broker, and from the broker with one."""

from __future__ import annotations

import json
import pickle
import uuid
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from config.log_config import LogConfig
from dev.broker_process import BrokerProcess
from pipeline.errors import PipelineError
from pipeline.reading.ranges import Bounds, OffsetRange, Wanted
from pipeline.reading.reader import read_range
from pipeline.schema import COLUMNS
from pipeline.source import PartitionSource, Source, split
from storage.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    META_PROPERTIES,
    RECOVERY_POINTS,
    MetaProperties,
    write_meta_properties,
    write_offset_checkpoint,
)
from storage.errors import DirectoryLocked
from storage.files import FileSystem
from storage.loading import open_log
from storage.log import Log
from storage.log_dir import LogDir
from storage.topic_partition import TopicPartition
from tests.pipeline.conftest import FIXTURES
from tests.support.clients import CODECS, Record, connect
from tests.support.logs import T, batch_of, marker

ALL_COLUMNS = Wanted(columns=COLUMNS)
ORDERS = TopicPartition("orders", 0)
CLUSTER = MetaProperties("AAAAAAAAQACAAAAAAAAABQ", 1, None)


def rows(wanted_range: OffsetRange, *, read_committed: bool = True) -> list[dict[str, Any]]:
    wanted = ALL_COLUMNS._replace(read_committed=read_committed)
    return [row for batch in read_range(wanted_range, wanted) for row in batch.to_pylist()]


def milliseconds(row: dict[str, Any]) -> int:
    return round(row["timestamp"].timestamp() * 1000)


def fingerprint(directory: Path) -> dict[str, tuple[int, int, int]]:
    """Everything that is in a directory, and when it was changed."""
    return {
        str(path.relative_to(directory)): ((status := path.stat()).st_size, status.st_mtime_ns, status.st_ctime_ns)
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


# What Apache Kafka wrote


@pytest.mark.parametrize("read_committed", [True, False])
@pytest.mark.parametrize("name", ["kafka-dir", "kafka-dir-unclean"])
def test_kafkas_directories_give_what_kafkas_clients_saw(
    kafka_directory: Callable[[str], Path], name: str, read_committed: bool
) -> None:
    data = kafka_directory(name)
    before = fingerprint(data)
    expected = json.loads((FIXTURES / "expected.json").read_text())["topics"]
    with Source.open([str(data)]) as source:
        assert source.topics() == sorted(expected)
        partitions = source.partitions(source.topics())
        assert {(one.topic, str(one.partition)) for one in partitions} == {
            (topic, partition) for topic, about in expected.items() for partition in about["records"]
        }
        for one in partitions:
            seen = expected[one.topic]["records"][str(one.partition)]
            assert one.bounds == Bounds(seen["start"], seen["end"], seen["end"])
            wanted = [row for row in seen["read_uncommitted"] if not read_committed or row[0] in seen["read_committed"]]
            found = rows(one.readable(read_committed=read_committed), read_committed=read_committed)
            assert [as_expected(row) for row in found] == [comparable(row) for row in wanted], one.topic
            parts = split(one.readable(read_committed=read_committed), 3000)
            assert [row for part in parts for row in rows(part, read_committed=read_committed)] == found
    assert fingerprint(data) == before


def as_expected(row: dict[str, Any]) -> list[Any]:
    headers = [[header["key"], text(header["value"])] for header in row["headers"] or []]
    return [row["offset"], milliseconds(row), text(row["key"]), text(row["value"]), headers]


def comparable(row: list[Any]) -> list[Any]:
    offset, _, timestamp, key, value, headers = row
    return [offset, timestamp, key, value, headers]


def text(data: bytes | None) -> Any:
    """As `expected.json` has it; of what is long, only how long."""
    if data is None:
        return None
    return f"len {len(data)}" if len(data) > 2000 else b64encode(data).decode()


def test_time_stamp_types_are_those_of_the_batches(kafka_directory: Callable[[str], Path]) -> None:
    with Source.open([str(kafka_directory("kafka-dir"))]) as source:
        types = {
            one.topic: {row["timestampType"] for row in rows(one.readable())}
            for one in source.partitions(["appendtime", "plain"])
        }
    assert types == {"appendtime": {1}, "plain": {0}}


# Which topics


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory without logs, whose broker has left in order."""
    directory = tmp_path / "data"
    directory.mkdir()
    write_meta_properties(FileSystem(), str(directory / META_PROPERTIES), CLUSTER, "")
    (directory / CLEAN_SHUTDOWN).touch()
    return directory


def make(data: Path, *names: str) -> None:
    for name in names:
        (data / name).mkdir()
        (data / name / f"{0:020d}.log").touch()


def test_topics_are_chosen_by_name_and_by_pattern(data: Path) -> None:
    make(
        data,
        "orders-0",
        "orders-1",
        "returns-0",
        "__consumer_offsets-0",
        "old-0.abababababababababababababababab-delete",
    )
    make(data, f"lost-0.{'ab' * 16}-stray")
    (data / "lost+found").mkdir()
    with Source.open([str(data)]) as source:
        assert source.topics() == ["orders", "returns"]
        assert source.topics(["returns"]) == ["returns"]
        assert source.topics(pattern="o.*|__.*") == ["orders"]
        assert source.topics(pattern="order") == []
        assert source.topics(["__consumer_offsets"]) == ["__consumer_offsets"]
        assert [(one.topic, one.partition) for one in source.partitions(["orders"])] == [("orders", 0), ("orders", 1)]
        with pytest.raises(PipelineError, match=r"there is no topic order in .*data; did you mean orders"):
            source.topics(["order"])
        with pytest.raises(PipelineError, match=r"the pattern '\(' cannot be read"):
            source.topics(pattern="(")
        make(data, "new-0")
        source.refresh()
        assert source.topics() == ["new", "orders", "returns"]


def test_several_data_directories_are_one_node(data: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    write_meta_properties(FileSystem(), str(other / META_PROPERTIES), CLUSTER, "")
    (other / CLEAN_SHUTDOWN).touch()
    make(data, "orders-0")
    make(other, "orders-1")
    with Source.open([str(data), str(other)]) as source:
        assert [one.directory for one in source.partitions(["orders"])] == [
            str(data / "orders-0"), str(other / "orders-1"),
        ]  # fmt: skip
    make(other, "orders-0")
    with pytest.raises(PipelineError, match=r"orders-0 stands in .*data and in .*other"):
        Source.open([str(data), str(other)])


def test_what_is_no_data_directory_is_said(data: Path, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="nowhere is no directory"):
        Source.open([str(tmp_path / "nowhere")])
    with pytest.raises(PipelineError, match=r"is no data directory of a broker: it has no meta\.properties"):
        Source.open([str(tmp_path)])
    with pytest.raises(PipelineError, match="no data directory was named"):
        Source.open([])
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    properties = CLUSTER._replace(cluster_id="BBBBBBBBQACAAAAAAAAABQ")
    write_meta_properties(FileSystem(), str(stranger / META_PROPERTIES), properties, "")
    with pytest.raises(PipelineError, match=r"belongs to the cluster AAAAAAAAQACAAAAAAAAABQ, and .* to BBBBBBBB"):
        Source.open([str(data), str(stranger)])


def test_no_broker_starts_in_a_directory_that_is_read(data: Path) -> None:
    (data / ".lock").touch()
    with Source.open([str(data)]), pytest.raises(DirectoryLocked):
        LogDir.lock(FileSystem(), str(data))
    locked = LogDir.lock(FileSystem(), str(data))
    with pytest.raises(PipelineError, match=r"in use by another broker.*name it"):
        Source.open([str(data)])
    locked.leave(clean=False, broker_epoch=-1)


# Between which offsets, without a broker


@pytest.fixture
def log(data: Path) -> Iterator[Log]:
    """The log of orders-0, with ten batches on disk, opened as after a crash."""
    (data / "orders-0").mkdir()
    log = open_log(
        FileSystem(), str(data / "orders-0"), topic_partition=ORDERS, now_ms=T, config=LogConfig(segment_bytes=1 << 20)
    )
    for number in range(10):
        append(log, b"%d" % number)
    yield log
    log.abandon()


def append(log: Log, *values: bytes, **how: Any) -> None:
    log.stage(batch_of(*values, **how), leader_epoch=0)
    log.append_all(T)


def killed(data: Path, *, recovery_point: int = 0) -> None:
    (data / CLEAN_SHUTDOWN).unlink()
    write_offset_checkpoint(FileSystem(), str(data / RECOVERY_POINTS), {ORDERS: recovery_point})


def orders(data: Path) -> PartitionSource:
    before = fingerprint(data)
    with Source.open([str(data)]) as source:
        (found,) = source.partitions(["orders"])
    assert fingerprint(data) == before
    return found


def segment_path(data: Path) -> Path:
    return data / "orders-0" / f"{0:020d}.log"


def test_after_a_clean_stop_a_partition_ends_where_its_log_does(data: Path, log: Log) -> None:
    log.close(T)
    assert orders(data).bounds == Bounds(0, 10, 10)
    assert [row["value"] for row in rows(orders(data).readable())] == [b"%d" % number for number in range(10)]


def test_after_a_crash_what_is_torn_above_the_recovery_point_is_not_read(data: Path, log: Log) -> None:
    killed(data, recovery_point=4)
    content = segment_path(data).read_bytes()
    segment_path(data).write_bytes(content[:-5])
    assert orders(data).bounds == Bounds(0, 9, 9)
    damaged = bytearray(content)
    damaged[len(content) // 10 * 6 + 65] ^= 1
    segment_path(data).write_bytes(damaged)
    assert orders(data).bounds == Bounds(0, 6, 6)
    assert len(rows(orders(data).readable())) == 6


def test_damage_below_the_recovery_point_does_not_end_the_log(data: Path, log: Log) -> None:
    killed(data, recovery_point=9)
    damaged = bytearray(segment_path(data).read_bytes())
    damaged[len(damaged) // 10 * 6 + 65] ^= 1
    segment_path(data).write_bytes(damaged)
    assert orders(data).bounds == Bounds(0, 10, 10)


def test_without_a_recovery_point_all_of_the_log_is_checked(data: Path, log: Log) -> None:
    killed(data)
    (data / RECOVERY_POINTS).write_text("rubbish")
    damaged = bytearray(segment_path(data).read_bytes())
    damaged[65] ^= 1
    segment_path(data).write_bytes(damaged)
    assert orders(data).bounds == Bounds(0, 0, 0)


@pytest.mark.parametrize("is_clean", [True, False])
def test_an_open_transaction_holds_the_last_stable_offset(data: Path, log: Log, is_clean: bool) -> None:
    append(log, b"taken back", b"too", producer_id=7, is_transactional=True)
    log.stage_trusted(marker(7, commit=False), leader_epoch=0)
    log.append_all(T)
    append(log, b"undecided", producer_id=7, sequence=2, is_transactional=True)
    append(log, b"behind it")
    if is_clean:
        log.close(T)
    else:
        killed(data)
        # An entry that a power cut has eaten.
        (data / "orders-0" / f"{0:020d}.txnindex").unlink()
    found = orders(data)
    assert found.bounds == Bounds(0, 15, 13)
    assert found.are_aborts_indexed == is_clean
    assert [row["offset"] for row in rows(found.readable())] == list(range(10))
    everything = rows(found.readable(read_committed=False), read_committed=False)
    assert [row["offset"] for row in everything] == [*range(12), 13, 14]


def test_gaps_end_an_unclean_log_unless_the_cleaner_was_there(data: Path, log: Log) -> None:
    log.roll(T)
    append(log, b"later")
    killed(data)
    content = segment_path(data).read_bytes()
    segment_path(data).write_bytes(content[: len(content) // 10 * 9])
    assert orders(data).bounds == Bounds(0, 9, 9)
    write_offset_checkpoint(FileSystem(), str(data / CLEANER_OFFSETS), {ORDERS: 10})
    assert orders(data).bounds == Bounds(0, 11, 11)


def test_offsets_are_found_by_time_without_a_broker(data: Path, log: Log) -> None:
    append(log, b"later", timestamp=T + 1000)
    log.close(T)
    with Source.open([str(data)]) as source:
        found = [source.offsets_at({ORDERS: time})[ORDERS] for time in (0, T, T + 1, T + 1000, T + 1001)]
    assert found == [0, 0, 10, 10, None]


# With a broker


@pytest.mark.parametrize("codec", CODECS)
def test_a_broker_at_work_is_read_below_its_high_watermark(broker: BrokerProcess, codec: str) -> None:
    topic = f"read-{uuid.uuid4().hex[:8]}"
    client = connect("kafka-python", broker.bootstrap)
    client.create_topic(topic, partitions=2)
    sent = [
        Record(
            value=None if n % 7 == 1 else b"v" * (n % 50), key=None if n % 7 == 0 else b"k%d" % n, partition=n % 2,
            timestamp_ms=T + n, headers=(("a", b"1"), ("b", None)) if n % 3 == 0 else (),
        )
        for n in range(300)
    ]  # fmt: skip
    producer = connect("confluent-kafka", broker.bootstrap)
    producer.produce(topic, sent, codec=codec)
    with Source.open([str(broker.data_directory)], broker.bootstrap) as source:
        partitions = source.partitions([topic])
        assert [one.bounds for one in partitions] == [Bounds(0, 150, 150)] * 2
        for one in partitions:
            received = client.consume(topic, partition=one.partition, offset=0, count=150)
            assert [
                (
                    row["offset"], row["key"], row["value"], milliseconds(row), row["timestampType"],
                    tuple((header["key"], header["value"]) for header in row["headers"] or ()),
                )
                for row in rows(one.readable())
            ] == [
                (seen.offset, seen.key, seen.value, seen.timestamp_ms, int(seen.is_log_append_time), seen.headers)
                for seen in received
            ]  # fmt: skip
        producer.produce(topic, sent[:10], codec=codec)
        assert [one.bounds.high_watermark for one in source.partitions([topic])] == [155, 155]


def test_a_directory_that_a_broker_works_in_is_not_read_without_it(own_broker: BrokerProcess) -> None:
    with pytest.raises(PipelineError, match="is in use by another broker"):
        Source.open([str(own_broker.data_directory)])
    with pytest.raises(PipelineError, match="belongs to the cluster"):
        Source.open([str(own_broker.data_directory)], _other(own_broker).bootstrap)


def _other(broker: BrokerProcess) -> Any:
    """A broker of another cluster at an address: the same one, seen from a directory that is not its own."""
    path = broker.data_directory / META_PROPERTIES
    path.write_text(path.read_text().replace(broker.cluster_id, "AAAAAAAAQACAAAAAAAAABQ"))
    return broker


def test_offsets_by_time_are_the_same_with_the_broker_and_after_it_has_stopped(own_broker: BrokerProcess) -> None:
    client = connect("confluent-kafka", own_broker.bootstrap)
    client.create_topic("orders")
    for n in range(40):
        client.produce("orders", [Record(value=bytes(500), timestamp_ms=T + n * 7 % 100) for _ in range(3)])
    times = [0, *range(T - 1, T + 101, 3)]
    with Source.open([str(own_broker.data_directory)], own_broker.bootstrap) as source:
        told = [source.offsets_at({ORDERS: time})[ORDERS] for time in times]
        copy = pickle.loads(pickle.dumps(source))
        assert copy.partitions(["orders"]) == source.partitions(["orders"])
        bounds = source.partitions(["orders"])[0].bounds
    own_broker.stop()
    with Source.open([str(own_broker.data_directory)]) as source:
        assert [source.offsets_at({ORDERS: time})[ORDERS] for time in times] == told
        assert source.partitions(["orders"])[0].bounds == bounds
        assert pickle.loads(pickle.dumps(source)).topics() == ["orders"]


def test_a_killed_brokers_directory_is_read_as_its_next_start_would_have_it(own_broker: BrokerProcess) -> None:
    client = connect("confluent-kafka", own_broker.bootstrap)
    client.create_topic("orders")
    client.produce("orders", [Record(value=b"%d" % n) for n in range(100)])
    own_broker.kill()
    with Source.open([str(own_broker.data_directory)]) as source:
        (found,) = source.partitions(["orders"])
        assert found.bounds == Bounds(0, 100, 100)
        assert [row["value"] for row in rows(found.readable())] == [b"%d" % n for n in range(100)]
