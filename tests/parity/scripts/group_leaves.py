"""LeaveGroup: one member, several at once, and static ones by the name of their instance."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.messages.group_membership import LeaveGroupRequest
from tests.parity.exchange import Exchange
from tests.parity.members import Member, a_pair, await_coordinator, await_state, described, two_members

Leaving = LeaveGroupRequest.Member
VERSIONS = range(6)
BATCHED = VERSIONS[3:]


def leaving(group_id: str, member_id: str = "", *, batch: Sequence[tuple[str, str | None]] = ()) -> LeaveGroupRequest:
    """One member in old versions and new ones, or a batch of (member id, instance id)."""
    members = batch or [(member_id, None)]
    return LeaveGroupRequest(
        group_id=group_id,
        member_id=member_id,
        members=[Leaving(member_id=name, group_instance_id=instance_id) for name, instance_id in members],
    )


def run(exchange: Exchange) -> None:
    await_coordinator(exchange)
    exchange.ask_each("an empty group id", leaving("", "a-stranger"))
    exchange.ask_each("an unknown group", leaving("nope", "a-stranger"))
    exchange.ask_each("an unknown group, as nobody", leaving("nope", ""))
    for version in VERSIONS:
        exchange.forget_members()
        one_by_one(exchange, version)
    for version in VERSIONS:
        exchange.forget_members()
        who_waits(exchange, version)
    for version in BATCHED:
        exchange.forget_members()
        batches(exchange, version)
    for version in BATCHED:
        exchange.forget_members()
        static_members(exchange, version)


def seen(step: str, version: int) -> str | None:
    """What other APIs show of it is noted once."""
    return step if version == VERSIONS[-1] else None


def one_by_one(exchange: Exchange, version: int) -> None:
    """Members of a stable group, of one that is joining, and of none."""
    group_id = f"one-by-one-v{version}"
    a, b = a_pair(exchange, group_id)
    a.ask("a stranger", leaving(group_id, "a-stranger"), version)
    a.ask("nobody", leaving(group_id, ""), version)
    a.heartbeat(seen("nothing happened", version))
    b.leave("the follower of a stable group", version)
    a.heartbeat(seen("the follower left", version))
    b.leave("who has left already", version)
    described(exchange, seen("the leader is alone", version), group_id)
    a.join()
    pending = Member(exchange, group_id, "pending")
    pending.join()
    pending.leave("who was only given an id", version)
    pending.leave("who was only given an id, again", version)
    pending.ask(seen("it joins with the id that it gave back", version), pending.joining(), 9)
    a.leave("the last member, which has not synced", version)
    await_state(exchange, group_id, "Empty")
    described(exchange, seen("nobody is left", version), group_id)
    a.leave("nobody is left", version)


def who_waits(exchange: Exchange, version: int) -> None:
    """Members leave for whom others wait, or who wait themselves."""
    a, b = two_members(exchange, f"waiting-v{version}")
    b_syncs = b.start_syncing()
    a.leave("the leader, while the follower waits for it", version)
    b.synced(seen("the leader left", version), b_syncs)
    b.join(seen("the leader left", version))
    b.sync()
    c = Member(exchange, b.group_id, "c")
    c_joins = c.start_entering()
    await_state(exchange, b.group_id, "PreparingRebalance", members=2)
    exchange.ask("who waits for its join", leaving(b.group_id, c.id), version)
    c.joined(seen("it left while it waited", version), c_joins)
    exchange.forget_members()
    c.id = ""
    c_joins = c.start_entering()
    b.await_rebalance()
    b.leave("for whom another waits", version)
    c.joined(seen("for whom it waited left", version), c_joins)


def batches(exchange: Exchange, version: int) -> None:
    """Several members in one request."""
    group_id = f"batches-v{version}"
    a, b = a_pair(exchange, group_id)
    exchange.ask("nobody at all", LeaveGroupRequest(group_id=group_id, members=[]), version)
    exchange.ask("nobody at all, in an unknown group", LeaveGroupRequest(group_id="nope", members=[]), version)
    exchange.ask("strangers", leaving("nope", batch=[("x", None), ("y", "i"), ("", "j")]), version)
    good_and_bad = [("x", None), (b.id, None), ("", None), ("", "i"), (b.id, None)]
    exchange.ask("good and bad", leaving(group_id, batch=good_and_bad), version)
    a.heartbeat(seen("one of them left", version))
    exchange.forget_members()
    a, b = a_pair(exchange, f"twice-v{version}")
    exchange.ask("a member twice", leaving(a.group_id, batch=[(b.id, None), (b.id, None)]), version)
    exchange.ask("with an instance id that is not its own", leaving(a.group_id, batch=[(a.id, "i")]), version)
    exchange.forget_members()
    a, b = a_pair(exchange, f"both-v{version}")
    exchange.ask("both at once", leaving(a.group_id, batch=[(a.id, None), (b.id, None)]), version)
    await_state(exchange, a.group_id, "Empty")
    described(exchange, seen("both left", version), a.group_id)
    exchange.forget_members()
    a = Member(exchange, f"reasons-v{version}").lead()
    reasons = [Leaving(member_id=a.id, reason="x" * 300), Leaving(member_id="b", reason="")]
    exchange.ask("with reasons", LeaveGroupRequest(group_id=a.group_id, members=reasons), version)


def static_members(exchange: Exchange, version: int) -> None:
    """Static members, by id and by instance."""

    def static(instance_id: str) -> Member:
        exchange.forget_members()
        return Member(exchange, f"static-{instance_id}-v{version}", instance_id=instance_id).lead()

    def leave(step: str, member: Member, *batch: tuple[str, str | None]) -> None:
        exchange.ask(step, leaving(member.group_id, batch=batch), version)

    a = static("a")
    leave("an unknown instance", a, ("", "nobody"))
    leave("an unknown instance with the id of a member", a, (a.id, "nobody"))
    leave("an instance with another id", a, ("a-of-before", "a"))
    leave("an instance with its id", a, (a.id, "a"))
    leave("an instance that has left", a, (a.id, "a"))
    leave("an instance that has left, without an id", a, ("", "a"))
    b = static("b")
    leave("an instance without an id", b, ("", "b"))
    await_state(exchange, b.group_id, "Empty")
    c = static("c")
    leave("a static member by its id alone", c, (c.id, None))
    d = static("d")
    leave("an instance twice", d, ("", "d"), ("", "d"))
    e = static("e")
    leave("an instance by its name and by its id", e, ("", "e"), (e.id, None))
    f = static("f")
    leave("good and bad instances", f, ("", "nobody"), ("x", "f"), ("", "f"), ("", ""))
    g = static("")
    leave("the instance without a name", g, ("", ""))
