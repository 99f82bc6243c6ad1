"""A transaction shard over a log that a test writes step by step, with a clock and markers that it moves by hand."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from broker.coordinators.result import ProducerIdAndEpoch
from broker.coordinators.transaction.records import TransactionResult, decode, encode
from broker.coordinators.transaction.requests import AddPartitions, EndTransaction, InitProducer
from broker.coordinators.transaction.settings import TransactionSettings
from broker.coordinators.transaction.shard import TransactionShard
from broker.coordinators.transaction.stats import TransactionStats
from broker.coordinators.transaction.transaction import Transaction
from broker.runtime.manual_clock import ManualClock
from protocol.errors import ErrorCode
from protocol.records.transaction_state import TransactionRecord, TransactionStatus
from storage.topic_partition import TopicPartition

TIMEOUT_MS = 60_000
MOST_TIMEOUT_MS = 900_000
EXPIRATION_MS = 604_800_000

Answer = tuple[ErrorCode, ProducerIdAndEpoch]


class HeldMarkers:
    """A `MarkerSender` whose markers are written when the test says so."""

    def __init__(self) -> None:
        self.waiting = 0
        self.sent: dict[str, tuple[Transaction, Callable[[], None]]] = {}
        self.cancelled: list[str] = []

    def send(self, transaction: Transaction, done: Callable[[], None]) -> None:
        self.sent[transaction.transactional_id] = (transaction, done)

    def cancel(self, transactional_id: str) -> None:
        self.sent.pop(transactional_id, None)
        self.cancelled.append(transactional_id)

    def write(self, transactional_id: str) -> Transaction:
        """All markers of the id's transaction are written."""
        transaction, done = self.sent.pop(transactional_id)
        done()
        return transaction


