"""Metrics of requests by API: counts, times and sizes. An API has series once a request of it was answered."""

from collections.abc import Iterator
from operator import attrgetter
from typing import Final, NamedTuple

from broker.handlers.fetch import FETCH_CONSUMER, FETCH_FOLLOWER
from broker.metrics.series import US_PER_MS, Counted, Distribution, Family, Samples, counter, distribution
from broker.metrics.sources import MetricSources
from broker.request.stats import ApiStats
from broker.runtime.histogram import BUCKETS, RecentHistogram
from protocol.errors import ErrorCode

_FETCH: Final = "Fetch"
_CONVERTING: Final = ("Produce", _FETCH, FETCH_CONSUMER, FETCH_FOLLOWER)
"""Requests with records in them, which Kafka used to convert."""


def _distribution(name: str, help: str) -> Distribution:
    return distribution(
        f"kafka_network_requestmetrics_{name.lower()}",
        help,
        "request",
        bean=f"kafka.network:type=RequestMetrics,name={name},request=*",
    )


class _Measure(NamedTuple):
    """A measured quantity of each request."""

    families: Distribution
    of: "attrgetter[RecentHistogram]"
    divisor: int = US_PER_MS


REQUESTS: Final = counter(
    "kafka_network_requestmetrics_requests_total",
    "Requests answered",
    "request",
    "version",
    bean="kafka.network:type=RequestMetrics,name=RequestsPerSec,request=*,version=*",
)
ERRORS: Final = counter(
    "kafka_network_requestmetrics_errors_total",
    "Error codes in answers, NONE too; an answer has one for each topic or partition in it",
    "request",
    "error",
    bean="kafka.network:type=RequestMetrics,name=ErrorsPerSec,request=*,error=*",
)
NOT_SERVED: Final = counter(
    "ottla_network_requests_not_served_total",
    "Requests for an API or a version that is not served, each of which closed its connection; APIs that do not "
    "exist are `unknown`",
    "request",
)
_MEASURES: Final = (
    _Measure(
        _distribution("TotalTimeMs", "Milliseconds from reading a request to the last byte of its answer"),
        attrgetter("total"),
    ),
    _Measure(_distribution("RequestQueueTimeMs", "Milliseconds until a handler took the request"), attrgetter("queue")),
    _Measure(
        _distribution("LocalTimeMs", "Milliseconds in the request handler, with the other requests of its turn"),
        attrgetter("local"),
    ),
    _Measure(
        _distribution("RemoteTimeMs", "Milliseconds of waiting for records, for replicas or for the disk"),
        attrgetter("remote"),
    ),
    _Measure(
        _distribution("ResponseQueueTimeMs", "Milliseconds from the answer until its sending began"),
        attrgetter("response_queue"),
    ),
    _Measure(_distribution("ResponseSendTimeMs", "Milliseconds of sending the answer"), attrgetter("send")),
    _Measure(_distribution("RequestBytes", "Sizes of requests in bytes"), attrgetter("sizes"), divisor=1),
)
THROTTLE: Final = _distribution("ThrottleTimeMs", "Milliseconds for which the client is throttled by a quota")
CONVERSIONS: Final = _distribution(
    "MessageConversionsTimeMs", "Milliseconds of converting records: always 0, no records are converted"
)
TEMPORARY: Final = _distribution(
    "TemporaryMemoryBytes", "Bytes of memory for converting records: always 0, no records are converted"
)
_NEVER: Final = [0] * BUCKETS


class Requests:
    """Reads the `RequestStats`."""

    families: tuple[Family, ...] = (
        REQUESTS,
        ERRORS,
        NOT_SERVED,
        *[family for measure in _MEASURES for family in measure.families],
        *THROTTLE,
        *CONVERSIONS,
        *TEMPORARY,
    )

    def __init__(self, sources: MetricSources) -> None:
        self._stats = sources.registry.stats

    def collect(self) -> Iterator[Samples]:
        answered = self._answered()
        yield Samples(REQUESTS, [((name, str(version)), count) for (name, version), count in answered.items()])
        codes = self._stats.answered_codes()
        yield Samples(ERRORS, [((api, _name(code)), count) for (api, code), count in codes.items()])
        yield Samples(NOT_SERVED, [((api,), count) for api, count in self._stats.not_served.items()])
        totals: dict[str, int] = {}
        for (name, _), count in answered.items():
            totals[name] = totals.get(name, 0) + count
        for families, of, divisor in _MEASURES:
            counted = [Counted((name,), self._recent(name, of), total) for name, total in totals.items()]
            yield from families.collect(counted, divisor=divisor)
        yield from THROTTLE.collect(
            Counted((name,), self._recent_throttles(name), total) for name, total in totals.items()
        )
        for families in (CONVERSIONS, TEMPORARY):
            yield from families.collect(
                Counted((name,), _NEVER, total) for name, total in totals.items() if name in _CONVERTING
            )

    def _answered(self) -> dict[tuple[str, int], int]:
        """Answered requests by name and version; fetches of consumers and followers also count as fetches."""
        answered = {key: count for key, count in self._stats.answered().items() if count}
        for (name, version), count in tuple(answered.items()):
            if name in (FETCH_CONSUMER, FETCH_FOLLOWER):
                answered[_FETCH, version] = answered.get((_FETCH, version), 0) + count
        return answered

    def _recent(self, name: str, of: "attrgetter[RecentHistogram]") -> list[int]:
        parts = (FETCH_CONSUMER, FETCH_FOLLOWER) if name == _FETCH else (name,)
        recent = [of(api).recent() for part in parts if (api := self._api(part)) is not None]
        return recent[0] if len(recent) == 1 else [sum(counts) for counts in zip(*recent, strict=True)]

    def _recent_throttles(self, name: str) -> list[int]:
        """Requests by for how long they have throttled their client: most of them for no time."""
        recent = self._recent(name, attrgetter("throttle"))
        recent[0] += max(sum(self._recent(name, attrgetter("total"))) - sum(recent), 0)
        return recent

    def _api(self, name: str) -> ApiStats | None:
        return self._stats.apis.get(name)


def _name(code: int) -> str:
    """The name of an error code as Kafka writes it. The broker answers only codes that it knows."""
    return ErrorCode(code).name
