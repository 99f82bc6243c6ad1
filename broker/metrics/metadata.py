"""Metrics of the metadata log: its quorum, its records, snapshots and features."""

from collections.abc import Callable, Iterator
from math import nan
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from broker.metadata.registration import SUPPORTED_FEATURES
from broker.metrics.past import Past
from broker.metrics.series import US_PER_MS, Counted, Family, Reading, Samples, distribution, gauge, read
from broker.metrics.sources import MetricSources
from broker.raft.client import RaftClient
from broker.raft.single_voter_log import SingleVoterLog
from broker.request.node import NO_NODE
from broker.runtime.histogram import RecentHistogram, average, percentiles

if TYPE_CHECKING:
    from broker.membership.cluster_membership import ClusterMembership

_KRAFT_VERSION: Final = "kraft.version"

_NODE: Final = "kafka.server:type=node-metrics,feature-name=*"
_MOST: Final = gauge(
    "kafka_server_node_metrics_maximum_supported_level", "Highest level of a feature here", "feature_name", bean=_NODE
)
_LEAST: Final = gauge(
    "kafka_server_node_metrics_minimum_supported_level", "Lowest level of a feature here", "feature_name", bean=_NODE
)
_FINALIZED: Final = gauge(
    "kafka_server_metadataloader_finalizedlevel",
    "Level at which a feature is finalised",
    "featureName",
    bean="kafka.server:type=MetadataLoader,name=FinalizedLevel,featureName=*",
)
_BATCH_TIMES: Final = distribution(
    "kafka_server_brokermetadatalistener_metadatabatchprocessingtimeus",
    "Microseconds to publish new metadata to all subscribers",
    bean="kafka.server:type=BrokerMetadataListener,name=MetadataBatchProcessingTimeUs",
)
_BATCH_SIZES: Final = distribution(
    "kafka_server_brokermetadatalistener_metadatabatchsizes",
    "Metadata records that were published together",
    bean="kafka.server:type=BrokerMetadataListener,name=MetadataBatchSizes",
)
_STATES: Final = (
    gauge("kafka_server_raft_metrics_current_state_info", "1 with the state of this node in the quorum", "state"),
    gauge(
        "kafka_server_raft_metrics_current_state",
        "1 with the state of this node in the quorum, as newer exporters write it",
        "state",
    ),
    gauge(
        "kafka_server_raftmetrics_current_state",
        "1 with the state of this node in the quorum, as Strimzi's rules write it",
        "current_state",
    ),
)


class _Quorum(NamedTuple):
    """What the values are read from, on a node that leads the quorum, and on a node that observes it."""

    sources: MetricSources
    raft: RaftClient
    state: str
    vote: int
    last_epoch: int
    last_append_ms: int
    lag_ms: int
    snapshots_loaded: int
    snapshot_bytes: int
    snapshot_ms: int
    load_errors: int
    appended_a_second: float
    fetched_a_second: float
    commit_ms: tuple[float, float]
    """Milliseconds from append to disk in the last minutes: the average and the maximum."""
    publications: RecentHistogram
    published: RecentHistogram
    commits: int

    @classmethod
    def of_leader(cls, sources: MetricSources, log: SingleVoterLog, records_a_second: float) -> Self:
        stats = log.stats
        recent = stats.commits.recent()
        return cls(
            sources,
            log,
            state="leader",
            vote=log.leader_id,
            last_epoch=log.log.leader_epochs.latest,
            last_append_ms=log.last_append_ms,
            lag_ms=0,
            snapshots_loaded=stats.snapshots_loaded,
            snapshot_bytes=stats.snapshot_bytes,
            snapshot_ms=stats.snapshot_ms,
            load_errors=0,
            appended_a_second=records_a_second,
            fetched_a_second=0,
            commit_ms=(average(recent) / US_PER_MS, percentiles(recent, (1,))[0] / US_PER_MS),
            publications=stats.publications,
            published=stats.published,
            commits=stats.appends,
        )

    @classmethod
    def of_observer(cls, sources: MetricSources, membership: "ClusterMembership", records_a_second: float) -> Self:
        observer, quorum = membership.raft, membership.quorum
        now_ms = sources.clock.now_ms()
        return cls(
            sources,
            observer,
            state="observer",
            vote=NO_NODE,
            last_epoch=observer.last_epoch,
            last_append_ms=observer.last_append_ms,
            lag_ms=max(now_ms - observer.last_append_ms, 0) if observer.last_append_ms else 0,
            snapshots_loaded=observer.stats.snapshots_loaded,
            snapshot_bytes=0,
            snapshot_ms=now_ms - (sources.clock.monotonic_ms() - sources.started_ms),
            load_errors=observer.stats.answers_refused,
            appended_a_second=0,
            fetched_a_second=records_a_second,
            commit_ms=(nan, nan),
            publications=quorum.publications,
            published=quorum.published,
            commits=observer.stats.commits,
        )

    @property
    def observers(self) -> int:
        """How many nodes follow the metadata log of this node."""
        observers = self.sources.observers
        return 0 if observers is None else len(observers.positions(self.sources.clock.now_ms()))


