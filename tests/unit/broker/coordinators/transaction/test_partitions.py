"""Partitions in transactions: adding, verifying, and adding as soon as the id has settled."""

import gc
import weakref
from collections.abc import Sequence

import pytest

from broker.coordinators.result import ProducerIdAndEpoch
from broker.coordinators.transaction.requests import AddPartitions
from protocol.errors import ErrorCode
from protocol.records.transaction_state import TransactionStatus
from tests.unit.broker.coordinators.transaction.harness import EXPIRATION_MS, Coordinator, partition

NONE = ErrorCode.NONE
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
ABSENT = ErrorCode.TRANSACTION_ABORTABLE


def test_the_first_partition_opens_the_transaction() -> None:
    coordinator = Coordinator()
    producer = coordinator.begun()
    coordinator.clock.advance(500)
    answers = coordinator.add(producer, "orders-0", "orders-2")
    assert answers == []
    coordinator.write()
    assert answers == [[NONE, NONE]]
    value = coordinator.last_value()
    assert value.transaction_status == TransactionStatus.ONGOING
    assert value.transaction_start_timestamp_ms == coordinator.clock.now_ms()
    assert [(one.topic, one.partition_ids) for one in value.transaction_partitions] == [("orders", [0, 2])]


def test_more_partitions_keep_the_start_of_the_transaction() -> None:
    coordinator = Coordinator()
    producer = coordinator.opened("orders-0")
    started_ms = coordinator.last_value().transaction_start_timestamp_ms
    coordinator.clock.advance(500)
    coordinator.add(producer, "orders-1")
    coordinator.write()
    value = coordinator.last_value()
    assert value.transaction_start_timestamp_ms == started_ms
    assert value.transaction_last_update_timestamp_ms == started_ms + 500


def test_partitions_that_are_in_the_transaction_need_no_record() -> None:
    coordinator = Coordinator()
    producer = coordinator.opened("orders-0", "orders-1")
    assert coordinator.add(producer, "orders-1") == [[NONE]]
    assert not coordinator.staged


@pytest.mark.parametrize(
    ("producer", "expected"),
    [
        (ProducerIdAndEpoch(1_002, 0), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ProducerIdAndEpoch(1_001, 1), ErrorCode.PRODUCER_FENCED),
        (ProducerIdAndEpoch(1_001, -1), ErrorCode.PRODUCER_FENCED),
    ],
)
def test_another_producer_can_neither_add_nor_verify(producer: ProducerIdAndEpoch, expected: ErrorCode) -> None:
    coordinator = Coordinator()
    coordinator.opened("orders-0")
    assert coordinator.add(producer, "orders-0") == [[expected]]
    assert coordinator.verify(producer, "orders-0") == [expected]


def test_an_unknown_id_has_no_partitions() -> None:
    coordinator = Coordinator()
    assert coordinator.add(ProducerIdAndEpoch(7, 0), "orders-0") == [[ErrorCode.INVALID_PRODUCER_ID_MAPPING]]
    assert coordinator.verify(ProducerIdAndEpoch(7, 0), "orders-0") == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]


def test_each_partition_is_verified_by_itself() -> None:
    coordinator = Coordinator()
    producer = coordinator.opened("orders-0")
    assert coordinator.verify(producer, "orders-1", "orders-0") == [ABSENT, NONE]


@pytest.mark.parametrize("status", [TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT])
def test_while_the_markers_are_written_partitions_are_to_come_again(status: TransactionStatus) -> None:
    coordinator = Coordinator()
    producer = coordinator.in_state(status)
    assert coordinator.add(producer, "orders-0") == [[BUSY]]
    assert coordinator.verify(producer, "orders-0") == [BUSY]


@pytest.mark.parametrize("status", [TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT])
def test_behind_its_end_a_transaction_has_no_partitions(status: TransactionStatus) -> None:
    coordinator = Coordinator()
    producer = coordinator.in_state(status)
    assert coordinator.verify(producer, "orders-0") == [ABSENT]
    coordinator.add(producer, "orders-1")
    coordinator.write()
    assert coordinator.shard.image.by_id["tx"].partitions == {partition("orders-1")}


