"""Transactions that are aborted because they were open for longer than their timeout."""

from __future__ import annotations

from tests.parity.exchange import Exchange
from tests.parity.producers import OLD_PRODUCE, Producer, await_transactions, described
from tests.support.requests import fetch_request

SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}

PARTITIONS = 9
"""One for each transaction, since which is aborted first is left open."""
TIMEOUT_MS = 2000
"""All transactions of the script begin within this time, and then the script waits for them."""


def run(exchange: Exchange) -> None:
    exchange.create_topic("orders", partitions=PARTITIONS)
    exchange.create_topic("payments")
    await_transactions(exchange)
    lasting = Producer(exchange, "lasting").initialise().produce(partition=7)
    late = {name: Producer(exchange, name, timeout_ms=TIMEOUT_MS).initialise() for name in BEGINNINGS}
    for name, begin in BEGINNINGS.items():
        begin(late[name])
    ended = Producer(exchange, "ended", timeout_ms=TIMEOUT_MS).initialise().produce(partition=8).end()
    for producer in late.values():
        aborted = described(producer.transactional_id)
        exchange.wait_until(
            aborted,
            0,
            lambda answer: answer.transaction_states[0].transaction_state == "CompleteAbort",
            patience_s=60.0,
        )
    for producer in (*late.values(), lasting, ended):
        producer.describe(f"{producer.transactional_id}, when others are aborted")
    for partition in range(PARTITIONS):
        read = fetch_request("orders", partition=partition, isolation_level=1)
        exchange.ask(f"orders-{partition}, when transactions are aborted", read, 12)
    for producer in late.values():
        too_late(exchange, producer)
    initialised(exchange, late)


def _begin_as_old_client(producer: Producer) -> None:
    producer.add(("orders", [0])).produce(version=OLD_PRODUCE)


BEGINNINGS = {
    "old client": _begin_as_old_client,
    "old client without a batch": lambda producer: producer.add(("orders", [1]), ("payments", [0])),
    "new client": lambda producer: producer.produce(partition=2),
    "new client in two partitions": lambda producer: producer.produce(partition=3).produce(partition=4),
    "given": lambda producer: producer.produce(partition=5),
    "given the epoch of now": lambda producer: producer.produce(partition=6),
}


def too_late(exchange: Exchange, producer: Producer) -> None:
    """What a producer is answered that has not heard of the abort."""
    of = producer.transactional_id
    exchange.ask_each(f"{of}: a partition", lambda version: producer.adding(version, ("orders", [0])))
    exchange.ask_each(
        f"{of}: to be verified",
        lambda version: producer.adding(version, ("orders", [0]), verify_only=True),
        since=4,
    )
    exchange.ask_each(f"{of}: a group", producer.adding_group("readers"))
    exchange.ask_each(f"{of}: a batch", producer.producing(1, partition=2), since=3)
    exchange.ask_each(f"{of}: the commit", producer.ending())
    exchange.ask_each(f"{of}: the abort", producer.ending(False))


def initialised(exchange: Exchange, late: dict[str, Producer]) -> None:
    """The producer's epoch was raised once, for its own request to take up."""
    for name, producer in late.items():
        if name == "given":
            request = producer.initialising_again()
            exchange.ask(f"{name}: its epoch is given", request, 5)
            exchange.ask(f"{name}: its epoch is given again", request, 5)
        elif name == "given the epoch of now":
            producer.settle()
            exchange.ask(f"{name}: the epoch of now is given", producer.initialising_again(), 5)
        exchange.ask(f"{name}: the next epoch", producer.initialising(), 5)
        producer.settle().produce(partition=2).end()
        producer.describe(f"{name}: the next transaction is committed")
