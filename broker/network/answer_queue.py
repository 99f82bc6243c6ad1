"""The answers of one connection: in the order of the requests, whichever is ready first, and on their way out."""

from collections import deque

from broker.network.processor_stats import ListenerStats, Runs
from broker.network.send_buffer import SendBuffer, SendOutcome, held_bytes
from broker.network.transport import Transport
from broker.request.response import NOTHING, ResponseSlot


class AnswerQueue:
    """Requests whose answers are not handed to the transport, and the answers that are being sent.

    Answers that are ready are taken together. While they are not sent to their end, the next ones stay requests without
    an answer: those are bounded (bench: disturbers deaf).
    """

    __slots__ = ("_outgoing", "_sending_us", "_stats", "_unsent", "_waiting_bytes", "slots")

    def __init__(self, transport: Transport, stats: ListenerStats) -> None:
        """``stats``: where sent answers are counted."""
        self.slots: deque[ResponseSlot] = deque()
        """In the order of the requests."""
        self._outgoing = SendBuffer(transport)
        self._unsent: Runs = ()
        """Whose answers are in there, whole or in part."""
        self._sending_us = 0
        """When they were put there."""
        self._waiting_bytes = 0
        """Memory in answers that wait for an answer before them."""
        self._stats = stats

    @property
    def is_empty(self) -> bool:
        """Every request is answered, and every answer sent."""
        return not self.slots and not self._outgoing

    @property
    def is_next_ready(self) -> bool:
        """The first request that is not answered has its answer."""
        slots = self.slots
        return bool(slots) and slots[0].is_filled

    def take_ready(self, now_us: int) -> bool:
        """Send the answers that are ready, in the next calls of `send`, unless others are being sent still; whether
        there are any."""
        slots = self.slots
        if self._unsent or not slots or not slots[0].is_filled:
            return False
        add = self._outgoing.add
        self._unsent = runs = []
        self._sending_us = now_us
        take = slots.popleft
        first, count = slots[0], 0
        turn, kind = first.turn, first.kind
        while slots and slots[0].is_filled:
            slot = take()
            add(slot.chunks)
            if slot.turn is not turn or slot.kind is not kind:
                runs.append((first, count))
                first, count = slot, 0
                turn, kind = slot.turn, slot.kind
            count += 1
        runs.append((first, count))
        for slot, _ in runs:
            slot.chunks = NOTHING  # what is sent is forgotten at once
        return True

    def send(self, most_bytes: int) -> tuple[SendOutcome, int]:
        """See `SendBuffer.send`."""
        return self._outgoing.send(most_bytes)

    def all_sent(self, now_us: int) -> None:
        """The last byte of what was taken is sent: count it."""
        if self._unsent:
            self._stats.sent(self._unsent, self._sending_us, now_us)
            self._unsent = ()

    def wait(self, slot: ResponseSlot) -> None:
        """``slot`` has its answer, and it is not its turn to be sent."""
        self._waiting_bytes += held_bytes(slot.chunks)

    def weigh_waiting(self) -> None:
        """Find out anew how much memory is in answers that wait for one before them."""
        self._waiting_bytes = sum(held_bytes(slot.chunks) for slot in self.slots)

    @property
    def has_waiting(self) -> bool:
        """Answers wait for one before them, at the last time that this was found out."""
        return self._waiting_bytes > 0

    def held_bytes(self, *, is_blocked: bool) -> int:
        """The memory in answers that wait; with those that are being sent, where the transport ``is_blocked``."""
        return self._waiting_bytes + (self._outgoing.held_bytes if is_blocked else 0)

    def clear(self) -> None:
        """The connection is closed."""
        self._outgoing.clear()
        self._unsent = ()
        self.slots.clear()
