"""The log lines that peers cause, within bounds: a few of each kind are written, the others are counted."""

import logging
from typing import TYPE_CHECKING, Final

from broker.request.session import Peer
from broker.runtime.loggers import DECISIONS

if TYPE_CHECKING:
    from broker.runtime.clock import Clock

log = logging.getLogger(__name__)

INTERVAL_MS: Final = 10_000
MOST_LINES: Final = 10
"""Of one kind in an interval, from all peers together."""

_CAUSED_BY_PEERS: Final = (
    "broker.logs.retention_hold",
    "broker.network.",
    "broker.dispatch.",
    "broker.handlers.",
    "broker.coordinators.",
    "broker.metrics.",
    "broker.peers.",
    "broker.raft.remote_quorum",
    "broker.replication.replica_fetcher",
    "broker.replication.replica_manager",
    "broker.request.faults",
    "broker.security.",
    "broker.share.",
    DECISIONS,
)
"""Loggers whose lines are caused by a request, by a connection, by another node, or by one of the partitions that
clients have made. Nobody outside can repeat the lines of other loggers at will."""


class _Kind:
    """The lines from one place in the code in this interval."""

    __slots__ = ("kept_back", "last", "lines", "peers")

    def __init__(self) -> None:
        self.lines = 0
        self.peers: set[Peer] = set()
        """The connections that have had their line."""
        self.kept_back = 0
        self.last: logging.LogRecord | None = None


class LineLimit(logging.Filter):
    """Keeps a client that repeats a mistake, or connects again a thousand times a second, from filling the disk.

    Of each kind of line, which is a place in the code, one passes for each connection and `MOST_LINES` for all in an
    interval; at its end the number of the others is said, with the last of them. For handlers of loggers whose lines
    come from the loop's thread.
    """

    def __init__(self, clock: "Clock") -> None:
        super().__init__()
        self._clock = clock
        self._kinds: dict[tuple[str, int], _Kind] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written."""
        if not record.name.startswith(_CAUSED_BY_PEERS):
            return True
        place = record.pathname, record.lineno
        kind = self._kinds.get(place)
        if kind is None:
            if not self._kinds:
                self._clock.call_at(self._clock.monotonic_ms() + INTERVAL_MS, self._report)
            kind = self._kinds[place] = _Kind()
        arguments = record.args if isinstance(record.args, tuple) else ()
        peer = next((argument for argument in arguments if isinstance(argument, Peer)), None)
        if kind.lines >= MOST_LINES or peer in kind.peers:
            kind.kept_back += 1
            kind.last = record
            return False
        kind.lines += 1
        if peer is not None:
            kind.peers.add(peer)
        return True

    def _report(self) -> None:
        """The interval is over: write how many lines were kept back."""
        kinds, self._kinds = self._kinds, {}
        for kind in kinds.values():
            if kind.last is not None:
                log.log(
                    kind.last.levelno,
                    "and %d more like it in %d s, the last: %s",
                    kind.kept_back,
                    INTERVAL_MS // 1000,
                    kind.last.getMessage(),
                )
