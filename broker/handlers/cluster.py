"""DescribeCluster: the cluster's id and its brokers (API key 60; KIP-700, KIP-919)."""

from broker.request.context import CLUSTER_OPERATIONS, RequestContext
from broker.request.faults import MismatchedEndpointType, UnsupportedEndpointType
from broker.request.node import Node
from protocol.messages.cluster import DescribeClusterRequest, DescribeClusterResponse

BROKERS = 1
CONTROLLERS = 2


class ClusterHandler:
    """Describes a cluster of one."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def describe_cluster(self, request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
        """Name the cluster and its one broker, at the address of the listener that was asked."""
        if request.endpoint_type == CONTROLLERS:
            raise MismatchedEndpointType(
                "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
            )
        if request.endpoint_type != BROKERS:
            raise UnsupportedEndpointType(f"Unsupported endpoint type {request.endpoint_type}")
        endpoint = self._node.endpoints[context.peer.listener]
        answer = DescribeClusterResponse(
            cluster_id=self._node.cluster_id,
            controller_id=self._node.node_id,
            brokers=[
                DescribeClusterResponse.Broker(
                    broker_id=self._node.node_id, host=endpoint.host, port=endpoint.port, rack=self._node.rack
                )
            ],
        )
        if request.include_cluster_authorized_operations:
            answer.cluster_authorized_operations = CLUSTER_OPERATIONS
        return answer
