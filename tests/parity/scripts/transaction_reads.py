"""Fetch and ListOffsets of partitions with transactions: what readers of committed records see, and until where."""

from __future__ import annotations

from typing import Any

from protocol.messages.delete_records import DeleteRecordsRequest
from protocol.messages.list_offsets import ListOffsetsRequest
from tests.parity.exchange import Exchange
from tests.parity.producers import OLD_END, Producers, await_transactions
from tests.support.batches import T, produced, record
from tests.support.requests import fetch_request, produce_request

UNCOMMITTED, COMMITTED = 0, 1
LEVELS = {UNCOMMITTED: "all records", COMMITTED: "committed records"}
SINCE_LEVELS = {"fetch": 4, "list offsets": 2}
LATEST, EARLIEST, OF_HIGHEST_TIME = -1, -2, -3
SEGMENT_BYTES = 1_048_576


def run(exchange: Exchange) -> None:
    await_transactions(exchange)
    producers = Producers(exchange)
    one_after_the_other(exchange, producers)
    entangled(exchange, producers)
    beyond_segments(exchange, producers)
    deleted(exchange, producers)
    without_batches(exchange, producers)


def read(exchange: Exchange, step: str, topic: str, *offsets: int, every_version: bool = False, **limits: Any) -> None:
    """Fetch from these offsets, at both levels."""
    for level, what in LEVELS.items():
        for offset in offsets:
            request = fetch_request(
                topic, offset=offset, topic_id=exchange.topic_ids[topic], isolation_level=level, **limits
            )
            label = f"{step}, from {offset}: {what}"
            if every_version:
                exchange.ask_each(label, request, since=SINCE_LEVELS["fetch"])
            else:
                exchange.ask(label, request, 12)


def ends(exchange: Exchange, step: str, topic: str, *times: int, every_version: bool = False) -> None:
    """List the ends of a partition and the offsets of times, at both levels."""
    partition = ListOffsetsRequest.Topic.Partition
    for level, what in LEVELS.items():
        for time in (LATEST, EARLIEST, OF_HIGHEST_TIME, *times):
            topics = [ListOffsetsRequest.Topic(name=topic, partitions=[partition(partition_index=0, timestamp=time)])]
            request = ListOffsetsRequest(replica_id=-1, isolation_level=level, topics=topics)
            label = f"{step}, {f'T+{time - T}' if time > 0 else time}: {what}"
            if every_version and time != OF_HIGHEST_TIME:
                exchange.ask_each(label, request, since=SINCE_LEVELS["list offsets"])
            else:
                exchange.ask(label, request, 11)


def plain(exchange: Exchange, topic: str, time: int = T) -> None:
    """A batch without a transaction."""
    exchange.ask(None, produce_request(topic, produced([record(b"plain", timestamp=time)])), 9)


def one_after_the_other(exchange: Exchange, producers: Producers) -> None:
    """Transactions that never meet, and plain batches between."""
    topic = "alone"
    exchange.create_topic(topic)
    producer = producers.new()
    read(exchange, "nothing yet", topic, 0)
    ends(exchange, "nothing yet", topic)
    plain(exchange, topic)
    for number, committed in enumerate((True, False, True)):
        word = f"transaction {number}"
        producer.produce(0, topic=topic, count=2)
        read(exchange, f"{word} is open", topic, 0)
        ends(exchange, f"{word} is open", topic, T, T + 1, T + 2)
        producer.end(committed)
        read(exchange, f"{word} has ended", topic, 0)
        ends(exchange, f"{word} has ended", topic, T, T + 1, T + 2)
        plain(exchange, topic, T + 10 * number)
    read(exchange, "transactions one after the other", topic, 0, 4, 5, 7, every_version=True)
    ends(exchange, "transactions one after the other", topic, T, T + 1, T + 5, T + 10, T + 20, every_version=True)


