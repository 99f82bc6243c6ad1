"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: groups of the newer protocol (API keys 68 and 69; KIP-848)."""

from collections.abc import Iterable
from typing import Final

from broker.coordinators.group.consumer.member import ConsumerMember, Owned
from broker.coordinators.group.consumer.requests import (
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    DescribedConsumerGroup,
)
from broker.coordinators.group.modern.group import Assignment, partitions_by_topic
from broker.coordinators.group_coordinator import Groups
from broker.handlers.java_order import as_in_timeline_map
from broker.metadata.cache import MetadataCache
from broker.metadata.image.features import GROUP_VERSION
from broker.request.context import GROUP_OPERATIONS, Operation, RequestContext, ResourceType
from broker.request.faults import (
    Fault,
    GroupAuthorizationFailed,
    InvalidRequest,
    TopicAuthorizationFailed,
    UnsupportedAssignor,
    UnsupportedVersion,
)
from broker.runtime.clock import Ids
from broker.runtime.linear_regex import InvalidPattern, LinearRegex
from broker.runtime.worker_thread import WorkerThread
from config.broker_settings import BrokerSettings
from protocol.errors import ErrorCode
from protocol.messages.consumer_groups import (
    AssignmentByName,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
    TopicPartitionsByName,
)
from storage.checkpoints import format_id

CLIENTS_MAKE_IDS_SINCE_VERSION: Final = 1
"""Of ConsumerGroupHeartbeat; before, the coordinator makes the member id of a new member."""

JOINS: Final = 0
LEAVES: Final = -1
LEAVES_FOR_A_WHILE: Final = -2

CLASSIC_MEMBER: Final = 0
MODERN_MEMBER: Final = 1

Described = ConsumerGroupDescribeResponse.Group


