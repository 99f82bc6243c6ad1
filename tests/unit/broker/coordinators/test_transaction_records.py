"""Records of ``__transaction_state`` that no coordinator writes: the coordinator loads all others.

Apache Kafka 4.4.0 leaves records of unknown types and versions alone, too. At a record that it cannot read it stops: it
does not know the ids behind it in the partition. Where the record of a transaction that is ending names a negative
producer id or epoch, Kafka never loads the partition.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from broker.coordinators.partitioning import partition_of
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
from tests.support.batches import T, changed, stored
from tests.support.broker import InProcessBroker
from tests.unit.broker.handlers.transactional_client import STATE, TransactionalClient, fetched

BEFORE, DAMAGED, AFTER, ELSEWHERE = "shop-1", "shop-3", "shop-5", "shop-0"
"""Three ids of one partition, and an id of the other."""

Pair = tuple[bytes, bytes]


def key(transactional_id: str) -> bytes:
    return encode_transaction_key(TransactionLogKey(transactional_id=transactional_id))


def value(producer_id: int = 7, **fields: Any) -> bytes:
    usual = {
        "producer_id": producer_id,
        "previous_producer_id": producer_id,
        "producer_epoch": 3,
        "transaction_timeout_ms": 60_000,
        "transaction_status": TransactionStatus.EMPTY,
        "transaction_partitions": None,
        "transaction_last_update_timestamp_ms": T,
        "transaction_start_timestamp_ms": T,
        "client_transaction_version": 2,
    }
    return encode_transaction_value(TransactionLogValue(**{**usual, **fields}), 1)


def ending(partitions: Mapping[str, list[int]], **fields: Any) -> Pair:
    """A transaction that is to be committed in these partitions."""
    schema = TransactionLogValue.PartitionsSchema
    placed = [schema(topic=topic, partition_ids=indexes) for topic, indexes in partitions.items()]
    return key(DAMAGED), value(
        **{"transaction_status": TransactionStatus.PREPARE_COMMIT, "transaction_partitions": placed, **fields}
    )


UNREADABLE: Mapping[str, tuple[Pair, str]] = {
    "a key of one byte": ((b"\0", value()), "the key of a coordinator's record has 1 bytes"),
    "a key cut short": ((key(DAMAGED)[:-3], value()), "has length 6 with 3 bytes left"),
    "a value without a byte": ((key(DAMAGED), b""), "the value of a coordinator's record has 0 bytes"),
    "a value cut short": ((key(DAMAGED), value()[:-3]), "TransactionLogValue v1 cannot be read"),
    "a value that goes on": ((key(DAMAGED), value() + b"more"), "4 bytes are left over"),
    "a state that is dead": ((key(DAMAGED), value(transaction_status=TransactionStatus.DEAD)), "has the state 6"),
    "a state that there is not": ((key(DAMAGED), value(transaction_status=99)), "has the state 99"),
    "a negative producer id": (ending({"orders": [0]}, producer_id=-5), "has producer id -5 and epoch 3"),
    "a negative epoch": (ending({"orders": [0]}, producer_epoch=-2), "has producer id 7 and epoch -2"),
    "a later client": ((key(DAMAGED), value(client_transaction_version=3)), "has the transaction version 3"),
    "a client of before": ((key(DAMAGED), value(client_transaction_version=-1)), "has the transaction version -1"),
}

UNKNOWN: Mapping[str, tuple[Pair, str]] = {
    "a key of another type": ((b"\0\5" + key(DAMAGED)[2:], value()), "type 5"),
    "a key of a negative type": ((b"\xff\xff" + key(DAMAGED)[2:], value()), "type -1"),
    "a value of a later version": ((key(DAMAGED), b"\0\2" + value()[2:]), "type 0, key b'\\x00\\x00\\x00\\x06shop-3'"),
    "a value of a negative version": ((key(DAMAGED), b"\xff\xff" + value()[2:]), "type 0"),
}


@pytest.fixture
def broker(broker: InProcessBroker) -> InProcessBroker:
    broker.create_topic("orders")
    broker.create_topic(STATE, partitions=2)
    assert [partition_of(name, 2) for name in (BEFORE, DAMAGED, AFTER, ELSEWHERE)] == [0, 0, 0, 1]
    return broker


def write(broker: InProcessBroker, transactional_id: str, *pairs: Pair) -> None:
    log = broker.log(STATE, partition_of(transactional_id, 2))
    for pair in pairs:
        log.stage_trusted(bytearray(stored([Record(timestamp=T, key=pair[0], value=pair[1])])))
    log.append_all(T)


def load(broker: InProcessBroker, pair: Pair) -> None:
    """Load a partition that has this record, for an id that has another before, between the records of two more ids."""
    write(broker, DAMAGED, *((key(name), value()) for name in (BEFORE, DAMAGED)), pair, (key(AFTER), value()))
    write(broker, ELSEWHERE, (key(ELSEWHERE), value()))
    restart(broker)


def restart(broker: InProcessBroker) -> None:
    broker.restart()
    transactions = broker.server.components.transaction_coordinator.transactions
    broker.wait_until(lambda: len(transactions.active) == 2)


def states(broker: InProcessBroker) -> list[str]:
    """The states of the ids; an unknown id has none."""
    names = [BEFORE, DAMAGED, AFTER, ELSEWHERE]
    answer = broker.ask(DescribeTransactionsRequest(transactional_ids=names), 0)
    listed = broker.ask(ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 0)
    assert listed.error_code == E.NONE
    return [state.transaction_state for state in answer.transaction_states]


@pytest.mark.parametrize(("pair", "why"), list(UNREADABLE.values()), ids=list(UNREADABLE))
def test_a_record_that_cannot_be_read_changes_nothing_and_has_a_line(
    broker: InProcessBroker, caplog: pytest.LogCaptureFixture, pair: Pair, why: str
) -> None:
    load(broker, pair)
    assert states(broker) == ["Empty"] * 4
    [line] = [line for line in caplog.messages if "cannot be read" in line]
    assert line.startswith(f"skipping offset 2 of {STATE}-0, ")
    assert why in line
    assert TransactionalClient(broker, DAMAGED).begun().producer_epoch == 4


@pytest.mark.parametrize(("pair", "what"), list(UNKNOWN.values()), ids=list(UNKNOWN))
def test_records_of_unknown_types_and_versions_are_left_alone_with_one_line(
    broker: InProcessBroker, caplog: pytest.LogCaptureFixture, pair: Pair, what: str
) -> None:
    write(broker, DAMAGED, pair)
    load(broker, pair)
    assert states(broker) == ["Empty"] * 4
    [line] = [line for line in caplog.messages if "unknown type or version" in line]
    assert line.startswith(f"{STATE}-0 has records of an unknown type or version")
    assert what in line


def test_a_batch_with_a_wrong_crc_is_passed_over_below_the_recovery_point(
    broker: InProcessBroker, caplog: pytest.LogCaptureFixture
) -> None:
    write(broker, DAMAGED, *((key(name), value()) for name in (BEFORE, DAMAGED, AFTER)))
    write(broker, ELSEWHERE, (key(ELSEWHERE), value()))
    log = broker.log(STATE, 0)
    segment = log.segments.active
    batch = changed(stored([Record(timestamp=T, key=key(DAMAGED), value=value())], offset=1), crc=1)
    segment.files.log_file().pwrite(batch, segment.position_of(1))
    restart(broker)
    assert states(broker) == ["Empty", "", "Empty", "Empty"]
    [line] = [line for line in caplog.messages if "cannot be read" in line]
    assert line == (
        f"skipping offset 1 of {STATE}-0, which cannot be read: the batch there: its bytes do not agree with its CRC"
    )


def test_partitions_that_cannot_be_need_no_marker(broker: InProcessBroker) -> None:
    """As in Kafka."""
    load(broker, ending({"orders": [-1, 0, 99], "": [0], "gone": [0]}))
    broker.wait_until(lambda: states(broker) == ["Empty", "CompleteCommit", "Empty", "Empty"])
    assert fetched(broker).last_stable_offset == 1, "the marker"


@pytest.mark.parametrize("timeout_ms", [-1, 0, -(1 << 31)])
def test_an_open_transaction_with_an_impossible_timeout_is_aborted(broker: InProcessBroker, timeout_ms: int) -> None:
    load(
        broker, ending({"orders": [0]}, transaction_status=TransactionStatus.ONGOING, transaction_timeout_ms=timeout_ms)
    )
    broker.advance(20_000)
    broker.wait_until(lambda: states(broker) == ["Empty", "CompleteAbort", "Empty", "Empty"])
