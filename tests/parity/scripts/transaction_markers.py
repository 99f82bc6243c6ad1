"""WriteTxnMarkers: control batches in partitions, the epochs that they may have, and the producers that they leave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from protocol.messages.producers import DescribeProducersRequest
from protocol.messages.transactions import WriteTxnMarkersRequest
from tests.parity.exchange import Exchange
from tests.parity.producers import OLD_END, Partitions, Producer, Producers, await_transactions
from tests.support.requests import fetch_request

Marker = WriteTxnMarkersRequest.Marker

MADE_UP = 1_000_000
"""From here on up there are producer ids that the broker has not given."""
UNVERSIONED, VERSIONED = 1, 2
"""From version 2 on a marker says by which transaction version it ends a transaction."""


def marker(
    producer_id: int,
    epoch: int,
    *topics: Partitions,
    committed: bool = True,
    coordinator_epoch: int = 0,
    version: int = 0,
) -> Marker:
    return Marker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=committed,
        topics=[Marker.Topic(name=name, partition_indexes=[*indexes]) for name, indexes in topics],
        coordinator_epoch=coordinator_epoch,
        transaction_version=version,
    )


def markers(*of: Marker) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(markers=[*of])


def producers_of(topic: str, *partitions: int) -> DescribeProducersRequest:
    return DescribeProducersRequest(
        topics=[DescribeProducersRequest.Topic(name=topic, partition_indexes=[*partitions])]
    )


def run(exchange: Exchange) -> None:
    exchange.create_topic("orders", partitions=3)
    await_transactions(exchange)
    for number in range(5, 13):
        exchange.name_producer(MADE_UP + number, f"number {number}")
    lists(exchange)
    nonsense(exchange)
    producers = Producers(exchange)
    coordinator_epochs(Case(exchange, producers, "coordinator epochs"))
    for version in (0, 1):
        producer_epochs(Case(exchange, producers, f"epochs, transaction version {version}"), version)
    for version in (2, 3):
        raised_epochs(Case(exchange, producers, f"epochs, transaction version {version}"), version)
    without_transactions(Case(exchange, producers, "no transaction"))
    hung(Case(exchange, producers, "an administrator aborts"))
    by_coordinator(exchange, producers)


def lists(exchange: Exchange) -> None:
    """What can stand in a request, and in which form it comes back."""
    exchange.ask_each("no markers", markers())
    exchange.ask_each("a marker without topics", markers(marker(MADE_UP + 5, 0)))
    exchange.ask_each("a topic without partitions", markers(marker(MADE_UP + 5, 0, ("orders", []))))
    exchange.ask_each(
        "one good among them", markers(marker(MADE_UP + 5, 0), marker(MADE_UP + 6, 0, ("orders", [0]), ("nope", [])))
    )
    exchange.ask_each(
        "good and bad partitions", markers(marker(MADE_UP + 5, 0, ("orders", [9, 0, -1, 1]), ("nope", [0])))
    )
    for name in ("", "no spaces", "__cluster_metadata"):
        exchange.ask_each(f"the topic {name!r}", markers(marker(MADE_UP + 5, 0, (name, [0]))))
    exchange.ask_each("a topic twice", markers(marker(MADE_UP + 5, 0, ("orders", [1]), ("orders", [2]))))
    exchange.create_topic("twice")
    exchange.ask_each("a partition twice", markers(marker(MADE_UP + 5, 0, ("twice", [0, 0]))), patience_s=2)
    one_after_the_other = markers(
        marker(MADE_UP + 5, 0, ("orders", [1])), marker(MADE_UP + 5, 0, ("orders", [1, 2]), committed=False)
    )
    exchange.ask_each("two markers of a producer", one_after_the_other)
    two = markers(marker(MADE_UP + 6, 0, ("orders", [1])), marker(MADE_UP + 7, 0, ("orders", [1, 9]), committed=False))
    exchange.ask_each("two producers in a partition", two)
    exchange.ask_each(
        "the topic __transaction_state", markers(marker(MADE_UP + 5, 0, ("__transaction_state", [0, 50])))
    )
    exchange.ask("who has been in a partition", producers_of("orders", 0, 1, 2), 0)
    exchange.ask("what lies in a partition", fetch_request("orders", partition=1), 12)


def nonsense(exchange: Exchange) -> None:
    exchange.create_topic("nonsense")
    where: Partitions = ("nonsense", [0])
    exchange.ask_each("producer -1", markers(marker(-1, 0, where)))
    exchange.ask_each("producer -2", markers(marker(-2, 0, where)))
    exchange.ask_each("epoch -1", markers(marker(MADE_UP + 9, -1, where)))
    exchange.ask_each(
        "epoch -1 beside a good one", markers(marker(MADE_UP + 9, -1, where), marker(MADE_UP + 10, 0, where))
    )
    exchange.ask_each("coordinator epoch -1", markers(marker(MADE_UP + 11, 0, where, coordinator_epoch=-1)))
    for version in (-1, 127, -128):
        request = markers(marker(MADE_UP + 12, 0, where, version=version))
        exchange.ask(f"transaction version {version}", request, VERSIONED)
    exchange.ask("what came of it", producers_of("nonsense", 0), 0)
    exchange.ask("what lies there", fetch_request("nonsense"), 12)


class Case:
    """A producer in a partition of its own, and markers for it."""

    def __init__(self, exchange: Exchange, producers: Producers, what: str) -> None:
        self.what = what
        self.exchange = exchange
        self.topic = f"markers-{what.replace(' ', '-').replace(',', '')}"
        exchange.create_topic(self.topic)
        self.producer: Producer = producers.new("marked").initialise_again().initialise_again()

    def begin(self, sequence: int = 0) -> None:
        self.producer.produce(sequence, topic=self.topic)

    def produce(self, step: str, sequence: int, **fields: Any) -> None:
        request = self.producer.producing(sequence, topic=self.topic, **fields)
        self.exchange.ask(f"{self.what}: {step}", request, 12)

    def mark(self, step: str, epoch: int, *, request_version: int = VERSIONED, **fields: Any) -> None:
        request = markers(marker(self.producer.id, epoch, (self.topic, [0]), **fields))
        self.exchange.ask(f"{self.what}: {step}", request, request_version)

    def mark_each(self, steps: Sequence[tuple[str, int]], **fields: Any) -> None:
        for step, epoch in steps:
            self.mark(step, epoch, **fields)
            self.look(step)

    def look(self, step: str) -> None:
        self.exchange.ask(f"{self.what}, after {step}", producers_of(self.topic, 0), 0)

    def read(self, step: str = "all that was written") -> None:
        read = fetch_request(self.topic, isolation_level=1)
        self.exchange.ask(f"{self.what}: {step}", read, 12)


def coordinator_epochs(case: Case) -> None:
    case.begin()
    case.look("the first batch")
    for step, epoch in (("epoch 5", 5), ("epoch 4", 4), ("epoch 5 again", 5), ("epoch 7", 7), ("epoch 6", 6)):
        case.mark(f"coordinator {step}", 2, coordinator_epoch=epoch)
        case.look(f"coordinator {step}")
    case.mark("an old coordinator epoch and an old producer epoch", 1, coordinator_epoch=4)
    case.mark("an old coordinator epoch in a new producer epoch", 3, coordinator_epoch=4)
    case.read()


def producer_epochs(case: Case, version: int) -> None:
    """As old clients end transactions: the epoch may stay."""
    case.begin()
    case.mark_each([("the epoch before", 1), ("the epoch", 2)], version=version)
    case.begin(1)
    case.mark_each(
        [("an epoch far above", 9), ("the epoch again", 2), ("the epoch far above again", 9)], version=version
    )
    case.mark_each([("one more", 10), ("without a transaction, one less", 9)], version=version)
    case.produce("a batch of the epoch", 2)
    case.read()


def raised_epochs(case: Case, version: int) -> None:
    """As new clients end transactions: the epoch goes up."""
    case.begin()
    case.mark_each([("the epoch before", 1), ("the epoch", 2)], version=version)
    case.mark("an epoch of -1", -1, version=version)
    case.mark_each([("the epoch after", 3), ("the epoch after again", 3)], version=version)
    case.mark_each([("an epoch far above", 9), ("a lower one", 8), ("the highest", 0x7FFF)], version=version)
    case.mark("the highest again", 0x7FFF, version=version)
    case.read()


def without_transactions(case: Case) -> None:
    """Markers need no transaction, nor a producer that the partition knows."""
    case.mark("of an unknown producer, raised", 2, version=2)
    case.mark("of an unknown producer, raised, again", 2, version=2)
    case.mark("in version 1", 2, request_version=UNVERSIONED)
    case.look("markers")
    case.produce("a first batch in the epoch of the markers", 0)
    case.produce("a second one", 1)
    case.look("batches")
    case.read()


def hung(case: Case) -> None:
    """What `kafka-transactions abort` sends, and the coordinator's own end after it."""
    case.begin()
    case.mark("the abort", 2, committed=False)
    case.look("the abort")
    case.read("after the abort")
    case.produce("the next batch", 1)
    case.look("the next batch")
    case.producer.end(version=OLD_END)
    case.look("the commit")
    case.read("after the commit")


def by_coordinator(exchange: Exchange, producers: Producers) -> None:
    """What the coordinator's own markers leave in partitions, with data and without."""
    for version in (4, 5):
        for committed in (True, False):
            topic = f"ended-in-v{version}-{'commit' if committed else 'abort'}"
            exchange.create_topic(topic, partitions=2)
            producer = producers.new("ended").add((topic, [0, 1])).produce(topic=topic)
            exchange.ask(f"{topic}: open", producers_of(topic, 0, 1), 0)
            producer.end(committed, version=version)
            exchange.ask(f"{topic}: ended", producers_of(topic, 0, 1), 0)
            for partition in (0, 1):
                read = fetch_request(topic, partition=partition, isolation_level=1)
                exchange.ask(f"{topic}: what lies in partition {partition}", read, 12)
    topic = "ended-by-fencing"
    exchange.create_topic(topic)
    producers.new("fenced").produce(topic=topic).fence()
    exchange.ask(f"{topic}: ended", producers_of(topic, 0), 0)
    exchange.ask(f"{topic}: what lies there", fetch_request(topic, isolation_level=1), 12)
