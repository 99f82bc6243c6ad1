"""FaultGate: stands around the serving of requests, and lets those go wrong that a rule names.

    before     the request never reaches its handler; or it does without the partitions that get an error
    after      a second slot stands in for the request's own: the handler fills it, and the answer is changed, held
               back or dropped before it reaches the slot that the connection waits for

Without rules it costs one look at an empty dict for each request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from broker.control.faults.leaders import Leaders
from broker.control.faults.rule import BEFORE, Asked, NewRule, Rule
from broker.control.own_client import CLIENT_ID
from broker.control.places import TopicName, coordinated_in, keep, places_of, put_in, topic_name
from broker.request.context import RequestContext
from broker.request.response import NOTHING, ResponseSlot
from protocol.api_keys import ApiKey
from protocol.codec import Chunk
from protocol.errors import ErrorCode
from protocol.headers import RequestHeader, decode_request_header, decode_response, encode_request, frame_response
from protocol.messages.fetch import FetchRequest
from protocol.primitives import Malformed
from protocol.refusals import refusal
from protocol.schema import response_class
from storage.files import FileRegion

if TYPE_CHECKING:
    from broker.control.broker_host import BrokerHost
    from broker.control.happenings import Handle
    from broker.dispatch.registry import Route
    from broker.server.broker_server import BrokerServer

log = logging.getLogger(__name__)

Answered = Callable[[Sequence[Chunk]], None]
"""Takes the answer that a handler has given."""

MESSAGE: Final = "a fault rule of the control listener wants it so"

_SIZE_BYTES: Final = 4
_NO_SESSION: Final = 0
_FULL_FETCH: Final = -1
"""The epoch of a fetch that names all of its partitions, and begins no session."""


class FaultGate:
    """The rules in force, and what they do."""

    def __init__(self, host: BrokerHost) -> None:
        self._host = host
        self.rules: dict[int, Rule] = {}
        self._last_number = 0

    def add(self, given: NewRule) -> Rule:
        """Put a rule in force. Raises `BadArguments`."""
        rule = Rule(self._last_number + 1, given)
        self._last_number = rule.number
        self.rules[rule.number] = rule
        return rule

    def fails_on_disk(self, partition: str, how: str) -> bool:
        """Whether the files of a partition fail in this way; see `broker.control.files.GoesWrong`."""
        if not self.rules:
            return False
        for rule in self.rules.values():
            given = rule.given
            if given.disk == how and (
                given.topic is None
                or partition == f"{given.topic}-{given.partition}"
                or (given.partition is None and partition.rpartition("-")[0] == given.topic)
            ):
                rule.applied += 1
                return True
        return False

    def handling(self, handle: Handle) -> Handle:
        """``handle``, with the faults of the rules."""

        def serve(slot: ResponseSlot) -> None:
            if not self.rules or not self._goes_wrong(slot, handle):
                handle(slot)

        return serve

    def _goes_wrong(self, slot: ResponseSlot, handle: Handle) -> bool:
        """Apply the first rule that applies to the request; False if there is none."""
        server = self._host.requested
        session = slot.stream.session
        try:
            header, position = decode_request_header(slot.frame)
            route = server.registry.route(header.api_key, header.api_version)
            if route is None or header.client_id == CLIENT_ID or session.is_on_controller_listener:
                return False
            name_of = topic_name(server.metadata.image.topics)
            request, _ = route.decode(slot.frame, position)
        except Malformed:
            return False  # which the broker refuses
        work = _Work(server, handle, slot, header, route, position, name_of)
        if isinstance(request, FetchRequest) and any(rule.given.topic is not None for rule in self.rules.values()):
            # A fetch of a session does not name its partitions, so that no rule could look for them.
            if request.session_epoch > 0:
                work.refuse(request, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
                return True
            request.session_id, request.session_epoch = _NO_SESSION, _FULL_FETCH
            work.changed = request
        asked = Asked(
            api=ApiKey(header.api_key).title,
            client_id=header.client_id or "",
            principal=session.principal,
            coordinated=coordinated_in(request),
            places=places_of(request, name_of),
        )
        rule = next((one for one in self.rules.values() if one.applies_to(asked)), None)
        if rule is None:
            if work.changed is None:
                return False
            work.serve(work.answer)
            return True
        log.info("rule %d: %s of %s goes wrong", rule.number, asked.api, slot.peer)
        work.go_wrong(rule.given, request, asked)
        return True


class _Work:
    """One request that is served in another way than usual."""

    def __init__(
        self,
        server: BrokerServer,
        handle: Handle,
        slot: ResponseSlot,
        header: RequestHeader,
        route: Route[Any, Any],
        position: int,
        name_of: TopicName,
    ) -> None:
        self._server = server
        self._handle = handle
        self._slot = slot
        self._header = header
        self._route = route
        self._position = position
        self._name_of = name_of
        self.changed: object | None = None
        """The request that is handled instead of the one in the frame."""

    def go_wrong(self, given: NewRule, request: Any, asked: Asked) -> None:
        """Do what the rule wants."""
        match given:
            case NewRule(changes_leader=True):
                self._change_leader(given, asked)
            case NewRule(error=str() as name):
                code = ErrorCode[name]
                if given.topic is not None:
                    self._refuse_places(given, code)
                elif given.when == BEFORE:
                    self.refuse(request, code)
                else:
                    self.serve(lambda _: self.refuse(request, code))
            case NewRule(delay_ms=int() as delay_ms):
                if given.when == BEFORE:
                    self._slot.stream.hold_all()
                    self._later(delay_ms, self._serve_late)
                else:
                    self.serve(lambda chunks: self._later(delay_ms, lambda: self.answer(chunks)))
            case NewRule(close=True, when="before"):
                self._slot.close_connection(MESSAGE)
            case NewRule(close=True, when="after"):
                self.serve(lambda _: self._slot.close_connection(MESSAGE))
            case NewRule(close=True):
                self.serve(self._answer_in_half)
            case NewRule(when="after"):
                self.serve(lambda _: None)
            case _:
                log.debug("%s is never answered", self._slot.peer)

    def refuse(self, request: object, code: ErrorCode) -> None:
        """Answer with the error for everything that the request names."""
        self._slot.kind = self._route.kind
        header = self._header
        context = RequestContext(
            header.api_version, header.correlation_id, header.client_id or "", self._slot, self._server.registry
        )
        context.refuse(request, code, MESSAGE)

    def serve(self, then: Answered) -> None:
        """Have the request handled, and call ``then`` with its answer instead of sending it."""
        stand_in = ResponseSlot(_Answers(self._slot, then), self._slot.stream, self._frame(), self._slot.received_us)
        stand_in.turn = self._slot.turn
        self._handle(stand_in)

    def answer(self, chunks: Sequence[Chunk]) -> None:
        """Answer as the handler did."""
        self._slot.kind = self._route.kind
        self._slot.fill(chunks)

    def _change_leader(self, given: NewRule, asked: Asked) -> None:
        leaders = Leaders(self._server, given, asked)
        if given.when == BEFORE:
            self._slot.stream.hold_all()
            leaders.change(self._serve_late)
        else:
            self.serve(lambda chunks: leaders.change(lambda: self.answer(chunks)))

    def _serve_late(self) -> None:
        if self.changed is None:
            self._handle(self._slot)
        else:
            self.serve(self.answer)
        # Outside of a handler's turn nobody else writes what was staged.
        self._server.components.replicas.appender.write_staged()

    def _frame(self) -> memoryview:
        if self.changed is None:
            return self._slot.frame
        header = self._header
        encoded = encode_request(header.correlation_id, header.client_id, self.changed, header.api_version)
        return memoryview(bytearray(encoded))[_SIZE_BYTES:]

    def _refuse_places(self, given: NewRule, code: ErrorCode) -> None:
        """Answer with the error for the rule's partitions, and as usual for the others."""

        def is_refused(topic: str, index: int | None) -> bool:
            return topic == given.topic and (given.partition is None or index in (None, given.partition))

        refused, rest = (self._decoded() for _ in range(2))
        keep(refused, self._name_of, is_refused)
        if given.when == BEFORE:
            is_any_left = keep(rest, self._name_of, lambda topic, index: not is_refused(topic, index))
            if not is_any_left:
                self.refuse(refused, code)
                return
            self.changed = rest
        self.serve(lambda chunks: self._answer_with(chunks, refused, code))

    def _decoded(self) -> Any:
        if self.changed is not None:
            frame = self._frame()
            return self._route.decode(frame, decode_request_header(frame)[1])[0]
        return self._route.decode(self._slot.frame, self._position)[0]

    def _answer_with(self, chunks: Sequence[Chunk], refused: object, code: ErrorCode) -> None:
        header = self._header
        errors = refusal(type(refused))(refused, header.api_version, code, MESSAGE)
        if not chunks or errors is None:
            self.answer(NOTHING)  # a Produce with acks=0
            return
        payload = memoryview(bytearray(_joined(chunks)))[_SIZE_BYTES:]
        _, answer = decode_response(response_class(header.api_key), header.api_version, payload)
        put_in(answer, errors)
        self.answer(frame_response(header.correlation_id, answer, header.api_version))

    def _answer_in_half(self, chunks: Sequence[Chunk]) -> None:
        answer = _joined(chunks)
        self._slot.close_behind(MESSAGE)
        self.answer([bytearray(answer[: len(answer) // 2])])

    def _later(self, delay_ms: int, call: Callable[[], None]) -> None:
        self._server.services.scheduler.once(delay_ms, call)


class _Answers:
    """A `SlotOwner` that keeps the answer of a slot that stands in for another."""

    def __init__(self, slot: ResponseSlot, then: Answered) -> None:
        self._slot = slot
        self._then = then

    def slot_filled(self, slot: ResponseSlot) -> None:
        self._then(slot.chunks)

    def close_at(self, slot: ResponseSlot, reason: str) -> None:
        self._slot.close_connection(reason)

    def frame_released(self) -> None:
        """The frame belongs to the other slot."""

    def throttle(self, throttle_time_ms: int) -> None:
        self._slot.throttle(throttle_time_ms)


def _joined(chunks: Sequence[Chunk]) -> bytes:
    """An answer in one piece; regions of files are read."""
    return b"".join(one.read() if isinstance(one, FileRegion) else bytes(cast(bytes, one)) for one in chunks)
