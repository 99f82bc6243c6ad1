"""ClientSensors: what the clients that have a quota have used of it, and how they were throttled."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Final, Generic, TypeVar

from broker.runtime.rate import Rate
from broker.security.quotas.token_bucket import TokenBucket

FORGOTTEN_AFTER_MS: Final = 3_600_000
"""Clients that have used nothing for so long are forgotten, as in Kafka."""

MOST_CLIENTS: Final = 10_000
"""Clients that are remembered for one quota. Client ids are the clients' choice: of more, those that have used nothing
for the longest time are forgotten."""

Meter = TypeVar("Meter", Rate, TokenBucket)

Sharer = TypeVar("Sharer", bound=Hashable)
"""Who shares a quota: `broker.security.quotas.limits.Sharers`, or an address."""


class ClientSensor(Generic[Meter]):
    """What those have used who share one quota."""

    __slots__ = ("last_used_ms", "meter", "throttled", "throttled_ms")

    def __init__(self, meter: Meter) -> None:
        self.meter: Meter = meter
        self.last_used_ms = 0
        self.throttled = 0
        """How often a client was throttled."""
        self.throttled_ms = 0
        """For how long, all times together."""

    def count_throttle(self, throttle_time_ms: int) -> None:
        """A client is throttled for this quota."""
        self.throttled += 1
        self.throttled_ms += throttle_time_ms


class ClientSensors(Generic[Sharer, Meter]):
    """The sensors of one quota, by who shares it."""

    def __init__(self, make_meter: Callable[[], Meter]) -> None:
        self._make_meter: Callable[[], Meter] = make_meter
        self._sensors: OrderedDict[Sharer, ClientSensor[Meter]] = OrderedDict()
        """Those last that were used last."""

    def __len__(self) -> int:
        return len(self._sensors)

    def __iter__(self) -> Iterator[tuple[Sharer, ClientSensor[Meter]]]:
        return iter(self._sensors.items())

    def use(self, sharers: Sharer, now_ms: int) -> ClientSensor[Meter]:
        """The sensor of clients that use their quota now."""
        sensors = self._sensors
        sensor = sensors.get(sharers)
        if sensor is None:
            self._forget(now_ms)
            sensor = sensors[sharers] = ClientSensor(self._make_meter())
        else:
            sensors.move_to_end(sharers)
        sensor.last_used_ms = now_ms
        return sensor

    def _forget(self, now_ms: int) -> None:
        sensors = self._sensors
        while sensors and next(iter(sensors.values())).last_used_ms <= now_ms - FORGOTTEN_AFTER_MS:
            sensors.popitem(last=False)
        if len(sensors) >= MOST_CLIENTS:
            sensors.popitem(last=False)
