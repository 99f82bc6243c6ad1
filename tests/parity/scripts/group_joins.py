"""JoinGroup: ids that are handed out, a leader, a protocol that all know; and what is refused."""

from __future__ import annotations

from typing import Any

from protocol.messages.group_membership import JoinGroupRequest
from tests.parity.exchange import Exchange
from tests.parity.members import (
    CHANGED,
    JOIN_VERSIONS,
    KNOWS_INSTANCES,
    NEEDS_AN_ID,
    Member,
    a_pair,
    await_coordinator,
    await_state,
    described,
    subscription,
)


def run(exchange: Exchange) -> None:
    await_coordinator(exchange)
    refusals(exchange)
    for version in JOIN_VERSIONS:
        exchange.forget_members()
        alone(exchange, version)
    for version in JOIN_VERSIONS:
        exchange.forget_members()
        together(exchange, version)
    for version in JOIN_VERSIONS[NEEDS_AN_ID:]:
        exchange.forget_members()
        with_ids_handed_out(exchange, version)
    protocols(exchange)
    odd_clients(exchange)


def alone(exchange: Exchange, version: int) -> None:
    """One member, and what it may and may not say of itself."""
    member = Member(exchange, f"alone-v{version}")
    if version >= NEEDS_AN_ID:
        member.join("the first member is only given an id", version)
    member.join("the first member", version)
    member.join("it joins again before it synced", version)
    member.join("and with other metadata", version, protocols=CHANGED)
    member.sync()
    member.join("it joins again when all is stable", version)
    member.sync()
    member.ask("a member that nobody knows", member.joining(member_id="a-stranger"), version)
    member.ask("another type of protocol", member.joining(protocol_type="connect"), version)
    member.ask("no protocol", member.joining(protocols=[]), version)
    member.join("another protocol, when nobody else is there", version, protocols=[("sticky", subscription("orders"))])
    member.leave()
    member.ask("it left, and joins with its old id", member.joining(), version)
    member.id = ""
    member.enter("it left, and joins anew", version)


def together(exchange: Exchange, version: int) -> None:
    """Two members, and then one."""
    group_id = f"together-v{version}"
    a = Member(exchange, group_id, "a").lead(version)
    b = Member(exchange, group_id, "b")
    b_joins = b.start_entering(version)
    a.await_rebalance()
    a.join("the leader rejoins for a second member", version)
    b.joined("the second member", b_joins)
    b.join("the follower joins again before it synced", version)
    a.join("the leader joins again before it synced", version)
    a.sync(assignments={a.id: b"first half", b.id: b"second half"})
    b.sync()
    b.join("the follower joins again when all is stable", version)
    b_joins = b.start_joining(version, protocols=CHANGED)
    a.await_rebalance()
    a.join("the leader rejoins for a follower that changed", version)
    b.joined("a follower that changed", b_joins)
    a.sync()
    b.sync()
    a_joins = a.start_joining(version)
    b.await_rebalance()
    b.join("the follower rejoins for the leader", version)
    a.joined("the leader joins again when all is stable", a_joins)
    a.sync()
    b.sync()
    a.leave()
    b.join("the leader left", version)


def with_ids_handed_out(exchange: Exchange, version: int) -> None:
    """Who was only given an id is no member, and yet a group that has members waits for it."""

    def seen(step: str) -> str | None:  # what other APIs show of it is noted once
        return step if version == JOIN_VERSIONS[-1] else None

    group_id = f"handed-out-by-v{version}"
    pending = Member(exchange, group_id, "pending")
    pending.join("an id is given out", version)
    await_state(exchange, group_id, "Empty")
    described(exchange, seen("only an id was given out"), group_id)
    pending.sync(seen("a sync with an id that was given out"), generation_id=0)
    pending.heartbeat(seen("a heartbeat with an id that was given out"), generation_id=0)
    if version >= KNOWS_INSTANCES:
        as_instance = pending.joining(group_instance_id="i")
        pending.ask("with an instance id beside the id that was given out", as_instance, version)
    a = Member(exchange, group_id, "a")
    a.enter("a new group does not wait for the id", version)
    a.sync()
    a_joins = a.start_joining(version)
    await_state(exchange, group_id, "PreparingRebalance")
    described(exchange, seen("a member waits for an id that was given out"), group_id)
    pending.leave(seen("an id is given back"))
    a.joined("the id was given back", a_joins)
    pending.ask("the id that was given back", pending.joining(), version)
    pending.id = ""
    pending.join("another id is given out", version)
    a.sync()
    a_joins = a.start_joining(version)
    await_state(exchange, group_id, "PreparingRebalance")
    pending_joins = pending.start_joining(version)
    a.joined("the member that waited", a_joins)
    pending.joined("whom it waited for", pending_joins)


