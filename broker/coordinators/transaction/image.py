"""TransactionImage: the replayed state of the transactional ids of one partition of ``__transaction_state``."""

from broker.coordinators.transaction.records import transaction_of
from broker.coordinators.transaction.transaction import ENDING, Transaction
from protocol.records.coordinator_records import UnknownRecord
from protocol.records.transaction_state import TransactionRecord, TransactionStatus


class TransactionImage:
    """What the log says. It changes in `replay` only."""

    __slots__ = ("by_id", "open")

    def __init__(self) -> None:
        self.by_id: dict[str, Transaction] = {}
        self.open: dict[str, None] = {}
        """The ids with an open transaction, in the order in which they were opened: a set that keeps its order."""

    def replay(self, record: TransactionRecord | UnknownRecord) -> None:
        """Apply a record of the log."""
        if isinstance(record, UnknownRecord):
            return
        transactional_id = record.key.transactional_id
        if record.value is None:
            self.by_id.pop(transactional_id, None)
            self.open.pop(transactional_id, None)
            return
        transaction = self.by_id[transactional_id] = transaction_of(transactional_id, record.value)
        if transaction.status is TransactionStatus.ONGOING:
            self.open.setdefault(transactional_id)
        else:
            self.open.pop(transactional_id, None)

    def ending(self) -> list[Transaction]:
        """The transactions whose end is decided and whose markers may not all be written."""
        return [transaction for transaction in self.by_id.values() if transaction.status in ENDING]
