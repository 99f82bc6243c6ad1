"""ListPartitionReassignments, of which one node never has any."""

from collections.abc import Sequence

from protocol.messages.reassignments import ListPartitionReassignmentsRequest
from tests.parity.exchange import Exchange

Topic = ListPartitionReassignmentsRequest.Topic


def of(*topics: tuple[str, Sequence[int]], timeout_ms: int = 30_000) -> ListPartitionReassignmentsRequest:
    return ListPartitionReassignmentsRequest(
        topics=[Topic(name=name, partition_indexes=[*indexes]) for name, indexes in topics], timeout_ms=timeout_ms
    )


def run(exchange: Exchange) -> None:
    exchange.create_topic("orders")
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
