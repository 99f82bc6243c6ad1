"""Metrics of committed offsets and lag of consumer groups, under kafka_exporter's names.

The series of partitions are left out with `ottla.prometheus.partitions=false`; the sums over a topic stay.
"""

from typing import Final

from broker.metrics.group_survey import GroupSurveyor
from broker.metrics.series import Family, gauge
from broker.metrics.table import Column, Table

_OF_TOPIC: Final = ("consumergroup", "topic")
_OF_PARTITION: Final = (*_OF_TOPIC, "partition")


def _of_exporter(name: str, help: str, *labels: str) -> Family:
    return gauge(f"kafka_consumergroup_{name}", help, *labels)


MEMBERS: Final = _of_exporter("members", "Members of the group", "consumergroup")
OFFSETS: Final = _of_exporter(
    "current_offset_sum", "Committed offsets of all partitions of the topic together", *_OF_TOPIC
)
LAGS: Final = _of_exporter("lag_sum", "Records behind the committed offsets of the topic's partitions", *_OF_TOPIC)
OFFSET: Final = _of_exporter("current_offset", "Committed offset", *_OF_PARTITION)
LAG: Final = _of_exporter("lag", "Records behind the committed offset, up to the high watermark", *_OF_PARTITION)
_GROUPS: Final = (Column(MEMBERS, lambda row: row.members),)
_TOPICS: Final = (Column(OFFSETS, lambda row: row.offsets), Column(LAGS, lambda row: row.lag))
_PARTITIONS: Final = (Column(OFFSET, lambda row: row.offset), Column(LAG, lambda row: row.lag))
FAMILIES: Final = tuple(column.family for column in (*_GROUPS, *_TOPICS, *_PARTITIONS))


def tables(surveyor: GroupSurveyor) -> tuple[Table, ...]:
    """Tables with a row for each group, and for each of its topics."""
    return (
        Table(_GROUPS, lambda: surveyor.seen.groups.rows),
        Table(_TOPICS, lambda: surveyor.seen.topics.rows),
    )


def partition_tables(surveyor: GroupSurveyor) -> tuple[Table, ...]:
    """Tables with a row for each partition of a group."""
    return (Table(_PARTITIONS, lambda: surveyor.seen.partitions.rows),)
