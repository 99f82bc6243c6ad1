"""`kafka_log`, Spark's Kafka connector and kafka-python see the same rows, one by one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from dev import kafka_jars
from dev.apache_kafka import ApacheKafka
from dev.broker_process import BrokerProcess
from dev.waiting import until
from tests.pipeline.spark.rows import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Seen,
    from_connector,
    from_kafka_log,
    from_kafka_python,
    rows_of,
)
from tests.support.batches import AS_BY_JAVA, NO_UTF8, named, produced
from tests.support.clients import CODECS, Client, Record, connect
from tests.support.raw_client import RawClient
from tests.support.requests import produce_request

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("connector")

HOUR_AGO_MS = (int(time.time()) - 3600) * 1000

RECORDS = [
    Record(key=None, value=b"no key", timestamp_ms=HOUR_AGO_MS + 123),
    Record(key=b"", value=b"", timestamp_ms=HOUR_AGO_MS + 124),
    Record(key=b"tombstone", value=None),
    Record(key=b"headers", value=b"two", headers=(("a", b"1"), ("a", b"2"))),
    Record(key=b"headers", value=b"odd", headers=(("null", None), ("empty", b""), ("ключ", "значение".encode()))),
    *(Record(key=b"%d" % n, value=b"value %d " % n * (n % 50), partition=n % 3) for n in range(600)),
]


def same_rows(spark: SparkSession, data: Path, bootstrap: str, topics: list[str]) -> dict[str, list[Seen]]:
    """What all three see at each isolation level, once it has been found to be the same."""
    found = {}
    for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
        options = {"subscribe": ",".join(topics), "kafka_isolation_level": isolation}
        ours = rows_of(from_kafka_log(spark, data, bootstrap, **options))
        assert ours == rows_of(from_connector(spark, bootstrap, **options))
        assert ours == from_kafka_python(bootstrap, topics, isolation)
        found[isolation] = ours
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_every_shape_in_every_codec(
    spark: SparkSession, broker: BrokerProcess, client: Client, topic: str, codec: str
) -> None:
    client.create_topic(topic, partitions=3)
    client.produce(topic, RECORDS, codec=codec)
    found = same_rows(spark, broker.data_directory, broker.bootstrap, [topic])
    assert len(found[READ_COMMITTED]) == len(RECORDS)


def test_append_time_and_an_empty_topic(spark: SparkSession, broker: BrokerProcess, client: Client, topic: str) -> None:
    client.create_topic(topic, configs={"message.timestamp.type": "LogAppendTime"})
    client.create_topic(f"{topic}-empty")
    client.produce(topic, RECORDS[:4])
    found = same_rows(spark, broker.data_directory, broker.bootstrap, [topic, f"{topic}-empty"])
    assert {row.timestamp_type for row in found[READ_COMMITTED]} == {1}


def test_header_names_that_are_no_text(spark: SparkSession, broker: BrokerProcess, client: Client, topic: str) -> None:
    """kafka-python cannot read these."""
    client.create_topic(topic, configs={"retention.ms": "-1"})
    with RawClient(broker.bootstrap) as producer:
        producer.ask(produce_request(topic, produced([named([b"ok", *NO_UTF8])])), 9)

    (ours,) = rows_of(from_kafka_log(spark, broker.data_directory, broker.bootstrap, subscribe=topic))
    (theirs,) = rows_of(from_connector(spark, broker.bootstrap, subscribe=topic))

    assert ours == theirs
    assert [name for name, _ in ours.headers] == ["ok", *AS_BY_JAVA]


@pytest.fixture
def kafkas(kafka_directory: Callable[[str], Path], tmp_path: Path) -> Iterator[Callable[[str], BrokerProcess]]:
    """Our daemon in a directory that Apache Kafka wrote, once for each name."""
    started: list[BrokerProcess] = []

    def opened(name: str) -> BrokerProcess:
        process = BrokerProcess(tmp_path / f"{name}-broker", settings={"log.dirs": str(kafka_directory(name))})
        process.data_directory = Path(process.settings["log.dirs"])
        started.append(process)
        return process

    yield opened
    for process in started:
        process.close()


TOPICS = ["appendtime", "codecs", "compacted", "keyed", "plain", "rolled", "trimmed", "txn", "zstd-topic"]


@pytest.mark.parametrize("name", ["kafka-dir", "kafka-dir-unclean"])
def test_topics_that_apache_kafka_wrote_with_us_and_without(
    spark: SparkSession, kafkas: Callable[[str], BrokerProcess], name: str
) -> None:
    broker = kafkas(name)
    offline = {
        isolation: rows_of(
            from_kafka_log(spark, broker.data_directory, subscribePattern=".*", kafka_isolation_level=isolation)
        )
        for isolation in (READ_UNCOMMITTED, READ_COMMITTED)
    }
    broker.start()
    assert same_rows(spark, broker.data_directory, broker.bootstrap, TOPICS) == offline
    aborted = set(offline[READ_UNCOMMITTED]) - set(offline[READ_COMMITTED])
    assert {row.topic for row in aborted} == {"txn"}
    broker.stop()
    assert rows_of(from_kafka_log(spark, broker.data_directory, subscribePattern=".*")) == offline[READ_UNCOMMITTED]


@pytest.fixture
def apache_kafka(tmp_path: Path) -> Iterator[ApacheKafka]:
    try:
        libraries = kafka_jars.libraries()
    except kafka_jars.NoKafka as reason:
        pytest.skip(str(reason))
    settings = {"log.cleaner.backoff.ms": "100", "log.cleaner.min.cleanable.ratio": "0.01"}
    process = ApacheKafka(tmp_path / "kafka", settings=settings, port=0, libraries=str(libraries))
    process.heap = "512M"
    with process:
        yield process


def test_aborted_and_open_transactions_and_compacted_topics_beside_apache_kafka(
    spark: SparkSession, apache_kafka: ApacheKafka
) -> None:
    client = connect("kafka-python", apache_kafka.bootstrap)
    client.create_topic("compacted", configs={"cleanup.policy": "compact", "segment.bytes": "1048576"})
    client.create_topic("transactions")
    for number in range(5):
        client.produce("compacted", [Record(key=b"%d" % (n % 40), value=bytes(20_000)) for n in range(number, 100)])
    transactions(apache_kafka.bootstrap)
    until(lambda: len(_offsets(apache_kafka, "compacted")) < 300, "the log has been compacted")

    found = same_rows(spark, apache_kafka.data_directory, apache_kafka.bootstrap, ["compacted", "transactions"])

    committed = [row.value for row in found[READ_COMMITTED] if row.topic == "transactions"]
    uncommitted = [row.value for row in found[READ_UNCOMMITTED] if row.topic == "transactions"]
    assert committed == [b"committed 0", b"committed 1", b"committed 2"]
    assert uncommitted == [
        *(b"committed %d" % n for n in range(3)), *(b"aborted %d" % n for n in range(3)),
        *(b"open %d" % n for n in range(3)), b"behind",
    ]  # fmt: skip


def transactions(bootstrap: str) -> None:
    """One that is committed, one aborted, one still open, and a record behind it without any."""
    for fate in ("committed", "aborted", "open"):
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"id of {fate}"})
        producer.init_transactions(60)
        producer.begin_transaction()
        for number in range(3):
            producer.produce("transactions", b"%s %d" % (fate.encode(), number))
        producer.flush(60)
        if fate == "committed":
            producer.commit_transaction(60)
        elif fate == "aborted":
            producer.abort_transaction(60)
    connect("kafka-python", bootstrap).produce("transactions", [Record(value=b"behind")])


def _offsets(broker: BrokerProcess, topic: str) -> list[int]:
    return [row.offset for row in from_kafka_python(broker.bootstrap, [topic], READ_UNCOMMITTED)]
