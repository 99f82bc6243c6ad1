"""Incremental fetch sessions (KIP-227): a client names its partitions once, and then gets only what has changed.

    request      (id, epoch)   what the broker does
    full         (0, 0)        reads everything; makes a session of it if the cache can take one more
                 (id, 0)       the same, and closes the session of that id
                 (id, -1)      reads everything, closes the session, makes none
    incremental  (id, n)       n is the session's epoch: adds, changes, forgets partitions; answers what has changed

A session keeps the set of its partitions that may have changed: those that the client has just asked for again, those
that had records or an error last time, and those whose `Partition` has said since that it changed. Only these are read,
so a fetch costs what its changes cost, however many unchanged partitions the session has. The answers are the same as
if all partitions had been read. In the purgatory, a fetch waits under its session, not under its partitions.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.fetch.round import (
    Fetch,
    FetchResult,
    Locate,
    PartitionFetch,
    PartitionKey,
    PartitionRead,
    located_first,
)
from broker.fetch.session_cache import NO_SESSION, FetchSessionCache, FetchSessionStats
from broker.replication.isolation import FetchIsolation
from broker.replication.partition import Partition
from broker.request.faults import FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch
from broker.runtime.clock import Clock, Ids
from broker.runtime.counted import counted
from broker.runtime.purgatory import Purgatory
from storage.sentinels import NO_OFFSET

if TYPE_CHECKING:
    from broker.replication.follower import FollowerId

log = logging.getLogger(__name__)

INITIAL_EPOCH: Final = 0
"""The epoch of a full fetch that asks for a session."""
FINAL_EPOCH: Final = -1
"""The epoch of a full fetch that wants no session."""
HIGHEST_EPOCH: Final = 0x7FFF_FFFF

_in_order = attrgetter("position")


def next_epoch(epoch: int) -> int:
    """The epoch that must follow ``epoch``; after the highest comes 1, since 0 means a new session."""
    return epoch + 1 if epoch < HIGHEST_EPOCH else 1


class FetchTerms(NamedTuple):
    """What a request says of all its partitions alike. Where it differs from the request before, all of them may give
    another answer."""

    principal: str
    generation: int
    """That of the principal's permissions; 0 where there is no authorizer."""
    uses_topic_ids: bool
    follower: FollowerId | None
    """Whose fetch it is; None for a consumer's."""
    isolation: FetchIsolation
    only_leader: bool = True
    """Whether only the leader of a partition may answer."""
    rack_id: str = ""
    """Where the consumer is, which may prefer followers there."""

    @property
    def is_follower(self) -> bool:
        """Whether a broker fetches, not a consumer."""
        return self.follower is not None


class CachedPartition(PartitionFetch):
    """One partition of a session: what the client asks of it, and what was answered last."""

    __slots__ = ("_is_located", "_session", "_watched", "high_watermark", "known_log_start", "position")

    def __init__(self, session: FetchSession, asked: PartitionFetch, position: int) -> None:
        super().__init__(
            topic=asked.topic,
            topic_id=asked.topic_id,
            index=asked.index,
            fetch_offset=asked.fetch_offset,
            max_bytes=asked.max_bytes,
            current_leader_epoch=asked.current_leader_epoch,
            last_fetched_epoch=asked.last_fetched_epoch,
            log_start_offset=asked.log_start_offset,
        )
        self.partition = asked.partition
        self.fault = asked.fault
        self.position = position
        """The place in the order of reading. A partition that had records goes to the end: all get their turn."""
        self.high_watermark = NO_OFFSET
        self.known_log_start = NO_OFFSET
        self._session = session
        self._is_located = True
        """Whether the partition has been located since it changed."""
        self._watched: Partition | None = None

    def ask(self, asked: PartitionFetch) -> None:
        """The client asks for the same partition in another way."""
        self.fetch_offset = asked.fetch_offset
        self.max_bytes = asked.max_bytes
        self.current_leader_epoch = asked.current_leader_epoch
        self.last_fetched_epoch = asked.last_fetched_epoch
        self.log_start_offset = asked.log_start_offset

    def update(self, read: PartitionRead) -> bool:
        """Remember what was read; True if the answer must contain it, since the client does not know it yet."""
        must_answer = (
            read.is_news or read.high_watermark != self.high_watermark or read.log_start_offset != self.known_log_start
        )
        # Both are -1 in an error, so that they are answered again when the error is over.
        self.high_watermark = read.high_watermark
        self.known_log_start = read.log_start_offset
        return must_answer

    def stays_unchanged(self, read: PartitionRead, isolation: FetchIsolation) -> bool:
        """Whether the answer stays the one that ``read`` gave, until the partition says that it has changed."""
        return (
            self._is_located
            and read.error is None
            and read.diverging_epoch is None
            and read.preferred_read_replica is None
            and self.partition is not None
            and self.partition.has_nothing_for(self.fetch_offset, isolation)
        )

    def watch(self) -> None:
        """From now on the partition that has been located says when it changes."""
        self._is_located = True
        if self.partition is not self._watched:
            self.unwatch()
            if self.partition is not None:
                self.partition.watch(self)
                self._watched = self.partition

    def unwatch(self) -> None:
        """From now on the partition does not say when it changes."""
        if self._watched is not None:
            self._watched.unwatch(self)
            self._watched = None

    def is_forgotten(self, follower: FollowerId | None) -> None:
        """The client does not fetch the partition any more. ``follower``: the broker, if it was one."""
        followers = None if self.partition is None else self.partition.followers
        if follower is not None and followers is not None:
            followers.stopped(follower.replica_id, follower.broker_epoch)

    def partition_changed(self) -> None:
        """Called by the partition, since this is its `PartitionWatcher`."""
        self._is_located = False
        self._session.partition_changed(self)


