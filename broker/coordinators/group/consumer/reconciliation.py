"""Reconciliation: a member's next step on the way to its target assignment (Kafka's CurrentAssignmentBuilder).

    STABLE ── a new target ──> UNREVOKED_PARTITIONS    has to give up partitions, in its old epoch
       ^                            │ has given them up
       ├────────────────────────────┤
       └── UNRELEASED_PARTITIONS <──┘                  is in the new epoch, and waits for partitions of others

A partition is given to a member only when no other member has it, so that no two members have it in one epoch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from typing import NamedTuple

from broker.coordinators.group.consumer.member import NOTHING_OWNED, ConsumerMember, MemberState, Owned
from broker.coordinators.group.modern.group import Assignment


class Target(NamedTuple):
    """What a member is to reach."""

    epoch: int
    partitions: Assignment


def next_step(
    member: ConsumerMember,
    target: Target,
    *,
    topics: Callable[[], Collection[bytes]],
    is_taken: Callable[[bytes, int], bool],
    owned: Assignment | None,
    has_new_subscription: bool,
) -> ConsumerMember:
    """The member after the step; the same object if it can't go on yet.

    Args:
        member: The member as it is.
        target: The epoch and the partitions that the member is to reach.
        topics: Gives the ids of the topics that the member subscribes to.
        is_taken: Whether any member has the partition.
        owned: The partitions that the member says it has; None if it does not say.
        has_new_subscription: The member's subscription has changed just now: partitions of topics that it does not
            subscribe to any more are taken from it at once.
    """
    if member.state is MemberState.STABLE and member.epoch == target.epoch:
        return _without_other_topics(member, topics(), owned) if has_new_subscription else member
    if member.state is MemberState.UNREVOKED_PARTITIONS and _still_has(owned, member.pending_revocation):
        return _without_other_topics(member, topics(), owned) if has_new_subscription else member
    return _towards(member, target, topics(), is_taken, owned)


def _still_has(owned: Assignment | None, lost: Owned) -> bool:
    """Whether the member may still have one of the partitions that it loses."""
    if owned is None:
        return True
    return any(not partitions.isdisjoint(lost.get(topic_id, ())) for topic_id, partitions in owned.items())


def _without_other_topics(
    member: ConsumerMember, topics: Collection[bytes], owned: Assignment | None
) -> ConsumerMember:
    lost = {topic_id: partitions for topic_id, partitions in member.assigned.items() if topic_id not in topics}
    if not lost:
        return member
    kept = {topic_id: partitions for topic_id, partitions in member.assigned.items() if topic_id in topics}
    pending = {
        topic_id: {**member.pending_revocation.get(topic_id, {}), **lost.get(topic_id, {})}
        for topic_id in {*member.pending_revocation, *lost}
    }
    if _still_has(owned, pending):
        return _moved(member, member.epoch, MemberState.UNREVOKED_PARTITIONS, kept, pending)
    return _moved(member, member.epoch, member.state, kept, member.pending_revocation)


def _towards(
    member: ConsumerMember,
    target: Target,
    topics: Collection[bytes],
    is_taken: Callable[[bytes, int], bool],
    owned: Assignment | None,
) -> ConsumerMember:
    kept: dict[bytes, dict[int, int]] = {}
    lost: dict[bytes, dict[int, int]] = {}
    gained: dict[bytes, dict[int, int]] = {}
    waits = False
    for topic_id in {*target.partitions, *member.assigned}:
        wanted = target.partitions.get(topic_id, frozenset()) if topic_id in topics else frozenset()
        has = member.assigned.get(topic_id, {})
        returning = member.pending_revocation.get(topic_id, {})
        free = {
            partition
            for partition in wanted.difference(has)
            # What the member itself was about to give up, it may keep.
            if partition in returning or not is_taken(topic_id, partition)
        }
        waits = waits or len(free) < len(wanted.difference(has))
        _put(kept, topic_id, {partition: epoch for partition, epoch in has.items() if partition in wanted})
        _put(lost, topic_id, {partition: epoch for partition, epoch in has.items() if partition not in wanted})
        _put(gained, topic_id, dict.fromkeys(sorted(free), target.epoch))
    if lost and _still_has(owned, lost):
        return _moved(member, member.epoch, MemberState.UNREVOKED_PARTITIONS, kept, lost)
    for topic_id, partitions in gained.items():
        kept[topic_id] = {**kept.get(topic_id, {}), **partitions}
    state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
    return _moved(member, target.epoch, state, kept, NOTHING_OWNED)


def _put(into: dict[bytes, dict[int, int]], topic_id: bytes, partitions: dict[int, int]) -> None:
    if partitions:
        into[topic_id] = partitions


def _moved(member: ConsumerMember, epoch: int, state: MemberState, assigned: Owned, pending: Owned) -> ConsumerMember:
    return dataclasses.replace(
        member,
        epoch=epoch,
        previous_epoch=member.epoch,
        state=state,
        assigned=assigned,
        pending_revocation=pending,
    )
