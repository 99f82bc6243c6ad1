"""The bounded queue between the connections, which put requests in, and the handlers, which take them out."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from broker.request.response import RequestStream, ResponseSlot


class ChannelStats:
    """What the channel has counted."""

    __slots__ = ("taken", "times_full", "wake_ups")

    def __init__(self) -> None:
        self.taken = 0
        """Requests handed to handlers."""
        self.wake_ups = 0
        """Times a parked handler was woken."""
        self.times_full = 0
        """Times a connection found the channel full and stopped reading."""


class RequestChannel:
    """Requests in the order of their arrival, at most ``capacity`` of them (`queued.max.requests`).

    Handlers that find nothing park on futures of their own, and a request wakes at most one of them. A handler that
    takes a full turn and leaves requests behind wakes the next handler.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._requests: deque[ResponseSlot] = deque()
        self._parked: list[asyncio.Future[None]] = []
        self._is_waking = False
        self._waiting: deque[Callable[[], None]] = deque()
        self.is_in_turn = False
        """A handler is at work: what it answers is sent when its turn ends."""
        self._after_turn: list[Callable[[], None]] = []
        self.stats = ChannelStats()

    def __len__(self) -> int:
        return len(self._requests)

    @property
    def remaining_capacity(self) -> int:
        """How many requests may be put in now; 0, or less, while connections wait for their turn to put."""
        return 0 if self._waiting else self.capacity - len(self._requests)

    def holds_others_than(self, stream: RequestStream) -> bool:
        """Whether a request of another connection is queued. Only the ends are looked at: this is asked every turn."""
        requests = self._requests
        return bool(requests) and (requests[0].stream is not stream or requests[-1].stream is not stream)

    def put(self, slots: Sequence[ResponseSlot]) -> None:
        """Queue requests. The caller has asked for `remaining_capacity`."""
        self._requests.extend(slots)
        if self._parked and not self._is_waking:
            self._wake_one()

    def when_not_full(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once requests may be put in again; it may put requests and ask anew. First come, first
        served."""
        self.stats.times_full += 1
        self._waiting.append(callback)

    async def take(self, most: int) -> list[ResponseSlot]:
        """Return the next requests, ``most`` at most; wait while there are none."""
        requests = self._requests
        while not requests:
            await self._park()
        taken = [requests.popleft() for _ in range(min(most, len(requests)))]
        self.stats.taken += len(taken)
        if self._waiting:
            self._call_waiting()
        if requests and self._parked and not self._is_waking:
            self._wake_one()
        return taken

    def begin_turn(self) -> None:
        """A handler begins with what it has taken; no other handler begins before it has called `end_turn`."""
        self.is_in_turn = True

    def after_turn(self, callback: Callable[[], None]) -> None:
        """Call ``callback``, which has answers to send, when the handler's turn ends. Only while `is_in_turn`."""
        self._after_turn.append(callback)

    def end_turn(self) -> None:
        """Have the answers of this turn sent. In a turn of the loop's own they would wait for what has come meanwhile
        to be received (bench-kafka: raw-128kb, raw-16kb)."""
        self.is_in_turn = False
        if self._after_turn:
            callbacks, self._after_turn = self._after_turn, []
            for callback in callbacks:
                callback()

    def put_back(self, slots: Sequence[ResponseSlot]) -> None:
        """Queue requests that were taken and not evaluated, before all others, even if the channel is full."""
        self._requests.extendleft(reversed(slots))
        self.stats.taken -= len(slots)
        if self._parked and not self._is_waking:
            self._wake_one()

    async def _park(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._parked.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter in self._parked:
                self._parked.remove(waiter)
            else:
                # Woken and cancelled in the same turn: another handler has to be woken instead.
                self._is_waking = False
                if self._requests:
                    self._wake_one()
            raise
        self._is_waking = False

    def _wake_one(self) -> None:
        # The last to park: its task is the one that has just run.
        while self._parked:
            waiter = self._parked.pop()
            if not waiter.done():
                waiter.set_result(None)
                self._is_waking = True
                self.stats.wake_ups += 1
                return

    def _call_waiting(self) -> None:
        """Call those that wait to put requests, each once, while the channel is not full."""
        waiting, self._waiting = self._waiting, deque()
        while waiting and len(self._requests) < self.capacity:
            waiting.popleft()()
        # A connection that has filled the channel again and has more stands behind those not called yet.
        waiting.extend(self._waiting)
        self._waiting = waiting
