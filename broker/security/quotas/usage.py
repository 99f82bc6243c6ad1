"""QuotaUsage: the quotas of users and client ids, each with its limits and with what clients have used of it."""

from collections.abc import Callable
from typing import Final, Generic, NamedTuple, TypeVar

from broker.runtime.clock import Clock
from broker.runtime.rate import Rate
from broker.security.quotas.limits import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Limit,
    QuotaLimits,
    Sharers,
)
from broker.security.quotas.sensors import ClientSensor, ClientSensors
from broker.security.quotas.token_bucket import TokenBucket

Meter = TypeVar("Meter", Rate, TokenBucket)

NO_LIMITS: Final = QuotaLimits({})
"""The limits of a quota that nobody has."""


class QuotaWindows(NamedTuple):
    """Over which time a rate is taken."""

    number: int = 11
    size_ms: int = 1_000


class Quota(Generic[Meter]):
    """One quota: its values, and what clients have used of it."""

    def __init__(self, key: str, windows: QuotaWindows, make_meter: Callable[[], Meter]) -> None:
        self.key = key
        self.windows = windows
        self.limits = NO_LIMITS
        self.sensors: ClientSensors[Sharers, Meter] = ClientSensors(make_meter)

    def burst(self, limit: Limit) -> float:
        """How much may be saved up within a limit."""
        return self.windows.number * self.windows.size_ms / 1000 * limit.value

    def use(self, limit: Limit, now_ms: int) -> ClientSensor[Meter]:
        """The sensor of a client that has the limit."""
        return self.sensors.use(limit.sharers, now_ms)


class ClientLimits(NamedTuple):
    """What limits one client; None where nothing does."""

    produced: Limit | None
    fetched: Limit | None
    time: Limit | None
    mutations: Limit | None


class QuotaUsage:
    """All quotas of users and client ids, and the clocks by which they are measured."""

    def __init__(
        self,
        *,
        clock: Clock,
        now_ns: Callable[[], int],
        windows: QuotaWindows,
        mutation_windows: QuotaWindows,
    ) -> None:
        """``now_ns``: the clock that measures how long requests keep the loop."""
        self.clock = clock
        self.now_ns = now_ns

        def rate() -> Rate:
            return Rate(windows=windows.number, window_ms=windows.size_ms)

        self.produced: Quota[Rate] = Quota(PRODUCER_BYTE_RATE, windows, rate)
        self.fetched: Quota[Rate] = Quota(CONSUMER_BYTE_RATE, windows, rate)
        self.time: Quota[Rate] = Quota(REQUEST_PERCENTAGE, windows, rate)
        self.mutations: Quota[TokenBucket] = Quota(CONTROLLER_MUTATION_RATE, mutation_windows, TokenBucket)
        self.exempt_time = rate()
        """What requests of brokers have taken, in percent of the loop."""
