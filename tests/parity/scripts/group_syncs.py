"""SyncGroup: the leader sends the assignment, and each member gets its part."""

from __future__ import annotations

from typing import Any

from protocol.messages.group_membership import SyncGroupRequest
from tests.parity.exchange import Exchange
from tests.parity.members import Member, a_pair, await_coordinator, described, two_members

VERSIONS = range(6)
SINCE_PROTOCOLS = 5


def run(exchange: Exchange) -> None:
    await_coordinator(exchange)
    refusals(exchange)
    for version in VERSIONS:
        exchange.forget_members()
        generation(exchange, version)
    for version in VERSIONS:
        exchange.forget_members()
        interrupted(exchange, version)
    assignments(exchange)
    names_of_protocols(exchange)


def generation(exchange: Exchange, version: int) -> None:
    """Two members from their joins to a stable group."""

    def seen(step: str) -> str | None:  # what other APIs show of it is noted once
        return step if version == VERSIONS[-1] else None

    group_id = f"generation-v{version}"
    a, b = two_members(exchange, group_id)
    b.sync("a follower of the generation before", version, generation_id=b.generation - 1)
    b.sync("a follower of the generation to come", version, generation_id=b.generation + 1)
    b.sync("a stranger", version, member_id="a-stranger")
    b.sync("nobody", version, member_id="")
    b_syncs = b.start_syncing(version)
    described(exchange, seen("a follower waits"), group_id)
    a.sync("the leader", version, assignments={a.id: b"first half", b.id: b"second half"})
    b.synced("the follower that waited", b_syncs)
    described(exchange, seen("all have synced"), group_id)
    a.sync("the leader again", version)
    a.sync("the leader again, with other assignments", version, assignments={a.id: b"none", b.id: b"all"})
    b.sync("the follower again", version)
    b.sync("the follower again, with assignments", version, assignments={b.id: b"all"})
    b.sync("a generation too early, when all is stable", version, generation_id=b.generation - 1)
    b.sync("generation -1, when all is stable", version, generation_id=-1)
    a_joins = a.start_joining()
    b.await_rebalance()
    b.sync("a rebalance began", version)
    b.sync("a rebalance began, and the generation is wrong", version, generation_id=7)
    b.join()
    a.joined(None, a_joins)
    a.sync("the leader comes first", version, assignments={b.id: b"all of it"})
    b.sync("the follower comes after it", version)
    b.leave()
    b.sync("who has left", version)
    a.leave()
    a.sync("the group is empty", version)


def interrupted(exchange: Exchange, version: int) -> None:
    """A third member comes, and later the leader goes, while a follower waits for the leader's assignments."""
    a, b = two_members(exchange, f"interrupted-v{version}")
    b_syncs = b.start_syncing(version)
    c = Member(exchange, a.group_id, "c")
    c_joins = c.start_entering()
    a.await_rebalance()
    b.synced("another member joins while it waits", b_syncs)
    a_joins = a.start_joining()
    b.join()
    a.joined(None, a_joins)
    c.joined(None, c_joins)
    b_syncs = b.start_syncing(version)
    a.leave()
    b.synced("the leader leaves while it waits", b_syncs)


def assignments(exchange: Exchange) -> None:
    """What a leader may say."""

    def say(what: str, *assigned: tuple[str, bytes]) -> None:
        exchange.forget_members()
        a, b = two_members(exchange, what)
        ids = {"a": a.id, "b": b.id}
        request = a.syncing()
        request.assignments = [
            SyncGroupRequest.Assignment(member_id=ids.get(name, name), assignment=data) for name, data in assigned
        ]
        a.ask(f"{what}: the leader", request, 5)
        b.sync(f"{what}: the follower")
        described(exchange, f"{what}: at last", what)

    say("for nobody")
    say("only for the leader", ("a", b"all"))
    say("only for the follower", ("b", b"all"))
    say("for a stranger too", ("a", b"1"), ("b", b"2"), ("c", b"3"))
    say("for a member twice", ("a", b"1"), ("b", b"2"), ("b", b"3"))
    say("empty ones", ("a", b""), ("b", b""))


def names_of_protocols(exchange: Exchange) -> None:
    """What version 5 says of the protocol is compared with what was chosen, before anything else."""
    wrong: tuple[tuple[str, dict[str, Any]], ...] = (
        ("no type", {"protocol_type": None}),
        ("no name", {"protocol_name": None}),
        ("neither", {"protocol_type": None, "protocol_name": None}),
        ("another type", {"protocol_type": "connect"}),
        ("another name", {"protocol_name": "sticky"}),
        ("an empty type", {"protocol_type": ""}),
        ("an empty name", {"protocol_name": ""}),
    )
    exchange.forget_members()
    a, b = two_members(exchange, "protocols")
    for what, fields in wrong:
        a.sync(f"{what}, before the group is stable", SINCE_PROTOCOLS, **fields)
        a.sync(f"{what}, of a generation gone by", SINCE_PROTOCOLS, generation_id=0, **fields)
        a.sync(f"{what}, of a stranger", SINCE_PROTOCOLS, member_id="c", **fields)
        a.sync(f"{what}, in an unknown group", SINCE_PROTOCOLS, group_id="nope", **fields)
        a.sync(f"{what}, in no group", SINCE_PROTOCOLS, group_id="", **fields)
    a.sync()
    b.sync()
    for what, fields in wrong:
        b.sync(f"{what}, in a stable group", SINCE_PROTOCOLS, **fields)


def refusals(exchange: Exchange) -> None:
    """Where there is no such member, or no such group."""

    def syncing(group_id: str, **fields: Any) -> SyncGroupRequest:
        return Member(exchange, group_id).syncing(**{"member_id": "a-stranger", "generation_id": 1, **fields})

    exchange.ask_each("an empty group id", syncing(""))
    exchange.ask_each("an unknown group", syncing("nope"))
    exchange.ask_each("an unknown group, as nobody", syncing("nope", member_id="", generation_id=-1))
    exchange.ask_each("an unknown group, as an instance", syncing("nope", group_instance_id="i"), since=3)
    stable, _ = a_pair(exchange, "with-members")
    for generation_id in (-1, 0, 0x7FFF_FFFF, -0x8000_0000):
        request = stable.syncing(generation_id=generation_id)
        exchange.ask_each(f"generation {generation_id}", request)
    exchange.ask_each("an unknown instance", stable.syncing(group_instance_id="i"), since=3)
    exchange.ask_each("an empty instance", stable.syncing(group_instance_id=""), since=3)
