"""Configs of a broker in the test, changed by a client."""

from config.resources import ConfigResource
from protocol.errors import ErrorCode
from protocol.messages.configs import IncrementalAlterConfigsRequest
from tests.support.broker import InProcessBroker


def configure(broker: InProcessBroker, resource: ConfigResource, name: str, key: str, value: str) -> None:
    """Set a config of a resource."""
    of_request = IncrementalAlterConfigsRequest.Resource
    change = of_request.Config(name=key, config_operation=0, value=value)
    request = IncrementalAlterConfigsRequest(
        resources=[of_request(resource_type=resource, resource_name=name, configs=[change])], validate_only=False
    )
    (answer,) = broker.ask(request, 1).responses
    assert answer.error_code == ErrorCode.NONE, answer.error_message
