"""Metrics of topics: traffic in and out, and the number of partitions."""

from collections.abc import Iterator
from typing import Final

from broker.metrics.series import Family, counter, gauge
from broker.metrics.survey import Surveyor, TopicRow
from broker.metrics.table import Column, Table

_BEAN: Final = "kafka.server:type=BrokerTopicMetrics,name={}"


def _traffic(name: str, help: str) -> Family:
    """A family with the traffic of each topic, and of all topics together (deleted too): sums exclude the latter."""
    return counter(
        f"kafka_server_brokertopicmetrics_{name.lower()}_total",
        f"{help}; without a topic: of all topics",
        "topic",
        bean=_BEAN.format(f"{name}PerSec,topic=*"),
    )


MESSAGES_IN: Final = _traffic("MessagesIn", "Records appended")
BYTES_IN: Final = _traffic("BytesIn", "Bytes of record batches appended")
BYTES_OUT: Final = _traffic("BytesOut", "Bytes of record batches fetched")
BYTES_REJECTED: Final = _traffic("BytesRejected", "Bytes of record batches above max.message.bytes")
PRODUCES: Final = _traffic("TotalProduceRequests", "Batches that were to be appended, one for each partition")
FETCHES: Final = _traffic("TotalFetchRequests", "Partitions in Fetch requests")
FAILED_PRODUCES: Final = _traffic("FailedProduceRequests", "Batches that were refused as invalid")
FAILED_FETCHES: Final = _traffic(
    "FailedFetchRequests", "Partitions in Fetch requests that failed with an unexpected error"
)
PARTITIONS: Final = gauge("kafka_topic_partitions", "Partitions of the topic", "topic")
ROLLS: Final = counter("ottla_log_rolls_total", "Segments begun because the one before was full", "topic")
FLUSHES: Final = counter("ottla_log_flushes_total", "Times a log was synced", "topic")
SEGMENTS_REMOVED: Final = counter("ottla_log_segments_removed_total", "Segments that retention has removed", "topic")


_TRAFFIC: Final = (
    Column(MESSAGES_IN, lambda row: row.traffic.messages_in),
    Column(BYTES_IN, lambda row: row.traffic.bytes_in),
    Column(BYTES_OUT, lambda row: row.traffic.bytes_out),
    Column(BYTES_REJECTED, lambda row: row.traffic.bytes_rejected),
    Column(PRODUCES, lambda row: row.traffic.produces),
    Column(FETCHES, lambda row: row.traffic.fetches),
    Column(FAILED_PRODUCES, lambda row: row.traffic.failed_produces),
    Column(FAILED_FETCHES, lambda row: row.traffic.failed_fetches),
)
_OF_TOPICS: Final = (
    Column(PARTITIONS, lambda row: row.partitions),
    Column(ROLLS, lambda row: row.rolls),
    Column(FLUSHES, lambda row: row.flushes),
    Column(SEGMENTS_REMOVED, lambda row: row.segments_removed),
)
FAMILIES: Final = tuple(column.family for column in (*_TRAFFIC, *_OF_TOPICS))


def tables(surveyor: Surveyor) -> tuple[Table, ...]:
    """Two tables: with a row for all topics together, and without it."""

    def of_all() -> Iterator[TopicRow]:
        everything = TopicRow("")
        everything.traffic = surveyor.seen.traffic
        yield everything
        yield from surveyor.seen.topics

    return Table(_TRAFFIC, of_all), Table(_OF_TOPICS, lambda: surveyor.seen.topics)
