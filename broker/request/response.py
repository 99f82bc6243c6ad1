"""The requests of a connection while they are under way: a slot for each answer, and the order of evaluation.

A request is evaluated when the requests before it on its connection are answered, as in Kafka, which reads a
connection's next request after the answer to the last one. So no answer is older than the request's turn. A Produce
behind Produces is an exception, and so is an OffsetCommit behind OffsetCommits: their order is all that matters, and it
is kept without waiting.

    connection's queue     Produce  Produce  Metadata  Produce
                           evaluated, not    held until both Produces
                           answered yet      are answered (docs/decisions/request-queue.md)
"""

from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import Final, Protocol

from broker.request.session import Peer, Session
from broker.request.stats import HandlerTurn, RequestKind
from protocol.codec import Chunk

NOTHING: Final[Sequence[Chunk]] = ()
"""The answer to a Produce with acks=0: no bytes. The answers behind it may be sent."""

_PRODUCE: Final = 0
_OFFSET_COMMIT: Final = 8
"""API keys, as numbers that compiled code compares at once."""

NO_OVERLAP: Final = -1
"""Stands for an API whose requests wait for the answers to those before them."""

_ANY: Final = -2
"""No request is without an answer."""

NO_FRAME: Final = memoryview(b"")
"""Stands where a frame was."""


class Repeats(Protocol):
    """What a handler has left with a connection, to recognise its next request without decoding it."""

    def take(self, slot: "ResponseSlot") -> bool:
        """Serve a request that is like an earlier one. False: it is not like one, and nothing has been done."""

    def close(self) -> None:
        """The connection is closed."""


class NoRepeats:
    """The `Repeats` of a closed connection: recognises nothing."""

    def take(self, slot: "ResponseSlot") -> bool:
        """The request is not like an earlier one."""
        return False

    def close(self) -> None:
        """There is nothing to let go of."""


NO_REPEATS: Final = NoRepeats()


class SlotOwner(Protocol):
    """A connection as its slots see it."""

    def slot_filled(self, slot: "ResponseSlot") -> None:
        """``slot`` has its answer: put the connection on its processor's touched list."""

    def close_at(self, slot: "ResponseSlot", reason: str) -> None:
        """Send the answers to requests before ``slot``, and the slot's own if there is any, then close; ``reason`` goes
        to the log."""

    def frame_released(self) -> None:
        """One more slot waits for its answer without its frame: perhaps the buffer is free."""

    def throttle(self, throttle_time_ms: int) -> None:
        """Read and evaluate no further request for ``throttle_time_ms``; answers are sent."""


