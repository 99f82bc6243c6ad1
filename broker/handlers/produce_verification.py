"""Verification of transactional batches: no batch is appended to a partition that its transaction does not have.

The first batch of a transaction in a partition waits until the coordinator has said that the partition is in the
transaction (Produce to version 11), or has added it (from version 12). Without that, a batch that is late would open a
transaction which no coordinator ends, and readers of committed records would wait behind it for ever (KIP-890).

Batches of the same producer for the same partition wait behind the first one, in their order. Between the coordinator's
answer and the staging of the batch nothing else runs. But a marker may overtake the answer of a coordinator on another
broker. To version 11 such a marker makes the answer void (`VerificationGuard`). From version 12 on its epoch is later
than that of the batch, which is refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.handlers.verification_guard import VerificationGuard
from broker.replication.partition import Partition
from broker.request.code_versions import known_code
from broker.request.faults import Fault
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from storage.batch.record_batch import BatchHeader
from storage.errors import OutOfOrderSequence, StorageError

if TYPE_CHECKING:
    from broker.coordinators.transaction.verification import PartitionVerifier

ADDS_SINCE_VERSION: Final = 12
"""Of Produce: the partition is added to the transaction, and the client has not asked for that before."""

MOST_NOTED: Final = 10_000
"""Sequences that are remembered of producers whose transactions could not be opened."""

_NO_ANSWER: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
"""The coordinator could not say; the producer tries again."""


class PartitionNotVerified(Fault):
    """The partition is not in the producer's transaction, or it could not be found out whether it is."""

    def __init__(self, code: ErrorCode, message: str, message_for_client: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message_for_client = message_for_client
        """None where Kafka sends none."""


class TransactionalBatch:
    """A batch of a transaction on its way to a partition."""

    __slots__ = ("append", "header", "partition", "refuse")

    def __init__(
        self,
        partition: Partition,
        header: BatchHeader,
        append: Callable[[], None],
        refuse: Callable[[Exception], None],
    ) -> None:
        """Either ``append`` or ``refuse`` is called, once."""
        self.partition = partition
        self.header = header
        self.append = append
        self.refuse = refuse

    @property
    def key(self) -> tuple[Partition, int]:
        """Batches with the same key keep their order."""
        return self.partition, self.header.producer_id


class Verification:
    """Lets transactional batches pass once their partitions are in the transaction."""

    def __init__(self, verifier: Callable[[], PartitionVerifier], *, is_enabled: Callable[[], bool]) -> None:
        """``verifier`` gives what is asked, and is called with the first transaction. ``is_enabled``:
        `transaction.partition.verification.enable`, for batches of older clients."""
        self._verifier = verifier
        self._is_enabled = is_enabled
        self._waiting: dict[tuple[Partition, int], deque[Callable[[], None]]] = {}
        """What waits behind the first batch of a transaction in a partition."""
        self._lowest: dict[tuple[Partition, int], tuple[int, int]] = {}
        """Epoch and lowest sequence that were sent before a transaction was opened: the first record has to be there
        before those behind it, though it was refused at first."""

    def admit(self, transactional_id: str, version: int, batches: Sequence[TransactionalBatch]) -> None:
        """Append batches of one producer, sent in a request of ``version``, or refuse them; at once or later."""
        asked: list[tuple[TransactionalBatch, VerificationGuard]] = []
        for batch in batches:
            behind = self._waiting.get(batch.key)
            if behind is not None:
                behind.append(partial(self.admit, transactional_id, version, [batch]))
            elif _is_fenced(batch):
                batch.refuse(_not_verified(batch, ErrorCode.INVALID_PRODUCER_EPOCH, version))
            elif self._must_ask(batch, version):
                self._waiting[batch.key] = deque()
                self._note_sequence(batch)
                header = batch.header
                guard = VerificationGuard(batch.partition, header.producer_id, header.producer_epoch)
                asked.append((batch, guard))
            else:
                batch.append()
        if asked:
            header = asked[0][0].header
            verifier = self._verifier()
            ask = verifier.add if version >= ADDS_SINCE_VERSION else verifier.verify
            ask(
                transactional_id,
                header.producer_id,
                header.producer_epoch,
                [batch.partition.topic_partition for batch, _ in asked],
                partial(self._answered, version, asked),
            )

    def _note_sequence(self, batch: TransactionalBatch) -> None:
        if len(self._lowest) >= MOST_NOTED:
            self._lowest.clear()
        epoch, sequence = batch.header.producer_epoch, batch.header.base_sequence
        noted_epoch, lowest = self._lowest.get(batch.key, (epoch, sequence))
        if epoch > noted_epoch or (epoch == noted_epoch and sequence < lowest):
            lowest = sequence
        self._lowest[batch.key] = max(epoch, noted_epoch), lowest

    def _lowest_of(self, batch: TransactionalBatch) -> int:
        _, lowest = self._lowest.get(batch.key, (0, batch.header.base_sequence))
        return lowest

    def _must_ask(self, batch: TransactionalBatch, version: int) -> bool:
        if _is_open(batch):
            return False
        return version >= ADDS_SINCE_VERSION or self._is_enabled()

    def _answered(
        self,
        version: int,
        asked: Sequence[tuple[TransactionalBatch, VerificationGuard]],
        codes: Sequence[ErrorCode],
    ) -> None:
        for (batch, guard), code in zip(asked, codes, strict=True):
            if code is not ErrorCode.NONE:
                batch.refuse(_not_verified(batch, code, version))
            elif version >= ADDS_SINCE_VERSION and _skips_a_sequence(batch):
                batch.refuse(_out_of_order(batch, 0))
            elif batch.header.base_sequence > (lowest := self._lowest_of(batch)):
                batch.refuse(_out_of_order(batch, lowest))
            elif version < ADDS_SINCE_VERSION and (error := _why_void(guard)) is not None:
                batch.refuse(error)
            else:
                batch.append()
                if _is_open(batch):
                    self._lowest.pop(batch.key, None)
        for batch, _ in asked:
            for admit in self._waiting.pop(batch.key):
                admit()


def _is_fenced(batch: TransactionalBatch) -> bool:
    """Whether the partition has seen a later epoch of the producer, so that there is nothing to ask."""
    entry = batch.partition.log.producers.entries.get(batch.header.producer_id)
    return entry is not None and batch.header.producer_epoch < entry.producer_epoch


def _is_open(batch: TransactionalBatch) -> bool:
    """Whether the batch's producer has its transaction open in the partition."""
    header = batch.header
    return batch.partition.log.producers.has_open_transaction(header.producer_id, header.producer_epoch)


def _why_void(guard: VerificationGuard) -> Fault | StorageError | None:
    """Why the coordinator's answer does not hold any more; None if it does."""
    try:
        guard.check()
    except (Fault, StorageError) as error:
        return error
    return None


def _out_of_order(batch: TransactionalBatch, expected: int) -> OutOfOrderSequence:
    header = batch.header
    return OutOfOrderSequence(
        f"producer {header.producer_id} begins its transaction in {batch.partition.topic_partition} with sequence "
        f"{header.base_sequence}, expected {expected}"
    )


def _skips_a_sequence(batch: TransactionalBatch) -> bool:
    """Whether a producer that is new in the partition does not begin with its first record: that record was lost."""
    header = batch.header
    return header.base_sequence != 0 and header.producer_id not in batch.partition.log.producers.entries


def _not_verified(batch: TransactionalBatch, code: ErrorCode, version: int) -> PartitionNotVerified:
    """Why a batch is refused, as a client of this version knows it."""
    header = batch.header
    text = (
        f"{batch.partition.topic_partition} is not verified for a transaction of producer {header.producer_id}, epoch "
        f"{header.producer_epoch}: {code.name}"
    )
    code = known_code(code, ApiKey.PRODUCE, version)
    if code is ErrorCode.INVALID_TXN_STATE:
        return PartitionNotVerified(code, text, "Partition was not added to the transaction")
    if code in _NO_ANSWER:
        message = f"Unable to verify the partition has been added to the transaction. Underlying error: {code.name}"
        return PartitionNotVerified(ErrorCode.NOT_ENOUGH_REPLICAS, text, message)
    return PartitionNotVerified(code, text)
