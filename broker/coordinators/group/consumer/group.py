"""ConsumerGroup: the replayed state of a consumer group of the newer protocol (KIP-848)."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from enum import Enum
from typing import Any, ClassVar, Final, NamedTuple

from broker.coordinators.group.consumer.member import ClassicSide, ConsumerMember, MemberState, Owned
from broker.coordinators.group.modern.group import GroupWithMembers, by_epoch, partitions_by_topic, replay_subtract
from broker.coordinators.group.requests import Protocol
from protocol.records.group_metadata import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

NO_ASSIGNMENT_EPOCH: Final = -1


class ConsumerGroupState(Enum):
    """The states of a consumer group, by Kafka's names. A state follows from the epochs and is stored nowhere."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    """A new target assignment is still to be computed."""
    RECONCILING = "Reconciling"
    """Members are on the way to their target assignment."""
    STABLE = "Stable"
    DEAD = "Dead"


class ResolvedRegex(NamedTuple):
    """A regular expression with the topics that it matches."""

    topics: frozenset[str]
    version: int
    """The version of the metadata that the topics are from."""
    timestamp: int
    """When it was resolved, in milliseconds since 1970."""


class ConsumerGroup(GroupWithMembers[ConsumerMember]):
    """A consumer group with its members."""

    __slots__ = (
        "assignors",
        "classic_members",
        "classic_protocols",
        "has_partition_metadata",
        "owners",
        "regexes",
        "resolved",
        "resolved_subscribers",
    )
    kind: ClassVar = "consumer"

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.owners: dict[bytes, dict[int, str]] = {}
        """The member that owns a partition or has still to give it up, by topic id and partition."""
        self.assignors: Counter[str] = Counter()
        """How many members want each assignor."""
        self.classic_members = 0
        """How many members use the classic protocol."""
        self.classic_protocols: Counter[str] = Counter()
        """How many members of the classic protocol support each of its protocols."""
        self.regexes: Counter[str] = Counter()
        """How many members subscribe by each regular expression."""
        self.resolved: dict[str, ResolvedRegex] = {}
        """Regular expressions that are resolved."""
        self.resolved_subscribers: Counter[str] = Counter()
        """How many resolved expressions match each topic."""
        self.has_partition_metadata = False
        """The log has a record as brokers before 4.1 wrote it: its tombstone is still to be written."""

    # What the group is ------------------------------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerGroupState:
        """The state of the group, as administrators see it."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        return ConsumerGroupState.STABLE if self.is_assigned else ConsumerGroupState.RECONCILING

    def owner(self, topic_id: bytes, partition: int) -> str | None:
        """The member that owns the partition, or has still to give it up."""
        return self.owners.get(topic_id, {}).get(partition)

    def subscribes_to(self, topic: str) -> bool:
        """Whether any member subscribes to the topic, by name or by a resolved expression."""
        return topic in self.subscribers or topic in self.resolved_subscribers

    def subscribed_topics(self) -> Collection[str]:
        """The names of all topics that any member subscribes to."""
        if not self.resolved_subscribers:
            return self.subscribers.keys()
        return self.subscribers.keys() | self.resolved_subscribers.keys()

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """The names of the topics that the member subscribes to. An unresolved expression matches nothing."""
        resolved = self.resolved.get(member.subscribed_regex) if member.subscribed_regex else None
        return member.subscribed_topics if resolved is None else member.subscribed_topics | resolved.topics

    def all_use_classic_protocol_except(self, without: Collection[str]) -> bool:
        """Whether all members but those with these ids use the classic protocol."""
        remaining = len(self.members) - len(without)
        remaining_classic = self.classic_members - sum(
            1 for member_id in without if self.members[member_id].classic is not None
        )
        return remaining == remaining_classic

    # Replay -----------------------------------------------------------------------------------------------------------

    def replay(self, key: Any, value: Any) -> None:
        """Apply a record of the group; None as the value: a tombstone."""
        _REPLAY[type(key)](self, key, value)

    def _replay_epoch(self, key: ConsumerGroupMetadataKey, value: ConsumerGroupMetadataValue | None) -> None:
        if value is None:
            self.replay_gone()
        else:
            self.replay_epoch(value.epoch, value.metadata_hash)

    def _replay_partition_metadata(
        self, key: ConsumerGroupPartitionMetadataKey, value: ConsumerGroupPartitionMetadataValue | None
    ) -> None:
        self.has_partition_metadata = value is not None

    def _replay_metadata(
        self, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None
    ) -> None:
        if value is None:
            self.replay_member_removed(key.member_id)
            return
        known = self.members.get(key.member_id) or ConsumerMember(member_id=key.member_id)
        self.replay_member(
            dataclasses.replace(
                known,
                instance_id=value.instance_id,
                rack_id=value.rack_id,
                client_id=value.client_id,
                client_host=value.client_host,
                subscribed_topics=frozenset(value.subscribed_topic_names),
                subscribed_regex=value.subscribed_topic_regex or "",
                rebalance_timeout_ms=value.rebalance_timeout_ms,
                assignor=value.server_assignor,
                classic=_classic_side(value),
            )
        )

    def _replay_assignment_epoch(
        self, key: ConsumerGroupTargetAssignmentMetadataKey, value: ConsumerGroupTargetAssignmentMetadataValue | None
    ) -> None:
        if value is None:
            self.replay_assignment_epoch(NO_ASSIGNMENT_EPOCH, 0)
        else:
            self.replay_assignment_epoch(value.assignment_epoch, value.assignment_timestamp)

    def _replay_target(
        self, key: ConsumerGroupTargetAssignmentMemberKey, value: ConsumerGroupTargetAssignmentMemberValue | None
    ) -> None:
        self.replay_target(key.member_id, None if value is None else partitions_by_topic(value.topic_partitions))

    def _replay_current(
        self, key: ConsumerGroupCurrentMemberAssignmentKey, value: ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> None:
        known = self.members.get(key.member_id)
        if value is None:
            if known is not None:
                self.replay_member(ConsumerMember(**_metadata_of(known)))
            return
        self.replay_member(
            dataclasses.replace(
                known or ConsumerMember(member_id=key.member_id),
                epoch=value.member_epoch,
                previous_epoch=value.previous_member_epoch,
                state=_state(value.state),
                assigned=_owned(value.assigned_partitions, value.member_epoch),
                pending_revocation=_owned(value.partitions_pending_revocation, value.member_epoch),
            )
        )

    def _replay_regex(
        self, key: ConsumerGroupRegularExpressionKey, value: ConsumerGroupRegularExpressionValue | None
    ) -> None:
        old = self.resolved.pop(key.regular_expression, None)
        if old is not None:
            replay_subtract(self.resolved_subscribers, old.topics)
        if value is not None:
            new = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
            self.resolved[key.regular_expression] = new
            self.resolved_subscribers.update(new.topics)

    def _replay_count(self, old: ConsumerMember | None, new: ConsumerMember | None) -> None:
        super()._replay_count(old, new)
        if old is not None:
            self._replay_forget(old)
        if new is not None:
            self._replay_note(new)

    def _replay_forget(self, member: ConsumerMember) -> None:
        for owned in (member.assigned, member.pending_revocation):
            for topic_id, partitions in owned.items():
                owners = self.owners.get(topic_id, {})
                for partition in partitions:
                    if owners.get(partition) == member.member_id:
                        del owners[partition]
                if not owners:
                    self.owners.pop(topic_id, None)
        if member.assignor is not None:
            replay_subtract(self.assignors, (member.assignor,))
        if member.subscribed_regex:
            replay_subtract(self.regexes, (member.subscribed_regex,))
        if member.classic is not None:
            self.classic_members -= 1
            replay_subtract(self.classic_protocols, [protocol.name for protocol in member.classic.protocols])

    def _replay_note(self, member: ConsumerMember) -> None:
        for owned in (member.assigned, member.pending_revocation):
            for topic_id, partitions in owned.items():
                self.owners.setdefault(topic_id, {}).update(dict.fromkeys(partitions, member.member_id))
        if member.assignor is not None:
            self.assignors[member.assignor] += 1
        if member.subscribed_regex:
            self.regexes[member.subscribed_regex] += 1
        if member.classic is not None:
            self.classic_members += 1
            self.classic_protocols.update(protocol.name for protocol in member.classic.protocols)


def _metadata_of(member: ConsumerMember) -> dict[str, Any]:
    """What the record of the member's metadata says, without its assignment."""
    return {
        name: getattr(member, name)
        for name in (
            "member_id",
            "instance_id",
            "rack_id",
            "client_id",
            "client_host",
            "subscribed_topics",
            "subscribed_regex",
            "rebalance_timeout_ms",
            "assignor",
            "classic",
        )
    }


