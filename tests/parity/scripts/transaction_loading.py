"""What a coordinator makes of the records in `__transaction_state`: prepared transactions, retries, and last epochs.

The records are written as an administrator's client may write them, and loaded by a restart.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from broker.coordinators.partitioning import partition_of
from protocol.errors import ErrorCode
from protocol.messages.transactions import ListTransactionsRequest
from protocol.records.transaction_state import (
    TransactionLogKey,
    TransactionLogValue,
    TransactionStatus,
    encode_transaction_key,
    encode_transaction_value,
)
from tests.parity.exchange import Exchange
from tests.parity.producers import OLD_END, Producer, await_transactions, described
from tests.support.batches import produced, record
from tests.support.requests import fetch_request, produce_request

SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}

PARTITIONS = 50
LAST = 0x7FFF
"""The highest epoch, which only markers have."""
FULL = LAST - 1
"""The highest epoch of a producer: the next is epoch 0 of a new producer id."""
MADE_UP = 1_000_000
S = TransactionStatus


def run(exchange: Exchange) -> None:
    exchange.create_topic("orders", partitions=24)
    exchange.create_topic("gone", partitions=2)
    await_transactions(exchange)
    before = Producer(exchange, "before").initialise().produce(partition=23)
    retried = before.ending()
    before.end()
    again = before.initialising_again()
    exchange.ask("before the restart: its epoch is given", again, 5)
    written = Written(exchange)
    for name, fields in RECORDS.items():
        written.write(name, **fields)
    written.of_the_future("open")
    exchange.delete_topic("gone")
    exchange.restart()
    settled(exchange)
    exchange.ask("after the restart: the epoch before is given", again, 5)
    exchange.ask("after the restart: an end of before", retried, 5)
    prepared(exchange)
    retries(exchange, written)
    initialised(exchange, written)
    ended(exchange, written)
    fenced(exchange, written)
    timed_out(exchange, written)


def open_in(partition: int, epoch: int, **fields: Any) -> dict[str, Any]:
    return {"status": S.ONGOING, "epoch": epoch, "partitions": {"orders": [partition]}, "begun": True, **fields}


RECORDS: Mapping[str, dict[str, Any]] = {
    "commit of old client": {
        "status": S.PREPARE_COMMIT,
        "epoch": 3,
        "partitions": {"orders": [0, 1], "gone": [0], "never": [3]},
        "client_transaction_version": 0,
        "begun": True,
    },
    "abort of new client": {"status": S.PREPARE_ABORT, "epoch": 3, "partitions": {"orders": [2, 3]}, "begun": True},
    "commit in the last epoch": {
        "status": S.PREPARE_COMMIT,
        "epoch": LAST,
        "partitions": {"orders": [4]},
        "next_producer_id": 2 * MADE_UP,
        "begun": True,
    },
    "abort of nothing": {"status": S.PREPARE_ABORT, "epoch": 3, "partitions": {}, "begun": True},
    "commit in what is gone": {"status": S.PREPARE_COMMIT, "epoch": 3, "partitions": {"gone": [1]}, "begun": True},
    "commit in what cannot be": {
        "status": S.PREPARE_COMMIT,
        "epoch": 3,
        "partitions": {"orders": [-1, 6, 99], "": [0]},
        "begun": True,
    },
    "open": open_in(5, 3),
    "no previous producer": {"status": S.EMPTY, "epoch": 3, "previous_producer_id": -1},
    "committed as another": {"status": S.COMPLETE_COMMIT, "epoch": 0, "partitions": {}, "previous_producer_id": 7},
    "aborted as another": {"status": S.COMPLETE_ABORT, "epoch": 0, "partitions": {}, "previous_producer_id": 7},
    "empty after another": {"status": S.EMPTY, "epoch": 0, "previous_producer_id": 7},
    "forgotten": {"status": S.EMPTY, "epoch": 3, "tombstone": True},
    **{f"init-{epoch}": {"status": S.EMPTY, "epoch": epoch} for epoch in (FULL - 1, FULL)},
    **{f"given-{epoch}": {"status": S.COMPLETE_COMMIT, "epoch": epoch, "partitions": {}} for epoch in (FULL - 1, FULL)},
    **{f"new-{epoch}": {"status": S.EMPTY, "epoch": epoch} for epoch in (FULL - 1, FULL)},
    "nothing-full": {"status": S.EMPTY, "epoch": FULL},
    "old-full": {"status": S.EMPTY, "epoch": FULL},
    **{
        f"fenced-{epoch}-{client}": open_in(10 + place, epoch, client_transaction_version=client)
        for place, (epoch, client) in enumerate(
            (epoch, client) for epoch in (FULL - 2, FULL - 1, FULL) for client in (0, 2)
        )
    },
    **{
        f"late-{epoch}": open_in(17 + place, epoch, transaction_timeout_ms=1)
        for place, epoch in enumerate((FULL - 2, FULL - 1, FULL))
    },
    "late from the beginning": open_in(7, 3, transaction_timeout_ms=-1),
}


class Written:
    """Writes records, each of a producer id of its own."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self.ids: dict[str, int] = {}

    def write(
        self,
        name: str,
        *,
        status: TransactionStatus,
        epoch: int,
        partitions: Mapping[str, Sequence[int]] | None = None,
        begun: bool = False,
        tombstone: bool = False,
        **fields: Any,
    ) -> None:
        producer_id = self.ids[name] = MADE_UP + len(self.ids)
        self._exchange.name_producer(producer_id, name)
        now_ms = time.time_ns() // 1_000_000
        placed = (
            None
            if partitions is None
            else [
                TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=[*indexes])
                for topic, indexes in partitions.items()
            ]
        )
        usual = {
            "previous_producer_id": producer_id,
            "transaction_timeout_ms": 600_000,
            "client_transaction_version": 2,
        }
        value = TransactionLogValue(
            **{**usual, **fields},
            producer_id=producer_id,
            producer_epoch=epoch,
            transaction_status=status,
            transaction_partitions=placed,
            transaction_last_update_timestamp_ms=now_ms,
            transaction_start_timestamp_ms=now_ms if begun else -1,
        )
        values = [encode_transaction_value(value, 1), None] if tombstone else [encode_transaction_value(value, 1)]
        self._append(name, *((_key(name), value) for value in values))

    def of_the_future(self, name: str) -> None:
        """Records behind that of an id, of types and versions that are not known."""
        self._append(name, (b"\0\5" + _key(name)[2:], b"\0\1"), (_key(name), b"\0\2"), (_key(name), b"\xff\xff"))

    def _append(self, name: str, *pairs: tuple[bytes, bytes | None]) -> None:
        now_ms = time.time_ns() // 1_000_000
        batch = produced([record(value, key=key, timestamp=now_ms) for key, value in pairs])
        partition = partition_of(name, PARTITIONS)
        request = produce_request("__transaction_state", batch, partition=partition)
        answer = self._exchange.ask(None, request, 9, client_id="__admin_client")
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE, f"not written: {answer}"

    def producer(self, name: str) -> Producer:
        """The producer of a record, with its id and the epoch of then."""
        producer = Producer(self._exchange, name)
        producer.id, producer.epoch = self.ids[name], RECORDS[name]["epoch"]
        return producer


