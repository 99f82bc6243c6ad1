"""The list of APIs: each once, each with its own handler."""

import subprocess
import sys
from typing import Any, get_type_hints

import pytest

from broker.server.apis import APIS, Api
from dev.repository import PACKAGES
from protocol.api_keys import ASKED_CONTROLLERS, ApiKey
from protocol.schema import request_class
from tests.support.broker import InProcessBroker

UNLISTED = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
"""Kafka lists them only where it has a receiver of telemetry."""


def test_every_api_that_kafka_lists_is_served_and_stands_there_once() -> None:
    assert [api.key for api in APIS] == sorted(set(ApiKey) - UNLISTED - ASKED_CONTROLLERS)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Any:
    broker = InProcessBroker(tmp_path_factory.mktemp("apis") / "data")
    yield broker
    broker.close()


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.key.title)
def test_the_handler_of_an_api_takes_its_requests(broker: InProcessBroker, api: Api) -> None:
    route = broker.server.registry.route(api.key, api.key.versions[1])
    assert route is not None
    handler: Any = route.handler
    assert get_type_hints(handler)["request"] in (request_class(api.key), Any)
    assert route.name == f"{api.key.title} v{api.key.versions[1]}"


@pytest.mark.parametrize("key", sorted(ASKED_CONTROLLERS), ids=lambda key: key.title)
def test_what_only_controllers_are_asked_is_not_served(broker: InProcessBroker, key: ApiKey) -> None:
    assert broker.server.registry.route(key, key.versions[1]) is None


def test_what_is_forwarded_is_known_before_any_handler_of_this_broker_has_been_asked() -> None:
    program = """
import broker.handlers.forwarding
from protocol.api_keys import FORWARDED
from protocol.schema import request_class, response_class
for key in FORWARDED:
    request_class(key), response_class(key)
"""
    subprocess.run([sys.executable, "-c", program], cwd=PACKAGES, check=True)
