"""What dispatch and handlers read in a connection's session, and what they leave there."""

from collections.abc import Callable

import pytest

from broker.dispatch.dispatcher import Dispatcher
from broker.dispatch.registry import Registry
from broker.request.context import RequestContext
from broker.request.response import NOTHING, ResponseSlot
from broker.request.session import ClientSoftware
from protocol.api_keys import ApiKey
from protocol.headers import decode_response, encode_request
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.support.broker import InProcessBroker
from tests.support.slots import Owner, slot_of

Handler = Callable[[MetadataRequest, RequestContext], MetadataResponse]


def no_topics(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    return MetadataResponse(brokers=[], topics=[])


def dispatcher(metadata: Handler = no_topics) -> Dispatcher:
    """Serves ApiVersions and Metadata."""
    registry = Registry()
    registry.serve(ApiKey.API_VERSIONS, lambda: lambda request, context: ApiVersionsResponse(api_keys=[]))
    registry.serve(ApiKey.METADATA, lambda: metadata)
    return Dispatcher(registry)


def request(
    message: object, version: int, owner: Owner | None = None, *, client_id: str | None = "test"
) -> ResponseSlot:
    return slot_of(bytearray(encode_request(7, client_id, message, version)[4:]), owner)


def metadata(slot: ResponseSlot, version: int) -> MetadataResponse:
    payload = b"".join(bytes(chunk) for chunk in slot.chunks)[4:]  # type: ignore[call-overload]
    _, answer = decode_response(MetadataResponse, version, payload)
    return answer


def test_a_client_that_has_not_authenticated_is_served_api_versions() -> None:
    slot = request(ApiVersionsRequest(), 3)
    slot.session.is_authenticated = slot.session.is_plain = False
    dispatcher().handle(slot)
    assert slot.is_filled
    assert slot.chunks != NOTHING


def test_a_client_that_has_not_authenticated_is_served_nothing_else() -> None:
    owner = Owner()
    slot = request(MetadataRequest(topics=None), 12, owner)
    slot.session.is_authenticated = slot.session.is_plain = False
    dispatcher().handle(slot)
    assert owner.closed == f"API {int(ApiKey.METADATA)} is not served before authentication"


@pytest.mark.parametrize(("given", "known"), [("orders-service", "orders-service"), ("", ""), (None, "")])
def test_the_session_knows_the_client_id_that_quotas_go_by(given: str | None, known: str) -> None:
    slot = request(MetadataRequest(topics=None), 12, client_id=given)
    dispatcher().handle(slot)
    assert slot.session.client_id == known


def test_a_handler_sees_the_principal_of_the_session() -> None:
    seen = []

    def handler(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
        seen.append((context.session.principal, str(context.peer)))
        return no_topics(request, context)

    slot = request(MetadataRequest(topics=None), 12)
    dispatcher(handler).handle(slot)
    slot = request(MetadataRequest(topics=None), 12)
    slot.session.principal = "User:alice"
    dispatcher(handler).handle(slot)
    assert seen == [("User:ANONYMOUS", "10.0.0.1:4711"), ("User:alice", "10.0.0.1:4711")]


@pytest.mark.parametrize(("version", "told"), [(12, 500), (3, 500), (2, 0)])
def test_an_answer_says_for_how_long_its_client_is_throttled_if_its_version_can(version: int, told: int) -> None:
    slot = request(MetadataRequest(topics=None), version)
    slot.stream.throttle(500, until_ms=1_500)
    dispatcher().handle(slot)
    assert metadata(slot, version).throttle_time_ms == told


def test_a_handler_throttles_the_connection_through_its_context() -> None:
    def handler(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
        context.throttle(500)
        return no_topics(request, context)

    owner = Owner()
    dispatcher(handler).handle(request(MetadataRequest(topics=None), 12, owner))
    assert owner.calls == ["throttled for 500 ms", "filled"]


def test_the_session_knows_the_clients_software(broker: InProcessBroker) -> None:
    client = broker.connect()
    assert client.connection.session.software == ClientSoftware("unknown", "unknown")
    client.ask(ApiVersionsRequest(client_software_name="librdkafka", client_software_version="2.8.0"), 3)
    assert client.connection.session.software == ClientSoftware("librdkafka", "2.8.0")