def _key(name: str) -> bytes:
    return encode_transaction_key(TransactionLogKey(transactional_id=name))


def settled(exchange: Exchange) -> None:
    """Wait until all records are loaded, and no markers are to be written."""
    exchange.wait_until(
        described(*RECORDS),
        0,
        lambda answer: (
            not any(
                state.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                or state.transaction_state.startswith("Prepare")
                for state in answer.transaction_states
            )
        ),
        patience_s=60.0,
    )
    late = described(*(name for name in RECORDS if name.startswith("late")))
    exchange.wait_until(
        late,
        0,
        lambda answer: all(state.transaction_state == "CompleteAbort" for state in answer.transaction_states),
        patience_s=60.0,
    )


def prepared(exchange: Exchange) -> None:
    exchange.ask("after the restart", described(*RECORDS), 0)
    exchange.ask("after the restart", ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 2)
    for partition in range(8):
        read = fetch_request("orders", partition=partition)
        exchange.ask(f"orders-{partition} after the restart", read, 12)


def retries(exchange: Exchange, written: Written) -> None:
    """An end may be retried after the restart, an epoch may not."""
    for name in ("commit of old client", "abort of new client", "abort of nothing"):
        producer = written.producer(name)
        for difference in (-1, 0):
            for committed in (True, False):
                what = f"{name}: {'the commit' if committed else 'the abort'} in epoch E{difference:+}"
                request = producer.ending(committed, producer_epoch=producer.epoch + difference)
                exchange.ask(what, request, 5 if difference else OLD_END)
        given = producer.initialising_again(producer_epoch=producer.epoch - 1)
        exchange.ask(f"{name}: the epoch before is given", given, 5)
        exchange.ask(f"{name}: its epoch is given", producer.initialising_again(), 5)
    for name in ("commit in the last epoch", "committed as another", "aborted as another", "empty after another"):
        producer = written.producer(name)
        if name != "commit in the last epoch":
            producer.id = RECORDS[name]["previous_producer_id"]
        for epoch in (FULL, FULL - 1, LAST):
            for committed in (True, False):
                what = f"{name}: {'the commit' if committed else 'the abort'} of the previous producer in epoch {epoch}"
                exchange.ask(what, producer.ending(committed, producer_epoch=epoch), 5)
            exchange.ask(
                f"{name}: the previous producer in epoch {epoch}", producer.initialising_again(producer_epoch=epoch), 5
            )
        exchange.ask(f"{name}: the next epoch", producer.initialising(), 5)
    no_previous = written.producer("no previous producer")
    exchange.ask("no previous producer: its epoch is given", no_previous.initialising_again(), 5)
    exchange.ask("forgotten: its epoch is given", written.producer("forgotten").initialising_again(), 5)
    still_open = written.producer("open")
    exchange.ask("open: a batch", still_open.producing(0, partition=5), 12)
    exchange.ask("open: the commit", still_open.ending(), 5)


