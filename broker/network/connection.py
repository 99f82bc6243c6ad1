"""One connection: reads what has arrived, has it cut into requests, and sends their answers in order."""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from broker.network.answer_queue import AnswerQueue
from broker.network.departed import Departed
from broker.network.pauses import Pause, names_of
from broker.network.processor_state import ProcessorState
from broker.network.receive_buffer import WHOLE_FROM, ReceiveBuffer, cut_copies
from broker.network.send_buffer import RegionCutShort, SendOutcome
from broker.network.send_turns import Sender
from broker.network.transport import Handshake, Transport
from broker.network.transport_errors import HandshakeFailed, PeerViolation
from broker.request.gate import gate_of
from broker.request.response import NO_FRAME, RequestStream, ResponseSlot
from broker.request.session import Session
from broker.request.stats import AuthenticationStats
from broker.runtime.clock import Alarm
from storage.errors import StorageError

log = logging.getLogger(__name__)

MOST_REQUESTS_A_TURN: Final = 8
"""Requests that a connection puts into the channel before the next connection's turn: a client that pipelines thousands
must not have more of them before those of all others (bench: disturbers pipeline)."""

MOST_ANSWERS_BYTES: Final = 1024 * 1024
"""Memory in unsent answers above which a connection is not read. One answer may be larger."""


