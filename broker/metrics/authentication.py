"""Metrics of clients that authenticate, by listener and processor."""

from collections.abc import Iterator, Mapping
from typing import Final

from broker.metrics.past import Past
from broker.metrics.series import Family, Samples, count, counter, gauge, one
from broker.metrics.sources import MetricSources

_BEAN: Final = "kafka.server:type=socket-server-metrics,listener=*,networkProcessor=*"
_PREFIX: Final = "kafka_server_socket_server_metrics_"
_LABELS: Final = ("listener", "networkProcessor")
_US_PER_MS: Final = 1000


def _total(name: str, help: str) -> Family:
    return counter(f"{_PREFIX}{name}_total", help, *_LABELS, bean=_BEAN)


_TOTALS: Final[Mapping[str, Family]] = {
    "successes": _total("successful_authentication", "Clients that have authenticated"),
    "failures": _total("failed_authentication", "Connections whose client has not authenticated, or not in time"),
    "successes_again": _total("successful_reauthentication", "Times that a client has authenticated again"),
    "failures_again": _total("failed_reauthentication", "Times that a client has failed to authenticate again"),
    "successes_without_lifetime": _total(
        "successful_authentication_no_reauth", "Clients that have authenticated and cannot be told to do so again"
    ),
}
_RATED: Final = ("successes", "failures", "successes_again", "failures_again")
_RATES: Final[Mapping[str, Family]] = {
    name: gauge(
        _TOTALS[name].name.removesuffix("_total") + "_rate",
        f"{_TOTALS[name].help}, a second, in the last minutes",
        *_LABELS,
        bean=_BEAN,
    )
    for name in _RATED
}
LATENCY: Final = gauge(
    f"{_PREFIX}reauthentication_latency_avg",
    "Milliseconds between handshake and last token of a client that authenticates again, on the average of the last "
    "minutes",
    *_LABELS,
    bean=_BEAN,
)
EXPIRED: Final = count(
    f"{_PREFIX}expired_connections_killed_count",
    "Connections closed because their client has not authenticated again in time",
    *_LABELS,
    bean=_BEAN,
)
ALL_EXPIRED: Final = gauge(
    "kafka_network_socketserver_expiredconnectionskilledcount",
    "Connections closed because their client has not authenticated again in time, on all listeners",
    bean="kafka.network:type=SocketServer,name=ExpiredConnectionsKilledCount",
)
_COUNTED: Final = (*_TOTALS, "us_again", "sessions_expired")

Key = tuple[str, str, str]
"""Names of listener and processor, and of the count."""


class Authentication:
    """Reads the counts of authentications off the processors."""

    families: tuple[Family, ...] = (*_TOTALS.values(), *_RATES.values(), LATENCY, EXPIRED, ALL_EXPIRED)

    def __init__(self, sources: MetricSources) -> None:
        self._sources = sources
        self._past: Past[Key] = Past(sources.clock, sources.started_ms, self._counts)
        sources.on_period.append(self._past.period_is_over)

    def collect(self) -> Iterator[Samples]:
        counts, rates = self._counts(), self._past.rates()
        for name, family in _TOTALS.items():
            yield _of(family, name, counts)
        for name, family in _RATES.items():
            yield _of(family, name, rates)
        yield Samples(
            LATENCY,
            [
                ((listener, processor), rates[listener, processor, "us_again"] / again / _US_PER_MS if again else 0)
                for (listener, processor, name), again in rates.items()
                if name == "successes_again"
            ],
        )
        yield _of(EXPIRED, "sessions_expired", counts)
        yield one(ALL_EXPIRED, sum(value for key, value in counts.items() if key[2] == "sessions_expired"))

    def _counts(self) -> dict[Key, int]:
        return {
            (listener, str(processor.index), name): getattr(stats.authentication, name)
            for processor in self._sources.processors
            for listener, stats in processor.stats.listeners.items()
            for name in _COUNTED
        }


def _of(family: Family, name: str, values: Mapping[Key, float]) -> Samples:
    """The samples of one count, by listener and processor."""
    return Samples(family, [(key[:2], value) for key, value in values.items() if key[2] == name])
