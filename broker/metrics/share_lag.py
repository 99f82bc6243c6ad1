"""Metrics of the members and the lag of share groups. No other program has names for these.

A share group has a lag where its state is coordinated here, and this node has a replica of the partition. The series of
partitions are left out with `ottla.prometheus.partitions=false`; the sums over a topic stay.
"""

from collections.abc import Iterator
from typing import Final

from broker.metrics.group_survey import GroupSurveyor
from broker.metrics.series import Family, Samples, gauge, one
from broker.metrics.share_survey import OF_PARTITION, ShareSurveyor
from broker.metrics.table import Column, Table

_OF_TOPIC: Final = OF_PARTITION[:2]


def _of_group(name: str, help: str, *labels: str) -> Family:
    return gauge(f"ottla_sharegroup_{name}", help, *labels)


_LEFT_OUT: Final = _of_group(
    "left_out", "Share groups, their topics and partitions that are left out because the page has too many"
)
_GROUPS: Final = (Column(_of_group("members", "Members of the share group", "group"), lambda row: row.members),)
_TOPICS: Final = (
    Column(
        _of_group("start_offset_sum", "Start offsets of all partitions of the topic together", *_OF_TOPIC),
        lambda row: row.start_offset,
    ),
    Column(
        _of_group("lag_sum", "Records of the topic's partitions that the share group is not done with", *_OF_TOPIC),
        lambda row: row.lag,
    ),
)
_PARTITIONS: Final = (
    Column(
        _of_group("start_offset", "Offset below which the share group is done with all records", *OF_PARTITION),
        lambda row: row.start_offset,
    ),
    Column(
        _of_group("lag", "Records that the share group is not done with, up to the high watermark", *OF_PARTITION),
        lambda row: row.lag,
    ),
)


class ShareLag:
    """Counts what has no room on the page."""

    families: tuple[Family, ...] = (
        _LEFT_OUT,
        *[column.family for column in (*_GROUPS, *_TOPICS, *_PARTITIONS)],
    )

    def __init__(self, groups: GroupSurveyor, shares: ShareSurveyor) -> None:
        self._groups = groups
        self._shares = shares

    def collect(self) -> Iterator[Samples]:
        yield one(_LEFT_OUT, self._groups.seen.share_groups.left_out + self._shares.seen.left_out)

    def tables(self) -> tuple[Table, ...]:
        """Tables with a row for each share group, and for each of its topics."""
        return (
            Table(_GROUPS, lambda: self._groups.seen.share_groups.rows),
            Table(_TOPICS, lambda: self._shares.seen.topics.rows),
        )

    def partition_tables(self) -> tuple[Table, ...]:
        """Tables with a row for each partition of a share group."""
        return (Table(_PARTITIONS, lambda: self._shares.seen.partitions.rows),)
