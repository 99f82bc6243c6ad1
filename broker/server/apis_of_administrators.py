"""The APIs that administrators use: whoever only produces and consumes never loads them."""

from broker.controller.client import ControllerClient
from broker.dispatch.registry import Handlers
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
from broker.handlers.topics import TopicsHandler
from broker.metadata.cache import MetadataCache
from broker.metadata.configs import ConfigView
from broker.raft.client import RaftClient
from broker.replication.replica_manager import ReplicaManager
from broker.request.node import Node
from broker.runtime.clock import Clock
from config.broker_settings import BrokerSettings
from protocol.messages.cluster import DescribeClusterRequest
from protocol.messages.config_resources import ListConfigResourcesRequest
from protocol.messages.configs import AlterConfigsRequest, DescribeConfigsRequest, IncrementalAlterConfigsRequest
from protocol.messages.delete_records import DeleteRecordsRequest
from protocol.messages.elections import ElectLeadersRequest
from protocol.messages.log_dirs import DescribeLogDirsRequest
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from protocol.messages.quorum import DescribeQuorumRequest
from protocol.messages.reassignments import AlterPartitionReassignmentsRequest, ListPartitionReassignmentsRequest
from protocol.messages.topic_partitions import DescribeTopicPartitionsRequest
from protocol.messages.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from storage.log_manager import LogManager


def administration(
    *,
    settings: BrokerSettings,
    node: Node,
    replicas: ReplicaManager,
    metadata: MetadataCache,
    configs: ConfigView,
    raft: RaftClient,
    logs: LogManager,
    clock: Clock,
    controller: ControllerClient,
) -> Handlers:
    """Who answers them."""
    altered = AlterConfigsHandler(controller, configs)
    cluster = ClusterHandler(node)
    deletion = DeleteRecordsHandler(replicas)
    described = ConfigsHandler(configs, metadata)
    elections = ElectionsHandler(metadata, node)
    epochs = OffsetForLeaderEpochHandler(replicas)
    log_dirs = LogDirsHandler(logs)
    partitions = TopicPartitionsHandler(metadata, most_partitions=settings.max_request_partition_size_limit)
    quorum = QuorumHandler(raft, metadata, node, clock)
    reassignments = ReassignmentsHandler(controller, metadata)
    resources = ConfigResourcesHandler(metadata, node)
    topics = TopicsHandler(controller, metadata, configs)
    return {
        CreateTopicsRequest: (topics.create_topics, topics.refuse_creation),
        DeleteTopicsRequest: (topics.delete_topics, topics.refuse_deletion),
        CreatePartitionsRequest: (topics.create_partitions, topics.refuse_growth),
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
