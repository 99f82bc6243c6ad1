"""Metrics of the transaction coordinator: transactional ids by state, ends, markers, and verified partitions."""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from broker.coordinators.transaction.stats import TransactionStats
from broker.coordinators.transaction_coordinator import TransactionCoordinator
from broker.metrics.series import (
    US_PER_MS,
    Counted,
    Family,
    Reading,
    Samples,
    count,
    counter,
    distribution,
    gauge,
    read,
)
from broker.metrics.sources import MetricSources
from broker.runtime.histogram import average, percentiles
from protocol.records.transaction_state import TransactionStatus

_MS_PER_S: Final = 1000

_STATES: Final = (
    ("Empty", TransactionStatus.EMPTY),
    ("Ongoing", TransactionStatus.ONGOING),
    ("PrepareCommit", TransactionStatus.PREPARE_COMMIT),
    ("PrepareAbort", TransactionStatus.PREPARE_ABORT),
    ("CompleteCommit", TransactionStatus.COMPLETE_COMMIT),
    ("CompleteAbort", TransactionStatus.COMPLETE_ABORT),
)


class _Coordinator(NamedTuple):
    """The objects that the values are read from."""

    coordinator: TransactionCoordinator
    oldest_open_ms: int
    """How long the oldest open transaction has been open, in milliseconds."""

    @property
    def stats(self) -> TransactionStats:
        return self.coordinator.stats


Value = Callable[[_Coordinator], float]


def _of_markers(name: str, help: str, value: Value) -> Reading:
    bean = f"kafka.coordinator.transaction:type=TransactionMarkerChannelManager,name={name}"
    family = gauge(f"kafka_coordinator_transaction_transactionmarkerchannelmanager_{name.lower()}", help, bean=bean)
    return Reading(family, value)


def _of_loading(name: str, help: str, value: Value) -> Reading:
    bean = "kafka.server:type=transaction-coordinator-metrics"
    return Reading(gauge(f"kafka_server_transaction_coordinator_metrics_{name}", help, bean=bean), value)


def _load_times(it: _Coordinator) -> list[int]:
    return it.coordinator.transactions.load_times.recent()


_VERIFIED: Final = "kafka_server_addpartitionstotxnmanager"
_VERIFIED_BEAN: Final = "kafka.server:type=AddPartitionsToTxnManager"

_READINGS: Final = (
    _of_markers(
        "UnknownDestinationQueueSize",
        "Markers that could not be written now and wait for their next attempt",
        lambda it: it.coordinator.markers.waiting,
    ),
    _of_markers(
        "LogAppendRetryQueueSize",
        "Transactions whose markers are written, and whose last record waits for its next attempt",
        lambda it: it.stats.ends_to_retry,
    ),
    _of_loading(
        "partition_load_time_avg",
        "Milliseconds to load a partition of transactions, on the average, in the last minutes",
        lambda it: average(_load_times(it)) / US_PER_MS,
    ),
    _of_loading(
        "partition_load_time_max",
        "Milliseconds to load a partition of transactions, at most, in the last minutes",
        lambda it: percentiles(_load_times(it), (1,))[0] / US_PER_MS,
    ),
    Reading(
        count(
            f"{_VERIFIED}_verificationfailurerate_count",
            "Partitions since the start that a transaction wanted to write to and may not",
            bean=f"{_VERIFIED_BEAN},name=VerificationFailureRate",
        ),
        lambda it: it.stats.verification.refused_partitions,
    ),
    Reading(
        gauge("ottla_transaction_oldest_open_seconds", "How long the oldest open transaction is open; 0 without any"),
        lambda it: it.oldest_open_ms / _MS_PER_S,
    ),
    Reading(
        counter(
            "ottla_transactions_timed_out_total",
            "Transactions aborted because they were open for longer than their timeout",
        ),
        lambda it: it.stats.timed_out,
    ),
    Reading(
        counter("ottla_transactional_ids_expired_total", "Transactional ids forgotten because they were idle"),
        lambda it: it.stats.expired,
    ),
)
_VERIFICATION: Final = distribution(
    f"{_VERIFIED}_verificationtimems",
    "Milliseconds to find out whether a transaction may write to partitions, or to add them to it",
    bean=f"{_VERIFIED_BEAN},name=VerificationTimeMs",
)
_IDS: Final = gauge("ottla_transactional_ids", "Transactional ids by state", "state")
_ENDED: Final = counter("ottla_transactions_ended_total", "Transactions ended, their markers written", "outcome")


class Transactions:
    """Reads the transaction coordinator."""

    families: tuple[Family, ...] = (
        *[reading.family for reading in _READINGS],
        _VERIFICATION.quantiles,
        _VERIFICATION.totals,
        _IDS,
        _ENDED,
    )

    def __init__(self, sources: MetricSources) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Samples]:
        if self._sources.transaction_coordinator is None:
            return
        coordinator = self._sources.transaction_coordinator()
        images = [one.shard.image for one in coordinator.transactions.active]
        now_ms = self._sources.clock.now_ms()
        oldest_ms = min((ms for image in images if (ms := image.oldest_open_ms) is not None), default=now_ms)
        yield from read(_READINGS, _Coordinator(coordinator, max(now_ms - oldest_ms, 0)))
        verification = coordinator.stats.verification
        counted = Counted((), verification.times.recent(), verification.answered)
        yield from _VERIFICATION.collect((counted,), divisor=US_PER_MS)
        yield Samples(_IDS, [((name,), sum(image.states[status] for image in images)) for name, status in _STATES])
        stats = coordinator.stats
        yield Samples(_ENDED, [(("committed",), stats.committed), (("aborted",), stats.aborted)])