class Connection(Sender):
    """A transport, the requests that came out of it and are not answered yet, and what still has to go into it."""

    __slots__ = (
        "_answers",
        "_closed",
        "_descriptor",
        "_detached",
        "_handshake_alarm",
        "_is_blocked",
        "_is_reading",
        "_is_touched",
        "_most_bytes",
        "_pending",
        "_receive",
        "_requests",
        "_slots",
        "_state",
        "_stats",
        "_throttle_alarm",
        "_transport",
        "is_closed",
        "last_active_us",
        "max_in_flight",
        "pauses",
        "peer",
        "session",
        "stream",
    )

    def __init__(
        self, state: ProcessorState, transport: Transport, session: Session, closed: Callable[["Connection"], None]
    ) -> None:
        """``closed`` is called with this connection when it is closed."""
        self.session = session
        self.peer = session.peer
        self.stream = RequestStream(session, state.put_back)
        gate = session.gate
        self.max_in_flight = state.settings.max_in_flight if gate is None else 1
        self._most_bytes = state.settings.socket_request_max_bytes
        """The largest request that is read."""
        if gate is not None:
            self._most_bytes = min(gate.most_bytes, self._most_bytes)
        self.is_closed = False
        self.last_active_us = state.now_us()
        """When bytes were received or sent the last time."""
        self._state = state
        self._closed = closed
        self._transport = transport
        self._descriptor = transport.descriptor
        self._receive = transport.receive_into
        self._pending = transport.pending
        self._stats = state.stats.of(session.peer.listener)
        self._answers = AnswerQueue(transport, self._stats)
        self._slots = self._answers.slots
        self._detached: list[ResponseSlot] = []
        """Requests behind one that was answered by closing."""
        self._requests = ReceiveBuffer(state.pool, self._slots)
        self.pauses = Pause.HANDSHAKE
        """Bits of `Pause`: why the connection is not read at present."""
        self._is_reading = False
        """The loop watches whether the descriptor is readable."""
        self._is_touched = False
        self._is_blocked = False
        """The loop watches whether the descriptor is writable."""
        self._handshake_alarm: Alarm | None = None
        """When the peer has taken too long for the handshake."""
        self._throttle_alarm: Alarm | None = None
        """When the client is throttled no more."""

    def __repr__(self) -> str:
        return f"<Connection {self.peer}: {len(self._slots)} unanswered, pauses {names_of(self.pauses)}>"

    @property
    def unanswered(self) -> int:
        """Requests whose answers have not been handed to the transport."""
        return len(self._slots)

    @property
    def holds_buffer(self) -> bool:
        """Whether requests of this connection have memory of their own."""
        return self._requests.holds_memory

    # Receiving

    def _on_readable(self) -> None:
        """The transport has something. One receive: another would say EAGAIN more often than not.

        Most requests are small, and most reads bring whole ones. These are received into memory that all connections
        share and copied out, which costs less than borrowing and giving back a buffer (bench: produce-one-record). With
        the first request that is larger, or not whole, or that the channel does not take, the rest of that memory
        becomes the connection's own.
        """
        state = self._state
        requests = self._requests
        if requests.is_receiving or requests.last_frame > WHOLE_FROM or state.memory.is_short:
            self._receive_in_place()
            return
        capacity = state.channel.remaining_capacity
        if capacity <= 0:
            # The system holds its bytes: thousands that all ask at once must not hold a buffer each until it is their
            # turn (bench: idle-connections).
            self._wait_to_put()
            return
        scratch = state.pool.scratch
        end = self._received(scratch.view)
        if not end:
            return
        now_us = self.last_active_us
        most = min(capacity, self.max_in_flight - len(self._slots), MOST_REQUESTS_A_TURN)
        arrived, start = cut_copies(scratch.data, end, most, self, self.stream, now_us)
        if arrived:
            self._put(arrived)
        if start < end:
            requests.take_over(state.pool.take_scratch(), start, end)
            if len(arrived) < most:
                self._cut(now_us)
            else:
                self._wait_to_put()
        elif len(self._slots) >= self.max_in_flight:
            self._wait_to_put()

    def _receive_in_place(self) -> None:
        """The same into a buffer of the connection's own, where large requests stay."""
        space = self._requests.space(self)
        if space is None:
            self._pause(Pause.MEMORY)
            return
        received = self._received(space)
        if received:
            self._requests.received(received)
            self._cut(self.last_active_us)
        elif not self.is_closed:
            self._settle()

    def _received(self, memory: memoryview) -> int:
        """Receive what is there; 0 if that is nothing."""
        charge = self.session.charge_network
        began_us = 0 if charge is None else self._state.now_us()
        try:
            received = self._receive(memory)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            self._lost(error)
            return 0
        if received:
            self._stats.bytes_received += received
            self.last_active_us = self._state.now_us()
            if charge is not None:
                charge(self.last_active_us - began_us)
            if self._pending is not None:
                self._read_pending(self._pending)
        else:
            self._on_end()
        return received

    def _read_pending(self, is_pending: Callable[[], bool]) -> None:
        """Receive again soon what the transport has already, which the loop does not see."""
        if is_pending():
            self._state.loop.call_soon(self._on_pending)

    def _on_pending(self) -> None:
        if self._is_reading and self._pending is not None and self._pending():
            self._on_readable()

    def _cut(self, now_us: int) -> None:
        """Make requests of the whole frames that are there, as far as channel and limits take them."""
        state = self._state
        requests = self._requests
        most = min(self.max_in_flight - len(self._slots), state.channel.remaining_capacity, MOST_REQUESTS_A_TURN)
        arrived = requests.cut(most, self, self.stream, now_us, self._most_bytes)
        if arrived:
            self._put(arrived)
            if state.memory.favoured is self:
                state.memory.request_received()
        if requests.refused_size is not None:
            self._refuse_size(requests.refused_size)
        elif len(arrived) >= most and (requests.incomplete_bytes or most < MOST_REQUESTS_A_TURN):
            self._wait_to_put()
        elif not self.pauses and not requests.prepare(self):
            self._pause(Pause.MEMORY)

    def _put(self, arrived: Sequence[ResponseSlot]) -> None:
        """These requests are whole, and the channel takes them."""
        self._slots.extend(arrived)
        self._state.channel.put(arrived)
        self._stats.requests_received += len(arrived)

    def _refuse_size(self, size: int) -> None:
        log.warning(
            "%s announced a request of %d bytes; from 1 to %d are allowed (socket.request.max.bytes, or "
            "sasl.server.max.receive.size before authentication): closing",
            self.peer,
            size,
            self._most_bytes,
        )
        self._finish()

    def _on_end(self) -> None:
        """The peer sends nothing more. Its requests are still answered, as Kafka does: it may be listening."""
        if self._requests.incomplete_bytes:
            log.info("%s left %d bytes into a request", self.peer, self._requests.incomplete_bytes)
        self._finish()

    def _wait_to_put(self) -> None:
        """There are, or may be, requests that must not be put into the channel now."""
        channel = self._state.channel
        if len(self._slots) >= self.max_in_flight:
            self._pause(Pause.IN_FLIGHT)
        elif channel.remaining_capacity <= 0:
            self._pause(Pause.CHANNEL)
            channel.when_not_full(self._on_channel_not_full)
        else:
            self._pause(Pause.TURN)
            self._state.loop.call_soon(self._on_next_turn)

    def _on_next_turn(self) -> None:
        self._resume(Pause.TURN)

    def _on_channel_not_full(self) -> None:
        if self._requests.is_receiving or self.pauses != Pause.CHANNEL:
            self._resume(Pause.CHANNEL)
            return
        # The connection had something to read when it stopped. To read that now keeps its place in the line; to be
        # watched again first would let all the others in as well, to find the channel full.
        self._clear(Pause.CHANNEL)
        self._on_readable()
        if not self.pauses:
            self._read_again()

    def memory_available(self) -> None:
        """Part of `Borrower`: try again what had no memory."""
        self._resume(Pause.MEMORY)

    def make_way(self) -> None:
        """Part of `Borrower`: others need the memory that half a request holds."""
        if self._requests.incomplete_bytes:
            log.warning(
                "Closing %s: others wait for memory (queued.max.request.bytes), and it has sent %d bytes of a request",
                self.peer,
                self._requests.incomplete_bytes,
            )
            self.close()

    def frame_released(self) -> None:
        """Part of `SlotOwner`: if no unanswered request needs its frame any more, they wait without a buffer."""
        for slot in self._slots:
            if slot.frame is not NO_FRAME:
                return
        self._give_back_all()

    def _settle(self) -> None:
        """Requests have been answered: give back their memory, and read on if their number was the hindrance."""
        slots = self._slots
        if not slots:
            if self._requests.holds_memory:
                self._give_back_all()
        else:
            self._requests.settle()
        if self.pauses and self.pauses & Pause.IN_FLIGHT and len(slots) <= self.max_in_flight // 2:
            self._resume(Pause.IN_FLIGHT)

    def _give_back_all(self) -> None:
        """No frame is needed: give back all memory but what holds the beginning of a request."""
        self._requests.give_back_all()
        if not self._requests.is_receiving:
            self._state.memory.leave(self)
        if self.pauses & Pause.MEMORY:
            # What was under way no longer stands against going beyond the limit.
            self._resume(Pause.MEMORY)

    # Sending

    def slot_filled(self, slot: ResponseSlot) -> None:
        """Part of `SlotOwner`: if it is this answer's turn, send it in the processor's next turn."""
        if self._is_touched:
            return
        if self._slots[0] is slot and not self._is_blocked:
            self._is_touched = True
            self._state.turns.touch(self)
        else:
            self._answers.wait(slot)
            self._weigh_answers()

    def close_at(self, slot: ResponseSlot, reason: str) -> None:
        """Part of `SlotOwner`: requests before ``slot`` are answered, those behind it are not."""
        log.info("Closing %s: %s", self.peer, reason)
        heir = Departed()
        while self._slots[-1] is not slot:
            behind = self._slots.pop()
            behind.bequeath(heir)
            self._detached.append(behind)
        self._finish()
        self.slot_filled(slot)

    def send_answers(self, most_bytes: int, now_us: int) -> None:
        """Part of `Sender`."""
        self._is_touched = False
        is_new = self._answers.take_ready(now_us)
        if not self._is_blocked:
            self._send(most_bytes, now_us)
        if self.is_closed:
            return
        if is_new:
            self._settle()
        if self._answers.has_waiting or self._is_blocked or self._is_touched:
            self._answers.weigh_waiting()
            self._weigh_answers()

    def _send(self, most_bytes: int, now_us: int) -> None:
        state = self._state
        charge = self.session.charge_network
        began_us = 0 if charge is None else state.now_us()
        try:
            outcome, sent = self._answers.send(most_bytes)
        except OSError as error:
            self._lost(error)
            return
        except (RegionCutShort, StorageError) as reason:
            log.error("Closing %s inside an answer: %s", self.peer, reason)
            self.close()
            return
        if charge is not None:
            charge(state.now_us() - began_us)
        if sent:
            self.last_active_us = now_us
            self._stats.bytes_sent += sent
        if outcome is SendOutcome.DONE:
            self._answers.all_sent(state.now_us())
            if self._is_blocked:
                self._is_blocked = False
                state.loop.remove_writer(self._descriptor)
            if self._answers.is_next_ready:
                self._is_touched = True
                state.turns.touch_again(self)
            elif self.pauses:
                self._sent_all()
        elif outcome is SendOutcome.BLOCKED:
            if not self._is_blocked:
                self._is_blocked = True
                state.loop.add_writer(self._descriptor, self._on_writable)
        elif not self._is_blocked:
            self._is_touched = True
            state.turns.touch_again(self)

    def _on_writable(self) -> None:
        """The transport takes more: send here, since this is called again as long as something is left."""
        self._send(self._state.turns.bytes_a_turn(self), self._state.now_us())

    def _sent_all(self) -> None:
        if self.pauses & Pause.FINISHING and not self._slots:
            self.close()
        elif self.pauses & Pause.ANSWERS:
            self._weigh_answers()

    def _weigh_answers(self) -> None:
        if self._answers.held_bytes(is_blocked=self._is_blocked) > MOST_ANSWERS_BYTES:
            self._pause(Pause.ANSWERS)
        else:
            self._resume(Pause.ANSWERS)

    # Throttling

    def throttle(self, throttle_time_ms: int) -> None:
        """Part of `SlotOwner`: of two throttles the one that lasts longer counts."""
        clock = self._state.clock
        until_ms = clock.monotonic_ms() + throttle_time_ms
        if self.is_closed or throttle_time_ms <= 0 or until_ms <= self.session.throttled_until_ms:
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

    def start(self) -> None:
        """Begin: the transport's handshake, then the first request. Raises `OSError` where the system cannot watch the
        transport."""
        self._shake_hands()
        if self.is_closed:
            return
        gate = gate_of(self.session)
        if gate is not None:
            gate.begin(self)
        elif self.pauses & Pause.HANDSHAKE:
            clock = self._state.clock
            until_ms = clock.monotonic_ms() + self._state.settings.handshake_timeout_ms
            self._handshake_alarm = clock.call_at(until_ms, self._on_handshake_too_late)

    @property
    def authentication_stats(self) -> AuthenticationStats:
        """Part of `GatedConnection`."""
        return self._stats.authentication

    def authenticated(self) -> None:
        """Part of `GatedConnection`: from now on the client may have more and larger requests under way."""
        settings = self._state.settings
        self.max_in_flight = settings.max_in_flight
        self._most_bytes = settings.socket_request_max_bytes

    def _shake_hands(self) -> None:
        """Go on with the transport's handshake as far as it goes; requests are read behind it."""
        try:
            handshake = self._transport.handshake()
        except HandshakeFailed as reason:
            log.info("Closing %s: its handshake on %s has failed: %s", self.peer, self.peer.listener, reason)
            self._stats.authentication.failures += 1
            self.close()
            return
        except OSError as error:
            self._lost(error)
            return
        self._stop_watching()
        if handshake is Handshake.DONE:
            self._on_handshake_done()
            self._resume(Pause.HANDSHAKE)
        elif handshake is Handshake.WANTS_READ:
            self._is_reading = True
            self._state.loop.add_reader(self._descriptor, self._shake_hands)
        else:
            self._is_blocked = True
            self._state.loop.add_writer(self._descriptor, self._shake_hands)

    def _on_handshake_done(self) -> None:
        self._end_handshake_alarm()
        principal = self._transport.principal
        if principal is not None and self.session.gate is None:
            self.session.authenticate(principal)
            self._stats.authentication.successes += 1
            self._stats.authentication.successes_without_lifetime += 1

    def _on_handshake_too_late(self) -> None:
        log.info(
            "Closing %s: its handshake on %s is not done in %d ms (ottla.authentication.timeout.ms)",
            self.peer,
            self.peer.listener,
            self._state.settings.handshake_timeout_ms,
        )
        self._stats.authentication.failures += 1
        self.close()

    def _end_handshake_alarm(self) -> None:
        if self._handshake_alarm is not None:
            self._handshake_alarm.cancel()
            self._handshake_alarm = None

    def _read_again(self) -> None:
        self._is_reading = True
        self._state.loop.add_reader(self._descriptor, self._on_readable)
        if self._pending is not None:
            self._read_pending(self._pending)

    def _stop_watching(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._state.loop.remove_reader(self._descriptor)
        if self._is_blocked:
            self._is_blocked = False
            self._state.loop.remove_writer(self._descriptor)

    def _pause(self, reason: int) -> None:
        self.pauses |= reason
        if self._is_reading:
            self._is_reading = False
            self._state.loop.remove_reader(self._descriptor)

    def _clear(self, reason: int) -> None:
        self.pauses &= ~reason

    def _resume(self, reason: int) -> None:
        """Clear a reason, and read on if it was the last."""
        if not self.pauses & reason:
            return
        self._clear(reason)
        if self.pauses:
            return
        if self._requests.is_receiving:
            # What has arrived already comes first; it may find the next reason to pause.
            self._cut(self._state.now_us())
        if not self.pauses:
            self._read_again()

    def _finish(self) -> None:
        """Read nothing more; close when everything is answered."""
        self._pause(Pause.FINISHING)
        self._requests.drop_incomplete()
        if self._answers.is_empty:
            self.close()

    def stop_reading(self) -> None:
        """The broker stops: no new requests. Those under way are answered, the client's throttle ends, and then the
        connection closes."""
        if not self.pauses & Pause.FINISHING:
            self._end_throttle()
            self._finish()

    def _lost(self, error: OSError) -> None:
        if isinstance(error, PeerViolation):
            log.info("Closing %s: %s", self.peer, error)
        else:
            log.debug("Lost %s: %s", self.peer, error)
        self.close()

    def close(self) -> None:
        """Close now. Requests under way are handled still, and their answers dropped."""
        if self.is_closed:
            return
        self.is_closed = True
        self._pause(Pause.FINISHING)
        self._end_handshake_alarm()
        if self._throttle_alarm is not None:
            self._throttle_alarm.cancel()
            self._throttle_alarm = None
        # A descriptor that the loop still watches could be another connection's by the time it looks.
        self._stop_watching()
        self._transport.close()
        slots = [*self._slots, *self._detached]
        heir = Departed()
        for slot in slots:
            slot.bequeath(heir)
        heir.inherit(slots, self._requests.surrender(), self._state.pool)
        self._answers.clear()
        self._detached.clear()
        self.stream.close()
        self._state.memory.leave(self)
        self._closed(self)
