"""ClientQuotas: the quotas of all clients, and the charges of a request (KIP-13, KIP-124, KIP-599)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Generic, NamedTuple, TypeVar

from broker.request.response import ResponseSlot
from broker.request.session import Session
from broker.runtime.clock import Clock
from broker.runtime.rate import Rate
from broker.security.quotas.limits import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    LONGEST_LABEL,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Limit,
    QuotaLimits,
    Sharers,
    limits_by_key,
)
from broker.security.quotas.request_quota import ClientRequestQuota
from broker.security.quotas.sensors import ClientSensor, ClientSensors
from broker.security.quotas.token_bucket import TokenBucket
from protocol.api_keys import ApiKey
from protocol.records.cluster_metadata import ClientQuotaRecord

Meter = TypeVar("Meter", Rate, TokenBucket)

EXEMPT: Final = frozenset(
    {
        *(ApiKey.WRITE_TXN_MARKERS, ApiKey.ALTER_PARTITION, ApiKey.ENVELOPE, ApiKey.FETCH_SNAPSHOT),
        *(ApiKey.ALLOCATE_PRODUCER_IDS, ApiKey.BROKER_REGISTRATION, ApiKey.BROKER_HEARTBEAT),
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    }
)
"""What only brokers ask, which charges no client. An envelope charges the client of the request inside."""

NO_LIMITS: Final = QuotaLimits({})
"""The limits of a quota that nobody has."""

MOST_KNOWN: Final = 10_000
"""Clients whose limits are remembered."""


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


_SPARED: Final = ClientLimits(None, None, None, None)


class ClientQuotas:
    """The quotas of all clients. A `broker.request.quota.Quotas`."""

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
        self._known: dict[tuple[str, str], ClientLimits] = {}

    def update(self, records: Iterable[ClientQuotaRecord]) -> None:
        """Set other values. What clients have used stays as it is."""
        limits = limits_by_key(records)
        for quota in (self.produced, self.fetched, self.time, self.mutations):
            quota.limits = limits.get(quota.key, NO_LIMITS)
        self._known.clear()

    def spare(self, session: Session) -> bool:
        return self._limits(session) is _SPARED

    def of_request(self, slot: ResponseSlot, api_key: int) -> ClientRequestQuota | None:
        session = slot.session
        if api_key in EXEMPT or (api_key == ApiKey.FETCH and session.is_on_controller_listener):
            if not self.time.limits:
                return None
            request = ClientRequestQuota(self, slot, api_key, _SPARED)
            request.exempt()
            return request
        limits = self._limits(session)
        return None if limits is _SPARED else ClientRequestQuota(self, slot, api_key, limits)

    def _limits(self, session: Session) -> ClientLimits:
        client = (session.principal, session.client_id)
        found = self._known.get(client)
        if found is None:
            if len(session.client_id) > LONGEST_LABEL:
                return self._find(*client)
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            found = self._known[client] = self._find(*client)
        return found

    def _find(self, principal: str, client_id: str) -> ClientLimits:
        user = principal.partition(":")[2]
        quotas = (self.produced, self.fetched, self.time, self.mutations)
        found = ClientLimits(*(quota.limits.of(user, client_id) for quota in quotas))
        return _SPARED if found == _SPARED else found
