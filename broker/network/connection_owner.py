"""What a connection needs of its processor, and what it is held to."""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from broker.network.buffer_pool import Buffer, BufferPool, RequestMemory
from broker.request.channel import RequestChannel
from broker.request.response import ResponseSlot
from broker.request.stats import ALL_TIMED, ONE_TIMED_IN
from broker.runtime.clock import Clock
from broker.runtime.histogram import Histogram

ConnectionT = TypeVar("ConnectionT", contravariant=True)


class NetworkSettings(NamedTuple):
    """What connections are held to."""

    socket_request_max_bytes: int = 104_857_600
    max_in_flight: int = 64
    """`ottla.connection.max.in.flight`: requests without an answer above which a connection is not read."""
    connections_max_idle_ms: int = 600_000
    """-1: never closed for that."""


Runs = Sequence[tuple[ResponseSlot, int]]
"""Answers that are sent together: of each run, which were asked for and handled alike, the first, and how many."""


class ListenerStats:
    """What a processor's connections of one listener have counted together."""

    __slots__ = (
        "bytes_received",
        "bytes_sent",
        "connections_closed",
        "connections_created",
        "connections_expired",
        "latencies",
        "requests_received",
        "responses_sent",
    )

    def __init__(self) -> None:
        self.connections_created = 0
        self.connections_closed = 0
        self.connections_expired = 0
        """Closed for being idle."""
        self.bytes_received = 0
        self.bytes_sent = 0
        self.requests_received = 0
        self.responses_sent = 0
        self.latencies = Histogram()
        """From receiving a request's last byte to handing the last byte of its answer to the system."""

    def sent(self, runs: Runs, sending_us: int, sent_us: int) -> None:
        """The last byte of these answers is gone. What goes out together counts as long as the oldest of it: once a
        turn, and never too short."""
        for slot, count in runs:
            self.responses_sent += count
            received_us = slot.received_us
            self.latencies.record(sent_us - received_us, count)
            kind = slot.kind
            if kind is not None:
                kind.answered += count
                number = kind.runs = kind.runs + 1
                if number > ALL_TIMED:
                    if number % ONE_TIMED_IN:
                        continue
                    count *= ONE_TIMED_IN
                kind.time(count, slot, sending_us, sent_us)


class ConnectionOwner(Protocol[ConnectionT]):
    """The processor, as its connections see it."""

    loop: asyncio.AbstractEventLoop
    clock: Clock
    settings: NetworkSettings
    channel: RequestChannel
    memory: RequestMemory
    pool: BufferPool
    now_us: Callable[[], int]
    scratch: Buffer
    """Memory for whoever receives; nobody keeps anything in it."""

    def stats_of(self, listener: str) -> ListenerStats:
        """Where the connections of ``listener`` count."""

    def touch(self, connection: ConnectionT) -> None:
        """``connection`` has something to send: give it its turn."""

    def touch_again(self, connection: ConnectionT) -> None:
        """``connection`` has had its turn and has more to send: behind all that have not."""

    def bytes_a_turn(self, connection: ConnectionT) -> int:
        """How much a connection may send before it is another's turn."""

    def give_scratch(self) -> None:
        """`scratch` belongs to a connection now, counted as borrowed: take another. Only while memory is not short."""

    def closed(self, connection: ConnectionT) -> None:
        """``connection`` is no more."""
