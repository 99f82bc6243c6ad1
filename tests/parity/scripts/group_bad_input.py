"""Bad input to groups: unreadable metadata, absurd names, and far too much data."""

from __future__ import annotations

from protocol.messages.committed_offsets import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest
from protocol.messages.groups import DeleteGroupsRequest, ListGroupsRequest
from tests.parity.exchange import Exchange
from tests.parity.members import Member, a_pair, await_coordinator, await_state, described, subscription

SETTINGS = {"message.max.bytes": "100000"}

Committed = OffsetCommitRequest.Topic

SHORT_PATIENCE_S = 1.0
"""Some of it Kafka never answers."""

UNREADABLE = (
    ("empty", b""),
    ("one byte", b"\0"),
    ("only a version", b"\0\0"),
    ("a negative version", b"\xff\xff" + subscription("orders")[2:]),
    ("a count of -1", b"\0\0\xff\xff\xff\xff"),
    ("a count of -2", b"\0\0\xff\xff\xff\xfe"),
    ("a count of 2147483647", b"\0\0\x7f\xff\xff\xff"),
    ("a count above the rest", b"\0\0\0\0\0\2\0\6orders"),
    ("a name longer than the rest", b"\0\0\0\0\0\1\x7f\xfforders"),
    ("a name of length -1", b"\0\0\0\0\0\1\xff\xff\xff\xff\xff\xff"),
    ("a name that is not UTF-8", b"\0\0\0\0\0\1\0\2\xff\xfe\xff\xff\xff\xff"),
    ("an empty name", subscription("")),
    ("a name twice", subscription("orders", "orders")),
    ("no user data", subscription("orders")[:-4]),
    ("user data longer than the rest", subscription("orders")[:-4] + b"\0\0\0\7abc"),
    ("user data of length -2", subscription("orders")[:-4] + b"\xff\xff\xff\xfe"),
    ("bytes behind it", subscription("orders") + b"more"),
    ("text", b"not a subscription"),
)

ABSURD_IDS = (" ", "a\0b", "a\nb", "a/../b", "\u200b", "😀", "ﬀ", "#" * 60, "__consumer_offsets")


def run(exchange: Exchange) -> None:
    exchange.create_topic("orders", partitions=9)
    await_coordinator(exchange)
    unreadable_metadata(exchange)
    of_another_type(exchange)
    a_protocol_twice(exchange)
    absurd_group_ids(exchange)
    absurd_timeouts(exchange)
    far_too_much(exchange)
    exchange.forget_members()
    a, b = a_pair(exchange, "beside it")
    a.heartbeat("after all of that")
    b.heartbeat("after all of that, the follower")


def unreadable_metadata(exchange: Exchange) -> None:
    """A consumer's subscription is the one thing in a group that the broker reads."""
    for what, metadata in UNREADABLE:
        exchange.forget_members()
        member = Member(exchange, f"metadata: {what}", protocols=[("range", metadata)])
        member.joined(f"metadata: {what}", member.start_entering(), patience_s=SHORT_PATIENCE_S)


def of_another_type(exchange: Exchange) -> None:
    """What is in the metadata of other clients is theirs."""
    for what, metadata in UNREADABLE[:3]:
        exchange.forget_members()
        member = Member(exchange, f"connect: {what}", protocols=[("v2", metadata)])
        member.enter(f"metadata of a worker: {what}", protocol_type="connect")


def a_protocol_twice(exchange: Exchange) -> None:
    """Kafka counts how many members know a protocol, and counts this one too often."""
    for what, names in (("alone", ["range", "range"]), ("beside another", ["range", "range", "sticky"])):
        exchange.forget_members()
        member = Member(exchange, f"twice {what}", protocols=[(name, subscription("orders")) for name in names])
        member.joined(f"a protocol twice, {what}", member.start_entering(), patience_s=SHORT_PATIENCE_S)


def absurd_group_ids(exchange: Exchange) -> None:
    """Kafka takes any text."""
    for number, group_id in enumerate(ABSURD_IDS):
        exchange.forget_members()
        said = f"group {number}"
        member = Member(exchange, group_id)
        member.enter(f"{said}: join")
        member.sync(f"{said}: sync")
        member.heartbeat(f"{said}: heartbeat")
        partition = Committed.Partition(partition_index=0, committed_offset=1)
        commit = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=member.generation,
            member_id=member.id,
            topics=[Committed(name="orders", partitions=[partition])],
        )
        member.ask(f"{said}: commit", commit, 9)
        offsets = OffsetFetchRequest.Group(group_id=group_id, topics=None)
        exchange.ask(f"{said}: fetch", OffsetFetchRequest(groups=[offsets]), 9)
        described(exchange, f"{said}: describe", group_id)
        member.leave(f"{said}: leave")
        await_state(exchange, group_id, "Empty")
    exchange.ask("all groups", ListGroupsRequest(states_filter=["Empty"]), 5)
    for number, group_id in enumerate(ABSURD_IDS):
        exchange.ask(f"group {number}", OffsetDeleteRequest(group_id=group_id, topics=[]), 0)
        exchange.ask(f"group {number}", DeleteGroupsRequest(groups_names=[group_id]), 2)
    exchange.forget_members()
    long_id = "x" * 0x7FFF
    member = Member(exchange, long_id)
    member.enter("a group id of 32767 characters", 3)
    member.sync("a group id of 32767 characters", 3)
    member.leave("a group id of 32767 characters", 3)


def absurd_timeouts(exchange: Exchange) -> None:
    """A rebalance that may take no time at all, or all of it."""
    for timeout in (0, -1, -0x8000_0000, 0x7FFF_FFFF):
        for version in (1, 9):
            exchange.forget_members()
            member = Member(exchange, f"rebalance-{timeout}-v{version}", rebalance_timeout_ms=timeout)
            member.enter(f"a rebalance timeout of {timeout}", version)


def far_too_much(exchange: Exchange) -> None:
    """Records that no batch can hold."""
    exchange.forget_members()
    member = Member(exchange, "much")
    member.enter()
    member.sync("an assignment of 200 KB", assignments={member.id: bytes(200_000)})
    member.heartbeat("an assignment of 200 KB")
    described(exchange, "an assignment of 200 KB", "much")
    member.join("an assignment of 200 KB")
    member.sync("a small assignment after it", assignments={member.id: b"all"})
    exchange.forget_members()
    metadata = subscription("orders", user_data=bytes(200_000))
    member = Member(exchange, "much metadata", protocols=[("range", metadata)])
    member.enter()
    member.sync("metadata of 200 KB")
    member.heartbeat("metadata of 200 KB")
    partitions = [
        Committed.Partition(partition_index=index, committed_offset=1, committed_metadata="€" * 4096)
        for index in range(9)
    ]
    commit = OffsetCommitRequest(group_id="much committed", topics=[Committed(name="orders", partitions=partitions)])
    exchange.ask("9 partitions with 12 KB each", commit, 9)
    described(exchange, "9 partitions with 12 KB each", "much committed")
    commit.topics[0].partitions.pop()
    exchange.ask("8 partitions with 12 KB each", commit, 9)
