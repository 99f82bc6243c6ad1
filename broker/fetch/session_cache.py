"""The cache of fetch sessions: how many are kept, and which of them is evicted for a new one (KIP-227).

A new session takes a free slot. Where none is free it takes the slot of a session which, in this order,
    has not been used for more than 120 s;
    or has lived for more than 120 s and is worth less: a consumer's less than a follower's, one of few partitions less
    than one of many. For a follower, a consumer's session need not have lived so long.
"""

import logging
from bisect import bisect_left, insort
from collections import OrderedDict
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from broker.runtime.clock import Clock, Ids
from broker.runtime.counted import counted

log = logging.getLogger(__name__)

MIN_EVICTION_MS: Final = 120_000
"""Kafka's ``min.incremental.fetch.session.eviction.ms``, which is no setting there either."""

NO_SESSION: Final = 0


class Worth(NamedTuple):
    """What sessions are compared by; the least is evicted first."""

    is_privileged: bool
    partitions: int
    session_id: int
    """0 for a session that does not exist yet: of two that are worth the same, the one that is there stays."""


class CachedSession(Protocol):
    """A session as the cache sees it."""

    session_id: int
    is_privileged: bool

    def __len__(self) -> int:
        """How many partitions it has."""

    def close(self) -> None:
        """The session has left the cache: no request will use it any more."""


Session = TypeVar("Session", bound=CachedSession)


class Slot(Generic[Session]):
    """A session's place in the cache."""

    __slots__ = ("created_ms", "is_old", "last_used_ms", "session", "worth")

    def __init__(self, session: Session, worth: Worth, now_ms: int) -> None:
        self.session = session
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.is_old = False
        """Whether it had lived for `MIN_EVICTION_MS` when it was used last."""
        self.worth = worth
        """As it was when it was used last."""


class FetchSessionStats:
    """What the cache has counted."""

    __slots__ = ("evictions", "partitions", "sessions")

    def __init__(self) -> None:
        self.sessions = 0
        """Sessions now (Kafka: NumIncrementalFetchSessions)."""
        self.partitions = 0
        """Partitions in all sessions (Kafka: NumIncrementalFetchPartitionsCached)."""
        self.evictions = 0
        """Sessions that had to give way (Kafka: IncrementalFetchSessionEvictionsPerSec)."""


class FetchSessionCache(Generic[Session]):
    """All fetch sessions by their id, the one longest unused first."""

    def __init__(self, clock: Clock, ids: Ids, *, slots: int) -> None:
        self._clock = clock
        self._ids = ids
        self._most = slots
        self._slots: OrderedDict[int, Slot[Session]] = OrderedDict()
        # Sorted: whom a new session may replace is found at once, however many sessions there are.
        self._old: list[Worth] = []
        self._young_consumers: list[Worth] = []
        self.stats = FetchSessionStats()

    def get(self, session_id: int) -> Session | None:
        """The session, or None."""
        slot = self._slots.get(session_id)
        return None if slot is None else slot.session

    def allocate_id(self, *, is_privileged: bool, partitions: int) -> int:
        """A new id for a session of so many partitions, evicting another session if the cache is full; `NO_SESSION`
        where none is worth less."""
        if len(self._slots) >= self._most and not self._evict_for(Worth(is_privileged, partitions, NO_SESSION)):
            return NO_SESSION
        while True:
            session_id = int.from_bytes(self._ids.uuid()[-4:], "big") & 0x7FFF_FFFF
            if session_id != NO_SESSION and session_id not in self._slots:
                return session_id

    def add(self, session: Session) -> None:
        """Keep a new session, whose id is from `allocate_id`."""
        worth = Worth(session.is_privileged, len(session), session.session_id)
        slot = self._slots[session.session_id] = Slot(session, worth, self._clock.monotonic_ms())
        self._rank(slot)
        self.stats.sessions += 1
        self.stats.partitions += worth.partitions

    def touch(self, session: Session) -> None:
        """The session has been used; it may have another number of partitions now."""
        slot = self._slots[session.session_id]
        self._slots.move_to_end(session.session_id)
        now_ms = slot.last_used_ms = self._clock.monotonic_ms()
        is_old = now_ms - slot.created_ms > MIN_EVICTION_MS
        size = len(session)
        if size != slot.worth.partitions or is_old != slot.is_old:
            self._unrank(slot)
            self.stats.partitions += size - slot.worth.partitions
            slot.worth = slot.worth._replace(partitions=size)
            slot.is_old = is_old
            self._rank(slot)

    def remove(self, session_id: int) -> bool:
        """Close the session; False if there is none of this id."""
        slot = self._slots.pop(session_id, None)
        if slot is None:
            return False
        self._unrank(slot)
        self.stats.sessions -= 1
        self.stats.partitions -= slot.worth.partitions
        slot.session.close()
        return True

    def _evict_for(self, worth: Worth) -> bool:
        now_ms = self._clock.monotonic_ms()
        longest_unused = next(iter(self._slots.values()), None)
        if longest_unused is None:
            return False
        if now_ms - longest_unused.last_used_ms > MIN_EVICTION_MS:
            evicted = longest_unused.worth
        else:
            candidates = self._old[:1]
            if worth.is_privileged:
                candidates += self._young_consumers[:1]
            evicted = min(candidates, default=worth)
            if worth <= evicted:
                return False
        log.debug("fetch session %d of %s is evicted", evicted.session_id, counted(evicted.partitions, "partition"))
        self.remove(evicted.session_id)
        self.stats.evictions += 1
        return True

    def _ranking(self, slot: Slot[Session]) -> list[Worth] | None:
        if slot.is_old:
            return self._old
        return None if slot.worth.is_privileged else self._young_consumers

    def _rank(self, slot: Slot[Session]) -> None:
        if (ranking := self._ranking(slot)) is not None:
            insort(ranking, slot.worth)

    def _unrank(self, slot: Slot[Session]) -> None:
        if (ranking := self._ranking(slot)) is not None:
            del ranking[bisect_left(ranking, slot.worth)]
