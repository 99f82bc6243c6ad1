"""What is left of a connection that was closed while requests of it were under way."""

from collections.abc import Sequence

from broker.network.buffer_pool import Buffer, BufferPool
from broker.request.response import NO_FRAME, NOTHING, ResponseSlot


class Departed:
    """A `SlotOwner` that drops the answers of the requests that were under way, and gives the connection's buffers back
    when no request needs them any more."""

    __slots__ = ("_buffers", "_pool", "_slots")

    def __init__(self) -> None:
        self._slots: Sequence[ResponseSlot] = ()
        self._buffers: Sequence[Buffer] = ()
        self._pool: BufferPool | None = None

    def inherit(self, slots: Sequence[ResponseSlot], buffers: Sequence[Buffer], pool: BufferPool) -> None:
        self._slots = slots
        self._buffers = buffers
        self._pool = pool
        self.frame_released()

    def slot_filled(self, slot: ResponseSlot) -> None:
        slot.chunks = NOTHING
        if slot.kind is not None:
            slot.kind.answered += 1
        self.frame_released()

    def close_at(self, slot: ResponseSlot, reason: str) -> None:
        self.frame_released()

    def frame_released(self) -> None:
        if self._pool is not None and all(slot.frame is NO_FRAME for slot in self._slots):
            for buffer in self._buffers:
                self._pool.give_back(buffer)
            self._slots = self._buffers = ()
            self._pool = None

    def throttle(self, throttle_time_ms: int) -> None:
        """No further request comes."""
