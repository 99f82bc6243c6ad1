"""Fetch without sessions: offsets, limits, epochs, and what is asked in vain."""

from collections.abc import Sequence
from typing import Any

from protocol.messages.fetch import FetchRequest
from protocol.schema import NO_UUID
from storage.batch.record_batch import Codec
from tests.parity.exchange import Exchange
from tests.support.batches import T, produced, record, records
from tests.support.requests import fetch_request, produce_request

Topic = FetchRequest.Topic
Partition = Topic.Partition
UNKNOWN = bytes.fromhex("00112233445566778899aabbccddeeff")


def of_topics(*topics: Topic, **fields: Any) -> FetchRequest:
    return FetchRequest(**{"max_wait_ms": 0, "min_bytes": 1, **fields}, topics=[*topics])


def run(exchange: Exchange) -> None:
    orders = exchange.create_topic("orders", partitions=3)
    exchange.create_topic("empty")
    exchange.create_topic("zstd", compression_type="zstd")
    for count, value_bytes in ((3, 20), (1, 20), (5, 500)):
        batch = produced(records(count, value_bytes=value_bytes))
        exchange.ask(f"{count} records", produce_request("orders", batch), 9)
    exchange.ask("a record in partition 1", produce_request("orders", produced(1), partition=1), 9)
    exchange.ask("records in zstd", produce_request("zstd", produced(3, codec=Codec.ZSTD)), 9)

    def ask_each(step: str, topic: str = "orders", **fields: Any) -> None:
        """In every version; from 13 on by the topic's id."""
        options = {key: fields.pop(key) for key in ("since", "until", "versions") if key in fields}
        topic_id = exchange.topic_ids.get(topic, UNKNOWN)
        exchange.ask_each(step, fetch_request(topic, topic_id=topic_id, **fields), **options)

    offsets(ask_each)
    limits(ask_each)
    whom(ask_each, exchange, orders)
    epochs(ask_each)
    topics(exchange, orders)
    waiting(ask_each)
    committed(exchange, ask_each)


def offsets(ask_each: Any) -> None:
    ask_each("from the beginning")
    for offset in (1, 2, 3, 4, 8, 9, 10, 1000, -1, -2, 0x7FFF_FFFF_FFFF_FFFF, -0x8000_0000_0000_0000):
        ask_each(f"offset {offset}", offset=offset)
    for offset in (0, 1, -1):
        ask_each(f"offset {offset} of an empty partition", partition=2, offset=offset)
        ask_each(f"offset {offset} of an empty topic", "empty", offset=offset)
    ask_each("records in zstd", "zstd")
    ask_each("an odd log start offset in the request", partition_fields={"log_start_offset": 55}, since=5)


def limits(ask_each: Any) -> None:
    for size in (0, 1, 60, 61, 150, 200, 300, 0x7FFF_FFFF, -1, -0x8000_0000):
        ask_each(f"at most {size} bytes of a partition", partition_max_bytes=size)
        ask_each(f"at most {size} bytes in all", max_bytes=size)
    ask_each("nothing of a partition and nothing in all", partition_max_bytes=0, max_bytes=0)
    ask_each("nothing of a partition, from its middle", partition_max_bytes=0, offset=4)
    for least in (0, -1, 0x7FFF_FFFF):
        ask_each(f"at least {least} bytes", min_bytes=least)
        ask_each(f"at least {least} bytes at the end", min_bytes=least, offset=9)


def whom(ask_each: Any, exchange: Exchange, orders: bytes) -> None:
    for replica in (-2, -3, 0, 1, 2, 0x7FFF_FFFF):
        ask_each(f"replica {replica}", replica_id=replica, until=14)
    ask_each("replica 1, at the end", replica_id=1, offset=9, until=14)
    for level in (1, 2, 7, -1):
        ask_each(f"isolation level {level}", isolation_level=level)
    ask_each("a rack", rack_id="somewhere", since=11)
    ask_each("the cluster id of another", cluster_id="another", since=12)
    for replica in (-2, 1, 2):
        state = FetchRequest.ReplicaState(replica_id=replica, replica_epoch=0)
        ask_each(f"replica {replica} with its epoch", replica_state=state, since=15)
    ask_each("a directory id", partition_fields={"replica_directory_id": UNKNOWN}, since=17)
    ask_each("a high watermark", partition_fields={"high_watermark": 1}, since=18)


