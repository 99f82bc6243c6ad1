"""The one list of APIs: which request goes to which handler."""

from broker.controller.client import ControllerClient
from broker.coordinators.group_coordinator import Groups
from broker.dispatch.registry import Handlers, Registry
from broker.fetch.executor import FetchExecutor
from broker.fetch.fast_path import FetchFastPath
from broker.fetch.sessions import FetchSessions
from broker.handlers.api_versions import ApiVersionsHandler
from broker.handlers.fetch import FETCH_CONSUMER, FetchHandler
from broker.handlers.init_producer_id import InitProducerIdHandler
from broker.handlers.list_offsets import ListOffsetsHandler
from broker.handlers.metadata import MetadataHandler
from broker.handlers.produce import ProduceHandler
from broker.metadata.cache import MetadataCache
from broker.metadata.configs import ConfigView
from broker.metadata.producer_ids import ProducerIds
from broker.raft.client import RaftClient
from broker.replication.replica_manager import ReplicaManager
from broker.request.node import Node
from broker.runtime.clock import Clock
from config.broker_settings import BrokerSettings
from protocol.api_keys import ApiKey
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.fetch import FetchRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.produce import ProduceRequest
from storage.log_manager import LogManager

PRODUCE_ADVERTISED = (0, 13)
"""Old librdkafka looks for the first versions of Produce and drops features without them; nobody serves them."""


def serve_all(
    registry: Registry,
    *,
    settings: BrokerSettings,
    node: Node,
    replicas: ReplicaManager,
    fetch_executor: FetchExecutor,
    fetch_sessions: FetchSessions,
    metadata: MetadataCache,
    configs: ConfigView,
    raft: RaftClient,
    logs: LogManager,
    clock: Clock,
    controller: ControllerClient,
    producer_ids: ProducerIds,
    groups: Groups,
) -> None:
    """Put every API into the registry."""

    produce = ProduceHandler(replicas, metadata)
    registry.serve(
        ProduceRequest,
        produce.produce,
        refuse=produce.refuse,
        advertised=PRODUCE_ADVERTISED,
        keeps_frame=True,
    )
    fetch = FetchHandler(
        replicas, fetch_executor, fetch_sessions, metadata, node, fetch_max_bytes=settings.fetch_max_bytes
    )
    fast_path = FetchFastPath(replicas, metadata, fetch, fetch_max_bytes=settings.fetch_max_bytes)
    registry.serve(
        FetchRequest,
        fetch.fetch,
        refuse=fetch.refuse,
        shortcut=fast_path.fetch,
        counted_as=FETCH_CONSUMER,
    )
    list_offsets = ListOffsetsHandler(replicas)
    registry.serve(ListOffsetsRequest, list_offsets.list_offsets, refuse=list_offsets.refuse)
    topics = MetadataHandler(metadata, controller, node, auto_create_topics_enable=settings.auto_create_topics_enable)
    registry.serve(MetadataRequest, topics.metadata, refuse=topics.refuse)
    api_versions = ApiVersionsHandler(metadata, raft.quorum, node)
    registry.serve(ApiVersionsRequest, api_versions.api_versions, refuse=api_versions.refuse)
    init_producer_id = InitProducerIdHandler(producer_ids)
    registry.serve(
        InitProducerIdRequest,
        init_producer_id.init_producer_id,
        refuse=init_producer_id.refuse,
    )

    def of_administrators() -> Handlers:
        from broker.server.apis_of_administrators import administration

        return administration(
            settings=settings,
            node=node,
            replicas=replicas,
            metadata=metadata,
            configs=configs,
            raft=raft,
            logs=logs,
            clock=clock,
            controller=controller,
        )

    registry.serve_late(
        {
            ApiKey.CREATE_TOPICS,
            ApiKey.DELETE_TOPICS,
            ApiKey.CREATE_PARTITIONS,
            ApiKey.DELETE_RECORDS,
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            ApiKey.DESCRIBE_CONFIGS,
            ApiKey.ALTER_CONFIGS,
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            ApiKey.DESCRIBE_CLUSTER,
            ApiKey.DESCRIBE_LOG_DIRS,
            ApiKey.ELECT_LEADERS,
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            ApiKey.LIST_PARTITION_REASSIGNMENTS,
            ApiKey.DESCRIBE_QUORUM,
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            ApiKey.LIST_CONFIG_RESOURCES,
        },
        of_administrators,
    )

    def of_groups() -> Handlers:
        from broker.server.apis_of_groups import group_handlers

        return group_handlers(
            groups, metadata=metadata, controller=controller, replicas=replicas, node=node, clock=clock
        )

    registry.serve_late(
        {
            ApiKey.FIND_COORDINATOR,
            ApiKey.JOIN_GROUP,
            ApiKey.SYNC_GROUP,
            ApiKey.HEARTBEAT,
            ApiKey.LEAVE_GROUP,
            ApiKey.OFFSET_COMMIT,
            ApiKey.OFFSET_FETCH,
            ApiKey.OFFSET_DELETE,
            ApiKey.DESCRIBE_GROUPS,
            ApiKey.LIST_GROUPS,
            ApiKey.DELETE_GROUPS,
        },
        of_groups,
    )
