from hypothesis import given
from hypothesis import strategies as st

from broker.histogram import BUCKETS, Histogram, percentile_us, upper_bound_us


@given(duration_us=st.integers(0, (1 << 40) - 1))
def test_a_bucket_is_an_eighth_of_its_durations_wide_at_most(duration_us: int) -> None:
    histogram = Histogram()
    histogram.record(duration_us)
    bucket = histogram.counts.index(1)
    first_us = upper_bound_us(bucket - 1) if bucket else 0
    assert first_us <= duration_us < upper_bound_us(bucket)
    assert upper_bound_us(bucket) - first_us <= max(first_us / 8, 1)


def test_eight_neighbours_are_a_power_of_two() -> None:
    assert [upper_bound_us(bucket) for bucket in range(7, 64, 8)] == [8, 16, 32, 64, 128, 256, 512, 1024]


def test_what_lasts_too_long_for_all_buckets_is_in_the_last() -> None:
    histogram = Histogram()
    histogram.record(1 << 60, 3)
    assert histogram.counts[BUCKETS - 1] == 3


def test_a_percentile_is_the_end_of_the_bucket_that_it_falls_into() -> None:
    histogram = Histogram()
    assert percentile_us(histogram.counts, 0.99) == 0
    histogram.record(100, 98)
    histogram.record(5_000, 2)
    assert percentile_us(histogram.counts, 0.5) == 104
    assert percentile_us(histogram.counts, 0.98) == 104
    assert percentile_us(histogram.counts, 0.99) == 5_120
