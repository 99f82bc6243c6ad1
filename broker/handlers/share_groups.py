"""ShareGroupHeartbeat and ShareGroupDescribe (API keys 76 and 77; KIP-932)."""

from typing import Final

from broker.coordinators.group.modern.group import Assignment
from broker.coordinators.group.share.requests import DescribedShareGroup, ShareHeartbeat, ShareHeartbeatAnswer
from broker.coordinators.group_coordinator import Groups
from broker.handlers.java_order import as_in_timeline_map
from broker.metadata.cache import MetadataCache
from broker.metadata.image.features import SHARE_VERSION
from broker.request.context import GROUP_OPERATIONS, Operation, RequestContext, ResourceType
from broker.request.faults import (
    Fault,
    GroupAuthorizationFailed,
    InvalidGroupId,
    InvalidRequest,
    TopicAuthorizationFailed,
    UnsupportedVersion,
)
from protocol.errors import ErrorCode
from protocol.messages.share_groups import (
    DescribedAssignment,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
    TopicPartitionsByName,
)

Described = ShareGroupDescribeResponse.Group

LONGEST_MEMBER_ID: Final = 36
LEAST_EPOCH: Final = -1
ASSIGNOR: Final = "simple"


def check_share_groups(metadata: MetadataCache) -> None:
    """Raises `UnsupportedVersion` where share.version is not finalised."""
    if not metadata.image.features.levels.get(SHARE_VERSION, 0):
        raise UnsupportedVersion("share.version is not finalised: the cluster has no share groups")


class ShareGroupsHandler:
    """Asks the coordinator of the group."""

    def __init__(self, groups: Groups, metadata: MetadataCache) -> None:
        self._groups = groups
        self._metadata = metadata

    def share_group_heartbeat(self, request: ShareGroupHeartbeatRequest, context: RequestContext) -> None:
        """Let a member join, go on or leave. Raises Fault."""
        check_share_groups(self._metadata)
        self._check(request, context)
        heartbeat = ShareHeartbeat(
            group_id=request.group_id,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            rack_id=request.rack_id,
            client_id=context.client_id or "",
            client_host=f"/{context.peer.host}",
            subscribed_topics=request.subscribed_topic_names,
        )
        coordinator = self._groups.of(request.group_id)
        coordinator.write(
            coordinator.shard.share_heartbeat(heartbeat, lambda answer: context.respond(_heartbeat(answer)))
        )

    def _check(self, request: ShareGroupHeartbeatRequest, context: RequestContext) -> None:
        if not context.may(Operation.READ, ResourceType.GROUP, request.group_id):
            raise GroupAuthorizationFailed(f"{context.session.principal} may not read in {request.group_id!r}")
        if not 0 < len(request.member_id) <= LONGEST_MEMBER_ID:
            raise InvalidRequest("Invalid member id in the request.")
        for name in dict.fromkeys(request.subscribed_topic_names or ()):
            if not context.may(Operation.DESCRIBE, ResourceType.TOPIC, name):
                raise TopicAuthorizationFailed(f"{context.session.principal} may not see topic {name}")
        if not request.group_id:
            raise InvalidRequest("GroupId can't be empty.")
        if request.rack_id == "":
            raise InvalidRequest("RackId can't be empty.")
        if request.member_epoch == 0 and not request.subscribed_topic_names:
            raise InvalidRequest("SubscribedTopicNames must be set in first request.")
        if request.member_epoch < LEAST_EPOCH:
            raise InvalidRequest("MemberEpoch is invalid.")

    def share_group_describe(
        self, request: ShareGroupDescribeRequest, context: RequestContext
    ) -> ShareGroupDescribeResponse:
        """Describe share groups, each with its own success or error. Raises `UnsupportedVersion`."""
        check_share_groups(self._metadata)
        answers = [self._describe(group_id, context) for group_id in request.group_ids]
        if request.include_authorized_operations:
            for answer in answers:
                if answer.error_code == ErrorCode.NONE:
                    answer.authorized_operations = context.authorized(
                        GROUP_OPERATIONS, ResourceType.GROUP, answer.group_id
                    )
        return ShareGroupDescribeResponse(groups=answers)

    def _describe(self, group_id: str, context: RequestContext) -> Described:
        try:
            if not context.may(Operation.DESCRIBE, ResourceType.GROUP, group_id):
                raise GroupAuthorizationFailed
            if not group_id:
                raise InvalidGroupId
            group = self._groups.of(group_id).shard.describe_share_group(group_id)
        except Fault as fault:
            return _without_group(group_id, fault.code, None)
        if group is None:
            return _without_group(group_id, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        described = self._described(group)
        topics = {topic.topic_name for member in described.members for topic in member.assignment.topic_partitions}
        if all(context.may(Operation.DESCRIBE, ResourceType.TOPIC, topic) for topic in topics):
            return described
        why = "The group has described topic(s) that the client is not authorized to describe."
        return _without_group(group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, why)

    def _described(self, group: DescribedShareGroup) -> Described:
        return Described(
            group_id=group.group_id,
            group_state=group.state,
            group_epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=ASSIGNOR,
            members=[
                Described.Member(
                    member_id=member.member_id,
                    rack_id=member.rack_id,
                    member_epoch=member.epoch,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    subscribed_topic_names=list(member.subscribed_topics),
                    assignment=DescribedAssignment(topic_partitions=self._named(member.assigned)),
                )
                for member in as_in_timeline_map(group.members, lambda member: member.member_id)
            ],
        )

    def _named(self, assignment: Assignment) -> list[TopicPartitionsByName]:
        """The topics that exist."""
        topics = self._metadata.image.topics.by_id
        return [
            TopicPartitionsByName(topic_id=topic_id, topic_name=topic.name, partitions=sorted(partitions))
            for topic_id, partitions in assignment.items()
            if (topic := topics.get(topic_id)) is not None
        ]


def _without_group(group_id: str, code: ErrorCode, message: str | None) -> Described:
    return Described(
        error_code=code,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )


def _heartbeat(answer: ShareHeartbeatAnswer) -> ShareGroupHeartbeatResponse:
    assignment = None
    if answer.assignment is not None:
        assignment = ShareGroupHeartbeatResponse.Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in answer.assignment.items()
            ]
        )
    return ShareGroupHeartbeatResponse(
        error_code=answer.error,
        error_message=answer.message,
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=assignment,
    )
