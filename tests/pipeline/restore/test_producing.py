"""`restore --mode produce`: archived records in another Kafka, as a consumer would have got them here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from dev.broker_process import BrokerProcess
from tests.pipeline.restore.archiving import archive, restore
from tests.pipeline.restore.test_segments import NOW_MS, placed, records
from tests.support.clients import Committed, Place, Received, Record, connect


def produced(dest: Path, broker: BrokerProcess, offset_map: Path, *words: str) -> None:
    """Restore into this broker."""
    asked = ("--mode", "produce", "--bootstrap", broker.bootstrap, "--offset-map", str(offset_map), *words)
    assert restore(dest, *asked) == 0


def read_from(bootstrap: str, topic: str) -> list[Received]:
    return sorted(connect("kafka-python", bootstrap).consume_all(topic), key=placed)


def test_partitions_times_headers_nulls_and_empty_values_stay(
    own_broker: BrokerProcess, second: BrokerProcess, tmp_path: Path
) -> None:
    client = connect("confluent-kafka", own_broker.bootstrap)
    client.create_topic("t", partitions=2, configs={"retention.ms": "-1"})
    for partition in (0, 1):
        client.produce("t", records(100, first=partition * 100, partition=partition))
    archive(own_broker.data_directory, tmp_path / "archive", bootstrap=own_broker.bootstrap)

    produced(tmp_path / "archive", second.start(), tmp_path / "offsets.json")

    assert read_from(second.bootstrap, "t") == read_from(own_broker.bootstrap, "t")
    assert connect("confluent-kafka", second.bootstrap).topic_configs("t")["retention.ms"] == "-1"


def test_apache_kafka_gets_what_was_committed_in_its_own_directory(
    kafka_directory: Callable[[str], Path], kafka: BrokerProcess, tmp_path: Path
) -> None:
    """Aborted records and markers do not come, whatever isolation the archive was made with; the map tells where the
    others are."""
    data = kafka_directory("kafka-dir")
    for isolation in ("read_committed", "read_uncommitted"):
        archive(data, tmp_path / isolation, isolation=isolation)
    offsets = tmp_path / "offsets.parquet"

    produced(tmp_path / "read_committed", kafka, offsets, "--config", "retention.ms=-1")
    produced(
        tmp_path / "read_uncommitted", kafka, tmp_path / "offsets.json", "--topics", "txn", "--topic-map", "txn=again",
        "--config", "retention.ms=-1",
    )  # fmt: skip

    transactional = read_from(kafka.bootstrap, "txn")
    assert transactional == read_from(kafka.bootstrap, "again")
    stretches = duckdb.read_parquet(str(offsets)).filter("topic = 'txn' and partition = 0").order("sourceOffset")
    mapped = [
        (source + number, offset + number)
        for source, offset, count in stretches.project('"sourceOffset", "offset", "records"').fetchall()
        for number in range(count)
    ]
    assert [offset for _, offset in mapped] == [one.offset for one in transactional if one.partition == 0]
    assert [source for source, _ in mapped] != [offset for _, offset in mapped], "markers and aborted records are gone"
    assert {one.partition for one in read_from(kafka.bootstrap, "keyed")} == {0, 1, 2}
    times = read_from(kafka.bootstrap, "appendtime")
    assert times


def test_committed_offsets_are_translated(own_broker: BrokerProcess, second: BrokerProcess, tmp_path: Path) -> None:
    client = connect("confluent-kafka", own_broker.bootstrap)
    client.create_topic("t", configs={"retention.ms": "-1"})
    client.produce("t", records(100))
    for group, offset in (("behind", 10), ("within", 40), ("ahead", 100)):
        client.commit(group, {Place("t", 0): Committed(offset, group)})
    archive(own_broker.data_directory, tmp_path / "archive", bootstrap=own_broker.bootstrap)

    produced(tmp_path / "archive", second.start(), tmp_path / "offsets.json", "--from", "30", "--to", "90")

    again = connect("confluent-kafka", second.bootstrap)
    committed = {group: again.committed(group, [Place("t", 0)]) for group in ("behind", "within", "ahead")}
    assert committed == {
        "behind": {Place("t", 0): Committed(0, "behind")},
        "within": {Place("t", 0): Committed(10, "within")},
        "ahead": {Place("t", 0): Committed(60, "ahead")},
    }
    assert [one.timestamp_ms for one in read_from(second.bootstrap, "t")] == [
        NOW_MS + number * 1000 for number in range(30, 90)
    ]


def test_times_of_append_stay_though_the_topic_goes_on_giving_them(
    own_broker: BrokerProcess, second: BrokerProcess, tmp_path: Path
) -> None:
    client = connect("confluent-kafka", own_broker.bootstrap)
    client.create_topic("t", configs={"message.timestamp.type": "LogAppendTime", "retention.ms": "-1"})
    client.produce("t", records(5))
    archive(own_broker.data_directory, tmp_path / "archive", bootstrap=own_broker.bootstrap)

    produced(tmp_path / "archive", second.start(), tmp_path / "offsets.json")

    here, there = (read_from(one.bootstrap, "t") for one in (own_broker, second))
    assert [replace(one, is_log_append_time=True) for one in there] == here
    again = connect("confluent-kafka", second.bootstrap)
    assert again.topic_configs("t")["message.timestamp.type"] == "LogAppendTime"


def test_somebody_who_writes_there_is_noticed(
    own_broker: BrokerProcess, second: BrokerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client = connect("confluent-kafka", own_broker.bootstrap)
    client.create_topic("t")
    client.produce("t", records(5))
    archive(own_broker.data_directory, tmp_path / "archive", bootstrap=own_broker.bootstrap)
    words = ("--mode", "produce", "--bootstrap", second.start().bootstrap, "--offset-map", str(tmp_path / "o.json"))
    there = connect("confluent-kafka", second.bootstrap)
    there.create_topic("t")

    assert restore(tmp_path / "archive", *words) == 2
    assert "has topics of these names already: t" in capsys.readouterr().err

    there.delete_topic("t")
    produced(tmp_path / "archive", second, tmp_path / "o.json")
    there.produce("t", [Record(value=b"other")])
    assert restore(tmp_path / "archive", *words) == 2
    assert "is there already; name another --offset-map" in capsys.readouterr().err
