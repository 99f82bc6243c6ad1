"""OffsetForLeaderEpoch."""

from typing import Any

from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from tests.parity.exchange import Exchange
from tests.support.batches import produced
from tests.support.requests import produce_request

Topic = OffsetForLeaderEpochRequest.Topic
Partition = Topic.Partition


def epoch(*epochs: int, topic: str = "orders", partition: int = 0, current: int = -1, **fields: Any) -> Any:
    asked = [Partition(partition=partition, current_leader_epoch=current, leader_epoch=number) for number in epochs]
    return OffsetForLeaderEpochRequest(**{"replica_id": -1, **fields}, topics=[Topic(topic=topic, partitions=asked)])


def run(exchange: Exchange) -> None:
    exchange.create_topic("orders", partitions=2)
    exchange.ask("five records", produce_request("orders", produced(5)), 9)
    for number in (0, 1, 2, -1, -2, 0x7FFF_FFFF, -0x8000_0000):
        exchange.ask_each(f"epoch {number}", epoch(number))
        exchange.ask_each(f"epoch {number} of an empty partition", epoch(number, partition=1))
    for current in (0, 1, 5, -2, 0x7FFF_FFFF):
        exchange.ask_each(f"current epoch {current}", epoch(0, current=current))
        exchange.ask_each(f"current epoch {current}, an unknown one wanted", epoch(7, current=current))
        exchange.ask_each(f"current epoch {current}, an unknown partition", epoch(0, current=current, partition=9))
    for replica in (-2, -1, -3, 0, 1, 2, 0x7FFF_FFFF):
        exchange.ask_each(f"replica {replica}", epoch(0, replica_id=replica))
    for name in ("nope", "", ".", "no spaces", "a" * 250, "__cluster_metadata"):
        exchange.ask_each(f"the topic {name!r:.20}", epoch(0, topic=name))
    for partition in (2, -1, 0x7FFF_FFFF):
        exchange.ask_each(f"partition {partition}", epoch(0, partition=partition))
    exchange.ask_each("no topics", OffsetForLeaderEpochRequest(topics=[]))
    exchange.ask_each("a topic without partitions", epoch())
    exchange.ask_each("the same partition twice", epoch(0, 1))
    several = [
        Topic(
            topic=name,
            partitions=[Partition(partition=index, current_leader_epoch=-1, leader_epoch=0) for index in indexes],
        )
        for name, indexes in (("nope", [0]), ("orders", [1, 9, 0]))
    ]
    exchange.ask_each("good and bad together", OffsetForLeaderEpochRequest(topics=several))
    twice = [Topic(topic="orders", partitions=[Partition(partition=index, leader_epoch=0)]) for index in (0, 1)]
    exchange.ask_each("the same topic twice", OffsetForLeaderEpochRequest(topics=twice))
