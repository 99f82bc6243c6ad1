"""Incremental fetch sessions (KIP-227): a client says what it fetches once, and is told only what has changed since.

    request      (id, epoch)   what becomes of it
    full         (0, 0)        everything is read; a session is made of it if the cache has room
                 (id, 0)       the same, and the session before is closed
                 (id, -1)      everything is read, the session is closed, none is made
    incremental  (id, n)       n is the session's epoch: partitions are added, changed, forgotten; what has news is told

A session knows which of its partitions may have news: those that the client has just asked for anew, those that had
records or an error last time, and those whose `Partition` has said since that it changed. Only these are read, so a
fetch costs what its changes cost, however many partitions lie still in the session; the answers are those of a walk
over all of them. A fetch that waits is watched under its session, not under its partitions.
"""

import logging
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from broker.fetch.round import (
    NO_OFFSET,
    Fetch,
    Locate,
    PartitionFetch,
    PartitionKey,
    PartitionRead,
    Told,
    located_first,
)
from broker.fetch.session_cache import NO_SESSION, FetchSessionCache, FetchSessionStats
from broker.replication.isolation import Isolation, visible_end
from broker.replication.partition import Partition
from broker.request.faults import FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch
from broker.runtime.clock import Clock, Ids
from broker.runtime.purgatory import Purgatory

log = logging.getLogger(__name__)

INITIAL_EPOCH: Final = 0
"""Of a full fetch that would like a session."""
FINAL_EPOCH: Final = -1
"""Of a full fetch that wants none."""
HIGHEST_EPOCH: Final = 0x7FFF_FFFF

_in_order = attrgetter("position")


def next_epoch(epoch: int) -> int:
    """What the request behind one with ``epoch`` has to say; after the highest comes 1, since 0 means a new session."""
    return epoch + 1 if epoch < HIGHEST_EPOCH else 1


class FetchTerms(NamedTuple):
    """What a request says that counts for all partitions alike. Where it differs from the request before, all of them
    may have news."""

    principal: str
    uses_topic_ids: bool
    is_follower: bool
    isolation: Isolation


class CachedPartition(PartitionFetch):
    """One partition of a session: what is asked of it, and what its client has been told."""

    __slots__ = ("_is_located", "_session", "_watched", "high_watermark", "log_start_offset", "position")

    def __init__(self, session: "FetchSession", asked: PartitionFetch, position: int) -> None:
        super().__init__(
            topic=asked.topic,
            topic_id=asked.topic_id,
            index=asked.index,
            fetch_offset=asked.fetch_offset,
            max_bytes=asked.max_bytes,
            current_leader_epoch=asked.current_leader_epoch,
            last_fetched_epoch=asked.last_fetched_epoch,
        )
        self.partition = asked.partition
        self.fault = asked.fault
        self.position = position
        """Partitions are read in this order; one that had records goes to the end, so that all get their turn."""
        self.high_watermark = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        self._session = session
        self._is_located = True
        """Whether it has been located since it changed."""
        self._watched: Partition | None = None

    def ask(self, asked: PartitionFetch) -> None:
        """The client wants something else of the same partition."""
        self.fetch_offset = asked.fetch_offset
        self.max_bytes = asked.max_bytes
        self.current_leader_epoch = asked.current_leader_epoch
        self.last_fetched_epoch = asked.last_fetched_epoch

    def tell(self, read: PartitionRead) -> bool:
        """Whether the answer must say what was read; what it says is remembered."""
        is_news = (
            read.region is not None
            or read.error is not None
            or read.diverging_epoch is not None
            or read.high_watermark != self.high_watermark
            or read.log_start_offset != self.log_start_offset
        )
        # Both are -1 in an error, so they are told again when it is over.
        self.high_watermark = read.high_watermark
        self.log_start_offset = read.log_start_offset
        return is_news

    def is_quiet(self, read: PartitionRead, isolation: Isolation) -> bool:
        """Whether the next read would give nothing to tell either, unless the partition changes."""
        return (
            self._is_located
            and read.error is None
            and read.diverging_epoch is None
            and self.partition is not None
            and self.fetch_offset >= visible_end(self.partition, isolation)
        )

    def watch(self) -> None:
        """Hear of changes of the partition that has been located."""
        self._is_located = True
        if self.partition is not self._watched:
            self.unwatch()
            if self.partition is not None:
                self.partition.watch(self)
                self._watched = self.partition

    def unwatch(self) -> None:
        """Hear no more."""
        if self._watched is not None:
            self._watched.unwatch(self)
            self._watched = None

    def partition_changed(self) -> None:
        """A `PartitionWatcher`'s: there may be news."""
        self._is_located = False
        self._session.partition_changed(self)