Value = Callable[[_Quorum], float]


def _of_loader(name: str, help: str, value: Value) -> Reading:
    bean = f"kafka.server:type=MetadataLoader,name={name}"
    return Reading(gauge(f"kafka_server_metadataloader_{name.lower()}", help, bean=bean), value)


def _of_snapshots(name: str, help: str, value: Value) -> Reading:
    bean = f"kafka.server:type=SnapshotEmitter,name={name}"
    return Reading(gauge(f"kafka_server_snapshotemitter_{name.lower()}", help, bean=bean), value)


def _under_both(bean: str, name: str, help: str, value: Value) -> tuple[Reading, ...]:
    """Readings under two names: two sets of JMX exporter rules are in use for these beans, with boards for each."""
    kafka_bean = f"kafka.server:type={bean}"
    return tuple(
        Reading(gauge(f"kafka_server_{prefix}_{name}", help, bean=kafka_bean), value)
        for prefix in (bean.replace("-", "_"), bean.replace("-", ""))
    )


def _of_raft(name: str, help: str, value: Value) -> tuple[Reading, ...]:
    return _under_both("raft-metrics", name, help, value)


def _of_broker(name: str, help: str, value: Value) -> tuple[Reading, ...]:
    return _under_both("broker-metadata-metrics", name, help, value)


_READINGS: Final = (
    _of_loader(
        "CurrentMetadataVersion",
        "Level of metadata.version",
        lambda it: it.sources.metadata.image.features.metadata_version,
    ),
    _of_loader(
        "CurrentControllerId", "Node that is the controller; -1 while none is known", lambda it: it.raft.leader_id
    ),
    _of_loader("HandleLoadSnapshotCount", "Snapshots loaded", lambda it: it.snapshots_loaded),
    _of_snapshots(
        "LatestSnapshotGeneratedBytes",
        "Size of the last snapshot that was written in this run; 0 if none was",
        lambda it: it.snapshot_bytes,
    ),
    _of_snapshots(
        "LatestSnapshotGeneratedAgeMs",
        "Milliseconds since the last snapshot was written; since the start if none was",
        lambda it: it.sources.clock.now_ms() - it.snapshot_ms,
    ),
    *_of_raft("current_epoch", "Epoch of the quorum's leader", lambda it: it.raft.leader_epoch),
    *_of_raft("current_leader", "Node that leads the quorum; -1 while none is known", lambda it: it.raft.leader_id),
    *_of_raft("current_vote", "Node that this node voted for; -1 on an observer", lambda it: it.vote),
    *_of_raft("high_watermark", "Offset below which the log is committed", lambda it: it.raft.high_watermark),
    *_of_raft("log_end_offset", "Offset of the next record", lambda it: it.raft.end_offset),
    *_of_raft("log_end_epoch", "Epoch of the last record", lambda it: it.last_epoch),
    *_of_raft(
        "number_of_voters", "Voters", lambda it: len(it.raft.quorum.voters.voters) if it.raft.quorum.voters else 1
    ),
    *_of_raft("number_unknown_voter_connections", "Voters whose address is not known: always 0", lambda _: 0),
    *_of_raft(
        "append_records_rate",
        "Records written a second, in the last minutes; 0 on an observer",
        lambda it: it.appended_a_second,
    ),
    *_of_raft(
        "fetch_records_rate",
        "Records fetched from the leader a second, in the last minutes; 0 on the leader",
        lambda it: it.fetched_a_second,
    ),
    *_of_raft(
        "commit_latency_avg",
        "Milliseconds until records were committed, on the average; NaN on an observer",
        lambda it: it.commit_ms[0],
    ),
    *_of_raft(
        "commit_latency_max",
        "Milliseconds until records were committed, at most, in the last minutes; NaN on an observer",
        lambda it: it.commit_ms[1],
    ),
    *_of_broker(
        "last_applied_record_offset",
        "Offset of the last metadata record that the broker has applied",
        lambda it: it.sources.metadata.image.end_offset - 1,
    ),
    *_of_broker(
        "last_applied_record_timestamp",
        "When the last applied metadata record was written, in milliseconds since 1970",
        lambda it: it.last_append_ms,
    ),
    *_of_broker(
        "last_applied_record_lag_ms",
        "Milliseconds since the last applied metadata record was written; 0 where this node is the controller",
        lambda it: it.lag_ms,
    ),
    *_of_broker(
        "metadata_load_error_count",
        "Answers of controllers with metadata that could not be read",
        lambda it: it.load_errors,
    ),
    *_of_broker(
        "metadata_apply_error_count",
        "Metadata that could not be applied: always 0, the broker stops at the first",
        lambda _: 0,
    ),
)