def initialised(exchange: Exchange, written: Written) -> None:
    """After the highest epoch there comes a new producer id, in epoch 0."""
    for epoch in (FULL - 1, FULL):
        producer = written.producer(f"init-{epoch}")
        for number in ("first", "second", "third"):
            exchange.ask(f"in epoch {epoch}: the {number} without an epoch", producer.initialising(), 5)
        late = producer.initialising_again(producer_epoch=FULL)
        exchange.ask(f"in epoch {epoch}: the highest epoch is given too late", late, 5)
        producer = written.producer(f"given-{epoch}")
        for given in range(epoch, LAST):
            request = producer.initialising_again(producer_epoch=given)
            exchange.ask(f"in epoch {epoch}: epoch {given} is given", request, 5)
            if given == FULL:  # in the epoch before, Kafka fails at a retry
                exchange.ask(f"in epoch {epoch}: epoch {given} is given again", request, 5)
        for given in (FULL - 1, LAST):
            request = producer.initialising_again(producer_epoch=given)
            exchange.ask(f"in epoch {epoch}: at last epoch {given} is given", request, 5)
        producer.settle()
        exchange.ask(f"in epoch {epoch}: the new producer's epoch is given", producer.initialising_again(), 5)


def ended(exchange: Exchange, written: Written) -> None:
    """The end in the highest epoch gives the producer a new id."""
    for name in ("new-32765", "new-32766"):
        producer = written.producer(name)
        for number in range(1, 4):
            producer.produce(partition=20)
            end = producer.ending()
            exchange.ask(f"{name}: commit {number}", end, 5)
            producer.settle()
            producer.describe(f"{name}: after commit {number}")
            exchange.ask(f"{name}: commit {number} again", end, 5)
            exchange.ask(f"{name}: commit {number} as an old client", end, OLD_END)
            end.committed = False
            exchange.ask(f"{name}: commit {number}, and then the abort", end, 5)
    previous = written.producer("new-32766")
    exchange.ask("a batch of the producer before", previous.producing(0, partition=20), 12)
    nothing = written.producer("nothing-full")
    for what in ("an abort of nothing", "the same abort again"):
        exchange.ask(f"in the highest epoch: {what}", nothing.ending(False), 5)
        nothing.exchange.wait_until(described("nothing-full"), 0, _is_complete)
    exchange.ask("in the highest epoch: the producer before initialises", nothing.initialising_again(), 5)
    old = written.producer("old-full").add(("orders", [21]))
    exchange.ask("in the highest epoch: the commit of an old client", old.ending(), OLD_END)
    old.settle()
    exchange.ask("in the highest epoch: the next for an old client", old.initialising(), 5)
    for partition in (20, 21):
        exchange.ask(f"orders-{partition} after the ends", fetch_request("orders", partition=partition), 12)


def _is_complete(answer: Any) -> bool:
    return bool(answer.transaction_states[0].transaction_state.startswith("Complete"))


def fenced(exchange: Exchange, written: Written) -> None:
    for name in RECORDS:
        if not name.startswith("fenced"):
            continue
        producer = written.producer(name)
        given = producer.initialising_again()
        abort = producer.ending(False)
        exchange.ask(f"{name}: another producer", producer.initialising(), 5)
        producer.settle()
        producer.describe(f"{name}: aborted")
        exchange.ask(f"{name}: its abort", abort, 5)
        if given.producer_epoch != FULL - 1:  # where Kafka fails at a retry
            exchange.ask(f"{name}: its epoch is given", given, 5)
        exchange.ask(f"{name}: the next epoch", producer.initialising(), 5)
    for partition in range(10, 16):
        exchange.ask(f"orders-{partition} after fencing", fetch_request("orders", partition=partition), 12)


def timed_out(exchange: Exchange, written: Written) -> None:
    for name in RECORDS:
        if not name.startswith("late"):
            continue
        producer = written.producer(name)
        exchange.ask(f"{name}: its abort", producer.ending(False), 5)
        exchange.ask(f"{name}: its commit", producer.ending(), 5)
        if producer.epoch != FULL - 1:  # where Kafka fails at a retry
            exchange.ask(f"{name}: its epoch is given", producer.initialising_again(), 5)
        exchange.ask(f"{name}: the next epoch", producer.initialising(), 5)
    for partition in range(17, 20):
        exchange.ask(f"orders-{partition} after timeouts", fetch_request("orders", partition=partition), 12)
