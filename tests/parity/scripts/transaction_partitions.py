"""AddPartitionsToTxn: as clients add partitions, and as brokers add or verify those of several transactions."""

from __future__ import annotations

from typing import Any

from protocol.messages.transactions import AddPartitionsToTxnRequest
from tests.parity.exchange import Exchange
from tests.parity.producers import ADD_OF_SEVERAL, STATES, Partitions, Producer, Producers, await_transactions

VERSIONS = range(6)


def run(exchange: Exchange) -> None:
    exchange.create_topic("orders", partitions=6)
    exchange.create_topic("payments", partitions=3)
    await_transactions(exchange)
    producers = Producers(exchange)
    for state in STATES:
        added(exchange, producers, state)
        verified(exchange, producers, state)
    bad_partitions(exchange, producers)
    odd_lists(exchange, producers)
    internal_topics(exchange, producers)
    unknown_ids(exchange, producers.in_state("Ongoing of a new client"))
    several(exchange, producers)


def of(*transactions: AddPartitionsToTxnRequest.Transaction) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(transactions=[*transactions])


def ask_each(exchange: Exchange, step: str, producer: Producer, *partitions: Partitions, **fields: Any) -> None:
    """In every version; what only verifies, in those that can."""
    options = {"since": ADD_OF_SEVERAL} if fields.get("verify_only") else {}
    exchange.ask_each(step, lambda version: producer.adding(version, *partitions, **fields), **options)


def added(exchange: Exchange, producers: Producers, state: str) -> None:
    for version in VERSIONS:
        producer = producers.in_state(state)
        for what, index in (("a partition", 1), ("the same partition again", 1), ("another", 2), ("the first", 0)):
            exchange.ask(f"{state}: {what}", producer.adding(version, ("orders", [index])), version)
        if version in (0, 5):
            producer.describe(f"{state}: after partitions were added in v{version}")
    producer = producers.in_state(state)
    for difference in (-2, -1, 1):
        epoch = producer.epoch + difference
        ask_each(exchange, f"{state}: in epoch E{difference:+}", producer, ("orders", [0, 1]), producer_epoch=epoch)
    for what, producer_id in (("another producer", producer.id + 1000), ("no producer", -1)):
        ask_each(exchange, f"{state}: of {what}", producer, ("orders", [0, 1]), producer_id=producer_id)
    producer.describe(f"{state}: after partitions were refused")


def verified(exchange: Exchange, producers: Producers, state: str) -> None:
    """What is verified is not added."""
    producer = producers.in_state(state)
    for indexes in ([0], [1], [0, 1]):
        what = f"{state}: partitions {indexes} are verified"
        ask_each(exchange, what, producer, ("orders", indexes), verify_only=True)
    for difference in (-1, 1):
        epoch = producer.epoch + difference
        what = f"{state}: verified in epoch E{difference:+}"
        ask_each(exchange, what, producer, ("orders", [0, 1]), verify_only=True, producer_epoch=epoch)
    what = f"{state}: verified for another producer"
    ask_each(exchange, what, producer, ("orders", [0]), verify_only=True, producer_id=producer.id + 1000)
    producer.describe(f"{state}: after partitions were verified")


def bad_partitions(exchange: Exchange, producers: Producers) -> None:
    """Nothing is added beside a partition that does not exist, and nothing else is looked at."""
    producer = producers.new().add(("orders", [0]))
    mixed: tuple[Partitions, ...] = (("orders", [2, 9, 0, -1]), ("nope", [0]), ("payments", [1]))
    ask_each(exchange, "good and bad partitions", producer, *mixed)
    ask_each(exchange, "good and bad partitions are verified", producer, *mixed, verify_only=True)
    ask_each(exchange, "good and bad partitions in the epoch after", producer, *mixed, producer_epoch=5)
    ask_each(exchange, "good and bad partitions of another producer", producer, *mixed, producer_id=producer.id + 1000)
    for transactional_id in ("nope", ""):
        what = f"good and bad partitions of the id {transactional_id!r}"
        ask_each(exchange, what, producer, *mixed, transactional_id=transactional_id)
    ask_each(exchange, "only bad partitions", producer, ("nope", [0, 1]))
    for name in ("", "no spaces", "a/b", "__cluster_metadata"):
        ask_each(exchange, f"the topic {name!r}", producer, (name, [0]))
    producer.describe("after bad partitions")


