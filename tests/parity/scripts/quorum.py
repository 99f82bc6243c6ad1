"""DescribeQuorum."""

from collections.abc import Sequence

from protocol.messages.quorum import DescribeQuorumRequest
from tests.parity.exchange import Exchange

Topic = DescribeQuorumRequest.Topic


def of(*topics: tuple[str, Sequence[int]]) -> DescribeQuorumRequest:
    return DescribeQuorumRequest(
        topics=[
            Topic(topic_name=name, partitions=[Topic.Partition(partition_index=i) for i in indexes])
            for name, indexes in topics
        ]
    )


def run(exchange: Exchange) -> None:
    exchange.create_topic("orders")
    exchange.ask_each("the metadata log", of(("__cluster_metadata", [0])))
    for index in (1, -1):
        exchange.ask_each(f"partition {index}", of(("__cluster_metadata", [index])))
    for name in ("orders", "nope", "", "no spaces"):
        exchange.ask_each(f"the topic {name!r}", of((name, [0])))
    exchange.ask_each("no topics", of())
    exchange.ask_each("a topic without partitions", of(("__cluster_metadata", [])))
    exchange.ask_each("the partition twice", of(("__cluster_metadata", [0, 0])))
    exchange.ask_each("two partitions of which one exists", of(("__cluster_metadata", [0, 1])))
    exchange.ask_each("another topic first", of(("orders", [0]), ("__cluster_metadata", [0])))
    exchange.ask_each("another topic behind", of(("__cluster_metadata", [0]), ("orders", [0])))
    exchange.ask_each("the topic twice", of(("__cluster_metadata", [0]), ("__cluster_metadata", [0])))
