"""What the connections of one processor share: loop, clock, request channel, memory, counters, turns to send."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from broker.network.buffer_pool import BufferPool
from broker.network.processor_stats import ProcessorStats
from broker.network.send_turns import SendTurns
from broker.request.channel import RequestChannel
from broker.runtime.clock import Clock


class NetworkSettings(NamedTuple):
    """The bounds of every connection."""

    socket_request_max_bytes: int = 104_857_600
    max_in_flight: int = 64
    """`ottla.connection.max.in.flight`: requests without an answer above which a connection is not read."""
    connections_max_idle_ms: int = 600_000
    """-1: a connection is never closed for being idle."""
    handshake_timeout_ms: int = 60_000
    """`ottla.authentication.timeout.ms`: how long a peer may take for the handshake of its transport."""


class ProcessorState:
    """One processor's share of the broker, for each of its connections."""

    __slots__ = (
        "channel",
        "clock",
        "loop",
        "memory",
        "now_us",
        "pool",
        "put_back",
        "settings",
        "stats",
        "turns",
    )

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        channel: RequestChannel,
        pool: BufferPool,
        settings: NetworkSettings,
        stats: ProcessorStats,
        turns: SendTurns,
        now_us: Callable[[], int],
    ) -> None:
        self.loop = loop
        self.clock = clock
        self.channel = channel
        self.put_back = channel.put_back
        """Bound once for all connections."""
        self.pool = pool
        self.memory = pool.memory
        self.settings = settings
        self.stats = stats
        self.turns = turns
        self.now_us = now_us
        """Microseconds on a clock that never goes back."""
