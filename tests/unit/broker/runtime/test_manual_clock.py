"""The clock of tests: alarms ring in their order, and what is cancelled is not kept."""

import weakref

from broker.runtime.manual_clock import ManualClock


class Held:
    """What a callback holds."""

    def ring(self) -> None:
        raise AssertionError("a cancelled alarm rang")


def test_alarms_ring_in_their_order_and_cancelled_ones_do_not() -> None:
    clock, rung = ManualClock(), list[int]()
    first_ms = clock.monotonic_ms()
    alarms = [
        clock.call_at(first_ms + after_ms, lambda at=after_ms: rung.append(at)) for after_ms in range(1000, 0, -1)
    ]
    for alarm in alarms:
        if alarm.deadline_ms % 3:
            alarm.cancel()
            alarm.cancel()
    clock.advance(2000)
    assert rung == [after_ms for after_ms in range(1, 1001) if (first_ms + after_ms) % 3 == 0]
    assert clock.alarms == 0


def test_a_clock_that_is_never_moved_does_not_keep_what_is_cancelled() -> None:
    clock, kept = ManualClock(), list[weakref.ref[Held]]()
    stays = clock.call_at(clock.monotonic_ms() + 5, lambda: None)
    for _ in range(1000):
        held = Held()
        kept.append(weakref.ref(held))
        clock.call_at(clock.monotonic_ms() + 60_000, held.ring).cancel()
    del held
    assert [one() for one in kept] == [None] * 1000
    clock.advance(5)
    assert not stays.is_armed
