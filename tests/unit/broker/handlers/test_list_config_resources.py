"""ListConfigResources through the codec."""

from dev.serving import every_version, serves
from protocol.errors import ErrorCode as E
from protocol.messages.config_resources import ListConfigResourcesRequest
from protocol.messages.configs import IncrementalAlterConfigsRequest
from tests.support.broker import InProcessBroker

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


def resources(broker: InProcessBroker, *types: int, version: int = 1) -> set[tuple[int, str]]:
    """Type and name of each resource."""
    answer = broker.ask(ListConfigResourcesRequest(resource_types=list(types)), version)
    assert answer.error_code == E.NONE
    return {(one.resource_type, one.resource_name) for one in answer.config_resources}


def configure(broker: InProcessBroker, type_: int, name: str, key: str, value: str) -> None:
    """Set one config."""
    resource = IncrementalAlterConfigsRequest.Resource
    config = resource.Config(name=key, config_operation=0, value=value)
    request = IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=type_, resource_name=name, configs=[config])], validate_only=False
    )
    assert broker.ask(request, 1).responses[0].error_code == E.NONE


@serves(ListConfigResourcesRequest)
@every_version(ListConfigResourcesRequest)
def test_client_metrics_are_listed_once_they_have_configs(broker: InProcessBroker, version: int) -> None:
    types = [CLIENT_METRICS] if version >= 1 else []
    assert resources(broker, *types, version=version) == set()
    configure(broker, CLIENT_METRICS, "all", "interval.ms", "60000")
    assert resources(broker, *types, version=version) == {(CLIENT_METRICS, "all")}


def test_all_kinds_are_listed_if_none_is_named(broker: InProcessBroker) -> None:
    broker.create_topic("orders")
    configure(broker, GROUP, "readers", "consumer.session.timeout.ms", "50000")
    everything = {(TOPIC, "orders"), (BROKER, "1"), (LOGGER, "1"), (GROUP, "readers")}
    assert resources(broker) == everything
    assert resources(broker, TOPIC, GROUP) == {(TOPIC, "orders"), (GROUP, "readers")}


@serves(ListConfigResourcesRequest, E.UNSUPPORTED_VERSION, versions=[1])
def test_a_kind_that_there_is_not_is_refused_as_a_whole(broker: InProcessBroker) -> None:
    answer = broker.ask(ListConfigResourcesRequest(resource_types=[TOPIC, 3]), 1)
    assert (answer.error_code, answer.config_resources) == (E.UNSUPPORTED_VERSION, [])
