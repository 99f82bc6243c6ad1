"""OffsetDelete: offsets that a group need not keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from protocol.messages.committed_offsets import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest
from tests.parity.exchange import Exchange
from tests.parity.members import Member, await_coordinator, await_state, described, subscription, two_members

Topic = OffsetDeleteRequest.Topic
Committed = OffsetCommitRequest.Topic


def deletion(group_id: str, *topics: tuple[str, Sequence[int]]) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            Topic(name=name, partitions=[Topic.Partition(partition_index=index) for index in indexes])
            for name, indexes in topics
        ],
    )


def commit(
    exchange: Exchange, group_id: str, topics: Mapping[str, Sequence[int]], member: Member | None = None
) -> None:
    """Commit offset 1 of these partitions."""
    request = OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=member.generation if member else -1,
        member_id=member.id if member else "",
        topics=[
            Committed(
                name=name,
                partitions=[Committed.Partition(partition_index=index, committed_offset=1) for index in indexes],
            )
            for name, indexes in topics.items()
        ],
    )
    exchange.ask(None, request, 9)


def left(exchange: Exchange, step: str, group_id: str) -> None:
    """What the group still has."""
    exchange.ask(step, OffsetFetchRequest(groups=[OffsetFetchRequest.Group(group_id=group_id, topics=None)]), 9)


def run(exchange: Exchange) -> None:
    exchange.create_topic("orders", partitions=3)
    exchange.create_topic("payments")
    await_coordinator(exchange)
    everything = {"orders": [0, 1, 2], "payments": [0]}
    commit(exchange, "simple", everything)
    exchange.ask("an empty group id", deletion("", ("orders", [0])), 0)
    exchange.ask("an unknown group", deletion("nope", ("orders", [0])), 0)
    exchange.ask("an unknown group, and nothing of it", deletion("nope"), 0)
    exchange.ask("nothing", deletion("simple"), 0)
    exchange.ask("a topic without partitions", deletion("simple", ("orders", [])), 0)
    exchange.ask("a partition", deletion("simple", ("orders", [0])), 0)
    exchange.ask("the same partition again", deletion("simple", ("orders", [0])), 0)
    left(exchange, "one partition is deleted", "simple")
    exchange.ask("a partition twice", deletion("simple", ("orders", [1, 1])), 0)
    exchange.ask("partitions that do not exist", deletion("simple", ("orders", [99, -1])), 0)
    exchange.ask("a topic that does not exist", deletion("simple", ("nope", [0]), ("orders", [0])), 0)
    exchange.ask("the topic ''", deletion("simple", ("", [0])), 0)
    exchange.ask("good and bad", deletion("simple", ("nope", [0, 1]), ("orders", [2, 3]), ("payments", [0])), 0)
    left(exchange, "nothing is left", "simple")
    described(exchange, "a simple group of which nothing is left", "simple")
    commit(exchange, "twice", everything)
    exchange.ask("a topic twice", deletion("twice", ("orders", [0]), ("orders", [1])), 0)
    left(exchange, "a topic was named twice", "twice")
    with_members(exchange)
    of_another_type(exchange)


def with_members(exchange: Exchange) -> None:
    """Offsets of topics to which members are subscribed stay."""
    group_id = "consumers"
    commit(exchange, group_id, {"payments": [0]})
    a, b = two_members(exchange, group_id)
    exchange.ask("before the members synced", deletion(group_id, ("orders", [0]), ("payments", [0])), 0)
    a.sync()
    b.sync()
    commit(exchange, group_id, {"orders": [0, 1], "payments": [0]}, a)
    exchange.ask("a topic to which members are subscribed", deletion(group_id, ("orders", [0])), 0)
    exchange.ask(
        "several topics, with one to which they are subscribed",
        deletion(group_id, ("orders", [0, 99]), ("payments", [0]), ("nope", [0])),
        0,
    )
    left(exchange, "members are subscribed to it", group_id)
    a_joins = a.start_joining()
    b.await_rebalance()
    exchange.ask("in a rebalance", deletion(group_id, ("orders", [0]), ("payments", [0])), 0)
    b.join()
    a.joined(None, a_joins)
    a.leave()
    b.leave()
    await_state(exchange, group_id, "Empty")
    exchange.ask("the members have left", deletion(group_id, ("orders", [0, 1, 2])), 0)
    left(exchange, "the members have left", group_id)


def of_another_type(exchange: Exchange) -> None:
    """Groups of other clients, of which nobody knows what they read."""
    for protocol_type in ("connect", "Consumer", " "):
        group_id = f"type-{protocol_type}"
        member = Member(exchange, group_id, protocols=[("range", subscription("orders"))])
        member.enter(None, 9, protocol_type=protocol_type)
        member.sync(protocol_type=protocol_type)
        commit(exchange, group_id, {"orders": [0], "payments": [0]}, member)
        request = deletion(group_id, ("orders", [0]), ("payments", [0]))
        exchange.ask(f"of a group of the type {protocol_type!r}", request, 0)
        left(exchange, f"of the type {protocol_type!r}", group_id)
        member.leave()
        await_state(exchange, group_id, "Empty")
        exchange.ask(f"of an empty group of the type {protocol_type!r}", request, 0)
