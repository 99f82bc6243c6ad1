"""The raw load generator: some connections, each with so many requests in flight, made of prepared bytes.

Its own cost is kept low: a connection sends the same frame again and again out of one prepared buffer. Equal requests
have answers of equal size, so answers are counted by the bytes that arrive. The first answer of every connection is
read and checked; whether all other answers were successes is for the caller to count (end offsets).
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.conversation import address_of

RECEIVE_BYTES = 1 << 20
STALLED_S = 30.0


class LoadFailed(Exception):
    """An answer was wrong, or the answers stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The result of one run of load: answered requests, bytes each way, seconds from the first request to the last
    answer.

    `generator_seconds` is the generator's own CPU time; if it is near `seconds`, the generator was the limit.
    """

    requests: int
    sent_bytes: int
    received_bytes: int
    seconds: float
    generator_seconds: float

    @classmethod
    def sum(cls, parts: list[Sample]) -> Sample:
        """Several runs, one after the other, as one."""
        return cls(
            requests=sum(part.requests for part in parts),
            sent_bytes=sum(part.sent_bytes for part in parts),
            received_bytes=sum(part.received_bytes for part in parts),
            seconds=sum(part.seconds for part in parts),
            generator_seconds=sum(part.generator_seconds for part in parts),
        )

    @property
    def rate(self) -> float:
        return self.requests / self.seconds


class _Connection:
    def __init__(self, address: tuple[str, int], frame: bytes, in_flight: int) -> None:
        self.socket = socket.create_connection(address, timeout=STALLED_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.frame_bytes = len(frame)
        # As many copies as may become due at once, plus one to begin in the middle of; large frames stand alone.
        copies = in_flight + 1 if len(frame) * (in_flight + 1) <= 4 * RECEIVE_BYTES else 2
        self._frames = memoryview(frame * copies)
        self._position = 0
        self.due_bytes = 0
        self.unanswered_bytes = 0
        self.answered = 0
        self.writes = False

    def first_answer(self) -> bytes:
        """Send one request and return its answer, size included."""
        self.socket.sendall(self._frames[: self.frame_bytes])
        received = bytearray()
        while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
            piece = self.socket.recv(RECEIVE_BYTES)
            if not piece:
                raise LoadFailed("the broker closed the connection instead of answering")
            received += piece
        return bytes(received)

    def send(self) -> None:
        """Send the bytes that are due, as many as the system takes."""
        while self.due_bytes:
            end = min(self._position + self.due_bytes, len(self._frames))
            try:
                sent = self.socket.send(self._frames[self._position : end])
            except BlockingIOError:
                return
            self.due_bytes -= sent
            self._position = (self._position + sent) % self.frame_bytes


def run_load(
    bootstrap: str,
    frames: list[bytes],
    *,
    in_flight: int,
    requests: int,
    check: Callable[[bytes], None] | None = None,
    most_seconds: float = 20.0,
) -> Sample:
    """Send `requests` requests in all, on one connection for each of `frames`, with `in_flight` requests at a time on
    each.

    Ends early, but with every request answered, after `most_seconds`. The first request of each connection is not
    counted and not measured; `check` gets its answer, size included, and raises if it is not a success.
    """
    address = address_of(bootstrap)
    connections = [_Connection(address, frame, in_flight) for frame in frames]
    try:
        answer_bytes = 0
        for connection in connections:
            answer = connection.first_answer()
            if check is not None:
                check(answer)
            answer_bytes = len(answer)
            connection.unanswered_bytes = answer_bytes
            connection.socket.setblocking(False)
        return _drive(connections, answer_bytes, in_flight, requests, most_seconds)
    finally:
        for connection in connections:
            connection.socket.close()


def _drive(
    connections: list[_Connection], answer_bytes: int, in_flight: int, requests: int, most_seconds: float
) -> Sample:
    poller = select.epoll()
    by_descriptor = {connection.socket.fileno(): connection for connection in connections}
    buffer = bytearray(RECEIVE_BYTES)
    view = memoryview(buffer)
    started, cpu_started = time.perf_counter(), time.process_time()
    stop_at = started + most_seconds
    left = requests
    asked = answered = received_bytes = 0
    for descriptor, connection in by_descriptor.items():
        poller.register(descriptor, select.EPOLLIN)
        first = min(in_flight, left)
        left -= first
        asked += first
        connection.due_bytes = first * connection.frame_bytes
        connection.send()
        if connection.due_bytes:
            connection.writes = True
            poller.modify(descriptor, select.EPOLLIN | select.EPOLLOUT)
    while answered < asked:
        events = poller.poll(STALLED_S)
        if not events:
            raise LoadFailed(f"no answer for {STALLED_S} s, {asked - answered} requests are open")
        for descriptor, event in events:
            connection = by_descriptor[descriptor]
            if event & ~select.EPOLLOUT:
                try:
                    received = connection.socket.recv_into(view)
                except ConnectionResetError:
                    received = 0
                if not received:
                    raise LoadFailed(f"the broker closed a connection with {asked - answered} requests open")
                received_bytes += received
                connection.unanswered_bytes -= received
                if connection.unanswered_bytes <= 0:
                    done = 1 + -connection.unanswered_bytes // answer_bytes
                    connection.unanswered_bytes += done * answer_bytes
                    answered += done
                    more = min(done, left)
                    if more:
                        left -= more
                        asked += more
                        connection.due_bytes += more * connection.frame_bytes
            if connection.due_bytes:
                connection.send()
            if bool(connection.due_bytes) != connection.writes:
                connection.writes = not connection.writes
                poller.modify(descriptor, select.EPOLLIN | (select.EPOLLOUT if connection.writes else 0))
        if left and time.perf_counter() > stop_at:
            left = 0
    seconds, generator_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    poller.close()
    return Sample(
        requests=answered,
        sent_bytes=asked * connections[0].frame_bytes,
        received_bytes=received_bytes,
        seconds=seconds,
        generator_seconds=generator_seconds,
    )


def run_paced(bootstrap: str, frames: Sequence[bytes], *, rate: float, requests: int) -> list[float]:
    """Send requests on one connection at fixed moments, whether or not the last one is answered. Returns latencies in
    seconds.

    The frames, whose answers are of equal size, take turns; the first frame is sent once before the measurement. A
    latency begins at the moment at which its request was due, so that a stall counts for all requests that had to wait.
    The generator spins between the moments, since a sleeping generator would measure its own waking up.
    """
    connection = _Connection(address_of(bootstrap), frames[0], 1)
    try:
        answer_bytes = len(connection.first_answer())
        connection.socket.setblocking(False)
        return _pace(connection.socket, frames, answer_bytes, rate, requests)
    finally:
        connection.socket.close()


def _pace(
    connection: socket.socket, frames: Sequence[bytes], answer_bytes: int, rate: float, requests: int
) -> list[float]:
    view = memoryview(bytearray(RECEIVE_BYTES))
    latencies: list[float] = []
    interval = 1 / rate
    clock = time.perf_counter
    started = last_progress = clock()
    asked = received = 0
    while len(latencies) < requests:
        now = clock()
        if asked < requests and now >= started + asked * interval:
            connection.send(frames[asked % len(frames)])
            asked += 1
        try:
            size = connection.recv_into(view)
        except BlockingIOError:
            if now - last_progress > STALLED_S:
                raise LoadFailed(f"no answer for {STALLED_S} s") from None
            continue
        if not size:
            raise LoadFailed("the broker closed the connection")
        last_progress = clock()
        received += size
        while len(latencies) < received // answer_bytes:
            latencies.append(last_progress - (started + len(latencies) * interval))
    return latencies
