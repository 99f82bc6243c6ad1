"""The simulated loop, its processes and worker threads: time jumps, and the dead do nothing."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from tests.simulation.clock import WALL_START_MS, SimulatedClock
from tests.simulation.loop import START_S, NothingLeft, SimulatedLoop
from tests.simulation.process import SimulatedProcess
from tests.simulation.trace import Trace
from tests.simulation.worker import Pace, SimulatedWorker


def test_time_jumps_to_the_next_timer() -> None:
    loop = SimulatedLoop()
    clock = SimulatedClock(loop)
    rung: list[int] = []

    async def scenario() -> None:
        clock.call_at(clock.monotonic_ms() + 3_600_000, lambda: rung.append(clock.monotonic_ms()))
        cancelled = clock.call_at(clock.monotonic_ms() + 1_000, lambda: rung.append(-1))
        cancelled.cancel()
        await asyncio.sleep(7_200)

    loop.run_until_complete(scenario())
    loop.close()
    assert rung == [(int(START_S) + 3_600) * 1000]
    assert clock.now_ms() == WALL_START_MS + 7_200_000


def test_timers_of_one_time_run_in_the_order_in_which_they_were_set() -> None:
    loop = SimulatedLoop()
    rung: list[int] = []

    async def scenario() -> None:
        for number in range(20):
            loop.call_at(START_S + 5, rung.append, number)
        await asyncio.sleep(10)

    loop.run_until_complete(scenario())
    loop.close()
    assert rung == list(range(20))


def test_a_wait_for_what_never_comes_is_an_error() -> None:
    loop = SimulatedLoop()

    async def scenario() -> None:
        await loop.create_future()

    with pytest.raises(NothingLeft):
        loop.run_until_complete(scenario())
    loop.close()


def test_nothing_of_a_dead_process_runs() -> None:
    loop = SimulatedLoop()
    done: list[str] = []
    process = SimulatedProcess("machine")

    async def live() -> None:
        loop.call_later(1, done.append, "timer before")
        loop.call_later(10, done.append, "timer after")
        try:
            await asyncio.gather(asyncio.sleep(2), asyncio.create_task(child()))
        finally:
            loop.call_soon(done.append, "cleaning up")

    async def child() -> None:
        await asyncio.sleep(3)
        done.append("child")
        await asyncio.sleep(3)
        done.append("child again")

    async def scenario() -> None:
        process.spawn(live())
        await asyncio.sleep(4)
        process.die()
        await asyncio.sleep(100)

    loop.run_until_complete(scenario())
    loop.close()
    assert done == ["timer before", "child"]
    assert loop.failures == []


def test_an_error_that_nobody_takes_is_its_process_s() -> None:
    loop = SimulatedLoop()
    heard: list[str] = []

    async def scenario() -> None:
        for name in ("one", "two"):
            process = SimulatedProcess(name)

            def listen(name: str = name) -> None:
                loop.set_exception_handler(lambda _, context: heard.append(f"{name}: {context['exception']}"))
                loop.call_soon(lambda: 1 // 0)

            process.call(listen)
        await asyncio.sleep(1)

    loop.run_until_complete(scenario())
    loop.close()
    assert heard == [f"{name}: integer division or modulo by zero" for name in ("one", "two")]


def test_a_job_happens_later_in_its_order_and_never_once_its_process_is_dead() -> None:
    loop = SimulatedLoop()
    done: list[object] = []

    async def scenario() -> None:
        process = SimulatedProcess("machine")

        def work() -> SimulatedWorker:
            worker = SimulatedWorker("worker", loop, SimulatedClock(loop), Random(1), Trace(loop), Pace())
            for number in range(3):
                worker.submit(lambda number=number: number, done.append, done.append)  # type: ignore[misc]
            worker.submit(lambda: 1 // 0, done.append, lambda error: done.append(str(error)))
            return worker

        worker = process.call(work)
        assert done == []
        await process.spawn(worker.stop())
        assert done == [0, 1, 2, "integer division or modulo by zero"]
        process.call(work)
        process.die()
        await asyncio.sleep(10)

    loop.run_until_complete(scenario())
    loop.close()
    assert len(done) == 4
