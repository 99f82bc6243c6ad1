"""The result of `stats` as one object, for JSON, for the page and for the terminal."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from pipeline.reports.text import bytes_as_json
from pipeline.source import PartitionSource
from pipeline.stats.counts import Powers, Times
from pipeline.stats.scan import Counts

_TOP_KEYS: Final = 20


class Lag(NamedTuple):
    """The lag of a group in a topic."""

    group: str
    topic: str
    partitions: int
    """How many partitions the group has committed offsets of."""
    lag: int
    most_lag: int
    """The largest lag of a partition."""


@dataclass(frozen=True, kw_only=True)
class PartitionStats:
    """The statistics of one partition."""

    source: PartitionSource
    counts: Counts

    def to_json(self) -> dict[str, Any]:
        """The object for the JSON report."""
        bounds = self.source.bounds
        return {
            "partition": self.source.partition,
            "start_offset": bounds.start_offset,
            "high_watermark": bounds.high_watermark,
            "last_stable_offset": bounds.last_stable_offset,
            "records": self.counts.records,
            "batches": self.counts.batches,
            "bytes": self.counts.batch_bytes,
        }


@dataclass(frozen=True, kw_only=True)
class TopicStats:
    """The statistics of one topic."""

    name: str
    partitions: Sequence[PartitionStats]
    counts: Counts
    lags: Sequence[Lag] = ()

    @property
    def largest_share(self) -> float:
        """The share of the topic's bytes that are in its largest partition."""
        most = max(partition.counts.batch_bytes for partition in self.partitions)
        return most / self.counts.batch_bytes if self.counts.batch_bytes else 0.0

    def to_json(self) -> dict[str, Any]:
        """The object for the JSON report."""
        return {
            "topic": self.name,
            **_counts_as_json(self.counts),
            "partitions": [partition.to_json() for partition in self.partitions],
            "lags": [lag._asdict() for lag in self.lags],
        }


@dataclass(frozen=True, kw_only=True)
class Stats:
    """The statistics of all counted topics."""

    cluster_id: str
    data_dirs: Sequence[str]
    bootstrap: str | None
    finished_at: str
    """UTC, to the second."""
    topics: Sequence[TopicStats]
    counts: Counts = field(default_factory=Counts)

    @property
    def lags(self) -> list[Lag]:
        """The lags of all groups, the largest first."""
        return sorted((lag for topic in self.topics for lag in topic.lags), key=lambda lag: -lag.lag)

    def to_json(self) -> dict[str, Any]:
        """The object for the JSON report."""
        return {
            "report": "stats",
            "cluster_id": self.cluster_id,
            "data_directories": list(self.data_dirs),
            "bootstrap": self.bootstrap,
            "finished_at": self.finished_at,
            "total": _counts_as_json(self.counts, with_keys=False),
            "topics": [topic.to_json() for topic in self.topics],
            "damage": [damage._asdict() for damage in self.counts.damages],
        }


def put_together(
    partitions: Sequence[PartitionSource],
    counted: Iterable[tuple[tuple[str, int], Counts]],
    lags: Iterable[Lag],
    **about: Any,
) -> Stats:
    """Combine the tasks' counts, each of a (topic, partition), to statistics."""
    of_partition = {(source.topic, source.partition): Counts() for source in partitions}
    for place, counts in counted:
        of_partition[place].merge(counts)
    by_topic: dict[str, list[PartitionStats]] = {}
    for source in partitions:
        counts = of_partition[source.topic, source.partition]
        by_topic.setdefault(source.topic, []).append(PartitionStats(source=source, counts=counts))
    total, topics = Counts(), []
    all_lags = list(lags)
    for name, found in by_topic.items():
        of_topic = Counts()
        for partition in found:
            of_topic.merge(partition.counts)
        total.merge(of_topic)
        of_groups = [lag for lag in all_lags if lag.topic == name]
        topics.append(TopicStats(name=name, partitions=found, counts=of_topic, lags=of_groups))
    topics.sort(key=lambda topic: (-topic.counts.batch_bytes, topic.name))
    return Stats(topics=topics, counts=total, **about)


def _counts_as_json(counts: Counts, *, with_keys: bool = True) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "records": counts.records,
        "batches": counts.batches,
        "control_batches": counts.control_batches,
        "bytes": counts.batch_bytes,
        "key_bytes": counts.key_bytes,
        "value_bytes": counts.value_bytes,
        "records_without_key": counts.without_key,
        "tombstones": counts.tombstones,
        "records_without_time": counts.without_time,
        "first_timestamp_ms": counts.first_timestamp_ms,
        "last_timestamp_ms": counts.last_timestamp_ms,
        "compression_ratio": None if counts.compression_ratio is None else round(counts.compression_ratio, 4),
        "records_per_batch": None if counts.mean_fill is None else round(counts.mean_fill, 3),
        "codecs": {
            name: {
                "batches": codec.batches,
                "records": codec.records,
                "stored_bytes": codec.stored_bytes,
                "opened_bytes": codec.opened_bytes,
            }
            for name, codec in sorted(counts.codecs.items())
        },
        "record_sizes": _powers_as_json(counts.record_sizes),
        "batch_records": _powers_as_json(counts.batch_records),
        "batch_sizes": _powers_as_json(counts.batch_sizes),
        "rates": _times_as_json(counts.times),
    }
    if with_keys:
        answer["keys"] = {
            "distinct": counts.keys.distinct,
            "most_missed": counts.keys.most_missed,
            "top": [
                {"key": bytes_as_json(key), "records": count, "share": round(count / counts.records, 6)}
                for key, count in counts.keys.top(_TOP_KEYS)
            ],
        }
    return answer


def _powers_as_json(powers: Powers) -> list[dict[str, int]]:
    return [{"from": first, "to": last, "count": count} for first, last, count in powers.ranges()]


def _times_as_json(times: Times) -> Mapping[str, Any]:
    return {
        "width_minutes": times.width_minutes,
        "buckets": [
            {"start_ms": start * 60_000, "records": records, "bytes": size}
            for start, (records, size) in sorted(times.buckets.items())
        ],
    }
