"""MarkerSender: how the coordinator has the markers of an ended transaction written, wherever its partitions are."""

from collections.abc import Callable
from typing import Protocol

from broker.coordinators.transaction.transaction import Transaction


class MarkerSender(Protocol):
    """Writes markers into the partitions that a transaction has written to."""

    @property
    def waiting(self) -> int:
        """How many markers could not be written now, and wait for their next attempt."""

    def send(self, transaction: Transaction, done: Callable[[], None]) -> None:
        """Write a marker into each partition of ``transaction``, which is being ended, and call ``done`` once, perhaps
        before this returns, when all of them are acknowledged. A partition that was deleted needs no marker.

        It tries again until it has succeeded, or until `cancel`.
        """

    def cancel(self, transactional_id: str) -> None:
        """Send no more markers for this id, and do not call ``done``: another coordinator takes over."""
