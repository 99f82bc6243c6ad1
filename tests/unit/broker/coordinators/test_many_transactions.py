"""Ten thousand transactions are open on this node: everything is answered, and the loop turns while time limits are
looked after."""

import asyncio
from itertools import pairwise

import pytest

from broker.coordinators.partitioning import partition_of
from broker.coordinators.transaction_coordinator import TransactionCoordinator
from broker.runtime.time_slices import SLICE_NS
from protocol.errors import ErrorCode as E
from protocol.messages.transactions import DescribeTransactionsRequest, ListTransactionsRequest
from protocol.records.transaction_state import (
    TransactionLogKey,
    TransactionLogValue,
    TransactionStatus,
    encode_transaction_key,
    encode_transaction_value,
)
from storage.batch.records import Record
from tests.support.batches import T, produced, stored
from tests.support.broker import InProcessBroker
from tests.unit.broker.handlers.transactional_client import STATE, TransactionalClient, fetched

TRANSACTIONS = 10_000
SHORT = 200
"""The first of them have a timeout of a minute, all others of a quarter of an hour."""
PARTITIONS = 8
STEPS_A_SLICE = 10


@pytest.fixture
def coordinator(broker: InProcessBroker) -> TransactionCoordinator:
    """Transaction number N has one record, at offset N of ``orders-0``."""
    broker.create_topic("orders")
    broker.create_topic(STATE, partitions=PARTITIONS)
    now_ms = broker.clock.now_ms()
    records: dict[int, list[Record]] = {}
    for number in range(TRANSACTIONS):
        producer_id = 1_000 + number
        value = TransactionLogValue(
            producer_id=producer_id,
            previous_producer_id=producer_id,
            producer_epoch=0,
            transaction_timeout_ms=60_000 if number < SHORT else 900_000,
            transaction_status=TransactionStatus.ONGOING,
            transaction_partitions=[TransactionLogValue.PartitionsSchema(topic="orders", partition_ids=[0])],
            transaction_last_update_timestamp_ms=now_ms,
            transaction_start_timestamp_ms=now_ms,
            client_transaction_version=2,
        )
        key = encode_transaction_key(TransactionLogKey(transactional_id=f"shop-{number}"))
        record = Record(timestamp=T, key=key, value=encode_transaction_value(value, 1))
        records.setdefault(partition_of(f"shop-{number}", PARTITIONS), []).append(record)
        batch = produced(1, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)
        broker.log("orders").stage_trusted(bytearray(batch))
    for partition, of_partition in records.items():
        broker.log(STATE, partition).stage_trusted(bytearray(stored(of_partition)))
        broker.log(STATE, partition).append_all(T)
    broker.log("orders").append_all(T)
    broker.restart()
    coordinator: TransactionCoordinator = broker.server.components.transaction_coordinator
    broker.wait_until(lambda: len(coordinator.transactions.active) == PARTITIONS)
    return coordinator


def test_many_open_transactions(broker: InProcessBroker, coordinator: TransactionCoordinator) -> None:
    log = broker.log("orders")
    assert (fetched(broker).last_stable_offset, fetched(broker, isolation_level=0).high_watermark) == (0, TRANSACTIONS)
    assert fetched(broker).records in (b"", None)

    everything = ListTransactionsRequest(state_filters=["Ongoing"], producer_id_filters=[])
    assert len(broker.ask(everything, 2).transaction_states) == TRANSACTIONS
    everything.transactional_id_pattern = "shop-[0-9]{3}"
    assert len(broker.ask(everything, 2).transaction_states) == 900
    described = broker.ask(DescribeTransactionsRequest(transactional_ids=["shop-0", "shop-9999", "shop-10000"]), 0)
    assert [state.transaction_state for state in described.transaction_states] == ["Ongoing", "Ongoing", ""]

    last = TransactionalClient(broker, "shop-9999")
    assert last.begin() is E.CONCURRENT_TRANSACTIONS
    broker.wait_until(lambda: log.log_end_offset == TRANSACTIONS + 1)
    assert log.last_stable_offset == 0

    aborted = time_passes(broker, coordinator, until_timed_out=SHORT)
    assert max(after - before for before, after in pairwise(aborted)) <= STEPS_A_SLICE
    broker.wait_until(lambda: log.log_end_offset == TRANSACTIONS + 1 + SHORT)
    assert log.last_stable_offset == SHORT, "transaction number 200 is open"


def time_passes(broker: InProcessBroker, coordinator: TransactionCoordinator, *, until_timed_out: int) -> list[int]:
    """Let the time limits of the short transactions pass; return how many were aborted after each turn of the loop."""
    clock_ns = 0

    def now_ns() -> int:
        """Every look at the clock takes a tenth of a slice."""
        nonlocal clock_ns
        clock_ns += SLICE_NS // STEPS_A_SLICE
        return clock_ns

    broker.server.services.slices._now_ns = now_ns
    seen: list[int] = [0]

    async def look_every_turn() -> None:
        broker.clock.advance(75_000)
        while seen[-1] < until_timed_out:
            await asyncio.sleep(0)
            seen.append(coordinator.stats.timed_out)

    broker.run(look_every_turn())
    return seen
