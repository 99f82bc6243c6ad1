"""One connection: reads what has arrived, cuts it into requests in place, and sends their answers in order.

    position of the bytes in the buffer

    0 ........ answered or under way ........ start ...... received, no whole frame yet ...... end ...... limit
    | frame | frame | frame |                 | size i32 | the frame so far                    | next recv |

A connection borrows a buffer while it has bytes that are not answered or not complete; an idle one holds none. Frames
are views of the buffer, never copies; what is copied is a half frame that finds no room behind them, to another buffer.
"""

import logging
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from broker.network.buffer_pool import SMALLEST_BUFFER, Buffer
from broker.network.connection_owner import ConnectionOwner, Runs
from broker.network.departed import Departed
from broker.network.send_buffer import RegionCutShort, SendBuffer, SendOutcome, held_bytes
from broker.request.response import NO_FRAME, NOTHING, RequestStream, ResponseSlot
from broker.request.session import Session
from broker.runtime.clock import Alarm

log = logging.getLogger(__name__)

_read_size = struct.Struct(">i").unpack_from

SIZE_BYTES: Final = 4

LEAST_ROOM: Final = 2048
"""Bytes at the end of a buffer that are not worth a system call."""

MOST_COPIED_BYTES: Final = 2048
"""Requests up to here are copied out of the processor's memory, larger ones are cut in place."""

WHOLE_FROM: Final = SMALLEST_BUFFER // 2
"""Frames larger than this are received to their end and no further: what is behind one would have to be copied, nearly
all of it where two frames just do not fit into a buffer (bench-kafka: raw-128kb)."""

MOST_REQUESTS_A_TURN: Final = 8
"""Requests that a connection puts into the channel before it is another's turn: who pipelines thousands must not have
more of them before everybody else's (bench: disturbers pipeline)."""

MOST_ANSWERS_BYTES: Final = 1024 * 1024
"""Memory in unsent answers above which a connection is not read. One answer may be larger."""

MOST_BYTES_A_TURN: Final = 256 * 1024
"""What a connection sends at most before it is another's turn."""


class Pause:
    """Why a connection is not read; it is read again when no reason is left. Bits of a plain int: an `IntFlag` costs a
    microsecond each time it is looked at."""

    IN_FLIGHT: Final = 1
    """Too many of its requests have no answer yet."""
    CHANNEL: Final = 2
    """The request channel is full."""
    MEMORY: Final = 4
    """There is no memory for what comes."""
    ANSWERS: Final = 8
    """It does not take its answers."""
    FINISHING: Final = 16
    """Nothing more is wanted from it."""
    TURN: Final = 32
    """It has put in all that it may in one turn of the loop."""
    THROTTLED: Final = 64
    """Its client has exceeded a quota."""


