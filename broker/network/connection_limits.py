"""The limits on connections: in all, for each listener and for each address, and on new ones a second."""

import socket
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from broker.network.socket_options import plain_address
from broker.runtime.rate import Rate
from config.broker_settings import BrokerSettings

UNLIMITED: Final = 2**31 - 1
"""Kafka's default for every limit here."""


class UnknownHost(Exception):
    """A host in `max.connections.per.ip.overrides` that has no address."""


class LimitSettings(NamedTuple):
    """The limits, as they are set."""

    max_connections: int = UNLIMITED
    max_connections_per_ip: int = UNLIMITED
    per_ip_overrides: Mapping[str, int] = {}
    """By address, as `addresses_of` writes them."""
    per_listener: Mapping[str, int] = {}
    """`listener.name.<name>.max.connections` by listener."""
    max_creation_rate: int = UNLIMITED
    """New connections a second."""
    creation_rate_per_listener: Mapping[str, int] = {}
    """`listener.name.<name>.max.connection.creation.rate` by listener."""
    inter_broker_listener: str = ""
    quota_windows: int = 11
    """`quota.window.num`: over how many windows a rate is taken."""
    quota_window_ms: int = 1_000
    """`quota.window.size.seconds`. No connection is delayed for longer."""


class AddressLimits(Protocol):
    """The quotas of new connections by address, which clients set (KIP-612)."""

    def delay_ms(self, address: str, now_ms: int) -> int:
        """Count a new connection of an address; after how long it has to be closed, 0 where it may stay."""


class ConnectionLimits:
    """Counts connections for all acceptors.

    A listener that has reached its own limit, or the broker's, accepts nothing until a connection closes; the others
    wait in the system's backlog. The inter-broker listener, where it is not the only one, goes beyond the broker's
    limit: then connections of other listeners are closed. A connection above its address's limit is closed at once.
    A connection that makes the rate of new ones too high is delayed, and with it those behind it (KIP-402, KIP-612).
    """

    def __init__(self, settings: LimitSettings | None = None) -> None:
        self.settings = settings or LimitSettings()
        self.total = 0
        self._of_listener: Counter[str] = Counter()
        self._of_address: Counter[str] = Counter()
        self._listeners: dict[str, Callable[[], None]] = {}
        self._waiting: list[Callable[[], None]] = []
        self._rate = self._new_rate()
        self._rate_of_listener: dict[str, Rate] = {}
        self.of_addresses: AddressLimits | None = None
        """None while no quota limits new connections by address."""

    def register(self, listener: str, close_excess: Callable[[], None]) -> None:
        """There is such a listener. ``close_excess`` closes the connections above a limit that was lowered."""
        self._listeners[listener] = close_excess
        self._rate_of_listener[listener] = self._new_rate()

    def update(self, settings: LimitSettings) -> None:
        """Set other limits (a dynamic change). Higher limits let in connections that wait; a lower `max.connections`
        closes the idlest unprotected connections, as in Kafka; the other lower limits hold for new ones only."""
        self.settings = settings
        for close_excess in self._listeners.values():
            close_excess()
        self._call_waiting()

    # In all, and for each listener

    def may_accept(self, listener: str) -> bool:
        """Whether ``listener`` may accept another connection now."""
        if self._of_listener[listener] >= self.settings.per_listener.get(listener, UNLIMITED):
            return False
        return self.is_protected(listener) or self.total < self.settings.max_connections

    def when_changed(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once when a connection closes or limits change; it has to ask `may_accept` again."""
        self._waiting.append(callback)

    def is_protected(self, listener: str) -> bool:
        """Whether ``listener`` may go beyond the broker's limit at the expense of others."""
        return listener == self.settings.inter_broker_listener and len(self._listeners) > 1

    @property
    def is_exceeded(self) -> bool:
        """There are more connections than the broker's limit: an unprotected one has to be closed."""
        return self.total > self.settings.max_connections

    # For each address

    def most_for(self, address: str) -> int:
        """The limit of one address."""
        return self.settings.per_ip_overrides.get(address, self.settings.max_connections_per_ip)

    def opened(self, listener: str, address: str) -> bool:
        """Count a new connection; False, and it is not counted, if its address has too many."""
        if self._of_address[address] >= self.most_for(address):
            return False
        self.total += 1
        self._of_listener[listener] += 1
        self._of_address[address] += 1
        return True

    def closed(self, listener: str, address: str) -> None:
        """A connection that was counted is closed."""
        self.total -= 1
        self._of_listener[listener] -= 1
        self._of_address[address] -= 1
        if not self._of_address[address]:
            # A broker sees many addresses in its life.
            del self._of_address[address]
        if self._waiting:
            self._call_waiting()

    def _call_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            callback()

    # New ones a second

    def delay_ms(self, listener: str, now_ms: int) -> int:
        """Count a new connection of ``listener`` in the rates; for how long it has to wait, one window at most.

        The protected listener counts, and is counted, for itself only.
        """
        settings = self.settings
        delay = 0.0
        if not self.is_protected(listener):
            self._rate.record(1, now_ms)
            delay = self._rate.throttle_ms(settings.max_creation_rate, now_ms)
        rate = self._rate_of_listener[listener]
        rate.record(1, now_ms)
        own_limit = settings.creation_rate_per_listener.get(listener, UNLIMITED)
        delay = max(delay, rate.throttle_ms(own_limit, now_ms))
        return round(min(delay, settings.quota_window_ms))

    def _new_rate(self) -> Rate:
        return Rate(windows=self.settings.quota_windows, window_ms=self.settings.quota_window_ms)


def addresses_of(overrides: Mapping[str, int]) -> dict[str, int]:
    """Limits by host name or address as limits by address. A name stands for the first address it has, IPv4 before
    IPv6, as in Kafka. Asks the system's resolver; raises `UnknownHost`."""
    return {_address_of(host): limit for host, limit in overrides.items()}


def _address_of(host: str) -> str:
    try:
        found = socket.getaddrinfo(host.removeprefix("[").removesuffix("]"), None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UnknownHost(
            f"max.connections.per.ip.overrides names {host}, which has no address ({reason}); "
            "expected a name that this machine can resolve, or an address"
        ) from error
    first = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return plain_address(str(first[4][0]))


def limit_settings(settings: BrokerSettings) -> LimitSettings:
    """What ``settings`` say of connections. Asks the system's resolver where an override names a host; raises
    `UnknownHost` where it has no address."""
    listeners = settings.listeners
    return LimitSettings(
        max_connections=settings.max_connections,
        max_connections_per_ip=settings.max_connections_per_ip,
        per_ip_overrides=addresses_of(settings.max_connections_by_ip),
        per_listener={one.name: one.max_connections for one in listeners if one.max_connections is not None},
        max_creation_rate=settings.max_connection_creation_rate,
        creation_rate_per_listener={
            one.name: one.max_connection_creation_rate
            for one in listeners
            if one.max_connection_creation_rate is not None
        },
        inter_broker_listener=settings.inter_broker_listener,
        quota_windows=settings.quota_window_num,
        quota_window_ms=settings.quota_window_size_seconds * 1_000,
    )