def test_partitions_of_several_batches_are_added_one_after_the_other() -> None:
    coordinator = Coordinator()
    producer = coordinator.begun()
    first = coordinator.add_when_settled(producer, "orders-0")
    second = coordinator.add_when_settled(producer, "orders-1")
    third = coordinator.add_when_settled(producer, "orders-0")
    coordinator.write_next()
    assert (first, second, third) == ([[NONE]], [], [])
    coordinator.write()
    assert (second, third) == ([[NONE]], [[NONE]])
    assert coordinator.shard.image.by_id["tx"].partitions == {partition("orders-0"), partition("orders-1")}


def test_the_next_transaction_begins_when_the_last_one_has_its_markers() -> None:
    coordinator = Coordinator()
    producer = coordinator.opened("orders-0", client_version=2)
    coordinator.end(producer, commit=True, client_version=2)
    following = ProducerIdAndEpoch(producer.producer_id, producer.producer_epoch + 1)
    answers = coordinator.add_when_settled(following, "orders-0")
    coordinator.write()
    assert answers == []
    coordinator.markers.write("tx")
    coordinator.write()
    assert answers == [[NONE]]
    assert coordinator.status() is TransactionStatus.ONGOING


def test_partitions_do_not_wait_for_ever() -> None:
    coordinator = Coordinator()
    producer = coordinator.opened("orders-0", client_version=2)
    coordinator.end(producer, commit=True, client_version=2)
    answers = coordinator.add_when_settled(producer, "orders-0")
    coordinator.write()
    coordinator.clock.advance(100)
    assert answers == [[BUSY]]
    coordinator.markers.write("tx")
    coordinator.write()
    assert answers == [[BUSY]]


class Batch:
    """What a request that waits holds: the batch that is to be appended."""

    answer: Sequence[ErrorCode] | None = None

    def take(self, codes: Sequence[ErrorCode]) -> None:
        self.answer = codes


def test_partitions_that_have_waited_too_long_are_held_no_more() -> None:
    coordinator = Coordinator()
    producer = coordinator.opened("orders-0", client_version=2)
    coordinator.end(producer, commit=True, client_version=2)
    coordinator.write()
    batch = Batch()
    coordinator.shard.add_when_settled(AddPartitions("tx", producer, [partition("orders-0")], 2), batch.take)
    coordinator.clock.advance(60)
    second = coordinator.add_when_settled(producer, "orders-1")
    coordinator.clock.advance(40)
    assert (batch.answer, second) == ([BUSY], [])

    held = weakref.ref(batch)
    del batch
    gc.collect()
    assert held() is None
    coordinator.markers.write("tx")
    coordinator.write()
    assert second == [[ErrorCode.PRODUCER_FENCED]]


def test_partitions_that_wait_for_an_id_that_is_forgotten_are_answered_at_once() -> None:
    coordinator = Coordinator()
    producer = coordinator.begun()
    coordinator.clock.advance(EXPIRATION_MS + 1)
    coordinator.expire()
    answers = coordinator.add_when_settled(producer, "orders-0")
    coordinator.write()
    assert answers == [[ErrorCode.INVALID_PRODUCER_ID_MAPPING]]


def test_partitions_that_wait_for_an_id_whose_tombstone_cannot_be_written_are_added() -> None:
    coordinator = Coordinator()
    producer = coordinator.begun()
    coordinator.clock.advance(EXPIRATION_MS + 1)
    coordinator.expire()
    answers = coordinator.add_when_settled(producer, "orders-0")
    coordinator.write_next(ErrorCode.NOT_ENOUGH_REPLICAS)
    coordinator.write()
    assert answers == [[NONE]]


def test_waiting_partitions_are_answered_when_the_coordinator_goes() -> None:
    coordinator = Coordinator()
    producer = coordinator.opened("orders-0", client_version=2)
    coordinator.end(producer, commit=True, client_version=2)
    answers = coordinator.add_when_settled(producer, "orders-0")
    coordinator.shard.unload(ErrorCode.NOT_COORDINATOR)
    assert answers == [[ErrorCode.NOT_COORDINATOR]]
