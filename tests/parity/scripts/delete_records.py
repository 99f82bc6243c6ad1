"""DeleteRecords."""

from collections.abc import Sequence
from typing import Any

from protocol.messages.delete_records import DeleteRecordsRequest
from protocol.messages.list_offsets import ListOffsetsRequest
from tests.parity.exchange import Exchange
from tests.support.batches import produced
from tests.support.requests import fetch_request, produce_request

Topic = DeleteRecordsRequest.Topic


def before(offset: int, topic: str = "orders", partition: int = 0, timeout_ms: int = 30_000) -> DeleteRecordsRequest:
    return several((topic, [(partition, offset)]), timeout_ms=timeout_ms)


def several(*topics: tuple[str, Sequence[tuple[int, int]]], timeout_ms: int = 30_000) -> DeleteRecordsRequest:
    return DeleteRecordsRequest(
        topics=[
            Topic(
                name=name,
                partitions=[Topic.Partition(partition_index=index, offset=offset) for index, offset in partitions],
            )
            for name, partitions in topics
        ],
        timeout_ms=timeout_ms,
    )


def start_of(topic: str, partition: int = 0) -> Any:
    asked = ListOffsetsRequest.Topic.Partition(partition_index=partition, timestamp=-2)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsRequest.Topic(name=topic, partitions=[asked])])


def run(exchange: Exchange) -> None:
    exchange.create_topic("orders", partitions=3)
    exchange.create_topic("compacted", cleanup_policy="compact")
    exchange.create_topic("compacted-deleted", cleanup_policy="compact,delete")
    exchange.create_topic("neither", cleanup_policy="")
    for topic in ("orders", "compacted", "compacted-deleted", "neither"):
        for number in range(4):
            exchange.ask(f"{topic}: three records, {number}", produce_request(topic, produced(3)), 9)
    exchange.ask_each("offset 0", before(0))
    for version in range(3):
        offset = version * 3 + 1
        exchange.ask("further", before(offset), version)
        exchange.ask("the same again", before(offset), version)
        exchange.ask("the start afterwards", start_of("orders"), 4 + version)
        exchange.ask("what is read there", fetch_request("orders", offset=offset), 4 + version)
        exchange.ask("what is read before", fetch_request("orders", offset=0), 4 + version)
    exchange.ask_each("below the start", before(2))
    for offset in (13, 14, 1000, 0x7FFF_FFFF_FFFF_FFFF, -2, -5, -0x8000_0000_0000_0000):
        exchange.ask_each(f"offset {offset}", before(offset))
    exchange.ask_each("everything, by the high watermark", before(-1))
    exchange.ask_each("everything, by its offset", before(12))
    exchange.ask_each("an empty partition", before(0, partition=1))
    exchange.ask_each("an empty partition, by the high watermark", before(-1, partition=1))
    exchange.ask_each("an empty partition, one further", before(1, partition=1))
    for topic in (
        "compacted",
        "compacted-deleted",
        "neither",
        "nope",
        "",
        ".",
        "no spaces",
        "a" * 250,
        "__cluster_metadata",
    ):
        exchange.ask_each(f"the topic {topic!r:.20}", before(1, topic))
        exchange.ask_each(f"the topic {topic!r:.20}, far beyond its end", before(999, topic))
    for partition in (3, -1, 0x7FFF_FFFF):
        exchange.ask_each(f"partition {partition}", before(0, partition=partition))
    exchange.ask_each("no topics", several())
    exchange.ask_each("a topic without partitions", several(("orders", [])))
    exchange.ask_each("several partitions", several(("orders", [(2, 0), (0, -1), (1, 5)])))
    exchange.ask_each(
        "good and bad together", several(("nope", [(0, 0)]), ("orders", [(0, -1), (9, 0)]), ("compacted", [(0, 0)]))
    )
    exchange.ask_each("the same partition twice", several(("orders", [(0, 12), (0, -1)])))
    exchange.ask_each("the same topic twice", several(("orders", [(0, 12)]), ("orders", [(1, 0)])))
    for timeout in (0, -1):
        exchange.ask_each(f"a timeout of {timeout}", before(-1, timeout_ms=timeout))
