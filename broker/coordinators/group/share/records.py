"""Records of share groups, in the versions that Kafka 4.4.0 writes."""

from __future__ import annotations

from typing import Final

from broker.coordinators.group.modern.group import Assignment
from broker.coordinators.group.share.group import SharedStates, ShareGroup, StateTopics
from broker.coordinators.group.share.member import ShareMember
from protocol.records.group_metadata import (
    GroupRecord,
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

VERSION: Final = 0

_STABLE: Final = 0
"""The state of every member of a share group."""


def member_metadata(group_id: str, member: ShareMember) -> GroupRecord:
    value = ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topics),
    )
    key = ShareGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id)
    return GroupRecord(key, value, VERSION)


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> GroupRecord:
    value = ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return GroupRecord(ShareGroupMetadataKey(group_id=group_id), value, VERSION)


def assignment_epoch(group_id: str, epoch: int, timestamp: int) -> GroupRecord:
    value = ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp)
    return GroupRecord(ShareGroupTargetAssignmentMetadataKey(group_id=group_id), value, VERSION)


def target(group_id: str, member_id: str, assignment: Assignment) -> GroupRecord:
    of = ShareGroupTargetAssignmentMemberValue
    topics = [of.TopicPartition(topic_id=topic, partitions=sorted(found)) for topic, found in assignment.items()]
    key = ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return GroupRecord(key, of(topic_partitions=topics), VERSION)


def current(group_id: str, member: ShareMember) -> GroupRecord:
    of = ShareGroupCurrentMemberAssignmentValue
    value = of(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=_STABLE,
        assigned_partitions=[
            of.TopicPartitions(topic_id=topic, partitions=sorted(found)) for topic, found in member.assigned.items()
        ],
    )
    key = ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    return GroupRecord(key, value, VERSION)


def states(group_id: str, found: SharedStates) -> GroupRecord:
    of = ShareGroupStatePartitionMetadataValue

    def named(topics: StateTopics) -> list[ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo]:
        return [
            of.TopicPartitionsInfo(topic_id=topic_id, topic_name=topic.name, partitions=sorted(topic.partitions))
            for topic_id, topic in topics.items()
        ]

    value = of(
        initializing_topics=named(found.initializing),
        initialized_topics=named(found.initialized),
        deleting_topics=[of.TopicInfo(topic_id=topic_id, topic_name=name) for topic_id, name in found.deleting.items()],
    )
    return GroupRecord(ShareGroupStatePartitionMetadataKey(group_id=group_id), value, VERSION)


def member_tombstones(group_id: str, member_id: str) -> list[GroupRecord]:
    """The tombstones of a member, in Kafka's order."""
    return [
        GroupRecord(key(group_id=group_id, member_id=member_id), None, None)
        for key in (
            ShareGroupCurrentMemberAssignmentKey,
            ShareGroupTargetAssignmentMemberKey,
            ShareGroupMemberMetadataKey,
        )
    ]


def group_tombstones(group: ShareGroup) -> list[GroupRecord]:
    """The tombstones of a group without members, in Kafka's order."""
    return [
        GroupRecord(key(group_id=group.group_id), None, None)
        for key in (
            ShareGroupTargetAssignmentMetadataKey,
            ShareGroupStatePartitionMetadataKey,
            ShareGroupMetadataKey,
        )
    ]
