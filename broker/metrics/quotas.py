"""Metrics of quotas: what clients and replicas that have one use of it, and for how long clients are throttled."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.metrics.past import Past
from broker.metrics.series import Family, Samples, gauge, one
from broker.metrics.sources import MetricSources

if TYPE_CHECKING:
    from broker.runtime.rate import Rate
    from broker.security.quotas.token_bucket import TokenBucket
    from broker.security.quotas.usage import Quota, QuotaUsage

_LABELS: Final = ("user", "client_id")
_OF_CLIENT: Final = "of a user or client id that has a quota"


def _family(bean: str, attribute: str, help: str) -> Family:
    return gauge(
        f"kafka_server_{bean.lower()}_{attribute.replace('-', '_')}",
        help,
        *_LABELS,
        bean=f"kafka.server:type={bean},user=*,client-id=*",
    )


def _throttle_time(bean: str) -> Family:
    return _family(
        bean, "throttle-time", "Milliseconds that a client was throttled for, on the average of the last minutes"
    )


PRODUCED: Final = _family("Produce", "byte-rate", f"Bytes of Produce requests a second {_OF_CLIENT}")
FETCHED: Final = _family("Fetch", "byte-rate", f"Bytes of answers to Fetch a second {_OF_CLIENT}")
TIME: Final = _family("Request", "request-time", f"Percent of the loop's time that requests take {_OF_CLIENT}")
TOKENS: Final = _family(
    "ControllerMutation",
    "tokens",
    f"Partitions that may be created or deleted at once {_OF_CLIENT}; below 0, such requests are refused",
)
EXEMPT: Final = gauge(
    "kafka_server_request_exempt_request_time",
    "Percent of the loop's time that requests of other brokers take; 0 while there is no quota of time",
    bean="kafka.server:type=Request",
)
LED: Final = gauge(
    "kafka_server_leaderreplication_byte_rate",
    "Bytes a second that this broker sends to followers of throttled replicas",
    bean="kafka.server:type=LeaderReplication",
)
FOLLOWED: Final = gauge(
    "kafka_server_followerreplication_byte_rate",
    "Bytes a second that this broker fetches for its throttled replicas",
    bean="kafka.server:type=FollowerReplication",
)
THROTTLE_TIMES: Final[Mapping[str, Family]] = {
    "produced": _throttle_time("Produce"),
    "fetched": _throttle_time("Fetch"),
    "time": _throttle_time("Request"),
    "mutations": _throttle_time("ControllerMutation"),
}
"""By the attribute of `ClientQuotas` with the quota."""


class _Key(NamedTuple):
    """A count of one quota, of those that share it."""

    quota: str
    user: str
    client_id: str
    what: str


class Quotas:
    """Reads what clients have used off the quotas."""

    families: tuple[Family, ...] = (PRODUCED, FETCHED, TIME, TOKENS, EXEMPT, LED, FOLLOWED, *THROTTLE_TIMES.values())

    def __init__(self, sources: MetricSources) -> None:
        self._sources = sources
        self._past: Past[_Key] = Past(sources.clock, sources.started_ms, self._counts)
        sources.on_period.append(self._past.period_is_over)

    def collect(self) -> Iterator[Samples]:
        throttles = self._sources.replication_throttles
        if throttles is not None:
            yield one(LED, throttles.leader.per_second())
            yield one(FOLLOWED, throttles.follower.per_second())
        quotas = self._sources.client_quotas
        if quotas is None:
            yield one(EXEMPT, 0)
            return
        now_ms = self._sources.clock.monotonic_ms()
        yield _rates(PRODUCED, quotas.produced, now_ms)
        yield _rates(FETCHED, quotas.fetched, now_ms)
        yield _rates(TIME, quotas.time, now_ms)
        yield _tokens(quotas.mutations, now_ms)
        yield one(EXEMPT, quotas.exempt_time.per_second(now_ms))
        rates = self._past.rates()
        for name, family in THROTTLE_TIMES.items():
            yield Samples(
                family,
                [
                    (key[1:3], rates[key._replace(what="throttled_ms")] / throttled if throttled > 0 else 0)
                    for key, throttled in rates.items()
                    if key.quota == name and key.what == "throttled"
                ],
            )

    def _counts(self) -> dict[_Key, int]:
        quotas = self._sources.client_quotas
        if quotas is None:
            return {}
        return {
            _Key(name, *sharers, what): getattr(sensor, what)
            for name in THROTTLE_TIMES
            for sharers, sensor in _quota(quotas, name).sensors
            for what in ("throttled", "throttled_ms")
        }


def _quota(quotas: "QuotaUsage", name: str) -> "Quota[Rate] | Quota[TokenBucket]":
    found: Quota[Rate] | Quota[TokenBucket] = getattr(quotas, name)
    return found


def _rates(family: Family, quota: "Quota[Rate]", now_ms: int) -> Samples:
    return Samples(family, [(sharers, sensor.meter.per_second(now_ms)) for sharers, sensor in quota.sensors])


def _tokens(quota: "Quota[TokenBucket]", now_ms: int) -> Samples:
    return Samples(
        TOKENS,
        [
            (sharers, sensor.meter.tokens(limit.value, quota.burst(limit), now_ms))
            for sharers, sensor in quota.sensors
            if (limit := quota.limits.of(*sharers)) is not None
        ],
    )
