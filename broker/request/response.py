"""The slot that a request's answer goes to: made by the connection, filled once, sent in order."""

from collections.abc import Sequence
from time import monotonic_ns
from typing import Final, Protocol

from broker.request.stats import HandlerTurn, RequestKind
from protocol.codec import Chunk

NOTHING: Final[Sequence[Chunk]] = ()
"""The answer of a produce with acks=0: none, but what stands behind it may go out."""

UNKNOWN_SOFTWARE: Final = ("unknown", "unknown")

NO_FRAME: Final = memoryview(b"")
"""Stands where a frame was."""


class Repeats(Protocol):
    """What a handler has left with a connection, to recognise its next request without reading it anew."""

    def take(self, slot: "ResponseSlot") -> bool:
        """Serve a request that is like an earlier one. False: it is not, and nothing has been done."""

    def close(self) -> None:
        """The connection is gone."""


class NoRepeats:
    """Recognises nothing: of a connection that is gone."""

    def take(self, slot: "ResponseSlot") -> bool:
        """It is not like an earlier one."""
        return False

    def close(self) -> None:
        """Nothing hangs on it."""


NO_REPEATS: Final = NoRepeats()


class Peer:
    """Who is at the other end of a connection; one object for all its requests."""

    __slots__ = ("host", "listener", "port", "principal", "repeats", "software", "throttle_time_ms")

    def __init__(self, *, host: str, port: int, listener: str, principal: str = "User:ANONYMOUS") -> None:
        self.host = host
        self.port = port
        self.listener = listener
        self.principal = principal
        self.repeats: Repeats | None = None
        self.software = UNKNOWN_SOFTWARE
        """Name and version of the client, as it has told them (KIP-511)."""
        self.throttle_time_ms = 0
        """How long the client is throttled, as every answer says it (KIP-219). 0: it is not."""

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class SlotOwner(Protocol):
    """A connection as its slots see it."""

    peer: Peer

    def slot_filled(self, slot: "ResponseSlot") -> None:
        """``slot`` has its answer: put the connection on its processor's touched list."""

    def close_at(self, slot: "ResponseSlot", reason: str) -> None:
        """Send what was asked before ``slot``, then close; ``reason`` goes to the log."""

    def frame_released(self) -> None:
        """One more slot waits for its answer without its frame: perhaps the buffer is free."""


class ResponseSlot:
    """One request under way: its frame on the way in, its chunks on the way out.

    A connection's slots stand in a queue in the order of its requests and are sent in that order, whoever is
    filled first. A request whose connection has died is handled all the same (a producer with acks=0 may send and
    go); its slot accepts the answer and drops it.
    """

    __slots__ = ("_owner", "chunks", "filled_us", "frame", "is_filled", "kind", "received_us", "size", "turn")

    def __init__(self, owner: SlotOwner, frame: memoryview, received_us: int) -> None:
        self._owner = owner
        self.frame = frame
        """The request without its four bytes of size; readable (and writable) until the slot is filled or the frame
        released."""
        self.size = len(frame)
        self.received_us = received_us
        """When the turn began in which the request was complete, on a clock that never goes back."""
        self.chunks: Sequence[Chunk] = NOTHING
        self.is_filled = False
        self.turn: HandlerTurn | None = None
        """In which it is, or was, worked on."""
        self.kind: RequestKind | None = None
        """Where it is counted; None while nobody knows what it is."""
        self.filled_us = 0
        """When its answer came, where that was behind its turn."""

    @property
    def peer(self) -> Peer:
        """The other end, gone or not."""
        return self._owner.peer

    def fill(self, chunks: Sequence[Chunk]) -> None:
        """Give the answer, the first chunk beginning with its size; `NOTHING` where none is due."""
        assert not self.is_filled, "a slot is filled once"
        self.is_filled = True
        self.chunks = chunks
        self.frame = NO_FRAME
        turn = self.turn
        if turn is not None and turn.ended_us:
            self.filled_us = monotonic_ns() // 1000
        self._owner.slot_filled(self)

    def close_connection(self, reason: str) -> None:
        """Answer by closing: what was asked before is still answered, what was asked behind it is not."""
        assert not self.is_filled, "a slot is filled once"
        self.is_filled = True
        self.frame = NO_FRAME
        self._owner.close_at(self, reason)

    def release_frame(self) -> None:
        """The answer comes later and needs the frame no more: its memory may serve another request."""
        self.frame = NO_FRAME
        self._owner.frame_released()

    def bequeath(self, heir: SlotOwner) -> None:
        """The connection has died: ``heir`` takes the answer, to drop it."""
        self._owner = heir
