"""Metrics of the authorizer, where there is one."""

from collections.abc import Iterator, Mapping
from typing import Final

from broker.metrics.past import Past
from broker.metrics.series import Family, Samples, counter, gauge
from broker.metrics.sources import MetricSources

_BEAN: Final = "kafka.server:type=plugins,config=*,class=*,role=*"
_LABELS: Final = ("config", "class", "role")
_THIS: Final = ("authorizer.class.name", "StandardAuthorizer", "broker")
_SECONDS_PER_MINUTE: Final = 60

ACLS: Final = gauge("kafka_server_plugins_acls_total_count", "ACLs in force", *_LABELS, bean=_BEAN)


def _rate(name: str, help: str) -> Family:
    return gauge(
        f"kafka_server_plugins_authorization_{name}_rate_per_minute",
        f"{help}, a minute, in the last minutes",
        *_LABELS,
        bean=_BEAN,
    )


_RATES: Final[Mapping[str, Family]] = {
    "requests": _rate("request", "Questions of what a principal may do"),
    "allowed": _rate("allowed", "Questions of what a principal may do, answered with yes"),
    "denied": _rate("denied", "Questions of what a principal may do, answered with no"),
}
DECISIONS: Final = counter(
    "ottla_authorizer_decisions_total",
    "Questions of what a principal may do, by their answer: allowed, denied. One that only leaves something out of an "
    "answer counts too",
    "decision",
)


class Authorization:
    """Reads the `StandardAuthorizer`."""

    families: tuple[Family, ...] = (ACLS, *_RATES.values(), DECISIONS)

    def __init__(self, sources: MetricSources) -> None:
        self._sources = sources
        self._past: Past[str] = Past(sources.clock, sources.started_ms, self._counts)
        sources.on_period.append(self._past.period_is_over)

    def collect(self) -> Iterator[Samples]:
        authorizer = self._sources.authorizer
        if authorizer is None:
            return
        yield Samples(ACLS, [(_THIS, authorizer.size)])
        rates = self._past.rates()
        for name, family in _RATES.items():
            yield Samples(family, [(_THIS, rates[name] * _SECONDS_PER_MINUTE)])
        counts = self._counts()
        yield Samples(DECISIONS, [((name,), counts[name]) for name in ("allowed", "denied")])

    def _counts(self) -> dict[str, int]:
        authorizer = self._sources.authorizer
        if authorizer is None:
            return {}
        allowed, denied = authorizer.stats.allowed, authorizer.stats.denied
        return {"allowed": allowed, "denied": denied, "requests": allowed + denied}
