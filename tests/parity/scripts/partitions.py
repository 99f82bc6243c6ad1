"""CreatePartitions, and DescribeTopicPartitions, which shows what there is."""

from collections.abc import Sequence

from protocol.messages.topic_partitions import Cursor, DescribeTopicPartitionsRequest
from protocol.messages.topics import CreatePartitionsRequest
from tests.parity.exchange import Exchange

Topic = CreatePartitionsRequest.Topic
Assignment = Topic.Assignment


def to(name: str, count: int, assigned: Sequence[Sequence[int]] | None = None) -> Topic:
    assignments = None if assigned is None else [Assignment(broker_ids=[*brokers]) for brokers in assigned]
    return Topic(name=name, count=count, assignments=assignments)


def create(*topics: Topic, timeout_ms: int = 30_000, validate_only: bool = False) -> CreatePartitionsRequest:
    return CreatePartitionsRequest(topics=[*topics], timeout_ms=timeout_ms, validate_only=validate_only)


def describe(*names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.Topic(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )


def run(exchange: Exchange) -> None:
    creations(exchange)
    descriptions(exchange)


def creations(exchange: Exchange) -> None:
    exchange.create_topic("orders", partitions=2)
    for version in range(4):
        name = f"grows-in-v{version}"
        exchange.create_topic(name)
        exchange.ask("to three partitions", create(to(name, 3)), version)
        exchange.ask("to five, by hand", create(to(name, 5, [[1], [1]])), version)
        exchange.wait_for_topic(name, 5)
    exchange.ask_each("only validated", create(to("orders", 4), validate_only=True))
    for count in (2, 1, 0, -1, -0x8000_0000):
        exchange.ask_each(f"from 2 to {count}", create(to("orders", count)))
    for count in (10_003, 1_000_000, 0x7FFF_FFFF):
        exchange.ask_each(f"from 2 to {count}", create(to("orders", count), validate_only=True))
    for what, assigned in (
        ("none", []),
        ("too few", [[1]]),
        ("too many", [[1], [1], [1]]),
        ("no brokers", [[1], []]),
        ("an unknown broker", [[1], [2]]),
        ("two brokers of which one is unknown", [[1], [1, 2]]),
        ("the same broker twice", [[1], [1, 1]]),
        ("broker -1", [[1], [-1]]),
    ):
        exchange.ask_each(f"assignments: {what}", create(to("orders", 4, assigned)))
        exchange.ask_each(f"assignments: {what}, only validated", create(to("orders", 4, assigned), validate_only=True))
    exchange.ask_each("as many as there are, with assignments", create(to("orders", 2, [])))
    for name in ("nope", "", ".", "no spaces", "a" * 250, "__cluster_metadata"):
        exchange.ask_each(f"the topic {name!r:.20}", create(to(name, 5)))
    exchange.ask_each("the same topic twice", create(to("orders", 4), to("orders", 5)))
    exchange.ask_each("an unknown topic twice", create(to("nope", 4), to("nope", 5)))
    exchange.ask_each("no topics", create())
    exchange.ask_each(
        "good and bad together", lambda version: create(to("nope", 5), to(f"grows-in-v{version}", 6), to("orders", 1))
    )
    for timeout in (0, -1):
        exchange.ask_each(f"a timeout of {timeout}", create(to("orders", 3), timeout_ms=timeout), versions=(0, 3))
        exchange.ask_each(
            f"a timeout of {timeout}, an unknown topic", create(to("nope", 3), timeout_ms=timeout), versions=(0, 3)
        )
    exchange.ask("the partitions are still two", describe("orders"), 0)


def descriptions(exchange: Exchange) -> None:
    exchange.wait_for_topic("grows-in-v3", 6)
    exchange.create_topic("zebra", partitions=3)
    ask = exchange.ask
    ask("all topics", describe(), 0)
    ask("one topic", describe("zebra"), 0)
    ask("two topics, out of order", describe("zebra", "orders"), 0)
    ask("the same topic twice", describe("zebra", "zebra"), 0)
    ask("an unknown topic", describe("nope"), 0)
    ask("an unknown topic between others", describe("zebra", "nope", "orders"), 0)
    for name in ("", ".", "no spaces", "a" * 250, "__cluster_metadata"):
        ask(f"the topic {name!r:.20}", describe(name), 0)
    for limit in (0, -1, 1, 2, 3, 4, 5, 0x7FFF_FFFF, -0x8000_0000):
        ask(f"at most {limit} partitions", describe("orders", "zebra", limit=limit), 0)
        ask(f"at most {limit} partitions, of all topics", describe(limit=limit), 0)
    ask("at most 2 partitions, an unknown topic first", describe("nope", "orders", "zebra", limit=2), 0)
    ask("at most 2 partitions, an unknown topic last", describe("orders", "zzz", limit=2), 0)
    for name, index in (
        ("zebra", 0),
        ("zebra", 1),
        ("zebra", 3),
        ("zebra", 99),
        ("zebra", -1),
        ("orders", 1),
        ("nope", 0),
        ("a", 0),
        ("zzz", 0),
        ("", 0),
    ):
        ask(f"from {name!r} {index}", describe("orders", "zebra", cursor=(name, index)), 0)
        ask(f"from {name!r} {index}, of all topics", describe(cursor=(name, index)), 0)
        ask(f"from {name!r} {index}, at most 2", describe("orders", "zebra", cursor=(name, index), limit=2), 0)
