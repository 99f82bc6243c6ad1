"""InitProducerId with a transactional id: identities, fences, repetitions, epochs that are used up."""

import pytest

from broker.coordinators.result import ProducerIdAndEpoch
from broker.coordinators.transaction.requests import NO_PRODUCER
from broker.coordinators.transaction.transaction import LAST_EPOCH
from protocol.errors import ErrorCode
from protocol.records.transaction_state import TransactionStatus
from tests.unit.broker.coordinators.transaction.harness import MOST_TIMEOUT_MS, TIMEOUT_MS, Coordinator

RESTING = [TransactionStatus.EMPTY, TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT]


def test_a_new_id_gets_a_new_producer_id_once_its_record_is_written() -> None:
    coordinator = Coordinator()
    answers = coordinator.init()
    assert answers == []
    coordinator.write()
    assert answers == [(ErrorCode.NONE, ProducerIdAndEpoch(1_001, 0))]
    value = coordinator.last_value()
    assert (value.transaction_status, value.transaction_partitions) == (TransactionStatus.EMPTY, None)
    assert (value.previous_producer_id, value.transaction_start_timestamp_ms) == (1_001, -1)


@pytest.mark.parametrize("status", RESTING)
def test_a_producer_that_begins_gets_the_next_epoch(status: TransactionStatus) -> None:
    coordinator = Coordinator()
    before = coordinator.in_state(status)
    assert coordinator.begun() == (before.producer_id, before.producer_epoch + 1)


def test_a_producer_that_begins_brings_its_own_timeout() -> None:
    coordinator = Coordinator()
    coordinator.begun(timeout_ms=5_000)
    coordinator.begun(timeout_ms=7_000)
    assert coordinator.last_value().transaction_timeout_ms == 7_000


@pytest.mark.parametrize("timeout_ms", [0, -1, MOST_TIMEOUT_MS + 1])
def test_a_timeout_that_is_not_allowed_is_refused_and_takes_no_producer_id(timeout_ms: int) -> None:
    coordinator = Coordinator()
    assert coordinator.init(timeout_ms=timeout_ms) == [(ErrorCode.INVALID_TRANSACTION_TIMEOUT, NO_PRODUCER)]
    assert coordinator.begun() == (1_001, 0)


def test_of_two_requests_at_once_the_second_is_to_come_again() -> None:
    coordinator = Coordinator()
    first = coordinator.init()
    assert coordinator.init() == [(ErrorCode.CONCURRENT_TRANSACTIONS, NO_PRODUCER)]
    coordinator.write()
    assert first == [(ErrorCode.NONE, ProducerIdAndEpoch(1_001, 0))]


def test_a_producer_that_begins_aborts_the_open_transaction_of_the_one_before_it() -> None:
    coordinator = Coordinator()
    before = coordinator.opened("orders-0", "orders-1")
    answers = coordinator.init()
    coordinator.write()
    assert answers == [(ErrorCode.CONCURRENT_TRANSACTIONS, NO_PRODUCER)]
    assert coordinator.init() == [(ErrorCode.CONCURRENT_TRANSACTIONS, NO_PRODUCER)]  # until the markers are written
    aborted = coordinator.markers.write("tx")
    assert aborted.status is TransactionStatus.PREPARE_ABORT
    assert aborted.producer_epoch == before.producer_epoch + 1
    coordinator.write()
    assert coordinator.status() is TransactionStatus.COMPLETE_ABORT
    assert coordinator.begun() == (before.producer_id, before.producer_epoch + 2)


@pytest.mark.parametrize("status", [TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT])
def test_a_producer_that_begins_waits_for_the_end_of_a_transaction(status: TransactionStatus) -> None:
    coordinator = Coordinator()
    coordinator.in_state(status)
    assert coordinator.init() == [(ErrorCode.CONCURRENT_TRANSACTIONS, NO_PRODUCER)]


@pytest.mark.parametrize("status", RESTING)
def test_a_producer_goes_on_after_an_error_with_the_next_epoch(status: TransactionStatus) -> None:
    coordinator = Coordinator()
    producer = coordinator.in_state(status)
    answers = coordinator.init(expected=producer)
    coordinator.write()
    assert answers == [(ErrorCode.NONE, ProducerIdAndEpoch(producer.producer_id, producer.producer_epoch + 1))]


