"""UnregisterBroker and UnregisterController (API keys 64 and 94; KIP-631)."""

from broker.controller.client import ControllerClient
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import ClusterAuthorizationFailed
from protocol.messages.registrations import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)


class RegistrationsHandler:
    """Asks the controller to forget nodes that an adopted directory knows."""

    def __init__(self, controller: ControllerClient) -> None:
        self._controller = controller

    def unregister_broker(self, request: UnregisterBrokerRequest, context: RequestContext) -> None:
        """Answer once the broker is durably forgotten. Raises `BrokerIdNotRegistered`, `InvalidRequest`."""
        _check_allowed(context)
        self._controller.unregister_broker(request.broker_id, lambda: context.respond(UnregisterBrokerResponse()))

    def unregister_controller(self, request: UnregisterControllerRequest, context: RequestContext) -> None:
        """Answer once the controller is durably forgotten.

        Raises `ControllerIdNotRegistered`, `InvalidRequest`, `UnsupportedVersion`.
        """
        _check_allowed(context)
        self._controller.unregister_controller(
            request.controller_id, lambda: context.respond(UnregisterControllerResponse())
        )


def _check_allowed(context: RequestContext) -> None:
    if not context.may(Operation.ALTER, ResourceType.CLUSTER):
        raise ClusterAuthorizationFailed(f"{context.session.principal} may not change what is registered")
