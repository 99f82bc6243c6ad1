"""DescribeGroups, ListGroups and DeleteGroups."""

from __future__ import annotations

from typing import Any

from protocol.messages.committed_offsets import OffsetCommitRequest, OffsetFetchRequest
from protocol.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from tests.parity.exchange import Exchange
from tests.parity.members import Member, a_pair, await_coordinator, await_state, two_members

Topic = OffsetCommitRequest.Topic
SINCE_OPERATIONS = 3
SINCE_STATES = 4
SINCE_TYPES = 5


def run(exchange: Exchange) -> None:
    exchange.create_topic("orders")
    await_coordinator(exchange)
    exchange.ask_each("there are none", ListGroupsRequest())
    in_all_states(exchange)
    described(exchange)
    listed(exchange)
    deleted(exchange)


def commit(exchange: Exchange, group_id: str) -> None:
    partition = Topic.Partition(partition_index=0, committed_offset=1)
    request = OffsetCommitRequest(group_id=group_id, topics=[Topic(name="orders", partitions=[partition])])
    exchange.ask(None, request, 9)


def in_all_states(exchange: Exchange) -> None:
    """One group of each kind that the rest asks for."""
    commit(exchange, "simple")
    commit(exchange, "")
    a_pair(exchange, "stable")
    two_members(exchange, "completing")
    a, b = a_pair(exchange, "preparing")
    exchange.send(a.joining(), 9, client_id="a", over=a.connection)
    b.await_rebalance()
    empty = Member(exchange, "empty").lead()
    commit(exchange, "empty")
    empty.leave()
    await_state(exchange, "empty", "Empty")
    Member(exchange, "pending").join()
    await_state(exchange, "pending", "Empty")
    Member(exchange, "static", instance_id="one").lead()
    connect = Member(exchange, "connect", protocols=[("v2", b"any bytes")])
    connect.enter(protocol_type="connect")
    connect.sync(protocol_type="connect", assignments={connect.id: b"tasks"})
    nameless = Member(exchange, "nameless", None)
    nameless.lead()


def described(exchange: Exchange) -> None:
    """By their names."""

    def of(*group_ids: str, **fields: Any) -> DescribeGroupsRequest:
        return DescribeGroupsRequest(groups=[*group_ids], **fields)

    for group_id in (
        "simple",
        "stable",
        "completing",
        "preparing",
        "empty",
        "pending",
        "static",
        "connect",
        "nameless",
    ):
        exchange.ask_each(f"the group {group_id}", of(group_id))
    exchange.ask_each("an unknown group", of("nope"))
    exchange.ask_each("the empty group id", of(""))
    exchange.ask_each("several groups", of("empty", "nope", "simple"))
    exchange.ask_each("the same group twice", of("empty", "empty"))
    exchange.ask_each("no groups", of())
    with_operations = of("empty", "nope", include_authorized_operations=True)
    exchange.ask_each("with what one may do with them", with_operations, since=SINCE_OPERATIONS)


def listed(exchange: Exchange) -> None:
    """By their states and types."""

    def of(*states: str, types: tuple[str, ...] = ()) -> ListGroupsRequest:
        return ListGroupsRequest(states_filter=[*states], types_filter=[*types])

    exchange.ask_each("all", of())
    for state in ("Empty", "Stable", "PreparingRebalance", "CompletingRebalance", "Dead", "Assigning", "Reconciling"):
        exchange.ask_each(f"the state {state}", of(state), since=SINCE_STATES)
    for state in ("empty", "STABLE", "preparingrebalance", "Preparing Rebalance", " Empty ", "", "nope", "Unknown"):
        exchange.ask_each(f"the state {state!r}", of(state), since=SINCE_STATES)
    exchange.ask_each("two states", of("Empty", "Stable"), since=SINCE_STATES)
    exchange.ask_each("a known and an unknown state", of("nope", "Stable"), since=SINCE_STATES)
    exchange.ask_each("the same state twice", of("Stable", "Stable"), since=SINCE_STATES)
    for group_type in ("classic", "consumer", "share", "streams", "CLASSIC", " classic ", "Unknown", "nope", ""):
        exchange.ask(f"the type {group_type!r}", of(types=(group_type,)), SINCE_TYPES)
    exchange.ask("two types", of(types=("consumer", "classic")), SINCE_TYPES)
    exchange.ask("a known and an unknown type", of(types=("nope", "classic")), SINCE_TYPES)
    exchange.ask("a state and a type", of("Stable", types=("classic",)), SINCE_TYPES)
    exchange.ask("a state and another type", of("Stable", types=("consumer",)), SINCE_TYPES)


def deleted(exchange: Exchange) -> None:
    """Without members only."""

    def of(*group_ids: str) -> DeleteGroupsRequest:
        return DeleteGroupsRequest(groups_names=[*group_ids])

    exchange.ask_each("an unknown group", of("nope"))
    exchange.ask_each("no groups", of())
    for group_id in ("stable", "completing", "preparing", "static", "connect"):
        exchange.ask_each(f"the group {group_id}", of(group_id))
    for version in range(3):
        for name in ("simple", "again"):
            commit(exchange, f"{name}-v{version}")
        exchange.ask("a simple group", of(f"simple-v{version}"), version)
        exchange.ask("a simple group that is deleted", of(f"simple-v{version}"), version)
        member = Member(exchange, f"emptied-v{version}").lead()
        commit(exchange, member.group_id)
        member.leave()
        await_state(exchange, member.group_id, "Empty")
        exchange.ask("a group that its members left", of(member.group_id), version)
        exchange.ask("good and bad", of("nope", f"again-v{version}", "stable"), version)
    exchange.ask("a group twice", of("simple", "simple"), 2)
    exchange.ask("a group of which only an id was given out", of("pending"), 2)
    exchange.ask("a group that its members left long ago", of("empty"), 2)
    exchange.ask("the empty group id", of(""), 2)
    exchange.ask("the empty group id, which is deleted", of(""), 2)
    exchange.ask("what is left", ListGroupsRequest(), 5)
    gone = OffsetFetchRequest.Group(group_id="empty", topics=None)
    exchange.ask("offsets of a group that is deleted", OffsetFetchRequest(groups=[gone]), 9)
    exchange.ask("a group that is deleted", DescribeGroupsRequest(groups=["empty"]), 6)
    again = Member(exchange, "empty", "again")
    again.enter("a member of a group that was deleted")
