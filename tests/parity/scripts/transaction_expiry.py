"""Transactional ids that were not used for long are forgotten, but for those with an open transaction."""

from __future__ import annotations

from protocol.messages.producers import DescribeProducersRequest
from protocol.messages.transactions import ListTransactionsRequest
from tests.parity.exchange import Exchange
from tests.parity.producers import OLD_END, Producer, await_transactions

EXPIRATION_MS = 3000
"""All ids of the script are used within this time, and then the script waits for them to be forgotten."""

SETTINGS = {
    "transactional.id.expiration.ms": str(EXPIRATION_MS),
    "transaction.remove.expired.transaction.cleanup.interval.ms": "100",
    "producer.id.expiration.ms": str(EXPIRATION_MS),
    "producer.id.expiration.check.interval.ms": "100",
}

ALL = ListTransactionsRequest(state_filters=[], producer_id_filters=[])


def run(exchange: Exchange) -> None:
    exchange.create_topic("orders", partitions=3)
    await_transactions(exchange)
    names = ("open", "empty", "committed", "aborted")
    producers = {name: Producer(exchange, name).initialise() for name in names}
    producers["open"].produce(partition=1)
    producers["committed"].add().produce(version=11).end(version=OLD_END)
    producers["aborted"].produce().end(False)
    exchange.ask("before they expire", ALL, 2)
    exchange.ask_until(
        "when they have expired", ALL, 2, lambda answer: len(answer.transaction_states) == 1, patience_s=60.0
    )
    topic = DescribeProducersRequest.Topic(name="orders", partition_indexes=[0, 1])
    exchange.ask_until(
        "when they have expired",
        DescribeProducersRequest(topics=[topic]),
        0,
        lambda answer: not answer.topics[0].partitions[0].active_producers,
        patience_s=60.0,
    )
    for name, producer in producers.items():
        producer.describe(f"{name}, when the others have expired")
        if name != "open":
            forgotten(exchange, producer)
    producers["open"].produce(1, partition=1).end()
    producers["open"].describe("what was open is committed")


def forgotten(exchange: Exchange, producer: Producer) -> None:
    """What the producer of a forgotten id is answered: the same as the producer of an unknown id."""
    of = producer.transactional_id
    exchange.ask_each(f"{of}: a partition", lambda version: producer.adding(version, ("orders", [0])))
    exchange.ask_each(f"{of}: a group", producer.adding_group("readers"))
    exchange.ask_each(f"{of}: a batch", producer.producing(1), since=3)
    exchange.ask_each(f"{of}: the commit", producer.ending())
    exchange.ask_each(f"{of}: the abort", producer.ending(False))
    exchange.ask(f"{of}: its epoch is given", producer.initialising_again(), 5)
    producer.settle()
    producer.describe(f"{of}: initialised again")
