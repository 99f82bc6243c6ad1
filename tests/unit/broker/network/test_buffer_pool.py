from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker.network.buffer_pool import (
    FAVOUR_MS,
    KEPT_BYTES,
    REST_MS,
    SMALLEST_BUFFER,
    TRIM_INTERVAL_MS,
    Buffer,
    BufferPool,
    RequestMemory,
)
from broker.runtime.manual_clock import ManualClock


class Someone:
    """A borrower that counts how often it is told that there is memory."""

    def __init__(self) -> None:
        self.told = 0

    def memory_available(self) -> None:
        self.told += 1

    def make_way(self) -> None:
        """Never asked here."""


class Turn:
    """What `call_soon` of a loop does, by hand."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)

    def run(self) -> None:
        callbacks, self.callbacks = self.callbacks, []
        for callback in callbacks:
            callback()


def test_a_buffer_is_as_large_as_the_next_power_of_two() -> None:
    pool = BufferPool(RequestMemory(-1, Turn().call_soon, ManualClock()), ManualClock())
    sizes = [1, SMALLEST_BUFFER, SMALLEST_BUFFER + 1, 1_000_060]
    borrowed = [pool.borrow(size, Someone(), may_exceed=False) for size in sizes]
    assert [buffer and buffer.capacity for buffer in borrowed] == [65_536, 65_536, 131_072, 1_048_576]


def test_a_buffer_that_somebody_looks_into_is_left_to_him() -> None:
    memory = RequestMemory(-1, Turn().call_soon, ManualClock())
    pool = BufferPool(memory, ManualClock())
    buffer = pool.borrow(100, Someone(), may_exceed=False)
    assert buffer is not None
    frame = buffer.view[10:20]
    pool.give_back(buffer)
    assert memory.used_bytes == 0
    again = pool.borrow(100, Someone(), may_exceed=False)
    assert again is not None
    again.view[:] = b"\xff" * len(again.view)
    assert bytes(frame) == bytes(10)


def test_a_buffer_that_nobody_looks_into_is_lent_again() -> None:
    pool = BufferPool(RequestMemory(-1, Turn().call_soon, ManualClock()), ManualClock())
    buffer = pool.borrow(100, Someone(), may_exceed=False)
    assert buffer is not None
    buffer.view[10:20].release()
    pool.give_back(buffer)
    assert pool.borrow(100, Someone(), may_exceed=False) is buffer
    assert len(buffer.view) == len(buffer.data) == SMALLEST_BUFFER


def test_only_so_many_free_buffers_are_kept_and_those_nobody_wants_are_freed() -> None:
    pool = BufferPool(RequestMemory(-1, Turn().call_soon, ManualClock()), ManualClock())
    borrowed = [pool.borrow(4 << 20, Someone(), may_exceed=False) for _ in range(6)]
    for buffer in borrowed:
        assert buffer is not None
        pool.give_back(buffer)
    assert pool.free_bytes == KEPT_BYTES
    assert pool.trim(), "they have been in use since the last time"
    in_use = pool.borrow(4 << 20, Someone(), may_exceed=False)
    assert in_use is not None
    pool.give_back(in_use)
    assert pool.trim()
    assert pool.free_bytes == 4 << 20
    assert not pool.trim()
    assert pool.free_bytes == 0


def test_free_buffers_are_looked_at_every_few_seconds_while_there_are_any() -> None:
    clock = ManualClock()
    pool = BufferPool(RequestMemory(-1, Turn().call_soon, clock), clock)
    assert clock.alarms == 0
    buffer = pool.borrow(100, Someone(), may_exceed=False)
    assert buffer is not None
    pool.give_back(buffer)
    clock.advance(TRIM_INTERVAL_MS)
    assert (pool.free_bytes, clock.alarms) == (SMALLEST_BUFFER, 1), "it has been in use in this time"
    clock.advance(TRIM_INTERVAL_MS)
    assert (pool.free_bytes, clock.alarms) == (0, 0)


def test_memory_that_is_used_up_is_refused_and_offered_again_in_order() -> None:
    turn = Turn()
    memory = RequestMemory(100, turn.call_soon, ManualClock())
    one, two, three = Someone(), Someone(), Someone()
    assert memory.take(100, one, may_exceed=False)
    assert not memory.take(1, two, may_exceed=False)
    assert not memory.take(1, three, may_exceed=False)
    memory.give(50)
    assert (two.told, three.told) == (0, 0), "not inside somebody else's call"
    turn.run()
    assert (two.told, three.told) == (1, 1)
    assert memory.available_bytes == 50


def test_one_borrower_at_a_time_goes_beyond_the_limit() -> None:
    turn = Turn()
    memory = RequestMemory(100, turn.call_soon, ManualClock())
    one, two = Someone(), Someone()
    assert memory.take(150, one, may_exceed=True)
    assert memory.take(300, one, may_exceed=False), "it has begun, it may end"
    assert not memory.take(1, two, may_exceed=True)
    memory.give(450)
    memory.leave(one)
    turn.run()
    assert two.told == 1
    assert memory.take(150, two, may_exceed=True)


class Receiver(Someone):
    """A borrower in the middle of a request: it gives up when it is told to."""

    def __init__(self, memory: RequestMemory) -> None:
        super().__init__()
        self.memory = memory
        self.is_closed = False

    def make_way(self) -> None:
        self.is_closed = True
        self.memory.give(150)
        self.memory.leave(self)


def test_who_goes_beyond_the_limit_and_gets_no_further_makes_way_for_those_who_wait() -> None:
    turn, clock = Turn(), ManualClock()
    memory = RequestMemory(100, turn.call_soon, clock)
    stalled, other = Receiver(memory), Someone()
    assert memory.take(150, stalled, may_exceed=True)
    clock.advance(FAVOUR_MS)
    assert not stalled.is_closed, "nobody waits"
    assert not memory.take(1, other, may_exceed=True)
    clock.advance(FAVOUR_MS - 1)
    assert not stalled.is_closed
    clock.advance(1)
    assert stalled.is_closed
    turn.run()
    assert other.told == 1
    assert memory.take(150, other, may_exceed=True)
    assert clock.alarms == 1


def test_each_request_that_is_received_whole_gives_it_its_time_again() -> None:
    turn, clock = Turn(), ManualClock()
    memory = RequestMemory(100, turn.call_soon, clock)
    slow = Receiver(memory)
    assert memory.take(150, slow, may_exceed=True)
    assert not memory.take(1, Someone(), may_exceed=True)
    clock.advance(FAVOUR_MS - 1)
    memory.request_received()
    clock.advance(FAVOUR_MS - 1)
    assert not slow.is_closed
    clock.advance(1)
    assert slow.is_closed


def test_beyond_the_limit_there_is_one_request_at_a_time() -> None:
    memory = RequestMemory(100, Turn().call_soon, ManualClock())
    one = Someone()
    assert memory.take(150, one, may_exceed=True)
    assert memory.take(150, one, may_exceed=False), "the same request goes on"
    memory.request_received()
    assert not memory.take(150, one, may_exceed=False), "that one is under way still"
    memory.give(300)
    assert memory.take(150, one, may_exceed=True)


def test_memory_that_the_system_does_not_have_is_asked_for_again_after_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    turn, clock = Turn(), ManualClock()
    memory = RequestMemory(-1, turn.call_soon, clock)
    pool = BufferPool(memory, clock)
    one = Someone()

    def none_left(self: Buffer, capacity: int) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Buffer, "__init__", none_left)
        assert pool.borrow(100 << 20, one, may_exceed=False) is None
    assert memory.used_bytes == 0
    turn.run()
    clock.advance(REST_MS - 1)
    turn.run()
    assert one.told == 0
    clock.advance(1)
    turn.run()
    assert one.told == 1
    assert pool.borrow(1 << 20, one, may_exceed=False) is not None


def test_who_leaves_is_not_told_of_memory() -> None:
    turn = Turn()
    memory = RequestMemory(100, turn.call_soon, ManualClock())
    one, two = Someone(), Someone()
    memory.take(100, one, may_exceed=False)
    memory.take(1, two, may_exceed=False)
    memory.leave(two)
    memory.give(100)
    turn.run()
    assert two.told == 0


class Lending(RuleBasedStateMachine):
    """Whatever is borrowed, looked into and given back: no two have one memory."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = RequestMemory(1 << 20, Turn().call_soon, ManualClock())
        self.pool = BufferPool(self.memory, ManualClock())
        self.lent: list[Buffer] = []
        self.views: list[memoryview] = []

    @rule(needed=st.integers(1, 300_000))
    def borrow(self, needed: int) -> None:
        buffer = self.pool.borrow(needed, Someone(), may_exceed=False)
        if buffer is not None:
            assert buffer.capacity >= needed
            self.lent.append(buffer)

    @rule(which=st.integers(0, 100), look=st.booleans())
    def give_back(self, which: int, look: bool) -> None:
        if self.lent:
            buffer = self.lent.pop(which % len(self.lent))
            if look:
                self.views.append(buffer.view[:10])
            self.pool.give_back(buffer)

    @rule(which=st.integers(0, 100))
    def look_away(self, which: int) -> None:
        if self.views:
            self.views.pop(which % len(self.views))

    @rule()
    def trim(self) -> None:
        self.pool.trim()

    @invariant()
    def nobody_shares(self) -> None:
        assert self.memory.used_bytes == sum(buffer.capacity for buffer in self.lent) <= 1 << 20
        memories = [id(buffer.data) for buffer in self.lent] + [id(view.obj) for view in self.views]
        lent = memories[: len(self.lent)]
        assert len(set(lent)) == len(lent)
        assert not set(lent) & set(memories[len(self.lent) :])


Lending.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestLending = Lending.TestCase
