"""The one list of APIs: which request goes to which handler."""

from broker.clock import Clock
from broker.coordinators.group_coordinator import Groups
from broker.dispatch.registry import Handlers, Registry
from broker.handlers.api_versions import ApiVersionsHandler
from broker.handlers.fetch import FETCH_CONSUMER, FetchHandler
from broker.handlers.init_producer_id import InitProducerIdHandler
from broker.handlers.list_offsets import ListOffsetsHandler
from broker.handlers.metadata import MetadataHandler
from broker.handlers.plain_fetch import PlainFetches
from broker.handlers.produce import ProduceHandler
from broker.handlers.topics import TopicsHandler
from broker.metadata.configs import ConfigView
from broker.metadata.controller import Controller
from broker.metadata.log import MetadataLog
from broker.metadata.producer_ids import ProducerIds
from broker.replication.fetch_sessions import FetchSessions
from broker.replication.replica_manager import ReplicaManager
from broker.request.node import Node
from config.broker_settings import BrokerSettings
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.cluster import DescribeClusterRequest, DescribeClusterResponse
from protocol.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from protocol.messages.config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from protocol.messages.elections import ElectLeadersRequest, ElectLeadersResponse
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.group_membership import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from protocol.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from protocol.messages.log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.messages.quorum import DescribeQuorumRequest, DescribeQuorumResponse
from protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from protocol.messages.topic_partitions import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse
from protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from storage.log_manager import LogManager

PRODUCE_ADVERTISED = (0, 13)
"""Old librdkafka looks for the first versions of Produce and drops features without them; nobody serves them."""


