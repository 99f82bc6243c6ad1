"""Happenings: tells those who wait for a condition that something has happened in the broker, so that they look again.

Nothing in a broker changes but by a request, by its clock, or by the result of a thread: each of the three tells.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from broker.runtime.clock import Alarm, Clock
from broker.runtime.worker_thread import WorkerThread

if TYPE_CHECKING:
    from broker.request.response import ResponseSlot

Handle = Callable[["ResponseSlot"], None]
"""Serves one request."""


class Happenings:
    """Who waits for the next thing to happen."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._next: asyncio.Future[None] | None = None
        self._is_told = False

    def tell(self) -> None:
        """Something has happened, or is about to end with this turn of the loop."""
        if self._next is not None and not self._is_told:
            self._is_told = True
            self._loop.call_soon(self._wake)

    async def next(self) -> None:
        """Return when something has happened since the call."""
        if self._next is None:
            self._next = self._loop.create_future()
        await asyncio.shield(self._next)

    def _wake(self) -> None:
        future, self._next, self._is_told = self._next, None, False
        if future is not None and not future.done():
            future.set_result(None)

    # What tells

    def handling(self, handle: Handle) -> Handle:
        """``handle``, and every request is told."""

        def handle_and_tell(slot: ResponseSlot) -> None:
            handle(slot)
            self.tell()

        return handle_and_tell

    def worker(self, name: str, loop: asyncio.AbstractEventLoop, clock: Clock) -> WorkerThread:
        """A worker thread whose results are told."""
        return _TellingWorker(name, loop, clock, self.tell)


class TellingClock:
    """A clock whose alarms are told. It is otherwise the clock that it is made of."""

    def __init__(self, clock: Clock, tell: Callable[[], None]) -> None:
        self._clock = clock
        self._tell = tell

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def monotonic_ms(self) -> int:
        return self._clock.monotonic_ms()

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> Alarm:
        return self._clock.call_at(deadline_ms, partial(self._ring, callback))

    def _ring(self, callback: Callable[[], None]) -> None:
        callback()
        self._tell()


class _TellingWorker(WorkerThread):
    def __init__(self, name: str, loop: asyncio.AbstractEventLoop, clock: Clock, tell: Callable[[], None]) -> None:
        super().__init__(name, loop, clock)
        self._tell = tell

    def _finish(self, callback: Callable[[Any], None], outcome: Any) -> None:
        super()._finish(callback, outcome)
        self._tell()
