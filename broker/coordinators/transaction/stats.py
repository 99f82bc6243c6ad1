"""What the transaction coordinator counts."""

from collections.abc import Sequence
from typing import Final

from broker.runtime.histogram import RecentHistogram
from protocol.errors import ErrorCode

_US_PER_MS: Final = 1000


class VerificationStats:
    """Counts of what partition leaders have asked the coordinator: whether a transaction may write to partitions."""

    __slots__ = ("answered", "refused_partitions", "times")

    def __init__(self) -> None:
        self.answered = 0
        """Questions that were answered; a question is about one transaction and may name several partitions."""
        self.refused_partitions = 0
        """Partitions that were answered with an error."""
        self.times = RecentHistogram()
        """How long each answer took, in microseconds."""

    def count(self, codes: Sequence[ErrorCode], took_ms: int) -> None:
        """Count an answer with a code for each partition."""
        self.answered += 1
        self.refused_partitions += sum(code is not ErrorCode.NONE for code in codes)
        self.times.record(took_ms * _US_PER_MS)


class TransactionStats:
    """Counts since the start, of all partitions of ``__transaction_state`` together; `ends_to_retry` is of now."""

    __slots__ = ("aborted", "committed", "ends_to_retry", "expired", "timed_out", "verification")

    def __init__(self) -> None:
        self.committed = 0
        """Transactions that were committed, their markers written."""
        self.aborted = 0
        """Transactions that were aborted, their markers written."""
        self.timed_out = 0
        """Transactions that were aborted because they were open for longer than their timeout."""
        self.expired = 0
        """Transactional ids that were forgotten because they were idle."""
        self.ends_to_retry = 0
        """Transactions whose last record could not be written, and which wait to write it again."""
        self.verification = VerificationStats()

    def count_end(self, *, is_commit: bool) -> None:
        """Count a transaction that has ended."""
        self.committed += is_commit
        self.aborted += not is_commit