def entangled(exchange: Exchange, producers: Producers) -> None:
    """Transactions that begin and end in each other, of old and new clients."""
    topic = "entangled"
    exchange.create_topic(topic)
    a, b, c, d = (producers.new(name) for name in "abcd")
    steps = (
        ("a begins", lambda: a.produce(0, topic=topic, count=2)),
        ("b begins", lambda: b.add((topic, [0])).produce(0, version=11, topic=topic)),
        ("a plain batch", lambda: plain(exchange, topic, T + 100)),
        ("a goes on", lambda: a.produce(2, topic=topic)),
        ("c begins", lambda: c.produce(0, topic=topic)),
        ("b aborts", lambda: b.end(False, version=OLD_END)),
        ("b begins again", lambda: b.add((topic, [0])).produce(1, version=11, topic=topic)),
        ("c commits", lambda: c.end()),
        ("a aborts", lambda: a.end(False)),
        ("d begins", lambda: d.produce(0, topic=topic)),
        ("b aborts again", lambda: b.end(False, version=OLD_END)),
        ("a begins again", lambda: a.produce(0, topic=topic)),
        ("d commits", lambda: d.end()),
        ("a is fenced", lambda: a.fence()),
        ("c begins again", lambda: c.produce(0, topic=topic)),
    )
    for step, do in steps:
        do()
        exchange.ask(f"{step}, from 0", fetch_request(topic, isolation_level=COMMITTED), 12)
        ends(exchange, step, topic)
    read(exchange, "entangled transactions", topic, 0, 5, 11, every_version=True)
    read(exchange, "entangled transactions, once more", topic, *range(20), partition_max_bytes=1)
    for size in (0, 1, 100, 150, 250, 400, 1000):
        read(exchange, f"at most {size} bytes", topic, 0, 9, partition_max_bytes=size)
    for level in (2, 7, -1):
        exchange.ask(f"isolation level {level}", fetch_request(topic, isolation_level=level), 12)
    ends(exchange, "entangled transactions", topic, T, T + 1, T + 50, T + 100, T + 101, every_version=True)


def beyond_segments(exchange: Exchange, producers: Producers) -> None:
    """Aborted transactions that span segments: readers are told of them in each."""
    topic = "segments"
    exchange.create_topic(topic, segment_bytes=SEGMENT_BYTES)
    large = [record(b"x" * 400_000)]
    a, b = producers.new("long"), producers.new("short")
    for sequence in range(6):
        a.produce(sequence, topic=topic, count=large)
        b.produce(0, topic=topic).end(sequence % 2 == 0)
    read(exchange, "a long transaction is open", topic, 0, 4, partition_max_bytes=1000)
    a.end(False)
    plain(exchange, topic)
    read(exchange, "a long transaction was aborted", topic, *range(0, 21, 2), partition_max_bytes=1000)
    ends(exchange, "a long transaction was aborted", topic)


def deleted(exchange: Exchange, producers: Producers) -> None:
    """Records of transactions are deleted, before and after the end."""
    topic = "deleted"
    exchange.create_topic(topic)
    a, b = producers.new("deleted"), producers.new("kept")

    def delete(step: str, until: int) -> None:
        partition = DeleteRecordsRequest.Topic.Partition(partition_index=0, offset=until)
        of_topic = DeleteRecordsRequest.Topic(name=topic, partitions=[partition])
        exchange.ask(step, DeleteRecordsRequest(topics=[of_topic], timeout_ms=30_000), 2)
        read(exchange, step, topic, 0, 1, 2, 3)
        ends(exchange, step, topic)

    for sequence in range(3):
        a.produce(sequence, topic=topic)
    delete("the first record of an open transaction is deleted", 1)
    b.produce(0, topic=topic)
    delete("all records of an open transaction are deleted", 3)
    a.end(False)
    read(exchange, "a transaction of deleted records was aborted", topic, *range(3, 6))
    ends(exchange, "a transaction of deleted records was aborted", topic)
    b.end(False)
    read(exchange, "both were aborted", topic, *range(3, 7))
    delete("all records are deleted", -1)


def without_batches(exchange: Exchange, producers: Producers) -> None:
    """Markers alone: partitions that were added and never written."""
    topic = "never-written"
    exchange.create_topic(topic)
    producer = producers.new().add((topic, [0]))
    read(exchange, "a transaction without a batch is open", topic, 0)
    ends(exchange, "a transaction without a batch is open", topic)
    for committed in (True, False):
        producer.add((topic, [0])).end(committed)
        read(exchange, f"without a batch, committed: {committed}", topic, 0, 1)
        ends(exchange, f"without a batch, committed: {committed}", topic)
