"""Transactions that take too long, ids that are idle, and what a restart makes of transactions."""

import pytest

from broker.coordinators.result import ProducerIdAndEpoch
from broker.coordinators.transaction.records import decode
from protocol.errors import ErrorCode
from protocol.primitives import Malformed
from protocol.records.transaction_state import (
    TransactionLogKey,
    TransactionLogValue,
    TransactionStatus,
    encode_transaction_key,
    encode_transaction_value,
)
from tests.unit.broker.coordinators.transaction.harness import EXPIRATION_MS, TIMEOUT_MS, Coordinator

RESTING = [TransactionStatus.EMPTY, TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT]


def test_a_transaction_is_aborted_when_its_timeout_is_over() -> None:
    coordinator = Coordinator()
    producer = coordinator.opened("orders-0")
    coordinator.clock.advance(TIMEOUT_MS)
    coordinator.sweep()
    assert not coordinator.staged
    coordinator.clock.advance(1)
    coordinator.sweep()
    coordinator.write()
    assert coordinator.markers.write("tx").producer_epoch == producer.producer_epoch + 1
    coordinator.write()
    assert coordinator.status() is TransactionStatus.COMPLETE_ABORT
    assert coordinator.stats.timed_out == 1
    assert coordinator.add(producer, "orders-0") == [[ErrorCode.PRODUCER_FENCED]]
    [(error, _)] = coordinator.end(producer, commit=True)
    assert error is ErrorCode.PRODUCER_FENCED


def test_a_transaction_whose_abort_could_not_be_written_is_aborted_by_the_next_sweep() -> None:
    coordinator = Coordinator()
    coordinator.opened("orders-0")
    coordinator.clock.advance(TIMEOUT_MS + 1)
    coordinator.sweep()
    coordinator.write(ErrorCode.KAFKA_STORAGE_ERROR)
    assert coordinator.status() is TransactionStatus.ONGOING
    coordinator.sweep()
    coordinator.write()
    assert coordinator.status() is TransactionStatus.PREPARE_ABORT


def test_a_sweep_leaves_a_transaction_alone_whose_end_is_being_written() -> None:
    coordinator = Coordinator()
    producer = coordinator.opened("orders-0")
    coordinator.clock.advance(TIMEOUT_MS + 1)
    answers = coordinator.end(producer, commit=True)
    coordinator.sweep()
    coordinator.write()
    assert answers == [(ErrorCode.NONE, producer)]
    assert coordinator.status() is TransactionStatus.PREPARE_COMMIT


@pytest.mark.parametrize("status", RESTING)
def test_an_idle_id_is_forgotten(status: TransactionStatus) -> None:
    coordinator = Coordinator()
    producer = coordinator.in_state(status)
    coordinator.clock.advance(EXPIRATION_MS)
    coordinator.expire()
    assert not coordinator.staged
    coordinator.clock.advance(1)
    coordinator.expire()
    coordinator.write()
    assert coordinator.shard.describe("tx") is None
    assert coordinator.log[-1][1] is None
    assert coordinator.add(producer, "orders-0") == [[ErrorCode.INVALID_PRODUCER_ID_MAPPING]]


def test_an_id_with_a_transaction_is_never_forgotten() -> None:
    for status in (TransactionStatus.ONGOING, TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT):
        coordinator = Coordinator()
        coordinator.in_state(status)
        coordinator.clock.advance(EXPIRATION_MS + 1)
        coordinator.expire()
        assert not coordinator.staged


def test_while_an_id_is_being_forgotten_its_producer_is_to_come_again() -> None:
    coordinator = Coordinator()
    producer = coordinator.begun()
    coordinator.clock.advance(EXPIRATION_MS + 1)
    coordinator.expire()
    assert coordinator.add(producer, "orders-0") == [[ErrorCode.CONCURRENT_TRANSACTIONS]]
    coordinator.write()
    assert coordinator.begun() == (1_002, 0)


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_that_was_decided_before_a_crash_is_finished_after_it(commit: bool) -> None:
    before = Coordinator()
    producer = before.opened("orders-0", "orders-1")
    before.end(producer, commit=commit)
    before.write()
    after = before.restarted()
    transaction = after.markers.write("tx")
    assert transaction.is_commit is commit
    assert len(transaction.partitions) == 2
    after.write()
    assert after.status() is (TransactionStatus.COMPLETE_COMMIT if commit else TransactionStatus.COMPLETE_ABORT)


