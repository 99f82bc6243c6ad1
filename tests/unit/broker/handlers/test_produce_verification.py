"""Verification: which batches of transactions wait for the coordinator's answer, in which order they go on, and what
their producers are told otherwise."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from broker.coordinators.transaction.verification import Verified
from broker.handlers.produce_verification import MOST_NOTED, PartitionNotVerified, TransactionalBatch, Verification
from protocol.errors import ErrorCode as E
from storage.batch.markers import Marker
from storage.batch.record_batch import BatchHeader, read_header
from storage.producer_state import Producers, after_batch, after_marker
from storage.topic_partition import TopicPartition
from tests.support.batches import produced

OLD, ABORTABLE, NEW = 10, 11, 12
PRODUCER = 7


class Log:
    def __init__(self) -> None:
        self.producers = Producers()


class Leader:
    """A partition that knows its producers, and no more."""

    def __init__(self, name: str) -> None:
        topic, _, index = name.rpartition("-")
        self.topic_partition = TopicPartition(topic, int(index))
        self.log = Log()
        self.led_since_epoch = 0

    def append(self, header: BatchHeader) -> None:
        entries = self.log.producers.entries
        entries[header.producer_id] = after_batch(entries.get(header.producer_id), header, len(entries))

    def end(self, producer_id: int, epoch: int) -> None:
        """A marker ends the producer's transaction."""
        entries = self.log.producers.entries
        marker = Marker(
            offset=9, timestamp=0, producer_id=producer_id, producer_epoch=epoch, is_commit=False, coordinator_epoch=1
        )
        entries[producer_id], _ = after_marker(entries.get(producer_id), marker)


