"""What is added to every answer, whoever has made it."""

import pytest

from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.metadata import MetadataRequest
from tests.support.broker import InProcessBroker


@pytest.mark.parametrize(
    ("request_of_client", "version", "expected"),
    [
        (MetadataRequest(topics=[]), 12, 125),
        (MetadataRequest(topics=[]), 2, 0),
        (ApiVersionsRequest(), 1, 125),
        (ApiVersionsRequest(), 0, 0),
    ],
)
def test_an_answer_says_how_long_its_client_is_throttled_where_its_version_has_a_field_for_that(
    broker: InProcessBroker, request_of_client: object, version: int, expected: int
) -> None:
    client = broker.connect()
    client.connection.session.throttle_time_ms = 125
    assert client.ask(request_of_client, version).throttle_time_ms == expected
    assert broker.ask(request_of_client, version).throttle_time_ms == 0, "to a client that is not throttled"
