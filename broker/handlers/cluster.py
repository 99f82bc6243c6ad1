"""DescribeCluster: the cluster's id and its brokers (API key 60; KIP-700, KIP-919)."""

from broker.metadata.brokers import Brokers
from broker.request.context import RequestContext
from broker.request.faults import MismatchedEndpointType, UnsupportedEndpointType
from broker.request.node import NO_NODE, Node
from protocol.messages.cluster import DescribeClusterRequest, DescribeClusterResponse

BROKERS = 1
CONTROLLERS = 2


class ClusterHandler:
    """Reads the registrations of the published image."""

    def __init__(self, brokers: Brokers, node: Node) -> None:
        self._brokers = brokers
        self._node = node

    def describe_cluster(self, request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
        """Name the cluster and its brokers, at their addresses on the listener that was asked."""
        if request.endpoint_type == CONTROLLERS:
            raise MismatchedEndpointType(
                "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
            )
        if request.endpoint_type != BROKERS:
            raise UnsupportedEndpointType(f"Unsupported endpoint type {request.endpoint_type}")
        brokers = self._brokers.on(context.peer.listener)
        controller_id = self._brokers.any_alive()
        answer = DescribeClusterResponse(
            cluster_id=self._node.cluster_id,
            # Unlike Metadata, no broker that the client is given no address of.
            controller_id=NO_NODE if brokers.find_alive(controller_id) is None else controller_id,
            brokers=[
                DescribeClusterResponse.Broker(
                    broker_id=broker.broker_id,
                    host=broker.host,
                    port=broker.port,
                    rack=broker.rack,
                    is_fenced=broker.is_fenced,
                )
                for broker in (brokers.listed if request.include_fenced_brokers else brokers.alive)
            ],
        )
        if request.include_cluster_authorized_operations:
            answer.cluster_authorized_operations = context.authorized_on_cluster()
        return answer
