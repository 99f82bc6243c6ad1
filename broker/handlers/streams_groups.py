"""StreamsGroupHeartbeat, StreamsGroupDescribe and StreamsGroupTopologyDescriptionUpdate (API keys 88, 89 and 93;
KIP-1071)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from broker.controller.client import AutoCreation
from broker.coordinators.group.streams.assignor import TaskOffsets
from broker.coordinators.group.streams.member import Endpoint, HeldTasks, Tasks, task_set
from broker.coordinators.group.streams.requests import (
    DescribedStreamsGroup,
    DescribedStreamsMember,
    EndpointPartitions,
    StreamsHeartbeat,
    StreamsHeartbeatAnswer,
)
from broker.coordinators.group.streams.topology import (
    Configured,
    InternalTopic,
    Status,
    StatusCode,
    Topology,
    topology_of,
)
from broker.coordinators.group_coordinator import Groups
from broker.handlers.java_order import as_in_timeline_map
from broker.metadata.automatic_topics import CONTROLLERS_DEFAULT, AutomaticTopic
from broker.metadata.cache import MetadataCache
from broker.metadata.image.features import STREAMS_VERSION
from broker.metadata.topic_rules import INTERNAL_TOPICS, fault_of_name
from broker.request.context import GROUP_OPERATIONS, Operation, RequestContext, ResourceType
from broker.request.faults import (
    Fault,
    GroupAuthorizationFailed,
    InvalidRequest,
    StreamsInvalidTopology,
    TopicAuthorizationFailed,
    UnsupportedVersion,
)
from broker.runtime.clock import Clock
from config.broker_settings import BrokerSettings
from protocol.errors import ErrorCode
from protocol.messages.streams_groups import (
    Assignment,
    KeyValue,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    StreamsGroupTopologyDescriptionUpdateRequest,
    TaskIds,
    TaskOffset,
    TopicInfo,
    TopicPartition,
)
from protocol.messages.streams_groups import Endpoint as EndpointStruct
from protocol.messages.streams_groups import Status as StatusStruct

JOINS: Final = 0
LEAVES_FOR_A_WHILE: Final = -2

MISSING_TAGS_SINCE_VERSION: Final = 1
"""Of StreamsGroupHeartbeat."""

ERRORS_LISTED: Final = 3
"""How many topics that could not be created an answer names."""

MOST_ERRORS: Final = 1_000
"""Of how many topics it is known why they could not be created."""

NO_DESCRIPTION_ASKED: Final = 0
NOTHING_STORED: Final = 1
"""Of TopologyDescriptionStatus: this broker has no plugin that stores topology descriptions."""

Described = StreamsGroupDescribeResponse.Group


class StreamsGroupsHandler:
    """Asks the coordinator of the group, and the controllers for internal topics."""

    def __init__(
        self,
        settings: BrokerSettings,
        groups: Groups,
        metadata: MetadataCache,
        creation: AutoCreation,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._groups = groups
        self._metadata = metadata
        self._topics = InternalTopics(creation, clock)

    def heartbeat(self, request: StreamsGroupHeartbeatRequest, context: RequestContext) -> None:
        """Let a member join, go on or leave. Internal topics of its application that are missing are created."""
        self._check_is_served()
        if not context.may(Operation.READ, ResourceType.GROUP, request.group_id):
            raise GroupAuthorizationFailed(f"{context.session.principal} may not be a member of {request.group_id!r}")
        if request.topology is not None:
            _check_topics(request.topology, context)
        _check(request)
        heartbeat = _heartbeat(request, context)

        def answered(response: StreamsHeartbeatAnswer) -> None:
            statuses = response.statuses
            if response.missing:
                statuses = self._topics.wanted(response.missing, statuses, response.heartbeat_interval_ms * 2, context)
            context.respond(_response(response._replace(statuses=statuses)))

        coordinator = self._groups.of(request.group_id)
        coordinator.write(coordinator.shard.streams_heartbeat(heartbeat, answered))

    def describe(self, request: StreamsGroupDescribeRequest, context: RequestContext) -> StreamsGroupDescribeResponse:
        """Describe streams groups, each with its own success or error."""
        self._check_is_served()
        answers = [self._describe(group_id, context) for group_id in request.group_ids]
        for answer in answers:
            if answer.error_code == ErrorCode.NONE:
                if request.include_authorized_operations:
                    answer.authorized_operations = context.authorized(
                        GROUP_OPERATIONS, ResourceType.GROUP, answer.group_id
                    )
                if request.include_topology_description:
                    answer.topology_description_status = NOTHING_STORED
        return StreamsGroupDescribeResponse(groups=answers)

    def update_topology_description(
        self, request: StreamsGroupTopologyDescriptionUpdateRequest, context: RequestContext
    ) -> None:
        """Raises `UnsupportedVersion`, as a Kafka without a plugin for topology descriptions answers."""
        self._check_is_served()
        if not context.may(Operation.READ, ResourceType.GROUP, request.group_id):
            raise GroupAuthorizationFailed(f"{context.session.principal} may not be a member of {request.group_id!r}")
        raise UnsupportedVersion("The broker has no streams group topology description plugin configured.")

    def _check_is_served(self) -> None:
        """Raises `UnsupportedVersion` where the feature or the setting is off."""
        has_feature = self._metadata.image.features.levels.get(STREAMS_VERSION, 0) > 0
        if not has_feature or "streams" not in self._settings.group_coordinator_rebalance_protocols:
            raise UnsupportedVersion("this broker has no streams groups")

    def _describe(self, group_id: str, context: RequestContext) -> Described:
        if not context.may(Operation.DESCRIBE, ResourceType.GROUP, group_id):
            return _undescribed(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED, None)
        if not group_id:
            return _undescribed(group_id, ErrorCode.INVALID_GROUP_ID, None)
        try:
            shard = self._groups.of(group_id).shard
        except Fault as fault:
            return _undescribed(group_id, fault.code, None)
        group = shard.describe_streams_group(group_id)
        if group is None:
            what = "not found" if shard.kind_of(group_id) is None else "is not a streams group"
            return _undescribed(group_id, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {what}.")
        described = _described(group)
        if group.topology is not None and not all(
            context.sees(Operation.DESCRIBE, ResourceType.TOPIC, name) for name in _names(group.topology)
        ):
            return _undescribed(
                group_id,
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                "The described group uses topics that the client is not authorized to describe.",
            )
        return described


class InternalTopics:
    """Has internal topics of applications created. A topic that could not be created is tried again after a while, and
    the applications are told why until then."""

    def __init__(self, creation: AutoCreation, clock: Clock) -> None:
        self._creation = creation
        self._clock = clock
        self._under_way: set[str] = set()
        self._errors: dict[str, tuple[int, str]] = {}
        """Until when the reason is kept, in milliseconds of the monotonic clock, and the reason, by name."""

    def wanted(
        self, topics: Sequence[InternalTopic], statuses: Sequence[Status], timeout_ms: int, context: RequestContext
    ) -> Sequence[Status]:
        """Have the topics created, if the client may create them. Returns the statuses with what went wrong before.

        Args:
            topics: the topics that are missing.
            statuses: of the heartbeat's answer; one of them says that topics are missing.
            timeout_ms: how long the reason is kept why a topic could not be created.
            context: the client's request.
        """
        if not context.may(Operation.CREATE, ResourceType.CLUSTER):
            refused = [one.name for one in topics if not context.may(Operation.CREATE, ResourceType.TOPIC, one.name)]
            if refused:
                return _told(statuses, f"Unauthorized to CREATE on topics {', '.join(refused)}.")
        now_ms = self._clock.monotonic_ms()
        for name, (until_ms, _) in list(self._errors.items()):
            if until_ms <= now_ms:
                del self._errors[name]
        failed = [(one.name, self._errors[one.name][1]) for one in topics if one.name in self._errors]
        new = [one for one in topics if one.name not in self._under_way and one.name not in self._errors]
        if new:
            asked = {one.name: _to_create(one) for one in new}
            self._under_way.update(asked)
            self._creation.create_in_the_name_of(context, asked, self._ended(asked, timeout_ms))
        if not failed:
            return statuses
        more = len(failed) - ERRORS_LISTED
        listed = ", ".join(f"{name} ({why})" for name, why in failed[:ERRORS_LISTED])
        return _told(statuses, f"Creation failed: {listed}{f' and {more} more' if more > 0 else ''}.")

    def _ended(self, names: Iterable[str], timeout_ms: int) -> Callable[[Mapping[str, str]], None]:
        def ended(failures: Mapping[str, str]) -> None:
            self._under_way.difference_update(names)
            until_ms = self._clock.monotonic_ms() + timeout_ms
            for name, why in failures.items():
                if len(self._errors) < MOST_ERRORS:
                    self._errors[name] = until_ms, why

        return ended


def _to_create(topic: InternalTopic) -> AutomaticTopic:
    return AutomaticTopic(topic.partitions, topic.replication_factor or CONTROLLERS_DEFAULT, topic.configs)


def _told(statuses: Sequence[Status], what: str) -> Sequence[Status]:
    """The statuses with more about the missing internal topics."""
    return [
        one._replace(detail=f"{one.detail}; {what}") if one.code is StatusCode.MISSING_INTERNAL_TOPICS else one
        for one in statuses
    ]


# Requests -------------------------------------------------------------------------------------------------------------


def _check_topics(topology: StreamsGroupHeartbeatRequest.Topology, context: RequestContext) -> None:
    """Raises `StreamsInvalidTopology` and `TopicAuthorizationFailed`."""
    names = list(dict.fromkeys(_names(topology_of(topology))))
    internal = [name for name in names if name in INTERNAL_TOPICS]
    if internal:
        listed = ",".join(internal)
        raise StreamsInvalidTopology(
            f"Use of Kafka internal topics {listed} in a Kafka Streams topology is prohibited."
        )
    invalid = [name for name in names if fault_of_name(name) is not None]
    if invalid:
        raise StreamsInvalidTopology(f"Topic names {','.join(invalid)} are not valid topic names.")
    for name in names:
        if not context.may(Operation.DESCRIBE, ResourceType.TOPIC, name):
            raise TopicAuthorizationFailed(f"{context.session.principal} may not see topic {name!r}")


def _names(topology: Topology) -> Iterator[str]:
    for one in topology.subtopologies:
        yield from one.source_topics
        yield from one.repartition_sinks
        yield from (topic.name for topic in (*one.repartition_sources, *one.changelogs))


def _check(request: StreamsGroupHeartbeatRequest) -> None:
    """Raises `InvalidRequest` and `StreamsInvalidTopology`."""
    subtopologies = request.topology.subtopologies if request.topology is not None else ()
    if any(one.source_topic_regex for one in subtopologies):
        raise InvalidRequest("Regular expressions for source topics are not supported yet.")
    for text, name in (
        (request.member_id, "MemberId"),
        (request.group_id, "GroupId"),
        (request.instance_id, "InstanceId"),
        (request.rack_id, "RackId"),
    ):
        if text is not None and not text.strip():
            raise InvalidRequest(f"{name} can't be empty.")
    roles = (
        ("ActiveTasks", request.active_tasks),
        ("StandbyTasks", request.standby_tasks),
        ("WarmupTasks", request.warmup_tasks),
    )
    if request.member_epoch == JOINS:
        if request.rebalance_timeout_ms == -1:
            raise InvalidRequest("RebalanceTimeoutMs must be provided in first request.")
        for name, tasks in roles:
            if tasks is None or tasks:
                raise InvalidRequest(f"{name} must be empty when (re-)joining.")
        if request.topology is None:
            raise InvalidRequest("Topology must be non-null when (re-)joining.")
        for topic in (topic for one in subtopologies for topic in one.state_changelog_topics):
            if topic.partitions:
                raise StreamsInvalidTopology(
                    f"Changelog topic {topic.name} must have an undefined partition count, but it is set to "
                    f"{topic.partitions}."
                )
    elif request.member_epoch == LEAVES_FOR_A_WHILE:
        if request.instance_id is None:
            raise InvalidRequest("InstanceId can't be null.")
    elif request.member_epoch < LEAVES_FOR_A_WHILE:
        raise InvalidRequest(f"MemberEpoch is {request.member_epoch}, but must be greater than or equal to -2.")
    given = [tasks is not None for _, tasks in roles]
    if any(given) and not all(given):
        raise InvalidRequest("If one task-type is non-null, all must be non-null.")
    if request.member_epoch != JOINS and request.topology is not None:
        raise InvalidRequest("Topology can only be provided when (re-)joining.")


def _heartbeat(request: StreamsGroupHeartbeatRequest, context: RequestContext) -> StreamsHeartbeat:
    owned = None
    if request.active_tasks is not None:
        owned = Tasks(
            task_set(request.active_tasks), task_set(request.standby_tasks or ()), task_set(request.warmup_tasks or ())
        )
    endpoint = request.user_endpoint
    return StreamsHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        endpoint_epoch=request.endpoint_information_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topology=None if request.topology is None else topology_of(request.topology),
        owned=owned,
        process_id=request.process_id,
        endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        tags=None if request.client_tags is None else {tag.key: tag.value for tag in request.client_tags},
        offsets=_offsets(request.task_offsets),
        end_offsets=_offsets(request.task_end_offsets),
        shuts_down=request.shutdown_application,
        client_id=context.client_id or "",
        client_host=f"/{context.peer.host}",
        knows_missing_tags=context.api_version >= MISSING_TAGS_SINCE_VERSION,
    )


def _offsets(structs: Sequence[TaskOffset] | None) -> TaskOffsets | None:
    return None if structs is None else {(one.subtopology_id, one.partition): one.offset for one in structs}


# Answers --------------------------------------------------------------------------------------------------------------


def _response(response: StreamsHeartbeatAnswer) -> StreamsGroupHeartbeatResponse:
    tasks, endpoints = response.tasks, response.endpoints
    return StreamsGroupHeartbeatResponse(
        error_code=response.error,
        error_message=response.message,
        member_id=response.member_id,
        member_epoch=response.member_epoch,
        heartbeat_interval_ms=response.heartbeat_interval_ms,
        task_offset_interval_ms=response.task_offset_interval_ms,
        acceptable_recovery_lag=response.acceptable_recovery_lag,
        status=[StatusStruct(status_code=one.code, status_detail=one.detail) for one in response.statuses],
        active_tasks=None if tasks is None else _task_ids(tasks.active),
        standby_tasks=None if tasks is None else _task_ids(tasks.standby),
        warmup_tasks=None if tasks is None else _task_ids(tasks.warmup),
        endpoint_information_epoch=response.endpoint_epoch,
        partitions_by_user_endpoint=None if endpoints is None else [_endpoint(one) for one in endpoints],
    )


def _endpoint(one: EndpointPartitions) -> StreamsGroupHeartbeatResponse.PartitionsByUserEndpoint:
    def partitions(topics: Sequence[tuple[str, Sequence[int]]]) -> list[TopicPartition]:
        return [TopicPartition(topic=name, partitions=list(numbers)) for name, numbers in topics]

    return StreamsGroupHeartbeatResponse.PartitionsByUserEndpoint(
        user_endpoint=EndpointStruct(host=one.endpoint.host, port=one.endpoint.port),
        active_partitions=partitions(one.active),
        standby_partitions=partitions(one.standby),
    )


def _task_ids(tasks: Mapping[str, Iterable[int]]) -> list[TaskIds]:
    return [TaskIds(subtopology_id=one, partitions=sorted(partitions)) for one, partitions in sorted(tasks.items())]


def _undescribed(group_id: str, code: ErrorCode, message: str | None) -> Described:
    return Described(
        error_code=code,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        members=[],
    )


def _described(group: DescribedStreamsGroup) -> Described:
    return Described(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        topology=None if group.topology is None else _topology(group.topology, group.configured),
        members=[_member(one) for one in as_in_timeline_map(group.members, lambda one: one.member.member_id)],
    )


def _topology(topology: Topology, configured: Configured | None) -> Described.Topology:
    """With numbers of partitions where the topics of the cluster say how many there are."""
    known = configured.subtopologies if configured is not None and configured.is_ready else {}
    subtopologies = []
    for one in sorted(topology.subtopologies):
        in_cluster = known.get(one.subtopology_id, one)
        subtopologies.append(
            Described.Topology.Subtopology(
                subtopology_id=one.subtopology_id,
                source_topics=sorted(one.source_topics),
                repartition_sink_topics=sorted(one.repartition_sinks),
                state_changelog_topics=[_topic(topic) for topic in sorted(in_cluster.changelogs)],
                repartition_source_topics=[_topic(topic) for topic in sorted(in_cluster.repartition_sources)],
            )
        )
    return Described.Topology(epoch=topology.epoch, subtopologies=subtopologies)


def _topic(topic: InternalTopic) -> TopicInfo:
    return TopicInfo(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        topic_configs=[KeyValue(key=key, value=value) for key, value in topic.configs],
    )


def _member(described: DescribedStreamsMember) -> Described.Member:
    member = described.member
    endpoint = member.endpoint
    return Described.Member(
        member_id=member.member_id,
        member_epoch=member.epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else EndpointStruct(host=endpoint.host, port=endpoint.port),
        client_tags=[KeyValue(key=key, value=value) for key, value in sorted(member.tags.items())],
        task_offsets=_task_offsets(described.offsets),
        task_end_offsets=_task_offsets(described.end_offsets),
        assignment=_assignment(member.assigned),
        target_assignment=_assignment(described.target),
        is_classic=False,
    )


def _assignment(tasks: HeldTasks | Tasks) -> Assignment:
    return Assignment(
        active_tasks=_task_ids(tasks.active),
        standby_tasks=_task_ids(tasks.standby),
        warmup_tasks=_task_ids(tasks.warmup),
    )


def _task_offsets(offsets: TaskOffsets) -> list[TaskOffset]:
    return [
        TaskOffset(subtopology_id=subtopology, partition=partition, offset=offset)
        for (subtopology, partition), offset in sorted(offsets.items())
    ]
