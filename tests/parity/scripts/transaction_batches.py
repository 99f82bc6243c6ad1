"""Produce: transactional batches, which are verified for old clients and add their partitions for new ones."""

from __future__ import annotations

from typing import Any

from protocol.messages.produce import ProduceRequest
from protocol.messages.producers import DescribeProducersRequest
from tests.parity.exchange import Exchange
from tests.parity.producers import (
    NEW_PRODUCE,
    OLD_END,
    OLD_PRODUCE,
    STATES,
    UNKNOWN_TOPIC_ID,
    Producer,
    Producers,
    await_transactions,
)
from tests.support.batches import changed, produced, record
from tests.support.requests import fetch_request

TopicData = ProduceRequest.TopicData
PartitionData = TopicData.PartitionData

VERSIONS = range(3, 14)
TOPIC_IDS = 13
"""From this version on topics are named by their ids."""


def run(exchange: Exchange) -> None:
    exchange.create_topic("orders", partitions=24)
    exchange.create_topic("payments", partitions=3)
    await_transactions(exchange)
    producers = Producers(exchange)
    for state in STATES:
        in_state(exchange, producers, state)
    several_partitions(exchange, producers)
    for number, version in enumerate((OLD_PRODUCE, NEW_PRODUCE)):
        faulty(exchange, producers.new(), version, 10 + 7 * number)
    odd_ids(exchange, producers)
    several_producers(exchange, producers)
    acknowledgements(exchange, producers)
    sequences(exchange, producers)
    lowest_sequences(exchange, producers)
    beside_transactions(exchange, producers)


def several(version: int, producer: Producer, batches: dict[str, dict[int, Any]], **fields: Any) -> ProduceRequest:
    """Batches by topic and partition."""
    ids = producer.exchange.topic_ids
    own = {"transactional_id": producer.transactional_id, "acks": -1, "timeout_ms": 30_000}
    return ProduceRequest(
        **{**own, **fields},
        topic_data=[
            TopicData(
                name=name if version < TOPIC_IDS else "",
                topic_id=ids.get(name, UNKNOWN_TOPIC_ID) if version >= TOPIC_IDS else bytes(16),
                partition_data=[PartitionData(index=index, records=batch) for index, batch in partitions.items()],
            )
            for name, partitions in batches.items()
        ],
    )


def described(exchange: Exchange, step: str, topic: str, *partitions: int) -> None:
    """Note which producers partitions know, and what they have open."""
    asked = DescribeProducersRequest.Topic(name=topic, partition_indexes=[*partitions])
    exchange.ask(step, DescribeProducersRequest(topics=[asked]), 0)


def in_state(exchange: Exchange, producers: Producers, state: str) -> None:
    """The right batch, and what is wrong about its producer, where the partition is added and where it is not."""
    for version in VERSIONS:
        producer = producers.in_state(state)
        exchange.ask(f"{state}: in another partition", producer.producing(0, partition=1), version)
        if version in (OLD_PRODUCE, NEW_PRODUCE):
            producer.describe(f"{state}: after a batch in v{version}")
    producer = producers.in_state(state)
    for partition in (0, 1):
        for difference in (-2, -1, 1):
            epoch = producer.epoch + difference
            request = producer.producing(9, partition=partition, producer_epoch=epoch)
            exchange.ask_each(f"{state}: partition {partition} in epoch E{difference:+}", request, since=3)
        request = producer.producing(9, partition=partition, producer_id=producer.id + 1000)
        exchange.ask_each(f"{state}: partition {partition} of another producer", request, since=3)
    producer.describe(f"{state}: after wrong batches")


def several_partitions(exchange: Exchange, producers: Producers) -> None:
    """Each partition has its own code, and those that are good are appended."""
    for version in VERSIONS:
        producer = producers.new().add(("orders", [0]))
        batch = producer.batch()
        added = {"orders": {0: batch, 1: batch}, "payments": {0: batch}}
        exchange.ask("one partition of three is added", several(version, producer, added), version)
        unknown = {"orders": {2: batch, 99: batch}, "nope": {0: batch}}
        exchange.ask("partitions that do not exist", several(version, producer, unknown), version)
        only_unknown = {"orders": {99: batch}, "nope": {0: batch}}
        exchange.ask("only partitions that do not exist", several(version, producer, only_unknown), version)
        if version in (OLD_PRODUCE, NEW_PRODUCE):
            producer.describe(f"several partitions in v{version}")


