"""The next `SharedStates` of a group: which partitions get a state at the share coordinator, have it, or lose it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from broker.coordinators.group.modern.group import Assignment
from broker.coordinators.group.modern.topics import GroupTopic
from broker.coordinators.group.share.group import NamedPartitions, SharedStates, StateTopics


def uninitialized(
    known: SharedStates | None, topics: Iterable[GroupTopic], under_way: Collection[bytes]
) -> StateTopics:
    """The partitions of ``topics`` without a state, for which the share coordinator is to be asked. Partitions of the
    topics ``under_way`` that it is being asked for do not count."""
    missing: dict[bytes, NamedPartitions] = {}
    for topic in topics:
        left = frozenset(range(topic.partitions)) - partitions_of(known, topic.topic_id, under_way)
        if left:
            missing[topic.topic_id] = NamedPartitions(topic.name, left)
    return missing


def partitions_of(known: SharedStates | None, topic_id: bytes, under_way: Collection[bytes]) -> frozenset[int]:
    if known is None:
        return frozenset()
    found: frozenset[int] = frozenset()
    if topic_id in known.initialized:
        found = known.initialized[topic_id].partitions
    if topic_id in under_way and topic_id in known.initializing:
        found |= known.initializing[topic_id].partitions
    return found


def began(known: SharedStates | None, topics: StateTopics) -> SharedStates:
    """The share coordinator is asked to begin the states of ``topics``."""
    if known is None:
        return SharedStates(initializing=topics)
    initializing = _added(known.initializing, topics)
    deleting = {topic_id: name for topic_id, name in known.deleting.items() if topic_id not in initializing}
    return SharedStates(initializing, known.initialized, deleting)


def completed(known: SharedStates | None, topics: StateTopics) -> SharedStates:
    """The states of ``topics`` have begun."""
    if known is None:
        return SharedStates(initialized=topics)
    return SharedStates(_removed(known.initializing, topics), _added(known.initialized, topics), known.deleting)


def abandoned(known: SharedStates, topics: StateTopics) -> SharedStates:
    """The share coordinator has refused to begin the states of ``topics``."""
    return known._replace(initializing=_removed(known.initializing, topics))


def all_deleting(known: SharedStates) -> SharedStates:
    """All states are to be deleted."""
    return SharedStates(
        deleting={topic_id: topic.name for topic_id, topic in everything(known).items()} | dict(known.deleting)
    )


def everything(known: SharedStates) -> StateTopics:
    """Every partition that has a state, or may have one."""
    return _added(known.initialized, known.initializing)


def deleting(known: SharedStates, topics: Mapping[bytes, str]) -> SharedStates:
    """The initialised states of ``topics`` are to be deleted."""
    initialized = {topic_id: found for topic_id, found in known.initialized.items() if topic_id not in topics}
    return SharedStates(known.initializing, initialized, {**known.deleting, **topics})


def deleted(known: SharedStates, topic_ids: Collection[bytes]) -> SharedStates:
    """The states of ``topic_ids`` are deleted."""
    return known._replace(deleting={one: name for one, name in known.deleting.items() if one not in topic_ids})


def without(known: SharedStates, topic_ids: Collection[bytes]) -> SharedStates:
    """The topics no longer exist."""
    return SharedStates(
        {one: found for one, found in known.initializing.items() if one not in topic_ids},
        {one: found for one, found in known.initialized.items() if one not in topic_ids},
        {one: name for one, name in known.deleting.items() if one not in topic_ids},
    )


def as_assignment(topics: StateTopics) -> Assignment:
    return {topic_id: topic.partitions for topic_id, topic in topics.items()}


def _added(known: StateTopics, topics: StateTopics) -> StateTopics:
    added = dict(known)
    for topic_id, topic in topics.items():
        before = added.get(topic_id)
        added[topic_id] = topic if before is None else NamedPartitions(topic.name, before.partitions | topic.partitions)
    return added


def _removed(known: StateTopics, topics: StateTopics) -> StateTopics:
    left = {
        topic_id: found._replace(partitions=found.partitions - topics[topic_id].partitions)
        if topic_id in topics
        else found
        for topic_id, found in known.items()
    }
    return {topic_id: found for topic_id, found in left.items() if found.partitions}
