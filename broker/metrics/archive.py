"""Metrics of archived topics' partitions: records not archived yet, and bytes that retention keeps for that.

They are left out with `ottla.prometheus.partitions=false`."""

from typing import Final

from broker.metrics.series import counter, gauge
from broker.metrics.sources import MetricSources
from broker.metrics.survey import PartitionRow, Surveyor
from broker.metrics.table import Column, Table

LAG: Final = gauge(
    "ottla_archive_lag_records",
    "Offsets up to the high watermark that the topic's ottla.archive.group has not committed",
    "topic",
    "partition",
)
HELD_RECORDS: Final = gauge(
    "ottla_archive_held_records",
    "Offsets that the last retention pass would have removed if they were archived",
    "topic",
    "partition",
)
HELD_BYTES: Final = gauge(
    "ottla_archive_held_bytes",
    "Bytes of the segments that retention keeps until they are archived; at most ottla.archive.max.bytes",
    "topic",
    "partition",
)
GIVEN_UP: Final = counter(
    "ottla_archive_given_up_records_total",
    "Offsets that retention has removed, though they were not archived, to keep to ottla.archive.max.bytes",
    "topic",
    "partition",
)
FAMILIES: Final = (LAG, HELD_RECORDS, HELD_BYTES, GIVEN_UP)


def tables(sources: MetricSources, surveyor: Surveyor) -> tuple[Table, ...]:
    """Tables with a row for each partition of a topic with an archive group."""

    def archived() -> list[PartitionRow]:
        seen = surveyor.seen.partitions
        return [row for row in seen if row.log is not None and row.log.config.ottla_archive_group]

    columns = (
        Column(LAG, lambda row: None if sources.retention_hold is None else sources.retention_hold.lag(row.log)),
        Column(HELD_RECORDS, lambda row: row.log.held.records),
        Column(HELD_BYTES, lambda row: row.log.held.size),
        Column(GIVEN_UP, lambda row: row.log.stats.records_given_up),
    )
    return (Table(columns, archived),)
