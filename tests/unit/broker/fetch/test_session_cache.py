"""Which sessions are kept: free slots, those long unused, those worth less; 120 s is how long Kafka protects one."""

from collections.abc import Iterable
from itertools import count

from broker.fetch.session_cache import MIN_EVICTION_MS, NO_SESSION, FetchSessionCache
from broker.runtime.manual_clock import ManualClock


class Session:
    """What the cache knows of a session."""

    def __init__(self, session_id: int, partitions: int, *, is_privileged: bool = False) -> None:
        self.session_id = session_id
        self.is_privileged = is_privileged
        self.partitions = partitions
        self.is_closed = False

    def __len__(self) -> int:
        return self.partitions

    def close(self) -> None:
        self.is_closed = True


class DealtIds:
    """Ids out of a row, by their last four bytes."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self._numbers = iter(numbers)

    def uuid(self) -> bytes:
        return bytes(12) + next(self._numbers).to_bytes(4, "big")


class Cache:
    """A cache of two slots and its clock."""

    def __init__(self, *ids: int, slots: int = 2) -> None:
        self.clock = ManualClock()
        self.cache: FetchSessionCache[Session] = FetchSessionCache(self.clock, DealtIds(ids or count(1)), slots=slots)

    def create(self, partitions: int, *, is_privileged: bool = False) -> Session | None:
        """A session of so many partitions, or None if nobody gives way."""
        session_id = self.cache.allocate_id(is_privileged=is_privileged, partitions=partitions)
        if session_id == NO_SESSION:
            return None
        session = Session(session_id, partitions, is_privileged=is_privileged)
        self.cache.add(session)
        return session

    def created(self, partitions: int, *, is_privileged: bool = False) -> Session:
        """A new session, which the cache takes."""
        session = self.create(partitions, is_privileged=is_privileged)
        assert session is not None
        return session

    def grow_old(self, *sessions: Session) -> None:
        """Let the time pass that protects young sessions, with each of them in use."""
        for _ in range(2):
            self.clock.advance(MIN_EVICTION_MS // 2 + 1)
            for session in sessions:
                self.cache.touch(session)


def test_ids_are_positive_and_nobody_elses() -> None:
    cache = Cache(0, 0x8000_0000, 7, 7, 0x8000_0007, 0xFFFF_FFFF)
    assert cache.created(1).session_id == 7
    assert cache.created(1).session_id == 0x7FFF_FFFF


def test_without_slots_there_are_no_sessions() -> None:
    assert Cache(slots=0).create(1000) is None


def test_young_sessions_in_use_stay_whoever_comes() -> None:
    cache = Cache()
    kept = cache.created(1), cache.created(1)
    cache.clock.advance(MIN_EVICTION_MS)
    for session in kept:
        cache.cache.touch(session)
    assert cache.create(1000) is None
    assert not any(session.is_closed for session in kept)


def test_a_session_unused_for_longer_than_120_s_gives_way_to_anybody() -> None:
    cache = Cache()
    unused, used = cache.created(1000), cache.created(1)
    cache.clock.advance(MIN_EVICTION_MS)
    cache.cache.touch(used)
    assert cache.create(1) is None, "120 s are not more than 120 s"
    cache.clock.advance(1)
    cache.created(1)
    assert (unused.is_closed, used.is_closed) == (True, False)
    assert cache.cache.stats.evictions == 1


def test_an_old_session_gives_way_to_one_with_more_partitions_the_smallest_first() -> None:
    cache = Cache()
    large, small = cache.created(20), cache.created(10)
    cache.grow_old(large, small)
    assert cache.create(10) is None, "as many are not more"
    cache.created(11)
    assert (small.is_closed, large.is_closed) == (True, False)


def test_how_many_partitions_it_had_when_it_was_used_last_counts() -> None:
    cache = Cache()
    growing, small = cache.created(1), cache.created(10)
    growing.partitions = 30
    cache.grow_old(growing, small)
    cache.created(15)
    assert (small.is_closed, growing.is_closed) == (True, False)


def test_a_follower_takes_the_slot_of_a_young_consumer_however_large_that_is() -> None:
    cache = Cache()
    consumer, follower = cache.created(1000), cache.created(1, is_privileged=True)
    cache.created(1, is_privileged=True)
    assert (consumer.is_closed, follower.is_closed) == (True, False)
    assert cache.create(1000, is_privileged=True) is None, "young followers stay"


def test_an_old_follower_gives_way_to_a_larger_follower_but_to_no_consumer() -> None:
    cache = Cache()
    followers = cache.created(1, is_privileged=True), cache.created(2, is_privileged=True)
    cache.grow_old(*followers)
    assert cache.create(1000) is None
    cache.created(2, is_privileged=True)
    assert [follower.is_closed for follower in followers] == [True, False]


def test_it_counts_sessions_partitions_and_evictions() -> None:
    cache = Cache()
    stats = cache.cache.stats
    first, second = cache.created(3), cache.created(4)
    assert (stats.sessions, stats.partitions) == (2, 7)
    second.partitions = 9
    cache.cache.touch(second)
    assert stats.partitions == 12
    cache.cache.remove(first.session_id)
    assert (stats.sessions, stats.partitions, stats.evictions) == (1, 9, 0)
    assert not cache.cache.remove(first.session_id)
    cache.grow_old(second)
    cache.created(1)
    cache.created(100)
    assert (stats.sessions, stats.partitions, stats.evictions) == (2, 101, 1)
