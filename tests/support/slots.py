"""Requests without a connection: response slots whose owner records the calls that they make."""

from collections.abc import Callable, Sequence

from broker.request.response import RequestStream, ResponseSlot
from broker.request.session import Peer, Session


class Owner:
    """Stands for a connection: records the calls of its slots."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.closed: str | None = None
        """The reason with which a slot wanted to close the connection."""

    def slot_filled(self, slot: ResponseSlot) -> None:
        self.calls.append("filled")

    def close_at(self, slot: ResponseSlot, reason: str) -> None:
        self.calls.append("close")
        self.closed = reason

    def frame_released(self) -> None:
        self.calls.append("released")

    def throttle(self, throttle_time_ms: int) -> None:
        self.calls.append(f"throttled for {throttle_time_ms} ms")


def stream(put_back: Callable[[Sequence[ResponseSlot]], None] | None = None) -> RequestStream:
    """The request stream of a connection from 10.0.0.1:4711. Requests that it puts back are dropped unless ``put_back``
    takes them."""
    session = Session(Peer(host="10.0.0.1", port=4711, listener="PLAINTEXT"))
    return RequestStream(session, put_back or (lambda slots: None))


def slot_of(frame: bytes | bytearray, owner: Owner | None = None, received_us: int = 0) -> ResponseSlot:
    """The slot of a request that is alone on its connection."""
    return ResponseSlot(owner or Owner(), stream(), memoryview(frame), received_us)
