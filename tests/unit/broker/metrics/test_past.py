"""Rates of counts from their values a period or two ago."""

from broker.metrics.past import Past
from broker.runtime.manual_clock import ManualClock


def test_a_rate_is_taken_over_the_present_period_and_the_one_before() -> None:
    clock = ManualClock()
    counts = {"in": 0}
    past = Past(clock, clock.monotonic_ms(), lambda: dict(counts))

    clock.advance(10_000)
    counts["in"] = 50
    assert past.rates() == {"in": 5.0}  # since the start

    clock.advance(50_000)
    past.period_is_over()
    clock.advance(60_000)
    counts["in"] = 170
    assert past.rates() == {"in": 170 / 120}
    past.period_is_over()
    clock.advance(20_000)
    counts["in"] = 180
    assert past.rates() == {"in": (180 - 50) / 80}
    past.period_is_over()
    clock.advance(10_000)
    assert past.rates() == {"in": (180 - 170) / 30}


def test_what_is_new_has_grown_from_nothing() -> None:
    clock = ManualClock()
    counts: dict[str, int] = {}
    past = Past(clock, clock.monotonic_ms(), lambda: dict(counts))
    past.period_is_over()
    past.period_is_over()
    clock.advance(2_000)
    counts["new"] = 4
    assert past.rates() == {"new": 2.0}


def test_no_time_is_no_division_by_zero() -> None:
    clock = ManualClock()
    assert Past(clock, clock.monotonic_ms(), lambda: {"in": 1}).rates() == {"in": 1000.0}