class ConsumerGroupsHandler:
    """Asks the coordinator of the group."""

    def __init__(
        self, settings: BrokerSettings, groups: Groups, metadata: MetadataCache, ids: Ids, worker: WorkerThread
    ) -> None:
        """``worker`` compiles regular expressions."""
        self._settings = settings
        self._groups = groups
        self._metadata = metadata
        self._ids = ids
        self._worker = worker

    def heartbeat(self, request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> None:
        """Let a member join, go on or leave."""
        self._check_is_served()
        if not context.may(Operation.READ, ResourceType.GROUP, request.group_id):
            raise GroupAuthorizationFailed(f"{context.session.principal} may not be a member of {request.group_id!r}")
        for topic in request.subscribed_topic_names or ():
            if not context.may(Operation.DESCRIBE, ResourceType.TOPIC, topic):
                raise TopicAuthorizationFailed(f"{context.session.principal} may not see topic {topic!r}")
        self._check(request, context.api_version)
        coordinator = self._groups.of(request.group_id)
        regex = request.subscribed_topic_regex
        if not regex or coordinator.shard.knows_regex(request.group_id, regex):
            self._ask(request, context, None)
            return

        def compiled(error: str | None) -> None:
            try:
                self._ask(request, context, error)
            except Fault as fault:
                context.refuse(request, fault.code, str(fault))

        self._worker.submit(
            lambda: _error_of(regex),
            compiled,
            lambda error: context.refuse(request, ErrorCode.UNKNOWN_SERVER_ERROR, str(error)),
        )

    def _ask(self, request: ConsumerGroupHeartbeatRequest, context: RequestContext, regex_error: str | None) -> None:
        coordinator = self._groups.of(request.group_id)
        owned = request.topic_partitions
        heartbeat = ConsumerHeartbeat(
            group_id=request.group_id,
            member_id=request.member_id or format_id(self._ids.uuid()),
            member_epoch=request.member_epoch,
            instance_id=request.instance_id,
            rack_id=request.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            topics=request.subscribed_topic_names,
            regex=request.subscribed_topic_regex,
            regex_error=regex_error,
            assignor=request.server_assignor,
            owned=None if owned is None else partitions_by_topic(owned),
            client_id=context.client_id or "",
            client_host=f"/{context.peer.host}",
            may_describe=lambda topic: context.may(Operation.DESCRIBE, ResourceType.TOPIC, topic),
        )
        coordinator.write(
            coordinator.shard.consumer_heartbeat(heartbeat, lambda response: context.respond(_response(response)))
        )

    def describe(self, request: ConsumerGroupDescribeRequest, context: RequestContext) -> ConsumerGroupDescribeResponse:
        """Describe consumer groups, each with its own success or error."""
        self._check_is_served()
        answers = [self._describe(group_id, context) for group_id in request.group_ids]
        if request.include_authorized_operations:
            for answer in answers:
                if answer.error_code == ErrorCode.NONE:
                    answer.authorized_operations = context.authorized(
                        GROUP_OPERATIONS, ResourceType.GROUP, answer.group_id
                    )
        return ConsumerGroupDescribeResponse(groups=answers)

    def _check_is_served(self) -> None:
        """Raises `UnsupportedVersion` where the feature or the setting is off."""
        has_feature = self._metadata.image.features.levels.get(GROUP_VERSION, 0) > 0
        if not has_feature or "consumer" not in self._settings.group_coordinator_rebalance_protocols:
            raise UnsupportedVersion("this broker has no consumer groups of the newer protocol")

    def _check(self, request: ConsumerGroupHeartbeatRequest, version: int) -> None:
        """Raises `InvalidRequest`, `UnsupportedAssignor`."""
        epoch = request.member_epoch
        if version >= CLIENTS_MAKE_IDS_SINCE_VERSION or epoch > JOINS or epoch == LEAVES:
            _check_text(request.member_id, "MemberId")
        _check_text(request.group_id, "GroupId")
        _check_text(request.instance_id, "InstanceId")
        _check_text(request.rack_id, "RackId")
        if epoch == JOINS:
            if request.rebalance_timeout_ms == -1:
                raise InvalidRequest("RebalanceTimeoutMs must be provided in first request.")
            if request.topic_partitions is None or request.topic_partitions:
                raise InvalidRequest("TopicPartitions must be empty when (re-)joining.")
            if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
                raise InvalidRequest(
                    "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
                )
        elif epoch == LEAVES_FOR_A_WHILE:
            if request.instance_id is None:
                raise InvalidRequest("InstanceId can't be null.")
        elif epoch < LEAVES_FOR_A_WHILE:
            raise InvalidRequest("MemberEpoch is invalid.")
        assignors = self._settings.group_consumer_assignors
        if request.server_assignor is not None and request.server_assignor not in assignors:
            raise UnsupportedAssignor(
                f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: "
                f"{', '.join(assignors)}."
            )

    def _describe(self, group_id: str, context: RequestContext) -> Described:
        if not context.may(Operation.DESCRIBE, ResourceType.GROUP, group_id):
            return _undescribed(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED, None)
        if not group_id:
            return _undescribed(group_id, ErrorCode.INVALID_GROUP_ID, None)
        try:
            shard = self._groups.of(group_id).shard
        except Fault as fault:
            return _undescribed(group_id, fault.code, None)
        group = shard.describe_consumer_group(group_id)
        if group is None:
            message = (
                f"Group {group_id} not found."
                if shard.kind_of(group_id) is None
                else f"Group {group_id} is not a consumer group."
            )
            return _undescribed(group_id, ErrorCode.GROUP_ID_NOT_FOUND, message)
        described = self._described(group)
        topics = {
            topic.topic_name
            for member in described.members
            for assignment in (member.assignment, member.target_assignment)
            for topic in assignment.topic_partitions
        } | {name for member in described.members for name in member.subscribed_topic_names}
        if not all(context.sees(Operation.DESCRIBE, ResourceType.TOPIC, topic) for topic in topics):
            return _undescribed(
                group_id,
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                "The group has described topic(s) that the client is not authorized to describe.",
            )
        return described

    def _described(self, group: DescribedConsumerGroup) -> Described:
        return Described(
            group_id=group.group_id,
            group_state=group.state,
            group_epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=group.assignor,
            members=[
                self._member(member, target)
                for member, target in as_in_timeline_map(group.members, lambda one: one[0].member_id)
            ],
        )

    def _member(self, member: ConsumerMember, target: Assignment) -> Described.Member:
        return Described.Member(
            member_id=member.member_id,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            member_epoch=member.epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.subscribed_topics),
            subscribed_topic_regex=member.subscribed_regex,
            assignment=self._named(member.held.items()),
            target_assignment=self._named(target.items()),
            member_type=MODERN_MEMBER if member.classic is None else CLASSIC_MEMBER,
        )

    def _named(self, topics: Iterable[tuple[bytes, Iterable[int]]]) -> AssignmentByName:
        by_id = self._metadata.image.topics.by_id
        return AssignmentByName(
            topic_partitions=[
                TopicPartitionsByName(topic_id=topic_id, topic_name=by_id[topic_id].name, partitions=sorted(partitions))
                for topic_id, partitions in sorted(topics)
                if topic_id in by_id
            ]
        )


def _check_text(text: str | None, name: str) -> None:
    """Raises `InvalidRequest` for a text that is there, and blank."""
    if text is not None and not text.strip():
        raise InvalidRequest(f"{name} can't be empty.")


def _error_of(regex: str) -> str | None:
    """Why this is no regular expression; None if it is one."""
    try:
        LinearRegex(regex)
    except InvalidPattern as error:
        return str(error)
    return None


def _response(response: ConsumerHeartbeatAnswer) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=response.error,
        error_message=response.message,
        member_id=response.member_id,
        member_epoch=response.member_epoch,
        heartbeat_interval_ms=response.heartbeat_interval_ms,
        assignment=None if response.assignment is None else _assignment(response.assignment),
    )


def _assignment(assigned: Owned) -> ConsumerGroupHeartbeatResponse.Assignment:
    return ConsumerGroupHeartbeatResponse.Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in sorted(assigned.items())
        ]
    )


def _undescribed(group_id: str, code: ErrorCode, message: str | None) -> Described:
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
