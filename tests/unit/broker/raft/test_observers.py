"""How far observers have come, by their fetches."""

from broker.raft.observers import MOST_OBSERVERS, NEVER, SESSION_TIMEOUT_MS, ObserverPosition, Observers, ReplicaKey

DIRECTORY = bytes(range(16))
SEVEN = ReplicaKey(7, DIRECTORY)
NOW_MS = 1_800_000_000_000


def test_an_observer_that_has_all_committed_records_is_caught_up_now():
    observers = Observers()
    observers.fetched(SEVEN, 100, leaders_end_offset=100, now_ms=NOW_MS)

    assert observers.positions(NOW_MS + 5) == [ObserverPosition(SEVEN, 100, NOW_MS, NOW_MS)]


def test_an_observer_that_is_behind_was_caught_up_when_it_fetched_what_it_has():
    observers = Observers()
    observers.fetched(SEVEN, 0, leaders_end_offset=100, now_ms=NOW_MS)
    assert observers.positions(NOW_MS) == [ObserverPosition(SEVEN, 0, NOW_MS, NEVER)]

    # It has all that the leader had at its first fetch, and the leader has gone on.
    observers.fetched(SEVEN, 100, leaders_end_offset=150, now_ms=NOW_MS + 10)
    assert observers.positions(NOW_MS) == [ObserverPosition(SEVEN, 100, NOW_MS + 10, NOW_MS)]

    observers.fetched(SEVEN, 120, leaders_end_offset=200, now_ms=NOW_MS + 20)
    assert observers.positions(NOW_MS) == [ObserverPosition(SEVEN, 120, NOW_MS + 20, NOW_MS)]


def test_copies_of_one_node_in_two_directories_are_two():
    observers = Observers()
    other = ReplicaKey(7, bytes(16))
    for key in (SEVEN, other):
        observers.fetched(key, 1, leaders_end_offset=1, now_ms=NOW_MS)

    assert [position.key for position in observers.positions(NOW_MS)] == [other, SEVEN]


def test_an_observer_is_forgotten_after_five_minutes_of_silence():
    observers = Observers()
    observers.fetched(SEVEN, 1, leaders_end_offset=1, now_ms=NOW_MS)

    assert observers.positions(NOW_MS + SESSION_TIMEOUT_MS - 1)
    assert observers.positions(NOW_MS + SESSION_TIMEOUT_MS) == []


def test_of_too_many_observers_the_silent_are_forgotten():
    observers = Observers()
    for node_id in range(10 * MOST_OBSERVERS):
        observers.fetched(ReplicaKey(node_id, DIRECTORY), 1, leaders_end_offset=1, now_ms=NOW_MS)
        observers.fetched(SEVEN, 1, leaders_end_offset=1, now_ms=NOW_MS)

    known = [position.key.node_id for position in observers.positions(NOW_MS)]
    assert len(known) == MOST_OBSERVERS
    assert known[0] == 7
    assert known[-1] == 10 * MOST_OBSERVERS - 1
