"""ClientQuotas: the quotas of all clients, and the charges of a request (KIP-13, KIP-124, KIP-599)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from broker.request.response import ResponseSlot
from broker.request.session import Session
from broker.runtime.clock import Clock
from broker.security.quotas.limits import LONGEST_LABEL, limits_by_key
from broker.security.quotas.request_quota import ClientRequestQuota, charge_network
from broker.security.quotas.usage import NO_LIMITS, ClientLimits, QuotaUsage, QuotaWindows
from protocol.api_keys import ApiKey
from protocol.records.cluster_metadata import ClientQuotaRecord

EXEMPT: Final = frozenset(
    {
        *(ApiKey.WRITE_TXN_MARKERS, ApiKey.ALTER_PARTITION, ApiKey.ENVELOPE, ApiKey.FETCH_SNAPSHOT),
        *(ApiKey.ALLOCATE_PRODUCER_IDS, ApiKey.BROKER_REGISTRATION, ApiKey.BROKER_HEARTBEAT),
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    }
)
"""What only brokers ask, which charges no client. An envelope charges the client of the request inside."""

MOST_KNOWN: Final = 10_000
"""Clients whose limits are remembered."""

_SPARED: Final = ClientLimits(None, None, None, None)
"""The limits of a client that nothing limits."""


class ClientQuotas(QuotaUsage):
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
        super().__init__(clock=clock, now_ns=now_ns, windows=windows, mutation_windows=mutation_windows)
        self._known: dict[tuple[str, str], ClientLimits] = {}

    def update(self, records: Iterable[ClientQuotaRecord]) -> None:
        """Set other values. What clients have used stays as it is."""
        limits = limits_by_key(records)
        for quota in (self.produced, self.fetched, self.time, self.mutations):
            quota.limits = limits.get(quota.key, NO_LIMITS)
        self._known.clear()

    def spare(self, session: Session) -> bool:
        if self._limits(session) is not _SPARED:
            return False
        session.charge_network = None
        return True

    def of_request(self, slot: ResponseSlot, api_key: int) -> ClientRequestQuota | None:
        session = slot.session
        if api_key in EXEMPT or (api_key == ApiKey.FETCH and session.is_on_controller_listener):
            if not self.time.limits:
                return None
            request = ClientRequestQuota(self, slot, api_key, _SPARED)
            request.exempt()
            return request
        limits = self._limits(session)
        session.charge_network = None if limits.time is None else partial(charge_network, self, limits.time)
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
