"""What a connection needs of its processor, and what it is held to."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from broker.histogram import Histogram
from broker.network.buffer_pool import Buffer, BufferPool, RequestMemory
from broker.request.channel import RequestChannel

if TYPE_CHECKING:
    from broker.network.connection import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    """What connections are held to."""

    socket_request_max_bytes: int = 104_857_600
    max_in_flight: int = 64
    """`ottla.connection.max.in.flight`: requests without an answer above which a connection is not read."""
    connections_max_idle_ms: int = 600_000
    """-1: never closed for that."""


class ConnectionStats:
    """What a processor's connections have counted together."""

    __slots__ = ("bytes_received", "bytes_sent", "responses_sent")

    def __init__(self) -> None:
        self.bytes_received = 0
        self.bytes_sent = 0
        self.responses_sent = 0


class ConnectionOwner(Protocol):
    """The processor, as its connections see it."""

    loop: asyncio.AbstractEventLoop
    settings: NetworkSettings
    channel: RequestChannel
    memory: RequestMemory
    pool: BufferPool
    now_us: Callable[[], int]
    scratch: Buffer
    """Memory for whoever receives; nobody keeps anything in it."""

    @property
    def stats(self) -> "ConnectionStats": ...

    def latencies_of(self, listener: str) -> Histogram:
        """Where the connections of ``listener`` count how long their requests took."""

    def touch(self, connection: "Connection") -> None:
        """``connection`` has something to send: give it its turn."""

    def touch_again(self, connection: "Connection") -> None:
        """``connection`` has had its turn and has more to send: behind all that have not."""

    def bytes_a_turn(self, connection: "Connection") -> int:
        """How much a connection may send before it is another's turn."""

    def give_scratch(self) -> None:
        """`scratch` belongs to a connection now, counted as borrowed: take another. Only while memory is not short."""

    def closed(self, connection: "Connection") -> None:
        """``connection`` is no more."""
