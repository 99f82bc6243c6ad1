"""`restore --mode segments`: what was archived stands in another data directory, batch for batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from broker.tools import verify
from dev.broker_process import BrokerProcess
from storage.batch.record_batch import read_header
from storage.checkpoints import LOG_START_OFFSETS, read_offset_checkpoint
from storage.files import FileSystem
from tests.interop.directories import SharedDirectory, TopicSeen, Visitor, complaints_of_dump_log
from tests.pipeline.restore.archiving import archive, names_in, partitions, restore, restored, stored
from tests.support.batches import NO_UTF8, named, record
from tests.support.clients import CODECS, Committed, Place, Received, Record, connect
from tests.support.partitions import TOPIC, PartitionOnDisk, leave_in_order

NOW_MS = 1_790_000_000_000
KEEP = ("--config", "retention.ms=-1")
"""What the tests archive is years old for a broker."""


def records(count: int, *, first: int = 0, partition: int | None = None) -> list[Record]:
    """Records of every kind: keys and values null, empty and not, headers none, null, empty and several."""
    return [
        Record(
            key=(None, b"", b"k%d" % number)[number % 3],
            value=(b"v%d" % number * (number % 40), None, b"")[number % 7 % 3],
            headers=((), (("h", b"1"), ("h", None)), (("\u00e9", b""),))[number % 3],
            timestamp_ms=NOW_MS + number * 1000,
            partition=partition,
        )
        for number in range(first, first + count)
    ]


def records_for(client: str, count: int, *, first: int, partition: int) -> list[Record]:
    """Those of them that this client sends: kafka-python has none without key and value, and no null headers."""
    made = records(count, first=first, partition=partition)
    if client == "kafka-python":
        made = [replace(one, key=one.key or b"", headers=one.headers[:1]) for one in made]
    return made


def topics_of(bootstrap: str) -> Mapping[str, TopicSeen]:
    """All that a broker shows of its topics, but for ids and internal ones."""
    with Visitor(bootstrap) as visitor:
        seen = visitor.picture().topics
    return {name: replace(topic, topic_id=b"") for name, topic in seen.items() if not name.startswith("__")}


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_every_batch_of_kafkas_directory_comes_back(
    kafka_directory: Callable[[str], Path], tmp_path: Path, isolation: str
) -> None:
    """Aborted transactions, markers, five codecs, LogAppendTime, a log that begins later: byte for byte, whatever
    isolation the archive was made with."""
    data = kafka_directory("kafka-dir")
    starts = read_offset_checkpoint(FileSystem(), str(data / LOG_START_OFFSETS))
    archive(data, tmp_path / "archive", isolation=isolation)

    target = restored(tmp_path / "archive", tmp_path / "target", *KEEP)

    assert list(partitions(target)) == list(partitions(data))
    for place in partitions(data):
        assert stored(target, *place) == stored(data, *place, start=starts.get(place, 0)), place
    assert verify.main([str(target)]) == verify.WHOLE


@pytest.mark.parametrize("codec", CODECS)
def test_a_consumer_gets_the_records_of_each_codec_with_their_offsets(
    own_broker: BrokerProcess, second: BrokerProcess, tmp_path: Path, codec: str
) -> None:
    for name in ("kafka-python", "confluent-kafka"):
        client = connect(name, own_broker.bootstrap)
        client.create_topic(name, partitions=2)
        for partition in (0, 1):
            client.produce(name, records_for(name, 150, first=partition * 150, partition=partition), codec=codec)
    reader = connect("kafka-python", own_broker.bootstrap)
    sent = {name: sorted(reader.consume_all(name), key=placed) for name in ("kafka-python", "confluent-kafka")}
    archive(own_broker.data_directory, tmp_path / "archive", bootstrap=own_broker.bootstrap)

    restored(tmp_path / "archive", second.data_directory, *KEEP)

    reader = connect("kafka-python", second.start().bootstrap)
    for name, expected in sent.items():
        assert sorted(reader.consume_all(name), key=placed) == expected
        for partition in (0, 1):
            assert stored(second.data_directory, name, partition) == stored(own_broker.data_directory, name, partition)


def placed(received: Received) -> tuple[int, int]:
    return received.partition, received.offset


def test_configs_and_group_offsets_come_back_and_the_log_goes_on(
    own_broker: BrokerProcess, second: BrokerProcess, tmp_path: Path
) -> None:
    client = connect("confluent-kafka", own_broker.bootstrap)
    client.create_topic("orders", partitions=2, configs={"cleanup.policy": "compact,delete", "retention.ms": "-1"})
    client.produce("orders", [replace(one, key=b"k") for one in records(40, partition=0)])
    committed = {Place("orders", 0): Committed(17, "so far"), Place("orders", 1): Committed(0)}
    connect("kafka-python", own_broker.bootstrap).commit("billing", committed)
    client.commit("shipping", {Place("orders", 0): Committed(40)})
    archive(own_broker.data_directory, tmp_path / "archive", bootstrap=own_broker.bootstrap)

    restored(tmp_path / "archive", second.data_directory, "--groups", "billing")

    # confluent-kafka keeps a zero byte behind what it has committed to itself.
    reader = connect("kafka-python", second.start().bootstrap)
    assert reader.committed("billing", committed) == committed
    again = connect("confluent-kafka", second.bootstrap)
    assert again.topic_configs("orders").items() >= {"cleanup.policy": "compact,delete", "retention.ms": "-1"}.items()
    assert again.committed("billing", committed) == committed
    assert again.committed("shipping", committed) == {}
    (produced,) = again.produce("orders", [Record(key=b"k", value=b"next", partition=0)])
    assert produced.offset == 40


def test_leader_epochs_go_on_behind_those_of_the_records(
    own_broker: BrokerProcess, second: BrokerProcess, tmp_path: Path
) -> None:
    """Kafka's clients take a leader of an older epoch than the last record's for one that has been deposed."""
    connect("confluent-kafka", own_broker.bootstrap).create_topic("t", configs={"retention.ms": "-1"})
    for first in (0, 10, 20):
        connect("confluent-kafka", own_broker.bootstrap).produce("t", records(10, first=first))
        own_broker.kill()
        own_broker.start()
    archive(own_broker.data_directory, tmp_path / "archive", bootstrap=own_broker.bootstrap)
    epochs = [read_header(batch).partition_leader_epoch for batch in stored(own_broker.data_directory, "t")]
    assert epochs == sorted({*epochs}), "each life of the broker has an epoch of its own"
    assert len(epochs) == 3

    restored(tmp_path / "archive", second.data_directory)

    with Visitor(second.start().bootstrap) as visitor:
        assert visitor.picture().leader_epochs["t", 0] > max(epochs)
    assert [read_header(batch).partition_leader_epoch for batch in stored(second.data_directory, "t")] == epochs
    connect("kafka-python", second.bootstrap).produce("t", [Record(value=b"next")])
    last = read_header(stored(second.data_directory, "t")[-1])
    assert (last.base_offset, last.partition_leader_epoch) == (30, max(epochs) + 1)


def test_apache_kafka_opens_what_was_restored_of_its_own_directory(
    kafka_directory: Callable[[str], Path], shared: SharedDirectory, tmp_path: Path
) -> None:
    archive(kafka_directory("kafka-dir"), tmp_path / "archive")
    shared.ottla.start().stop()  # formats it for this Kafka: a new directory is for the newest
    restored(tmp_path / "archive", shared.data, *KEEP)
    ottla = topics_of(shared.ottla.start().bootstrap)
    shared.ottla.stop()
    assert complaints_of_dump_log(shared.kafka._java(), shared.data) == []

    kafka = topics_of(shared.kafka.start().bootstrap)

    assert kafka == ottla
    assert [one.aborted for one in kafka["txn"].partitions.values()].count(()) == 0, "transactions that were aborted"
    client = connect("confluent-kafka", shared.kafka.bootstrap)
    (produced,) = client.produce("plain", [Record(value=b"next")])
    assert produced.offset == 8
    shared.kafka.stop()


def test_topics_come_back_beside_others_under_new_names(
    own_broker: BrokerProcess, second: BrokerProcess, tmp_path: Path
) -> None:
    here, there = (connect("confluent-kafka", one.bootstrap) for one in (own_broker, second.start()))
    for client, value in ((here, b"here"), (there, b"there")):
        client.create_topic("orders")
        client.produce("orders", [Record(value=value)])
    here.commit("billing", {Place("orders", 0): Committed(1)})
    archive(own_broker.data_directory, tmp_path / "archive", bootstrap=own_broker.bootstrap)
    second.stop()

    restored(tmp_path / "archive", second.data_directory, "--topic-map", "orders=orders.old")

    again = connect("confluent-kafka", second.start().bootstrap)
    values = {topic: [one.value for one in again.consume_all(topic)] for topic in ("orders", "orders.old")}
    assert values == {"orders": [b"there"], "orders.old": [b"here"]}
    assert again.committed("billing", [Place("orders.old", 0)]) == {Place("orders.old", 0): Committed(1)}
    second.stop()
    assert verify.main([str(second.data_directory)]) == verify.WHOLE


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_offsets_and_times_say_what_comes_back(
    own_broker: BrokerProcess, second: BrokerProcess, tmp_path: Path, codec: str
) -> None:
    """The log begins at an offset above 0, inside a batch, and ends inside another one."""
    client = connect("confluent-kafka", own_broker.bootstrap)
    client.create_topic("t", configs={"retention.ms": "-1"})
    for first in (0, 50, 100):
        client.produce("t", records(50, first=first), codec=codec)
    sent = client.consume_all("t")
    client.commit("g", {Place("t", 0): Committed(140)})
    archive(own_broker.data_directory, tmp_path / "archive", bootstrap=own_broker.bootstrap)
    until = datetime.fromtimestamp(NOW_MS / 1000 + 70, UTC).isoformat()

    restored(tmp_path / "archive", second.data_directory, "--from", "20", "--to", until)

    again = connect("kafka-python", second.start().bootstrap)
    assert again.consume_all("t") == sent[20:70]
    assert again.offsets("t") == {0: (20, 70)}
    assert again.committed("g", [Place("t", 0)]) == {Place("t", 0): Committed(70)}
    second.stop()
    assert verify.main([str(second.data_directory)]) == verify.WHOLE


def test_a_log_ends_before_a_transaction_whose_end_does_not_come_back(
    kafka_directory: Callable[[str], Path], second: BrokerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else nobody could ever read on with read_committed."""
    data = kafka_directory("kafka-dir")
    archive(data, tmp_path / "archive", "txn")
    (transaction, *_, marker) = (read_header(batch) for batch in stored(data, "txn")[:2])
    assert transaction.is_transactional
    assert marker.is_control

    restored(tmp_path / "archive", second.data_directory, "--to", str(marker.base_offset), *KEEP)

    assert f"txn-0 ends at offset {transaction.base_offset} and not at {marker.base_offset}" in capsys.readouterr().out
    assert connect("kafka-python", second.start().bootstrap).offsets("txn")[0] == (0, transaction.base_offset)


