"""ShareGroup: the replayed state of a share group."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from broker.coordinators.group.modern.group import NOTHING, GroupWithMembers, partitions_by_topic
from broker.coordinators.group.share.member import ShareMember
from protocol.records.group_metadata import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)
from storage.sentinels import NO_EPOCH

EMPTY: Final = "Empty"
STABLE: Final = "Stable"


class NamedPartitions(NamedTuple):
    """Partitions of a topic, with the topic's name."""

    name: str
    partitions: frozenset[int]


StateTopics = Mapping[bytes, NamedPartitions]
"""Partitions by topic id."""


NO_TOPICS: Final[StateTopics] = MappingProxyType({})
NO_NAMES: Final[Mapping[bytes, str]] = MappingProxyType({})


class SharedStates(NamedTuple):
    """Which partitions have a state for the group at the share coordinator. Immutable: a record replaces it."""

    initializing: StateTopics = NO_TOPICS
    """The share coordinator has been asked to begin their states, and has not answered yet."""
    initialized: StateTopics = NO_TOPICS
    """Members are assigned these partitions, and no others."""
    deleting: Mapping[bytes, str] = NO_NAMES
    """Topics, each with its name, whose states the share coordinator has been asked to delete."""


class ShareGroup(GroupWithMembers[ShareMember]):
    """A share group."""

    __slots__ = ("states",)
    kind = "share"

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.states: SharedStates | None = None
        """None before a member has subscribed to a topic that exists."""

    @property
    def state(self) -> str:
        """The state of the group, as administrators see it."""
        return STABLE if self.members else EMPTY

    def replay(self, key: Any, value: Any) -> None:
        """Apply a record of the group; None as the value: a tombstone."""
        _REPLAY[type(key)](self, key, value)

    def _replay_epoch(self, key: ShareGroupMetadataKey, value: ShareGroupMetadataValue | None) -> None:
        if value is None:
            self.replay_gone()
        else:
            self.replay_epoch(value.epoch, value.metadata_hash)

    def _replay_metadata(self, key: ShareGroupMemberMetadataKey, value: ShareGroupMemberMetadataValue | None) -> None:
        if value is None:
            self.replay_member_removed(key.member_id)
            return
        known = self.members.get(key.member_id) or ShareMember(member_id=key.member_id)
        self.replay_member(
            dataclasses.replace(
                known,
                rack_id=value.rack_id,
                client_id=value.client_id,
                client_host=value.client_host,
                subscribed_topics=frozenset(value.subscribed_topic_names),
            )
        )

    def _replay_assignment_epoch(
        self, key: ShareGroupTargetAssignmentMetadataKey, value: ShareGroupTargetAssignmentMetadataValue | None
    ) -> None:
        if value is None:
            self.replay_assignment_epoch(NO_EPOCH, 0)
        else:
            self.replay_assignment_epoch(value.assignment_epoch, value.assignment_timestamp)

    def _replay_target(
        self, key: ShareGroupTargetAssignmentMemberKey, value: ShareGroupTargetAssignmentMemberValue | None
    ) -> None:
        self.replay_target(key.member_id, None if value is None else partitions_by_topic(value.topic_partitions))

    def _replay_current(
        self, key: ShareGroupCurrentMemberAssignmentKey, value: ShareGroupCurrentMemberAssignmentValue | None
    ) -> None:
        known = self.members.get(key.member_id)
        if value is None:
            if known is not None:
                self.replay_member(
                    dataclasses.replace(known, epoch=NO_EPOCH, previous_epoch=NO_EPOCH, assigned=NOTHING)
                )
            return
        self.replay_member(
            dataclasses.replace(
                known or ShareMember(member_id=key.member_id),
                epoch=value.member_epoch,
                previous_epoch=value.previous_member_epoch,
                assigned=partitions_by_topic(value.assigned_partitions),
            )
        )

    def _replay_states(
        self, key: ShareGroupStatePartitionMetadataKey, value: ShareGroupStatePartitionMetadataValue | None
    ) -> None:
        if value is None:
            self.states = None
            return
        self.states = SharedStates(
            _named(value.initializing_topics),
            _named(value.initialized_topics),
            {topic.topic_id: topic.topic_name for topic in value.deleting_topics},
        )


def _named(topics: Iterable[ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo]) -> StateTopics:
    return {topic.topic_id: NamedPartitions(topic.topic_name, frozenset(topic.partitions)) for topic in topics}


_REPLAY: Final[dict[type[Any], Callable[[ShareGroup, Any, Any], None]]] = {
    ShareGroupMetadataKey: ShareGroup._replay_epoch,
    ShareGroupMemberMetadataKey: ShareGroup._replay_metadata,
    ShareGroupTargetAssignmentMetadataKey: ShareGroup._replay_assignment_epoch,
    ShareGroupTargetAssignmentMemberKey: ShareGroup._replay_target,
    ShareGroupCurrentMemberAssignmentKey: ShareGroup._replay_current,
    ShareGroupStatePartitionMetadataKey: ShareGroup._replay_states,
}