class FetchSession:
    """What one client fetches, and what it was answered last. A session belongs to no connection."""

    __slots__ = (
        "_last_position",
        "_partitions",
        "_purgatory",
        "changed",
        "epoch",
        "is_closed",
        "is_fetching",
        "is_privileged",
        "news",
        "session_id",
        "terms",
    )

    def __init__(self, session_id: int, terms: FetchTerms, purgatory: Purgatory) -> None:
        self.session_id = session_id
        self.epoch = next_epoch(INITIAL_EPOCH)
        """The epoch that the next request must have."""
        self.terms = terms
        self.is_privileged = terms.is_follower
        self.is_closed = False
        self.is_fetching = False
        """Whether a fetch is under way, which may wait."""
        self.changed: set[CachedPartition] = set()
        """The partitions that may have changed. The answer of all others is known to be the same as last time."""
        self.news: set[CachedPartition] = set()
        """Those of ``changed`` that have changed since the fetch under way has looked at them."""
        self._partitions: dict[PartitionKey, CachedPartition] = {}
        self._last_position = 0
        self._purgatory = purgatory

    def __len__(self) -> int:
        return len(self._partitions)

    def update(self, asked: Mapping[PartitionKey, PartitionFetch], forgotten: Iterable[PartitionKey]) -> None:
        """Take over what a request says: partitions that are added or asked for again, then those to forget."""
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
                gone.is_forgotten(self.terms.follower)
                self.changed.discard(gone)

    def add(self, asked: PartitionFetch) -> CachedPartition:
        """Put a partition behind all others."""
        self._last_position += 1
        added = self._partitions[asked.key] = CachedPartition(self, asked, self._last_position)
        return added

    def locate(self, locate: Locate, terms: FetchTerms) -> None:
        """Locate the partitions that may have changed: they may have been deleted, or created, since the last time."""
        if terms != self.terms:
            self.terms = terms
            self.changed.update(self._partitions.values())
        self.news.clear()
        self.is_fetching = True
        for cached in self.changed:
            locate(cached)
            cached.watch()

    def conclude(
        self, partitions: Sequence[PartitionFetch], reads: Sequence[PartitionRead]
    ) -> list[tuple[PartitionFetch, PartitionRead]]:
        """Which of the reads of ``partitions`` the answer must contain; remembers them, and what may change next."""
        self.is_fetching = False
        answered: list[tuple[PartitionFetch, PartitionRead]] = []
        for cached, read in zip(partitions, reads, strict=True):
            assert isinstance(cached, CachedPartition)
            if cached.update(read):
                answered.append((cached, read))
                if read.region is not None:
                    self._last_position += 1
                    cached.position = self._last_position
            if cached.stays_unchanged(read, self.terms.isolation):
                self.changed.discard(cached)
        return answered

    def can_gain(self) -> bool:
        """Whether the session has a partition that may get records. Those that do not exist are all in ``changed``."""
        return len(self._partitions) > sum([cached.partition is None for cached in self.changed])

    def partition_changed(self, cached: CachedPartition) -> None:
        """One of the session's partitions may give another answer."""
        self.changed.add(cached)
        if self.is_fetching:
            self.news.add(cached)
            self._purgatory.check(self)
        else:
            # The next fetch reads it. Until then an append pays nothing for a client that may never come back.
            cached.unwatch()

    def close(self) -> None:
        """No request will use the session any more."""
        self.is_closed = True
        for cached in self._partitions.values():
            cached.unwatch()
        self._purgatory.check(self)
        self._partitions.clear()
        self.changed.clear()