def epochs(ask_each: Any) -> None:
    for epoch in (-2, 0, 1, 5, 0x7FFF_FFFF):
        ask_each(f"leader epoch {epoch}", partition_fields={"current_leader_epoch": epoch}, since=9)
        ask_each(
            f"leader epoch {epoch}, an unknown partition",
            partition=9,
            partition_fields={"current_leader_epoch": epoch},
            since=9,
        )
        ask_each(
            f"leader epoch {epoch}, out of range", offset=99, partition_fields={"current_leader_epoch": epoch}, since=9
        )
        for offset in (0, 3, 9, 10, 99, -1):
            ask_each(
                f"epoch {epoch} fetched last, offset {offset}",
                offset=offset,
                partition_fields={"last_fetched_epoch": epoch},
                since=12,
            )
        ask_each(
            f"epoch {epoch} fetched last of an empty partition",
            partition=2,
            partition_fields={"last_fetched_epoch": epoch},
            since=12,
        )


def topics(exchange: Exchange, orders: bytes) -> None:
    ids = exchange.topic_ids

    def partitions(*indexes: int) -> list[Partition]:
        return [Partition(partition=index, fetch_offset=0, partition_max_bytes=1000) for index in indexes]

    def topic(name: str, indexes: Sequence[int], topic_id: bytes | None = None) -> Topic:
        return Topic(
            topic=name,
            topic_id=ids.get(name, UNKNOWN) if topic_id is None else topic_id,
            partitions=partitions(*indexes),
        )

    exchange.ask_each("no topics", of_topics())
    exchange.ask_each("no topics, and time to wait", of_topics(max_wait_ms=60_000))
    exchange.ask_each("a topic without partitions", of_topics(topic("orders", [])))
    exchange.ask_each("an unknown topic", of_topics(topic("nope", [0])))
    exchange.ask_each("two unknown topics", of_topics(topic("nope", [0]), topic("nope2", [0, 1], bytes(15) + b"\1")))
    for name in ("", ".", "no spaces", "a" * 250, "__cluster_metadata", "__consumer_offsets"):
        exchange.ask_each(f"the topic name {name!r:.20}", of_topics(topic(name, [0])), until=12)
        exchange.ask_each(
            f"the topic name {name!r:.20}, among others",
            of_topics(topic("orders", [1]), topic(name, [0]), topic("empty", [0])),
            until=12,
        )
    exchange.ask_each("the zero id", of_topics(topic("", [0], NO_UUID)), since=13)
    for index in (3, -1, 0x7FFF_FFFF):
        exchange.ask_each(f"partition {index}", of_topics(topic("orders", [index])))
    exchange.ask_each("three partitions", of_topics(topic("orders", [0, 1, 2])))
    exchange.ask_each("three partitions, out of order", of_topics(topic("orders", [2, 0, 1])))
    exchange.ask_each("two partitions, limited in all", of_topics(topic("orders", [1, 0]), max_bytes=100))
    exchange.ask_each("the same partition twice", of_topics(topic("orders", [0, 0])))
    exchange.ask_each("the same topic twice", of_topics(topic("orders", [0]), topic("orders", [1])))
    exchange.ask_each(
        "the same topic twice, another between",
        of_topics(topic("orders", [0]), topic("empty", [0]), topic("orders", [1])),
    )
    exchange.ask_each(
        "good and bad together", of_topics(topic("orders", [1, 9]), topic("nope", [0]), topic("empty", [0]))
    )
    exchange.ask_each(
        "good and bad together, and time to wait", of_topics(topic("empty", [0]), topic("nope", [0]), max_wait_ms=50)
    )


def waiting(ask_each: Any) -> None:
    ask_each("time to wait, and enough bytes", max_wait_ms=60_000)
    ask_each("time to wait, out of range", max_wait_ms=60_000, offset=99)
    ask_each("time to wait, a wrong epoch", max_wait_ms=60_000, partition_fields={"current_leader_epoch": 5}, since=9)
    ask_each("50 ms to wait for nothing", max_wait_ms=50, offset=9)
    ask_each("50 ms to wait for more than there is", max_wait_ms=50, min_bytes=1_000_000)
    ask_each("a time to wait of -1", max_wait_ms=-1, offset=9)


def committed(exchange: Exchange, ask_each: Any) -> None:
    exchange.create_topic("committed")
    exchange.ask("a plain record", produce_request("committed", produced(1)), 9)
    for level in (0, 1):
        ask_each(f"isolation level {level}, a plain record", "committed", isolation_level=level)
        ask_each(f"isolation level {level}, out of range", "committed", isolation_level=level, offset=99)
        ask_each(f"isolation level {level}, an unknown partition", "committed", isolation_level=level, partition=9)
        ask_each(f"isolation level {level}, an unknown topic", "nope", isolation_level=level)
        ask_each(
            f"isolation level {level}, a wrong epoch",
            "committed",
            isolation_level=level,
            partition_fields={"current_leader_epoch": 7},
            since=9,
        )
    compressed = produced([record(b"x" * 2000, timestamp=T)], codec=Codec.GZIP)
    exchange.ask("a compressed record", produce_request("committed", compressed), 9)
    ask_each("a compressed record", "committed", offset=1, partition_max_bytes=10)