def serve_all(
    registry: Registry,
    *,
    settings: BrokerSettings,
    node: Node,
    replicas: ReplicaManager,
    fetch_sessions: FetchSessions,
    metadata_log: MetadataLog,
    logs: LogManager,
    clock: Clock,
    controller: Controller,
    producer_ids: ProducerIds,
    groups: Groups,
) -> None:
    """Put every API into the registry."""
    publisher = metadata_log.publisher
    image = publisher.image
    configs = ConfigView(image, settings)

    produce = ProduceHandler(replicas, image)
    registry.serve(
        ProduceRequest,
        ProduceResponse,
        produce.produce,
        refuse=produce.refuse,
        advertised=PRODUCE_ADVERTISED,
        keeps_frame=True,
    )
    fetch = FetchHandler(replicas, fetch_sessions, image, node, fetch_max_bytes=settings.fetch_max_bytes)
    plain_fetches = PlainFetches(replicas, image, fetch_max_bytes=settings.fetch_max_bytes)
    registry.serve(
        FetchRequest,
        FetchResponse,
        fetch.fetch,
        refuse=fetch.refuse,
        shortcut=plain_fetches.fetch,
        counted_as=FETCH_CONSUMER,
    )
    list_offsets = ListOffsetsHandler(replicas)
    registry.serve(ListOffsetsRequest, ListOffsetsResponse, list_offsets.list_offsets, refuse=list_offsets.refuse)
    metadata = MetadataHandler(image, controller, node, auto_create_topics_enable=settings.auto_create_topics_enable)
    registry.serve(MetadataRequest, MetadataResponse, metadata.metadata, refuse=metadata.refuse)
    api_versions = ApiVersionsHandler(publisher, metadata_log.quorum)
    registry.serve(ApiVersionsRequest, ApiVersionsResponse, api_versions.api_versions, refuse=api_versions.refuse)
    topics = TopicsHandler(controller, image, configs)
    registry.serve(CreateTopicsRequest, CreateTopicsResponse, topics.create_topics, refuse=topics.refuse_creation)
    registry.serve(DeleteTopicsRequest, DeleteTopicsResponse, topics.delete_topics, refuse=topics.refuse_deletion)
    registry.serve(
        CreatePartitionsRequest, CreatePartitionsResponse, topics.create_partitions, refuse=topics.refuse_growth
    )
    init_producer_id = InitProducerIdHandler(producer_ids)
    registry.serve(
        InitProducerIdRequest,
        InitProducerIdResponse,
        init_producer_id.init_producer_id,
        refuse=init_producer_id.refuse,
    )

    def administration() -> Handlers:
        from broker.handlers.alter_configs import AlterConfigsHandler
        from broker.handlers.cluster import ClusterHandler
        from broker.handlers.config_resources import ConfigResourcesHandler
        from broker.handlers.configs import ConfigsHandler
        from broker.handlers.delete_records import DeleteRecordsHandler
        from broker.handlers.elections import ElectionsHandler
        from broker.handlers.log_dirs import LogDirsHandler
        from broker.handlers.offset_for_leader_epoch import OffsetForLeaderEpochHandler
        from broker.handlers.quorum import QuorumHandler
        from broker.handlers.reassignments import ReassignmentsHandler
        from broker.handlers.topic_partitions import TopicPartitionsHandler

        altered = AlterConfigsHandler(controller, configs)
        cluster = ClusterHandler(node)
        deletion = DeleteRecordsHandler(replicas)
        described = ConfigsHandler(configs, image)
        elections = ElectionsHandler(image, node)
        epochs = OffsetForLeaderEpochHandler(replicas)
        log_dirs = LogDirsHandler(logs)
        partitions = TopicPartitionsHandler(image, most_partitions=settings.max_request_partition_size_limit)
        quorum = QuorumHandler(metadata_log, node, clock)
        reassignments = ReassignmentsHandler(controller, image)
        resources = ConfigResourcesHandler(image, node)
        return {
            DeleteRecordsRequest: (deletion.delete_records, deletion.refuse),
            OffsetForLeaderEpochRequest: (epochs.offset_for_leader_epoch, epochs.refuse),
            DescribeConfigsRequest: (described.describe_configs, described.refuse),
            AlterConfigsRequest: (altered.alter_configs, altered.refuse),
            IncrementalAlterConfigsRequest: (altered.incremental_alter_configs, altered.refuse_incremental),
            DescribeClusterRequest: (cluster.describe_cluster, cluster.refuse),
            DescribeLogDirsRequest: (log_dirs.describe_log_dirs, log_dirs.refuse),
            ElectLeadersRequest: (elections.elect_leaders, elections.refuse),
            AlterPartitionReassignmentsRequest: (
                reassignments.alter_partition_reassignments,
                reassignments.refuse_alteration,
            ),
            ListPartitionReassignmentsRequest: (reassignments.list_partition_reassignments, reassignments.refuse),
            DescribeQuorumRequest: (quorum.describe_quorum, quorum.refuse),
            DescribeTopicPartitionsRequest: (partitions.describe_topic_partitions, partitions.refuse),
            ListConfigResourcesRequest: (resources.list_config_resources, resources.refuse),
        }

    registry.serve_late(
        {
            DeleteRecordsRequest: DeleteRecordsResponse,
            OffsetForLeaderEpochRequest: OffsetForLeaderEpochResponse,
            DescribeConfigsRequest: DescribeConfigsResponse,
            AlterConfigsRequest: AlterConfigsResponse,
            IncrementalAlterConfigsRequest: IncrementalAlterConfigsResponse,
            DescribeClusterRequest: DescribeClusterResponse,
            DescribeLogDirsRequest: DescribeLogDirsResponse,
            ElectLeadersRequest: ElectLeadersResponse,
            AlterPartitionReassignmentsRequest: AlterPartitionReassignmentsResponse,
            ListPartitionReassignmentsRequest: ListPartitionReassignmentsResponse,
            DescribeQuorumRequest: DescribeQuorumResponse,
            DescribeTopicPartitionsRequest: DescribeTopicPartitionsResponse,
            ListConfigResourcesRequest: ListConfigResourcesResponse,
        },
        administration,
    )

    def group_handlers() -> Handlers:
        from broker.handlers.committed_offsets import CommittedOffsetsHandler
        from broker.handlers.find_coordinator import FindCoordinatorHandler
        from broker.handlers.group_membership import GroupMembershipHandler
        from broker.handlers.groups import GroupsHandler

        finding = FindCoordinatorHandler(image, controller, replicas, node)
        members = GroupMembershipHandler(groups)
        offsets = CommittedOffsetsHandler(groups, image, clock)
        administered = GroupsHandler(groups)
        return {
            FindCoordinatorRequest: (finding.find_coordinator, finding.refuse),
            JoinGroupRequest: (members.join_group, members.refuse_join),
            SyncGroupRequest: (members.sync_group, members.refuse_sync),
            HeartbeatRequest: (members.heartbeat, members.refuse_heartbeat),
            LeaveGroupRequest: (members.leave_group, members.refuse_leave),
            OffsetCommitRequest: (offsets.offset_commit, offsets.refuse_commit),
            OffsetFetchRequest: (offsets.offset_fetch, offsets.refuse_fetch),
            OffsetDeleteRequest: (offsets.offset_delete, offsets.refuse_delete),
            DescribeGroupsRequest: (administered.describe_groups, administered.refuse_description),
            ListGroupsRequest: (administered.list_groups, administered.refuse_list),
            DeleteGroupsRequest: (administered.delete_groups, administered.refuse_deletion),
        }

    registry.serve_late(
        {
            FindCoordinatorRequest: FindCoordinatorResponse,
            JoinGroupRequest: JoinGroupResponse,
            SyncGroupRequest: SyncGroupResponse,
            HeartbeatRequest: HeartbeatResponse,
            LeaveGroupRequest: LeaveGroupResponse,
            OffsetCommitRequest: OffsetCommitResponse,
            OffsetFetchRequest: OffsetFetchResponse,
            OffsetDeleteRequest: OffsetDeleteResponse,
            DescribeGroupsRequest: DescribeGroupsResponse,
            ListGroupsRequest: ListGroupsResponse,
            DeleteGroupsRequest: DeleteGroupsResponse,
        },
        group_handlers,
    )
