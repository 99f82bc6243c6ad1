"""Metrics of the controller: the cluster according to the metadata."""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from broker.controller.local_controller import LocalController
from broker.metadata.cache import MetadataCache
from broker.metrics.series import Family, Reading, Samples, counter, gauge, read
from broker.metrics.sources import MetricSources
from broker.metrics.survey import Survey, Surveyor
from broker.raft.single_voter_log import SingleVoterLog
from protocol.records.cluster_metadata import RegisterBrokerRecord

FENCED: Final = 10
SHUTTING_DOWN: Final = 20
ACTIVE: Final = 30
"""The states of a registered broker, by Kafka's numbers."""


class _Cluster(NamedTuple):
    """The objects that the values are read from."""

    log: SingleVoterLog
    controller: LocalController
    metadata: MetadataCache
    seen: Survey

    def brokers(self, is_one: Callable[[RegisterBrokerRecord], bool]) -> int:
        """How many brokers of a kind are registered."""
        return sum(map(is_one, self.metadata.image.cluster.brokers.values()))


def _gauge(name: str, help: str, value: Callable[[_Cluster], float]) -> Reading:
    bean = f"kafka.controller:type=KafkaController,name={name}"
    return Reading(gauge(f"kafka_controller_kafkacontroller_{name.lower()}", help, bean=bean), value)


def _elections(name: str, help: str, value: Callable[[_Cluster], float]) -> Reading:
    bean = f"kafka.controller:type=ControllerStats,name={name}PerSec"
    return Reading(counter(f"kafka_controller_controllerstats_{name.lower()}_total", help, bean=bean), value)


def _of_broker(name: str, help: str) -> Family:
    bean = f"kafka.controller:type=KafkaController,name={name},broker=*"
    return gauge(f"kafka_controller_kafkacontroller_{name.lower()}", help, "broker", bean=bean)


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
    _gauge(
        "TimedOutBrokerHeartbeatCount",
        "Brokers that were fenced for missing heartbeats",
        lambda it: it.controller.sessions.timed_out,
    ),
    _elections(
        "UncleanLeaderElections",
        "Elected leaders that were not in sync, the last leader in sync that is back among them",
        lambda it: it.controller.elections.unclean,
    ),
    _elections(
        "ElectionFromEligibleLeaderReplicas",
        "Leaders elected from the eligible leader replicas (KIP-966)",
        lambda it: it.controller.elections.eligible,
    ),
)
REGISTRATION_STATE: Final = _of_broker(
    "BrokerRegistrationState", "State of a registered broker: 10 fenced, 20 shutting down in order, 30 active"
)
UNCLEAN_ELECTIONS: Final = counter(
    "ottla_controller_unclean_elections_total",
    "Unclean elections by their leader: out_of_sync may lack acknowledged records; last_in_sync was the last leader in "
    "sync, is back after a stop that was not in order, and lacks only what its machine has lost with its power",
    "leader",
)
HEARTBEAT_AGE: Final = _of_broker(
    "TimeSinceLastHeartbeatReceivedMs",
    "Milliseconds since a broker's last heartbeat; 0 for this node's own, which needs none",
)


class Controller:
    """Reads the controller, the metadata log, its image and the survey."""

    families: tuple[Family, ...] = (
        *[reading.family for reading in _READINGS],
        UNCLEAN_ELECTIONS,
        REGISTRATION_STATE,
        HEARTBEAT_AGE,
    )

    def __init__(self, sources: MetricSources, surveyor: Surveyor) -> None:
        self._sources = sources
        self._surveyor = surveyor

    def collect(self) -> Iterator[Samples]:
        log, controller = self._sources.metadata_log, self._sources.controller
        if log is None or controller is None:
            return
        yield from read(_READINGS, _Cluster(log, controller, self._sources.metadata, self._surveyor.seen))
        elections = controller.elections
        unclean = {"out_of_sync": elections.out_of_sync, "last_in_sync": elections.last_in_sync}
        yield Samples(UNCLEAN_ELECTIONS, [((leader,), number) for leader, number in unclean.items()])
        brokers = self._sources.metadata.image.cluster.brokers
        yield Samples(REGISTRATION_STATE, [((str(id_),), _state(broker)) for id_, broker in brokers.items()])
        now_ms, sessions = self._sources.clock.monotonic_ms(), controller.sessions
        ages = {broker: sessions.silent_ms(broker, now_ms) for broker in brokers}
        yield Samples(HEARTBEAT_AGE, [((str(broker),), age or 0) for broker, age in ages.items()])


def _state(broker: RegisterBrokerRecord) -> int:
    if broker.fenced:
        return FENCED
    return SHUTTING_DOWN if broker.in_controlled_shutdown else ACTIVE
