import asyncio
import threading

import pytest

from broker.runtime.flushers import Flushers
from broker.runtime.manual_clock import ManualClock
from broker.runtime.worker_thread import REST_MS, Flusher, WorkerThread


class Disk:
    """A log whose sync takes as long as the test wants."""

    def __init__(self) -> None:
        self.written = 0
        self.on_disk = 0
        self.syncs: list[int] = []
        self.may_go = threading.Event()
        self.may_go.set()
        self.error: Exception | None = None

    def begin_flush(self) -> "Target | None":
        return Target(self, self.written) if self.written > self.on_disk else None

    def complete_flush(self, target: "Target") -> None:
        self.on_disk = target.offset


class Target:
    def __init__(self, disk: Disk, offset: int) -> None:
        self.disk = disk
        self.offset = offset

    def perform(self) -> None:
        assert self.disk.may_go.wait(10)
        if self.disk.error is not None:
            raise self.disk.error
        self.disk.syncs.append(self.offset)


def test_jobs_are_done_in_order_in_another_thread_and_reported_on_the_loop() -> None:
    async def scenario() -> None:
        worker = WorkerThread("writer", asyncio.get_running_loop(), ManualClock())
        loop_thread = threading.get_ident()
        done: list[tuple[int, bool]] = []
        for number in range(5):

            def job(number: int = number) -> tuple[int, bool]:
                return number, threading.get_ident() != loop_thread

            def report(result: tuple[int, bool]) -> None:
                assert threading.get_ident() == loop_thread
                done.append(result)

            worker.submit(job, report, lambda error: None)
        await worker.stop()
        assert done == [(number, True) for number in range(5)]

    asyncio.run(scenario())


def test_what_a_job_raises_comes_back_to_the_loop_and_the_next_job_runs() -> None:
    async def scenario() -> None:
        worker = WorkerThread("writer", asyncio.get_running_loop(), ManualClock())
        failures: list[Exception] = []
        done: list[int] = []
        worker.submit(lambda: 1 // 0, done.append, failures.append)
        worker.submit(lambda: 7, done.append, failures.append)
        await worker.stop()
        assert [type(failure) for failure in failures] == [ZeroDivisionError]
        assert done == [7]

    asyncio.run(scenario())


def test_a_worker_without_work_has_no_thread_to_stop() -> None:
    async def scenario() -> None:
        before = threading.active_count()
        worker = WorkerThread("writer", asyncio.get_running_loop(), ManualClock())
        assert threading.active_count() == before
        await worker.stop()
        await worker.stop()

    asyncio.run(scenario())


def test_where_no_thread_can_start_the_jobs_wait_and_none_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        worker = WorkerThread("writer", asyncio.get_running_loop(), clock)
        tries = 0

        def exhausted(self: threading.Thread) -> None:
            nonlocal tries
            tries += 1
            raise RuntimeError("can't start new thread")

        done: list[int] = []
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", exhausted)
            for number in range(3):
                worker.submit(lambda number=number: number, done.append, lambda error: None)
            assert tries == 1, "it must not ask for every job"
            clock.advance(REST_MS)
            assert tries == 2
            assert done == []
        clock.advance(REST_MS)
        await worker.stop()
        assert done == [0, 1, 2]

    asyncio.run(scenario())


def test_at_a_stop_without_a_thread_the_loop_does_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        worker = WorkerThread("writer", asyncio.get_running_loop(), clock)

        def exhausted(self: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(threading.Thread, "start", exhausted)
        done: list[int] = []
        worker.submit(lambda: 7, done.append, lambda error: None)
        await worker.stop()
        assert done == [7]
        assert clock.alarms == 0

    asyncio.run(scenario())


def test_where_no_thread_can_start_a_flusher_that_stops_syncs_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        clock = ManualClock()

        def exhausted(self: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(threading.Thread, "start", exhausted)
        loop = asyncio.get_running_loop()
        flushers = Flushers(lambda name: WorkerThread(name, loop, clock))
        disk = Disk()
        disk.written = 7
        flushed: list[int] = []
        flushers.of("data").flush(disk, lambda: flushed.append(disk.on_disk), lambda error: None)
        assert flushed == []

        flushers.do_without_threads()
        await flushers.finish()
        assert flushed == [7]

        disk.written = 8  # the broker writes that it stops
        flushers.of("data").flush(disk, lambda: flushed.append(disk.on_disk), lambda error: None)
        await flushers.finish()
        await flushers.stop()
        assert flushed == [7, 8]
        assert clock.alarms == 0

    asyncio.run(scenario())


def test_one_sync_serves_all_that_was_asked_before_it_began() -> None:
    async def scenario() -> None:
        worker = WorkerThread("flusher", asyncio.get_running_loop(), ManualClock())
        flusher = Flusher(worker)
        disk = Disk()
        disk.may_go.clear()
        flushed: list[tuple[int, int]] = []
        for number in range(1, 6):
            disk.written = number
            flusher.flush(disk, lambda number=number: flushed.append((number, disk.on_disk)), lambda error: None)
        disk.may_go.set()
        await flusher.stop()
        assert disk.syncs == [1, 5], "the first at once, one for the four that came while it ran"
        assert flushed == [(1, 1), (2, 5), (3, 5), (4, 5), (5, 5)]
        assert (flusher.stats.requests, flusher.stats.flushes) == (5, 2)
        await worker.stop()

    asyncio.run(scenario())


def test_what_is_on_the_disk_already_is_reported_at_once() -> None:
    async def scenario() -> None:
        worker = WorkerThread("flusher", asyncio.get_running_loop(), ManualClock())
        flusher = Flusher(worker)
        flushed: list[str] = []
        flusher.flush(Disk(), lambda: flushed.append("at once"), lambda error: None)
        assert flushed == ["at once"]
        assert flusher.stats.flushes == 0
        await worker.stop()

    asyncio.run(scenario())


def test_a_failed_sync_fails_all_who_waited_for_it_and_other_logs_go_on() -> None:
    async def scenario() -> None:
        worker = WorkerThread("flusher", asyncio.get_running_loop(), ManualClock())
        flusher = Flusher(worker)
        broken, sound = Disk(), Disk()
        broken.written = sound.written = 1
        broken.error = OSError(5, "Input/output error")
        outcomes: list[str] = []
        flusher.flush(broken, lambda: outcomes.append("?"), lambda error: outcomes.append(f"broken: {error}"))
        flusher.flush(sound, lambda: outcomes.append("sound"), lambda error: outcomes.append("?"))
        await flusher.stop()
        assert outcomes == ["broken: [Errno 5] Input/output error", "sound"]
        assert (broken.on_disk, sound.on_disk) == (0, 1)
        assert flusher.stats.failures == 1
        await worker.stop()

    asyncio.run(scenario())


def test_who_is_flushed_may_ask_again_at_once() -> None:
    async def scenario() -> None:
        worker = WorkerThread("flusher", asyncio.get_running_loop(), ManualClock())
        flusher = Flusher(worker)
        disk = Disk()
        disk.written = 1
        order: list[int] = []

        def again() -> None:
            order.append(disk.on_disk)
            if disk.written < 3:
                disk.written += 1
                flusher.flush(disk, again, lambda error: None)

        flusher.flush(disk, again, lambda error: None)
        await flusher.stop()
        assert order == [1, 2, 3]
        await worker.stop()

    asyncio.run(scenario())
