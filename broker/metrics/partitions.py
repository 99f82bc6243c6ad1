"""Metrics of each partition: log, replicas in sync, leader; left out with `ottla.prometheus.partitions=false`."""

from typing import Final

from broker.metrics.series import Family, gauge
from broker.metrics.survey import Surveyor, is_at_min_isr, is_under_min_isr, is_under_replicated
from broker.metrics.table import Column, Table
from storage.log import Log


def _of_log(name: str, help: str) -> Family:
    return gauge(
        f"kafka_log_log_{name.lower()}",
        help,
        "topic",
        "partition",
        bean=f"kafka.log:type=Log,name={name},topic=*,partition=*",
    )


def _of_partition(name: str, help: str) -> Family:
    return gauge(
        f"kafka_cluster_partition_{name.lower()}",
        help,
        "topic",
        "partition",
        bean=f"kafka.cluster:type=Partition,name={name},topic=*,partition=*",
    )


def _of_exporter(name: str, help: str) -> Family:
    """A family under kafka_exporter's name."""
    return gauge(f"kafka_topic_partition_{name}", help, "topic", "partition")


SIZE: Final = _of_log("Size", "Bytes of batches in the log")
SEGMENTS: Final = _of_log("NumLogSegments", "Segments of the log")
LOG_START: Final = _of_log("LogStartOffset", "Offset of the log's first record")
LOG_END: Final = _of_log("LogEndOffset", "Offset that the log's next record gets")
RETENTION: Final = _of_log(
    "RetentionSizeInPercent", "Size of the log in percent of retention.bytes; 0 where there is no such limit"
)
UNDER_REPLICATED: Final = _of_partition("UnderReplicated", "1 if this node leads, and not all replicas are in sync")
IN_SYNC: Final = _of_partition("InSyncReplicasCount", "Replicas in sync; 0 on followers")
REPLICAS: Final = _of_partition("ReplicasCount", "Replicas; 0 on followers")
STABLE_LAG: Final = _of_partition(
    "LastStableOffsetLag", "Offsets up to the high watermark that wait for an open transaction"
)
UNDER_MIN_ISR: Final = _of_partition(
    "UnderMinIsr", "1 if this node leads, and fewer replicas are in sync than min.insync.replicas"
)
AT_MIN_ISR: Final = _of_partition("AtMinIsr", "1 if this node leads, and just min.insync.replicas are in sync")
CURRENT_OFFSET: Final = _of_exporter("current_offset", "High watermark")
OLDEST_OFFSET: Final = _of_exporter("oldest_offset", "Offset of the first record")
LEADER: Final = _of_exporter("leader", "Node that leads; -1 if none does")
IS_PREFERRED: Final = _of_exporter("leader_is_preferred", "1 if the first of the replicas leads")
REPLICAS_KNOWN: Final = _of_exporter("replicas", "Replicas")
IN_SYNC_KNOWN: Final = _of_exporter("in_sync_replica", "Replicas in sync")
UNDER_REPLICATED_KNOWN: Final = _of_exporter("under_replicated_partition", "1 if not all replicas are in sync")


def _percent_of_retention(log: Log) -> float:
    most_bytes = log.config.retention_bytes
    return 100 * log.size // most_bytes if most_bytes > 0 else 0


_OF_PARTITIONS: Final = (
    Column(SIZE, lambda row: None if row.log is None else row.log.size),
    Column(SEGMENTS, lambda row: None if row.log is None else len(row.log.segments)),
    Column(LOG_START, lambda row: None if row.log is None else row.log.log_start_offset),
    Column(LOG_END, lambda row: None if row.log is None else row.log.log_end_offset),
    Column(RETENTION, lambda row: None if row.log is None else _percent_of_retention(row.log)),
    Column(UNDER_REPLICATED, lambda row: None if row.hosted is None else int(is_under_replicated(row.hosted))),
    Column(
        IN_SYNC, lambda row: None if row.hosted is None else row.hosted.is_leader * len(row.hosted.in_sync_replicas)
    ),
    Column(REPLICAS, lambda row: None if row.hosted is None else row.hosted.is_leader * len(row.hosted.replicas)),
    Column(STABLE_LAG, lambda row: None if row.hosted is None else row.log.high_watermark - row.log.last_stable_offset),
    Column(UNDER_MIN_ISR, lambda row: None if row.hosted is None else int(is_under_min_isr(row.hosted))),
    Column(AT_MIN_ISR, lambda row: None if row.hosted is None else int(is_at_min_isr(row.hosted))),
    Column(CURRENT_OFFSET, lambda row: None if row.hosted is None else row.log.high_watermark),
    Column(OLDEST_OFFSET, lambda row: None if row.hosted is None else row.log.log_start_offset),
    Column(LEADER, lambda row: None if row.image is None else row.image.leader),
    Column(IS_PREFERRED, lambda row: None if row.image is None else int(row.image.leader == row.image.replicas[0])),
    Column(REPLICAS_KNOWN, lambda row: None if row.image is None else len(row.image.replicas)),
    Column(IN_SYNC_KNOWN, lambda row: None if row.image is None else len(row.image.isr)),
    Column(
        UNDER_REPLICATED_KNOWN,
        lambda row: None if row.image is None else int(len(row.image.isr) < len(row.image.replicas)),
    ),
)
FAMILIES: Final = tuple(column.family for column in _OF_PARTITIONS)


def tables(surveyor: Surveyor) -> tuple[Table, ...]:
    """Tables with a row for each partition."""
    return (Table(_OF_PARTITIONS, lambda: surveyor.seen.partitions),)
