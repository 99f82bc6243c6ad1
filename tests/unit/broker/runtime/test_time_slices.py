"""TimeSlices: long work takes one slice in every turn of the loop."""

from collections.abc import Callable

import pytest

from broker.runtime.time_slices import SLICE_NS, Step, Steps, TimeSlices

STEP_NS = SLICE_NS // 10


class Loop:
    """Turns when the test says so; every step of a work takes a tenth of a slice."""

    def __init__(self) -> None:
        self.called: list[Callable[[], None]] = []
        self.slices = TimeSlices(self.called.append, lambda: self.now_ns)
        self.now_ns = 0
        self.done: list[str] = []

    def turn(self) -> None:
        called, self.called[:] = list(self.called), []
        for callback in called:
            callback()

    def work(self, name: str, steps: int, *, waits_after: int = -1) -> Steps:
        for number in range(steps):
            self.now_ns += STEP_NS
            self.done.append(name)
            yield Step.WAITS if number == waits_after else Step.MORE


@pytest.fixture
def loop() -> Loop:
    return Loop()


def test_a_work_begins_in_a_later_turn_and_ends_when_it_ends(loop: Loop) -> None:
    loop.slices.run(loop.work("a", 3))
    assert loop.done == []
    loop.turn()
    assert loop.done == ["a"] * 3
    assert loop.called == []


def test_a_long_work_takes_one_slice_of_each_turn(loop: Loop) -> None:
    loop.slices.run(loop.work("a", 25))
    for done in (10, 20, 25):
        loop.turn()
        assert len(loop.done) == done
    assert loop.called == []


def test_works_take_turns(loop: Loop) -> None:
    for name in "abc":
        loop.slices.run(loop.work(name, 20))
    for _ in range(3):
        loop.turn()
    assert loop.done == ["a"] * 10 + ["b"] * 10 + ["c"] * 10


def test_short_works_share_a_slice(loop: Loop) -> None:
    for name in "abcd":
        loop.slices.run(loop.work(name, 3))
    loop.turn()
    assert loop.done == [*"aaabbbcccd"]
    loop.turn()
    assert loop.done[10:] == ["d", "d"]


def test_a_work_that_waits_goes_on_when_it_is_told(loop: Loop) -> None:
    waiting = loop.slices.run(loop.work("a", 4, waits_after=1))
    loop.slices.run(loop.work("b", 2))
    loop.turn()
    assert loop.done == [*"aabb"]
    assert loop.called == []
    waiting.resume()
    waiting.resume()
    loop.turn()
    assert loop.done == [*"aabbaa"]


def test_a_work_that_is_called_off_takes_no_further_step(loop: Loop) -> None:
    work = loop.slices.run(loop.work("a", 25))
    loop.turn()
    work.cancel()
    work.resume()
    loop.turn()
    assert len(loop.done) == 10
    assert loop.called == []


def test_a_work_may_be_called_off_by_its_own_step(loop: Loop) -> None:
    def steps() -> Steps:
        work.cancel()
        loop.done.append("first")
        yield Step.MORE
        loop.done.append("second")

    work = loop.slices.run(steps())
    loop.turn()
    loop.turn()
    assert loop.done == ["first"]


def test_a_work_that_raises_ends_and_the_others_go_on(loop: Loop) -> None:
    def broken() -> Steps:
        yield Step.MORE
        raise ZeroDivisionError

    loop.slices.run(broken())
    loop.slices.run(loop.work("a", 3))
    with pytest.raises(ZeroDivisionError):
        loop.turn()
    loop.turn()
    assert loop.done == ["a"] * 3
