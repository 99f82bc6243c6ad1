"""The request handlers (`num.io.threads`): tasks that take requests from the channel, a few each turn of the loop."""

import asyncio
from collections.abc import Callable
from time import monotonic_ns
from typing import Final

from broker.request.channel import RequestChannel
from broker.request.response import ResponseSlot, overlapping_api
from broker.request.stats import HandlerTurn

MOST_A_TURN: Final = 32
"""Requests a handler takes before the loop turns. What a turn stages for one partition is one write, so half as many
cost 8 % more CPU at small requests, and twice as many save nothing (docs/decisions/request-queue.md)."""

MOST_NS_A_TURN: Final = 20_000_000
"""A turn that has taken so long ends before its requests do: thirty of the dearest would hold the loop for as many
seconds (docs/decisions/bad-input.md)."""


def evaluate(slot: ResponseSlot, turn: HandlerTurn, handle: Callable[[ResponseSlot], None]) -> None:
    """Handle a request that was taken from the channel, if the requests before it on its connection allow it."""
    stream = slot.stream
    if not stream.is_free and not stream.admits(slot):
        return
    slot.turn = turn
    overlapping = overlapping_api(slot)  # its handler may release the frame
    handle(slot)
    if not slot.is_filled:
        stream.wait_for(slot, overlapping)
    elif not stream.is_free:
        stream.move_on()


class HandlerPoolStats:
    """What the handlers have counted."""

    __slots__ = ("busy_us", "started_us", "turns")

    def __init__(self) -> None:
        self.turns = 0
        self.busy_us = 0
        """Time spent on requests, all handlers together."""
        self.started_us = monotonic_ns() // 1000


class HandlerPool:
    """``size`` handlers, which bound how many requests are worked on between two returns to the loop.

    A request never waits inside a handler: what cannot be answered yet waits in a purgatory, and what must not be
    evaluated before that waits with its connection's `RequestStream`. ``end_of_turn`` runs when a handler has worked
    off its turn, before anything it answered is sent.
    """

    def __init__(
        self,
        channel: RequestChannel,
        handle: Callable[[ResponseSlot], None],
        *,
        size: int,
        end_of_turn: Callable[[], None],
        now_ns: Callable[[], int] = monotonic_ns,
    ) -> None:
        self._size = size
        self.stats = HandlerPoolStats()
        self._channel = channel
        self._handle = handle
        self._end_of_turn = end_of_turn
        self._handlers: list[asyncio.Task[None]] = []
        self._group: asyncio.TaskGroup | None = None
        self._now_ns = now_ns

    def idle_ratio(self) -> float:
        """The part of their life in which the handlers had nothing to do."""
        lived_us = max(monotonic_ns() // 1000 - self.stats.started_us, 1)
        return 1 - self.stats.busy_us / (self._size * lived_us)

    @property
    def size(self) -> int:
        """How many handlers there are."""
        return self._size

    def resize(self, size: int) -> None:
        """Have ``size`` handlers from now on. One that goes finishes its turn; nothing is lost that was queued."""
        self._size = size
        if self._group is not None:
            self._fill(self._group)

    async def run(self) -> None:
        """Handle requests for ever. What escapes a handler ends all of them and comes out of here."""
        async with asyncio.TaskGroup() as self._group:
            self._fill(self._group)

    def _fill(self, group: asyncio.TaskGroup) -> None:
        while len(self._handlers) > self._size:
            self._handlers.pop().cancel()
        while len(self._handlers) < self._size:
            self._handlers.append(group.create_task(self._work(), name=f"handler-{len(self._handlers)}"))

    async def _work(self) -> None:
        channel, handle, stats, now_ns = self._channel, self._handle, self.stats, self._now_ns
        while True:
            requests = await channel.take(MOST_A_TURN)
            began_ns = now_ns()
            latest_ns = began_ns + MOST_NS_A_TURN
            turn = HandlerTurn(began_ns // 1000)
            channel.begin_turn()
            try:
                for number, slot in enumerate(requests, 1):
                    evaluate(slot, turn, handle)
                    if now_ns() > latest_ns:
                        channel.put_back(requests[number:])
                        break
                self._end_of_turn()
                stats.turns += 1
                turn.ended_us = now_ns() // 1000
                stats.busy_us += turn.ended_us - turn.began_us
            finally:
                channel.end_turn()
            # A handler that parks now must not keep the last requests.
            del requests, slot
            if len(channel):
                # Let the sockets be read and the answers be sent.
                await asyncio.sleep(0)