def faulty(exchange: Exchange, producer: Producer, version: int, partition: int) -> None:
    """A partition is verified or added before its batch is looked at."""
    for what, batch in (
        ("a wrong CRC", changed(producer.batch(), crc=1)),
        ("a sequence that does not begin at 0", producer.batch(5)),
        ("a time of the future", producer.batch(0, [record(timestamp=2**62)])),
        ("too many bytes", producer.batch(0, [record(b"x" * 2_000_000)])),
        ("two batches", bytes(producer.batch(0)) + bytes(producer.batch(1))),
        ("no batch", b""),
    ):
        request = several(version, producer, {"orders": {partition: batch}})
        exchange.ask(f"{what}, not added", request, version)
        producer.describe(f"{what} in v{version}, not added")
        partition += 1
    where = 16
    producer.add(("orders", [where]))
    for what, batch in (("a wrong CRC", changed(producer.batch(), crc=1)), ("a sequence of 5", producer.batch(5))):
        request = several(version, producer, {"orders": {where: batch}})
        exchange.ask(f"{what}, added", request, version)
    described(exchange, f"producers after faults in v{version}", "orders", *range(10, 24))


def odd_ids(exchange: Exchange, producers: Producers) -> None:
    other = producers.new()
    for version in VERSIONS:
        producer = producers.new().add(("payments", [1])).produce(version=OLD_PRODUCE, topic="payments", partition=1)

        def ask(step: str, request: ProduceRequest, version: int = version) -> None:
            exchange.ask(step, request, version)

        sequence = 1
        for name in (None, "", "nope", other.transactional_id):
            for partition in (1, 2):
                fields = {"topic": "payments", "partition": partition, "transactional_id": name}
                known = "where it has a transaction" if partition == 1 else "where it has none"
                what = "another's" if name == other.transactional_id else repr(name)
                ask(f"the id {what} {known}", producer.producing(sequence if partition == 1 else 0, **fields))
            sequence += name is not None
        for producer_id, epoch in ((-1, 0), (producer.id, -1), (-1, -1)):
            what = f"{'no producer' if producer_id < 0 else 'its producer'} and epoch {epoch}"
            fields = {"producer_id": producer_id, "producer_epoch": epoch}
            ask(what, producer.producing(0 if producer_id >= 0 else -1, topic="payments", partition=2, **fields))
        plain = producer.producing(sequence, topic="payments", partition=1, is_transactional=False)
        ask("a plain batch of its producer where it has a transaction", plain)
        plain = producer.producing(0, topic="payments", partition=2, is_transactional=False)
        ask("a plain batch of its producer where it has none", plain)
    exchange.ask("what lies in payments-1", fetch_request("payments", partition=1), 12)


def several_producers(exchange: Exchange, producers: Producers) -> None:
    for version in VERSIONS:
        a = producers.new().add(("orders", [3, 4, 5]))
        b = producers.new().add(("orders", [3, 4, 5]))
        two = {"orders": {3: a.batch(), 4: b.batch()}}
        exchange.ask("two producers in a request", several(version, a, two), version)
        epochs = {"orders": {3: a.batch(), 4: a.batch(producer_epoch=1)}}
        exchange.ask("two epochs in a request", several(version, a, epochs), version)
        plain = {"orders": {3: a.batch(), 4: produced(1), 5: b.batch(is_transactional=False)}}
        exchange.ask("a transactional batch beside plain ones", several(version, a, plain), version)
        refused = {"orders": {3: a.batch(1), 4: b.batch(), 9: produced(1)}}
        exchange.ask("two producers beside a plain batch", several(version, a, refused), version)


def acknowledgements(exchange: Exchange, producers: Producers) -> None:
    for version in VERSIONS:
        producer = producers.new().add(("orders", [6]))
        exchange.ask("acks 1", producer.producing(0, partition=6, acks=1), version)
        exchange.ask("acks 1, not added", producer.producing(0, partition=7, acks=1), version)
        exchange.tell("acks 0", producer.producing(1, partition=6, acks=0), version)
        exchange.tell("acks 0, not added", producer.producing(0, partition=8, acks=0), version)
        exchange.tell("acks 0, an old epoch", producer.producing(2, partition=6, acks=0, producer_epoch=-1), version)
        if version in (OLD_PRODUCE, NEW_PRODUCE):
            producer.describe(f"acks 1 and 0 in v{version}")


