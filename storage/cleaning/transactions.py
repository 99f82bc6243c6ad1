"""Transactions as the cleaner meets them, batch after batch: whose records go, and when a marker may follow them.

The records of an aborted transaction are removed at once. A marker, of an abort or a commit, stays until a round has
met no batch of its transaction any more; from then on it has a delete horizon, as a tombstone has (KIP-534).
"""

from collections.abc import Iterable

from storage.batch.markers import read_marker
from storage.batch.record_batch import BatchHeader, Buffer
from storage.index.transaction_index import AbortedTransaction


class CleanedTransactions:
    """The open transactions at one place of the log, on the way from its beginning to its end."""

    __slots__ = ("_aborted", "_met", "_open_aborted", "_open_committed", "kept")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """``aborted``: all transactions that the log's indexes name as aborted."""
        self._aborted = sorted(aborted, key=_first_offset, reverse=True)
        """Those that begin further on, the next one last."""
        self._open_aborted: dict[int, AbortedTransaction] = {}
        """By producer id: a producer has one open transaction at most."""
        self._met: set[int] = set()
        """The producers of whose open aborted transaction a batch was met."""
        self._open_committed: set[int] = set()
        self.kept: list[AbortedTransaction] = []
        """The aborted transactions of which a batch was met, by their markers: what the new index names."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a batch of records belongs to an aborted transaction."""
        if not header.is_transactional:
            return False
        self._begin_up_to(header.last_offset)
        producer_id = header.producer_id
        if producer_id in self._open_aborted:
            self._met.add(producer_id)
            return True
        self._open_committed.add(producer_id)
        return False

    def is_marker_superfluous(self, header: BatchHeader, batch: Buffer) -> bool:
        """Whether a control batch ends a transaction of which no batch was met. Raises UndecodableRecords."""
        self._begin_up_to(header.last_offset)
        if not header.record_count:
            return True  # an earlier round has removed the marker and kept the batch
        marker = read_marker(header, batch)
        if marker is None:
            return False
        producer_id = header.producer_id
        if marker.is_commit:
            if producer_id not in self._open_committed:
                return True
            self._open_committed.discard(producer_id)
            return False
        ended = self._open_aborted.pop(producer_id, None)
        if ended is None or producer_id not in self._met:
            return True
        self._met.discard(producer_id)
        self.kept.append(ended)
        return False

    def _begin_up_to(self, offset: int) -> None:
        aborted = self._aborted
        while aborted and aborted[-1].first_offset <= offset:
            transaction = aborted.pop()
            self._open_aborted[transaction.producer_id] = transaction


def _first_offset(transaction: AbortedTransaction) -> int:
    return transaction.first_offset
