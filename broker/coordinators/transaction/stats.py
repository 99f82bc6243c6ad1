"""What the transaction coordinator counts."""


class TransactionStats:
    """Counts since the start, of all partitions of ``__transaction_state`` together."""

    __slots__ = ("aborted", "committed", "expired", "timed_out")

    def __init__(self) -> None:
        self.committed = 0
        """Transactions that were committed, their markers written."""
        self.aborted = 0
        """Transactions that were aborted, their markers written."""
        self.timed_out = 0
        """Transactions that were aborted because they were open for longer than their timeout."""
        self.expired = 0
        """Transactional ids that were forgotten because they were idle."""

    def count_end(self, *, is_commit: bool) -> None:
        """Count a transaction that has ended."""
        self.committed += is_commit
        self.aborted += not is_commit
