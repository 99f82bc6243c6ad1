"""EndTxn: which state follows, by the state of the transaction and the version of the producer's client.

Transaction versions 0 and 1 (EndTxn to version 4): the epoch stays, and a complete state answers a repetition.

                    commit              abort
    Ongoing         PrepareCommit       PrepareAbort
    CompleteCommit  NONE                INVALID_TXN_STATE
    CompleteAbort   INVALID_TXN_STATE   NONE
    Empty           INVALID_TXN_STATE   INVALID_TXN_STATE

Transaction version 2 (EndTxn from version 5, KIP-890): each end begins a new epoch, which tells a repetition (of the
epoch before) from the next end (of the epoch now). The next end may abort before any partition was added.

                    commit, repeated / next                 abort, repeated / next
    Ongoing         PRODUCER_FENCED / PrepareCommit         PRODUCER_FENCED / PrepareAbort
    CompleteCommit  NONE / INVALID_TXN_STATE                INVALID_TXN_STATE / PrepareAbort
    CompleteAbort   INVALID_TXN_STATE / INVALID_TXN_STATE   NONE / PrepareAbort
    Empty           PRODUCER_FENCED / INVALID_TXN_STATE     PRODUCER_FENCED / PrepareAbort

While an end is being written, its markers included, the answer is CONCURRENT_TRANSACTIONS; to a client of version 2
before anything else, since it may go on with an id or an epoch that is only being written.
"""

from typing import Final

from broker.coordinators.result import FIRST_EPOCH, ProducerIdAndEpoch
from broker.coordinators.transaction.requests import BUMPS_EPOCH_SINCE, EndTransaction
from broker.coordinators.transaction.transaction import LAST_EPOCH, Transaction
from protocol.errors import ErrorCode
from protocol.records.transaction_state import TransactionStatus
from storage.sentinels import NO_PRODUCER_ID

_PREPARED: Final = {True: TransactionStatus.PREPARE_COMMIT, False: TransactionStatus.PREPARE_ABORT}
_COMPLETE: Final = {True: TransactionStatus.COMPLETE_COMMIT, False: TransactionStatus.COMPLETE_ABORT}


def check_end(transaction: Transaction, request: EndTransaction, *, is_settling: bool) -> ErrorCode | None:
    """None if the transaction is to be ended now; NONE if the request repeats an end that is done; else the error.

    ``is_settling``: a record of the id is being written, or the markers of its last transaction are.
    """
    if request.client_version >= BUMPS_EPOCH_SINCE:
        return ErrorCode.CONCURRENT_TRANSACTIONS if is_settling else _check_next_epoch(transaction, request)
    if request.producer.producer_id != transaction.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if request.producer.producer_epoch != transaction.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if is_settling:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if transaction.status is TransactionStatus.ONGOING:
        return None
    return _repeated(transaction, request)


def _check_next_epoch(transaction: Transaction, request: EndTransaction) -> ErrorCode | None:
    if request.producer == (transaction.producer_id, transaction.producer_epoch):
        if transaction.status is TransactionStatus.ONGOING or not request.is_commit:
            return None
        return ErrorCode.INVALID_TXN_STATE
    is_complete = transaction.status in _COMPLETE.values()
    if is_complete and _has_epoch_before(transaction, request.producer):
        return _repeated(transaction, request)
    if request.producer.producer_id != transaction.producer_id and not _had_last_epoch(transaction, request.producer):
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return ErrorCode.PRODUCER_FENCED


def _repeated(transaction: Transaction, request: EndTransaction) -> ErrorCode:
    is_same_end = transaction.status is _COMPLETE[request.is_commit]
    return ErrorCode.NONE if is_same_end else ErrorCode.INVALID_TXN_STATE


def _has_epoch_before(transaction: Transaction, producer: ProducerIdAndEpoch) -> bool:
    """Whether the producer has the epoch that the end of its last transaction has replaced."""
    if transaction.client_version < BUMPS_EPOCH_SINCE:
        # The epoch is from InitProducerId, which has fenced this producer. Kafka 4.4.0 takes this for a repetition too,
        # and so gives the epoch of a producer of an old client to the one that it has fenced.
        return False
    if producer.producer_id == transaction.producer_id:
        return producer.producer_epoch + 1 == transaction.producer_epoch
    return _had_last_epoch(transaction, producer)


def _had_last_epoch(transaction: Transaction, producer: ProducerIdAndEpoch) -> bool:
    """Whether the producer's id was followed by a new id, since its epochs were used up."""
    return producer == (transaction.previous_producer_id, LAST_EPOCH) and transaction.producer_epoch == FIRST_EPOCH


def prepare(transaction: Transaction, request: EndTransaction, *, new_id: int | None, now_ms: int) -> Transaction:
    """The state in which the markers are written."""
    bumps = request.client_version >= BUMPS_EPOCH_SINCE
    return transaction.changed(
        now_ms,
        _PREPARED[request.is_commit],
        producer_epoch=min(transaction.producer_epoch + bumps, LAST_EPOCH + 1),
        next_producer_id=NO_PRODUCER_ID if new_id is None else new_id,
        started_ms=transaction.started_ms if transaction.status is TransactionStatus.ONGOING else now_ms,
        client_version=request.client_version,
    )


def fence(transaction: Transaction, *, new_id: int | None, client_version: int, now_ms: int) -> Transaction:
    """The state in which a transaction is aborted by the coordinator: its producer can write nothing more.

    ``client_version``: the coordinator's own, which is recorded in place of the client's.
    """
    return transaction.changed(
        now_ms,
        TransactionStatus.PREPARE_ABORT,
        producer_epoch=min(transaction.producer_epoch + 1, LAST_EPOCH + 1),
        next_producer_id=NO_PRODUCER_ID if new_id is None else new_id,
        client_version=client_version,
    )


def complete(transaction: Transaction, *, now_ms: int) -> Transaction:
    """The state behind the last marker."""
    producer_id, epoch = going_on_with(transaction)
    return transaction.changed(
        now_ms,
        _COMPLETE[transaction.is_commit],
        producer_id=producer_id,
        producer_epoch=epoch,
        next_producer_id=NO_PRODUCER_ID,
        partitions=frozenset(),
    )


def going_on_with(transaction: Transaction) -> ProducerIdAndEpoch:
    """With which identity the producer goes on behind a transaction that ends or has ended."""
    if transaction.next_producer_id != NO_PRODUCER_ID:
        return ProducerIdAndEpoch(transaction.next_producer_id, FIRST_EPOCH)
    return ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
