"""EndTxn in every state, for clients of both transaction versions, and what comes behind it."""

import pytest

from broker.coordinators.result import ProducerIdAndEpoch
from broker.coordinators.transaction.requests import NO_PRODUCER
from broker.coordinators.transaction.transaction import LAST_EPOCH
from protocol.errors import ErrorCode
from protocol.records.transaction_state import TransactionStatus as Status
from tests.unit.broker.coordinators.transaction.harness import Coordinator

NONE = ErrorCode.NONE
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
WRONG = ErrorCode.INVALID_TXN_STATE
FENCED = ErrorCode.PRODUCER_FENCED
ENDS = None
"""The request ends the transaction."""

SAME_EPOCH = [
    # state, answer to a commit, to an abort
    (Status.EMPTY, WRONG, WRONG),
    (Status.ONGOING, ENDS, ENDS),
    (Status.PREPARE_COMMIT, BUSY, BUSY),
    (Status.PREPARE_ABORT, BUSY, BUSY),
    (Status.COMPLETE_COMMIT, NONE, WRONG),
    (Status.COMPLETE_ABORT, WRONG, NONE),
]

REPEATED = [
    # with the epoch before the end
    (Status.EMPTY, FENCED, FENCED),
    (Status.PREPARE_COMMIT, BUSY, BUSY),
    (Status.PREPARE_ABORT, BUSY, BUSY),
    (Status.COMPLETE_COMMIT, NONE, WRONG),
    (Status.COMPLETE_ABORT, WRONG, NONE),
]

NEXT = [
    # with the epoch that the last end has given
    (Status.EMPTY, WRONG, ENDS),
    (Status.ONGOING, ENDS, ENDS),
    (Status.PREPARE_COMMIT, BUSY, BUSY),
    (Status.PREPARE_ABORT, BUSY, BUSY),
    (Status.COMPLETE_COMMIT, WRONG, ENDS),
    (Status.COMPLETE_ABORT, WRONG, ENDS),
]


def check(
    coordinator: Coordinator, producer: ProducerIdAndEpoch, expected: ErrorCode | None, *, commit: bool, version: int
) -> None:
    before = coordinator.status()
    answers = coordinator.end(producer, commit=commit, client_version=version)
    coordinator.write()
    [(error, _)] = answers
    assert error is (NONE if expected is ENDS else expected)
    prepared = Status.PREPARE_COMMIT if commit else Status.PREPARE_ABORT
    assert coordinator.status() is (prepared if expected is ENDS else before)


@pytest.mark.parametrize(("status", "to_commit", "to_abort"), SAME_EPOCH)
def test_an_end_by_an_old_client(status: Status, to_commit: ErrorCode | None, to_abort: ErrorCode | None) -> None:
    for commit, expected in ((True, to_commit), (False, to_abort)):
        coordinator = Coordinator()
        producer = coordinator.in_state(status)
        check(coordinator, producer, expected, commit=commit, version=0)


@pytest.mark.parametrize(("status", "to_commit", "to_abort"), REPEATED)
def test_an_end_that_a_new_client_repeats(
    status: Status, to_commit: ErrorCode | None, to_abort: ErrorCode | None
) -> None:
    for commit, expected in ((True, to_commit), (False, to_abort)):
        coordinator = Coordinator()
        producer = coordinator.in_state(status, client_version=2)
        before = ProducerIdAndEpoch(producer.producer_id, producer.producer_epoch - 1)
        check(coordinator, before, expected, commit=commit, version=2)


@pytest.mark.parametrize(("status", "to_commit", "to_abort"), NEXT)
def test_an_end_by_a_new_client(status: Status, to_commit: ErrorCode | None, to_abort: ErrorCode | None) -> None:
    for commit, expected in ((True, to_commit), (False, to_abort)):
        coordinator = Coordinator()
        producer = coordinator.in_state(status, client_version=2)
        check(coordinator, producer, expected, commit=commit, version=2)


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("status", [status for status, _, _ in SAME_EPOCH])
@pytest.mark.parametrize(
    ("id_more", "epoch_more", "expected"),
    [(1, 0, ErrorCode.INVALID_PRODUCER_ID_MAPPING), (0, 1, FENCED), (0, 9, FENCED)],
)
def test_an_end_by_another_producer(
    version: int, status: Status, id_more: int, epoch_more: int, expected: ErrorCode
) -> None:
    coordinator = Coordinator()
    producer = coordinator.in_state(status, client_version=version)
    other = ProducerIdAndEpoch(producer.producer_id + id_more, producer.producer_epoch + epoch_more)
    if version == 2 and status in (Status.PREPARE_COMMIT, Status.PREPARE_ABORT):
        expected = BUSY
    check(coordinator, other, expected, commit=True, version=version)


@pytest.mark.parametrize("version", [0, 2])
def test_an_id_that_is_not_known_has_nothing_to_end(version: int) -> None:
    answers = Coordinator().end(ProducerIdAndEpoch(7, 0), commit=True, client_version=version)
    assert answers == [(ErrorCode.INVALID_PRODUCER_ID_MAPPING, NO_PRODUCER)]


def test_the_end_of_an_old_client_is_not_repeated_by_the_producer_that_it_has_fenced() -> None:
    coordinator = Coordinator()
    fenced = coordinator.begun()
    producer = coordinator.opened("orders-0")
    coordinator.ended(producer, commit=False)
    assert producer.producer_epoch == fenced.producer_epoch + 1
    assert coordinator.end(fenced, commit=False, client_version=2) == [(FENCED, NO_PRODUCER)]


