"""Static membership: an instance that comes back has its place again, and who had it before is fenced."""

from __future__ import annotations

from typing import Any

from protocol.messages.committed_offsets import OffsetCommitRequest
from tests.parity.exchange import Exchange
from tests.parity.members import (
    CHANGED,
    JOIN_VERSIONS,
    KNOWS_INSTANCES,
    Member,
    await_coordinator,
    described,
    subscription,
)

VERSIONS = JOIN_VERSIONS[KNOWS_INSTANCES:]
NEWEST = VERSIONS[-1]


def run(exchange: Exchange) -> None:
    exchange.create_topic("orders")
    await_coordinator(exchange)
    for version in VERSIONS:
        exchange.forget_members()
        first_joins(exchange, version)
    for version in VERSIONS:
        exchange.forget_members()
        comes_back_to_a_stable_group(exchange, version)
    for version in VERSIONS:
        exchange.forget_members()
        comes_back_otherwise(exchange, version)
    for version in VERSIONS:
        exchange.forget_members()
        comes_back_in_a_rebalance(exchange, version)
    exchange.forget_members()
    beside_a_dynamic_member(exchange)
    exchange.forget_members()
    stays_though_it_does_not_rejoin(exchange)


def statics(exchange: Exchange, group_id: str, version: int = NEWEST) -> tuple[Member, Member]:
    """A leader and a follower, both static, in a stable group."""
    a = Member(exchange, group_id, "a", instance_id="one").lead()
    b = Member(exchange, group_id, "b", instance_id="two")
    b_joins = b.start_entering(version)
    a.await_rebalance()
    a.join(None, version)
    b.joined(None, b_joins)
    a.sync(assignments={a.id: b"first half", b.id: b"second half"})
    b.sync()
    return a, b


def restarted(member: Member, client_id: str, **options: Any) -> Member:
    """The same instance in another process: it has forgotten its id."""
    return Member(member.exchange, member.group_id, client_id, instance_id=member.instance_id, **options)


def commit(member: Member, step: str | None) -> None:
    partition = OffsetCommitRequest.Topic.Partition(partition_index=0, committed_offset=1)
    request = OffsetCommitRequest(
        group_id=member.group_id,
        generation_id_or_member_epoch=member.generation,
        member_id=member.id,
        group_instance_id=member.instance_id,
        topics=[OffsetCommitRequest.Topic(name="orders", partitions=[partition])],
    )
    member.ask(step, request, 9)


def first_joins(exchange: Exchange, version: int) -> None:
    """No id is handed out first."""
    a = Member(exchange, f"first-v{version}", "a", instance_id="one")
    a.join("the first static member", version)
    a.sync(assignments={a.id: b"everything"})
    a.join("it joins again with its id", version)
    a.sync()
    a.ask("it joins with an id that is not its own", a.joining(member_id="one-of-before"), version)
    a.ask("another instance joins with its id", a.joining(group_instance_id="two"), version)
    a.ask("it joins with its id and without its instance", a.joining(group_instance_id=None), version)


def comes_back_to_a_stable_group(exchange: Exchange, version: int) -> None:
    """With what it said before: nobody has to join again."""

    def seen(step: str) -> str | None:  # what other APIs show of it is noted once
        return step if version == NEWEST else None

    group_id = f"stable-v{version}"
    a, b = statics(exchange, group_id)
    second = restarted(b, "c")
    second.join("the follower comes back", version)
    a.heartbeat(seen("the follower came back"))
    second.sync(seen("the follower that came back"))
    second.heartbeat(seen("the follower that came back"))
    described(exchange, seen("the follower came back"), group_id)
    b.ask("the follower as it was before", b.joining(), version)
    b.heartbeat(seen("the follower as it was before"))
    b.sync(seen("the follower as it was before"))
    commit(b, seen("the follower as it was before"))
    b.leave(seen("the follower as it was before"))
    first = restarted(a, "d")
    first.join("the leader comes back", version)
    second.heartbeat(seen("the leader came back"))
    first.sync(seen("the leader that came back, which assigns nothing"))
    first.sync(seen("the leader that came back, which assigns all anew"), assignments={first.id: b"everything"})
    commit(first, seen("the leader that came back"))
    described(exchange, seen("the leader came back"), group_id)
    a.ask("the leader as it was before", a.joining(), version)
    third = restarted(first, "e")
    third.join("the leader comes back again", version)
    first.heartbeat(seen("the leader that had come back"))
    third_joins = third.start_joining(version)
    second.await_rebalance()
    second.join("the follower rejoins for the leader that came back", version)
    third.joined("the leader that came back joins with its id", third_joins)


