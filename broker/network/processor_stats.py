"""What a network processor and its connections have counted."""

from collections.abc import Sequence

from broker.request.response import ResponseSlot
from broker.request.stats import ALL_TIMED, ONE_TIMED_IN, AuthenticationStats
from broker.runtime.histogram import Histogram

Runs = Sequence[tuple[ResponseSlot, int]]
"""Answers that are sent together: of each run of requests of one kind that were handled in one turn, the first, and how
many they are."""


class ListenerStats:
    """Counters of one listener's connections in one processor."""

    __slots__ = (
        "authentication",
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
        self.authentication = AuthenticationStats()
        self.bytes_received = 0
        self.bytes_sent = 0
        self.requests_received = 0
        self.responses_sent = 0
        self.latencies = Histogram()
        """From receiving a request's last byte to handing the last byte of its answer to the system, in us."""

    def sent(self, runs: Runs, sending_us: int, sent_us: int) -> None:
        """The last byte of these answers is sent. Answers that are sent together count as long as the oldest of them:
        once a turn, and never too short."""
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


class ProcessorStats:
    """What a processor has counted."""

    __slots__ = ("busy_us", "listeners", "started_us", "turns")

    def __init__(self, started_us: int) -> None:
        self.turns = 0
        self.started_us = started_us
        self.busy_us = 0
        """Time spent on sending."""
        self.listeners: dict[str, ListenerStats] = {}
        """By name."""

    def of(self, listener: str) -> ListenerStats:
        """Where the connections of ``listener`` count."""
        known = self.listeners.get(listener)
        if known is None:
            known = self.listeners[listener] = ListenerStats()
        return known
