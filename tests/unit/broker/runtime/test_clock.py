"""The clock of the event loop: it stands while the loop does, so that nobody is silent meanwhile."""

from collections.abc import Callable

import pytest

from broker.runtime.clock import HEARING_S, LONGEST_TURN_S, LoopClock
from broker.runtime.manual_clock import ManualAlarm, ManualClock


class Loop:
    """An event loop whose time is moved by hand."""

    def __init__(self) -> None:
        self._clock = ManualClock()

    def time(self) -> float:
        return self._clock.monotonic_ms() / 1000

    def call_at(self, when: float, callback: Callable[[], None]) -> ManualAlarm:
        return self._clock.call_at(round(when * 1000), callback)

    def turns_for(self, seconds: float) -> None:
        self._clock.advance(round(seconds * 1000))

    def stands_for(self, seconds: float) -> None:
        """Nothing is called for so long; then everything that has become due is, at one time."""
        self._clock.move_to(self._clock.monotonic_ms() + round(seconds * 1000))
        self._clock.advance(0)

    @property
    def alarms(self) -> int:
        return self._clock.alarms


class Heard:
    """What rings, and when by the clock."""

    def __init__(self, loop: Loop) -> None:
        self.clock = LoopClock(loop, lambda: 0.0)
        self.began_ms = self.clock.monotonic_ms()
        self.at_ms: list[int] = []

    @property
    def passed_ms(self) -> int:
        return self.clock.monotonic_ms() - self.began_ms

    def ring_after(self, delay_ms: int) -> None:
        self.clock.call_at(self.clock.monotonic_ms() + delay_ms, lambda: self.at_ms.append(self.passed_ms))


def test_an_alarm_rings_at_its_time_while_the_loop_turns() -> None:
    loop = Loop()
    heard = Heard(loop)
    heard.ring_after(9_000)
    loop.turns_for(8.9)
    assert heard.at_ms == []
    loop.turns_for(0.2)
    assert heard.at_ms == [pytest.approx(9_000, abs=2)]


@pytest.mark.parametrize("stood_s", [2, 60, 86_400], ids=["busy", "stopped", "suspended"])
def test_time_in_which_the_loop_stood_still_has_not_passed(stood_s: int) -> None:
    loop = Loop()
    heard = Heard(loop)
    heard.ring_after(9_000)
    loop.turns_for(2)
    loop.stands_for(stood_s)
    assert heard.at_ms == []
    assert heard.passed_ms == pytest.approx(2_000, abs=2)
    loop.turns_for(6.9 + HEARING_S)
    assert heard.at_ms == []
    loop.turns_for(0.2)
    assert heard.at_ms == [pytest.approx(9_000, abs=2)]


def test_what_came_while_the_loop_stood_still_is_handled_before_any_alarm_rings() -> None:
    loop = Loop()
    heard = Heard(loop)
    heard.ring_after(2_001)
    loop.turns_for(2)
    loop.stands_for(60)
    loop.turns_for(HEARING_S * 0.9)
    assert heard.at_ms == []
    loop.turns_for(HEARING_S)
    assert len(heard.at_ms) == 1


def test_the_clock_never_goes_back() -> None:
    loop = Loop()
    clock = Heard(loop).clock
    clock.call_at(clock.monotonic_ms() + 3_600_000, lambda: None)
    read = [clock.monotonic_ms()]
    for seconds in (0.3, 5, 0.05, 0.05, 2, 1.1, 0.9, 40):
        loop.stands_for(seconds)
        read.append(clock.monotonic_ms())
        loop.turns_for(0.2)
        read.append(clock.monotonic_ms())
    assert read == sorted(read)


def test_a_turn_that_is_not_long_counts_in_full() -> None:
    loop = Loop()
    heard = Heard(loop)
    heard.ring_after(60_000)
    for _ in range(10):
        loop.stands_for(LONGEST_TURN_S * 0.9)
    assert heard.passed_ms == pytest.approx(9_000, abs=2)


def test_alarms_ring_though_every_turn_of_the_loop_is_long() -> None:
    loop = Loop()
    heard = Heard(loop)
    heard.ring_after(9_000)
    for _ in range(12):
        loop.stands_for(1.5)
    assert len(heard.at_ms) == 1


def test_a_clock_that_nobody_waits_for_goes_on_while_nobody_reads_it_and_leaves_the_loop_alone() -> None:
    loop = Loop()
    heard = Heard(loop)
    alarm = heard.clock.call_at(heard.clock.monotonic_ms() + 9_000, lambda: None)
    heard.ring_after(100)
    loop.turns_for(1)
    alarm.cancel()
    alarm.cancel()
    loop.turns_for(1)
    assert loop.alarms == 0
    loop.stands_for(60)
    assert heard.passed_ms == pytest.approx(62_000, abs=2)
    heard.ring_after(1_000)
    loop.turns_for(1.1)
    assert len(heard.at_ms) == 2
