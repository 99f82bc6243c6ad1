"""Spark's own Kafka connector against our broker: existing jobs run unchanged."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dev.broker_process import BrokerProcess
from tests.pipeline.spark.jobs import Job
from tests.pipeline.spark.rows import from_connector, from_kafka_python, rows_of
from tests.support.clients import Client, Record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.usefixtures("connector")

FIRST_MS = (int(time.time()) - 3600) * 1000
"""An hour ago: what is a week old is deleted."""
RECORDS = [
    Record(value=b"%d" % n, key=b"%d" % (n % 7), partition=n % 2, timestamp_ms=FIRST_MS + n * 1000) for n in range(200)
]
"""Record n has offset n // 2 of partition n % 2."""


@pytest.fixture
def produced(client: Client, topic: str) -> str:
    """A topic with the records."""
    client.create_topic(topic, partitions=2)
    client.produce(topic, RECORDS)
    return topic


def values(frame: DataFrame) -> list[int]:
    return sorted(int(bytes(row.value)) for row in frame.select("value").collect())


def test_a_batch_between_offsets(spark: SparkSession, broker: BrokerProcess, produced: str) -> None:
    frame = from_connector(
        spark, broker.bootstrap, subscribe=produced,
        startingOffsets=json.dumps({produced: {"0": 10, "1": -2}}),
        endingOffsets=json.dumps({produced: {"0": 12, "1": 3}}),
    )  # fmt: skip
    assert values(frame) == [1, 3, 5, 20, 22]


def test_a_batch_between_times(spark: SparkSession, broker: BrokerProcess, produced: str) -> None:
    frame = from_connector(
        spark, broker.bootstrap, subscribe=produced,
        startingTimestamp=FIRST_MS + 100_000, endingTimestamp=FIRST_MS + 104_500,
    )  # fmt: skip
    assert values(frame) == [100, 101, 102, 103, 104]
    by_partition = from_connector(
        spark, broker.bootstrap, subscribe=produced,
        startingOffsetsByTimestamp=json.dumps({produced: {"0": FIRST_MS + 197_000, "1": FIRST_MS + 198_500}}),
    )  # fmt: skip
    assert values(by_partition) == [198, 199]


def test_a_time_that_no_record_has_reached(spark: SparkSession, broker: BrokerProcess, produced: str) -> None:
    late = {"subscribe": produced, "startingTimestamp": FIRST_MS + 10_000_000}
    with pytest.raises(Exception, match="No offset matched"):
        from_connector(spark, broker.bootstrap, **late).count()
    frame = from_connector(spark, broker.bootstrap, **late, startingOffsetsByTimestampStrategy="latest")
    assert frame.count() == 0


def test_topics_by_pattern_and_at_least_so_many_partitions(
    spark: SparkSession, broker: BrokerProcess, client: Client, produced: str
) -> None:
    client.create_topic(f"{produced}-b")
    client.produce(f"{produced}-b", [Record(value=b"1000")])
    frame = from_connector(spark, broker.bootstrap, subscribePattern=f"{produced}.*", minPartitions=8)
    assert frame.rdd.getNumPartitions() >= 8
    assert values(frame) == [*range(200), 1000]


def test_rows_written_to_a_topic(spark: SparkSession, broker: BrokerProcess, client: Client, topic: str) -> None:
    client.create_topic(topic, partitions=2)
    frame = spark.range(100).selectExpr(
        "CAST(CAST(id AS STRING) AS BINARY) AS key",
        "IF(id % 10 = 0, NULL, CAST(CAST(id AS STRING) AS BINARY)) AS value",
        "CAST(id % 2 AS INT) AS partition",
        "array(named_struct('key', 'id', 'value', CAST(CAST(id AS STRING) AS BINARY))) AS headers",
    )
    options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic, "includeHeaders": "true"}
    frame.write.format("kafka").options(**options).save()

    found = rows_of(from_connector(spark, broker.bootstrap, subscribe=topic))
    assert found == from_kafka_python(broker.bootstrap, [topic], "read_committed")
    assert sorted((dict(row.headers)["id"], row.value, row.partition) for row in found) == sorted(
        (b"%d" % n, None if n % 10 == 0 else b"%d" % n, n % 2) for n in range(100)
    )


