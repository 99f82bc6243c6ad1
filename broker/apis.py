"""The one list of APIs: which request goes to which handler."""

from broker.dispatch.registry import Registry
from broker.handlers.api_versions import ApiVersionsHandler
from broker.handlers.cluster import ClusterHandler
from broker.handlers.configs import ConfigsHandler
from broker.handlers.fetch import FetchHandler
from broker.handlers.init_producer_id import InitProducerIdHandler
from broker.handlers.list_offsets import ListOffsetsHandler
from broker.handlers.metadata import MetadataHandler
from broker.handlers.produce import ProduceHandler
from broker.handlers.topics import TopicsHandler
from broker.metadata.configs import ConfigView
from broker.metadata.controller import Controller
from broker.metadata.producer_ids import ProducerIds
from broker.metadata.publisher import Publisher
from broker.replication.fetch_sessions import FetchSessions
from broker.replication.replica_manager import ReplicaManager
from broker.request.node import Node
from config.broker_settings import BrokerSettings
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.cluster import DescribeClusterRequest, DescribeClusterResponse
from protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResponse
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

PRODUCE_ADVERTISED = (0, 13)
"""Old librdkafka looks for the first versions of Produce and drops features without them; nobody serves them."""


def serve_all(
    registry: Registry,
    *,
    settings: BrokerSettings,
    node: Node,
    replicas: ReplicaManager,
    fetch_sessions: FetchSessions,
    publisher: Publisher,
    controller: Controller,
    producer_ids: ProducerIds,
) -> None:
    """Put every API into the registry."""
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
    registry.serve(FetchRequest, FetchResponse, fetch.fetch, refuse=fetch.refuse)
    list_offsets = ListOffsetsHandler(replicas)
    registry.serve(ListOffsetsRequest, ListOffsetsResponse, list_offsets.list_offsets, refuse=list_offsets.refuse)
    metadata = MetadataHandler(image, controller, node, auto_create_topics_enable=settings.auto_create_topics_enable)
    registry.serve(MetadataRequest, MetadataResponse, metadata.metadata, refuse=metadata.refuse)
    api_versions = ApiVersionsHandler(publisher)
    registry.serve(ApiVersionsRequest, ApiVersionsResponse, api_versions.api_versions, refuse=api_versions.refuse)
    topics = TopicsHandler(controller, image, configs)
    registry.serve(CreateTopicsRequest, CreateTopicsResponse, topics.create_topics, refuse=topics.refuse_creation)
    registry.serve(DeleteTopicsRequest, DeleteTopicsResponse, topics.delete_topics, refuse=topics.refuse_deletion)
    init_producer_id = InitProducerIdHandler(producer_ids)
    registry.serve(
        InitProducerIdRequest,
        InitProducerIdResponse,
        init_producer_id.init_producer_id,
        refuse=init_producer_id.refuse,
    )
    described = ConfigsHandler(configs, image, node)
    registry.serve(DescribeConfigsRequest, DescribeConfigsResponse, described.describe_configs, refuse=described.refuse)
    cluster = ClusterHandler(node)
    registry.serve(DescribeClusterRequest, DescribeClusterResponse, cluster.describe_cluster, refuse=cluster.refuse)
