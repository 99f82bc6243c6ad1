"""TransactionImage: the replayed state of the transactional ids of one partition of ``__transaction_state``."""

from collections import Counter

from broker.coordinators.transaction.records import transaction_of
from broker.coordinators.transaction.transaction import ENDING, Transaction
from protocol.records.coordinator_records import UnknownRecord
from protocol.records.transaction_state import TransactionRecord, TransactionStatus


class TransactionImage:
    """What the log says. It changes in `replay` only."""

    __slots__ = ("by_id", "open", "states")

    def __init__(self) -> None:
        self.by_id: dict[str, Transaction] = {}
        self.open: dict[str, None] = {}
        """The ids with an open transaction, in the order in which they were opened: a set that keeps its order."""
        self.states: Counter[TransactionStatus] = Counter()
        """How many ids are in each state."""

    def replay(self, record: TransactionRecord | UnknownRecord) -> None:
        """Apply a record of the log."""
        if isinstance(record, UnknownRecord):
            return
        transactional_id = record.key.transactional_id
        before = self.by_id.get(transactional_id)
        if before is not None:
            self.states[before.status] -= 1
        if record.value is None:
            self.by_id.pop(transactional_id, None)
            self.open.pop(transactional_id, None)
            return
        transaction = self.by_id[transactional_id] = transaction_of(transactional_id, record.value)
        self.states[transaction.status] += 1
        if transaction.status is TransactionStatus.ONGOING:
            self.open.setdefault(transactional_id)
        else:
            self.open.pop(transactional_id, None)

    @property
    def oldest_open_ms(self) -> int | None:
        """When the oldest of the open transactions was opened, in milliseconds since 1970; None if none is open."""
        # Not just the first in `open`: loading finds them in the order of their last records.
        return min((self.by_id[transactional_id].started_ms for transactional_id in self.open), default=None)

    def ending(self) -> list[Transaction]:
        """The transactions whose end is decided and whose markers may not all be written."""
        return [transaction for transaction in self.by_id.values() if transaction.status in ENDING]