class RequestStream:
    """The requests of one connection: which of them may be evaluated now, and which are held until later.

    A handler takes requests in their order. It asks `admits` where `is_free` is false, and says afterwards whether the
    request has its answer (`move_on`) or not (`wait_for`). Held requests come back through the request channel, one at
    a time, so that other connections have their turn in between.
    """

    __slots__ = (
        "_held",
        "_is_called",
        "_is_closed",
        "_is_cut",
        "_overlap",
        "_put_back",
        "_unanswered",
        "_when_closed",
        "is_free",
        "repeats",
        "session",
    )

    def __init__(self, session: Session, put_back: Callable[[Sequence["ResponseSlot"]], None]) -> None:
        """``put_back`` puts requests at the head of the request channel."""
        self.session = session
        self.repeats: Repeats | None = None
        """Recognises requests like earlier ones; None until a handler leaves something here."""
        self.is_free = True
        """The next request may be evaluated without a question: all before it are answered, and none is held."""
        self._put_back = put_back
        self._held: list[ResponseSlot] = []
        """Requests that a handler has taken before their turn, in their order. Most often there are none, and an empty
        deque would take 0.7 KB of every idle connection."""
        self._is_called = False
        """The first held request is in the channel."""
        self._unanswered = 0
        """Requests evaluated and not answered."""
        self._overlap = _ANY
        """The API of all of these, if its requests need not wait for one another; else `NO_OVERLAP`."""
        self._is_cut = False
        self._is_closed = False
        self._when_closed: Callable[[RequestStream], None] | None = None

    def when_closed(self, notify: Callable[["RequestStream"], None]) -> None:
        """Call ``notify`` with this stream once the connection is closed; at once if it is. There is one ``notify``."""
        self._when_closed = notify
        if self._is_closed:
            notify(self)

    def forget_repeats(self) -> None:
        """Recognise no request like earlier ones: those were sent under another client id."""
        if self.repeats is not None and not self._is_closed:
            self.repeats.close()
            self.repeats = None

    @property
    def held(self) -> int:
        """Requests that wait for their turn outside of the channel."""
        return len(self._held)

    def admits(self, slot: "ResponseSlot") -> bool:
        """Whether ``slot``, the next request of this connection from the channel, is to be evaluated now. If not, it
        is held until its turn comes; behind a request that was answered by closing it is dropped."""
        held = self._held
        if self._is_cut:
            if not slot.is_filled:
                slot.fill(NOTHING)
            return False
        if not held:
            if self._may_begin(slot):
                return True
            held.append(slot)
        elif held[0] is not slot:
            held.append(slot)
        else:
            self._is_called = False
            if self._may_begin(slot):
                held.pop(0)
                return True
        return False

    def wait_for(self, slot: "ResponseSlot", overlapping: int) -> None:
        """``slot`` is evaluated and has no answer yet: hold what comes behind it, but for requests of the API
        ``overlapping``, its own (`overlapping_api`)."""
        if self._is_closed:
            self.move_on()
            return
        slot.is_awaited = True
        self.is_free = False
        self._unanswered += 1
        if self._overlap == _ANY:
            self._overlap = overlapping
        elif self._overlap != overlapping:
            self._overlap = NO_OVERLAP
        if self._held and self._overlap != NO_OVERLAP:
            self.move_on()

    def hold_all(self) -> None:
        """The request that is evaluated now is put off: nothing behind it is evaluated before, not even a Produce."""
        self._overlap = NO_OVERLAP

    def answered(self) -> None:
        """A request that was waited for has its answer."""
        if self._is_closed:
            return
        self._unanswered -= 1
        if not self._unanswered:
            self._overlap = _ANY
            self.move_on()

    def move_on(self) -> None:
        """Call the first held request if its turn has come."""
        held = self._held
        if not held:
            self.is_free = not (self._unanswered or self._is_cut or self.session.throttled_until_ms)
        elif not self._is_called and self._may_begin(held[0]):
            self._is_called = True
            self._put_back((held[0],))

    def throttle(self, throttle_time_ms: int, until_ms: int) -> None:
        """Evaluate nothing more until `end_throttle`, and let answers tell the client so."""
        self.session.throttle_time_ms = throttle_time_ms
        self.session.throttled_until_ms = until_ms
        self.is_free = False

    def end_throttle(self) -> None:
        """The client is throttled no more."""
        self.session.throttle_time_ms = 0
        self.session.throttled_until_ms = 0
        self.move_on()

    def cut(self) -> None:
        """A request was answered by closing: no request behind it is evaluated."""
        self._is_cut = True
        self.is_free = False
        while self._held:
            self._held.pop(0).fill(NOTHING)

    def close(self) -> None:
        """The connection is closed. Its requests are evaluated in their order, as a producer with acks=0 may send and
        go; none of them waits for an answer to another, since answers are dropped."""
        self._is_closed = True
        self._unanswered = 0
        self._overlap = _ANY
        if self.repeats is not None:
            self.repeats.close()
        self.repeats = NO_REPEATS
        if self._when_closed is not None:
            self._when_closed(self)
        if self.session.gate is not None:
            self.session.gate.close()
        self.end_throttle()

    def _may_begin(self, slot: "ResponseSlot") -> bool:
        if self.session.throttled_until_ms:
            return False
        return not self._unanswered or self._overlap == overlapping_api(slot) != NO_OVERLAP


