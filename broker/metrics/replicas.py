"""Metrics of the replica manager, the waiting requests, and the fetch sessions."""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from broker.fetch.session_cache import FetchSessionStats
from broker.metrics.series import Family, Reading, Samples, counter, gauge, read
from broker.metrics.sources import MetricSources
from broker.metrics.survey import Survey, Surveyor
from broker.replication.replica_manager import ReplicaManager
from broker.runtime.purgatory import Purgatory


class _Replication(NamedTuple):
    """The objects that the values are read from."""

    replicas: ReplicaManager
    seen: Survey
    sessions: FetchSessionStats


Value = Callable[[_Replication], float]


def _gauge(name: str, help: str, value: Value, *, type_: str = "ReplicaManager") -> Reading:
    bean = f"kafka.server:type={type_},name={name}"
    return Reading(gauge(f"kafka_server_{type_.lower()}_{name.lower()}", help, bean=bean), value)


def _counter(type_: str, name: str, help: str, value: Value) -> Reading:
    bean = f"kafka.server:type={type_},name={name}PerSec"
    return Reading(counter(f"kafka_server_{type_.lower()}_{name.lower()}_total", help, bean=bean), value)


def _of_brokers(name: str, help: str, value: Value = lambda _: 0) -> Reading:
    return _counter("BrokerTopicMetrics", name, help, value)


_READINGS: Final = (
    _gauge("LeaderCount", "Partitions that this node leads", lambda it: it.seen.led),
    _gauge("PartitionCount", "Partitions of which this node has a replica", lambda it: it.seen.hosted),
    _gauge(
        "OfflineReplicaCount", "Replicas of this node whose data directory cannot be used", lambda it: it.seen.offline
    ),
    _gauge(
        "UnderReplicatedPartitions",
        "Partitions led here without all replicas in sync",
        lambda it: it.seen.under_replicated,
    ),
    _gauge(
        "UnderMinIsrPartitionCount",
        "Partitions led here with fewer replicas in sync than min.insync.replicas",
        lambda it: it.seen.under_min_isr,
    ),
    _gauge(
        "AtMinIsrPartitionCount",
        "Partitions led here with just min.insync.replicas in sync",
        lambda it: it.seen.at_min_isr,
    ),
    _gauge("ReassigningPartitions", "Partitions led here that get or lose replicas", lambda it: it.seen.reassigning),
    _gauge("ProducerIdCount", "Idempotent producers that partitions remember", lambda it: it.seen.producers),
    _gauge(
        "PartitionsWithLateTransactionsCount",
        "Partitions led here with a transaction that is open 5 minutes longer than transaction.max.timeout.ms",
        lambda it: it.seen.with_late_transactions,
    ),
    _counter(
        "ReplicaManager",
        "IsrShrinks",
        "Times that a follower was taken out of the ISR because its leader, this node, has asked for it",
        lambda it: it.replicas.stats.isr_shrinks,
    ),
    _counter(
        "ReplicaManager",
        "IsrExpands",
        "Times that a follower was added to the ISR because its leader, this node, has asked for it",
        lambda it: it.replicas.stats.isr_expands,
    ),
    _counter(
        "ReplicaManager",
        "FailedIsrUpdates",
        "Changes of the replicas in sync that the controller has not made",
        lambda it: it.replicas.stats.failed_isr_updates,
    ),
    _counter(
        "DelayedProduceMetrics",
        "Expires",
        "Produces that were not acknowledged in time",
        lambda it: it.replicas.produce_purgatory.stats.expired,
    ),
    _gauge("NumIncrementalFetchSessions", "Fetch sessions", lambda it: it.sessions.sessions, type_="FetchSessionCache"),
    _gauge(
        "NumIncrementalFetchPartitionsCached",
        "Partitions in all fetch sessions",
        lambda it: it.sessions.partitions,
        type_="FetchSessionCache",
    ),
    _counter(
        "FetchSessionCache",
        "IncrementalFetchSessionEvictions",
        "Fetch sessions evicted for other sessions",
        lambda it: it.sessions.evictions,
    ),
    _of_brokers(
        "InvalidMessageCrcRecords",
        "Batches refused for their CRC or their size",
        lambda it: it.replicas.stats.batches_with_wrong_crc,
    ),
    _of_brokers(
        "InvalidOffsetOrSequenceRecords",
        "Batches whose offsets do not count their records, or with a sequence number and no producer id",
        lambda it: it.replicas.stats.batches_with_wrong_offsets,
    ),
    _of_brokers(
        "NoKeyCompactedTopicRecords",
        "Records without a key for compacted topics",
        lambda it: it.replicas.stats.records_without_key,
    ),
    _of_brokers("InvalidMagicNumberRecords", "Records of a format that no request may carry: always 0"),
    _of_brokers("ProduceMessageConversions", "Records converted for producers: always 0, none are"),
    _of_brokers("FetchMessageConversions", "Records converted for consumers: always 0, none are"),
    _of_brokers(
        "ReplicationBytesIn",
        "Bytes of batches that this node has fetched as a follower",
        lambda it: it.replicas.stats.replication_bytes_in,
    ),
    _of_brokers(
        "ReplicationBytesOut",
        "Bytes of batches in answers to followers",
        lambda it: it.replicas.stats.replication_bytes_out,
    ),
    _of_brokers(
        "ReassignmentBytesIn",
        "Bytes of batches that this node has fetched for replicas that a reassignment adds",
        lambda it: it.replicas.stats.reassignment_bytes_in,
    ),
    _of_brokers(
        "ReassignmentBytesOut",
        "Bytes of batches in answers to followers that a reassignment adds",
        lambda it: it.replicas.stats.reassignment_bytes_out,
    ),
)


