"""Streaming reads by `format("kafka_log")`."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dev.broker_process import BrokerProcess
from dev.waiting import until
from pipeline.kafka_log.options import read_options
from pipeline.kafka_log.stream import Stream
from tests.pipeline.spark.jobs import Job
from tests.pipeline.spark.test_connector import delete_before
from tests.support.clients import Client, Record, connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def numbers(*between: int) -> list[Record]:
    return [Record(value=b"%d" % n) for n in range(*between)]


def options_of(broker: BrokerProcess, **more: Any) -> dict[str, str]:
    given = {"path": broker.data_directory, "kafka.bootstrap.servers": broker.bootstrap, **more}
    return {name: str(value) for name, value in given.items()}


def available_now(spark: SparkSession, options: Mapping[str, str], output: Path) -> list[int]:
    """Everything that there is now, written behind what the checkpoint says is written; the values of all rows."""
    frame = spark.readStream.format("kafka_log").options(**options).load()
    writer = frame.writeStream.format("parquet").option("checkpointLocation", f"{output}/checkpoint")
    query = writer.trigger(availableNow=True).start(f"{output}/rows")
    assert query.awaitTermination(120)
    rows = spark.read.schema(frame.schema).parquet(f"{output}/rows").select("value").collect()
    return sorted(int(bytes(row.value)) for row in rows)


def batches(output: Path) -> int:
    return len(list((output / "checkpoint/commits").glob("[0-9]*")))


def test_a_stream_goes_on_where_it_was_and_takes_so_many_at_a_time(
    spark: SparkSession, broker: BrokerProcess, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create_topic(topic, partitions=2)
    client.produce(topic, numbers(200))
    options = options_of(broker, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=70)
    assert available_now(spark, options, tmp_path) == list(range(200))
    assert batches(tmp_path) == 3
    client.produce(topic, numbers(200, 230))
    assert available_now(spark, options, tmp_path) == list(range(230))
    assert batches(tmp_path) == 4
    assert available_now(spark, options, tmp_path) == list(range(230))
    assert batches(tmp_path) == 4


def test_a_stream_reads_topics_and_partitions_that_came_later(
    spark: SparkSession, broker: BrokerProcess, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create_topic(f"{topic}-a")
    client.produce(f"{topic}-a", numbers(5))
    options = options_of(broker, subscribePattern=f"{topic}-.*", startingOffsets="earliest")
    assert available_now(spark, options, tmp_path) == list(range(5))
    client.create_topic(f"{topic}-b", partitions=2)
    client.produce(f"{topic}-b", numbers(5, 20))
    assert available_now(spark, options, tmp_path) == list(range(20))


def test_without_a_broker(spark: SparkSession, own_broker: BrokerProcess, tmp_path: Path) -> None:
    client = connect("confluent-kafka", own_broker.bootstrap)
    client.create_topic("orders")
    client.produce("orders", numbers(50))
    own_broker.stop()
    options = {"path": str(own_broker.data_directory), "subscribe": "orders", "startingOffsets": "earliest"}
    assert available_now(spark, options, tmp_path) == list(range(50))
    own_broker.start()
    client.produce("orders", numbers(50, 60))
    own_broker.stop()
    assert available_now(spark, options, tmp_path) == list(range(60))


def test_a_stream_from_the_end_loses_nothing_though_its_first_batch_is_cut_short(
    spark: SparkSession, broker: BrokerProcess, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create_topic(topic)
    client.produce(topic, numbers(10))
    options = options_of(broker, subscribe=topic)
    assert available_now(spark, options, tmp_path) == []
    # As a death leaves it between the plan of the first micro-batch and its end.
    for path in (tmp_path / "checkpoint/commits").glob("*0*"):
        path.unlink()
    client.produce(topic, numbers(10, 25))
    assert available_now(spark, options, tmp_path) == list(range(10, 25))


def test_what_comes_while_a_stream_from_the_end_begins_is_read_after_a_death_too(
    broker: BrokerProcess, client: Client, topic: str
) -> None:
    client.create_topic(topic)
    client.produce(topic, numbers(10))
    options = read_options(options_of(broker, subscribe=topic))

    dying = Stream(options)
    start = dying.initial_offset()
    client.produce(topic, numbers(10, 15))
    # Spark keeps this, and dies before it has read what lies between the two.
    end = dying.latest_offset(start, None)
    dying.close()
    client.produce(topic, numbers(15, 20))

    again = Stream(options)
    ranges = again.ranges(again.initial_offset(), end)
    ranges += again.ranges(end, again.latest_offset(end, None))
    again.close()
    assert [(one.from_offset, one.until_offset) for one in ranges] == [(10, 20)]


def test_deleted_records_end_a_stream_or_are_passed_over(
    spark: SparkSession, broker: BrokerProcess, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create_topic(topic, partitions=2)
    client.produce(topic, [Record(value=b"%d" % n, partition=n % 2) for n in range(20)])
    options = options_of(broker, subscribe=topic, startingOffsets="earliest")
    assert available_now(spark, options, tmp_path) == list(range(20))
    client.produce(topic, [Record(value=b"%d" % n, partition=n % 2) for n in range(20, 40)])
    delete_before(broker.bootstrap, topic, 15)
    with pytest.raises(Exception, match=f"offsets 10 to 14 of {topic}-0 were to be read, and it begins at 15"):
        available_now(spark, options, tmp_path)
    assert available_now(spark, options | {"failOnDataLoss": "false"}, tmp_path) == [*range(20), *range(30, 40)]


def test_a_topic_that_was_made_anew_ends_a_stream(
    spark: SparkSession, broker: BrokerProcess, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create_topic(topic)
    client.produce(topic, numbers(20))
    options = options_of(broker, subscribe=topic, startingOffsets="earliest")
    assert available_now(spark, options, tmp_path) == list(range(20))
    client.delete_topic(topic)
    until(lambda: topic not in client.topics())
    client.create_topic(topic)
    client.produce(topic, numbers(100, 105))
    with pytest.raises(Exception, match=f"{topic}-0 has been read up to offset 20, and now ends at 5"):
        available_now(spark, options, tmp_path)


@pytest.mark.timeout(300)
def test_a_stream_that_is_killed_writes_each_row_once(
    spark: SparkSession, broker: BrokerProcess, client: Client, topic: str, tmp_path: Path
) -> None:
    client.create_topic(topic, partitions=2)
    client.produce(topic, numbers(3000))
    options = options_of(broker, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=100)
    job = Job(tmp_path, "kafka_log", "continually", options)
    try:
        job.await_batches(more_than=3)
    finally:
        job.kill()
    assert job.committed < 30, "it was killed before it had all"
    del options["maxOffsetsPerTrigger"]
    assert available_now(spark, options, tmp_path) == list(range(3000))


def test_a_stream_has_no_end_to_name(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="endingOffsets is for a batch read"):
        available_now(spark, options_of(broker, subscribe="any", endingOffsets="latest"), tmp_path)
    shutil.rmtree(tmp_path)
