"""The memory that requests are received into: bounded for the whole broker, borrowed from one pool."""

import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from broker.runtime.clock import Alarm, Clock

log = logging.getLogger(__name__)

SMALLEST_BUFFER: Final = 64 * 1024
"""Bytes. Larger ones make reading no faster (docs/decisions/sockets.md)."""

KEPT_BYTES: Final = 16 * 1024 * 1024
"""The most that free buffers may hold together. A new large buffer is zeroed by the system, which costs half as much as
receiving into it."""

TRIM_INTERVAL_MS: Final = 5_000
"""How long a free buffer is kept for the next request, at least."""

FAVOUR_MS: Final = 30_000
"""How long a connection that goes beyond the limit may take for a request while others wait: as long as Kafka's clients
wait for an answer (`request.timeout.ms`), so a slower client has given up by then."""


REST_MS: Final = 1_000
"""How long no memory is asked of a system that has none."""


class Borrower(Protocol):
    """A connection as the memory sees it."""

    def memory_available(self) -> None:
        """There may be memory now: ask again."""

    def make_way(self) -> None:
        """This connection has held others up for `FAVOUR_MS`: close, unless it only waits for answers."""


class RequestMemory:
    """How much all connections together hold for requests (`queued.max.request.bytes`).

    Requests that are half received could fill it and wait for one another for ever. So when it is full one connection
    at a time may go beyond, for the request it is receiving, until it has given everything back. It has `FAVOUR_MS` for
    each request while others wait; then it is closed. To end its favour would not be enough: what it holds stays, and
    with every further connection that stalls there would be more beyond the limit.
    """

    def __init__(self, limit_bytes: int, call_soon: Callable[[Callable[[], None]], object], clock: Clock) -> None:
        self.limit_bytes = limit_bytes
        """-1: no limit."""
        self.used_bytes = 0
        self.is_short = 0 <= limit_bytes < SMALLEST_BUFFER
        """There is not even memory for a small buffer."""
        self.times_exhausted = 0
        self._call_soon = call_soon
        self._clock = clock
        self.favoured: Borrower | None = None
        """The connection that may go beyond the limit at present."""
        self._is_request_whole = False
        """The favoured connection has received the request that it went beyond the limit for."""
        self._favoured_since_ms = 0
        """When the favoured connection began with its present request."""
        self._alarm: Alarm | None = None
        self._waiting: deque[Borrower] = deque()
        self._is_waking = False

    @property
    def available_bytes(self) -> int:
        return max(self.limit_bytes - self.used_bytes, 0)

    def take(self, size: int, borrower: Borrower, *, may_exceed: bool) -> bool:
        """Count ``size`` bytes as used. False where the limit does not allow it: the borrower is called when it may ask
        again.

        ``may_exceed``: nothing else of this borrower is under way that would give memory back.
        """
        if 0 <= self.limit_bytes < self.used_bytes + size and not self._may_exceed(borrower, may_exceed):
            self.times_exhausted += 1
            if borrower not in self._waiting:
                self._waiting.append(borrower)
            return False
        self.count(size)
        return True

    def _may_exceed(self, borrower: Borrower, has_nothing_under_way: bool) -> bool:
        if borrower is self.favoured and not self._is_request_whole:
            return True
        if borrower is not self.favoured and self.favoured is not None:
            return False
        if not has_nothing_under_way:
            return False
        self.favoured = borrower
        self._is_request_whole = False
        self._favoured_since_ms = self._clock.monotonic_ms()
        if self._alarm is None:
            self._alarm = self._clock.call_at(self._favoured_since_ms + FAVOUR_MS, self._look_at_favoured)
        return True

    def request_received(self) -> None:
        """The favoured connection has received a whole request: when that is answered, it may go beyond the limit for
        another one."""
        self._is_request_whole = True
        self._favoured_since_ms = self._clock.monotonic_ms()

    def _look_at_favoured(self) -> None:
        self._alarm = None
        favoured = self.favoured
        if favoured is None:
            return
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._favoured_since_ms >= FAVOUR_MS:
            if self._waiting:
                favoured.make_way()
                if self.favoured is None:
                    return
            self._favoured_since_ms = now_ms
        self._alarm = self._clock.call_at(self._favoured_since_ms + FAVOUR_MS, self._look_at_favoured)

    def system_has_none(self, size: int, borrower: Borrower) -> None:
        """The system does not give the ``size`` bytes that were counted for ``borrower``: it may ask again after a
        rest."""
        log.error("No memory for %d bytes of a request: waiting for %d ms", size, REST_MS)
        self.give(size)
        self._waiting.append(borrower)
        self._clock.call_at(self._clock.monotonic_ms() + REST_MS, self._wake)

    def count(self, size: int) -> None:
        """Count ``size`` bytes as used that were lent without asking; only while memory is not short."""
        self.used_bytes += size
        self.is_short = 0 <= self.limit_bytes < self.used_bytes + SMALLEST_BUFFER

    def give(self, size: int) -> None:
        """Count ``size`` bytes as free again."""
        self.used_bytes -= size
        self.is_short = 0 <= self.limit_bytes < self.used_bytes + SMALLEST_BUFFER
        if self._waiting:
            self._wake()

    def leave(self, borrower: Borrower) -> None:
        """``borrower`` holds no memory any more and waits for none."""
        if borrower is self.favoured:
            self.favoured = None
            if self._alarm is not None:
                self._alarm.cancel()
                self._alarm = None
            if self._waiting:
                self._wake()
        if self._waiting and borrower in self._waiting:
            self._waiting.remove(borrower)

    def _wake(self) -> None:
        if not self._is_waking:
            self._is_waking = True
            self._call_soon(self._call_waiting)

    def _call_waiting(self) -> None:
        self._is_waking = False
        # Each once, in order; a borrower that gets nothing comes back to the same queue.
        for _ in range(len(self._waiting)):
            if not self._waiting:
                return
            self._waiting.popleft().memory_available()


