"""DescribeLogDirs."""

from collections.abc import Sequence

from protocol.messages.log_dirs import DescribeLogDirsRequest
from tests.parity.exchange import Exchange
from tests.support.batches import produced
from tests.support.requests import produce_request

Topic = DescribeLogDirsRequest.Topic


def of(*topics: tuple[str, Sequence[int]]) -> DescribeLogDirsRequest:
    return DescribeLogDirsRequest(topics=[Topic(topic=name, partitions=[*indexes]) for name, indexes in topics])


def run(exchange: Exchange) -> None:
    exchange.ask_each("where there are no topics", DescribeLogDirsRequest(topics=None))
    exchange.create_topic("orders", partitions=2)
    exchange.create_topic("empty")
    exchange.ask("five records", produce_request("orders", produced(5)), 9)
    exchange.ask_each("all topics", DescribeLogDirsRequest(topics=None))
    exchange.ask_each("no topics", of())
    exchange.ask_each("one partition", of(("orders", [0])))
    exchange.ask_each("two partitions of two", of(("orders", [1, 0])))
    exchange.ask_each("two topics", of(("orders", [0]), ("empty", [0])))
    exchange.ask_each("a topic without partitions", of(("orders", [])))
    for name in ("nope", "", "no spaces", "__cluster_metadata"):
        exchange.ask_each(f"the topic {name!r}", of((name, [0])))
    for index in (2, -1):
        exchange.ask_each(f"partition {index}", of(("orders", [index])))
    exchange.ask_each("good and bad together", of(("nope", [0]), ("orders", [0, 9])))
    exchange.ask_each("the same partition twice", of(("orders", [0, 0])))
    exchange.ask_each("the same topic twice", of(("orders", [0]), ("orders", [1])))
