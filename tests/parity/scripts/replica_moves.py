"""AlterReplicaLogDirs on a broker with three log directories, and what DescribeLogDirs tells of it."""

from __future__ import annotations

from typing import Any

from protocol.messages.log_dirs import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from tests.parity.exchange import Exchange
from tests.support.batches import produced
from tests.support.requests import fetch_request, produce_request

MORE_LOG_DIRS = ("second", "third")

Dir = AlterReplicaLogDirsRequest.Dir
EVERYTHING = DescribeLogDirsRequest(topics=None)


def run(exchange: Exchange) -> None:
    exchange.create_topic("orders")
    exchange.ask("five records", produce_request("orders", produced(5)), 9)
    here = place(exchange.ask("at first", EVERYTHING, 4), "orders")
    there = next(path for path in paths(exchange) if path != here)
    exchange.ask_each("to where it is", to(here, ("orders", [0])))
    for path in ("/nowhere", "", "second", f"{here}/"):
        exchange.ask_each(f"to {path.replace(here, '<here>')!r}", to(path, ("orders", [0]), ("nope", [0])))
    exchange.ask_each("what does not exist", to(there, ("nope", [0]), ("orders", [1, -1])))
    exchange.ask_each("nothing", AlterReplicaLogDirsRequest(dirs=[]))
    exchange.ask_each("no topics", to(there))
    exchange.ask_each("no partitions", to(there, ("orders", [])))
    exchange.ask("to another directory", to(there, ("orders", [0])), 2)
    exchange.wait_until(EVERYTHING, 4, lambda answer: place(answer, "orders") == there and not has_copies(answer))
    exchange.ask("what is read behind the move", fetch_request("orders"), 12)
    exchange.ask("a record behind the move", produce_request("orders", produced(1)), 9)
    exchange.ask("and back", to(here, ("orders", [0])), 1)
    exchange.wait_until(EVERYTHING, 4, lambda answer: place(answer, "orders") == here and not has_copies(answer))
    exchange.ask("what is read behind both moves", fetch_request("orders"), 12)


def paths(exchange: Exchange) -> list[str]:
    """The log directories of the broker."""
    data = exchange.broker.data_directory
    return [str(data.parent / name) for name in (data.name, *MORE_LOG_DIRS)]


def to(path: str, *topics: tuple[str, list[int]]) -> AlterReplicaLogDirsRequest:
    """A request that moves partitions of topics to one directory."""
    wanted = [Dir.Topic(name=name, partitions=partitions) for name, partitions in topics]
    return AlterReplicaLogDirsRequest(dirs=[Dir(path=path, topics=wanted)])


def place(answer: Any, name: str) -> str | None:
    """The directory with the topic's log."""
    for result in answer.results:
        for topic in result.topics:
            if topic.name == name and any(not one.is_future_key for one in topic.partitions):
                return str(result.log_dir)
    return None


def has_copies(answer: Any) -> bool:
    return any(one.is_future_key for result in answer.results for topic in result.topics for one in topic.partitions)
