"""Rebalances in which a member does not do its part: each waits no longer than it must."""

from __future__ import annotations

from tests.parity.exchange import Exchange
from tests.parity.members import (
    CHANGED,
    Member,
    a_pair,
    await_coordinator,
    await_state,
    described,
    second_member,
    two_members,
)

SETTINGS = {"group.min.session.timeout.ms": "100"}

SHORT = {"rebalance_timeout_ms": 700}
"""Short enough to be waited for where time cannot be moved, at Apache Kafka."""
SHORT_SESSION = {"session_timeout_ms": 300}


def run(exchange: Exchange) -> None:
    await_coordinator(exchange)
    for scene in (
        a_follower_never_rejoins,
        the_leader_never_rejoins,
        nobody_rejoins,
        a_follower_never_syncs,
        the_leader_never_syncs,
        nobody_syncs,
        a_follower_falls_silent,
        the_only_member_falls_silent,
        an_id_is_never_used,
        a_member_that_waits_is_not_silent,
        of_three_members,
        what_is_said_of_assignments,
    ):
        exchange.forget_members()
        scene(exchange)


def a_follower_never_rejoins(exchange: Exchange) -> None:
    a, b = a_pair(exchange, "no-follower", **SHORT)
    a.join_without_the_others("the follower does not rejoin")
    b.heartbeat("the follower that did not rejoin")
    b.ask("the follower joins too late", b.joining(), 9)
    a.sync("the follower is out", assignments={a.id: b"everything"})
    described(exchange, "the follower is out", "no-follower")


def the_leader_never_rejoins(exchange: Exchange) -> None:
    a, b = a_pair(exchange, "no-leader", **SHORT)
    b.join_without_the_others("the leader does not rejoin, and the follower leads", protocols=CHANGED)
    a.heartbeat("the leader that did not rejoin")


def nobody_rejoins(exchange: Exchange) -> None:
    a, b = a_pair(exchange, "only-the-new-one", **SHORT)
    c = Member(exchange, "only-the-new-one", "c", **SHORT)
    c_joins = c.start_entering()
    a.await_rebalance()
    exchange.pass_time(c.rebalance_timeout_ms)
    c.joined("nobody rejoins but the new one", c_joins)
    a.heartbeat("the old leader")
    b.heartbeat("the old follower")
    described(exchange, "the new one is alone", "only-the-new-one")


def a_follower_never_syncs(exchange: Exchange) -> None:
    a, b = two_members(exchange, "unsynced-follower", **SHORT)
    a.sync("the leader does", assignments={a.id: b"1", b.id: b"2"})
    exchange.pass_time(b.rebalance_timeout_ms)
    a.await_rebalance()
    a.heartbeat("the follower has not synced in time")
    b.heartbeat("the follower that has not synced")
    b.sync("the follower that has not synced, too late")
    described(exchange, "the follower that has not synced is out", "unsynced-follower")
    a.join("the follower that has not synced is out")


def the_leader_never_syncs(exchange: Exchange) -> None:
    a, b = two_members(exchange, "unsynced-leader", **SHORT)
    b_syncs = b.start_syncing()
    exchange.pass_time(a.rebalance_timeout_ms)
    b.synced("the leader has not synced in time", b_syncs)
    b.heartbeat("the leader has not synced in time")
    a.heartbeat("the leader that has not synced")
    a.sync("the leader that has not synced, too late", assignments={a.id: b"1", b.id: b"2"})
    b.join("the leader that has not synced is out")


def nobody_syncs(exchange: Exchange) -> None:
    a, b = two_members(exchange, "unsynced", **SHORT)
    exchange.pass_time(a.rebalance_timeout_ms)
    await_state(exchange, "unsynced", "Empty")
    described(exchange, "nobody has synced", "unsynced")
    a.heartbeat("nobody has synced, not even the leader")
    b.ask("nobody has synced, and the follower joins again", b.joining(), 9)
    c = Member(exchange, "unsynced", "c")
    c.enter("nobody has synced, and another joins")


