"""Metrics of the group coordinator: groups by state, offsets, rebalances, and partitions of ``__consumer_offsets``."""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from broker.coordinators.group.stats import GroupStats
from broker.coordinators.group_coordinator import GroupCoordinator
from broker.metrics.group_survey import GroupSurvey, GroupSurveyor
from broker.metrics.past import Past
from broker.metrics.series import US_PER_MS, Family, Reading, Samples, count, gauge, read
from broker.metrics.sources import MetricSources
from broker.runtime.histogram import average, percentiles

_KINDS: Final = ("classic", "consumer", "share", "streams")
_STATES: Final = ("PreparingRebalance", "CompletingRebalance", "Stable", "Empty", "Dead")
_STATES_OF_SHARE: Final = ("Empty", "Stable", "Dead")
_STATES_OF_CONSUMER: Final = ("Empty", "Assigning", "Reconciling", "Stable", "Dead")
_STATES_OF_STREAMS: Final = ("Empty", "NotReady", "Assigning", "Reconciling", "Stable", "Dead")
_CLASSIC: Final = "classic"
_CONSUMER: Final = "consumer"
_SHARE: Final = "share"
_STREAMS: Final = "streams"

_COORDINATOR_BEAN: Final = "kafka.server:type=group-coordinator-metrics"


class _Coordinator(NamedTuple):
    """The objects that the values are read from."""

    coordinator: GroupCoordinator
    seen: GroupSurvey
    rates: dict[str, float]
    """Rates of the counts in `GroupStats`, per second."""


def _of_manager(name: str, help: str, value: Callable[[_Coordinator], float]) -> Reading:
    bean = f"kafka.coordinator.group:type=GroupMetadataManager,name={name}"
    return Reading(gauge(f"kafka_coordinator_group_groupmetadatamanager_{name.lower()}", help, bean=bean), value)


def _in_state(state: str) -> Reading:
    return _of_manager(
        f"NumGroups{state}", f"Classic groups in the state {state}", lambda it: it.seen.states[_CLASSIC, state]
    )


def _of_coordinator(
    make: Callable[..., Family], name: str, help: str, *labels: str, bean: str = _COORDINATOR_BEAN
) -> Family:
    return make(f"kafka_server_group_coordinator_metrics_{name}", help, *labels, bean=bean)


def _counted(name: str, help: str, field: str) -> tuple[Reading, ...]:
    """Two readings of a count: the total since the start, and the rate per second."""

    def total(it: _Coordinator) -> int:
        value: int = getattr(it.coordinator.stats, field)
        return value

    return (
        Reading(_of_coordinator(count, f"{name}_count", f"{help} since the start"), total),
        Reading(
            _of_coordinator(gauge, f"{name}_rate", f"{help} a second, in the last minutes"), lambda it: it.rates[field]
        ),
    )


