"""One request: its header and body are read, its handler asked, and its answer put into its slot."""

import logging
from typing import Any, Final

from broker.dispatch.registry import Registry, Route
from broker.request.context import ApiVersionRange, RequestContext
from broker.request.faults import error_code_of
from broker.request.gate import gate_of
from broker.request.quota import Quotas
from broker.request.response import ResponseSlot
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.headers import RequestHeader, decode_request_header, frame_response
from protocol.messages.api_versions import ApiVersionsResponse
from protocol.primitives import Malformed, skip_tagged_fields

log = logging.getLogger(__name__)

BEFORE_AUTHENTICATION: Final = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
"""The APIs that are served to a client that has not authenticated yet."""

UNKNOWN_API: Final = "unknown"
"""What requests are counted as whose key is no API's: their number would be the client's choice."""

_API_KEYS: Final = frozenset(ApiKey)


class DispatcherStats:
    """What the dispatcher has counted."""

    __slots__ = ("failed", "handled", "malformed", "unsupported")

    def __init__(self) -> None:
        self.handled = 0
        self.failed = 0
        """Requests whose handler raised."""
        self.malformed = 0
        self.unsupported = 0
        """Unknown APIs and versions."""


class Dispatcher:
    """What the handler tasks do with each request. Whatever a peer sends and whatever a handler raises, its slot is
    answered or its connection closed."""

    def __init__(self, registry: Registry, controller_registry: Registry | None = None) -> None:
        """``controller_registry`` is for requests that come in on a controller listener."""
        self._registry = registry
        self._controller_registry = controller_registry or Registry()
        self.stats = DispatcherStats()
        self.quotas: Quotas | None = None
        """Charges the clients; None while the cluster has no quota of clients."""

    def handle(self, slot: ResponseSlot) -> None:
        """Serve one request."""
        frame = slot.frame
        self.stats.handled += 1
        stream = slot.stream
        session = stream.session
        gate = None
        quotas = self.quotas
        quota = None
        try:
            if session.is_plain:
                repeats = stream.repeats
                if repeats is not None and (quotas is None or quotas.spare(session)) and repeats.take(slot):
                    return
            else:
                gate = gate_of(session)
                if gate is not None and gate.take(slot):
                    return
            header, position = decode_request_header(frame)
            registry = self._registry
            if not session.is_plain:
                if not session.is_authenticated and gate is None and header.api_key not in BEFORE_AUTHENTICATION:
                    slot.close_connection(f"API {header.api_key} is not served before authentication")
                    return
                if session.is_on_controller_listener:
                    registry = self._controller_registry
            if session.client_id != header.client_id:
                session.client_id = header.client_id
                stream.forget_repeats()
            route = registry.route(header.api_key, header.api_version)
            if route is None:
                self._refuse_version(registry, header, frame, position, slot)
                return
            slot.kind = route.kind
            context = RequestContext(header.api_version, header.correlation_id, header.client_id, slot, registry)
            if quotas is not None and session.is_authenticated:
                quota = context.quota = quotas.of_request(slot, header.api_key)
            # A shortcut serves before the gate could refuse, and charges nothing.
            if (
                gate is None
                and quota is None
                and route.shortcut is not None
                and route.shortcut(frame, position, context)
            ):
                return
            request, _ = route.decode(frame, position)
        except Malformed as reason:
            self.stats.malformed += 1
            slot.close_connection(f"its request of {len(frame)} bytes ({_beginning(frame)}) cannot be read: {reason}")
            return
        except Exception as error:
            self.stats.failed += 1
            log.exception("a request of %d bytes (%s) met a bug before its handler", len(frame), _beginning(frame))
            if not slot.is_filled:
                slot.close_connection(f"its request met a bug: {error}")
            return
        # Errors that an answer is made of remember this frame of ours. They must not keep the request's memory with it
        # until the garbage collector finds them.
        del frame
        try:
            if gate is not None:
                gate.admit(header.api_key, context)
            answer = route.handler(request, context)
            if answer is not None:
                context.respond(answer)
        except Exception as error:  # noqa: BLE001 - the faults table logs what it does not know
            self._answer_failure(route, request, context, error)
            return
        if quota is not None:
            quota.handled()
        if answer is None and not slot.is_filled and not route.keeps_frame:
            slot.release_frame()

    def _answer_failure(self, route: Route[Any, Any], request: Any, context: RequestContext, error: Exception) -> None:
        self.stats.failed += 1
        code = error_code_of(error)
        if context.slot.is_filled:
            # It is on its way, and nothing can be added.
            log.error("%s failed after its answer: %s", route.name, error)
            return
        # What an unexpected exception says is for us, not for the client.
        message = "" if code is ErrorCode.UNKNOWN_SERVER_ERROR else str(error)
        if message:
            log.info("Refused %s of %s with %s: %s", route.name, context.peer, code.name, message)
        context.refuse(request, code, message)

    def _refuse_version(
        self, registry: Registry, header: RequestHeader, frame: memoryview, position: int, slot: ResponseSlot
    ) -> None:
        """Refuse an API or a version that is not served. An ApiVersions of a later version gets an answer that every
        client can read: error 35, in version 0, with the versions of ApiVersions itself. All else closes."""
        self.stats.unsupported += 1
        if header.api_key != ApiKey.API_VERSIONS:
            known = header.api_key in _API_KEYS
            registry.stats.not_served[ApiKey(header.api_key).title if known else UNKNOWN_API] += 1
            slot.close_connection(f"API {header.api_key} in version {header.api_version} is not served")
            return
        if header.api_version < 0:
            # Its header has to read as a new one; above our versions it was read so already.
            try:
                skip_tagged_fields(frame, position)
            except IndexError as error:
                raise Malformed("a request ends inside its header's tagged fields") from error
        ranges = [served for served in registry.advertised() if served.api_key == ApiKey.API_VERSIONS]
        registry.stats.count_error("ApiVersions", ErrorCode.UNSUPPORTED_VERSION)
        answer = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_entry(r) for r in ranges])
        slot.fill(frame_response(header.correlation_id, answer, 0))


def _entry(served: ApiVersionRange) -> ApiVersionsResponse.ApiVersion:
    return ApiVersionsResponse.ApiVersion(
        api_key=served.api_key, min_version=served.min_version, max_version=served.max_version
    )


def _beginning(frame: memoryview) -> str:
    return bytes(frame[:16]).hex(" ") + (" …" if len(frame) > 16 else "")