class ResponseSlot:
    """One request under way: its frame on the way in, its chunks on the way out.

    A connection's slots stand in a queue in the order of its requests. Answers are sent in that order, whichever slot
    is filled first. A request whose connection has closed is handled all the same; its slot drops the answer.
    """

    __slots__ = (
        "_owner",
        "chunks",
        "filled_us",
        "frame",
        "is_awaited",
        "is_filled",
        "kind",
        "received_us",
        "size",
        "stream",
        "turn",
    )

    def __init__(self, owner: SlotOwner, stream: RequestStream, frame: memoryview, received_us: int) -> None:
        self._owner = owner
        self.stream = stream
        self.frame = frame
        """The request without its four bytes of size; readable (and writable) until the slot is filled or the frame
        released."""
        self.size = len(frame)
        self.received_us = received_us
        """When the turn began in which the request was complete, on a clock that never goes back."""
        self.chunks: Sequence[Chunk] = NOTHING
        self.is_filled = False
        self.is_awaited = False
        """The requests behind this one wait for its answer."""
        self.turn: HandlerTurn | None = None
        """In which the request is, or was, worked on."""
        self.kind: RequestKind | None = None
        """Where the request is counted; None while its API is not known."""
        self.filled_us = 0
        """When the answer came, where that was after the turn."""

    @property
    def session(self) -> Session:
        """The session of the connection, closed or not."""
        return self.stream.session

    @property
    def peer(self) -> Peer:
        """The other end of the connection, closed or not."""
        return self.stream.session.peer

    def fill(self, chunks: Sequence[Chunk]) -> None:
        """Give the answer, the first chunk beginning with its size; `NOTHING` where no answer is due."""
        assert not self.is_filled, "a slot is filled once"
        self.is_filled = True
        self.chunks = chunks
        self.frame = NO_FRAME
        turn = self.turn
        if turn is not None and turn.ended_us:
            self.filled_us = monotonic_ns() // 1000
        self._owner.slot_filled(self)
        if self.is_awaited:
            self.stream.answered()

    def close_connection(self, reason: str) -> None:
        """Answer by closing: the requests before this one are still answered, those behind it are not evaluated."""
        assert not self.is_filled, "a slot is filled once"
        self.is_filled = True
        self.frame = NO_FRAME
        self._owner.close_at(self, reason)
        self.stream.cut()

    def close_behind(self, reason: str) -> None:
        """The answer, which is still to be given, is the connection's last: it is sent, then the connection closes."""
        self._owner = LastAnswer(self._owner, reason)

    def release_frame(self) -> None:
        """The answer comes later and needs the frame no more: the frame's memory may serve another request."""
        self.frame = NO_FRAME
        self._owner.frame_released()

    def throttle(self, throttle_time_ms: int) -> None:
        """The request has exceeded a quota: read and evaluate nothing more of its connection for that long."""
        self._owner.throttle(throttle_time_ms)

    def bequeath(self, heir: SlotOwner) -> None:
        """The connection has closed: ``heir`` takes the answer, to drop it."""
        self._owner = heir


class LastAnswer:
    """A `SlotOwner` between a connection and the slot whose answer is the last one of the connection."""

    __slots__ = ("_owner", "_reason")

    def __init__(self, owner: SlotOwner, reason: str) -> None:
        self._owner = owner
        self._reason = reason

    def slot_filled(self, slot: ResponseSlot) -> None:
        self._owner.close_at(slot, self._reason)
        slot.stream.cut()

    def close_at(self, slot: ResponseSlot, reason: str) -> None:
        self._owner.close_at(slot, reason)

    def frame_released(self) -> None:
        self._owner.frame_released()

    def throttle(self, throttle_time_ms: int) -> None:
        self._owner.throttle(throttle_time_ms)


def overlapping_api(slot: ResponseSlot) -> int:
    """The API key of a request that has its frame, if requests of the API need not wait for one another; else
    `NO_OVERLAP`. The key is in the first two bytes."""
    frame = slot.frame
    if len(frame) < 2 or frame[0]:
        return NO_OVERLAP
    if not frame[1]:
        return _PRODUCE
    return _OFFSET_COMMIT if frame[1] == _OFFSET_COMMIT else NO_OVERLAP