class Coordinator:
    """A shard, its log, and requests in short."""

    def __init__(self, log: Sequence[tuple[bytes, bytes | None]] = (), *, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock()
        self.markers = HeldMarkers()
        self.stats = TransactionStats()
        self.log = list(log)
        """The acknowledged records, as they are stored."""
        self.staged: deque[TransactionResult] = deque()
        """Results that are being written."""
        self.next_id = 1_000
        self.level = 2
        self.shard = TransactionShard(
            settings=TransactionSettings(
                max_timeout_ms=MOST_TIMEOUT_MS, settles_within_ms=100, id_expiration_ms=EXPIRATION_MS
            ),
            clock=self.clock,
            markers=self.markers,
            stats=self.stats,
            submit=self.staged.append,
            later=lambda after_ms, call: self.clock.call_at(self.clock.monotonic_ms() + after_ms, call),
            take_id=self._new_id,
            level=lambda: self.level,
        )
        for key, value in self.log:
            self.shard.replay(decode(key, value))
        self.shard.loaded()

    # The log

    def write(self, outcome: ErrorCode = ErrorCode.NONE) -> None:
        """Write what is staged; or let the write fail."""
        while self.staged:
            self.write_next(outcome)

    def write_next(self, outcome: ErrorCode = ErrorCode.NONE) -> None:
        """Write the first staged result; or let its write fail."""
        result = self.staged.popleft()
        if outcome is ErrorCode.NONE:
            for record in result.records:
                self.log.append(encode(record))
                self.shard.replay(record)
        result.then(outcome)

    def time_out(self) -> None:
        """What is staged is in the log, and is not acknowledged within the time that clients wait."""
        for result in self.staged:
            assert result.late is not None
            result.late()

    def restarted(self) -> "Coordinator":
        """The coordinator that finds this log after a crash: what is only staged is lost."""
        other = Coordinator(self.log, clock=self.clock)
        other.next_id = self.next_id
        return other

    def last_value(self, transactional_id: str = "tx") -> Any:
        """The last value that the log has for the id."""
        for key, value in reversed(self.log):
            record = decode(key, value)
            assert isinstance(record, TransactionRecord)
            if record.key.transactional_id == transactional_id:
                return record.value
        raise AssertionError(f"the log has nothing of {transactional_id}")

    # Requests; each returns a list that holds the answer once there is one

    def init(
        self, transactional_id: str = "tx", *, timeout_ms: int = TIMEOUT_MS, expected: ProducerIdAndEpoch | None = None
    ) -> list[Answer]:
        answers: list[Answer] = []
        request = InitProducer(transactional_id, timeout_ms, expected)
        new_id = self._new_id() if self.shard.needs_producer_id(request) else None
        self._stage(self.shard.init_producer(request, lambda *answer: answers.append(answer), new_id=new_id))
        return answers

    def add(
        self, producer: ProducerIdAndEpoch, *partitions: str, transactional_id: str = "tx", client_version: int = 0
    ) -> list[Sequence[ErrorCode]]:
        answers: list[Sequence[ErrorCode]] = []
        request = AddPartitions(transactional_id, producer, [partition(name) for name in partitions], client_version)
        self._stage(self.shard.add_partitions(request, answers.append))
        return answers

    def add_when_settled(self, producer: ProducerIdAndEpoch, *partitions: str) -> list[Sequence[ErrorCode]]:
        answers: list[Sequence[ErrorCode]] = []
        request = AddPartitions("tx", producer, [partition(name) for name in partitions], 2)
        self.shard.add_when_settled(request, answers.append)
        return answers

    def verify(self, producer: ProducerIdAndEpoch, *partitions: str) -> Sequence[ErrorCode]:
        return self.shard.verify_partitions(AddPartitions("tx", producer, [partition(name) for name in partitions]))

    def end(
        self,
        producer: ProducerIdAndEpoch,
        *,
        commit: bool,
        transactional_id: str = "tx",
        client_version: int = 0,
    ) -> list[Answer]:
        answers: list[Answer] = []
        request = EndTransaction(transactional_id, producer, commit, client_version)
        new_id = self._new_id() if self.shard.needs_producer_id(request) else None
        self._stage(self.shard.end(request, lambda *answer: answers.append(answer), new_id=new_id))
        return answers

    def sweep(self) -> None:
        """Abort what has timed out, as the coordinator does every ten seconds."""
        for result in self.shard.abort_timed_out():
            self._stage(result)

    def expire(self) -> None:
        """Forget idle ids, as the coordinator does every hour."""
        for result in self.shard.forget_expired():
            self._stage(result)

    # Requests that are written and answered at once

    def begun(self, transactional_id: str = "tx", *, timeout_ms: int = TIMEOUT_MS) -> ProducerIdAndEpoch:
        """A producer that has just been given its identity."""
        answers = self.init(transactional_id, timeout_ms=timeout_ms)
        self.write()
        [(error, producer)] = answers
        assert error is ErrorCode.NONE
        return producer

    def opened(self, *partitions: str, transactional_id: str = "tx", client_version: int = 0) -> ProducerIdAndEpoch:
        """A producer with an open transaction."""
        producer = self.begun(transactional_id)
        self.add(producer, *partitions, transactional_id=transactional_id, client_version=client_version)
        self.write()
        return producer

    def ended(
        self, producer: ProducerIdAndEpoch, *, commit: bool, transactional_id: str = "tx", client_version: int = 0
    ) -> Answer:
        """End a transaction, up to its last marker; return the answer."""
        answers = self.end(producer, commit=commit, transactional_id=transactional_id, client_version=client_version)
        self.write()
        self.markers.write(transactional_id)
        self.write()
        return answers[0]

    def in_state(self, status: TransactionStatus, *, client_version: int = 0) -> ProducerIdAndEpoch:
        """Bring "tx" into a state; return the identity that the producer was given last."""
        if status is TransactionStatus.EMPTY:
            return self.begun()
        producer = self.opened("orders-0", client_version=client_version)
        if status is TransactionStatus.ONGOING:
            return producer
        commit = status in (TransactionStatus.PREPARE_COMMIT, TransactionStatus.COMPLETE_COMMIT)
        answers = self.end(producer, commit=commit, client_version=client_version)
        self.write()
        if status in (TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT):
            self.markers.write("tx")
            self.write()
        [(error, identity)] = answers
        assert error is ErrorCode.NONE
        return identity

    def status(self, transactional_id: str = "tx") -> TransactionStatus:
        return self.shard.image.by_id[transactional_id].status

    def _stage(self, result: TransactionResult | None) -> None:
        if result is not None:
            self.staged.append(result)

    def _new_id(self) -> int:
        self.next_id += 1
        return self.next_id


def partition(name: str) -> TopicPartition:
    """``orders-0``"""
    topic, _, index = name.rpartition("-")
    return TopicPartition(topic, int(index))