def _classic_side(value: ConsumerGroupMemberMetadataValue) -> ClassicSide | None:
    classic = value.classic_member_metadata
    if classic is None:
        return None
    return ClassicSide(
        classic.session_timeout_ms,
        tuple(Protocol(protocol.name, bytes(protocol.metadata)) for protocol in classic.supported_protocols),
    )


def _state(number: int) -> MemberState:
    try:
        return MemberState(number)
    except ValueError:
        return MemberState.UNKNOWN


def _owned(topics: Iterable[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions], epoch: int) -> Owned:
    return {
        topic.topic_id: by_epoch(topic.partitions, topic.assignment_epochs, epoch)
        for topic in topics
        if topic.partitions
    }


_REPLAY: Final[dict[type[Any], Callable[[ConsumerGroup, Any, Any], None]]] = {
    ConsumerGroupMetadataKey: ConsumerGroup._replay_epoch,
    ConsumerGroupPartitionMetadataKey: ConsumerGroup._replay_partition_metadata,
    ConsumerGroupMemberMetadataKey: ConsumerGroup._replay_metadata,
    ConsumerGroupTargetAssignmentMetadataKey: ConsumerGroup._replay_assignment_epoch,
    ConsumerGroupTargetAssignmentMemberKey: ConsumerGroup._replay_target,
    ConsumerGroupCurrentMemberAssignmentKey: ConsumerGroup._replay_current,
    ConsumerGroupRegularExpressionKey: ConsumerGroup._replay_regex,
}
