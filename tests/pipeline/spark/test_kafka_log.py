"""Batch reads by `format("kafka_log")`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dev.broker_process import BrokerProcess
from pipeline.kafka_log.batch import plan
from pipeline.kafka_log.options import read_options
from pipeline.kafka_log.reading import read as read_one
from tests.pipeline.spark.rows import from_kafka_log
from tests.pipeline.spark.test_connector import delete_before
from tests.support.clients import Client, Record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FIRST_MS = (int(time.time()) - 3600) * 1000
RECORDS = [
    Record(value=b"%d" % n, key=b"%d" % (n % 7), partition=n % 2, timestamp_ms=FIRST_MS + n * 1000) for n in range(200)
]
"""Record n has offset n // 2 of partition n % 2."""


@pytest.fixture
def produced(client: Client, topic: str) -> str:
    """A topic with the records, two batches a partition."""
    client.create_topic(topic, partitions=2)
    client.produce(topic, RECORDS[:100])
    client.produce(topic, RECORDS[100:])
    return topic


def values(frame: DataFrame) -> list[int]:
    return sorted(int(bytes(row.value)) for row in frame.select("value").collect())


def read(spark: SparkSession, broker: BrokerProcess, **options: Any) -> DataFrame:
    return from_kafka_log(spark, broker.data_directory, broker.bootstrap, **options)


def test_between_offsets_of_each_partition(spark: SparkSession, broker: BrokerProcess, produced: str) -> None:
    frame = read(
        spark, broker, subscribe=produced,
        startingOffsets=json.dumps({produced: {"0": 10, "1": -2}}),
        endingOffsets=json.dumps({produced: {"0": 12, "1": 3}}),
    )  # fmt: skip
    assert values(frame) == [1, 3, 5, 20, 22]


def test_between_times_with_a_broker_and_without(spark: SparkSession, own_broker: BrokerProcess) -> None:
    from tests.support.clients import connect

    client = connect("confluent-kafka", own_broker.bootstrap)
    client.create_topic("orders", partitions=2)
    client.produce("orders", RECORDS)
    times = {"startingTimestamp": FIRST_MS + 100_000, "endingTimestamp": FIRST_MS + 104_500}
    assert values(read(spark, own_broker, subscribe="orders", **times)) == [100, 101, 102, 103, 104]
    with pytest.raises(
        Exception, match=r"is in use by another broker.*name it \(--bootstrap, kafka.bootstrap.servers\)"
    ):
        from_kafka_log(spark, own_broker.data_directory, subscribe="orders").count()
    own_broker.stop()
    offline = from_kafka_log(spark, own_broker.data_directory, subscribe="orders", **times)
    assert values(offline) == [100, 101, 102, 103, 104]


def test_a_time_that_no_record_has_reached(spark: SparkSession, broker: BrokerProcess, produced: str) -> None:
    late = {"subscribe": produced, "startingTimestamp": FIRST_MS + 10_000_000}
    with pytest.raises(Exception, match="has no record as late as"):
        read(spark, broker, **late).count()
    assert read(spark, broker, **late, startingOffsetsByTimestampStrategy="latest").count() == 0


def test_columns_partitions_and_splits(spark: SparkSession, broker: BrokerProcess, produced: str) -> None:
    frame = read(spark, broker, assign=json.dumps({produced: [1]}), columns="offset,value", includeHeaders="false")
    assert frame.columns == ["offset", "value"]
    assert [(row.offset, bytes(row.value)) for row in frame.sort("offset").limit(2).collect()] == [(0, b"1"), (1, b"3")]
    split = read(spark, broker, subscribePattern=produced, minPartitions=7)
    assert split.rdd.getNumPartitions() >= 7
    assert values(split) == list(range(200))


def test_a_split_for_every_so_many_bytes(
    spark: SparkSession, broker: BrokerProcess, client: Client, topic: str
) -> None:
    client.create_topic(topic)
    for number in range(10):
        client.produce(topic, [Record(value=b"%d" % number, key=bytes(10_000))])
    frame = read(spark, broker, subscribe=topic, splitBytes=20_000)
    assert 4 <= frame.rdd.getNumPartitions() <= 10
    assert values(frame) == list(range(10))


def test_what_was_deleted_is_an_error_or_passed_over(spark: SparkSession, broker: BrokerProcess, produced: str) -> None:
    delete_before(broker.bootstrap, produced, 90)
    lost = {"subscribe": produced, "startingOffsets": json.dumps({produced: {"0": 0, "1": 0}})}
    with pytest.raises(Exception, match=f"offsets 0 to 89 of {produced}-0 were to be read, and it begins at 90"):
        read(spark, broker, **lost).count()
    assert values(read(spark, broker, **lost, failOnDataLoss="false")) == list(range(180, 200))
    ahead = {"subscribe": produced, "endingOffsets": json.dumps({produced: {"0": 100, "1": 500}})}
    with pytest.raises(Exception, match=f"{produced}-1 was to be read up to offset 500, and it can be read up to 100"):
        read(spark, broker, **ahead).count()
    assert read(spark, broker, **ahead, failOnDataLoss="false").count() == 20


def test_a_damaged_batch_is_an_error_or_passed_over(
    spark: SparkSession, own_broker: BrokerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    from tests.support.clients import connect

    client = connect("confluent-kafka", own_broker.bootstrap)
    client.create_topic("orders")
    for number in range(3):
        client.produce("orders", [Record(value=b"%d" % (number * 10 + n)) for n in range(10)])
    own_broker.stop()
    log = own_broker.data_directory / "orders-0/00000000000000000000.log"
    content = bytearray(log.read_bytes())
    content[content.index(b"\x04" + b"15") + 1] ^= 1
    log.write_bytes(content)

    with pytest.raises(Exception, match=r"000.log at \d+ \(offset 10\): found the CRC"):
        from_kafka_log(spark, own_broker.data_directory, subscribe="orders").count()
    whole = from_kafka_log(spark, own_broker.data_directory, subscribe="orders", onDamage="skip-batch")
    assert values(whole) == [*range(10), *range(20, 30)]
    # A worker's warning goes to its stderr. Here it is read as the worker reads it.
    options = read_options({"path": str(own_broker.data_directory), "subscribe": "orders", "onDamage": "skip-batch"})
    assert sum(len(batch) for one in plan(options) for batch in read_one(one, options)) == 20
    assert "kafka_log passes over damage: " in caplog.text


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"subscribe": "orderz-"}, "there is no topic orderz-"),
        ({"subscribe": "a", "startingOffsets": "latest"}, "cannot be latest"),
        ({"subscribe": "a", "startOffsets": "latest"}, "did you mean 'startingOffsets'"),
    ],
)
def test_options_that_cannot_be_meant(
    spark: SparkSession, broker: BrokerProcess, options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(Exception, match=sentence):
        read(spark, broker, **options).count()


def test_a_directory_that_is_none(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="is no data directory of a broker"):
        from_kafka_log(spark, tmp_path, subscribe="orders").count()


def test_a_schema_of_the_users_is_refused(spark: SparkSession, broker: BrokerProcess, produced: str) -> None:
    reader = spark.read.format("kafka_log").schema("value STRING").option("subscribe", produced)
    with pytest.raises(Exception, match="kafka_log has a schema of its own"):
        reader.load(str(broker.data_directory)).count()
