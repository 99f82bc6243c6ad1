import logging
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.dispatch.dispatcher import Dispatcher
from broker.dispatch.registry import Handler, Registry
from broker.request.context import ApiVersionRange, RequestContext
from broker.request.faults import InvalidRequest
from broker.request.response import NO_FRAME, NOTHING, RequestStream, ResponseSlot
from broker.request.session import Peer, Session
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.headers import decode_response, encode_request
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.cluster import DescribeClusterRequest
from protocol.messages.produce import ProduceRequest
from tests.support.slots import Owner, slot_of

Handle = Callable[[ApiVersionsRequest, RequestContext], ApiVersionsResponse | None]


class Exchange:
    """One request on its way through a dispatcher that serves ApiVersions and Produce."""

    def __init__(self, handler: Any = None, **more: Any) -> None:
        self.registry = Registry()
        answer = handler or (lambda request, context: ApiVersionsResponse(api_keys=[]))
        self.registry.serve(ApiKey.API_VERSIONS, lambda: answer)
        wait = handler or (lambda request, context: None)
        self.registry.serve(ApiKey.PRODUCE, lambda: wait, advertised_since=0, keeps_frame=True)
        self.dispatcher = Dispatcher(self.registry)
        self.owner = Owner()

    def send(self, frame: bytes) -> ResponseSlot:
        slot = slot_of(bytearray(frame), self.owner)
        self.dispatcher.handle(slot)
        return slot

    def ask(self, message: object, version: int, correlation_id: int = 7) -> ResponseSlot:
        return self.send(encode_request(correlation_id, "test", message, version)[4:])


def answer(slot: ResponseSlot) -> bytes:
    whole = b"".join(bytes(chunk) for chunk in slot.chunks)  # type: ignore[call-overload]
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    return whole[4:]


