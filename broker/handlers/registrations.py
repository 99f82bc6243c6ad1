"""UnregisterBroker and UnregisterController (API keys 64 and 94; KIP-631)."""

from broker.controller.client import ControllerClient
from broker.metadata.cache import MetadataCache
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import (
    ClusterAuthorizationFailed,
    ControllerIdNotRegistered,
    InvalidRequest,
    UnsupportedVersion,
)
from broker.request.node import Node
from protocol.messages.registrations import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
    UnregisterControllerRequest,
)


class RegistrationsHandler:
    """Asks the controller to forget brokers that an adopted directory knows."""

    def __init__(self, controller: ControllerClient, metadata: MetadataCache, node: Node) -> None:
        self._controller = controller
        self._metadata = metadata
        self._node = node

    def unregister_broker(self, request: UnregisterBrokerRequest, context: RequestContext) -> None:
        """Answer once the broker is durably forgotten. Raises `BrokerIdNotRegistered`, `InvalidRequest`."""
        _check_allowed(context)
        self._controller.unregister_broker(request.broker_id, lambda: context.respond(UnregisterBrokerResponse()))

    def unregister_controller(self, request: UnregisterControllerRequest, context: RequestContext) -> None:
        """Say why the controller stays registered."""
        _check_allowed(context)
        controller_id = request.controller_id
        if controller_id == self._node.node_id:
            raise InvalidRequest("Controller cannot unregister itself while it is active.")
        if controller_id not in self._metadata.image.cluster.controllers:
            raise ControllerIdNotRegistered(f"Controller ID {controller_id} is not currently registered.")
        raise UnsupportedVersion("The current MetadataVersion is too old to support controller unregistration.")


def _check_allowed(context: RequestContext) -> None:
    if not context.may(Operation.ALTER, ResourceType.CLUSTER):
        raise ClusterAuthorizationFailed(f"{context.session.principal} may not change what is registered")
