"""Metrics of the share coordinator: partitions of ``__share_group_state``, writes of state, and pruning."""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from broker.coordinators.share_coordinator import ShareCoordinator
from broker.metadata.topic_rules import SHARE_GROUP_STATE
from broker.metrics.past import Past
from broker.metrics.series import US_PER_MS, Family, Reading, Samples, counter, gauge, read
from broker.metrics.sources import MetricSources
from broker.runtime.histogram import average, percentiles

_BEAN: Final = "kafka.server:type=share-coordinator-metrics"


class _Coordinator(NamedTuple):
    """The objects that the values are read from."""

    coordinator: ShareCoordinator
    writes_per_second: float


def _named(make: Callable[..., Family], name: str, help: str, *labels: str) -> Family:
    return make(f"kafka_server_share_coordinator_metrics_{name}", help, *labels, bean=_BEAN)


def _write_times(it: _Coordinator) -> list[int]:
    return it.coordinator.stats.write_times.recent()


def _load_times(it: _Coordinator) -> list[int]:
    return it.coordinator.shares.load_times.recent()


_READINGS: Final = (
    Reading(
        _named(counter, "write_total", "Writes of the state of share groups since the start"),
        lambda it: it.coordinator.stats.writes,
    ),
    Reading(
        _named(gauge, "write_rate", "Writes of the state of share groups a second, in the last minutes"),
        lambda it: it.writes_per_second,
    ),
    Reading(
        _named(gauge, "write_latency_avg", "Milliseconds until such a write is answered, on the average"),
        lambda it: average(_write_times(it)) / US_PER_MS,
    ),
    Reading(
        _named(gauge, "write_latency_max", "Milliseconds until such a write is answered, at most"),
        lambda it: percentiles(_write_times(it), (1,))[0] / US_PER_MS,
    ),
    Reading(
        _named(gauge, "partition_load_time_avg", "Milliseconds to load a partition of states, on the average"),
        lambda it: average(_load_times(it)) / US_PER_MS,
    ),
    Reading(
        _named(gauge, "partition_load_time_max", "Milliseconds to load a partition of states, at most"),
        lambda it: percentiles(_load_times(it), (1,))[0] / US_PER_MS,
    ),
    Reading(
        gauge("ottla_share_states", "States of share groups, one for each partition that a group shares"),
        lambda it: sum(len(one.shard.image.by_key) for one in it.coordinator.shares.active),
    ),
)
_PARTITIONS: Final = gauge(
    "kafka_server_share_coordinator_metrics_num_partitions",
    "Partitions of __share_group_state by state",
    "state",
    bean=f"{_BEAN},state=*",
)
_PRUNED: Final = gauge(
    "kafka_server_share_coordinator_metrics_last_pruned_offset",
    "Up to where a partition of __share_group_state was pruned last",
    "topic",
    "partition",
    bean=f"{_BEAN},topic=*,partition=*",
)
_WRITES: Final = "writes"


class ShareStates:
    """Reads the share coordinator."""

    families: tuple[Family, ...] = (*[reading.family for reading in _READINGS], _PARTITIONS, _PRUNED)

    def __init__(self, sources: MetricSources) -> None:
        self._sources = sources
        self._counts: Past[str] = Past(sources.clock, sources.started_ms, self._counted)
        sources.on_period.append(self._counts.period_is_over)

    def _counted(self) -> dict[str, int]:
        coordinator = self._sources.share_coordinator
        return {_WRITES: 0 if coordinator is None else coordinator().stats.writes}

    def collect(self) -> Iterator[Samples]:
        if self._sources.share_coordinator is None:
            return
        coordinator = self._sources.share_coordinator()
        yield from read(_READINGS, _Coordinator(coordinator, self._counts.rates()[_WRITES]))
        shares = coordinator.shares
        yield Samples(
            _PARTITIONS, [(("loading",), shares.loading), (("active",), len(shares.active)), (("failed",), 0)]
        )
        pruned = coordinator.stats.pruned_offsets.items()
        yield Samples(_PRUNED, [((SHARE_GROUP_STATE, str(index)), offset) for index, offset in pruned])
