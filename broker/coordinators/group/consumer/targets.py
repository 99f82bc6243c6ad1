"""Target assignments: what the assignor is asked, and the records of what has changed by its answer."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from broker.coordinators.group.consumer.assignors import ASSIGNORS, Subscriber
from broker.coordinators.group.consumer.group import ConsumerGroup
from broker.coordinators.group.consumer.member import ConsumerMember
from broker.coordinators.group.consumer.records import assignment_epoch_record, target_record
from broker.coordinators.group.modern.group import NOTHING, Assignment
from broker.coordinators.group.modern.topics import TopicsView
from protocol.records.group_metadata import GroupRecord

_NO_TOPICS: Final[frozenset[bytes]] = frozenset()


def topic_ids(names: Iterable[str], topics: TopicsView) -> frozenset[bytes]:
    """The ids of those of the topics that exist."""
    return frozenset(topic.topic_id for name in names if (topic := topics.of_name(name)) is not None)


def new_targets(
    group: ConsumerGroup,
    epoch: int,
    *,
    assignor: str,
    updated: ConsumerMember,
    replaced: str | None,
    topics: TopicsView,
    now_ms: int,
) -> tuple[Assignment, list[GroupRecord]]:
    """Compute all target assignments of an epoch.

    Args:
        group: The group as it is replayed.
        epoch: The group epoch that the assignments are for.
        assignor: The name of the assignor.
        updated: A member that is new or changed, and is not replayed yet.
        replaced: The id of the member whose place ``updated`` takes, with its target assignment; None if there is none.
        topics: The topics of the cluster.
        now_ms: Milliseconds since 1970, for the record.

    Returns:
        The target assignment of ``updated``, and the records of all changes.
    """
    known: dict[frozenset[str], frozenset[bytes]] = {}

    def subscriber(member: ConsumerMember, target: Assignment) -> Subscriber:
        names = group.topics_of(member)
        ids = known.get(names)
        if ids is None:
            ids = known[names] = topic_ids(names, topics)
        return Subscriber(member.instance_id, ids, target)

    def count(topic_id: bytes) -> int:
        topic = topics.of_id(topic_id)
        return 0 if topic is None else topic.partitions

    subscribers = {
        member_id: subscriber(member, group.target(member_id))
        for member_id, member in group.members.items()
        if member_id not in (replaced, updated.member_id)
    }
    before = group.target(updated.member_id if replaced is None else replaced)
    subscribers[updated.member_id] = subscriber(updated, before)
    targets = ASSIGNORS[assignor](subscribers, count)
    records = _changes(group, targets, subscribers)
    records.append(assignment_epoch_record(group.group_id, epoch, now_ms))
    return targets.get(updated.member_id, NOTHING), records


def _changes(group: ConsumerGroup, targets: Mapping[str, Assignment], members: Collection[str]) -> list[GroupRecord]:
    return [
        target_record(group.group_id, member_id, target)
        for member_id in members
        if group.targets.get(member_id) != (target := targets.get(member_id, NOTHING))
    ]
