"""Metrics of the controller: the cluster according to the metadata."""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from broker.metadata.cache import MetadataCache
from broker.metrics.series import Family, Reading, Samples, counter, gauge, read
from broker.metrics.sources import MetricSources
from broker.metrics.survey import Survey, Surveyor
from broker.raft.single_voter_log import SingleVoterLog
from protocol.records.cluster_metadata import RegisterBrokerRecord


class _Cluster(NamedTuple):
    """The objects that the values are read from."""

    log: SingleVoterLog
    metadata: MetadataCache
    seen: Survey

    def brokers(self, is_one: Callable[[RegisterBrokerRecord], bool]) -> int:
        """How many brokers of a kind are registered."""
        return sum(map(is_one, self.metadata.image.cluster.brokers.values()))


def _gauge(name: str, help: str, value: Callable[[_Cluster], float]) -> Reading:
    bean = f"kafka.controller:type=KafkaController,name={name}"
    return Reading(gauge(f"kafka_controller_kafkacontroller_{name.lower()}", help, bean=bean), value)


def _never(name: str, help: str) -> Reading:
    bean = f"kafka.controller:type=ControllerStats,name={name}PerSec"
    family = counter(f"kafka_controller_controllerstats_{name.lower()}_total", f"{help}: always 0", bean=bean)
    return Reading(family, lambda _: 0)


_READINGS: Final = (
    _gauge("ActiveControllerCount", "1 if this node is the active controller", lambda _: 1),
    _gauge(
        "ActiveBrokerCount", "Brokers that are registered and not fenced", lambda it: it.brokers(lambda b: not b.fenced)
    ),
    _gauge("FencedBrokerCount", "Brokers that are registered and fenced", lambda it: it.brokers(lambda b: b.fenced)),
    _gauge(
        "ControlledShutdownBrokerCount",
        "Brokers that are shutting down in order",
        lambda it: it.brokers(lambda b: b.in_controlled_shutdown),
    ),
    _gauge("GlobalTopicCount", "Topics", lambda it: len(it.seen.topics)),
    _gauge("GlobalPartitionCount", "Partitions", lambda it: sum(topic.partitions for topic in it.seen.topics)),
    _gauge("OfflinePartitionsCount", "Partitions without a leader", lambda it: it.seen.leaderless),
    _gauge(
        "PreferredReplicaImbalanceCount",
        "Partitions whose leader is not their first replica",
        lambda it: it.seen.not_led_as_preferred,
    ),
    _gauge(
        "LastAppliedRecordOffset",
        "Offset of the last metadata record that the controller has applied",
        lambda it: it.metadata.image.end_offset - 1,
    ),
    _gauge(
        "LastAppliedRecordTimestamp",
        "When the last metadata record was written, in milliseconds since 1970",
        lambda it: it.log.last_append_ms,
    ),
    _gauge(
        "LastAppliedRecordLagMs",
        "Milliseconds that the controller is behind the log: always 0, it is the active controller",
        lambda _: 0,
    ),
    _gauge(
        "LastCommittedRecordOffset", "Offset of the last metadata record on disk", lambda it: it.log.high_watermark - 1
    ),
    _gauge("EventQueueOperationsStartedCount", "Changes of the metadata", lambda it: it.log.stats.appends),
    _gauge(
        "EventQueueOperationsTimedOutCount",
        "Changes of the metadata that timed out before they began: always 0",
        lambda _: 0,
    ),
    _gauge("NewActiveControllersCount", "Elections of a controller in this run: one, its own", lambda _: 1),
    _gauge(
        "MetadataErrorCount", "Metadata that could not be applied: always 0, the broker stops at the first", lambda _: 0
    ),
    _gauge("TimedOutBrokerHeartbeatCount", "Brokers that were fenced for missing heartbeats: always 0", lambda _: 0),
    _never("UncleanLeaderElections", "Elected leaders that were not in sync"),
    _never("ElectionFromEligibleLeaderReplicas", "Leaders elected from the eligible leader replicas (KIP-966)"),
)


class Controller:
    """Reads the metadata log, its image and the survey."""

    families: tuple[Family, ...] = tuple(reading.family for reading in _READINGS)

    def __init__(self, sources: MetricSources, surveyor: Surveyor) -> None:
        self._sources = sources
        self._surveyor = surveyor

    def collect(self) -> Iterator[Samples]:
        if self._sources.metadata_log is not None:
            yield from read(
                _READINGS, _Cluster(self._sources.metadata_log, self._sources.metadata, self._surveyor.seen)
            )