def test_the_answer_comes_when_the_end_is_written_and_before_the_markers() -> None:
    coordinator = Coordinator()
    producer = coordinator.opened("orders-0")
    answers = coordinator.end(producer, commit=True)
    assert answers == []
    assert not coordinator.markers.sent
    coordinator.write()
    assert answers == [(NONE, producer)]
    assert coordinator.status() is Status.PREPARE_COMMIT
    coordinator.markers.write("tx")
    coordinator.write()
    assert coordinator.status() is Status.COMPLETE_COMMIT
    assert coordinator.last_value().transaction_partitions == []


def test_an_old_client_goes_on_with_its_epoch() -> None:
    coordinator = Coordinator()
    producer = coordinator.opened("orders-0")
    assert coordinator.ended(producer, commit=True) == (NONE, producer)
    coordinator.add(producer, "orders-1")
    coordinator.write()
    assert coordinator.ended(producer, commit=False) == (NONE, producer)


def test_a_new_client_goes_on_with_the_next_epoch_and_its_markers_have_that_too() -> None:
    coordinator = Coordinator()
    producer = coordinator.opened("orders-0", client_version=2)
    answers = coordinator.end(producer, commit=True, client_version=2)
    coordinator.write()
    following = ProducerIdAndEpoch(producer.producer_id, producer.producer_epoch + 1)
    assert answers == [(NONE, following)]
    prepared = coordinator.markers.write("tx")
    assert (prepared.producer_epoch, prepared.client_version) == (producer.producer_epoch + 1, 2)
    coordinator.write()
    assert coordinator.add(producer, "orders-0") == [[FENCED]]
    coordinator.add(following, "orders-0", client_version=2)
    coordinator.write()
    assert coordinator.status() is Status.ONGOING


def test_an_abort_without_partitions_has_no_markers_to_wait_for() -> None:
    coordinator = Coordinator()
    producer = coordinator.begun()
    answers = coordinator.end(producer, commit=False, client_version=2)
    coordinator.write()
    assert answers == [(NONE, ProducerIdAndEpoch(producer.producer_id, 1))]
    assert coordinator.markers.write("tx").partitions == frozenset()
    coordinator.write()
    assert coordinator.status() is Status.COMPLETE_ABORT


def test_the_end_of_the_last_epoch_gives_a_new_producer_id() -> None:
    coordinator = Coordinator()
    for _ in range(LAST_EPOCH + 1):
        producer = coordinator.begun()
    coordinator.add(producer, "orders-0", client_version=2)
    coordinator.write()
    answers = coordinator.end(producer, commit=True, client_version=2)
    coordinator.write()
    assert answers == [(NONE, ProducerIdAndEpoch(1_002, 0))]
    prepared = coordinator.markers.write("tx")
    assert (prepared.producer_id, prepared.producer_epoch, prepared.next_producer_id) == (1_001, LAST_EPOCH + 1, 1_002)
    coordinator.write()
    # Repeated, since the answer was lost; and then the next transaction.
    assert coordinator.end(producer, commit=True, client_version=2) == [(NONE, ProducerIdAndEpoch(1_002, 0))]
    assert coordinator.end(producer, commit=False, client_version=2) == [(WRONG, NO_PRODUCER)]
    coordinator.add(ProducerIdAndEpoch(1_002, 0), "orders-0", client_version=2)
    coordinator.write()
    assert coordinator.status() is Status.ONGOING


def test_while_an_end_is_being_written_everything_else_is_to_come_again() -> None:
    coordinator = Coordinator()
    producer = coordinator.opened("orders-0")
    coordinator.end(producer, commit=True)
    assert coordinator.end(producer, commit=True) == [(BUSY, NO_PRODUCER)]
    assert coordinator.add(producer, "orders-1") == [[BUSY]]
    assert coordinator.init() == [(BUSY, NO_PRODUCER)]


def test_an_end_that_could_not_be_written_leaves_the_transaction_open() -> None:
    coordinator = Coordinator()
    producer = coordinator.opened("orders-0")
    answers = coordinator.end(producer, commit=True)
    coordinator.write(ErrorCode.KAFKA_STORAGE_ERROR)
    assert answers == [(ErrorCode.NOT_COORDINATOR, NO_PRODUCER)]
    assert coordinator.status() is Status.ONGOING
    assert coordinator.ended(producer, commit=True) == (NONE, producer)


def test_a_completion_that_could_not_be_written_is_written_again() -> None:
    coordinator = Coordinator()
    producer = coordinator.opened("orders-0")
    coordinator.end(producer, commit=True)
    coordinator.write()
    coordinator.markers.write("tx")
    coordinator.write(ErrorCode.KAFKA_STORAGE_ERROR)
    assert coordinator.status() is Status.PREPARE_COMMIT
    assert coordinator.stats.ends_to_retry == 1
    coordinator.clock.advance(1_000)
    assert coordinator.stats.ends_to_retry == 0
    coordinator.write()
    assert coordinator.status() is Status.COMPLETE_COMMIT
    assert coordinator.stats.committed == 1


def test_a_completion_that_another_coordinator_writes_waits_here_no_more() -> None:
    coordinator = Coordinator()
    producer = coordinator.opened("orders-0")
    coordinator.end(producer, commit=True)
    coordinator.write()
    coordinator.markers.write("tx")
    coordinator.write(ErrorCode.KAFKA_STORAGE_ERROR)
    coordinator.shard.unload(ErrorCode.NOT_COORDINATOR)
    coordinator.clock.advance(1_000)
    assert coordinator.stats.ends_to_retry == 0
    assert not coordinator.staged