def test_a_transaction_that_was_open_before_a_crash_goes_on_after_it() -> None:
    before = Coordinator()
    producer = before.opened("orders-0")
    before.end(producer, commit=True)  # not written
    after = before.restarted()
    assert not after.markers.sent
    assert after.ended(producer, commit=True) == (ErrorCode.NONE, producer)


def test_a_coordinator_that_goes_sends_no_more_markers() -> None:
    coordinator = Coordinator()
    producer = coordinator.opened("orders-0")
    coordinator.end(producer, commit=True)
    coordinator.write()
    _, done = coordinator.markers.sent["tx"]
    coordinator.shard.unload(ErrorCode.NOT_COORDINATOR)
    assert coordinator.markers.cancelled == ["tx"]
    done()  # a marker that was under way
    assert not coordinator.staged


def test_an_end_that_is_acknowledged_after_its_answer_is_finished_too() -> None:
    coordinator = Coordinator()
    producer = coordinator.opened("orders-0")
    answers = coordinator.end(producer, commit=True)
    coordinator.time_out()
    [(error, _)] = answers
    assert error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    coordinator.write()
    assert len(answers) == 1
    coordinator.markers.write("tx")
    coordinator.write()
    assert coordinator.status() is TransactionStatus.COMPLETE_COMMIT


def test_nothing_is_decided_while_a_record_is_not_acknowledged_in_time() -> None:
    """A second decision, made from the state before the record, would stand behind it in the log."""
    coordinator = Coordinator()
    producer = coordinator.opened("orders-0")
    coordinator.end(producer, commit=True)
    coordinator.time_out()
    [(error, _)] = coordinator.end(producer, commit=False)
    assert error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert coordinator.add(producer, "orders-1") == [[ErrorCode.CONCURRENT_TRANSACTIONS]]
    coordinator.clock.advance(TIMEOUT_MS + 1)
    coordinator.sweep()
    coordinator.write()
    coordinator.markers.write("tx")
    coordinator.write()
    assert coordinator.status() is TransactionStatus.COMPLETE_COMMIT


@pytest.mark.parametrize("status", [-1, 6, 7, 100])
def test_a_record_in_a_state_that_is_never_written_is_malformed(status: int) -> None:
    value = TransactionLogValue(
        producer_id=7,
        producer_epoch=0,
        transaction_timeout_ms=1,
        transaction_status=status,
        transaction_partitions=None,
        transaction_last_update_timestamp_ms=0,
        transaction_start_timestamp_ms=-1,
    )
    with pytest.raises(Malformed, match="never written"):
        decode(encode_transaction_key(TransactionLogKey(transactional_id="tx")), encode_transaction_value(value, 1))


def test_values_have_the_version_that_the_feature_asks_for() -> None:
    coordinator = Coordinator()
    coordinator.level = 0
    producer = coordinator.opened("orders-0")
    assert coordinator.log[-1][1] is not None
    assert coordinator.log[-1][1][:2] == b"\x00\x00"
    assert coordinator.restarted().add(producer, "orders-0") == [[ErrorCode.NONE]]
    coordinator.level = 1
    coordinator.ended(producer, commit=True)
    assert coordinator.log[-1][1] is not None
    assert coordinator.log[-1][1][:2] == b"\x00\x01"


def test_records_of_transaction_version_0_have_no_place_for_what_a_new_client_does() -> None:
    coordinator = Coordinator()
    coordinator.level = 0
    producer = coordinator.begun()
    assert coordinator.add(producer, "orders-0", client_version=2) == [[ErrorCode.UNSUPPORTED_VERSION]]
    coordinator.add(producer, "orders-0")
    coordinator.write()
    [(error, _)] = coordinator.end(producer, commit=True, client_version=2)
    assert error is ErrorCode.UNSUPPORTED_VERSION
    coordinator.level = 2
    assert coordinator.ended(producer, commit=True, client_version=2)[0] is ErrorCode.NONE


def test_an_id_as_administrators_see_it() -> None:
    coordinator = Coordinator()
    coordinator.opened("orders-1", "orders-0")
    described = coordinator.shard.describe("tx")
    assert described is not None
    assert (described.state, described.producer, described.timeout_ms) == (
        "Ongoing", ProducerIdAndEpoch(1_001, 0), TIMEOUT_MS,
    )  # fmt: skip
    assert [str(one) for one in described.partitions] == ["orders-0", "orders-1"]
    assert described.started_ms == coordinator.clock.now_ms()
