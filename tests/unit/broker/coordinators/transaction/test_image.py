"""What the image of transactional ids knows beside each of them: how many are in each state, and the oldest."""

from collections.abc import Mapping

from protocol.records.transaction_state import TransactionStatus as Status
from tests.unit.broker.coordinators.transaction.harness import EXPIRATION_MS, Coordinator


def states(coordinator: Coordinator) -> Mapping[Status, int]:
    return {status: count for status, count in coordinator.shard.image.states.items() if count}


def test_ids_are_counted_by_state() -> None:
    coordinator = Coordinator()
    coordinator.begun("idle")
    first = coordinator.opened("orders-0", transactional_id="first")
    second = coordinator.opened("orders-0", transactional_id="second")
    assert states(coordinator) == {Status.EMPTY: 1, Status.ONGOING: 2}
    coordinator.ended(first, commit=True, transactional_id="first")
    coordinator.end(second, commit=False, transactional_id="second")
    coordinator.write()
    counted = {Status.EMPTY: 1, Status.COMPLETE_COMMIT: 1, Status.PREPARE_ABORT: 1}
    assert states(coordinator) == counted
    assert states(coordinator.restarted()) == counted


def test_an_id_that_is_forgotten_counts_no_more() -> None:
    coordinator = Coordinator()
    coordinator.begun()
    coordinator.clock.advance(EXPIRATION_MS + 1)
    coordinator.expire()
    coordinator.write()
    assert states(coordinator) == {}


def test_the_oldest_transaction_is_that_which_was_opened_first() -> None:
    coordinator = Coordinator()
    image = coordinator.shard.image
    coordinator.begun("idle")
    assert image.oldest_open_ms is None
    first_ms = coordinator.clock.now_ms()
    first = coordinator.opened("orders-0", transactional_id="first")
    coordinator.clock.advance(1)
    second = coordinator.opened("orders-0", transactional_id="second")
    coordinator.add(first, "orders-1", transactional_id="first")
    coordinator.write()
    assert image.oldest_open_ms == first_ms
    coordinator.ended(first, commit=True, transactional_id="first")
    assert image.oldest_open_ms == first_ms + 1
    coordinator.ended(second, commit=True, transactional_id="second")
    assert image.oldest_open_ms is None


def test_loading_finds_the_oldest_transaction_wherever_its_last_record_is() -> None:
    before = Coordinator()
    first_ms = before.clock.now_ms()
    first = before.opened("orders-0", transactional_id="first")
    before.clock.advance(1)
    before.opened("orders-0", transactional_id="second")
    before.add(first, "orders-1", transactional_id="first")
    before.write()
    compacted = [record for index, record in enumerate(before.log) if record[0] not in dict(before.log[index + 1 :])]
    assert len(compacted) == 2
    assert Coordinator(compacted).shard.image.oldest_open_ms == first_ms