def comes_back_otherwise(exchange: Exchange, version: int) -> None:
    """With other metadata, another protocol, or another timeout."""
    a, b = statics(exchange, f"otherwise-v{version}")
    second = restarted(b, "c", protocols=CHANGED)
    second.join("the follower comes back with other metadata", version)
    a.heartbeat("the follower came back with other metadata" if version == NEWEST else None)
    third = restarted(b, "d", session_timeout_ms=20_000, rebalance_timeout_ms=20_000)
    third.join("the follower comes back with other timeouts", version)
    exchange.forget_members()
    a = Member(exchange, f"sticky-v{version}", "a", instance_id="one").lead()
    other = restarted(a, "e", protocols=[("sticky", subscription())])
    other.join("alone, and back with another protocol", version)
    more = restarted(a, "f", protocols=[("sticky", subscription()), *a.protocols])
    more.join("alone, and back with one more protocol that it prefers", version)
    same = restarted(a, "g")
    same.join("alone, and back with the first protocol only", version)


def comes_back_in_a_rebalance(exchange: Exchange, version: int) -> None:
    """Before the rebalance is over."""
    a, b = statics(exchange, f"rebalance-v{version}")
    a_joins = a.start_joining(version)
    b.await_rebalance()
    again = restarted(a, "c")
    again_joins = again.start_joining(version)
    a.joined("the leader, which waited when it came back", a_joins)
    b.join("the follower, when the leader came back during the rebalance", version)
    again.joined("the leader that came back during the rebalance", again_joins)
    b_syncs = b.start_syncing()
    third = restarted(b, "d")
    third_joins = third.start_joining(version)
    b.synced("the follower, which waited when it came back" if version == NEWEST else None, b_syncs)
    again.join("the leader, when the follower came back before all had synced", version)
    third.joined("the follower that came back before all had synced", third_joins)


def beside_a_dynamic_member(exchange: Exchange) -> None:
    """A dynamic leader leaves; the static follower stays and leads."""
    a = Member(exchange, "mixed", "a").lead()
    b = Member(exchange, "mixed", "b", instance_id="two")
    b_joins = b.start_entering()
    a.await_rebalance()
    a.join("a dynamic leader, for a static follower")
    b.joined("a static follower of a dynamic leader", b_joins)
    a.sync(assignments={b.id: b"everything"})
    b.sync()
    described(exchange, "one dynamic and one static member", "mixed")
    a.leave()
    b.join("the dynamic leader left")
    b.sync()


def stays_though_it_does_not_rejoin(exchange: Exchange) -> None:
    """A rebalance does not wait for it longer than it may take, and does not put it out either."""
    group_id = "away"
    timeouts = {"rebalance_timeout_ms": 1000}
    a = Member(exchange, group_id, "a", instance_id="one", **timeouts).lead()
    b = Member(exchange, group_id, "b", **timeouts)
    b_joins = b.start_entering()
    a.await_rebalance()
    exchange.pass_time(a.rebalance_timeout_ms)
    b.joined("a member joins, and the static leader stays away", b_joins)
    described(exchange, "the static leader stayed away", group_id)
    b.sync(assignments={b.id: b"second half", a.id: b"first half"})
    a.heartbeat("the static leader in the generation that it missed")
    a.heartbeat("the static leader in the new generation", generation_id=b.generation)
    a.sync("the static leader in the new generation", generation_id=b.generation)
    again = restarted(a, "c", **timeouts)
    again.join("the static leader comes back")
    b.leave()
    again.heartbeat("nobody else is left")
    described(exchange, "nobody but the static member is left", group_id)
    again.join("nobody else is left, and it joins with its id")
