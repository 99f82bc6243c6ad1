"""AlterPartitionReassignments and ListPartitionReassignments: one node has nowhere to move to."""

from collections.abc import Sequence

from protocol.messages.reassignments import AlterPartitionReassignmentsRequest, ListPartitionReassignmentsRequest
from tests.parity.exchange import Exchange

Topic = ListPartitionReassignmentsRequest.Topic
MovedTopic = AlterPartitionReassignmentsRequest.Topic


def of(*topics: tuple[str, Sequence[int]], timeout_ms: int = 30_000) -> ListPartitionReassignmentsRequest:
    return ListPartitionReassignmentsRequest(
        topics=[Topic(name=name, partition_indexes=[*indexes]) for name, indexes in topics], timeout_ms=timeout_ms
    )


def moved(
    *partitions: tuple[int, list[int] | None], topic: str = "orders", timeout_ms: int = 30_000, may_change: bool = True
) -> AlterPartitionReassignmentsRequest:
    asked = [MovedTopic.Partition(partition_index=index, replicas=replicas) for index, replicas in partitions]
    return AlterPartitionReassignmentsRequest(
        timeout_ms=timeout_ms,
        allow_replication_factor_change=may_change,
        topics=[MovedTopic(name=topic, partitions=asked)],
    )


def run(exchange: Exchange) -> None:
    exchange.create_topic("orders")
    move(exchange)
    exchange.ask("all", ListPartitionReassignmentsRequest(topics=None), 0)
    exchange.ask("of no topics", of(), 0)
    exchange.ask("of a partition", of(("orders", [0])), 0)
    exchange.ask("of an unknown partition", of(("orders", [0, 9, -1])), 0)
    exchange.ask("of a topic without partitions", of(("orders", [])), 0)
    exchange.ask("of the same topic twice", of(("orders", [0]), ("orders", [0])), 0)
    for name in ("nope", "", "no spaces", "__cluster_metadata"):
        exchange.ask(f"of the topic {name!r}", of((name, [0])), 0)
    for timeout in (0, -1):
        exchange.ask(f"a timeout of {timeout}", of(("orders", [0]), timeout_ms=timeout), 0)


def move(exchange: Exchange) -> None:
    exchange.ask_each("to where it is", moved((0, [1])))
    exchange.ask_each("called off, and nothing moves", moved((0, None)))
    for replicas in ([2], [1, 1], [], [-1], [1, 2], [0x7FFF_FFFF]):
        exchange.ask_each(f"to {replicas}", moved((0, replicas)))
        exchange.ask(f"to {replicas}, their number fixed", moved((0, replicas), may_change=False), 1)
    exchange.ask_each("unknown partitions among others", moved((9, [1]), (0, [1]), (-1, None)))
    for name in ("nope", "", "no spaces", "__cluster_metadata"):
        exchange.ask(f"a partition of the topic {name!r}", moved((0, [1]), (1, None), topic=name), 1)
    exchange.ask("no partition of a topic", moved(), 1)
    exchange.ask("the same partition twice", moved((0, [1]), (0, [1])), 1)
    exchange.ask("no topics", AlterPartitionReassignmentsRequest(topics=[]), 1)
    for timeout in (0, -1):
        exchange.ask_each(f"to where it is, a timeout of {timeout}", moved((0, [1]), timeout_ms=timeout))
