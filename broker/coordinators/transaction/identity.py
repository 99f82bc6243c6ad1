"""InitProducerId: which producer id and epoch a producer gets (KIP-98, KIP-360).

begins                  the next epoch: whoever produced with the transactional id before is fenced
goes on after an error  the next epoch, if no other producer has begun since
repeats its request     the epoch that it was given already
epochs are used up      a new producer id, and its first epoch
"""

from broker.coordinators.result import FIRST_EPOCH, ProducerIdAndEpoch
from broker.coordinators.transaction.requests import InitProducer
from broker.coordinators.transaction.transaction import LAST_EPOCH, RESTING, Transaction
from protocol.errors import ErrorCode
from protocol.records.transaction_state import TransactionStatus
from storage.sentinels import NO_PRODUCER_EPOCH, NO_TIMESTAMP


def needs_producer_id(transaction: Transaction | None, request: InitProducer) -> bool:
    """Whether the request can only be served with an id that no producer has had."""
    if transaction is None:
        return True
    if not transaction.is_epoch_used_up:
        return False
    return transaction.status is TransactionStatus.ONGOING or _rotates(transaction, request)


def _rotates(transaction: Transaction, request: InitProducer) -> bool:
    return transaction.is_epoch_used_up and (
        request.expected is None or request.expected.producer_epoch == transaction.producer_epoch
    )


def begin_producer(request: InitProducer, producer_id: int, now_ms: int) -> Transaction:
    """The state of a transactional id that is used for the first time."""
    return Transaction(
        transactional_id=request.transactional_id,
        producer_id=producer_id,
        producer_epoch=FIRST_EPOCH,
        timeout_ms=request.timeout_ms,
        status=TransactionStatus.EMPTY,
        partitions=frozenset(),
        updated_ms=now_ms,
        previous_producer_id=producer_id,
    )


def check_identity(transaction: Transaction, expected: ProducerIdAndEpoch | None) -> ErrorCode:
    """NONE if a producer that goes on after an error may do so, as far as its producer id tells."""
    if expected is None or expected.producer_id == transaction.producer_id:
        return ErrorCode.NONE
    if expected.producer_id == transaction.previous_producer_id and expected.producer_epoch >= LAST_EPOCH:
        return ErrorCode.NONE  # it was given a new id and has not heard of that
    return ErrorCode.PRODUCER_FENCED


class NextIdentity:
    """The state behind an InitProducerId, and the epoch with which the producer may repeat its request."""

    __slots__ = ("repeatable_epoch", "transaction")

    def __init__(self, transaction: Transaction, repeatable_epoch: int) -> None:
        self.transaction = transaction
        self.repeatable_epoch = repeatable_epoch
        """-1: the producer has not said with which epoch it goes on, so a repetition is fenced."""


def next_identity(
    transaction: Transaction, request: InitProducer, *, new_id: int | None, repeatable_epoch: int, now_ms: int
) -> NextIdentity | ErrorCode:
    """The state behind the request, of an id that has no transaction under way; or why it is refused.

    ``new_id`` is an unused producer id, where `needs_producer_id` has asked for it; ``repeatable_epoch`` is the epoch
    that the last request of this kind has left.
    """
    assert transaction.status in RESTING
    expected = request.expected
    if _rotates(transaction, request):
        if new_id is None:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        left = NO_PRODUCER_EPOCH if expected is None else transaction.producer_epoch
        return NextIdentity(_empty(transaction, request, now_ms, new_id, FIRST_EPOCH), left)
    epoch = transaction.producer_epoch
    if expected is None:
        return NextIdentity(_empty(transaction, request, now_ms, transaction.producer_id, epoch + 1), NO_PRODUCER_EPOCH)
    if expected.producer_epoch == epoch:
        return NextIdentity(_empty(transaction, request, now_ms, transaction.producer_id, epoch + 1), epoch)
    if expected.producer_epoch == repeatable_epoch:
        return NextIdentity(_empty(transaction, request, now_ms, transaction.producer_id, epoch), repeatable_epoch)
    return ErrorCode.PRODUCER_FENCED


def _empty(transaction: Transaction, request: InitProducer, now_ms: int, producer_id: int, epoch: int) -> Transaction:
    return transaction.changed(
        now_ms,
        TransactionStatus.EMPTY,
        producer_id=producer_id,
        producer_epoch=epoch,
        timeout_ms=request.timeout_ms,
        partitions=frozenset(),
        started_ms=NO_TIMESTAMP,
    )
