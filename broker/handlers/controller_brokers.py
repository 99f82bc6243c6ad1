"""What brokers ask of the active controller: registration, heartbeats, replicas in sync, producer ids, directories.

API keys 43, 56, 62, 63, 67 and 73 on a controller listener (KIP-497, KIP-631, KIP-730, KIP-858).
"""

from collections.abc import Callable
from typing import Protocol

from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import ClusterAuthorizationFailed
from protocol.errors import ErrorCode
from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from protocol.messages.broker_lifecycle import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from protocol.messages.elections import ElectLeadersRequest, ElectLeadersResponse


class BrokersController(Protocol):
    """The active controller as the brokers of its cluster see it. ``then`` gets the answer once it is durable."""

    def broker_registration(
        self, request: BrokerRegistrationRequest, then: Callable[[BrokerRegistrationResponse], None]
    ) -> None:
        """Register a run of a broker."""

    def broker_heartbeat(
        self, request: BrokerHeartbeatRequest, then: Callable[[BrokerHeartbeatResponse], None]
    ) -> None:
        """Keep a broker's session, and fence, unfence or stop the broker as it asks."""

    def alter_partition(self, request: AlterPartitionRequest, then: Callable[[AlterPartitionResponse], None]) -> None:
        """Change the replicas in sync of partitions that the broker leads."""

    def allocate_producer_ids(
        self, request: AllocateProducerIdsRequest, then: Callable[[AllocateProducerIdsResponse], None]
    ) -> None:
        """Give the broker the next block of producer ids."""

    def assign_replicas_to_dirs(
        self, request: AssignReplicasToDirsRequest, then: Callable[[AssignReplicasToDirsResponse], None]
    ) -> None:
        """Note in which log directories the broker's replicas are."""

    def elect_leaders(self, request: ElectLeadersRequest, then: Callable[[ElectLeadersResponse], None]) -> None:
        """Elect leaders of partitions."""


class ControllerBrokersHandler:
    """Hands what brokers ask to the controller. Each method raises `ClusterAuthorizationFailed` and StorageError.

    The broker of the controller's own node does not ask over the wire: who does so in its name is another process.
    """

    def __init__(self, controller: BrokersController, node_id: int) -> None:
        """``node_id`` is that of the controller."""
        self._controller = controller
        self._node_id = node_id

    def broker_registration(self, request: BrokerRegistrationRequest, context: RequestContext) -> None:
        """Answer once the registration is durable, or refused."""
        _check(context, Operation.CLUSTER_ACTION)
        self._controller.broker_registration(request, context.respond)

    def broker_heartbeat(self, request: BrokerHeartbeatRequest, context: RequestContext) -> None:
        """Answer with the broker's state, once that is durable."""
        _check(context, Operation.CLUSTER_ACTION)
        if request.broker_id == self._node_id:
            context.respond(BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
            return
        self._controller.broker_heartbeat(request, context.respond)

    def alter_partition(self, request: AlterPartitionRequest, context: RequestContext) -> None:
        """Answer once the replicas in sync are durable, each partition with its own success or error."""
        _check(context, Operation.CLUSTER_ACTION)
        if request.broker_id == self._node_id:
            context.respond(AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH, topics=[]))
            return
        self._controller.alter_partition(request, context.respond)

    def allocate_producer_ids(self, request: AllocateProducerIdsRequest, context: RequestContext) -> None:
        """Answer once no other broker can get the same ids."""
        _check(context, Operation.CLUSTER_ACTION)
        if request.broker_id == self._node_id:
            context.respond(AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
            return
        self._controller.allocate_producer_ids(request, context.respond)

    def assign_replicas_to_dirs(self, request: AssignReplicasToDirsRequest, context: RequestContext) -> None:
        """Answer once the directories are durable, each partition with its own success or error."""
        _check(context, Operation.CLUSTER_ACTION)
        if request.broker_id == self._node_id:
            context.respond(AssignReplicasToDirsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH, directories=[]))
            return
        self._controller.assign_replicas_to_dirs(request, context.respond)

    def elect_leaders(self, request: ElectLeadersRequest, context: RequestContext) -> None:
        """Answer once the elections are durable, each partition with its own success or error."""
        _check(context, Operation.ALTER)
        self._controller.elect_leaders(request, context.respond)


def _check(context: RequestContext, operation: Operation) -> None:
    if not context.may(operation, ResourceType.CLUSTER):
        raise ClusterAuthorizationFailed(f"{context.session.principal} may not {operation.name} the cluster")
