"""Heartbeat: whether a member is still one, and whether it has to join again."""

from __future__ import annotations

from typing import Any

from protocol.messages.group_membership import HeartbeatRequest
from tests.parity.exchange import Exchange
from tests.parity.members import Member, a_pair, await_coordinator, two_members

VERSIONS = range(5)
KNOWS_INSTANCES = 3


def run(exchange: Exchange) -> None:
    await_coordinator(exchange)
    unknown(exchange)
    for version in VERSIONS:
        exchange.forget_members()
        life(exchange, version)
    for version in VERSIONS:
        exchange.forget_members()
        static(exchange, version)


def unknown(exchange: Exchange) -> None:
    """Where there is no such member, or no such group."""

    def beating(group_id: str, **fields: Any) -> HeartbeatRequest:
        return Member(exchange, group_id).beating(**{"member_id": "a-stranger", "generation_id": 1, **fields})

    exchange.ask_each("an empty group id", beating(""))
    exchange.ask_each("an unknown group", beating("nope"))
    exchange.ask_each("an unknown group, as nobody", beating("nope", member_id="", generation_id=-1))
    exchange.ask_each("an unknown group, as an instance", beating("nope", group_instance_id="i"), since=KNOWS_INSTANCES)


def life(exchange: Exchange, version: int) -> None:
    """A group from its first generation to its end."""
    group_id = f"life-v{version}"
    a, b = two_members(exchange, group_id)
    a.heartbeat("the leader, before it synced", version)
    b.heartbeat("the follower, before it synced", version)
    b_syncs = b.start_syncing()
    a.sync()
    b.synced(None, b_syncs)
    a.heartbeat("the leader of a stable group", version)
    b.heartbeat("the follower in a stable group", version)
    for generation_id in (b.generation - 1, b.generation + 1, 0, -1, 0x7FFF_FFFF, -0x8000_0000):
        b.heartbeat(f"generation {generation_id}, and it is the second", version, generation_id=generation_id)
    b.heartbeat("a stranger", version, member_id="a-stranger")
    b.heartbeat("nobody", version, member_id="")
    b.heartbeat("a stranger of another generation", version, member_id="a-stranger", generation_id=9)
    if version >= KNOWS_INSTANCES:
        for instance_id in ("i", ""):
            b.heartbeat(f"it says that it is the instance {instance_id!r}", version, group_instance_id=instance_id)
    exchange.ask("over another connection", b.beating(), version)
    _, elsewhere = a_pair(exchange, f"elsewhere-v{version}")
    b.ask("a member of another group", elsewhere.beating(group_id=group_id), version)
    a_joins = a.start_joining()
    b.await_rebalance()
    b.heartbeat("the leader has joined again", version)
    b.heartbeat("the leader has joined again, in the next generation", version, generation_id=b.generation + 1)
    b.join()
    a.joined(None, a_joins)
    b.heartbeat("a new generation", version)
    b.heartbeat("the generation before it", version, generation_id=b.generation - 1)
    a.leave()
    a.heartbeat("who has left", version)
    b.heartbeat("the leader has left", version)
    b.join()
    b.sync()
    b.heartbeat("it is alone", version)
    b.leave()
    b.heartbeat("the group is empty", version)


def static(exchange: Exchange, version: int) -> None:
    """A static member, and who takes itself for it."""
    one = Member(exchange, f"static-v{version}", "a", instance_id="one").lead()
    if version >= KNOWS_INSTANCES:
        one.heartbeat("a static member", version)
        one.heartbeat("a static member under another id", version, member_id="one-of-before")
        one.heartbeat("a static member without an id", version, member_id="")
        one.heartbeat("a static member under another id in a wrong generation", version, member_id="x", generation_id=9)
        one.heartbeat("another instance with its id", version, group_instance_id="two")
    one.heartbeat("a static member that does not say so", version, group_instance_id=None)
    one.heartbeat("its instance id for its member id", version, member_id="one", group_instance_id=None)
