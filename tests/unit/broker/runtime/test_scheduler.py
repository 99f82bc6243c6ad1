"""What has to be done now and then."""

import pytest

from broker.runtime.manual_clock import ManualClock
from broker.runtime.scheduler import Scheduler
from broker.runtime.timing_wheel import TimingWheel


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def scheduler(clock: ManualClock) -> Scheduler:
    return Scheduler(TimingWheel(clock))


def test_a_job_runs_again_and_again(scheduler: Scheduler, clock: ManualClock) -> None:
    ran: list[int] = []
    scheduler.every(10, lambda: ran.append(clock.monotonic_ms()), first_after_ms=3)
    began = clock.monotonic_ms()

    for _ in range(25):
        clock.advance(1)

    assert [at - began for at in ran] == [3, 13, 23]


@pytest.mark.parametrize("interval_ms", [0, -1, -(1 << 63)])
def test_without_an_interval_a_job_runs_once_as_with_kafkas_scheduler(
    scheduler: Scheduler, clock: ManualClock, interval_ms: int
) -> None:
    ran: list[int] = []
    scheduler.every(interval_ms, lambda: ran.append(clock.monotonic_ms()))

    for _ in range(5):
        clock.advance(1)

    assert len(ran) == 1
