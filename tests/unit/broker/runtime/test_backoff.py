"""The pauses between attempts."""

from broker.runtime.backoff import Backoff


def pauses(backoff: Backoff, count: int) -> list[int]:
    return [backoff.next_ms() for _ in range(count)]


def test_pauses_double_up_to_the_longest_and_begin_again_after_a_success() -> None:
    backoff = Backoff(lambda: 0.5)
    assert pauses(backoff, 7) == [50, 100, 200, 400, 800, 1000, 1000]
    backoff.reset()
    assert pauses(backoff, 2) == [50, 100]


def test_chance_makes_them_a_fifth_shorter_or_longer_but_never_longer_than_the_longest() -> None:
    assert pauses(Backoff(lambda: 0.0), 6) == [40, 80, 160, 320, 640, 800]
    assert pauses(Backoff(lambda: 1.0), 6) == [60, 120, 240, 480, 960, 1000]


def test_other_pauses() -> None:
    assert pauses(Backoff(lambda: 0.5, first_ms=100, longest_ms=9_000, jitter=0.02), 8)[-2:] == [6400, 9000]
    assert pauses(Backoff(lambda: 0.9, first_ms=500, longest_ms=500, factor=1, jitter=0), 3) == [500, 500, 500]
    assert pauses(Backoff(lambda: 0.5, first_ms=500, longest_ms=100), 2) == [100, 100]


def test_a_thousand_failures_are_no_harder_than_ten() -> None:
    backoff = Backoff(lambda: 0.5)
    assert pauses(backoff, 1_000)[-1] == 1000
    backoff.reset()
    assert backoff.next_ms() == 50