class FetchSession:
    """What one client fetches, and what it knows. It belongs to no connection."""

    __slots__ = (
        "_last_position",
        "_partitions",
        "_purgatory",
        "changed",
        "epoch",
        "is_closed",
        "is_fetching",
        "is_privileged",
        "session_id",
        "terms",
    )

    def __init__(self, session_id: int, terms: FetchTerms, purgatory: Purgatory) -> None:
        self.session_id = session_id
        self.epoch = next_epoch(INITIAL_EPOCH)
        """What the next request must say."""
        self.terms = terms
        self.is_privileged = terms.is_follower
        self.is_closed = False
        self.is_fetching = False
        """Whether a fetch is under way, which may wait."""
        self.changed: set[CachedPartition] = set()
        """The partitions that may have news; about all others it is known that they have none."""
        self._partitions: dict[PartitionKey, CachedPartition] = {}
        self._last_position = 0
        self._purgatory = purgatory

    def __len__(self) -> int:
        return len(self._partitions)

    def update(self, asked: Mapping[PartitionKey, PartitionFetch], forgotten: Iterable[PartitionKey]) -> None:
        """Take over what a request says: partitions that are new or asked for anew, then those to forget."""
        for key, fetch in asked.items():
            known = self._partitions.get(key)
            if known is None:
                known = self.add(fetch)
            else:
                known.ask(fetch)
            self.changed.add(known)
        for key in forgotten:
            gone = self._partitions.pop(key, None)
            if gone is not None:
                gone.unwatch()
                self.changed.discard(gone)

    def add(self, asked: PartitionFetch) -> CachedPartition:
        """Put a partition behind all others."""
        self._last_position += 1
        added = self._partitions[asked.key] = CachedPartition(self, asked, self._last_position)
        return added

    def locate(self, locate: Locate, terms: FetchTerms) -> None:
        """Find the partitions that may have news: they may have been deleted, or made, since the last time."""
        if terms != self.terms:
            self.terms = terms
            self.changed.update(self._partitions.values())
        self.is_fetching = True
        for cached in self.changed:
            locate(cached)
            cached.watch()

    def conclude(
        self, partitions: Sequence[PartitionFetch], reads: Sequence[PartitionRead]
    ) -> list[tuple[PartitionFetch, PartitionRead]]:
        """What must be told of the reads of ``partitions``; remembers that it was told, and who may have news next."""
        self.is_fetching = False
        told: list[tuple[PartitionFetch, PartitionRead]] = []
        for cached, read in zip(partitions, reads, strict=True):
            assert isinstance(cached, CachedPartition)
            if cached.tell(read):
                told.append((cached, read))
                if read.region is not None:
                    self._last_position += 1
                    cached.position = self._last_position
            if cached.is_quiet(read, self.terms.isolation):
                self.changed.discard(cached)
        return told

    def can_gain(self) -> bool:
        """Whether a partition is there that may get records; the unknown ones are all among the changed."""
        return len(self._partitions) > sum([cached.partition is None for cached in self.changed])

    def partition_changed(self, cached: CachedPartition) -> None:
        """One of its partitions may have news."""
        self.changed.add(cached)
        if self.is_fetching:
            self._purgatory.check(self)
        else:
            # The next fetch will see it; until then nobody pays for a client that may never come back.
            cached.unwatch()

    def close(self) -> None:
        """The client will not come back to it."""
        self.is_closed = True
        for cached in self._partitions.values():
            cached.unwatch()
        self._purgatory.check(self)
        self._partitions.clear()
        self.changed.clear()


class FullFetch(Fetch):
    """A fetch of everything that its request names; with ``sessions`` one is made of it, if there is room."""

    __slots__ = ("_partitions", "_sessions", "_terms")

    def __init__(
        self,
        asked: Mapping[PartitionKey, PartitionFetch],
        terms: FetchTerms,
        locate: Locate,
        sessions: "FetchSessions | None",
    ) -> None:
        self._terms = terms
        self._sessions = sessions
        for fetch in asked.values():
            locate(fetch)
        self._partitions = located_first(list(asked.values()))

    def partitions(self) -> Sequence[PartitionFetch]:
        return self._partitions

    def wakers(self) -> Collection[Hashable]:
        return [fetch.partition for fetch in self._partitions if fetch.partition is not None]

    def conclude(self, partitions: Sequence[PartitionFetch], reads: Sequence[PartitionRead]) -> Told:
        """Everything is told."""
        session_id = NO_SESSION
        if self._sessions is not None:
            session_id = self._sessions.create(partitions, reads, self._terms)
        return Told(session_id, list(zip(partitions, reads, strict=True)))


