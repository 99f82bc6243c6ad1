"""Transaction: what ``__transaction_state`` says of one transactional id, and which states may follow each other.

    Empty ── Ongoing ── PrepareCommit ── CompleteCommit ─┐
      │         └────── PrepareAbort ─── CompleteAbort ──┤
      └────────────────── Empty, Ongoing, PrepareAbort ──┘

A producer of transaction version 2 may abort before it has added a partition (KIP-890): so PrepareAbort follows Empty
and the complete states too. Kafka's states Dead and PrepareEpochFence are never written, and never held here: an
expired id has no entry, and a fence is one step from Ongoing to PrepareAbort.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from protocol.records.transaction_state import TransactionStatus
from storage.sentinels import NO_PRODUCER_ID, NO_TIMESTAMP
from storage.topic_partition import TopicPartition

LAST_EPOCH: Final = 0x7FFF - 1
"""The last epoch that a producer is given; the epoch behind it is left for the coordinator to fence a producer."""

_EMPTY = TransactionStatus.EMPTY
_ONGOING = TransactionStatus.ONGOING
_COMPLETE = frozenset({TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT})

RESTING: Final = frozenset({_EMPTY, *_COMPLETE})
"""No transaction is open, and none is being ended."""

ENDING: Final = frozenset({TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT})
"""The transaction's end is decided, and its markers are being written."""

PREVIOUS: Final[Mapping[TransactionStatus, frozenset[TransactionStatus]]] = {
    TransactionStatus.EMPTY: RESTING,
    TransactionStatus.ONGOING: frozenset({*RESTING, _ONGOING}),
    TransactionStatus.PREPARE_COMMIT: frozenset({_ONGOING}),
    TransactionStatus.PREPARE_ABORT: frozenset({*RESTING, _ONGOING}),
    TransactionStatus.COMPLETE_COMMIT: frozenset({TransactionStatus.PREPARE_COMMIT}),
    TransactionStatus.COMPLETE_ABORT: frozenset({TransactionStatus.PREPARE_ABORT}),
}
"""Which states each state may follow."""

STATE_NAMES: Final[Mapping[TransactionStatus, str]] = {
    TransactionStatus.EMPTY: "Empty",
    TransactionStatus.ONGOING: "Ongoing",
    TransactionStatus.PREPARE_COMMIT: "PrepareCommit",
    TransactionStatus.PREPARE_ABORT: "PrepareAbort",
    TransactionStatus.COMPLETE_COMMIT: "CompleteCommit",
    TransactionStatus.COMPLETE_ABORT: "CompleteAbort",
    TransactionStatus.DEAD: "Dead",
    TransactionStatus.PREPARE_EPOCH_FENCE: "PrepareEpochFence",
}
"""The states as Kafka's protocol and tools call them."""


class Transaction(NamedTuple):
    """The state of one transactional id. A change makes a new object, and its record is written first."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    """A transaction that is open for longer is aborted."""
    status: TransactionStatus
    partitions: frozenset[TopicPartition]
    """The partitions that the open or ending transaction writes to."""
    updated_ms: int
    """When this state was decided, in milliseconds since 1970."""
    started_ms: int = NO_TIMESTAMP
    """When the last transaction was opened; -1 before the first one of this producer."""
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before the last change of state: another id after a change of ids."""
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id that follows when the transaction has ended, since the epochs of this one are used up; or -1."""
    client_version: int = 0
    """The transaction version (0 or 2) of the producer's client, or of the coordinator where it has aborted."""

    @property
    def is_epoch_used_up(self) -> bool:
        """Whether the producer id has no epoch left to hand out."""
        return self.producer_epoch >= LAST_EPOCH

    @property
    def is_commit(self) -> bool:
        """Whether the transaction, which is ending, is to be committed."""
        return self.status is TransactionStatus.PREPARE_COMMIT

    def is_timed_out(self, now_ms: int) -> bool:
        """Whether the open transaction is open for longer than its timeout."""
        return self.status is _ONGOING and self.started_ms + self.timeout_ms < now_ms

    def changed(self, now_ms: int, status: TransactionStatus, **fields: Any) -> "Transaction":
        """The state that follows this one."""
        assert self.status in PREVIOUS[status], f"{self.transactional_id}: {status.name} follows {self.status.name}"
        return self._replace(status=status, updated_ms=now_ms, previous_producer_id=self.producer_id, **fields)

    def with_partitions(
        self, partitions: frozenset[TopicPartition], *, client_version: int, now_ms: int
    ) -> "Transaction":
        """The state with more partitions; a transaction is opened if none is open."""
        return self.changed(
            now_ms,
            _ONGOING,
            partitions=self.partitions | partitions,
            started_ms=self.started_ms if self.status is _ONGOING else now_ms,
            client_version=client_version,
        )
