"""Metrics of what share groups have in flight of the partitions that this node leads.

The series are left out with `ottla.prometheus.partitions=false`.
"""

from typing import Final

from broker.metrics.series import counter, distribution, gauge
from broker.metrics.share_survey import OF_PARTITION, ShareSurveyor
from broker.metrics.table import Column, Table

_NAME: Final = "kafka_server_sharepartitionmetrics"


def _bean(name: str) -> str:
    return f"kafka.server:type=SharePartitionMetrics,name={name},group=*,topic=*,partition=*"


_BATCH_SIZES: Final = distribution(
    f"{_NAME}_inflightbatchmessagecount",
    "Records in each batch that a share group has put in flight",
    *OF_PARTITION,
    bean=_bean("InFlightBatchMessageCount"),
)
_IN_FLIGHT: Final = (
    Column(
        gauge(
            f"{_NAME}_inflightmessagecount",
            "Records that a share group has in flight",
            *OF_PARTITION,
            bean=_bean("InFlightMessageCount"),
        ),
        lambda row: row.records,
    ),
    Column(
        gauge(
            f"{_NAME}_inflightbatchcount",
            "Batches that a share group has in flight",
            *OF_PARTITION,
            bean=_bean("InFlightBatchCount"),
        ),
        lambda row: row.batches,
    ),
    Column(
        counter(
            f"{_NAME}_acquisitionlocktimeout_total",
            "Records whose acquisition lock has expired, since the partition was loaded",
            *OF_PARTITION,
            bean=_bean("AcquisitionLockTimeoutPerSec"),
        ),
        lambda row: row.expired_locks,
    ),
    Column(_BATCH_SIZES.totals, lambda row: row.put_in_flight),
)
_SIZES: Final = (Column(_BATCH_SIZES.quantiles, lambda row: row.size),)
FAMILIES: Final = tuple(column.family for column in (*_IN_FLIGHT, *_SIZES))


def tables(surveyor: ShareSurveyor) -> tuple[Table, ...]:
    """Tables with a row for each partition that a share group reads here, and for each percentile of its batches."""
    return (
        Table(_IN_FLIGHT, lambda: surveyor.seen.in_flight.rows),
        Table(_SIZES, lambda: surveyor.seen.batch_sizes.rows),
    )