def test_retention_that_will_delete_what_came_back_is_told(
    own_broker: BrokerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client = connect("confluent-kafka", own_broker.bootstrap)
    client.create_topic("t", configs={"retention.ms": "1000"})
    client.produce("t", [Record(value=b"old", timestamp_ms=NOW_MS - 10**9)])
    archive(own_broker.data_directory, tmp_path / "archive", bootstrap=own_broker.bootstrap)

    restored(tmp_path / "archive", tmp_path / "target")

    assert "t has records older than its retention.ms, 1000" in capsys.readouterr().out


def test_gaps_come_back_as_gaps_where_they_are_accepted(
    own_broker: BrokerProcess, second: BrokerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client = connect("confluent-kafka", own_broker.bootstrap)
    client.create_topic("t", configs={"retention.ms": "-1"})
    client.produce("t", records(10))
    archive(own_broker.data_directory, tmp_path / "archive", bootstrap=own_broker.bootstrap)
    client.produce("t", records(10, first=10))
    client.produce("t", records(10, first=20))
    with Visitor(own_broker.bootstrap) as visitor:
        visitor.delete_records("t", 20)
    dest = tmp_path / "archive"
    archive(own_broker.data_directory, dest, bootstrap=own_broker.bootstrap, accepts_gaps=True)

    assert restore(dest, "--target-dir", str(second.data_directory)) == 1
    assert "the archive lacks the offsets 10 to 19 of t-0" in capsys.readouterr().err
    assert names_in(second.data_directory) == []

    restored(dest, second.data_directory, "--accept-gap")
    reader = connect("kafka-python", second.start().bootstrap)
    assert [one.offset for one in reader.consume_all("t")] == [*range(10), *range(20, 30)]
    second.stop()
    assert verify.main([str(second.data_directory)]) == verify.WHOLE


def test_a_gap_at_the_end_leaves_its_offsets_taken(
    own_broker: BrokerProcess, second: BrokerProcess, tmp_path: Path
) -> None:
    """What comes next must not get offsets that other records had."""
    client = connect("confluent-kafka", own_broker.bootstrap)
    client.create_topic("t", configs={"retention.ms": "-1"})
    client.produce("t", records(10))
    dest = tmp_path / "archive"
    archive(own_broker.data_directory, dest, bootstrap=own_broker.bootstrap)
    client.produce("t", records(10, first=10))
    with Visitor(own_broker.bootstrap) as visitor:
        visitor.delete_records("t", 20)
    archive(own_broker.data_directory, dest, bootstrap=own_broker.bootstrap, accepts_gaps=True)

    restored(dest, second.data_directory, "--accept-gap")

    again = connect("confluent-kafka", second.start().bootstrap)
    (produced,) = again.produce("t", [Record(value=b"next")])
    assert produced.offset == 20
    assert [one.offset for one in again.consume_all("t")] == [*range(10), 20]
    second.stop()
    assert verify.main([str(second.data_directory)]) == verify.WHOLE


def test_header_names_that_are_no_text_are_the_same_bytes(tmp_path: Path) -> None:
    log = PartitionOnDisk(tmp_path / "data/orders-0")
    log.append([record(), named(NO_UTF8)])
    archive(leave_in_order(tmp_path / "data"), tmp_path / "archive")

    target = restored(tmp_path / "archive", tmp_path / "target", *KEEP)

    assert stored(target, TOPIC) == stored(tmp_path / "data", TOPIC)
    assert NO_UTF8[0] in stored(target, TOPIC)[0]
