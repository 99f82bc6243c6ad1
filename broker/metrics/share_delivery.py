"""Metrics of records on their way to share groups: sessions, fetches, acknowledgements, letters."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from broker.metrics.series import Counted, Distribution, Family, Samples, counter, distribution, gauge, one
from broker.metrics.sources import MetricSources
from broker.runtime.histogram import CountedHistogram
from broker.share.requests import AcknowledgeType
from broker.share.sessions import ShareSessionStats
from broker.share.stats import ShareGroupStats


def _gauge(type_: str, name: str, help: str, *labels: str) -> Family:
    return gauge(f"kafka_server_{type_.lower()}_{name.lower()}", help, *labels, bean=_bean(type_, name, *labels))


def _counter(type_: str, name: str, help: str, *labels: str) -> Family:
    bean = _bean(type_, f"{name}PerSec", *labels)
    return counter(f"kafka_server_{type_.lower()}_{name.lower()}_total", help, *labels, bean=bean)


def _distribution(type_: str, name: str, help: str, *labels: str) -> Distribution:
    bean = _bean(type_, name, *labels)
    return distribution(f"kafka_server_{type_.lower()}_{name.lower()}", help, *labels, bean=bean)


def _bean(type_: str, name: str, *labels: str) -> str:
    return f"kafka.server:type={type_},name={name}" + "".join(f",{label}=*" for label in labels)


_SESSIONS: Final = _gauge("ShareSessionCache", "ShareSessionsCount", "Share sessions")
_SESSION_PARTITIONS: Final = _gauge("ShareSessionCache", "SharePartitionsCount", "Partitions in all share sessions")
_EVICTIONS: Final = _counter(
    "ShareSessionCache", "ShareSessionEvictions", "Share sessions that have ended with their connection"
)
_EXPIRES: Final = _counter(
    "DelayedShareFetchMetrics", "Expires", "Share fetches that were answered because their time was over"
)
_FETCHES: Final = _counter(
    "BrokerTopicMetrics", "TotalShareFetchRequests", "Share fetches, once for each topic", "topic"
)
_FAILED_FETCHES: Final = _counter(
    "BrokerTopicMetrics", "FailedShareFetchRequests", "Share fetches with a partition that could not be read", "topic"
)
_ACKNOWLEDGES: Final = _counter(
    "BrokerTopicMetrics",
    "TotalShareAcknowledgementRequests",
    "Acknowledgements of share groups, once for each topic",
    "topic",
)
_FAILED_ACKNOWLEDGES: Final = _counter(
    "BrokerTopicMetrics",
    "FailedShareAcknowledgementRequests",
    "Acknowledgements of share groups that were refused or could not be persisted",
    "topic",
)
_SAID: Final = _counter(
    "ShareGroupMetrics",
    "RecordAcknowledgements",
    "Records by what members of share groups have said of them",
    "ackType",
)
_FETCH_RATIOS: Final = _distribution(
    "ShareGroupMetrics",
    "RequestTopicPartitionsFetchRatio",
    "Percent of the partitions of a share fetch that it could acquire from: those whose window was not full",
    "group",
)
_ACQUIRE_TIMES: Final = _distribution(
    "ShareGroupMetrics",
    "TopicPartitionsAcquireTimeMs",
    "Milliseconds until a share fetch found a partition that it could acquire from",
    "group",
)
_LOAD_TIMES: Final = _distribution(
    "ShareGroupMetrics",
    "PartitionLoadTimeMs",
    "Milliseconds until the state of a share group in a partition was read",
)
_LETTERS: Final = counter(
    "kafka_server_sharegroupmetrics_deadletterqueuerecordcount_total",
    "Records in dead letter queues",
    "group",
    bean="kafka.server:type=ShareGroupMetrics,name=DeadLetterQueueRecordCount,group=*",
)
_LETTER_REQUESTS: Final = _counter(
    "ShareGroupMetrics", "DeadLetterQueueTotalProduceRequests", "Appends to dead letter queues", "group"
)
_FAILED_LETTER_REQUESTS: Final = _counter(
    "ShareGroupMetrics",
    "DeadLetterQueueFailedProduceRequests",
    "Times that records were archived without a dead letter, since none could be appended",
    "group",
)


class ShareDeliveries:
    """Reads share sessions and share partitions, which are there once a share group has asked for records."""

    families: tuple[Family, ...] = (
        _SESSIONS, _SESSION_PARTITIONS, _EVICTIONS, _EXPIRES, _FETCHES, _FAILED_FETCHES, _ACKNOWLEDGES,
        _FAILED_ACKNOWLEDGES, _SAID, _LETTERS, _LETTER_REQUESTS, _FAILED_LETTER_REQUESTS, *_FETCH_RATIOS,
        *_ACQUIRE_TIMES, *_LOAD_TIMES,
    )  # fmt: skip

    def __init__(self, sources: MetricSources) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Samples]:
        sessions, partitions = self._sources.share_sessions, self._sources.share_partitions
        if self._sources.share_fetch_purgatory is not None:
            yield one(_EXPIRES, self._sources.share_fetch_purgatory.stats.expired)
        of_sessions = ShareSessionStats() if sessions is None else sessions.stats
        yield one(_SESSIONS, of_sessions.sessions)
        yield one(_SESSION_PARTITIONS, of_sessions.partitions)
        yield one(_EVICTIONS, of_sessions.evicted)
        stats = ShareGroupStats() if partitions is None else partitions.stats
        for family, counts in (
            (_FETCHES, stats.fetches),
            (_FAILED_FETCHES, stats.failed_fetches),
            (_ACKNOWLEDGES, stats.acknowledges),
            (_FAILED_ACKNOWLEDGES, stats.failed_acknowledges),
        ):
            yield Samples(family, [((), counts.total()), *self._by_topic(counts)])
        said = stats.acknowledgements
        types = [one_type for one_type in AcknowledgeType if one_type is not AcknowledgeType.GAP]
        yield Samples(_SAID, [((one_type.name.capitalize(),), said[one_type]) for one_type in types])
        for family, letters in (
            (_LETTERS, stats.dead_letters),
            (_LETTER_REQUESTS, stats.dead_letter_requests),
            (_FAILED_LETTER_REQUESTS, stats.failed_dead_letter_requests),
        ):
            # 0 before the first letter: else Prometheus would not see it as a growth.
            found = {**dict.fromkeys(stats.of_groups, 0), **letters}
            yield Samples(family, [((group_id,), number) for group_id, number in found.items()])
        of_groups = stats.of_groups.items()
        yield from _FETCH_RATIOS.collect([_counted((group_id,), one_of.fetch_ratios) for group_id, one_of in of_groups])
        yield from _ACQUIRE_TIMES.collect(
            [_counted((group_id,), one_of.acquire_times) for group_id, one_of in of_groups]
        )
        yield from _LOAD_TIMES.collect([_counted((), stats.load_times)])

    def _by_topic(self, counts: Counter[str]) -> list[tuple[tuple[str, ...], float]]:
        """Those of topics that exist: the series of a deleted topic disappear, the sum stays."""
        topics = self._sources.metadata.image.topics.by_name
        return [((topic,), number) for topic, number in counts.items() if topic in topics]


def _counted(labels: tuple[str, ...], values: CountedHistogram) -> Counted:
    return Counted(labels, values.recent(), values.total)
