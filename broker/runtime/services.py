"""Services: clock, ids, file system, threads and scheduler of a broker. Made first, stopped last."""

import asyncio
import os
import time
from typing import Final
from weakref import WeakSet

from broker.runtime.clock import Clock, Ids, LoopClock, SystemIds
from broker.runtime.flushers import Flushers
from broker.runtime.scheduler import Scheduler
from broker.runtime.time_slices import TimeSlices
from broker.runtime.timing_wheel import TimingWheel
from broker.runtime.worker_thread import MakeThread, WorkerThread
from storage.files import FileSystem

TURNS: Final = 16
"""Turns of the loop after which nothing more follows from what has happened, unless a thread has a part in it: the
longest chain of tasks that wake each other has half of them."""


class Services:
    """The services of one broker; none is global. A thread starts with its first job."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        clock: Clock | None,
        files: FileSystem | None,
        ids: Ids | None,
        worker: MakeThread = WorkerThread,
        fetch_clock: Clock | None = None,
    ) -> None:
        """An argument that is None stands for the system's own; ``worker`` makes all worker threads. ``fetch_clock`` is
        the one by which fetches wait, if it is another than ``clock``."""
        self.loop = loop
        self.clock = clock or LoopClock(loop, time.time)
        self.files = files or FileSystem()
        self.ids = ids or SystemIds(os.urandom)
        self.wheel = TimingWheel(self.clock)
        self.fetch_wheel = self.wheel if fetch_clock is None else TimingWheel(fetch_clock)
        """The timers of fetches that wait for records."""
        self.scheduler = Scheduler(self.wheel)
        self.slices = TimeSlices(loop.call_soon)
        self._make_thread = worker
        self._workers: WeakSet[WorkerThread] = WeakSet()
        self.writer = self.make_worker("writer")
        """Writes batches that are too large for the loop."""
        self.housekeeper = self.make_worker("housekeeper")
        """Runs blocking work that no producer and no consumer waits for: checkpoints, snapshots, removals, pages of
        metrics, patterns of administrators."""
        self.reader = self.make_worker("reader")
        """Reads the coordinators' partitions."""
        self.read_ahead = self.make_worker("read-ahead")
        """Reads from disk for fetches whose bytes are not in the page cache."""
        self.flushers = Flushers(self.make_worker)

    def make_worker(self, name: str) -> WorkerThread:
        """A worker thread of this name, which belongs to the broker."""
        worker = self._make_thread(name, self.loop, self.clock)
        self._workers.add(worker)
        return worker

    async def settle(self) -> None:
        """Return once what has begun has come to its end: jobs of threads, works in time slices, and what follows from
        them on the loop. Waiting requests, and what waits for the clock, go on waiting."""
        while True:
            for _ in range(TURNS):
                await asyncio.sleep(0)
            busy = [worker for worker in self._workers if not worker.is_idle]
            if not busy and self.slices.is_idle:
                return
            for worker in busy:
                await worker.run(_nothing)


def _nothing() -> None:
    """A job behind all others."""