def sequences(exchange: Exchange, producers: Producers) -> None:
    """They go on in the same epoch, and begin again in the next."""
    exchange.create_topic("sequences", partitions=4)

    def ask(step: str, sequence: int, version: int, **fields: Any) -> None:
        fields = {"topic": "sequences", **fields}
        exchange.ask(f"{who}: {step}", producer.producing(sequence, **fields), version)

    who, producer = "old client", producers.new()
    for transaction in range(3):
        producer.add(("sequences", [0]))
        for sequence in (2 * transaction, 2 * transaction + 1):
            ask(f"sequence {sequence}", sequence, OLD_PRODUCE)
            ask(f"sequence {sequence} again", sequence, OLD_PRODUCE)
        ask(f"a gap in transaction {transaction}", 50, OLD_PRODUCE)
        producer.end(transaction != 1, version=OLD_END)
        described(exchange, f"{who}: after transaction {transaction}", "sequences", 0)
    who, producer = "new client", producers.new()
    for transaction in range(3):
        ask(f"sequence 7 in transaction {transaction}", 7, NEW_PRODUCE, partition=1)
        for sequence in (0, 1):
            ask(f"sequence {sequence} in transaction {transaction}", sequence, NEW_PRODUCE, partition=1)
            ask(f"sequence {sequence} again, in transaction {transaction}", sequence, NEW_PRODUCE, partition=1)
        epoch = producer.epoch
        producer.end(transaction != 1)
        ended = f"of transaction {transaction}, when it has ended"
        ask(f"sequence 1 {ended}", 1, NEW_PRODUCE, partition=1, producer_epoch=epoch)
        ask(f"sequence 2 {ended}", 2, NEW_PRODUCE, partition=1, producer_epoch=epoch)
        described(exchange, f"{who}: after transaction {transaction}", "sequences", 1)
    for version, unknown in ((OLD_PRODUCE, "added"), (NEW_PRODUCE, "to be added")):
        who, producer = f"no batch yet, {unknown}", producers.new()
        if version == OLD_PRODUCE:
            producer.add(("sequences", [3]))
        ask("sequence 3", 3, version, partition=3)
        ask("sequence 0", 0, version, partition=3)
        ask("sequence 4", 4, version, partition=3)
    for partition in range(4):
        read = fetch_request("sequences", partition=partition)
        exchange.ask(f"what lies in sequences-{partition}", read, 12)


def lowest_sequences(exchange: Exchange, producers: Producers) -> None:
    """Until a batch is appended, no sequence may be above the lowest that was verified."""
    exchange.create_topic("lowest", partitions=6)
    for partition, (version, tried) in enumerate(
        (version, tried) for version in (OLD_PRODUCE, NEW_PRODUCE) for tried in ((5, 1, 2, 9), (0, 1), (2, 0, 1, 2))
    ):
        producer = producers.new().add(("lowest", [partition]))
        producer.produce(0, version=OLD_PRODUCE, topic="lowest", partition=partition).end(version=OLD_END)
        for place, sequence in enumerate(tried):
            if place == 1 and version == OLD_PRODUCE:
                producer.add(("lowest", [partition]))
            what = f"the sequences {tried} after 0 in v{version}: number {place}"
            exchange.ask(what, producer.producing(sequence, topic="lowest", partition=partition), version)
        described(exchange, f"after the sequences {tried} in v{version}", "lowest", partition)


def beside_transactions(exchange: Exchange, producers: Producers) -> None:
    """Plain and transactional batches of one producer in one partition."""
    exchange.create_topic("mixed")
    producer = producers.new()

    def ask(step: str, sequence: int, *, is_transactional: bool) -> None:
        request = producer.producing(sequence, topic="mixed", is_transactional=is_transactional)
        exchange.ask(step, request, NEW_PRODUCE)

    ask("mixed: a plain batch before", 0, is_transactional=False)
    ask("mixed: a transactional batch after it", 1, is_transactional=True)
    described(exchange, "mixed: a transaction is open", "mixed", 0)
    ask("mixed: a plain batch in the transaction", 2, is_transactional=False)
    ask("mixed: the first again, as a transactional batch", 0, is_transactional=True)
    producer.end(version=OLD_END)
    ask("mixed: a plain batch after it has ended", 2, is_transactional=False)
    described(exchange, "mixed: the transaction has ended", "mixed", 0)
    exchange.ask("what lies in mixed", fetch_request("mixed"), 12)
