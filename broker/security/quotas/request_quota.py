"""ClientRequestQuota: what one request charges its client, and for how long the client is throttled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.request.faults import ThrottlingQuotaExceeded
from broker.request.response import ResponseSlot
from broker.security.quotas.sensors import ClientSensor
from protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from broker.runtime.rate import Rate
    from broker.security.quotas.limits import Limit
    from broker.security.quotas.token_bucket import TokenBucket
    from broker.security.quotas.usage import ClientLimits, Quota, QuotaUsage

LONGEST_MS: Final = 2**31 - 1
"""What an answer can tell."""

_NS_PER_PERCENT: Final = 10_000_000
"""A hundredth of a second: with `request_percentage` 1 a client may have so much in each second."""
_US_PER_PERCENT: Final = 10_000


class ClientRequestQuota:
    """The charges of one request, made once: with its answer. A `broker.request.quota.RequestQuota`."""

    __slots__ = (
        "_api_key",
        "_began_ns",
        "_is_exempt",
        "_limits",
        "_mutations",
        "_quotas",
        "_size",
        "_throttle_time_ms",
        "_used_ns",
    )

    def __init__(self, quotas: QuotaUsage, slot: ResponseSlot, api_key: int, limits: ClientLimits) -> None:
        self._quotas = quotas
        self._api_key = api_key
        self._limits = limits
        self._size = slot.size
        self._began_ns = quotas.now_ns()
        self._used_ns: int | None = None
        """None while the handler is at work."""
        self._is_exempt = False
        self._mutations: ClientMutationQuota | None = None
        self._throttle_time_ms: int | None = None
        """None until the request is charged."""

    def handled(self) -> None:
        self._used_ns = self._time_ns()

    def exempt(self) -> None:
        self._is_exempt = True

    @property
    def most_fetched(self) -> int:
        limit = self._limits.fetched
        if limit is None:
            return LONGEST_MS
        windows = self._quotas.fetched.windows
        return int(min(limit.value * (windows.number - 1) * windows.size_ms / 1000, LONGEST_MS))

    def admits_fetch(self, size: int) -> bool:
        if self._is_exempt:
            return True
        now_ms = self._quotas.clock.monotonic_ms()
        of_time = self._charge_time(now_ms)
        of_bytes = 0
        fetched = self._limits.fetched
        sensor: ClientSensor[Rate] | None = None
        if fetched is not None:
            sensor, of_bytes = _charge(self._quotas.fetched, fetched, size, now_ms)
        self._throttle_time_ms = self._throttled_for(of_time, sensor, of_bytes)
        if self._throttle_time_ms and sensor is not None:
            sensor.meter.record(-size, now_ms)  # the records are not sent
        return not self._throttle_time_ms

    def mutations(self, *, is_strict: bool, is_told: bool) -> ClientMutationQuota | None:
        limit = self._limits.mutations
        if limit is None:
            return None
        mutations = ClientMutationQuota(self._quotas, limit, is_strict=is_strict)
        if is_told:
            self._mutations = mutations
        return mutations

    def settle(self, *, is_answered: bool) -> int:
        if self._throttle_time_ms is None:
            self._throttle_time_ms = self._settle(is_answered=is_answered)
        return self._throttle_time_ms

    def _settle(self, *, is_answered: bool) -> int:
        quotas = self._quotas
        now_ms = quotas.clock.monotonic_ms()
        if self._is_exempt:
            quotas.exempt_time.record(self._time_ns() / _NS_PER_PERCENT, now_ms)
            return 0
        of_time = self._charge_time(now_ms) if is_answered else 0
        produced = self._limits.produced
        if produced is not None and self._api_key == ApiKey.PRODUCE:
            return self._throttled_for(of_time, *_charge(quotas.produced, produced, self._size, now_ms))
        if self._mutations is not None:
            return self._throttled_for(of_time, *self._mutations.throttle(now_ms))
        return self._throttled_for(of_time, None, 0)

    def _charge_time(self, now_ms: int) -> int:
        limit = self._limits.time
        if limit is None:
            return 0
        quota = self._quotas.time
        _, throttle_time_ms = _charge(quota, limit, self._time_ns() / _NS_PER_PERCENT, now_ms)
        return min(throttle_time_ms, quota.windows.size_ms)

    def _throttled_for(
        self, of_time: int, other: ClientSensor[Rate] | ClientSensor[TokenBucket] | None, of_other: int
    ) -> int:
        """Of two quotas that are exceeded the one counts that throttles for longer."""
        if other is not None and of_other > of_time:
            other.count_throttle(of_other)
        elif of_time and self._limits.time is not None:
            quotas = self._quotas
            quotas.time.use(self._limits.time, quotas.clock.monotonic_ms()).count_throttle(of_time)
        return max(of_time, of_other)

    def _time_ns(self) -> int:
        return self._quotas.now_ns() - self._began_ns if self._used_ns is None else self._used_ns


class ClientMutationQuota:
    """The charges of one request that creates or deletes partitions. A `broker.request.quota.MutationQuota`."""

    __slots__ = ("_burst", "_is_strict", "_limit", "_quotas", "_sensor", "_until_ms")

    def __init__(self, quotas: QuotaUsage, limit: Limit, *, is_strict: bool) -> None:
        self._quotas = quotas
        self._limit = limit
        self._burst = quotas.mutations.burst(limit)
        self._sensor = quotas.mutations.use(limit, quotas.clock.monotonic_ms())
        self._is_strict = is_strict
        self._until_ms = 0

    def charge(self, partitions: int) -> None:
        now_ms = self._quotas.clock.monotonic_ms()
        bucket, rate = self._sensor.meter, self._limit.value
        if self._is_strict and bucket.tokens(rate, self._burst, now_ms) < 0:
            self._exceeded(now_ms)
            raise ThrottlingQuotaExceeded  # Kafka says no more, nor do we
        bucket.take(partitions, rate, self._burst, now_ms)
        if not self._is_strict and bucket.tokens(rate, self._burst, now_ms) < 0:
            self._exceeded(now_ms)

    def throttle(self, now_ms: int) -> tuple[ClientSensor[TokenBucket], int]:
        """For how long the client is throttled, from now on."""
        return self._sensor, max(self._until_ms - now_ms, 0) if self._until_ms else 0

    def _exceeded(self, now_ms: int) -> None:
        missing = -self._sensor.meter.tokens(self._limit.value, self._burst, now_ms)
        self._until_ms = now_ms + _whole_ms(missing / self._limit.value * 1000)


def charge_network(quotas: QuotaUsage, limit: Limit, time_us: int) -> None:
    """Charge a client for the time that the network was busy with its connection, which throttles none of its requests
    but those that follow."""
    now_ms = quotas.clock.monotonic_ms()
    quotas.time.use(limit, now_ms).meter.record(time_us / _US_PER_PERCENT, now_ms)


def _charge(quota: Quota[Rate], limit: Limit, value: float, now_ms: int) -> tuple[ClientSensor[Rate], int]:
    """Charge a client; with its sensor, for how long the client is throttled."""
    sensor = quota.use(limit, now_ms)
    sensor.meter.record(value, now_ms)
    return sensor, _whole_ms(sensor.meter.throttle_ms(limit.value, now_ms))


def _whole_ms(time_ms: float) -> int:
    return round(min(time_ms, LONGEST_MS))
