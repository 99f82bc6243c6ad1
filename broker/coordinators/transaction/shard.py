"""TransactionShard: the state machine of all transactional ids in one partition of ``__transaction_state``.

A method that returns a `TransactionResult` has changed no state yet: the record is written, acknowledged and replayed,
and then the request is answered. Until then every other request for the same id is answered CONCURRENT_TRANSACTIONS,
also when the request has been answered COORDINATOR_NOT_AVAILABLE since its record was not acknowledged in time: the
record is in the log, and a second one made from the state before it would contradict it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from broker.coordinators.result import Completion, ProducerIdAndEpoch, once
from broker.coordinators.transaction import ending, identity
from broker.coordinators.transaction.image import TransactionImage
from broker.coordinators.transaction.markers import MarkerSender
from broker.coordinators.transaction.records import (
    FLEXIBLE_VERSION,
    PLAIN_VERSION,
    TransactionResult,
    tombstone,
    transaction_record,
)
from broker.coordinators.transaction.requests import (
    BUMPS_EPOCH_SINCE,
    NO_PRODUCER,
    AddPartitions,
    DescribedTransaction,
    EndTransaction,
    IdentityReply,
    InitProducer,
    PartitionsReply,
)
from broker.coordinators.transaction.settings import TransactionSettings
from broker.coordinators.transaction.stats import TransactionStats
from broker.coordinators.transaction.transaction import ENDING, RESTING, STATE_NAMES, Transaction
from broker.coordinators.write_errors import client_error_of
from broker.runtime.clock import Clock
from protocol.errors import ErrorCode
from protocol.records.coordinator_records import UnknownRecord
from protocol.records.transaction_state import TransactionRecord, TransactionStatus
from storage.sentinels import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

RETRY_MS: Final = 1_000
"""How long the coordinator waits before it writes the end of a transaction again that could not be written."""


def _nobody_to_answer(_: ErrorCode) -> None:
    """No client has asked for the change."""


def _nothing_to_do(_: ErrorCode) -> None:
    """Nothing follows the change."""


class _Waiting:
    """Partitions that are added once the id has settled."""

    __slots__ = ("reply", "request")

    def __init__(self, request: AddPartitions, reply: PartitionsReply) -> None:
        self.request = request
        self.reply = reply

    def refuse(self, code: ErrorCode) -> None:
        self.reply([code] * len(self.request.partitions))


class TransactionShard:
    """The transactional ids of one partition."""

    def __init__(
        self,
        *,
        settings: TransactionSettings,
        clock: Clock,
        markers: MarkerSender,
        stats: TransactionStats,
        submit: Callable[[TransactionResult], None],
        later: Callable[[int, Callable[[], None]], object],
        take_id: Callable[[], int | None],
        level: Callable[[], int],
    ) -> None:
        """``submit`` takes results that no request has asked for, ``later`` calls after so many milliseconds,
        ``take_id`` gives a producer id that no producer has had if there is one at hand, ``level`` gives the finalised
        `transaction.version`."""
        self.image = TransactionImage()
        """The replayed state, for readers."""
        self._settings = settings
        self._clock = clock
        self._markers = markers
        self._stats = stats
        self._submit = submit
        self._later = later
        self._take_id = take_id
        self._level = level
        self._under_way: set[str] = set()
        """The ids whose next state is being written."""
        self._repeatable_epochs: dict[str, int] = {}
        """The epochs with which producers may repeat their last InitProducerId. As in Kafka they are not in the log, so
        that a repetition behind a restart is fenced, and the producer fails."""
        self._waiting: dict[str, deque[_Waiting]] = {}
        """Partitions to be added to transactions of ids that have not settled, in the order of their requests. A
        request that is answered is not among them, nor is an id without requests."""
        self._is_unloaded = False

    # Replay

    def replay(
        self, record: TransactionRecord | UnknownRecord, *, producer_id: int = NO_PRODUCER_ID, offset: int = -1
    ) -> None:
        """Apply a record of the log; no record of this topic is ever part of a transaction."""
        self.image.replay(record)

    def replay_marker(self, producer_id: int, *, commits: bool) -> None:
        """Nothing: no transaction writes to this topic."""

    def loaded(self) -> None:
        """All records of the log are replayed: transactions whose end was decided are ended now."""
        for transaction in self.image.ending():
            self._send_markers(transaction)

    def unload(self, code: ErrorCode) -> None:
        """Another coordinator takes over: no more markers are sent."""
        self._is_unloaded = True
        for transaction in self.image.ending():
            self._markers.cancel(transaction.transactional_id)
        waiting, self._waiting = self._waiting, {}
        for parked in waiting.values():
            for one in parked:
                one.refuse(code)

    # Producers

    def needs_producer_id(self, request: InitProducer | EndTransaction) -> bool:
        """Whether the request can only be served with a producer id that no producer has had."""
        transaction = self.image.by_id.get(request.transactional_id)
        if self._is_settling(request.transactional_id):
            return False
        if isinstance(request, InitProducer):
            return self._is_allowed(request.timeout_ms) and identity.needs_producer_id(transaction, request)
        return (
            transaction is not None
            and request.client_version >= BUMPS_EPOCH_SINCE
            and transaction.is_epoch_used_up
            and ending.check_end(transaction, request, is_settling=False) is None
        )

    def init_producer(
        self, request: InitProducer, reply: IdentityReply, *, new_id: int | None = None
    ) -> TransactionResult | None:
        """Handle InitProducerId: give the producer an epoch that fences every producer before it."""
        if not self._is_allowed(request.timeout_ms):
            reply(ErrorCode.INVALID_TRANSACTION_TIMEOUT, NO_PRODUCER)
            return None
        if self._is_settling(request.transactional_id) or (new_id is None and self.needs_producer_id(request)):
            reply(ErrorCode.CONCURRENT_TRANSACTIONS, NO_PRODUCER)
            return None
        transaction = self.image.by_id.get(request.transactional_id)
        now_ms = self._clock.now_ms()
        if transaction is None:
            assert new_id is not None
            begun = identity.begin_producer(request, new_id, now_ms)
            left = NO_PRODUCER_EPOCH
        else:
            error = identity.check_identity(transaction, request.expected)
            if error is not ErrorCode.NONE:
                reply(error, NO_PRODUCER)
                return None
            if transaction.status is TransactionStatus.ONGOING:
                # The producer asks again until its predecessor's transaction is aborted.
                return self._abort(
                    transaction, lambda _: reply(ErrorCode.CONCURRENT_TRANSACTIONS, NO_PRODUCER), new_id=new_id
                )
            repeatable = self._repeatable_epochs.get(request.transactional_id, NO_PRODUCER_EPOCH)
            found = identity.next_identity(
                transaction, request, new_id=new_id, repeatable_epoch=repeatable, now_ms=now_ms
            )
            if isinstance(found, ErrorCode):
                reply(found, NO_PRODUCER)
                return None
            begun, left = found.transaction, found.repeatable_epoch

        def answer(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                reply(ErrorCode.NONE, ProducerIdAndEpoch(begun.producer_id, begun.producer_epoch))
            else:
                reply(client_error_of(error), NO_PRODUCER)

        def then(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self._repeatable_epochs[request.transactional_id] = left

        return self._change(begun, answer, then)

    def add_partitions(self, request: AddPartitions, reply: PartitionsReply) -> TransactionResult | None:
        """Handle AddPartitionsToTxn: the transaction, opened if none is open, writes to these partitions too."""
        count = len(request.partitions)
        error, transaction = self._of_producer(request)
        if transaction is None or error is not ErrorCode.NONE:
            reply([error] * count)
            return None
        partitions = frozenset(request.partitions)
        if transaction.status is TransactionStatus.ONGOING and partitions <= transaction.partitions:
            reply([ErrorCode.NONE] * count)
            return None
        if not self._can_record(request.client_version):
            reply([ErrorCode.UNSUPPORTED_VERSION] * count)
            return None
        grown = transaction.with_partitions(
            partitions, client_version=request.client_version, now_ms=self._clock.now_ms()
        )
        return self._change(grown, lambda error: reply([client_error_of(error)] * count))

    def add_when_settled(self, request: AddPartitions, reply: PartitionsReply) -> None:
        """Add partitions as soon as the record or the markers that the id's last request has caused are written.

        A producer of transaction version 2 begins its next transaction with the next Produce, and does not ask before.
        The answer is CONCURRENT_TRANSACTIONS if the id does not settle in time.
        """
        transactional_id = request.transactional_id
        if not self._is_settling(transactional_id):
            self._write(self.add_partitions(request, reply))
            return
        waiting = _Waiting(request, reply)
        self._waiting.setdefault(transactional_id, deque()).append(waiting)
        self._later(self._settings.settles_within_ms, partial(self._give_up, waiting))

    def _give_up(self, waiting: _Waiting) -> None:
        """The id has not settled in time, unless the request has been answered already."""
        transactional_id = waiting.request.transactional_id
        parked = self._waiting.get(transactional_id)
        if parked is not None and waiting in parked:
            parked.remove(waiting)
            if not parked:
                del self._waiting[transactional_id]
            waiting.refuse(ErrorCode.CONCURRENT_TRANSACTIONS)

    def _is_settling(self, transactional_id: str) -> bool:
        transaction = self.image.by_id.get(transactional_id)
        return transactional_id in self._under_way or (transaction is not None and transaction.status in ENDING)

    def _settled(self, transactional_id: str) -> None:
        """Add the partitions that wait for this id, until the id has a record under way again."""
        while (parked := self._waiting.get(transactional_id)) and not self._is_settling(transactional_id):
            waiting = parked.popleft()
            if not parked:
                del self._waiting[transactional_id]
            self._write(self.add_partitions(waiting.request, waiting.reply))

    def _write(self, result: TransactionResult | None) -> None:
        if result is not None:
            self._submit(result)

    def verify_partitions(self, request: AddPartitions) -> Sequence[ErrorCode]:
        """Say of each partition whether it is in the producer's open transaction (KIP-890, part 1)."""
        error, transaction = self._of_producer(request, is_verified=True)
        if transaction is None or error is not ErrorCode.NONE:
            return [error] * len(request.partitions)
        return [
            ErrorCode.NONE if partition in transaction.partitions else ErrorCode.TRANSACTION_ABORTABLE
            for partition in request.partitions
        ]

    def _of_producer(
        self, request: AddPartitions, *, is_verified: bool = False
    ) -> tuple[ErrorCode, Transaction | None]:
        transaction = self.image.by_id.get(request.transactional_id)
        if transaction is None:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING, None
        if not is_verified and self._is_settling(request.transactional_id):
            # First of all: a producer may go on with an id or an epoch that is only being written.
            return ErrorCode.CONCURRENT_TRANSACTIONS, transaction
        if request.producer.producer_id != transaction.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING, transaction
        if request.producer.producer_epoch != transaction.producer_epoch:
            return ErrorCode.PRODUCER_FENCED, transaction
        is_ending = transaction.status in ENDING
        return ErrorCode.CONCURRENT_TRANSACTIONS if is_ending else ErrorCode.NONE, transaction

    def end(
        self, request: EndTransaction, reply: IdentityReply, *, new_id: int | None = None
    ) -> TransactionResult | None:
        """Handle EndTxn: decide the transaction's end. It is answered once that is written; the markers come then."""
        transaction = self.image.by_id.get(request.transactional_id)
        if transaction is None:
            reply(ErrorCode.INVALID_PRODUCER_ID_MAPPING, NO_PRODUCER)
            return None
        is_settling = self._is_settling(request.transactional_id)
        error = ending.check_end(transaction, request, is_settling=is_settling)
        if error is None and new_id is None and self.needs_producer_id(request):
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        if error is None and not self._can_record(request.client_version):
            error = ErrorCode.UNSUPPORTED_VERSION
        if error is not None:
            goes_on = error is ErrorCode.NONE
            reply(error, ending.going_on_with(transaction) if goes_on else NO_PRODUCER)
            return None
        prepared = ending.prepare(transaction, request, new_id=new_id, now_ms=self._clock.now_ms())

        def answer(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                reply(ErrorCode.NONE, ending.going_on_with(prepared))
            else:
                reply(client_error_of(error), NO_PRODUCER)

        return self._end(transaction, prepared, answer)

    # Ends

    def _abort(self, transaction: Transaction, answer: Completion, *, new_id: int | None) -> TransactionResult:
        """Abort an open transaction and fence its producer."""
        version = BUMPS_EPOCH_SINCE if self._level() >= BUMPS_EPOCH_SINCE else 0
        fenced = ending.fence(transaction, new_id=new_id, client_version=version, now_ms=self._clock.now_ms())
        return self._end(transaction, fenced, answer)

    def _end(self, transaction: Transaction, prepared: Transaction, answer: Completion) -> TransactionResult:
        def then(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                if prepared.client_version >= BUMPS_EPOCH_SINCE:
                    self._repeatable_epochs[prepared.transactional_id] = transaction.producer_epoch
                self._send_markers(prepared)

        return self._change(prepared, answer, then)

    def _send_markers(self, transaction: Transaction) -> None:
        transactional_id, prepared_ms = transaction.transactional_id, self._clock.now_ms()
        self._markers.send(transaction, lambda: self._complete(transactional_id, prepared_ms))

    def _complete(self, transactional_id: str, prepared_ms: int) -> None:
        """All markers of the transaction are written; as in Kafka, it is complete since its end was decided."""
        transaction = self.image.by_id.get(transactional_id)
        if self._is_unloaded or transaction is None or transaction.status not in ENDING:
            return
        is_commit = transaction.is_commit

        def then(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self._stats.count_end(is_commit=is_commit)
            elif not self._is_unloaded:
                self._stats.ends_to_retry += 1
                self._later(RETRY_MS, again)

        def again() -> None:
            self._stats.ends_to_retry -= 1
            self._complete(transactional_id, prepared_ms)

        self._submit(self._change(ending.complete(transaction, now_ms=prepared_ms), _nobody_to_answer, then))

    def abort_timed_out(self) -> Iterator[TransactionResult | None]:
        """Abort the transactions that are open for longer than their timeout, one after the other."""
        for transactional_id in tuple(self.image.open):
            transaction = self.image.by_id.get(transactional_id)
            if (
                transaction is not None
                and transactional_id not in self._under_way
                and transaction.is_timed_out(self._clock.now_ms())
            ):
                new_id = self._take_id() if transaction.is_epoch_used_up else None
                if new_id is not None or not transaction.is_epoch_used_up:
                    self._stats.timed_out += 1
                    yield self._abort(transaction, _nobody_to_answer, new_id=new_id)
                    continue
            yield None

    # Expiry

    def forget_expired(self) -> Iterator[TransactionResult | None]:
        """Forget the ids that have been idle for longer than `transactional.id.expiration.ms`, one after the other."""
        for transactional_id in tuple(self.image.by_id):
            transaction = self.image.by_id.get(transactional_id)
            yield self._forget(transaction) if transaction is not None and self._is_expired(transaction) else None

    def _is_expired(self, transaction: Transaction) -> bool:
        idle_ms = self._clock.now_ms() - transaction.updated_ms
        return (
            transaction.status in RESTING
            and idle_ms > self._settings.id_expiration_ms
            and transaction.transactional_id not in self._under_way
        )

    def _forget(self, transaction: Transaction) -> TransactionResult:
        transactional_id = transaction.transactional_id
        self._under_way.add(transactional_id)

        def then(error: ErrorCode) -> None:
            self._under_way.discard(transactional_id)
            if error is ErrorCode.NONE:
                self._repeatable_epochs.pop(transactional_id, None)
                self._stats.expired += 1
            self._settled(transactional_id)

        return TransactionResult([tombstone(transactional_id)], then, late=lambda: None)

    # Administrators

    def describe(self, transactional_id: str) -> DescribedTransaction | None:
        """A transactional id as it is now; None if it is not known."""
        transaction = self.image.by_id.get(transactional_id)
        if transaction is None:
            return None
        return DescribedTransaction(
            transactional_id,
            STATE_NAMES[transaction.status],
            ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch),
            transaction.timeout_ms,
            transaction.started_ms,
            sorted(transaction.partitions),
        )

    # Parts

    def _can_record(self, client_version: int) -> bool:
        """Whether the records of the finalised `transaction.version` have a field for the client's."""
        return client_version < BUMPS_EPOCH_SINCE or self._level() > 0

    def _is_allowed(self, timeout_ms: int) -> bool:
        return 0 < timeout_ms <= self._settings.max_timeout_ms

    def _change(
        self, transaction: Transaction, answer: Completion, then: Completion = _nothing_to_do
    ) -> TransactionResult:
        """``answer`` is called once: with the outcome, or with REQUEST_TIMED_OUT while the outcome is not known.
        ``then`` is called with the outcome, behind ``answer``."""
        transactional_id = transaction.transactional_id
        self._under_way.add(transactional_id)
        answer_once = once(answer)

        def written(error: ErrorCode) -> None:
            self._under_way.discard(transactional_id)
            answer_once(error)
            then(error)
            self._settled(transactional_id)

        version = PLAIN_VERSION if self._level() == 0 else FLEXIBLE_VERSION
        record = transaction_record(transaction, version)
        return TransactionResult([record], written, late=partial(answer_once, ErrorCode.REQUEST_TIMED_OUT))
