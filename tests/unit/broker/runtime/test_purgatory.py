from collections.abc import Hashable

import pytest

from broker.runtime.manual_clock import ManualClock
from broker.runtime.purgatory import DelayedOperation, Purgatory
from broker.runtime.timing_wheel import TimingWheel


class Delayed(DelayedOperation):
    """Complete once ``is_ready`` is set."""

    def __init__(self, name: str = "", log: list[str] | None = None) -> None:
        super().__init__()
        self.name = name
        self.log = log if log is not None else []
        self.is_ready = False
        self.attempts = 0

    def try_complete(self) -> bool:
        self.attempts += 1
        return self.is_ready and self.complete()

    def on_complete(self) -> None:
        self.log.append(f"{self.name}complete")

    def on_expiration(self) -> None:
        self.log.append(f"{self.name}expired")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def purgatory(clock: ManualClock) -> Purgatory:
    return Purgatory(TimingWheel(clock), purge_interval=10)


def test_what_is_ready_does_not_wait(purgatory: Purgatory, clock: ManualClock) -> None:
    operation = Delayed()
    operation.is_ready = True
    assert purgatory.watch(operation, ["a"], 500)
    assert operation.log == ["complete"]
    assert (purgatory.stats.pending, purgatory.stats.watched) == (0, 0)
    assert clock.alarms == 0


def test_an_operation_under_many_keys_is_told_whose_event_it_is(purgatory: Purgatory) -> None:
    class OfMany(Delayed):
        def try_complete_after(self, key: Hashable) -> bool:
            self.log.append(f"after {key}")
            return key == "b" and self.complete()

    operation = OfMany()
    assert not purgatory.watch(operation, ["a", "b", "c"], 500)
    attempts = operation.attempts
    assert [purgatory.check(key) for key in "acb"] == [0, 0, 1]
    assert operation.log == ["after a", "after c", "after b", "complete"]
    assert operation.attempts == attempts


def test_an_event_completes_what_it_makes_ready_and_nothing_else(purgatory: Purgatory) -> None:
    ready, waiting = Delayed(), Delayed()
    assert not purgatory.watch(ready, ["a"], 500)
    assert not purgatory.watch(waiting, ["a"], 500)
    assert purgatory.stats.pending == 2
    ready.is_ready = True
    assert purgatory.check("another") == 0
    assert purgatory.check("a") == 1
    assert ready.log == ["complete"]
    assert waiting.log == []
    assert (purgatory.stats.pending, purgatory.stats.watched, purgatory.stats.completed) == (1, 1, 1)


def test_the_deadline_completes_what_no_event_has_completed(purgatory: Purgatory, clock: ManualClock) -> None:
    operation = Delayed()
    purgatory.watch(operation, ["a", "b"], 500)
    clock.advance(499)
    assert operation.log == []
    clock.advance(1)
    assert operation.log == ["complete", "expired"]
    assert purgatory.stats.expired == 1


def test_an_operation_completes_once_whatever_comes_together(purgatory: Purgatory, clock: ManualClock) -> None:
    operation = Delayed()
    purgatory.watch(operation, ["a", "b"], 500)
    operation.is_ready = True
    assert purgatory.check("a") == 1
    assert purgatory.check("a") == 0
    assert purgatory.check("b") == 0
    assert not operation.complete()
    clock.advance(1000)
    assert operation.log == ["complete"]
    assert clock.alarms == 0


def test_no_time_to_wait_is_expired_at_once(purgatory: Purgatory) -> None:
    operation = Delayed()
    assert purgatory.watch(operation, ["a"], 0)
    assert operation.log == ["complete", "expired"]


def test_an_event_that_the_first_attempt_causes_is_not_missed(purgatory: Purgatory) -> None:
    class Causing(Delayed):
        def try_complete(self) -> bool:
            if not self.attempts:
                purgatory.check("a")
                self.is_ready = True
                self.attempts += 1
                return False
            return super().try_complete()

    operation = Causing()
    assert purgatory.watch(operation, ["a"], 500)
    assert operation.log == ["complete"]


def test_completing_one_may_complete_others_of_the_same_key(purgatory: Purgatory) -> None:
    log: list[str] = []

    class Chained(Delayed):
        follower: Delayed | None = None

        def on_complete(self) -> None:
            super().on_complete()
            if self.follower is not None:
                self.follower.is_ready = True
                purgatory.check("a")

    last = Delayed("last ", log)
    first = Chained("first ", log)
    first.follower = last
    purgatory.watch(last, ["a"], 500)
    purgatory.watch(first, ["a"], 500)
    first.is_ready = True
    assert purgatory.check("a") == 1
    assert log == ["first complete", "last complete"]
    assert purgatory.stats.watched == 0


def test_completed_operations_under_quiet_keys_are_purged_now_and_then(purgatory: Purgatory) -> None:
    for _ in range(12):
        operation = Delayed()
        purgatory.watch(operation, ["busy", "quiet"], 500)
        operation.is_ready = True
        purgatory.check("busy")
    # The purge came with the twelfth watch, after eleven completions: that operation itself came to be garbage later.
    assert purgatory.stats.completed == 12
    assert purgatory.stats.watched == 1
    assert purgatory.stats.pending == 0


def test_what_goes_wrong_is_the_operations_own_affair(purgatory: Purgatory, clock: ManualClock) -> None:
    failures: list[Exception] = []

    class Broken(Delayed):
        def on_complete(self) -> None:
            raise ZeroDivisionError

        def on_failure(self, error: Exception) -> None:
            failures.append(error)

    broken, sound = Broken(), Delayed()
    purgatory.watch(broken, ["a"], 500)
    purgatory.watch(sound, ["a"], 500)
    broken.is_ready = sound.is_ready = True
    purgatory.check("a")
    assert sound.log == ["complete"]
    assert [type(failure) for failure in failures] == [ZeroDivisionError]
    assert purgatory.stats.pending == 0
    clock.advance(1000)
    assert len(failures) == 1


def test_at_a_stop_everything_is_completed(purgatory: Purgatory, clock: ManualClock) -> None:
    operations = [Delayed() for _ in range(3)]
    for number, operation in enumerate(operations):
        purgatory.watch(operation, ["a", number], 500)
    purgatory.close()
    assert all(operation.log == ["complete", "expired"] for operation in operations)
    assert (purgatory.stats.pending, purgatory.stats.watched) == (0, 0)


def test_nothing_waits_in_a_purgatory_that_is_closed(purgatory: Purgatory, clock: ManualClock) -> None:
    purgatory.close()
    watched, waiting = Delayed(), Delayed()
    assert purgatory.watch(watched, ["a"], 500)
    purgatory.wait(waiting, ["a"], 500)
    assert watched.log == waiting.log == ["complete", "expired"]
    assert (purgatory.stats.pending, purgatory.stats.watched, clock.alarms) == (0, 0, 0)
