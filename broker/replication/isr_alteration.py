"""IsrAlterer: how a leader has the controller change the ISR of a partition, wherever the controller is (KIP-497)."""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, TypeAlias


class WantedIsr(NamedTuple):
    """The ISR that a leader wants for a partition."""

    topic_id: bytes
    partition: int
    leader_epoch: int
    partition_epoch: int
    """The version of the partition that it changes."""
    isr: Mapping[int, int]
    """The epoch of each broker's registration by its id."""


class IsrCommitted(NamedTuple):
    """The controller has changed the ISR, or it was as wanted."""

    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int


class IsrRefused(NamedTuple):
    """The controller will not make the change: the committed ISR counts."""


class IsrOutdated(NamedTuple):
    """The controller has another version of the partition, of which the metadata log will tell. Until then the change
    counts as wanted, since it may have been made."""


Outcome: TypeAlias = IsrCommitted | IsrRefused | IsrOutdated
Then: TypeAlias = Callable[[Outcome], None]


class IsrAlterer(Protocol):
    """Has the controller change ISRs."""

    def submit(self, wanted: WantedIsr, then: Then) -> bool:
        """Ask for a change; ``then`` is called on the loop with the outcome. False, and nothing is done, while another
        change of the partition has no outcome yet."""

    def withdraw(self, topic_id: bytes, partition: int) -> None:
        """Forget a partition that this broker leads no more: its change has no outcome."""
