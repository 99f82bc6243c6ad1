"""Records of groups and of their offsets, in the versions that Kafka 4.4.0 writes."""

from typing import TYPE_CHECKING, Final, TypeAlias

from broker.coordinators.group.image import GroupMetadata
from broker.coordinators.group.requests import OffsetToCommit
from broker.coordinators.result import CoordinatorResult
from protocol.records.group_metadata import (
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
)
from storage.sentinels import NO_TIMESTAMP

if TYPE_CHECKING:
    GroupResult: TypeAlias = CoordinatorResult[GroupRecord]
else:
    # A record that is made through the subscripted name takes a microsecond more (bench: commits).
    GroupResult = CoordinatorResult

GROUP_VERSION: Final = 3
OFFSET_VERSION: Final = 4
EXPIRING_OFFSET_VERSION: Final = 1
"""The only version of an offset's value with a time of expiry for that offset."""


def group_record(group_id: str, metadata: GroupMetadata) -> GroupRecord:
    """The record of a classic group."""
    value = GroupMetadataValue(
        protocol_type=metadata.protocol_type,
        generation=metadata.generation,
        protocol=metadata.protocol,
        leader=metadata.leader,
        current_state_timestamp=metadata.state_timestamp,
        members=[
            GroupMetadataValue.MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.subscription,
                assignment=member.assignment,
            )
            for member in metadata.members.values()
        ],
    )
    return GroupRecord(GroupMetadataKey(group=group_id), value, GROUP_VERSION)


def group_tombstone(group_id: str) -> GroupRecord:
    """The tombstone of a classic group."""
    return GroupRecord(GroupMetadataKey(group=group_id), None, None)


def offset_record(group_id: str, commit: OffsetToCommit, commit_timestamp: int) -> GroupRecord:
    """The record of a committed offset. Fields that its version does not have are left out: it is replayed as it is."""
    key = OffsetCommitKey(group=group_id, topic=commit.topic, partition=commit.partition)
    if commit.expire_timestamp != NO_TIMESTAMP:
        expiring = OffsetCommitValue(
            offset=commit.offset,
            metadata=commit.metadata,
            commit_timestamp=commit_timestamp,
            expire_timestamp=commit.expire_timestamp,
        )
        return GroupRecord(key, expiring, EXPIRING_OFFSET_VERSION)
    value = OffsetCommitValue(
        offset=commit.offset,
        leader_epoch=commit.leader_epoch,
        metadata=commit.metadata,
        commit_timestamp=commit_timestamp,
        topic_id=commit.topic_id,
    )
    return GroupRecord(key, value, OFFSET_VERSION)


def offset_tombstone(group_id: str, topic: str, partition: int) -> GroupRecord:
    """The tombstone of a committed offset."""
    return GroupRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None, None)