class Connection:
    """A socket, the requests that came out of it and are not answered yet, and what still has to go into it."""

    __slots__ = (
        "_buffer",
        "_detached",
        "_end",
        "_fd",
        "_held_bytes",
        "_is_blocked",
        "_is_reading",
        "_is_touched",
        "_largest_frame",
        "_last_frame",
        "_limit",
        "_outgoing",
        "_owner",
        "_receive",
        "_retired",
        "_sending_us",
        "_slots",
        "_socket",
        "_start",
        "_stats",
        "_throttle_alarm",
        "_unsent",
        "is_closed",
        "last_active_us",
        "max_in_flight",
        "pauses",
        "peer",
        "session",
        "stream",
    )

    def __init__(self, owner: "ConnectionOwner[Connection]", connected: socket.socket, session: Session) -> None:
        self.session = session
        self.peer = session.peer
        self.stream = RequestStream(session, owner.channel.put_back)
        self.max_in_flight = owner.settings.max_in_flight
        self.is_closed = False
        self.last_active_us = owner.now_us()
        """When bytes came or went the last time."""
        self._owner = owner
        self._socket = connected
        self._fd = connected.fileno()
        self._receive: Callable[[memoryview], int] = connected.recv_into
        self._slots: deque[ResponseSlot] = deque()
        self._detached: list[ResponseSlot] = []
        """Requests behind one that was answered by closing."""
        self._buffer: Buffer | None = None
        self._start = self._end = self._limit = 0
        self._retired: list[tuple[Buffer, ResponseSlot]] = []
        """Full buffers, each with the last request that lies in it."""
        self._last_frame = 0
        self._largest_frame = 0
        self._outgoing = SendBuffer()
        self._unsent: Runs = ()
        """Whose answers are in there, whole or in part."""
        self._sending_us = 0
        """When they were put there."""
        self._stats = owner.stats_of(session.peer.listener)
        self._held_bytes = 0
        """Memory in answers that wait for one before them."""
        self.pauses = 0
        """Bits of `Pause`: why it is not read at present."""
        self._is_reading = False
        self._is_touched = False
        self._is_blocked = False
        self._throttle_alarm: Alarm | None = None
        """When the client is throttled no more."""
        self._read_again()

    def __repr__(self) -> str:
        return f"<Connection {self.peer}: {len(self._slots)} unanswered, pauses {self.pauses:#b}>"

    @property
    def unanswered(self) -> int:
        """Requests whose answers have not been handed to the socket."""
        return len(self._slots)

    @property
    def holds_buffer(self) -> bool:
        return self._buffer is not None or bool(self._retired)

    # Receiving

    def _on_readable(self) -> None:
        """The socket has something. One `recv`: another would say EAGAIN more often than not.

        Most requests are small, and most reads bring whole ones. These are received into the processor's memory and
        copied out, which costs less than borrowing and giving back a buffer (bench: produce-one-record). With the
        first that is larger, not whole or finds no room, the rest of that memory becomes the connection's own.
        """
        owner = self._owner
        if self._buffer is not None or self._last_frame > WHOLE_FROM or owner.memory.is_short:
            self._receive_in_place()
            return
        channel = owner.channel
        room = channel.remaining_capacity
        if room <= 0:
            # The system holds its bytes: thousands that all ask at once must not hold a buffer each until it is their
            # turn (bench: idle-connections).
            self._wait_for_room()
            return
        scratch = owner.scratch
        end = self._received(scratch.view)
        if not end:
            return
        slots = self._slots
        data = scratch.data
        now_us = self.last_active_us
        room = min(room, self.max_in_flight - len(slots), MOST_REQUESTS_A_TURN)
        arrived: list[ResponseSlot] = []
        start = 0
        while room > 0 and end - start > SIZE_BYTES:
            size = _read_size(data, start)[0]
            frame = start + SIZE_BYTES
            if not 0 < size <= MOST_COPIED_BYTES or frame + size > end:
                break
            start = frame + size
            arrived.append(ResponseSlot(self, self.stream, memoryview(data[frame:start]), now_us))
            room -= 1
        if arrived:
            self._put(arrived)
        if start < end:
            owner.give_scratch()
            self._use(scratch, end)
            self._start = start
            if room > 0:
                self._cut(scratch, now_us)
            else:
                self._wait_for_room()
        elif len(slots) >= self.max_in_flight:
            self._wait_for_room()

    def _receive_in_place(self) -> None:
        """The same into a buffer of its own, where large requests stay."""
        buffer = self._buffer
        if buffer is None:
            buffer = self._borrow(self._last_frame)
            if buffer is None:
                return
            self._use(buffer, 0)
            self._limit = self._end_of_next(buffer)
        received = self._received(buffer.view[self._end : self._limit])
        if received:
            self._end += received
            self._cut(buffer, self.last_active_us)
        elif not self.is_closed:
            self._settle()

    def _received(self, memory: memoryview) -> int:
        """Receive what is there; 0 if that is nothing."""
        try:
            received = self._receive(memory)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            self._lost(error)
            return 0
        if received:
            self._stats.bytes_received += received
            self.last_active_us = self._owner.now_us()
        else:
            self._on_end()
        return received

    def _cut(self, buffer: Buffer, now_us: int) -> None:
        """Make requests of the whole frames that are there, in place, as far as there is room for them."""
        owner = self._owner
        data, view = buffer.data, buffer.view
        most_bytes = owner.settings.socket_request_max_bytes
        start, end = self._start, self._end
        room = min(self.max_in_flight - len(self._slots), owner.channel.remaining_capacity, MOST_REQUESTS_A_TURN)
        arrived: list[ResponseSlot] = []
        refused: int | None = None
        while len(arrived) < room and end - start >= SIZE_BYTES:
            size = _read_size(data, start)[0]
            if not 0 < size <= most_bytes:
                refused = size
                start = end
                break
            frame = start + SIZE_BYTES
            if frame + size > end:
                break
            start = frame + size
            arrived.append(ResponseSlot(self, self.stream, view[frame:start], now_us))
        self._start = start
        if arrived:
            self._put(arrived)
            self._last_frame = SIZE_BYTES + arrived[-1].size
            if self._last_frame > self._largest_frame:
                self._largest_frame = self._last_frame
            if owner.memory.favoured is self:
                owner.memory.request_received()
        if refused is not None:
            self._refuse_size(refused)
        if len(arrived) >= room and (start < end or room < MOST_REQUESTS_A_TURN):
            self._wait_for_room()
        elif not self.pauses:
            self._make_room(buffer)

    def _put(self, arrived: Sequence[ResponseSlot]) -> None:
        """These requests are whole, and there is room for them."""
        self._slots.extend(arrived)
        self._owner.channel.put(arrived)
        self._stats.requests_received += len(arrived)

    def _refuse_size(self, size: int) -> None:
        log.warning(
            "%s announced a request of %d bytes; from 1 to %d are allowed (socket.request.max.bytes): closing",
            self.peer,
            size,
            self._owner.settings.socket_request_max_bytes,
        )
        self._finish()

    def _on_end(self) -> None:
        """The peer sends nothing more. What it has asked is still answered, as Kafka does: it may be listening."""
        if self._end > self._start:
            log.info("%s left %d bytes into a request", self.peer, self._end - self._start)
        self._finish()

    def _wait_for_room(self) -> None:
        channel = self._owner.channel
        if len(self._slots) >= self.max_in_flight:
            self._pause(Pause.IN_FLIGHT)
        elif channel.remaining_capacity <= 0:
            self._pause(Pause.CHANNEL)
            channel.when_not_full(self._on_channel_room)
        else:
            self._pause(Pause.TURN)
            self._owner.loop.call_soon(self._on_next_turn)

    def _on_next_turn(self) -> None:
        self._resume(Pause.TURN)

    def _on_channel_room(self) -> None:
        if self._buffer is not None or self.pauses != Pause.CHANNEL:
            self._resume(Pause.CHANNEL)
            return
        # It had something to read when it stopped. To read that now keeps its place in the line; to be watched again
        # first would let all the others in as well, to find no room.
        self.pauses = 0
        self._on_readable()
        if not self.pauses:
            self._read_again()

    # The memory it is received into

    def _make_room(self, buffer: Buffer) -> None:
        """Choose where the next bytes go."""
        start, end = self._start, self._end
        capacity = buffer.capacity
        arrived = end - start
        if not arrived:
            if capacity - end < max(self._last_frame, LEAST_ROOM):
                self._retire(buffer)
            else:
                self._limit = self._end_of_next(buffer)
            return
        needed = SIZE_BYTES
        if arrived >= SIZE_BYTES:
            needed += _read_size(buffer.data, start)[0]
        if start + needed <= capacity:
            self._limit = start + needed if needed > WHOLE_FROM else capacity
        elif start == 0 and end < capacity:
            self._limit = capacity
        else:
            # It grows with the bytes that have arrived, at once to what has arrived here before, and never by what
            # is only announced.
            larger = self._borrow(min(needed, max(2 * arrived, self._largest_frame)))
            if larger is not None:
                larger.view[:arrived] = buffer.view[start:end]
                self._retire(buffer)
                self._use(larger, arrived)
                if larger.capacity >= needed > WHOLE_FROM:
                    self._limit = needed

    def _end_of_next(self, buffer: Buffer) -> int:
        """How far to receive the next frame, of which nothing is there yet: most often it is as large as the last."""
        last = self._last_frame
        return min(self._end + last, buffer.capacity) if last > WHOLE_FROM else buffer.capacity

    def _borrow(self, needed: int) -> Buffer | None:
        """A buffer, or None: then the connection is not read until there is memory."""
        buffer = self._owner.pool.borrow(needed, self, may_exceed=not self._slots)
        if buffer is None:
            self._pause(Pause.MEMORY)
        return buffer

    def _use(self, buffer: Buffer, arrived: int) -> None:
        self._buffer = buffer
        self._start = 0
        self._end = arrived
        self._limit = buffer.capacity

    def _retire(self, buffer: Buffer) -> None:
        """Receive nothing more into it; it is free when its requests are answered."""
        self._buffer = None
        self._start = self._end = 0
        if self._slots:
            self._retired.append((buffer, self._slots[-1]))
        else:
            self._owner.pool.give_back(buffer)

    def memory_available(self) -> None:
        """Part of `Borrower`: try again what had no memory."""
        self._resume(Pause.MEMORY)

    def make_way(self) -> None:
        """Part of `Borrower`: others need the memory that half a request holds."""
        if self._end > self._start:
            arrived = self._end - self._start
            log.warning(
                "Closing %s: others wait for memory (queued.max.request.bytes), and it has sent %d bytes of a request",
                self.peer,
                arrived,
            )
            self.close()

    def frame_released(self) -> None:
        """Part of `SlotOwner`: if all that are unanswered only wait, they wait without a buffer."""
        for slot in self._slots:
            if slot.frame is not NO_FRAME:
                return
        self._give_back_all()

    def _settle(self) -> None:
        """Requests have been answered: give back the memory that held them, and read on if that was what it took."""
        slots = self._slots
        if not slots:
            if self._buffer is not None or self._retired:
                self._give_back_all()
        elif self._retired:
            while self._retired and self._retired[0][1] not in slots:
                self._owner.pool.give_back(self._retired.pop(0)[0])
        if self.pauses and self.pauses & Pause.IN_FLIGHT and len(slots) <= self.max_in_flight // 2:
            self._resume(Pause.IN_FLIGHT)

    def _give_back_all(self) -> None:
        """No frame is needed: give back all but what holds the beginning of a request."""
        owner = self._owner
        while self._retired:
            owner.pool.give_back(self._retired.pop()[0])
        if self._buffer is not None and self._start == self._end:
            owner.pool.give_back(self._buffer)
            self._buffer = None
            self._start = self._end = 0
        if self._buffer is None:
            owner.memory.leave(self)
        if self.pauses & Pause.MEMORY:
            # What was under way no longer stands against going beyond the limit.
            self._resume(Pause.MEMORY)

    # Sending

    def slot_filled(self, slot: ResponseSlot) -> None:
        """Part of `SlotOwner`: if its turn has come, send it in the processor's next turn."""
        if self._is_touched:
            return
        if self._slots[0] is slot and not self._is_blocked:
            self._is_touched = True
            self._owner.touch(self)
        else:
            self._held_bytes += held_bytes(slot.chunks)
            self._weigh_answers()

    def close_at(self, slot: ResponseSlot, reason: str) -> None:
        """Part of `SlotOwner`: what was asked before ``slot`` is answered, what was asked behind it is not."""
        log.info("Closing %s: %s", self.peer, reason)
        heir = Departed()
        while self._slots[-1] is not slot:
            behind = self._slots.pop()
            behind.bequeath(heir)
            self._detached.append(behind)
        self._finish()
        self.slot_filled(slot)

    def send_answers(self, most_bytes: int, now_us: int) -> None:
        """Its turn: send the answers that are ready, in the order of the requests; about ``most_bytes`` of them."""
        self._is_touched = False
        # While the last answers are not out, the next ones stay requests without an answer: those are bounded
        # (bench: disturbers deaf).
        is_new = not self._unsent and self._take_answers(now_us)
        if not self._is_blocked:
            self._send(most_bytes, now_us)
        if self.is_closed:
            return
        if is_new:
            self._settle()
        if self._held_bytes or self._is_blocked or self._is_touched:
            self._held_bytes = sum(held_bytes(slot.chunks) for slot in self._slots)
            self._weigh_answers()

    def _take_answers(self, now_us: int) -> bool:
        """Make what is ready the next to be sent; whether there is something."""
        slots = self._slots
        if not slots or not slots[0].is_filled:
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

    def _send(self, most_bytes: int, now_us: int) -> None:
        try:
            outcome, sent = self._outgoing.send(self._socket, most_bytes)
        except OSError as error:
            self._lost(error)
            return
        except RegionCutShort as reason:
            log.error("Closing %s inside an answer: %s", self.peer, reason)
            self.close()
            return
        if sent:
            self.last_active_us = now_us
            self._stats.bytes_sent += sent
        if outcome is SendOutcome.DONE:
            if self._unsent:
                self._stats.sent(self._unsent, self._sending_us, self._owner.now_us())
                self._unsent = ()
            if self._is_blocked:
                self._is_blocked = False
                self._owner.loop.remove_writer(self._fd)
            if self._slots and self._slots[0].is_filled:
                self._is_touched = True
                self._owner.touch_again(self)
            elif self.pauses:
                self._sent_all()
        elif outcome is SendOutcome.BLOCKED:
            if not self._is_blocked:
                self._is_blocked = True
                self._owner.loop.add_writer(self._fd, self._on_writable)
        elif not self._is_blocked:
            self._is_touched = True
            self._owner.touch_again(self)

    def _on_writable(self) -> None:
        """The socket takes more: here, since it will call again as long as something is left."""
        self._send(self._owner.bytes_a_turn(self), self._owner.now_us())

    def _sent_all(self) -> None:
        if self.pauses & Pause.FINISHING and not self._slots:
            self.close()
        elif self.pauses & Pause.ANSWERS:
            self._weigh_answers()

    def _weigh_answers(self) -> None:
        if self._held_bytes + (self._outgoing.held_bytes if self._is_blocked else 0) > MOST_ANSWERS_BYTES:
            self._pause(Pause.ANSWERS)
        else:
            self._resume(Pause.ANSWERS)

    def throttle(self, throttle_time_ms: int) -> None:
        """Part of `SlotOwner`: of two throttles the one that lasts longer counts."""
        clock = self._owner.clock
        until_ms = clock.monotonic_ms() + throttle_time_ms
        if self.is_closed or until_ms <= self.session.throttled_until_ms:
            return
        if self._throttle_alarm is not None:
            self._throttle_alarm.cancel()
        self._throttle_alarm = clock.call_at(until_ms, self._end_throttle)
        self.stream.throttle(throttle_time_ms, until_ms)
        self._pause(Pause.THROTTLED)

    def _end_throttle(self) -> None:
        if self._throttle_alarm is not None:
            self._throttle_alarm.cancel()
            self._throttle_alarm = None
            self.stream.end_throttle()
            self._resume(Pause.THROTTLED)

    # Reading or not, and the end

    def _read_again(self) -> None:
        self._is_reading = True
        self._owner.loop.add_reader(self._fd, self._on_readable)

    def _pause(self, reason: int) -> None:
        self.pauses |= reason
        if self._is_reading:
            self._is_reading = False
            self._owner.loop.remove_reader(self._fd)

    def _resume(self, reason: int) -> None:
        if not self.pauses & reason:
            return
        self.pauses &= ~reason
        if self.pauses:
            return
        if self._buffer is not None:
            # What has arrived already comes first; it may find the next reason to pause.
            self._cut(self._buffer, self._owner.now_us())
        if not self.pauses:
            self._read_again()

    def _finish(self) -> None:
        """Read nothing more; close when everything is answered."""
        self._pause(Pause.FINISHING)
        self._start = self._end
        if not self._slots and not self._outgoing:
            self.close()

    def stop_reading(self) -> None:
        """The daemon stops: no new requests; what is under way is answered, then the connection closes."""
        if not self.pauses & Pause.FINISHING:
            self._end_throttle()
            self._finish()

    def _lost(self, error: OSError) -> None:
        log.debug("Lost %s: %s", self.peer, error)
        self.close()

    def close(self) -> None:
        """Close now. Requests under way are handled still, and their answers dropped."""
        if self.is_closed:
            return
        self.is_closed = True
        self._pause(Pause.FINISHING)
        if self._throttle_alarm is not None:
            self._throttle_alarm.cancel()
            self._throttle_alarm = None
        # A descriptor that the loop still watches could be another connection's by the time it looks.
        if self._is_blocked:
            self._owner.loop.remove_writer(self._fd)
        self._socket.close()
        self._outgoing.clear()
        self._unsent = ()
        buffers = [buffer for buffer, _ in self._retired]
        if self._buffer is not None:
            buffers.append(self._buffer)
        self._retired.clear()
        self._buffer = None
        heir = Departed()
        slots = [*self._slots, *self._detached]
        for slot in slots:
            slot.bequeath(heir)
        heir.inherit(slots, buffers, self._owner.pool)
        self._slots.clear()
        self._detached.clear()
        self.stream.close()
        self._owner.memory.leave(self)
        self._owner.closed(self)
