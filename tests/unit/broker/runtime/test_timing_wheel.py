import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.runtime import timing_wheel
from broker.runtime.manual_clock import ManualClock
from broker.runtime.timing_wheel import TimingWheel


def nothing() -> None:
    pass


def test_a_timer_runs_at_its_deadline_and_not_before() -> None:
    clock = ManualClock()
    wheel = TimingWheel(clock)
    rung: list[str] = []
    timer = wheel.add_after(500, lambda: rung.append("ring"))
    clock.advance(499)
    assert (rung, timer.is_pending, len(wheel)) == ([], True, 1)
    clock.advance(1)
    assert (rung, timer.is_pending, len(wheel)) == (["ring"], False, 0)


def test_a_timer_that_is_called_off_does_not_run() -> None:
    clock = ManualClock()
    wheel = TimingWheel(clock)
    timer = wheel.add_after(10, lambda: pytest.fail("called off"))
    timer.cancel()
    timer.cancel()
    assert len(wheel) == 0
    clock.advance(1000)


def test_a_deadline_that_has_passed_is_due_in_the_next_turn() -> None:
    clock = ManualClock()
    wheel = TimingWheel(clock)
    rung: list[int] = []
    wheel.add(clock.monotonic_ms() - 5, lambda: rung.append(1))
    assert rung == []
    clock.advance(0)
    assert rung == [1]


def test_timers_of_one_deadline_run_in_the_order_in_which_they_were_set() -> None:
    clock = ManualClock()
    wheel = TimingWheel(clock)
    rung: list[int] = []
    deadline = clock.monotonic_ms() + 7000
    for number in range(5):
        wheel.add(deadline, lambda number=number: rung.append(number))
    clock.advance(7000)
    assert rung == [0, 1, 2, 3, 4]


def test_a_timer_may_call_off_another_that_is_due_with_it_and_set_new_ones() -> None:
    clock = ManualClock()
    wheel = TimingWheel(clock)
    rung: list[str] = []
    timers = []

    def first() -> None:
        rung.append("first")
        timers[0].cancel()
        wheel.add_after(0, lambda: rung.append("at once"))
        wheel.add_after(3, lambda: rung.append("later"))

    wheel.add_after(10, first)
    timers.append(wheel.add_after(10, lambda: rung.append("second")))
    clock.advance(12)
    assert rung == ["first", "at once"]
    clock.advance(1)
    assert rung == ["first", "at once", "later"]


def test_a_timer_that_raises_does_not_stop_the_others() -> None:
    clock = ManualClock()
    wheel = TimingWheel(clock)
    rung: list[str] = []

    def broken() -> None:
        raise ZeroDivisionError

    wheel.add_after(10, broken)
    wheel.add_after(10, lambda: rung.append("same time"))
    wheel.add_after(900, lambda: rung.append("later"))
    with pytest.raises(ZeroDivisionError):
        clock.advance(10)
    clock.advance(890)
    assert rung == ["same time", "later"]


def test_nothing_polls() -> None:
    clock = ManualClock()
    wheel = TimingWheel(clock)
    assert clock.alarms == 0
    calls: list[int] = []
    call_at = clock.call_at

    def counted(deadline_ms: int, callback: Callable[[], None]) -> Any:
        calls.append(deadline_ms)
        return call_at(deadline_ms, callback)

    clock.call_at = counted  # type: ignore[method-assign]
    wheel.add_after(3_600_000, nothing)
    assert clock.alarms == 1
    clock.advance(3_600_000)
    assert len(wheel) == 0
    assert clock.alarms == 0
    # Once set, and once for each finer level on the way.
    assert len(calls) <= 6


@settings(max_examples=200, deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["add", "add", "cancel", "advance"]),
            st.one_of(st.integers(0, 50), st.integers(0, 10_000), st.integers(0, 10_000_000)),
        ),
        max_size=60,
    )
)
def test_every_timer_runs_exactly_at_its_deadline_whatever_else_is_set(steps: list[tuple[str, int]]) -> None:
    clock = ManualClock(monotonic_ms=123_457)
    wheel = TimingWheel(clock)
    timers: list[Any] = []
    rung: dict[int, int] = {}
    due: dict[int, int] = {}
    for action, number in steps:
        if action == "add":
            key = len(timers)
            due[key] = clock.monotonic_ms() + number
            timers.append(wheel.add_after(number, lambda key=key: rung.setdefault(key, clock.monotonic_ms())))
        elif action == "cancel" and timers:
            key = number % len(timers)
            if timers[key].is_pending:
                timers[key].cancel()
                del due[key]
        elif action == "advance":
            clock.advance(number)
            now = clock.monotonic_ms()
            assert rung == {key: deadline for key, deadline in due.items() if deadline <= now}
            assert len(wheel) == sum(deadline > now for deadline in due.values())
    clock.advance(20_000_000)
    assert rung == due
    assert clock.alarms == 0


class Operations:
    """Counts the lines of the wheel's module that run."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> "Operations":
        self.count = 0
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if frame.f_code.co_filename != timing_wheel.__file__:
            return None
        self.count += event == "line"
        return self._trace


def test_setting_and_calling_off_cost_the_same_at_one_timer_and_at_a_million() -> None:
    clock = ManualClock()
    wheel = TimingWheel(clock)
    first = wheel.add_after(1, nothing)
    # The levels that the deadlines need are made once.
    wheel.add_after(600_000, nothing)
    costs = []
    for fill in (0, 1_000_000):
        for number in range(fill):
            wheel.add_after(30_000 + number % 500_000, nothing)
        with Operations() as setting:
            timer = wheel.add_after(45_000, nothing)
        with Operations() as calling_off:
            timer.cancel()
        costs.append((setting.count, calling_off.count))
    assert len(wheel) == 1_000_002
    assert first.is_pending
    assert costs[0] == costs[1]
    assert costs[0][0] < 40
