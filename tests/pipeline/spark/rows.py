"""Rows of a topic as three readers see them: `kafka_log`, Spark's Kafka connector, kafka-python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka import KafkaConsumer, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

READ_COMMITTED = "read_committed"
READ_UNCOMMITTED = "read_uncommitted"


class Seen(NamedTuple):
    """A record."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def rows_of(frame: DataFrame) -> list[Seen]:
    """All rows of either source, in the order of their places. Where a record has no headers the column is null."""
    assert "headers" in frame.columns
    chosen = frame.selectExpr(
        "topic", "partition", "offset", "unix_millis(timestamp) AS ms", "timestampType", "key", "value", "headers"
    )
    rows = chosen.collect()
    assert all(row.headers is None or row.headers for row in rows), "no headers are null, not an empty array"
    found = [Seen(*row[:5], _bytes(row.key), _bytes(row.value), _headers(row.headers)) for row in rows]
    return sorted(found, key=_place)


def from_connector(spark: SparkSession, bootstrap: str, **options: Any) -> DataFrame:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    return reader.options(**{"includeHeaders": "true", **_plain(options)}).load()


def from_kafka_log(spark: SparkSession, data: object, bootstrap: str | None = None, **options: Any) -> DataFrame:
    reader = spark.read.format("kafka_log")
    if bootstrap is not None:
        reader = reader.option("kafka.bootstrap.servers", bootstrap)
    return reader.options(**{"includeHeaders": "true", **_plain(options)}).load(str(data))


def _plain(options: Mapping[str, Any]) -> dict[str, str]:
    """`kafka_isolation_level` cannot stand in a call as Kafka writes it."""
    return {name.replace("_", "."): str(value) for name, value in options.items()}


def from_kafka_python(bootstrap: str, topics: Iterable[str], isolation: str) -> list[Seen]:
    """Every record up to where the partitions end now, in the order of their places."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level=isolation, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    found = []
    try:
        places = [TopicPartition(topic, number) for topic in topics for number in consumer.partitions_for_topic(topic)]
        ends = consumer.end_offsets(places)
        consumer.assign(places)
        consumer.seek_to_beginning()
        while any(consumer.position(place) < ends[place] for place in places):
            for records in consumer.poll(timeout_ms=200).values():
                found += [_seen(record) for record in records]
    finally:
        consumer.close()
    return sorted(found, key=_place)


def _seen(record: Any) -> Seen:
    headers = tuple((name, value) for name, value in record.headers)
    return Seen(
        record.topic, record.partition, record.offset, record.timestamp, record.timestamp_type,
        record.key, record.value, headers,
    )  # fmt: skip


def _place(row: Seen) -> tuple[str, int, int]:
    return row.topic, row.partition, row.offset


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def _headers(headers: Iterable[Any] | None) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((header.key, _bytes(header.value)) for header in headers or ())
