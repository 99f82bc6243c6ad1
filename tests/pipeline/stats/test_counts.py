"""Counts of records, their sizes, times and keys: those of parts add up to those of the whole."""

import numpy as np

from pipeline.stats import counts
from pipeline.stats.counts import Keys, Powers, Times


def test_numbers_are_counted_by_powers_of_two() -> None:
    powers = Powers()
    powers.add(np.array([0, 1, 2, 3, 4, 7, 8, 1023, 1024]))

    assert powers.ranges() == [
        (0, 0, 1), (1, 1, 1), (2, 3, 2), (4, 7, 2), (8, 15, 1), (16, 31, 0), (32, 63, 0), (64, 127, 0), (128, 255, 0),
        (256, 511, 0), (512, 1023, 1), (1024, 2047, 1),
    ]  # fmt: skip


def test_powers_of_parts_add_up() -> None:
    whole, first, second = Powers(), Powers(), Powers()
    numbers = np.arange(3000)
    whole.add(numbers)
    first.add(numbers[:700])
    second.add(numbers[700:])
    first.merge(second)

    assert first.ranges() == whole.ranges()


def test_many_minutes_become_hours_and_nothing_is_lost() -> None:
    times = Times()
    minutes = np.arange(3 * counts.MOST_TIMES)
    for first in range(0, len(minutes), 1000):
        times.add(minutes[first : first + 1000], np.full(1000, 5))

    assert times.width_minutes == 60
    assert times.buckets[60] == (60, 300)
    assert sum(records for records, _ in times.buckets.values()) == len(minutes)


def test_times_of_different_width_add_up_to_the_wider() -> None:
    fine, coarse = Times(), Times()
    fine.add(np.array([0, 61, 62]), np.array([1, 2, 3]))
    coarse.width_minutes = 60
    coarse.add(np.array([59, 119]), np.array([10, 20]))

    fine.merge(coarse)

    assert (fine.width_minutes, fine.buckets) == (60, {0: (2, 11), 60: (3, 25)})


def test_a_clock_gone_wild_makes_no_millions_of_minutes() -> None:
    times = Times()
    times.add(np.arange(0, counts.MOST_TIMES * 1440 * 400, 1440 * 400), np.ones(counts.MOST_TIMES))

    assert len(times.buckets) <= counts.MOST_TIMES


def test_keys_are_counted_exactly_while_they_are_few() -> None:
    keys = Keys()
    keys.add([b"a", b"b", b""], [3, 1, 2])
    other = Keys()
    other.add([b"b", b"c"], [5, 1])
    keys.merge(other)

    assert keys.top(3) == [(b"b", 6), (b"a", 3), (b"", 2)]
    assert (keys.distinct, keys.most_missed) == (4, 0)


def test_where_keys_are_too_many_the_frequent_ones_are_still_known() -> None:
    keys = Keys()
    for part in range(5):
        rare = [b"%d of part %d" % (number, part) for number in range(counts.MOST_KEYS)]
        keys.add([b"hot", *rare], [1000, *([1] * len(rare))])

    ((name, count),) = keys.top(1)
    assert name == b"hot"
    assert count <= 5000 <= count + keys.most_missed
    assert keys.distinct is None
    assert len(keys.counts) <= 2 * counts.MOST_KEYS


def test_long_keys_that_begin_alike_stay_apart() -> None:
    keys = Keys()
    keys.add([b"x" * 1000 + b"1", b"x" * 1000 + b"2"], [1, 1])

    assert keys.distinct == 2
    assert all(len(key) < 100 for key, _ in keys.top(2))
