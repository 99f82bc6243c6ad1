from hypothesis import given
from hypothesis import strategies as st

from broker.runtime.histogram import BUCKETS, Histogram, RecentHistogram, percentiles, upper_bound


@given(duration_us=st.integers(0, (1 << 40) - 1))
def test_a_bucket_is_an_eighth_of_its_durations_wide_at_most(duration_us: int) -> None:
    histogram = Histogram()
    histogram.record(duration_us)
    bucket = histogram.counts.index(1)
    first_us = upper_bound(bucket - 1) if bucket else 0
    assert first_us <= duration_us < upper_bound(bucket)
    assert upper_bound(bucket) - first_us <= max(first_us / 8, 1)


def test_eight_neighbours_are_a_power_of_two() -> None:
    assert [upper_bound(bucket) for bucket in range(7, 64, 8)] == [8, 16, 32, 64, 128, 256, 512, 1024]


def test_what_lasts_too_long_for_all_buckets_is_in_the_last() -> None:
    histogram = Histogram()
    histogram.record(1 << 60, 3)
    assert histogram.counts[BUCKETS - 1] == 3


def test_a_percentile_is_the_end_of_the_bucket_that_it_falls_into() -> None:
    histogram = Histogram()
    assert percentiles(histogram.counts, [0.99]) == [0]
    histogram.record(100, 98)
    histogram.record(5_000, 2)
    assert percentiles(histogram.counts, [0.5]) == [104]
    assert percentiles(histogram.counts, [0.98]) == [104]
    assert percentiles(histogram.counts, [0.99]) == [5_120]


@given(st.lists(st.integers(0, 1 << 45), min_size=1), st.floats(0.001, 1))
def test_a_percentile_has_its_share_below_it_and_not_a_bucket_less(durations: list[int], share: float) -> None:
    histogram = Histogram()
    for duration_us in durations:
        histogram.record(duration_us)
    (percentile,) = percentiles(histogram.counts, [share])
    bucket = [upper_bound(bucket) for bucket in range(BUCKETS)].index(percentile)
    assert sum(histogram.counts[: bucket + 1]) >= len(durations) * share
    assert sum(histogram.counts[:bucket]) < len(durations) * share


def test_what_is_recent_is_of_this_period_and_the_one_before() -> None:
    histogram = RecentHistogram()
    histogram.record(3)
    histogram.rotate()
    histogram.record(5, 2)
    assert [histogram.recent()[bucket] for bucket in (3, 5)] == [1, 2]
    histogram.rotate()
    assert [histogram.recent()[bucket] for bucket in (3, 5)] == [0, 2]
    histogram.rotate()
    assert not any(histogram.recent())