_OF_LEADER: Final = (
    *_of_raft("number_of_observers", "Nodes that follow the metadata log of this node", lambda it: it.observers),
    *_of_raft("uncommitted_voter_change", "1 while the voters are being changed: always 0", lambda _: 0),
)


class Metadata:
    """Reads the metadata log of this node, or what this node has of the log of controllers elsewhere."""

    families: tuple[Family, ...] = (
        *[reading.family for reading in (*_READINGS, *_OF_LEADER)], *_STATES, _MOST, _LEAST, _FINALIZED,
        *_BATCH_TIMES, *_BATCH_SIZES,
    )  # fmt: skip

    def __init__(self, sources: MetricSources) -> None:
        self._sources = sources
        self._written: Past[str] = Past(sources.clock, sources.started_ms, self._records)
        sources.on_period.append(self._written.period_is_over)

    def _records(self) -> dict[str, int]:
        log, membership = self._sources.metadata_log, self._sources.membership
        if log is not None:
            return {"records": log.stats.records}
        return {"records": 0 if membership is None else membership.raft.stats.records_fetched}

    def _quorum(self) -> _Quorum | None:
        log, membership = self._sources.metadata_log, self._sources.membership
        rate = self._written.rates()["records"]
        if log is not None:
            return _Quorum.of_leader(self._sources, log, rate)
        return None if membership is None else _Quorum.of_observer(self._sources, membership, rate)

    def collect(self) -> Iterator[Samples]:
        quorum = self._quorum()
        if quorum is None:
            return
        yield from read(_READINGS, quorum)
        if self._sources.metadata_log is not None:
            yield from read(_OF_LEADER, quorum)
        for family in _STATES:
            yield Samples(family, [((quorum.state,), 1)])
        for families, histogram in ((_BATCH_TIMES, quorum.publications), (_BATCH_SIZES, quorum.published)):
            yield from families.collect([Counted((), histogram.recent(), quorum.commits)])
        yield from self._features(quorum.raft)

    def _features(self, raft: RaftClient) -> Iterator[Samples]:
        supported = {name.replace(".", "-"): levels for name, levels in SUPPORTED_FEATURES.items()}
        yield Samples(_MOST, [((name,), most) for name, (_, most) in supported.items()])
        yield Samples(_LEAST, [((name,), least) for name, (least, _) in supported.items()])
        levels = {**dict.fromkeys(SUPPORTED_FEATURES, 0), **self._sources.metadata.image.features.levels}
        levels[_KRAFT_VERSION] = raft.quorum.kraft_version
        yield Samples(_FINALIZED, [((_camel_case(name),), level) for name, level in levels.items()])


def _camel_case(name: str) -> str:
    """``metadata.version`` as the bean calls it: ``metadataVersion``."""
    first, *others = name.split(".")
    return first + "".join(map(str.capitalize, others))