def odd_lists(exchange: Exchange, producers: Producers) -> None:
    for version in VERSIONS:
        producer = producers.new()
        exchange.ask("no topics", producer.adding(version), version)
        if version in (0, 5):
            producer.describe(f"no topics were added in v{version}")
        exchange.ask("a topic without partitions", producer.adding(version, ("orders", [])), version)
        exchange.ask("a partition twice", producer.adding(version, ("orders", [1, 1])), version)
    producer = producers.new()
    ask_each(exchange, "no topics in another epoch", producer, producer_epoch=7)
    ask_each(exchange, "no topics of an unknown id", producer, transactional_id="nope")
    ask_each(exchange, "no topics are verified", producer, verify_only=True)
    producer.add(("orders", [1]))
    ask_each(exchange, "a partition twice is verified", producer, ("orders", [1, 1, 0]), verify_only=True)
    topic_twice: tuple[Partitions, ...] = (("orders", [1]), ("orders", [0]))
    ask_each(exchange, "a topic twice is verified", producer, *topic_twice, verify_only=True)


def internal_topics(exchange: Exchange, producers: Producers) -> None:
    """Clients may not add them, brokers may."""
    for name in ("__consumer_offsets", "__transaction_state"):
        for version in VERSIONS:
            if name == "__transaction_state":
                producer = producers.new()
                request = producer.adding(version, (name, [1]), ("orders", [1]))
                exchange.ask(f"the topic {name} and another", request, version)
                continue
            exchange.ask(f"the topic {name}, not there yet", producers.new().adding(version, (name, [1])), version)


def unknown_ids(exchange: Exchange, producer: Producer) -> None:
    for transactional_id in ("nope", ""):
        for verify_only in (False, True):
            what = f"{'verified for' if verify_only else 'of'} the id {transactional_id!r}"
            fields = {"transactional_id": transactional_id, "verify_only": verify_only}
            ask_each(exchange, what, producer, ("orders", [0, 1]), ("payments", [0]), **fields)


def several(exchange: Exchange, producers: Producers) -> None:
    """Transactions of one request have nothing to do with each other."""
    for version in range(ADD_OF_SEVERAL, 6):
        a, b = producers.new(f"a-v{version}"), producers.new(f"b-v{version}")

        def ask(step: str, *transactions: AddPartitionsToTxnRequest.Transaction, version: int = version) -> None:
            exchange.ask(step, of(*transactions), version)

        ask("two transactions", b.transaction(("orders", [0])), a.transaction(("orders", [3])))
        ask(
            "a good one, another producer's and an unknown id's",
            b.transaction(("orders", [1])),
            a.transaction(("orders", [4]), producer_id=a.id + 1000),
            a.transaction(("orders", [0]), ("payments", [0]), transactional_id="nope"),
        )
        ask("a bad partition in the first", b.transaction(("nope", [1])), a.transaction(("orders", [4])))
        ask(
            "a bad partition in the second",
            a.transaction(("orders", [5])),
            b.transaction(("nope", [1]), ("orders", [2])),
        )
        ask(
            "an empty id and a good one",
            a.transaction(("orders", [0]), transactional_id=""),
            b.transaction(("orders", [0])),
        )
        ask(
            "one to be verified, the other to be added",
            b.transaction(("payments", [0]), verify_only=True),
            a.transaction(("payments", [0])),
        )
        ask("both to be verified", *(p.transaction(("payments", [0]), verify_only=True) for p in (a, b)))
        a.describe(f"the first of several, v{version}")
        b.describe(f"the second of several, v{version}")
    exchange.ask_each("no transactions", of(), since=ADD_OF_SEVERAL, patience_s=2)
