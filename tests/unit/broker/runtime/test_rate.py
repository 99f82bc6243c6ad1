import pytest

from broker.runtime.rate import Rate

KAFKAS = [
    # Milliseconds since the event before; then what Kafka 4.3.1's `Rate` (11 samples of one second) says with it, and
    # `QuotaUtils.throttleTime` for a limit of 0.3 a second.
    (0, 0.1, 0),
    (0, 0.2, 0),
    (0, 0.3, 0),
    (5, 0.39980009995002497, 3328),
    (5, 0.4995004995004995, 6657),
    (700, 0.5602240896358543, 9290),
    (400, 0.6923837784371909, 13223),
    (999, 0.7913740231476902, 16558),
    (1000, 0.8902957760411514, 19891),
    (1001, 0.9891196834817013, 23223),
    (3000, 1.0880316518298714, 26557),
    (2500, 1.1310084825636193, 29390),
    (10, 1.224105461393597, 32713),
    (10900, 0.27497708524289644, 0),
    (1, 0.36660251122720194, 2422),
    (11000, 0.1, 0),
    (11999, 0.1, 0),
    (20, 0.1996007984031936, 0),
    (12500, 0.1, 0),
]


def test_rates_and_the_time_to_wait_are_kafkas() -> None:
    rate = Rate(windows=11, window_ms=1_000)
    now_ms = 0
    for gap_ms, per_second, throttle_ms in KAFKAS:
        now_ms += gap_ms
        rate.record(1, now_ms)
        assert rate.per_second(now_ms) == pytest.approx(per_second, rel=1e-12)
        assert round(rate.throttle_ms(0.3, now_ms)) == throttle_ms


def test_a_limit_of_none_at_all_never_ends() -> None:
    rate = Rate(windows=11, window_ms=1_000)
    assert rate.throttle_ms(0, 0) == 0
    rate.record(1, 0)
    assert rate.throttle_ms(0, 0) == float("inf")
