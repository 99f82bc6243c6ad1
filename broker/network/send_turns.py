"""Whose turn it is to send: every connection that has answers gets one turn, then those that have more."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from broker.network.processor_stats import ProcessorStats
from broker.request.channel import RequestChannel
from broker.request.response import RequestStream

MOST_BYTES_A_TURN: Final = 256 * 1024
"""What a connection sends at most before the next connection's turn."""

MOST_BYTES_ALONE: Final = 5 * MOST_BYTES_A_TURN
"""What a connection sends in a turn in which no other connection sends and no request waits: an answer of the megabyte
that consumers ask for, with what stands around it."""

MOST_BYTES_WHILE_OTHERS_WAIT: Final = MOST_BYTES_A_TURN // 2
"""What a connection sends in a turn while requests wait, or answers that have not had their turn (bench: disturbers
greedy)."""


class Sender(ABC):
    """A connection as the turns see it."""

    __slots__ = ()

    stream: RequestStream

    @abstractmethod
    def send_answers(self, most_bytes: int, now_us: int) -> None:
        """Send the answers that are ready, in the order of the requests; about ``most_bytes`` of them."""


class SendTurns:
    """The senders of one processor that have something to send. Their turn comes once, however many they are: at the
    end of a handler's turn, or soon where no handler is at work."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        channel: RequestChannel,
        stats: ProcessorStats,
        now_us: Callable[[], int],
        on_failure: Callable[[Exception], None],
    ) -> None:
        """``on_failure`` is called with what a sender raises."""
        self._loop = loop
        self._channel = channel
        self._stats = stats
        self._now_us = now_us
        self._on_failure = on_failure
        self._touched: list[Sender] = []
        self._unfinished: list[Sender] = []
        """Those that had their turn and have more: behind all others (bench: disturbers greedy)."""

    @property
    def waiting(self) -> int:
        """Senders whose turn is to come."""
        return len(self._touched) + len(self._unfinished)

    def touch(self, sender: Sender) -> None:
        """``sender`` has something to send."""
        if not self._touched and not self._unfinished:
            if self._channel.is_in_turn:
                self._channel.after_turn(self._turn)
            else:
                self._loop.call_soon(self._turn)
        self._touched.append(sender)

    def touch_again(self, sender: Sender) -> None:
        """``sender`` has had its turn and has more to send."""
        if not self._touched and not self._unfinished:
            self._loop.call_soon(self._turn)
        self._unfinished.append(sender)

    def bytes_a_turn(self, sender: Sender) -> int:
        """How much a sender that is alone in its turn may send."""
        others_wait = self._touched or self._channel.holds_others_than(sender.stream)
        return MOST_BYTES_WHILE_OTHERS_WAIT if others_wait else MOST_BYTES_ALONE

    def _turn(self) -> None:
        # A callback of its own, not a step of a task: waking a task costs twice as much, at every single request.
        try:
            began_us = self._now_us()
            touched, self._touched = self._touched, []
            if self._unfinished:
                touched += self._unfinished
                self._unfinished.clear()
            if len(touched) == 1:
                most_bytes = self.bytes_a_turn(touched[0])
            else:
                most_bytes = MOST_BYTES_WHILE_OTHERS_WAIT if len(self._channel) else MOST_BYTES_A_TURN
            for sender in touched:
                sender.send_answers(most_bytes, began_us)
            self._stats.turns += 1
            self._stats.busy_us += self._now_us() - began_us
        except Exception as error:  # noqa: BLE001 - the processor raises it
            self._on_failure(error)
