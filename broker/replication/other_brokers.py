"""OtherBrokers: what replication has to know of the other brokers, which the broker server takes from the metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from broker.peers.endpoint import PeerEndpoint


class OtherBrokers(Protocol):
    """The other brokers, as the metadata has them now."""

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's own registration."""

    def is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether the controller would take a broker into an ISR: it is registered in this epoch (-1: in any), neither
        fenced nor being shut down."""

    def is_outdated(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether a broker has registered again since this epoch of its registration; -1 is no epoch."""

    def is_alive(self, broker_id: int) -> bool:
        """Whether a broker is registered and not fenced."""

    def address_of(self, broker_id: int) -> PeerEndpoint | None:
        """Where a broker is reached by other brokers; None where it is not registered, or not on their listener."""


class NoOtherBrokers(NamedTuple):
    """The `OtherBrokers` of a broker without others."""

    broker_epoch: int = -1

    def is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        """There is no other broker."""
        return False

    def is_outdated(self, broker_id: int, broker_epoch: int) -> bool:
        """There is no other broker."""
        return False

    def is_alive(self, broker_id: int) -> bool:
        """There is no other broker."""
        return False

    def address_of(self, broker_id: int) -> PeerEndpoint | None:
        """There is no other broker."""
        return None
