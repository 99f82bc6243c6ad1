"""DescribeCluster on a controller listener: the cluster's id and its controllers (API key 60; KIP-919)."""

from broker.handlers.cluster import BROKERS, CONTROLLERS
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import (
    ClusterAuthorizationFailed,
    Fault,
    InvalidRequest,
    MismatchedEndpointType,
    UnsupportedEndpointType,
)
from broker.request.node import Node
from protocol.messages.cluster import DescribeClusterRequest, DescribeClusterResponse

ENDPOINT_TYPES_SINCE_VERSION = 1


class ControllerClusterHandler:
    """Describes controllers that are one."""

    def __init__(self, node: Node) -> None:
        """``node`` has the addresses of the controller listeners."""
        self._node = node

    def describe_cluster(self, request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
        """Name the cluster and its one controller, at the address of the listener that was asked.

        Raises `MismatchedEndpointType`, `UnsupportedEndpointType`, and `InvalidRequest` in place of the former where
        the version does not have endpoint types.
        """
        if not context.may(Operation.ALTER, ResourceType.CLUSTER):
            raise ClusterAuthorizationFailed(f"{context.session.principal} may not alter the cluster")
        if request.endpoint_type == BROKERS:
            refusal: type[Fault] = MismatchedEndpointType
            if context.api_version < ENDPOINT_TYPES_SINCE_VERSION:
                refusal = InvalidRequest
            raise refusal(
                "The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of type BROKER"
            )
        if request.endpoint_type != CONTROLLERS:
            raise UnsupportedEndpointType(f"Unsupported endpoint type {request.endpoint_type}")
        endpoint = self._node.endpoints[context.peer.listener]
        answer = DescribeClusterResponse(
            endpoint_type=CONTROLLERS,
            cluster_id=self._node.cluster_id,
            controller_id=self._node.node_id,
            brokers=[
                DescribeClusterResponse.Broker(broker_id=self._node.node_id, host=endpoint.host, port=endpoint.port)
            ],
        )
        if request.include_cluster_authorized_operations:
            answer.cluster_authorized_operations = context.authorized_on_cluster()
        return answer
