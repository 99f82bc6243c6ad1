"""Where the bytes of a connection arrive, and how they are cut into requests.

    position of the bytes in the buffer

    0 ........ answered or under way ........ start ...... received, no whole frame yet ...... end ...... limit
    | frame | frame | frame |                 | size i32 | the frame so far                    | next recv |

A connection borrows a buffer while it has bytes that are not answered or not complete; an idle connection holds none.
Frames are views of the buffer, never copies. Two things are copied: small requests that arrive whole in memory that all
connections receive into (`cut_copies`), and a half frame that does not fit behind the frames before it, to another
buffer.
"""

import struct
from collections import deque
from typing import Final

from broker.network.buffer_pool import SMALLEST_BUFFER, Borrower, Buffer, BufferPool
from broker.request.response import RequestStream, ResponseSlot, SlotOwner

_read_size = struct.Struct(">i").unpack_from

SIZE_BYTES: Final = 4

LEAST_FREE_BYTES: Final = 2048
"""Bytes at the end of a buffer that are not worth a system call."""

MOST_COPIED_BYTES: Final = 2048
"""Requests up to this size are copied out of the shared memory, larger ones are cut in place."""

WHOLE_FROM: Final = SMALLEST_BUFFER // 2
"""Frames larger than this are received to their end and no further: what is behind such a frame would have to be
copied, nearly all of it where two frames just do not fit into a buffer (bench-kafka: raw-128kb)."""


def cut_copies(
    data: bytearray, end: int, most: int, owner: SlotOwner, stream: RequestStream, now_us: int
) -> tuple[list[ResponseSlot], int]:
    """Make requests of copies of the small whole frames at the beginning of ``data``, ``most`` at most; return them and
    the position behind the last."""
    arrived: list[ResponseSlot] = []
    start = 0
    while most > 0 and end - start > SIZE_BYTES:
        size = _read_size(data, start)[0]
        frame = start + SIZE_BYTES
        if not 0 < size <= MOST_COPIED_BYTES or frame + size > end:
            break
        start = frame + size
        arrived.append(ResponseSlot(owner, stream, memoryview(data[frame:start]), now_us))
        most -= 1
    return arrived, start