def test_a_producer_that_goes_on_may_repeat_its_request() -> None:
    coordinator = Coordinator()
    producer = coordinator.begun()
    first = coordinator.init(expected=producer)
    coordinator.write()
    again = coordinator.init(expected=producer)
    coordinator.write()
    assert first == again


def test_a_repetition_behind_another_producer_is_fenced() -> None:
    coordinator = Coordinator()
    producer = coordinator.begun()
    coordinator.init(expected=producer)
    coordinator.write()
    coordinator.begun()
    assert coordinator.init(expected=producer) == [(ErrorCode.PRODUCER_FENCED, NO_PRODUCER)]


def test_a_repetition_behind_a_restart_is_fenced_as_in_kafka() -> None:
    coordinator = Coordinator()
    producer = coordinator.begun()
    coordinator.init(expected=producer)
    coordinator.write()
    assert coordinator.restarted().init(expected=producer) == [(ErrorCode.PRODUCER_FENCED, NO_PRODUCER)]


@pytest.mark.parametrize("status", RESTING)
@pytest.mark.parametrize(("id_more", "epoch_more"), [(1, 0), (0, 1), (0, 7)])
def test_an_identity_that_was_never_given_is_fenced(status: TransactionStatus, id_more: int, epoch_more: int) -> None:
    coordinator = Coordinator()
    producer = coordinator.in_state(status)
    other = ProducerIdAndEpoch(producer.producer_id + id_more, producer.producer_epoch + epoch_more)
    assert coordinator.init(expected=other) == [(ErrorCode.PRODUCER_FENCED, NO_PRODUCER)]


def with_last_epoch() -> tuple[Coordinator, ProducerIdAndEpoch]:
    coordinator = Coordinator()
    for _ in range(LAST_EPOCH + 1):
        producer = coordinator.begun()
    assert producer == (1_001, LAST_EPOCH)
    return coordinator, producer


def test_behind_the_last_epoch_comes_a_new_producer_id() -> None:
    coordinator, _ = with_last_epoch()
    assert coordinator.begun() == (1_002, 0)
    assert coordinator.last_value().previous_producer_id == 1_001


def test_a_producer_that_goes_on_with_the_last_epoch_gets_a_new_id_and_may_repeat_its_request() -> None:
    coordinator, producer = with_last_epoch()
    first = coordinator.init(expected=producer)
    coordinator.write()
    again = coordinator.init(expected=producer)
    coordinator.write()
    assert first == again == [(ErrorCode.NONE, ProducerIdAndEpoch(1_002, 0))]


def test_a_fence_of_the_last_epoch_brings_a_new_id() -> None:
    coordinator, producer = with_last_epoch()
    coordinator.add(producer, "orders-0")
    coordinator.write()
    coordinator.init()
    coordinator.write()
    fenced = coordinator.markers.write("tx")
    assert (fenced.producer_id, fenced.producer_epoch, fenced.next_producer_id) == (1_001, LAST_EPOCH + 1, 1_002)
    coordinator.write()
    assert coordinator.begun() == (1_002, 1)


def test_a_producer_whose_transaction_was_aborted_for_it_goes_on_with_the_epoch_behind_its_own() -> None:
    coordinator = Coordinator()
    producer = coordinator.opened("orders-0")
    coordinator.clock.advance(TIMEOUT_MS + 1)
    coordinator.sweep()
    coordinator.write()
    coordinator.markers.write("tx")
    coordinator.write()
    answers = coordinator.init(expected=producer)
    coordinator.write()
    assert answers == [(ErrorCode.NONE, ProducerIdAndEpoch(producer.producer_id, producer.producer_epoch + 1))]


def test_a_write_that_fails_changes_nothing() -> None:
    coordinator = Coordinator()
    producer = coordinator.begun()
    answers = coordinator.init()
    coordinator.write(ErrorCode.KAFKA_STORAGE_ERROR)
    assert answers == [(ErrorCode.NOT_COORDINATOR, NO_PRODUCER)]
    assert coordinator.begun() == (producer.producer_id, producer.producer_epoch + 1)