class IncrementalFetch(Fetch):
    """A fetch of what has changed in a session."""

    __slots__ = ("_epoch", "_session")

    def __init__(self, session: FetchSession) -> None:
        self._session = session
        self._epoch = session.epoch

    def partitions(self) -> Sequence[PartitionFetch]:
        return located_first(sorted(self._session.changed, key=_in_order))

    def wakers(self) -> Collection[Hashable]:
        return (self._session,) if self._session.can_gain() else ()

    @property
    def is_superseded(self) -> bool:
        """Its session is gone, or has taken another request: whoever sent that does not wait for this one."""
        return self._session.is_closed or self._session.epoch != self._epoch

    def conclude(self, partitions: Sequence[PartitionFetch], reads: Sequence[PartitionRead]) -> Told:
        """Only what has changed is told."""
        session = self._session
        if session.epoch != self._epoch:
            fault = InvalidFetchSessionEpoch(f"fetch session {session.session_id} took another request meanwhile")
            return Told(session.session_id, (), fault)
        return Told(session.session_id, session.conclude(partitions, reads))


class FetchSessions:
    """The sessions of all clients."""

    def __init__(self, clock: Clock, ids: Ids, purgatory: Purgatory, *, slots: int) -> None:
        self._cache: FetchSessionCache[FetchSession] = FetchSessionCache(clock, ids, slots=slots)
        self._purgatory = purgatory

    @property
    def stats(self) -> FetchSessionStats:
        """What there is to count."""
        return self._cache.stats

    def begin(
        self,
        session_id: int,
        epoch: int,
        asked: Mapping[PartitionKey, PartitionFetch],
        forgotten: Iterable[PartitionKey],
        *,
        terms: FetchTerms,
        locate: Locate,
    ) -> Fetch:
        """What a request with this id and epoch fetches.

        Raises FetchSessionIdNotFound, InvalidFetchSessionEpoch, FetchSessionTopicIdError; the session, if there is one,
        is as it was then.
        """
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session_id != NO_SESSION:
                self._cache.remove(session_id)
            return FullFetch(asked, terms, locate, self if epoch == INITIAL_EPOCH else None)
        session = self._continued(session_id, epoch, terms)
        session.update(asked, forgotten)
        if not session:
            log.debug("fetch session %d ends: it has no partitions left", session_id)
            self._cache.remove(session_id)
            return FullFetch(asked, terms, locate, None)
        self._cache.touch(session)
        session.epoch = next_epoch(epoch)
        session.locate(locate, terms)
        self._purgatory.check(session)  # a request before this one may still wait; its epoch is over
        return IncrementalFetch(session)

    def create(self, partitions: Sequence[PartitionFetch], reads: Sequence[PartitionRead], terms: FetchTerms) -> int:
        """Make a session of what a full fetch is told; its id, or `NO_SESSION` if there is no room for it."""
        session_id = self._cache.make_room(is_privileged=terms.is_follower, partitions=len(partitions))
        if session_id == NO_SESSION:
            return NO_SESSION
        session = FetchSession(session_id, terms, self._purgatory)
        for fetch, read in zip(partitions, reads, strict=True):
            cached = session.add(fetch)
            cached.watch()
            cached.tell(read)
            if not cached.is_quiet(read, terms.isolation):
                session.changed.add(cached)
        self._cache.add(session)
        log.debug("fetch session %d begins with %d partitions", session_id, len(session))
        return session_id

    def _continued(self, session_id: int, epoch: int, terms: FetchTerms) -> FetchSession:
        session = self._cache.get(session_id)
        if session is None:
            raise FetchSessionIdNotFound(f"there is no fetch session {session_id}")
        if session.epoch != epoch:
            raise InvalidFetchSessionEpoch(f"fetch session {session_id}: epoch {epoch} came, {session.epoch} was due")
        if session.terms.uses_topic_ids != terms.uses_topic_ids:
            raise FetchSessionTopicIdError(f"fetch session {session_id} began with topic ids or names, and goes on so")
        return session
