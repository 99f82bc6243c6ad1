"""Observers: how far the nodes have come that follow the metadata log without a vote (KIP-595, KIP-836)."""

from typing import Final, NamedTuple

SESSION_TIMEOUT_MS: Final = 300_000
"""An observer that has not fetched for so long is forgotten, as in Kafka."""

MOST_OBSERVERS: Final = 1_000
"""Of more observers, those that have been silent longest are forgotten: their ids are the choice of peers."""

NEVER: Final = -1


class ReplicaKey(NamedTuple):
    """A node's copy of the metadata log."""

    node_id: int
    directory_id: bytes
    """16 bytes, zero where the node does not say it (before Fetch v17)."""


class ObserverPosition(NamedTuple):
    """The position of one observer, as DescribeQuorum tells it. Times are those of the wall clock."""

    key: ReplicaKey
    end_offset: int
    """The offset of the observer's last fetch: the end of its log."""
    last_fetch_ms: int
    last_caught_up_ms: int
    """When the observer last had all committed records, `NEVER` if it never had them."""


class _Observer:
    __slots__ = ("end_offset", "last_caught_up_ms", "last_fetch_ms", "leaders_end_offset")

    def __init__(self) -> None:
        self.end_offset = 0
        self.last_fetch_ms = NEVER
        self.last_caught_up_ms = NEVER
        self.leaders_end_offset = 0
        """Where the committed records ended at the last fetch."""


class Observers:
    """The observers that have fetched within the last `SESSION_TIMEOUT_MS`, `MOST_OBSERVERS` at most."""

    def __init__(self) -> None:
        self._observers: dict[ReplicaKey, _Observer] = {}
        """Those that have been silent for the longest time come first."""

    def fetched(self, key: ReplicaKey, fetch_offset: int, *, leaders_end_offset: int, now_ms: int) -> None:
        """Note a fetch, for which the leader has no error.

        Args:
            key: the observer.
            fetch_offset: the end of the observer's log.
            leaders_end_offset: where the committed records end in the leader's log.
            now_ms: milliseconds of the wall clock.
        """
        observer = self._observers.pop(key, None) or _Observer()
        self._observers[key] = observer
        if len(self._observers) > MOST_OBSERVERS:
            del self._observers[next(iter(self._observers))]
        if fetch_offset >= leaders_end_offset:
            observer.last_caught_up_ms = max(now_ms, observer.last_caught_up_ms)
        elif fetch_offset >= observer.leaders_end_offset > 0:
            # It has everything that the leader had when it fetched the last time.
            observer.last_caught_up_ms = max(observer.last_fetch_ms, observer.last_caught_up_ms)
        observer.end_offset = fetch_offset
        observer.last_fetch_ms = now_ms
        observer.leaders_end_offset = leaders_end_offset

    def positions(self, now_ms: int) -> list[ObserverPosition]:
        """The positions of all observers, by ascending node id. Forgets observers that have been silent for too long.

        ``now_ms``: milliseconds of the wall clock.
        """
        silent = [
            key for key, observer in self._observers.items() if observer.last_fetch_ms + SESSION_TIMEOUT_MS <= now_ms
        ]
        for key in silent:
            del self._observers[key]
        return [
            ObserverPosition(key, observer.end_offset, observer.last_fetch_ms, observer.last_caught_up_ms)
            for key, observer in sorted(self._observers.items())
        ]