class Buffer:
    """Memory for one or many frames, lent to one connection at a time."""

    __slots__ = ("capacity", "data", "view")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.data = bytearray(capacity)
        self.view = memoryview(self.data)

    def is_free_of_views(self) -> bool:
        """Whether no view of the memory is left. Ends the buffer's own view; see `renew`."""
        self.view.release()
        try:
            # A bytearray refuses to change its size while there are views of it. Its memory stays where it is.
            self.data.pop()
        except BufferError:
            return False
        self.data.append(0)
        return True

    def renew(self) -> None:
        """Make it ready to be lent again."""
        self.view = memoryview(self.data)


class BufferPool:
    """Free buffers by their size: powers of two from `SMALLEST_BUFFER` on. All processors borrow from the same ones."""

    def __init__(self, memory: RequestMemory, clock: Clock) -> None:
        self.memory = memory
        self._clock = clock
        self._alarm: Alarm | None = None
        self._free: dict[int, list[Buffer]] = {}
        self._idle: dict[int, int] = {}
        """The fewest free buffers since the last trim, by size."""
        self.free_bytes = 0
        self.scratch = Buffer(SMALLEST_BUFFER)
        """Memory for any connection that receives; nothing is kept in it from one receive to the next."""

    def take_scratch(self) -> Buffer:
        """Lend `scratch` with what was just received into it; other memory takes its place. Only while memory is not
        short."""
        taken = self.scratch
        self.memory.count(taken.capacity)
        self.scratch = self.lend(SMALLEST_BUFFER)
        return taken

    def borrow(self, needed: int, borrower: Borrower, *, may_exceed: bool) -> Buffer | None:
        """Lend a buffer of at least ``needed`` bytes; None if there is no memory (see `RequestMemory.take`)."""
        capacity = SMALLEST_BUFFER if needed <= SMALLEST_BUFFER else 1 << (needed - 1).bit_length()
        if not self.memory.take(capacity, borrower, may_exceed=may_exceed):
            return None
        try:
            return self.lend(capacity)
        except MemoryError:
            self.memory.system_has_none(capacity, borrower)
            return None

    def lend(self, capacity: int) -> Buffer:
        """Lend a buffer of one of the pool's sizes; the caller counts it as used."""
        free = self._free.get(capacity)
        if not free:
            return Buffer(capacity)
        buffer = free.pop()
        self.free_bytes -= capacity
        if len(free) < self._idle[capacity]:
            self._idle[capacity] = len(free)
        buffer.renew()
        return buffer

    def give_back(self, buffer: Buffer) -> None:
        """Take a buffer back. One of which there are still views is not lent again: it lives as long as they do."""
        capacity = buffer.capacity
        self.memory.give(capacity)
        if buffer.is_free_of_views() and self.free_bytes + capacity <= KEPT_BYTES:
            free = self._free.get(capacity)
            if free is None:
                free = self._free[capacity] = []
                self._idle[capacity] = 0
            free.append(buffer)
            self.free_bytes += capacity
            if self._alarm is None:
                self._arm()

    def trim(self) -> bool:
        """Free the buffers that were not needed since the last time; return whether any are left to trim later."""
        for capacity, free in self._free.items():
            for _ in range(self._idle[capacity]):
                free.pop()
                self.free_bytes -= capacity
            self._idle[capacity] = len(free)
        return self.free_bytes > 0

    def close(self) -> None:
        """No buffer is borrowed any more: stop trimming."""
        if self._alarm is not None:
            self._alarm.cancel()

    def _arm(self) -> None:
        self._alarm = self._clock.call_at(self._clock.monotonic_ms() + TRIM_INTERVAL_MS, self._interval_is_over)

    def _interval_is_over(self) -> None:
        self._alarm = None
        if self.trim():
            self._arm()