_READINGS: Final = (
    _of_manager("NumGroups", "Classic groups", lambda it: it.seen.kinds[_CLASSIC]),
    *map(_in_state, _STATES),
    _of_manager("NumOffsets", "Committed offsets that are kept", lambda it: it.seen.offsets),
    Reading(
        _of_coordinator(gauge, "offset_count", "Committed offsets that are kept, as Kafka 4.4 names them"),
        lambda it: it.seen.offsets,
    ),
    *_counted("offset_commit", "Offsets committed", "committed_offsets"),
    *_counted("offset_expiration", "Offsets that expired", "expired_offsets"),
    *_counted("offset_deletion", "Offsets deleted by request", "deleted_offsets"),
    *_counted("group_completed_rebalance", "Rebalances that ended with a stored assignment", "completed_rebalances"),
    *_counted("consumer_group_rebalance", "New epochs of consumer groups (KIP-848)", "consumer_rebalances"),
    *_counted("share_group_rebalance", "New epochs of share groups (KIP-932)", "share_rebalances"),
    *_counted("streams_group_rebalance", "New epochs of streams groups (KIP-1071)", "streams_rebalances"),
    Reading(
        _of_coordinator(gauge, "event_queue_size", "Changes of groups that are being written"),
        lambda it: sum(len(one.writer) for one in it.coordinator.groups.active),
    ),
    Reading(
        _of_coordinator(
            gauge,
            "partition_load_time_avg",
            "Milliseconds to load a partition of groups, on the average, in the last minutes",
        ),
        lambda it: average(it.coordinator.groups.load_times.recent()) / US_PER_MS,
    ),
    Reading(
        _of_coordinator(
            gauge, "partition_load_time_max", "Milliseconds to load a partition of groups, at most, in the last minutes"
        ),
        lambda it: percentiles(it.coordinator.groups.load_times.recent(), (1,))[0] / US_PER_MS,
    ),
    Reading(
        gauge(
            "ottla_consumergroup_left_out",
            "Groups, topics of groups and partitions of groups that are left out because the page has too many",
        ),
        lambda it: it.seen.left_out,
    ),
)
_PARTITIONS: Final = _of_coordinator(
    gauge, "num_partitions", "Partitions of __consumer_offsets by state", "state", bean=f"{_COORDINATOR_BEAN},state=*"
)
_GROUPS: Final = _of_coordinator(
    gauge,
    "group_count",
    "Groups by protocol: classic, consumer, share and streams groups",
    "protocol",
    bean=f"{_COORDINATOR_BEAN},protocol=*",
)
_CLASSIC_GROUPS: Final = _of_coordinator(
    gauge,
    "classic_group_count",
    "Classic groups by state, as Kafka 4.4 names them",
    "state",
    bean=f"{_COORDINATOR_BEAN},state=*",
)
_CONSUMER_GROUPS: Final = _of_coordinator(
    gauge,
    "consumer_group_count",
    "Groups of the consumer protocol (KIP-848) by state",
    "state",
    bean=f"{_COORDINATOR_BEAN},state=*",
)
_SHARE_GROUPS: Final = _of_coordinator(
    gauge,
    "share_group_count",
    "Share groups (KIP-932) by state",
    "state",
    bean=f"{_COORDINATOR_BEAN},state=*",
)

_STREAMS_GROUPS: Final = _of_coordinator(
    gauge,
    "streams_group_count",
    "Streams groups (KIP-1071) by state",
    "state",
    bean=f"{_COORDINATOR_BEAN},state=*",
)


class Groups:
    """Reads the group coordinator and the survey of its groups."""

    families: tuple[Family, ...] = (
        *[reading.family for reading in _READINGS],
        _PARTITIONS,
        _GROUPS,
        _CLASSIC_GROUPS,
        _CONSUMER_GROUPS,
        _SHARE_GROUPS,
        _STREAMS_GROUPS,
    )

    def __init__(self, sources: MetricSources, surveyor: GroupSurveyor) -> None:
        self._sources = sources
        self._surveyor = surveyor
        self._counts: Past[str] = Past(sources.clock, sources.started_ms, self._counted)
        sources.on_period.append(self._counts.period_is_over)

    def _counted(self) -> dict[str, int]:
        coordinator = self._sources.group_coordinator
        stats = GroupStats() if coordinator is None else coordinator.stats
        return {field: getattr(stats, field) for field in GroupStats.__slots__}

    def collect(self) -> Iterator[Samples]:
        coordinator = self._sources.group_coordinator
        if coordinator is None:
            return
        seen = self._surveyor.seen
        yield from read(_READINGS, _Coordinator(coordinator, seen, self._counts.rates()))
        groups = coordinator.groups
        yield Samples(
            _PARTITIONS, [(("loading",), groups.loading), (("active",), len(groups.active)), (("failed",), 0)]
        )
        yield Samples(_GROUPS, [((kind,), seen.kinds[kind]) for kind in _KINDS])
        yield Samples(_CLASSIC_GROUPS, [((state,), seen.states[_CLASSIC, state]) for state in _STATES])
        yield Samples(_CONSUMER_GROUPS, [((state,), seen.states[_CONSUMER, state]) for state in _STATES_OF_CONSUMER])
        yield Samples(_SHARE_GROUPS, [((state,), seen.states[_SHARE, state]) for state in _STATES_OF_SHARE])
        yield Samples(_STREAMS_GROUPS, [((state,), seen.states[_STREAMS, state]) for state in _STATES_OF_STREAMS])