def _of_purgatories(name: str, help: str) -> Family:
    return gauge(
        f"kafka_server_delayedoperationpurgatory_{name.lower()}",
        help,
        "delayedOperation",
        bean=f"kafka.server:type=DelayedOperationPurgatory,name={name},delayedOperation=*",
    )


_ENTRIES: Final = _of_purgatories(
    "PurgatorySize",
    "Entries of waiting requests, one for each partition that a request waits for; some are of answered requests",
)
_WAITING: Final = _of_purgatories("NumDelayedOperations", "Requests that wait")
_FETCH_EXPIRES: Final = counter(
    "kafka_server_delayedfetchmetrics_expires_total",
    "Fetches that were answered because their time was over",
    "fetcherType",
    bean="kafka.server:type=DelayedFetchMetrics,name=ExpiresPerSec,fetcherType=*",
)


class Replicas:
    """Reads the replica manager, its purgatories, the survey and the fetch sessions."""

    families: tuple[Family, ...] = (
        *[reading.family for reading in _READINGS],
        _ENTRIES,
        _WAITING,
        _FETCH_EXPIRES,
    )

    def __init__(self, sources: MetricSources, surveyor: Surveyor) -> None:
        self._sources = sources
        self._surveyor = surveyor

    def collect(self) -> Iterator[Samples]:
        replicas = self._sources.replicas
        subject = _Replication(replicas, self._surveyor.seen, self._sources.fetch_sessions.stats)
        yield from read(_READINGS, subject)
        purgatories: dict[str, Purgatory] = {
            "Produce": replicas.produce_purgatory,
            "Fetch": replicas.fetch_purgatory,
            "DeleteRecords": replicas.delete_records_purgatory,
        }
        if self._sources.share_fetch_purgatory is not None:
            purgatories["ShareFetch"] = self._sources.share_fetch_purgatory
        yield Samples(_ENTRIES, [((name,), purgatory.stats.watched) for name, purgatory in purgatories.items()])
        yield Samples(_WAITING, [((name,), purgatory.stats.pending) for name, purgatory in purgatories.items()])
        expired, of_followers = replicas.fetch_purgatory.stats.expired, replicas.stats.follower_fetches_expired
        yield Samples(_FETCH_EXPIRES, [(("consumer",), expired - of_followers), (("follower",), of_followers)])
