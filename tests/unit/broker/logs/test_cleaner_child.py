"""The throttle of a cleaner's process."""

from broker.logs.cleaner_child import Throttle


class HeldTime:
    """A monotonic clock in seconds, which passes in sleep only."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def throttle(time: HeldTime, max_bytes_per_second: float) -> Throttle:
    return Throttle(max_bytes_per_second, now=lambda: time.now, sleep=time.sleep)


def test_bytes_take_the_time_that_the_rate_gives_them() -> None:
    time = HeldTime()
    limited = throttle(time, 1000)
    for _ in range(10):
        limited(250)
    assert round(time.now, 6) == 102.5


def test_short_pauses_are_gathered() -> None:
    time = HeldTime()
    limited = throttle(time, 1_000_000)
    for _ in range(100):
        limited(1000)
    assert len(time.slept) < 12
    assert round(time.now, 6) == 100.1


def test_time_in_which_nothing_was_moved_is_not_made_up_for() -> None:
    time = HeldTime()
    limited = throttle(time, 1000)
    limited(100)
    time.now += 60
    limited(1000)
    assert [round(seconds, 6) for seconds in time.slept] == [0.1, 1.0]


def test_without_a_limit_nothing_waits() -> None:
    time = HeldTime()
    for limit in (1.7976931348623157e308, 0.0):
        throttle(time, limit)(1 << 40)
    assert time.slept == []