def test_a_request_reaches_its_handler_and_its_answer_the_slot() -> None:
    seen: list[Any] = []

    def handler(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
        seen.append((request.client_software_name, context.client_id, context.api_version, str(context.peer)))
        return ApiVersionsResponse(error_code=3, api_keys=[])

    slot = Exchange(handler).ask(ApiVersionsRequest(client_software_name="kafka"), 3)
    correlation_id, response = decode_response(ApiVersionsResponse, 3, answer(slot))
    assert (correlation_id, response.error_code) == (7, 3)
    assert seen == [("kafka", "test", 3, "10.0.0.1:4711")]


def test_what_is_served_is_advertised_by_ascending_key() -> None:
    registry = Exchange().registry
    assert registry.advertised() == [ApiVersionRange(0, 0, 13), ApiVersionRange(18, 0, 5)]


def test_an_api_is_served_once() -> None:
    registry = Exchange().registry
    with pytest.raises(ValueError, match=r"18 \(API_VERSIONS\) is served already"):
        registry.serve(ApiKey.API_VERSIONS, lambda: lambda request, context: None)


def test_a_handler_is_asked_for_with_the_first_request_to_its_api() -> None:
    made: list[ApiKey] = []

    def make(key: ApiKey) -> Handler[Any, Any]:
        made.append(key)
        return lambda request, context: None

    registry = Registry()
    registry.serve(ApiKey.METADATA, lambda: make(ApiKey.METADATA))
    registry.serve(ApiKey.DESCRIBE_CLUSTER, lambda: make(ApiKey.DESCRIBE_CLUSTER))
    assert [served.api_key for served in registry.advertised()] == [3, 60]
    assert (registry.route(3, 99), made) == (None, [])
    for _ in range(2):
        route = registry.route(60, 0)
        assert route is not None
        assert (route.name, route.keeps_frame) == ("DescribeCluster v0", False)
    assert made == [ApiKey.DESCRIBE_CLUSTER]


@pytest.mark.parametrize("version", [6, 99, 0x7FFF, -1])
def test_an_unknown_version_of_api_versions_is_answered_in_version_0(version: int) -> None:
    exchange = Exchange()
    header = (18).to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + (1).to_bytes(4, "big") + b"\0\1c"
    slot = exchange.send(header + b"\0" + b"whatever the future holds")
    assert answer(slot) == bytes.fromhex("00000001 0023 00000001 0012 0000 0005")
    assert exchange.owner.closed is None


@pytest.mark.parametrize("version", [6, -1])
def test_an_unknown_version_of_api_versions_whose_header_is_no_new_one_closes(version: int) -> None:
    exchange = Exchange()
    header = (18).to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + (1).to_bytes(4, "big") + b"\0\1c"
    exchange.send(header)
    assert exchange.owner.closed is not None


@pytest.mark.parametrize(("key", "version"), [(999, 0), (-5, 0), (0, 2), (0, 14), (3, 9)])
def test_an_api_or_version_that_is_not_served_closes(key: int, version: int) -> None:
    exchange = Exchange()
    frame = key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big") + bytes(4) + b"\xff\xff" + bytes(20)
    slot = exchange.send(frame)
    assert exchange.owner.closed == f"API {key} in version {version} is not served"
    assert slot.chunks == NOTHING


def test_a_request_that_cannot_be_read_closes_and_the_reason_has_its_values() -> None:
    exchange = Exchange()
    whole = encode_request(7, "test", ApiVersionsRequest(client_software_name="kafka"), 3)[4:]
    exchange.send(whole[:-5])
    assert exchange.owner.closed is not None
    assert f"{len(whole) - 5} bytes" in exchange.owner.closed
    assert "00 12 00 03" in exchange.owner.closed


def test_bytes_behind_a_complete_request_are_ignored() -> None:
    exchange = Exchange()
    slot = exchange.send(encode_request(7, "test", ApiVersionsRequest(), 0)[4:] + b"trailing")
    assert decode_response(ApiVersionsResponse, 0, answer(slot))[0] == 7


@settings(max_examples=300, deadline=None)
@given(frame=st.one_of(st.binary(max_size=200), st.binary(max_size=60).map(lambda data: b"\0\x12\0\3" + data)))
def test_whatever_a_peer_sends_its_slot_is_answered_or_its_connection_closed(frame: bytes) -> None:
    exchange = Exchange()
    slot = exchange.send(frame)
    assert slot.is_filled


def test_a_fault_is_answered_with_its_code() -> None:
    def handler(request: Any, context: RequestContext) -> None:
        raise InvalidRequest("it contradicts itself")

    exchange = Exchange(handler)
    slot = exchange.ask(ApiVersionsRequest(), 2)
    _, response = decode_response(ApiVersionsResponse, 2, answer(slot))
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert exchange.dispatcher.stats.failed == 1


def test_an_unexpected_exception_is_answered_and_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    def handler(request: Any, context: RequestContext) -> None:
        raise ZeroDivisionError("a bug")

    exchange = Exchange(handler)
    slot = exchange.ask(ApiVersionsRequest(), 2)
    _, response = decode_response(ApiVersionsResponse, 2, answer(slot))
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    (record,) = [record for record in caplog.records if record.exc_info]
    assert "a bug" in record.getMessage()


def test_a_failure_that_no_answer_can_carry_closes() -> None:
    def handler(request: Any, context: RequestContext) -> None:
        raise InvalidRequest("acks=0")

    exchange = Exchange(handler)
    exchange.ask(ProduceRequest(acks=0, timeout_ms=1000, topic_data=[]), 9)
    assert exchange.owner.closed is not None
    assert "INVALID_REQUEST" in exchange.owner.closed


def test_a_failure_behind_the_answer_is_logged_only(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)

    def handler(request: Any, context: RequestContext) -> None:
        context.respond(ApiVersionsResponse(api_keys=[]))
        raise InvalidRequest("too late")

    slot = Exchange(handler).ask(ApiVersionsRequest(), 2)
    assert decode_response(ApiVersionsResponse, 2, answer(slot))[1].error_code == 0
    assert "too late" in caplog.text


def test_who_answers_later_keeps_his_slot_and_his_frame_only_if_he_needs_it() -> None:
    waiting: list[RequestContext] = []

    def handler(request: Any, context: RequestContext) -> None:
        waiting.append(context)

    exchange = Exchange(handler)
    parked = exchange.ask(ApiVersionsRequest(), 2)
    assert parked.frame is NO_FRAME
    assert exchange.owner.calls == ["released"]
    writing = exchange.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[]), 9)
    assert writing.frame is not NO_FRAME
    waiting[0].respond(ApiVersionsResponse(api_keys=[]))
    assert decode_response(ApiVersionsResponse, 2, answer(parked))[0] == 7


def test_describe_cluster_is_not_served_unless_somebody_serves_it() -> None:
    exchange = Exchange()
    exchange.ask(DescribeClusterRequest(include_cluster_authorized_operations=False), 0)
    assert exchange.owner.closed == "API 60 in version 0 is not served"


def test_on_a_controller_listener_another_registry_answers() -> None:
    asked: list[str] = []

    def answering(name: str) -> Registry:
        def handler(request: DescribeClusterRequest, context: RequestContext) -> None:
            asked.append(name)
            context.respond_nothing()

        registry = Registry()
        registry.serve(ApiKey.DESCRIBE_CLUSTER, lambda: handler)
        return registry

    dispatcher = Dispatcher(answering("broker"), answering("controller"))
    for is_on_controller_listener in (False, True):
        session = Session(
            Peer(host="10.0.0.1", port=4711, listener="ANY"), is_on_controller_listener=is_on_controller_listener
        )
        frame = memoryview(bytearray(encode_request(7, "test", DescribeClusterRequest(), 1)[4:]))
        dispatcher.handle(ResponseSlot(Owner(), RequestStream(session, lambda slots: None), frame, 0))

    assert asked == ["broker", "controller"]


def test_without_controller_listeners_nothing_is_served_as_on_one() -> None:
    owner = Owner()
    session = Session(Peer(host="10.0.0.1", port=4711, listener="ANY"), is_on_controller_listener=True)
    frame = memoryview(bytearray(encode_request(7, "test", DescribeClusterRequest(), 1)[4:]))
    Exchange().dispatcher.handle(ResponseSlot(owner, RequestStream(session, lambda slots: None), frame, 0))

    assert owner.closed == "API 60 in version 1 is not served"