def test_what_was_deleted_is_missed_or_passed_over(
    spark: SparkSession, broker: BrokerProcess, client: Client, produced: str
) -> None:
    delete_before(broker.bootstrap, produced, 90)
    options = {"subscribe": produced, "startingOffsets": json.dumps({produced: {"0": 0, "1": 0}})}
    with pytest.raises(Exception, match="Some data may have been lost"):
        from_connector(spark, broker.bootstrap, **options).count()
    frame = from_connector(spark, broker.bootstrap, **options, failOnDataLoss="false")
    assert values(frame) == list(range(180, 200))


def delete_before(bootstrap: str, topic: str, offset: int) -> None:
    """DeleteRecords, in both partitions."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap})
    places = [TopicPartition(topic, number, offset) for number in range(2)]
    for future in admin.delete_records(places).values():
        future.result(30)


def available_now(spark: SparkSession, options: Mapping[str, Any], output: Path) -> list[int]:
    """Everything that there is now, written behind what the checkpoint says is written; the values of all rows."""
    reader = spark.readStream.format("kafka").options(**{name: str(value) for name, value in options.items()})
    writer = reader.load().writeStream.format("parquet").option("checkpointLocation", f"{output}/checkpoint")
    query = writer.trigger(availableNow=True).start(f"{output}/rows")
    assert query.awaitTermination(120)
    return values(spark.read.parquet(f"{output}/rows"))


def test_a_stream_that_ends_goes_on_where_it_was(
    spark: SparkSession, broker: BrokerProcess, client: Client, produced: str, tmp_path: Path
) -> None:
    options = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "subscribe": produced,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": 70,
    }
    assert available_now(spark, options, tmp_path) == list(range(200))
    assert available_now(spark, options, tmp_path) == list(range(200))
    client.produce(produced, [Record(value=b"%d" % n) for n in range(200, 230)])
    assert available_now(spark, options, tmp_path) == list(range(230))
    assert len(list((tmp_path / "checkpoint/commits").glob("[0-9]*"))) == 4


@pytest.mark.timeout(300)
def test_a_stream_that_is_killed_writes_each_row_once(
    spark: SparkSession, broker: BrokerProcess, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create_topic(topic, partitions=2)
    client.produce(topic, [Record(value=b"%d" % n) for n in range(3000)])
    options = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": 100,
    }
    job = Job(tmp_path, "kafka", "continually", options)
    try:
        job.await_batches(more_than=3)
    finally:
        job.kill()
    assert job.committed < 30, "it was killed before it had all"
    del options["maxOffsetsPerTrigger"]
    assert available_now(spark, options, tmp_path) == list(range(3000))


@pytest.fixture
def quiet_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that nobody asks but the connector."""
    with BrokerProcess(tmp_path / "broker") as process:
        yield process


WRITES = {("ApiVersions", 4), ("InitProducerId", 5), ("Metadata", 12), ("Produce", 11)}
READS = {
    ("ApiVersions", 4),
    ("DescribeCluster", 1),
    ("DescribeTopicPartitions", 0),
    ("Fetch", 17),
    ("ListOffsets", 9),
    ("Metadata", 12),
}
"""What the connector of Spark 4.2 asks a broker like ours. A difference here is news about either of them."""


def test_what_the_connector_asks_for(spark: SparkSession, quiet_broker: BrokerProcess) -> None:
    options = {"kafka.bootstrap.servers": quiet_broker.bootstrap, "topic": "written"}
    spark.range(10).selectExpr("CAST(id AS STRING) AS value").write.format("kafka").options(**options).save()
    assert requests_of(quiet_broker) == WRITES
    frame = from_connector(
        spark, quiet_broker.bootstrap, subscribePattern="wri.*", kafka_isolation_level="read_committed",
        startingTimestamp=0,
    )  # fmt: skip
    assert frame.count() == 10
    assert requests_of(quiet_broker) == READS | WRITES


def requests_of(broker: BrokerProcess) -> set[tuple[str, int]]:
    """(api, version) of every request that has been answered."""
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.metrics_port}/metrics", timeout=30) as answer:
        page = answer.read().decode()
    lines = re.findall(r"^kafka_network_requestmetrics_requests_total\{([^}]*)\} ([\d.]+)", page, re.MULTILINE)
    found = set()
    for labels, count in lines:
        label = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if float(count) and "version" in label and label["request"] != "FetchConsumer":
            found.add((label["request"], int(label["version"])))
    return found
