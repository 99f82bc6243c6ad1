"""Settings that bound a group: its size, its members' timeouts, and the metadata of a commit."""

from __future__ import annotations

from protocol.messages.committed_offsets import OffsetCommitRequest
from tests.parity.exchange import Exchange
from tests.parity.members import (
    JOIN_VERSIONS,
    KNOWS_INSTANCES,
    Member,
    a_pair,
    await_coordinator,
    await_state,
    described,
    two_members,
)

SETTINGS = {
    "group.max.size": "2",
    "group.min.session.timeout.ms": "1000",
    "group.max.session.timeout.ms": "20000",
    "offset.metadata.max.bytes": "10",
}
SESSION = {"session_timeout_ms": 20_000}


def run(exchange: Exchange) -> None:
    exchange.create_topic("orders")
    await_coordinator(exchange)
    for version in JOIN_VERSIONS:
        exchange.forget_members()
        one_too_many(exchange, version)
    exchange.forget_members()
    more_ids_than_places(exchange)
    exchange.forget_members()
    before_all_have_synced(exchange)
    timeouts(exchange)
    metadata(exchange)


def one_too_many(exchange: Exchange, version: int) -> None:
    """A third member of a group of two."""
    group_id = f"full-v{version}"
    a, b = a_pair(exchange, group_id, **SESSION)
    c = Member(exchange, group_id, "c", **SESSION)
    c.enter("a third member", version)
    if version >= KNOWS_INSTANCES:
        static = Member(exchange, group_id, "d", instance_id="i", **SESSION)
        static.join("a third member, which is static", version)
    a.heartbeat("a third member was refused" if version == JOIN_VERSIONS[-1] else None)
    b.join("who was there before", version)


def more_ids_than_places(exchange: Exchange) -> None:
    """Ids are handed out to four; in a rebalance, places are those of who has joined it."""
    times = {"session_timeout_ms": 20_000, "rebalance_timeout_ms": 2000}
    a, b, c, d = (Member(exchange, "ids", client_id, **times) for client_id in "abcd")
    for member in (a, b, c, d):
        member.join(f"an id for {member.client_id}")
    a.join("the first with its id")
    a.sync()
    b_joins = b.start_joining()
    await_state(exchange, "ids", "PreparingRebalance", members=2)
    c_joins = c.start_joining()
    await_state(exchange, "ids", "PreparingRebalance", members=3)
    d.join("the fourth with its id, when two have joined the rebalance")
    a.join("the first, when two have joined the rebalance")
    a.heartbeat("the first, when two have joined the rebalance")
    b.joined(None, b_joins)
    c.joined(None, c_joins)
    await_state(exchange, "ids", "CompletingRebalance", members=2)
    described(exchange, "the second and the third have the places", "ids")


def before_all_have_synced(exchange: Exchange) -> None:
    """A third member comes while the assignments are made."""
    a, b = two_members(exchange, "unsynced", **SESSION)
    c = Member(exchange, "unsynced", "c", **SESSION)
    c.enter("a third member, before the others synced")
    a.join("the first again, before it synced")
    b.leave()
    c.id = ""
    c_joins = c.start_entering()
    a.join("the first, when there was room for the third")
    c.joined("there is room for the third", c_joins)
    described(exchange, "there was room for the third", "unsynced")


def timeouts(exchange: Exchange) -> None:
    """Sessions at the bounds and beyond them."""
    for timeout in (999, 1000, 20_000, 20_001):
        for version in (0, 9):
            exchange.forget_members()
            member = Member(exchange, f"session-{timeout}-v{version}", session_timeout_ms=timeout)
            member.join(f"a session timeout of {timeout}", version)


def metadata(exchange: Exchange) -> None:
    """What is committed along with an offset."""
    Topic = OffsetCommitRequest.Topic
    for text in ("ten char's", "eleven char", "zehn große", "elf größere", "x" * 5000):
        partition = Topic.Partition(partition_index=0, committed_offset=1, committed_metadata=text)
        topic = Topic(name="orders", topic_id=exchange.topic_ids["orders"], partitions=[partition])
        request = OffsetCommitRequest(group_id="metadata", topics=[topic])
        exchange.ask_each(f"metadata of {len(text)} characters, {len(text.encode())} bytes", request)