class ReceiveBuffer:
    """The memory of one connection for requests: the buffer that is received into, and full ones whose requests are not
    answered."""

    __slots__ = (
        "_buffer",
        "_end",
        "_largest_frame",
        "_limit",
        "_pool",
        "_retired",
        "_slots",
        "_start",
        "last_frame",
        "refused_size",
    )

    def __init__(self, pool: BufferPool, slots: deque[ResponseSlot]) -> None:
        """``slots``: the unanswered requests of the connection."""
        self._pool = pool
        self._slots = slots
        self._buffer: Buffer | None = None
        self._start = self._end = self._limit = 0
        self._retired: list[tuple[Buffer, ResponseSlot]] = []
        """Full buffers, each with the last request that lies in it."""
        self.last_frame = 0
        """Bytes of the last frame that was cut in place, with its size."""
        self._largest_frame = 0
        self.refused_size: int | None = None
        """A size that no request may have, found instead of the next frame."""

    @property
    def is_receiving(self) -> bool:
        """The connection has a buffer that is received into."""
        return self._buffer is not None

    @property
    def holds_memory(self) -> bool:
        """The connection has a buffer."""
        return self._buffer is not None or bool(self._retired)

    @property
    def incomplete_bytes(self) -> int:
        """Bytes that are received and belong to no request yet."""
        return self._end - self._start

    def space(self, borrower: Borrower) -> memoryview | None:
        """Where the next bytes are to be received; None where there is no memory: ``borrower`` is called later."""
        buffer = self._buffer
        if buffer is None:
            buffer = self._borrow(self.last_frame, borrower)
            if buffer is None:
                return None
            self._use(buffer, 0)
            self._limit = self._end_of_next(buffer)
        return buffer.view[self._end : self._limit]

    def received(self, count: int) -> None:
        """So many bytes were received into `space`."""
        self._end += count

    def take_over(self, buffer: Buffer, start: int, end: int) -> None:
        """Go on in a borrowed buffer, which has received bytes from ``start`` to ``end``."""
        self._use(buffer, end)
        self._start = start

    def cut(
        self, most: int, owner: SlotOwner, stream: RequestStream, now_us: int, largest_size: int
    ) -> list[ResponseSlot]:
        """Make requests of the whole frames that are there, in place, ``most`` at most. A size that is not from 1 to
        ``largest_size`` ends that: `refused_size`."""
        buffer = self._buffer
        if buffer is None:
            return []
        data, view = buffer.data, buffer.view
        start, end = self._start, self._end
        arrived: list[ResponseSlot] = []
        while len(arrived) < most and end - start >= SIZE_BYTES:
            size = _read_size(data, start)[0]
            if not 0 < size <= largest_size:
                self.refused_size = size
                start = end
                break
            frame = start + SIZE_BYTES
            if frame + size > end:
                break
            start = frame + size
            arrived.append(ResponseSlot(owner, stream, view[frame:start], now_us))
        self._start = start
        if arrived:
            self.last_frame = SIZE_BYTES + arrived[-1].size
            if self.last_frame > self._largest_frame:
                self._largest_frame = self.last_frame
        return arrived

    def prepare(self, borrower: Borrower) -> bool:
        """Choose where the next bytes go. False: there is no memory, and ``borrower`` is called later."""
        buffer = self._buffer
        if buffer is None:
            return True
        start, end = self._start, self._end
        capacity = buffer.capacity
        arrived = end - start
        if not arrived:
            if capacity - end < max(self.last_frame, LEAST_FREE_BYTES):
                self._retire(buffer)
            else:
                self._limit = self._end_of_next(buffer)
            return True
        needed = SIZE_BYTES
        if arrived >= SIZE_BYTES:
            needed += _read_size(buffer.data, start)[0]
        if start + needed <= capacity:
            self._limit = start + needed if needed > WHOLE_FROM else capacity
        elif start == 0 and end < capacity:
            self._limit = capacity
        else:
            # A frame grows with the bytes that have arrived, at once to what has arrived here before, and never by what
            # is only announced.
            larger = self._borrow(min(needed, max(2 * arrived, self._largest_frame)), borrower)
            if larger is None:
                return False
            larger.view[:arrived] = buffer.view[start:end]
            self._retire(buffer)
            self._use(larger, arrived)
            if larger.capacity >= needed > WHOLE_FROM:
                self._limit = needed
        return True

    def drop_incomplete(self) -> None:
        """No more requests are made of what is received."""
        self._start = self._end

    def settle(self) -> None:
        """Requests have been answered: give back the full buffers in which none is left."""
        slots = self._slots
        while self._retired and self._retired[0][1] not in slots:
            self._pool.give_back(self._retired.pop(0)[0])

    def give_back_all(self) -> None:
        """No frame is needed any more: give back every buffer but one that holds the beginning of a request."""
        while self._retired:
            self._pool.give_back(self._retired.pop()[0])
        if self._buffer is not None and self._start == self._end:
            self._pool.give_back(self._buffer)
            self._buffer = None
            self._start = self._end = 0

    def surrender(self) -> list[Buffer]:
        """The connection is closed: return its buffers, which go back when their requests are handled."""
        buffers = [buffer for buffer, _ in self._retired]
        if self._buffer is not None:
            buffers.append(self._buffer)
        self._retired.clear()
        self._buffer = None
        return buffers

    def _borrow(self, needed: int, borrower: Borrower) -> Buffer | None:
        return self._pool.borrow(needed, borrower, may_exceed=not self._slots)

    def _end_of_next(self, buffer: Buffer) -> int:
        """How far to receive the next frame, of which nothing is there yet: most often it is as large as the last."""
        last = self.last_frame
        return min(self._end + last, buffer.capacity) if last > WHOLE_FROM else buffer.capacity

    def _use(self, buffer: Buffer, arrived: int) -> None:
        self._buffer = buffer
        self._start = 0
        self._end = arrived
        self._limit = buffer.capacity

    def _retire(self, buffer: Buffer) -> None:
        """Receive nothing more into a buffer; it is free when its requests are answered."""
        self._buffer = None
        self._start = self._end = 0
        if self._slots:
            self._retired.append((buffer, self._slots[-1]))
        else:
            self._pool.give_back(buffer)