class FullFetch(Fetch):
    """A fetch of everything that its request names; with ``sessions`` a session is made of it, if there is a slot."""

    __slots__ = ("_partitions", "_sessions", "_terms", "_wakers")

    def __init__(
        self,
        asked: Mapping[PartitionKey, PartitionFetch],
        terms: FetchTerms,
        locate: Locate,
        sessions: FetchSessions | None,
    ) -> None:
        self._terms = terms
        self._sessions = sessions
        for fetch in asked.values():
            locate(fetch)
        self._partitions = located_first(list(asked.values()))
        self._wakers: Mapping[Hashable, PartitionFetch] = {}

    def partitions(self) -> Sequence[PartitionFetch]:
        return self._partitions

    def wakers(self) -> Collection[Hashable]:
        self._wakers = {fetch.partition: fetch for fetch in self._partitions if fetch.partition is not None}
        return self._wakers.keys()

    def changed_by(self, waker: Hashable) -> Iterable[PartitionFetch]:
        return (self._wakers[waker],)

    def withhold(self) -> FetchResult:
        """The client asks for everything again: no session is made."""
        return FetchResult(NO_SESSION, ())

    def conclude(self, partitions: Sequence[PartitionFetch], reads: Sequence[PartitionRead]) -> FetchResult:
        """Everything is answered."""
        session_id = NO_SESSION
        if self._sessions is not None:
            session_id = self._sessions.create(partitions, reads, self._terms)
        return FetchResult(session_id, list(zip(partitions, reads, strict=True)))


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

    def changed_by(self, waker: Hashable) -> Iterable[PartitionFetch]:
        news, self._session.news = self._session.news, set()
        return news

    @property
    def is_superseded(self) -> bool:
        """Whether the session is closed or has taken another request, whose sender does not wait for this answer."""
        return self._session.is_closed or self._session.epoch != self._epoch

    def withhold(self) -> FetchResult:
        """The session remembers nothing of this fetch: what has changed is answered next time."""
        return self.conclude((), ())

    def conclude(self, partitions: Sequence[PartitionFetch], reads: Sequence[PartitionRead]) -> FetchResult:
        """Only what has changed is answered."""
        session = self._session
        if session.epoch != self._epoch:
            fault = InvalidFetchSessionEpoch(f"fetch session {session.session_id} took another request meanwhile")
            return FetchResult(session.session_id, (), fault)
        return FetchResult(session.session_id, session.conclude(partitions, reads))


class FetchSessions:
    """The sessions of all clients."""

    def __init__(self, clock: Clock, ids: Ids, purgatory: Purgatory, *, slots: int) -> None:
        self._cache: FetchSessionCache[FetchSession] = FetchSessionCache(clock, ids, slots=slots)
        self._purgatory = purgatory

    @property
    def stats(self) -> FetchSessionStats:
        """What the cache has counted."""
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
        """The fetch that a request with this session id and epoch asks for.

        Raises FetchSessionIdNotFound, InvalidFetchSessionEpoch, FetchSessionTopicIdError, and leaves the session as it
        was.
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
        """Make a session of what a full fetch has read; its id, or `NO_SESSION` where the cache does not take it."""
        session_id = self._cache.allocate_id(is_privileged=terms.is_follower, partitions=len(partitions))
        if session_id == NO_SESSION:
            return NO_SESSION
        session = FetchSession(session_id, terms, self._purgatory)
        for fetch, read in zip(partitions, reads, strict=True):
            cached = session.add(fetch)
            cached.watch()
            cached.update(read)
            if not cached.stays_unchanged(read, terms.isolation):
                session.changed.add(cached)
        self._cache.add(session)
        log.debug("fetch session %d begins with %s", session_id, counted(len(session), "partition"))
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