def a_follower_falls_silent(exchange: Exchange) -> None:
    a = Member(exchange, "silent-follower").lead()
    b = second_member(a, **SHORT_SESSION)
    a.sync()
    b.sync()
    exchange.pass_time(b.session_timeout_ms)
    a.await_rebalance()
    b.heartbeat("the follower, after its session")
    described(exchange, "the follower's session is over", "silent-follower")
    a.join("the follower's session is over")


def the_only_member_falls_silent(exchange: Exchange) -> None:
    a = Member(exchange, "silent", **SHORT_SESSION).lead()
    exchange.pass_time(a.session_timeout_ms)
    await_state(exchange, "silent", "Empty")
    described(exchange, "the only member's session is over", "silent")
    a.heartbeat("the only member, after its session")
    a.ask("the only member joins again with its old id", a.joining(), 9)
    a.id = ""
    a.enter("the only member joins anew")


def an_id_is_never_used(exchange: Exchange) -> None:
    a = Member(exchange, "unused-id").lead()
    pending = Member(exchange, "unused-id", "pending", **SHORT_SESSION)
    pending.join("an id is given out")
    a_joins = a.start_joining()
    await_state(exchange, "unused-id", "PreparingRebalance")
    exchange.pass_time(pending.session_timeout_ms)
    a.joined("the member waits until the id's session is over", a_joins)
    pending.ask("with the id whose session is over", pending.joining(), 9)


def a_member_that_waits_is_not_silent(exchange: Exchange) -> None:
    group_id = "patient"
    a, b = a_pair(exchange, group_id, rebalance_timeout_ms=1500)
    c = Member(exchange, group_id, "c", **SHORT_SESSION, rebalance_timeout_ms=1500)
    c_joins = c.start_entering()
    a.await_rebalance()
    a.join_without_the_others("a member waited for another, longer than the third's session")
    c.joined("it waited longer than its session", c_joins)
    b.heartbeat("for whom they waited")


def of_three_members(exchange: Exchange) -> None:
    """Members come and go, one by one, and each time the rest meets again."""
    group_id = "three"
    a, b = a_pair(exchange, group_id)
    c = Member(exchange, group_id, "c")
    c_joins = c.start_entering()
    a.await_rebalance()
    a_joins = a.start_joining()
    b.join("a third member: the follower")
    a.joined("a third member: the leader", a_joins)
    c.joined("a third member", c_joins)
    c_syncs = c.start_syncing()
    a.sync("a third member: the leader", assignments={a.id: b"1", b.id: b"2", c.id: b"3"})
    b.sync("a third member: the follower")
    c.synced("a third member", c_syncs)
    described(exchange, "three members", group_id)
    a.leave("the leader of three")
    b_joins = b.start_joining()
    c.join()
    leads_now = b.joined(None, b_joins).leader  # either of the two: a hash map's first
    leader, follower = (b, c) if leads_now == b.id else (c, b)
    leader.sync("the leader of three left: its successor", assignments={b.id: b"half", c.id: b"half"})
    follower.sync("the leader of three left: the other one")
    described(exchange, "two of three members", group_id)


def what_is_said_of_assignments(exchange: Exchange) -> None:
    """The last ones stay to be seen, until the members of a new generation are sent back before they have theirs."""
    a, b = a_pair(exchange, "assigned")
    b_joins = b.start_joining(protocols=CHANGED)
    a.await_rebalance()
    described(exchange, "a rebalance began", "assigned")
    a.join()
    b.joined(None, b_joins)
    described(exchange, "all have joined", "assigned")
    b_joins = b.start_joining()
    a.await_rebalance()
    described(exchange, "another rebalance began before all had synced", "assigned")
    a.join()
    b.joined(None, b_joins)
    described(exchange, "all have joined once more", "assigned")
    b.leave()
    described(exchange, "one left before all had synced", "assigned")
    a.join()
    a.sync(assignments={a.id: b"everything"})
    described(exchange, "all have synced", "assigned")
    c = Member(exchange, "assigned", "c")
    c_joins = c.start_entering()
    a.await_rebalance()
    described(exchange, "another member comes", "assigned")
    a.join()
    c.joined(None, c_joins)
    described(exchange, "another member came", "assigned")
