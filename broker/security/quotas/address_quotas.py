"""AddressQuotas: how many new connections a second each address may open (KIP-612)."""

from collections.abc import Mapping

from broker.runtime.rate import Rate
from broker.security.quotas.limits import DEFAULT
from broker.security.quotas.sensors import ClientSensors


class AddressQuotas:
    """The rates of new connections by address. A `broker.network.connection_limits.AddressLimits`."""

    def __init__(self, *, windows: int, window_ms: int) -> None:
        """``windows`` and ``window_ms``: `quota.window.num` and `quota.window.size.seconds`."""
        self._window_ms = window_ms
        self._limits: Mapping[str, float] = {}
        self._sensors: ClientSensors[str, Rate] = ClientSensors(lambda: Rate(windows=windows, window_ms=window_ms))

    def update(self, limits: Mapping[str, float]) -> None:
        """Set other limits, by address and by `DEFAULT`. What addresses have used stays as it is."""
        self._limits = limits

    def delay_ms(self, address: str, now_ms: int) -> int:
        """Count a new connection of an address. If that makes too many, it is not counted, and has to be closed after
        so many milliseconds, one window at most."""
        limit = self._limits.get(address, self._limits.get(DEFAULT))
        if limit is None:
            return 0
        rate = self._sensors.use(address, now_ms).meter
        rate.record(1, now_ms)
        delay_ms = round(min(rate.throttle_ms(limit, now_ms), self._window_ms))
        if delay_ms:
            rate.record(-1, now_ms)
        return delay_ms
