"""Survey: one pass over all topics and partitions before a page is written: their rows, and their sums.

The loop turns in between, so that a page never holds it longer for ten thousand partitions than for ten.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from broker.metadata.image.topics import PartitionImage, TopicImage
from broker.metrics.sources import MetricSources
from broker.metrics.table import label_text
from broker.replication.partition import Partition
from broker.replication.replica_fetchers import ReplicaFetchers
from broker.replication.traffic import Traffic
from protocol.records.cluster_metadata import NO_LEADER
from storage.log import Log

PARTITIONS_A_TURN: Final = 100
"""Partitions that are read in one turn of the loop: a tenth of a millisecond."""


class PartitionRow:
    """A row for a partition of the metadata, with its log if this node has it; also for the metadata log itself."""

    __slots__ = ("hosted", "image", "labels", "log")

    def __init__(self, topic: str, index: int, image: PartitionImage | None, hosted: Partition | None, log: Log | None):
        self.labels = label_text(("topic", "partition"), (topic, str(index)))
        self.image = image
        self.hosted = hosted
        self.log = log


class LagRow(NamedTuple):
    """A row for a partition that this node fetches from its leader."""

    labels: str
    lag: int


class TopicRow:
    """A row for a topic; the row of all topics together has no labels."""

    __slots__ = ("flushes", "labels", "partitions", "rolls", "segments_removed", "traffic")

    def __init__(self, labels: str) -> None:
        self.labels = labels
        self.partitions = 0
        self.traffic = Traffic()
        self.rolls = 0
        self.flushes = 0
        self.segments_removed = 0

    def add(self, partition: Partition) -> None:
        """Add a partition of this node."""
        self.traffic.add(partition)
        stats = partition.log.stats
        self.rolls += stats.rolls
        self.flushes += stats.flushes
        self.segments_removed += stats.segments_removed


@dataclass(slots=True)
class Survey:
    """The result of one pass over all partitions."""

    topics: list[TopicRow] = field(default_factory=list)
    partitions: list[PartitionRow] = field(default_factory=list)
    followed: list[LagRow] = field(default_factory=list)
    traffic: Traffic = field(default_factory=Traffic)
    """The traffic of all topics, deleted topics included."""
    led: int = 0
    hosted: int = 0
    offline: int = 0
    """Replicas of this node whose data directory cannot be used."""
    leaderless: int = 0
    not_led_as_preferred: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    reassigning: int = 0
    """Partitions led here that get or lose replicas."""
    producers: int = 0
    with_late_transactions: int = 0
    """Partitions led here with a transaction that no coordinator seems to end."""
    flushes: int = 0
    segments_removed: int = 0


def is_under_replicated(partition: Partition) -> bool:
    return partition.is_leader and len(partition.in_sync_replicas) < len(partition.replicas)


def min_isr(partition: Partition) -> int:
    """How many replicas must be in sync, at most as many as the partition has."""
    return partition.log.config.required_in_sync(len(partition.replicas))


def is_under_min_isr(partition: Partition) -> bool:
    return partition.is_leader and len(partition.in_sync_replicas) < min_isr(partition)


def is_at_min_isr(partition: Partition) -> bool:
    return partition.is_leader and len(partition.in_sync_replicas) == min_isr(partition)


class Surveyor:
    """Makes surveys, and keeps the last one."""

    def __init__(self, sources: MetricSources) -> None:
        self._sources = sources
        self.seen = Survey()
        self._looked_at = 0

    def look(self) -> Iterator[None]:
        """Make a new survey; the loop may turn at each step. `seen` is the old survey until the last step."""
        survey = Survey()
        survey.traffic.add_all(self._sources.replicas.gone)
        for topic in self._sources.metadata.image.topics.by_name.values():
            yield from self._look_at(topic, survey)
        metadata_log = self._sources.metadata_log
        if metadata_log is not None:
            log = metadata_log.log
            survey.partitions.append(PartitionRow(*log.topic_partition, None, None, log))
        self.seen = survey

    def _look_at(self, topic: TopicImage, survey: Survey) -> Iterator[None]:
        replicas, fetchers = self._sources.replicas, self._fetchers
        node_id = self._sources.settings.node_id
        # The controllers of a member are other nodes: these have the partitions that are not here.
        has_controller = self._sources.metadata_log is not None
        row = TopicRow(label_text(("topic",), (topic.name,)))
        has_row = has_controller
        for image in topic.partitions:
            self._looked_at += 1
            if not self._looked_at % PARTITIONS_A_TURN:
                yield
            row.partitions += 1
            hosted = replicas.find(topic.name, image.index)
            if hosted is None and not has_controller:
                survey.offline += node_id in image.replicas and replicas.is_offline(topic.name, image.index)
                continue
            has_row = True
            log = None if hosted is None else hosted.log
            survey.partitions.append(PartitionRow(topic.name, image.index, image, hosted, log))
            survey.leaderless += image.leader == NO_LEADER
            survey.not_led_as_preferred += image.leader != image.replicas[0]
            if hosted is not None:
                row.add(hosted)
                _count(hosted, survey)
                survey.reassigning += hosted.is_leader and bool(image.adding_replicas or image.removing_replicas)
                if fetchers is not None and not hosted.is_leader:
                    _add_lag(hosted, fetchers, survey)
                survey.with_late_transactions += self._has_late_transaction(hosted)
            elif node_id in image.replicas:
                survey.offline += replicas.is_offline(topic.name, image.index)
        if has_row:
            survey.topics.append(row)
        survey.traffic.add_all(row.traffic)
        survey.flushes += row.flushes
        survey.segments_removed += row.segments_removed

    @property
    def _fetchers(self) -> ReplicaFetchers | None:
        replication = self._sources.replicas.replication
        return None if replication is None else replication.fetchers

    def _has_late_transaction(self, hosted: Partition) -> bool:
        now_ms, settings = self._sources.clock.now_ms(), self._sources.settings
        producers = hosted.log.producers
        return hosted.is_leader and producers.has_late_transaction(now_ms, settings.transaction_max_timeout_ms)


def _add_lag(hosted: Partition, fetchers: ReplicaFetchers, survey: Survey) -> None:
    found = fetchers.followed(hosted.topic_partition)
    if found is not None and found[2].lag is not None:
        leader, number, followed = found
        topic, partition = hosted.topic_partition
        labels = label_text(("clientId", "topic", "partition"), (fetcher_name(leader, number), topic, str(partition)))
        survey.followed.append(LagRow(labels, followed.lag or 0))


def fetcher_name(leader: int, number: int) -> str:
    """A fetcher as Kafka's metrics call it."""
    return f"ReplicaFetcherThread-{number}-{leader}"


def _count(hosted: Partition, survey: Survey) -> None:
    survey.hosted += 1
    survey.led += hosted.is_leader
    survey.under_replicated += is_under_replicated(hosted)
    survey.under_min_isr += is_under_min_isr(hosted)
    survey.at_min_isr += is_at_min_isr(hosted)
    survey.producers += len(hosted.log.producers.entries)
