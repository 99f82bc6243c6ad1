"""WorkerThread and Flusher: jobs that would hold the loop run in a thread; their results come back to the loop."""

import asyncio
import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from time import monotonic_ns
from typing import Any, Final, Protocol, TypeVar

from broker.runtime.clock import Alarm, Clock
from broker.runtime.histogram import RecentHistogram

log = logging.getLogger(__name__)

REST_MS: Final = 1_000
"""After how long the start of a thread is tried again, in milliseconds, if the system refused it."""

T = TypeVar("T")

MakeWorker = Callable[[str], "WorkerThread"]
"""Makes a worker thread of this name."""

Failed = Callable[[Exception], None]

MakeThread = Callable[[str, asyncio.AbstractEventLoop, Clock], "WorkerThread"]
"""Makes a worker thread of this name, on a loop: the class `WorkerThread`, or what stands in for it."""


class WorkerThread:
    """A thread that runs jobs in order. It starts with the first job. If the system refuses to start a thread, the jobs
    wait until it does.

    A job must not touch objects of the loop; ``done`` and ``failed`` run on the loop.
    """

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._name = name
        self._loop = loop
        self._clock = clock
        self._pending = 0
        """Jobs whose callback has not run yet."""
        self._jobs: SimpleQueue[tuple[Callable[[], Any], Callable[[Any], None], Failed] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._retry: Alarm | None = None
        """The alarm for the next attempt to start the thread, if an attempt has failed."""
        self._is_loops_work = False
        """Whether the loop runs the jobs, since no thread could start and the broker stops."""
        self._stopped: asyncio.Future[None] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether every job is done, and its callback has run."""
        return not self._pending

    def submit(self, job: Callable[[], T], done: Callable[[T], None], failed: Failed) -> None:
        """Run ``job`` after all earlier jobs; then ``done(result)`` or ``failed(error)`` on the loop."""
        assert self._stopped is None, f"the {self._name} thread has been stopped"
        self._pending += 1
        self._jobs.put((job, done, failed))
        if self._is_loops_work:
            self._work_on_loop()
        elif self._thread is None and self._retry is None:
            self._start()

    async def run(self, job: Callable[[], T]) -> T:
        """The result of ``job``, run after all earlier jobs; raises what it raises."""
        future: asyncio.Future[T] = self._loop.create_future()

        def done(result: T) -> None:
            if not future.cancelled():
                future.set_result(result)

        def failed(error: Exception) -> None:
            if not future.cancelled():
                future.set_exception(error)

        self.submit(job, done, failed)
        return await future

    def do_without_thread(self) -> None:
        """If the system has refused the thread, the loop runs the jobs, now and from now on: the broker stops."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
            self._is_loops_work = True
            self._work_on_loop()

    async def stop(self) -> None:
        """Return when all earlier jobs are done, their callbacks have run and the thread has ended."""
        if self._stopped is None:
            self.do_without_thread()
            self._stopped = self._loop.create_future()
            if self._is_loops_work:
                # Behind the callbacks of the last jobs.
                self._loop.call_soon_threadsafe(self._stopped.set_result, None)
            elif self._thread is None:
                self._stopped.set_result(None)
            else:
                self._jobs.put(None)
        await asyncio.shield(self._stopped)
        if self._thread is not None:
            # The thread's last call was to the loop: joining it takes microseconds.
            self._thread.join()

    def _start(self) -> None:
        # The thread must not keep the process alive: a broker that stops in order has stopped it.
        thread = threading.Thread(target=self._work, name=self._name, daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError) as error:
            log.error("The %s thread cannot start, its work waits for %d ms: %s", self._name, REST_MS, error)
            self._retry = self._clock.call_at(self._clock.monotonic_ms() + REST_MS, self._start)
        else:
            self._retry = None
            self._thread = thread

    def _work(self) -> None:
        while (order := self._jobs.get()) is not None:
            self._perform(*order)
            # An idle thread must not keep the last job's buffers and files.
            del order
        assert self._stopped is not None
        self._loop.call_soon_threadsafe(self._stopped.set_result, None)

    def _work_on_loop(self) -> None:
        while not self._jobs.empty() and (order := self._jobs.get()) is not None:
            self._perform(*order)

    def _perform(self, job: Callable[[], Any], done: Callable[[Any], None], failed: Failed) -> None:
        try:
            result = job()
        except Exception as error:  # noqa: BLE001 - the error belongs to the caller of `submit`
            self._loop.call_soon_threadsafe(self._finish, failed, error)
        else:
            self._loop.call_soon_threadsafe(self._finish, done, result)

    def _finish(self, callback: Callable[[Any], None], outcome: Any) -> None:
        self._pending -= 1
        callback(outcome)


class FlushTarget(Protocol):
    """The extent of a flush: pinned files and how far they are written."""

    def perform(self) -> None:
        """Sync the files. Runs in the thread; blocks."""


class Flushable(Protocol):
    """A log, as its flusher sees it; both functions run on the loop."""

    def begin_flush(self) -> Any:
        """Pin all records written by now as a `FlushTarget`; None if they are on the disk already."""

    def complete_flush(self, target: Any) -> None:
        """``target`` is on the disk."""


class FlusherStats:
    """The counters of a flusher."""

    __slots__ = ("busy_us", "durations", "failures", "flushes", "requests")

    def __init__(self) -> None:
        self.requests = 0
        self.flushes = 0
        self.failures = 0
        self.busy_us = 0
        """Time of all flushes in the thread, in microseconds."""
        self.durations = RecentHistogram()


class Flusher:
    """Syncs the logs of one log directory, one at a time. A sync serves all requests made before it began.

    Requests made during a sync of the same log wait together for the next sync (group commit).
    """

    def __init__(self, thread: WorkerThread) -> None:
        self._thread = thread
        self._waiting: dict[Flushable, list[tuple[Callable[[], None], Failed]]] = {}
        self._is_busy = False
        self._idle: asyncio.Event | None = None
        self.stats = FlusherStats()

    def flush(self, log: Flushable, flushed: Callable[[], None], failed: Failed) -> None:
        """Call ``flushed`` once all records that ``log`` has now are on the disk (at once, if so), or ``failed``."""
        self.stats.requests += 1
        self._waiting.setdefault(log, []).append((flushed, failed))
        if not self._is_busy:
            self._begin_next()

    async def stop(self) -> None:
        """Return when all requested flushes are done. The owner of the thread stops the thread."""
        while self._is_busy:
            self._idle = asyncio.Event()
            await self._idle.wait()

    def _begin_next(self) -> None:
        # The flusher is busy from here on: a flush that a callback requests is done by this loop.
        self._is_busy = True
        try:
            while self._waiting:
                log = next(iter(self._waiting))
                asked = self._waiting.pop(log)
                try:
                    target = log.begin_flush()
                except Exception as error:  # noqa: BLE001 - belongs to the callers of `flush`
                    self._report_failure(asked, error)
                    continue
                if target is not None:
                    self._perform(log, target, asked)
                    return
                for flushed, _ in asked:
                    flushed()
        except BaseException:
            self._is_busy = False
            raise
        self._is_busy = False
        if self._idle is not None:
            self._idle.set()

    def _perform(self, log: Flushable, target: FlushTarget, asked: list[tuple[Callable[[], None], Failed]]) -> None:
        def job() -> int:
            began_ns = monotonic_ns()
            target.perform()
            return (monotonic_ns() - began_ns) // 1000

        def done(took_us: int) -> None:
            self.stats.flushes += 1
            self.stats.busy_us += took_us
            self.stats.durations.record(took_us)
            try:
                log.complete_flush(target)
                for flushed, _ in asked:
                    flushed()
            finally:
                self._begin_next()

        def failed(error: Exception) -> None:
            try:
                self._report_failure(asked, error)
            finally:
                self._begin_next()

        self._thread.submit(job, done, failed)

    def _report_failure(self, asked: list[tuple[Callable[[], None], Failed]], error: Exception) -> None:
        self.stats.failures += 1
        for _, failed in asked:
            failed(error)
