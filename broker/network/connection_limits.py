"""How many connections there may be: in all, for each listener and for each address."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

UNLIMITED: Final = 2**31 - 1
"""Kafka's default for every limit here."""


class ConnectionLimits:
    """Counts connections for all acceptors.

    A listener that has reached its own limit, or the broker's, accepts nothing until a connection closes; the others
    wait in the system's backlog. The inter-broker listener, where it is not the only one, goes beyond the broker's
    limit: then connections of other listeners have to make room. An address above its limit is turned away at once.
    """

    def __init__(
        self,
        *,
        max_connections: int = UNLIMITED,
        max_connections_per_ip: int = UNLIMITED,
        per_ip_overrides: Mapping[str, int] | None = None,
        per_listener: Mapping[str, int] | None = None,
        inter_broker_listener: str = "",
    ) -> None:
        self.max_connections = max_connections
        self.max_connections_per_ip = max_connections_per_ip
        self.per_ip_overrides: Mapping[str, int] = per_ip_overrides or {}
        """Addresses as text; names are resolved by the acceptor's owner before they come here."""
        self.per_listener: Mapping[str, int] = per_listener or {}
        self.inter_broker_listener = inter_broker_listener
        self.total = 0
        self._of_listener: Counter[str] = Counter()
        self._of_address: Counter[str] = Counter()
        self._listeners: set[str] = set()
        self._waiting: list[Callable[[], None]] = []

    def change(
        self,
        *,
        max_connections: int,
        max_connections_per_ip: int,
        per_ip_overrides: Mapping[str, int],
        per_listener: Mapping[str, int],
    ) -> None:
        """Other limits from now on. Connections that are there already stay, however many they are."""
        self.max_connections = max_connections
        self.max_connections_per_ip = max_connections_per_ip
        self.per_ip_overrides = per_ip_overrides
        self.per_listener = per_listener
        self._tell_waiting()

    def register(self, listener: str) -> None:
        """There is such a listener."""
        self._listeners.add(listener)

    def has_room(self, listener: str) -> bool:
        """Whether ``listener`` may accept another connection now."""
        if self._of_listener[listener] >= self.per_listener.get(listener, UNLIMITED):
            return False
        return self.is_protected(listener) or self.total < self.max_connections

    def when_room(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when the next connection closes or the limits change; it has to ask again."""
        self._waiting.append(callback)

    def is_protected(self, listener: str) -> bool:
        """Whether ``listener`` may go beyond the broker's limit at the expense of others."""
        return listener == self.inter_broker_listener and len(self._listeners) > 1

    @property
    def is_exceeded(self) -> bool:
        """Some unprotected connection has to make room."""
        return self.total > self.max_connections

    def most_for(self, address: str) -> int:
        """The limit of one address."""
        return self.per_ip_overrides.get(address, self.max_connections_per_ip)

    def opened(self, listener: str, address: str) -> bool:
        """Count a connection; False, and nothing counted, if its address has too many."""
        if self._of_address[address] >= self.most_for(address):
            return False
        self.total += 1
        self._of_listener[listener] += 1
        self._of_address[address] += 1
        return True

    def closed(self, listener: str, address: str) -> None:
        """A connection that was counted is no more."""
        self.total -= 1
        self._of_listener[listener] -= 1
        self._of_address[address] -= 1
        if not self._of_address[address]:
            # A broker meets many addresses in its life.
            del self._of_address[address]
        self._tell_waiting()

    def _tell_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            callback()
