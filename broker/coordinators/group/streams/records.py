"""Records of streams groups, in the versions that Kafka 4.4.0 writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.coordinators.group.streams.group import StreamsGroup
from broker.coordinators.group.streams.member import EpochTasks, HeldTasks, StreamsMember, Tasks, TaskSet
from broker.coordinators.group.streams.topology import Topology, topology_value
from protocol.records.group_metadata import (
    GroupRecord,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
)

VERSION: Final = 0


def member_record(group_id: str, member: StreamsMember) -> GroupRecord:
    """The record of a member's metadata."""
    of = StreamsGroupMemberMetadataValue
    endpoint = None
    if member.endpoint is not None:
        endpoint = of.Endpoint(host=member.endpoint.host, port=member.endpoint.port)
    value = of(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=endpoint,
        client_tags=[of.KeyValue(key=key, value=text) for key, text in sorted(member.tags.items())],
    )
    key = StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id)
    return GroupRecord(key, value, VERSION)


def epoch_record(
    group: StreamsGroup, epoch: int, metadata_hash: int, validated_topology_epoch: int, configs: Mapping[str, str]
) -> GroupRecord:
    """The record of the group's epoch. What a Kafka broker has stored of topology descriptions stays."""
    of = StreamsGroupMetadataValue
    value = of(
        epoch=epoch,
        metadata_hash=metadata_hash,
        validated_topology_epoch=validated_topology_epoch,
        last_assignment_configs=[of.LastAssignmentConfig(key=key, value=text) for key, text in configs.items()],
        stored_description_topology_epoch=group.stored_description_epoch,
        failed_description_topology_epoch=group.failed_description_epoch,
    )
    return GroupRecord(StreamsGroupMetadataKey(group_id=group.group_id), value, VERSION)


def topology_record(group_id: str, topology: Topology) -> GroupRecord:
    """The record of the group's topology."""
    return GroupRecord(StreamsGroupTopologyKey(group_id=group_id), topology_value(topology), VERSION)


def assignment_epoch_record(group_id: str, epoch: int, timestamp: int) -> GroupRecord:
    """The record of the epoch that the target assignments are of."""
    value = StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp)
    return GroupRecord(StreamsGroupTargetAssignmentMetadataKey(group_id=group_id), value, VERSION)


def target_record(group_id: str, member_id: str, target: Tasks) -> GroupRecord:
    """The record of a member's target assignment."""
    of = StreamsGroupTargetAssignmentMemberValue

    def structs(tasks: TaskSet) -> list[StreamsGroupTargetAssignmentMemberValue.TaskIds]:
        return [of.TaskIds(subtopology_id=one, partitions=sorted(found)) for one, found in sorted(tasks.items())]

    value = of(
        active_tasks=structs(target.active), standby_tasks=structs(target.standby), warmup_tasks=structs(target.warmup)
    )
    key = StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return GroupRecord(key, value, VERSION)


def current_record(group_id: str, member: StreamsMember) -> GroupRecord:
    """The record of how far a member has come."""
    value = StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        active_tasks=_with_epochs(member.assigned.active),
        standby_tasks=_without_epochs(member.assigned.standby),
        warmup_tasks=_without_epochs(member.assigned.warmup),
        active_tasks_pending_revocation=_with_epochs(member.pending_revocation.active),
        standby_tasks_pending_revocation=_without_epochs(member.pending_revocation.standby),
        warmup_tasks_pending_revocation=_without_epochs(member.pending_revocation.warmup),
    )
    key = StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    return GroupRecord(key, value, VERSION)


def left_for_a_while(member: StreamsMember) -> HeldTasks:
    """The tasks of a static member that has left for a while: whoever takes its place may commit in any epoch."""
    active = {one: dict.fromkeys(partitions, 0) for one, partitions in member.assigned.active.items()}
    return member.assigned._replace(active=active)


def removal(group_id: str, member_id: str) -> list[GroupRecord]:
    """The tombstones of a member."""
    return [
        GroupRecord(key(group_id=group_id, member_id=member_id), None, None)
        for key in (
            StreamsGroupCurrentMemberAssignmentKey,
            StreamsGroupTargetAssignmentMemberKey,
            StreamsGroupMemberMetadataKey,
        )
    ]


def group_tombstones(group: StreamsGroup) -> list[GroupRecord]:
    """The tombstones of all records of a group, in Kafka's order."""
    group_id = group.group_id

    def of_members(
        key: type[
            StreamsGroupCurrentMemberAssignmentKey
            | StreamsGroupTargetAssignmentMemberKey
            | StreamsGroupMemberMetadataKey
        ],
    ) -> list[GroupRecord]:
        return [GroupRecord(key(group_id=group_id, member_id=one), None, None) for one in group.members]

    return [
        *of_members(StreamsGroupCurrentMemberAssignmentKey),
        *of_members(StreamsGroupTargetAssignmentMemberKey),
        GroupRecord(StreamsGroupTargetAssignmentMetadataKey(group_id=group_id), None, None),
        *of_members(StreamsGroupMemberMetadataKey),
        GroupRecord(StreamsGroupMetadataKey(group_id=group_id), None, None),
        GroupRecord(StreamsGroupTopologyKey(group_id=group_id), None, None),
    ]


def _with_epochs(tasks: EpochTasks) -> list[StreamsGroupCurrentMemberAssignmentValue.TaskIds]:
    return [
        StreamsGroupCurrentMemberAssignmentValue.TaskIds(
            subtopology_id=one,
            partitions=sorted(partitions),
            assignment_epochs=[partitions[partition] for partition in sorted(partitions)],
        )
        for one, partitions in sorted(tasks.items())
    ]


def _without_epochs(tasks: TaskSet) -> list[StreamsGroupCurrentMemberAssignmentValue.TaskIds]:
    return [
        StreamsGroupCurrentMemberAssignmentValue.TaskIds(subtopology_id=one, partitions=sorted(partitions))
        for one, partitions in sorted(tasks.items())
    ]