class Coordinator:
    """A `PartitionVerifier` that answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, int, int, list[str]]] = []
        self._then: list[Verified] = []

    def verify(self, *question: Any) -> None:
        self._ask("verify", *question)

    def add(self, *question: Any) -> None:
        self._ask("add", *question)

    def answer(self, *codes: E) -> None:
        """Answer the question that has waited longest."""
        self._then.pop(0)(codes)

    def _ask(
        self,
        what: str,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[TopicPartition],
        then: Verified,
    ) -> None:
        self.asked.append((what, transactional_id, producer_id, epoch, [str(partition) for partition in partitions]))
        self._then.append(then)


class Exchange:
    """Sends batches and notes what becomes of them, in the order in which it does."""

    def __init__(self, *, is_enabled: bool = True) -> None:
        self.coordinator = Coordinator()
        self.is_enabled = is_enabled
        self.verification = Verification(lambda: self.coordinator, is_enabled=lambda: self.is_enabled)
        self.partitions = {name: Leader(name) for name in ("orders-0", "orders-1")}
        self.outcomes: list[tuple[str, int] | tuple[str, int, str]] = []

    def send(self, version: int, *places: str, epoch: int = 0, sequence: int = 0, producer_id: int = PRODUCER) -> None:
        """One batch for each partition."""
        fields = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
        header = read_header(produced(1, **fields, is_transactional=True))
        batches = [
            TransactionalBatch(
                self.partitions[place],  # type: ignore[arg-type]
                header,
                partial(self._append, place, header),
                partial(self._refuse, place, header),
            )
            for place in places
        ]
        self.verification.admit("shop", version, batches)

    def _append(self, place: str, header: BatchHeader) -> None:
        self.partitions[place].append(header)
        self.outcomes.append((place, header.base_sequence))

    def _refuse(self, place: str, header: BatchHeader, error: Exception) -> None:
        code = error.code.name if isinstance(error, PartitionNotVerified) else type(error).__name__
        self.outcomes.append((place, header.base_sequence, code))


@pytest.mark.parametrize(("version", "what"), [(OLD, "verify"), (ABORTABLE, "verify"), (NEW, "add")])
def test_the_first_batch_waits_for_the_coordinator_and_the_next_do_not(version: int, what: str) -> None:
    exchange = Exchange()
    exchange.send(version, "orders-0", "orders-1", epoch=3)
    assert exchange.coordinator.asked == [(what, "shop", PRODUCER, 3, ["orders-0", "orders-1"])]
    assert exchange.outcomes == []
    exchange.coordinator.answer(E.NONE, E.NONE)
    exchange.send(version, "orders-0", epoch=3, sequence=1)
    assert exchange.outcomes == [("orders-0", 0), ("orders-1", 0), ("orders-0", 1)]
    assert len(exchange.coordinator.asked) == 1


def test_batches_behind_the_first_keep_their_order_and_those_of_others_pass_them() -> None:
    exchange = Exchange()
    for sequence in range(3):
        exchange.send(NEW, "orders-0", sequence=sequence)
    exchange.send(NEW, "orders-0", producer_id=8)
    exchange.coordinator.answer(E.NONE)
    assert exchange.outcomes == [("orders-0", 0), ("orders-0", 1), ("orders-0", 2)]
    exchange.coordinator.answer(E.NONE)
    assert exchange.outcomes[3:] == [("orders-0", 0)]
    assert [question[2] for question in exchange.coordinator.asked] == [PRODUCER, 8]


def test_behind_a_batch_that_is_refused_the_next_one_asks_again_and_is_out_of_order() -> None:
    exchange = Exchange()
    for sequence in range(2):
        exchange.send(NEW, "orders-0", sequence=sequence)
    exchange.coordinator.answer(E.CONCURRENT_TRANSACTIONS)
    assert exchange.outcomes == [("orders-0", 0, "NOT_ENOUGH_REPLICAS")]
    exchange.coordinator.answer(E.NONE)
    assert exchange.outcomes[1:] == [("orders-0", 1, "OutOfOrderSequence")]
    for sequence in range(2):
        exchange.send(NEW, "orders-0", sequence=sequence)
    exchange.coordinator.answer(E.NONE)
    assert exchange.outcomes[2:] == [("orders-0", 0), ("orders-0", 1)]


def test_of_several_partitions_each_has_its_own_answer() -> None:
    exchange = Exchange()
    exchange.send(ABORTABLE, "orders-0", "orders-1")
    exchange.coordinator.answer(E.TRANSACTION_ABORTABLE, E.NONE)
    assert exchange.outcomes == [("orders-0", 0, "TRANSACTION_ABORTABLE"), ("orders-1", 0)]


@pytest.mark.parametrize(
    ("version", "code", "told"),
    [
        (OLD, E.TRANSACTION_ABORTABLE, E.INVALID_TXN_STATE),
        (ABORTABLE, E.TRANSACTION_ABORTABLE, E.TRANSACTION_ABORTABLE),
        (NEW, E.INVALID_PRODUCER_EPOCH, E.INVALID_PRODUCER_EPOCH),
        (NEW, E.INVALID_PRODUCER_ID_MAPPING, E.INVALID_PRODUCER_ID_MAPPING),
        *(
            (NEW, code, E.NOT_ENOUGH_REPLICAS)
            for code in (
                E.CONCURRENT_TRANSACTIONS,
                E.COORDINATOR_LOAD_IN_PROGRESS,
                E.COORDINATOR_NOT_AVAILABLE,
                E.NOT_COORDINATOR,
                E.KAFKA_STORAGE_ERROR,
            )
        ),
    ],
)
def test_the_producer_is_told_what_its_version_knows(version: int, code: E, told: E) -> None:
    exchange = Exchange()
    exchange.send(version, "orders-0")
    exchange.coordinator.answer(code)
    assert exchange.outcomes == [("orders-0", 0, told.name)]


def test_a_batch_of_an_epoch_that_the_partition_has_left_behind_is_refused_without_a_question() -> None:
    exchange = Exchange()
    exchange.send(NEW, "orders-0", epoch=3)
    exchange.coordinator.answer(E.NONE)
    for version in (OLD, NEW):
        exchange.send(version, "orders-0", epoch=2)
    assert exchange.outcomes[1:] == [("orders-0", 0, "INVALID_PRODUCER_EPOCH")] * 2
    assert len(exchange.coordinator.asked) == 1


def test_an_open_transaction_of_another_epoch_opens_nothing_for_this_one() -> None:
    exchange = Exchange()
    exchange.send(NEW, "orders-0", epoch=3)
    exchange.coordinator.answer(E.NONE)
    exchange.send(NEW, "orders-0", epoch=4)
    assert [question[3] for question in exchange.coordinator.asked] == [3, 4]


def test_where_verification_is_off_only_new_clients_ask() -> None:
    exchange = Exchange(is_enabled=False)
    exchange.send(ABORTABLE, "orders-0")
    assert (exchange.outcomes, exchange.coordinator.asked) == ([("orders-0", 0)], [])
    exchange.send(NEW, "orders-1")
    assert len(exchange.coordinator.asked) == 1


def test_verification_may_be_switched_off_while_a_batch_waits() -> None:
    exchange = Exchange()
    exchange.send(ABORTABLE, "orders-0")
    exchange.is_enabled = False
    exchange.send(ABORTABLE, "orders-0", sequence=1)
    assert exchange.outcomes == [], "the second one waits behind the first"
    exchange.coordinator.answer(E.NONE)
    assert exchange.outcomes == [("orders-0", 0), ("orders-0", 1)]


def test_a_new_client_that_begins_in_the_middle_has_lost_a_record() -> None:
    exchange = Exchange()
    exchange.send(NEW, "orders-0", sequence=5)
    exchange.coordinator.answer(E.NONE)
    assert exchange.outcomes == [("orders-0", 5, "OutOfOrderSequence")]


def test_the_first_record_that_was_refused_has_to_be_there_before_those_behind_it() -> None:
    exchange = Exchange()
    exchange.send(ABORTABLE, "orders-0", sequence=4)
    exchange.coordinator.answer(E.NOT_COORDINATOR)
    exchange.send(ABORTABLE, "orders-0", sequence=5)
    exchange.coordinator.answer(E.NONE)
    exchange.send(ABORTABLE, "orders-0", sequence=4)
    exchange.coordinator.answer(E.NONE)
    exchange.send(ABORTABLE, "orders-0", sequence=5)
    assert exchange.outcomes[1:] == [("orders-0", 5, "OutOfOrderSequence"), ("orders-0", 4), ("orders-0", 5)]


def test_a_new_epoch_forgets_what_the_last_one_had_lost() -> None:
    exchange = Exchange()
    exchange.send(ABORTABLE, "orders-0", sequence=4)
    exchange.coordinator.answer(E.NOT_COORDINATOR)
    exchange.send(ABORTABLE, "orders-0", epoch=1, sequence=9)
    exchange.coordinator.answer(E.NONE)
    assert exchange.outcomes[1:] == [("orders-0", 9)]


def test_of_producers_that_never_come_back_only_so_many_are_remembered() -> None:
    exchange = Exchange()
    for producer_id in range(2 * MOST_NOTED + 1):
        exchange.send(ABORTABLE, "orders-0", producer_id=producer_id)
        exchange.coordinator.answer(E.TRANSACTION_ABORTABLE)
    assert len(exchange.verification._lowest) <= MOST_NOTED
    assert exchange.verification._waiting == {}


# A coordinator on another broker, whose answer may be overtaken


@pytest.mark.parametrize("knows_producer", [False, True])
def test_an_answer_that_the_transactions_marker_has_overtaken_is_void(knows_producer: bool) -> None:
    exchange = Exchange()
    leader = exchange.partitions["orders-0"]
    if knows_producer:
        leader.end(PRODUCER, 3)
    exchange.send(ABORTABLE, "orders-0", "orders-1", epoch=3)
    exchange.send(ABORTABLE, "orders-0", epoch=3, sequence=1)
    leader.end(PRODUCER, 3)
    exchange.coordinator.answer(E.NONE, E.NONE)
    assert exchange.outcomes == [("orders-0", 0, "InvalidTransactionState"), ("orders-1", 0)]
    exchange.coordinator.answer(E.TRANSACTION_ABORTABLE)
    assert exchange.outcomes[2:] == [("orders-0", 1, "TRANSACTION_ABORTABLE")]


def test_the_marker_of_the_transaction_before_leaves_the_answer_to_a_new_producer_as_it_is() -> None:
    # The transaction before had epoch 3, and its end has begun epoch 4.
    exchange = Exchange()
    exchange.send(NEW, "orders-0", epoch=4)
    exchange.partitions["orders-0"].end(PRODUCER, 4)
    exchange.coordinator.answer(E.NONE)
    assert exchange.outcomes == [("orders-0", 0)]


def test_an_answer_does_not_outlive_the_leadership_in_which_it_was_asked_for() -> None:
    exchange = Exchange()
    exchange.send(ABORTABLE, "orders-0")
    exchange.partitions["orders-0"].led_since_epoch = 2
    exchange.coordinator.answer(E.NONE)
    assert exchange.outcomes == [("orders-0", 0, "NotLeaderOrFollower")]


@pytest.mark.parametrize("version", [OLD, ABORTABLE, NEW])
def test_a_coordinator_that_cannot_be_reached_is_asked_again_by_the_producer(version: int) -> None:
    exchange = Exchange()
    exchange.send(version, "orders-0")
    exchange.coordinator.answer(E.NETWORK_EXCEPTION)
    assert exchange.outcomes == [("orders-0", 0, "NOT_ENOUGH_REPLICAS")]