def protocols(exchange: Exchange) -> None:
    """Which protocol is chosen, and who has none in common with the rest."""

    def of(group: str, *preferences: str) -> list[Member]:
        exchange.forget_members()
        members = []
        for client_id, names in zip("abcde", preferences, strict=False):
            known = [(name, subscription(f"{name} of {client_id}")) for name in names]
            members.append(Member(exchange, group, client_id, protocols=known))
        return members

    def meet(step: str, *preferences: str) -> None:
        members = of(step, *preferences)
        members[0].enter()
        members[0].sync(protocol_name=preferences[0][0])
        waiting = []
        for member in members[1:]:
            waiting.append((member, member.start_entering()))
            await_state(exchange, step, "PreparingRebalance", members=len(waiting) + 1)
        members[0].join(f"{step}: the leader")
        for member, asked in waiting:
            member.joined(f"{step}: {member.client_id}", asked)
        described(exchange, f"{step}: at last", step)

    meet("all prefer the first", "xy", "xy")
    meet("most prefer the second", "xyz", "yxz", "yzx")
    meet("only one is known to all", "xyz", "zy", "xz")
    meet("five with three preferences", "xyz", "yzx", "zxy", "zyx", "yzx")
    meet("the preferred one is not known to all", "xz", "yz")
    a, b = of("nothing in common", "x", "y")
    a.enter()
    a.sync(protocol_name="x")
    b.ask("nothing in common with the rest", b.joining(), 3)
    b.ask("nothing in common with the rest, in a new version", b.joining(), 9)
    b.ask("no protocol, in a group of one", b.joining(protocols=[]), 9)
    a.heartbeat("the rest does not notice")
    a, b = of("other type", "x", "x")
    a.enter()
    b.ask("another type than the rest has", b.joining(protocol_type="connect"), 9)
    b.ask("an empty type", b.joining(protocol_type=""), 9)


def refusals(exchange: Exchange) -> None:
    """What is refused whatever the group."""

    def joining(group_id: str = "refused", **fields: Any) -> JoinGroupRequest:
        return Member(exchange, group_id).joining(**fields)

    exchange.ask_each("an empty group id", joining(""))
    for timeout in (5_999, 1_800_001, 0, -1, 0x7FFF_FFFF, -0x8000_0000):
        exchange.ask_each(f"a session timeout of {timeout}", joining(session_timeout_ms=timeout))
    exchange.ask_each("an empty group id and a bad session timeout", joining("", session_timeout_ms=0))
    exchange.ask_each("an id in an unknown group", joining(member_id="a-stranger"))
    as_instance = joining(member_id="b", group_instance_id="i")
    exchange.ask_each("an id and an instance in an unknown group", as_instance, since=KNOWS_INSTANCES)
    exchange.ask_each("no protocols", joining(protocols=[]))
    exchange.ask_each("an empty type of protocol", joining(protocol_type=""))
    described(exchange, "the group in which all was refused", "refused")
    for instance_id in ("", " ", "größe"):
        for version in (5, 9):
            exchange.forget_members()
            odd = Member(exchange, f"instance-{instance_id}-v{version}", instance_id=instance_id)
            odd.join(f"the instance {instance_id!r}", version)


def odd_clients(exchange: Exchange) -> None:
    """What a client may well say, and hardly ever does."""

    def enter(step: str, version: int, *, client_id: str | None = "a", reason: str | None = None, **what: Any) -> None:
        exchange.forget_members()
        member = Member(exchange, f"{step}, v{version}", client_id, **what)
        member.enter(step, version, reason=reason)

    for version in (3, 9):
        for client_id in (None, "", "größe", "a b", "x" * 40):
            enter(f"a client whose id is {client_id!r:.10}", version, client_id=client_id)
        for timeout in (6_000, 1_800_000):
            enter(f"a session timeout of {timeout} is good", version, session_timeout_ms=timeout)
        enter("a protocol without a name, and no topics", version, protocols=[("", subscription())])
        enter("metadata with more than topics", version, protocols=[("range", subscription("a", user_data=b"more"))])
        enter("metadata of a later version", version, protocols=[("range", b"\0\7" + subscription("a")[2:])])
        enter("with a reason", version, reason="why not")
        enter("with a long reason", version, reason="x" * 300)
    exchange.forget_members()
    a, b = a_pair(exchange, "from elsewhere")
    exchange.send(a.joining(), 9, client_id="other", over=exchange.connect())
    b.await_rebalance()
    described(exchange, "a member that joins again over another connection", "from elsewhere")
    b.join("the other joins too")
    described(exchange, "both have joined", "from elsewhere")
