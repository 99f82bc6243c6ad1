"""Metrics of the metadata log: its quorum, its records, snapshots and features."""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from broker.handlers.api_versions import SUPPORTED_FEATURES
from broker.metrics.past import Past
from broker.metrics.series import US_PER_MS, Counted, Family, Reading, Samples, distribution, gauge, read
from broker.metrics.sources import MetricSources
from broker.raft.single_voter_log import SingleVoterLog
from broker.runtime.histogram import average, percentiles

_KRAFT_VERSION: Final = "kraft.version"
_LEADER: Final = "leader"

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
    """The objects that the values are read from."""

    sources: MetricSources
    log: SingleVoterLog
    records_a_second: float

    def commit_ms(self) -> tuple[float, float]:
        """Milliseconds from append to disk in the last minutes: the average and the maximum."""
        recent = self.log.stats.commits.recent()
        return average(recent) / US_PER_MS, percentiles(recent, (1,))[0] / US_PER_MS


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
    _of_loader("CurrentControllerId", "Node that is the controller", lambda it: it.sources.settings.node_id),
    _of_loader("HandleLoadSnapshotCount", "Snapshots loaded at the start", lambda it: it.log.stats.snapshots_loaded),
    _of_snapshots(
        "LatestSnapshotGeneratedBytes",
        "Size of the last snapshot that was written in this run; 0 if none was",
        lambda it: it.log.stats.snapshot_bytes,
    ),
    _of_snapshots(
        "LatestSnapshotGeneratedAgeMs",
        "Milliseconds since the last snapshot was written; since the start if none was",
        lambda it: it.sources.clock.now_ms() - it.log.stats.snapshot_ms,
    ),
    *_of_raft("current_epoch", "Epoch of the quorum's leader", lambda it: it.log.leader_epoch),
    *_of_raft("current_leader", "Node that leads the quorum", lambda it: it.sources.settings.node_id),
    *_of_raft("current_vote", "Node that this node voted for", lambda it: it.sources.settings.node_id),
    *_of_raft("high_watermark", "Offset below which the log is committed", lambda it: it.log.high_watermark),
    *_of_raft("log_end_offset", "Offset of the next record", lambda it: it.log.end_offset),
    *_of_raft("log_end_epoch", "Epoch of the last record", lambda it: it.log.log.leader_epochs.latest),
    *_of_raft("number_of_voters", "Voters", lambda it: len(it.log.quorum.voters.voters) if it.log.quorum.voters else 1),
    *_of_raft("number_of_observers", "Observers: always 0", lambda _: 0),
    *_of_raft("number_unknown_voter_connections", "Voters whose address is not known: always 0", lambda _: 0),
    *_of_raft("uncommitted_voter_change", "1 while the voters are being changed: always 0", lambda _: 0),
    *_of_raft("append_records_rate", "Records written a second, in the last minutes", lambda it: it.records_a_second),
    *_of_raft("fetch_records_rate", "Records fetched from the leader a second: always 0, this node leads", lambda _: 0),
    *_of_raft(
        "commit_latency_avg", "Milliseconds until records were committed, on the average", lambda it: it.commit_ms()[0]
    ),
    *_of_raft(
        "commit_latency_max",
        "Milliseconds until records were committed, at most, in the last minutes",
        lambda it: it.commit_ms()[1],
    ),
    *_of_broker(
        "last_applied_record_offset",
        "Offset of the last metadata record that the broker has applied",
        lambda it: it.sources.metadata.image.end_offset - 1,
    ),
    *_of_broker(
        "last_applied_record_timestamp",
        "When the last applied metadata record was written, in milliseconds since 1970",
        lambda it: it.log.last_append_ms,
    ),
    *_of_broker("last_applied_record_lag_ms", "How far the broker is behind its controller: always 0", lambda _: 0),
    *_of_broker(
        "metadata_load_error_count",
        "Metadata that could not be read: always 0, the broker stops at the first",
        lambda _: 0,
    ),
    *_of_broker(
        "metadata_apply_error_count",
        "Metadata that could not be applied: always 0, the broker stops at the first",
        lambda _: 0,
    ),
)


class Metadata:
    """Reads the metadata log."""

    families: tuple[Family, ...] = (
        *[reading.family for reading in _READINGS], *_STATES, _MOST, _LEAST, _FINALIZED, *_BATCH_TIMES, *_BATCH_SIZES,
    )  # fmt: skip

    def __init__(self, sources: MetricSources) -> None:
        self._sources = sources
        self._written: Past[str] = Past(sources.clock, sources.started_ms, self._records)
        sources.on_period.append(self._written.period_is_over)

    def _records(self) -> dict[str, int]:
        log = self._sources.metadata_log
        return {"records": 0 if log is None else log.stats.records}

    def collect(self) -> Iterator[Samples]:
        log = self._sources.metadata_log
        if log is None:
            return
        yield from read(_READINGS, _Quorum(self._sources, log, self._written.rates()["records"]))
        for family in _STATES:
            yield Samples(family, [((_LEADER,), 1)])
        stats = log.stats
        for families, histogram in ((_BATCH_TIMES, stats.publications), (_BATCH_SIZES, stats.published)):
            yield from families.collect([Counted((), histogram.recent(), stats.appends)])
        yield from self._features(log)

    def _features(self, log: SingleVoterLog) -> Iterator[Samples]:
        supported = {name.replace(".", "-"): levels for name, levels in SUPPORTED_FEATURES.items()}
        yield Samples(_MOST, [((name,), most) for name, (_, most) in supported.items()])
        yield Samples(_LEAST, [((name,), least) for name, (least, _) in supported.items()])
        levels = {**dict.fromkeys(SUPPORTED_FEATURES, 0), **self._sources.metadata.image.features.levels}
        levels[_KRAFT_VERSION] = log.quorum.kraft_version
        yield Samples(_FINALIZED, [((_camel_case(name),), level) for name, level in levels.items()])


def _camel_case(name: str) -> str:
    """``metadata.version`` as the bean calls it: ``metadataVersion``."""
    first, *others = name.split(".")
    return first + "".join(map(str.capitalize, others))
