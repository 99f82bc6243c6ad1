"""Records of consumer groups, as Kafka 4.4.0 writes them. Topics and partitions are in ascending order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from broker.coordinators.group.consumer.group import ResolvedRegex
from broker.coordinators.group.consumer.member import ConsumerMember, Owned
from broker.coordinators.group.modern.group import Assignment
from protocol.records.group_metadata import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupRecord,
)

VERSION: Final = 0


def member_record(group_id: str, member: ConsumerMember) -> GroupRecord:
    """The record of a member's metadata."""
    classic = None
    if member.classic is not None:
        classic = ClassicMemberMetadata(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[
                ClassicMemberMetadata.ClassicProtocol(name=protocol.name, metadata=protocol.metadata)
                for protocol in member.classic.protocols
            ],
        )
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topics),
        subscribed_topic_regex=member.subscribed_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=classic,
    )
    key = ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id)
    return GroupRecord(key, value, VERSION)


def member_tombstone(group_id: str, member_id: str) -> GroupRecord:
    """The tombstone of a member's metadata."""
    return GroupRecord(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None, None)


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> GroupRecord:
    """The record of the group's epoch."""
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return GroupRecord(ConsumerGroupMetadataKey(group_id=group_id), value, VERSION)


def epoch_tombstone(group_id: str) -> GroupRecord:
    """The last record of a group."""
    return GroupRecord(ConsumerGroupMetadataKey(group_id=group_id), None, None)


def partition_metadata_tombstone(group_id: str) -> GroupRecord:
    """Removes what brokers before 4.1 wrote of the group's topics."""
    return GroupRecord(ConsumerGroupPartitionMetadataKey(group_id=group_id), None, None)


def assignment_epoch_record(group_id: str, epoch: int, timestamp: int) -> GroupRecord:
    """The record of the epoch that the target assignments are of."""
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp)
    return GroupRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value, VERSION)


def assignment_epoch_tombstone(group_id: str) -> GroupRecord:
    """The tombstone of the epoch of the target assignments."""
    return GroupRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None, None)


def target_record(group_id: str, member_id: str, target: Assignment) -> GroupRecord:
    """The record of a member's target assignment."""
    value = ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            ConsumerGroupTargetAssignmentMemberValue.TopicPartition(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in sorted(target.items())
        ]
    )
    key = ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return GroupRecord(key, value, VERSION)


def target_tombstone(group_id: str, member_id: str) -> GroupRecord:
    """The tombstone of a member's target assignment."""
    return GroupRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None, None)


def current_record(group_id: str, member: ConsumerMember) -> GroupRecord:
    """The record of how far a member has come."""
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=_with_epochs(member.assigned),
        partitions_pending_revocation=_with_epochs(member.pending_revocation),
    )
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    return GroupRecord(key, value, VERSION)


def current_tombstone(group_id: str, member_id: str) -> GroupRecord:
    """The tombstone of how far a member has come."""
    return GroupRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None, None)


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> GroupRecord:
    """The record of a regular expression with the topics that it matches."""
    value = ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp
    )
    return GroupRecord(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), value, VERSION)


def regex_tombstone(group_id: str, regex: str) -> GroupRecord:
    """The tombstone of a regular expression."""
    return GroupRecord(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), None, None)


def removal(group_id: str, member_id: str) -> list[GroupRecord]:
    """The tombstones of a member."""
    return [
        current_tombstone(group_id, member_id),
        target_tombstone(group_id, member_id),
        member_tombstone(group_id, member_id),
    ]


def group_tombstones(group_id: str, members: Iterable[str], regexes: Iterable[str]) -> list[GroupRecord]:
    """The tombstones of all records of a group."""
    member_ids = tuple(members)
    return [
        *(current_tombstone(group_id, member_id) for member_id in member_ids),
        *(target_tombstone(group_id, member_id) for member_id in member_ids),
        assignment_epoch_tombstone(group_id),
        *(member_tombstone(group_id, member_id) for member_id in member_ids),
        *(regex_tombstone(group_id, regex) for regex in regexes),
        partition_metadata_tombstone(group_id),
        epoch_tombstone(group_id),
    ]


def _with_epochs(owned: Owned) -> list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions]:
    return [
        ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions(
            topic_id=topic_id,
            partitions=sorted(partitions),
            assignment_epochs=[partitions[partition] for partition in sorted(partitions)],
        )
        for topic_id, partitions in sorted(owned.items())
    ]
