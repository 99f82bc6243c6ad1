"""Services: clock, ids, file system, threads and scheduler of a broker. Made first, stopped last."""

import asyncio
import os
import time

from broker.runtime.clock import Clock, Ids, LoopClock, SystemIds
from broker.runtime.flushers import Flushers
from broker.runtime.scheduler import Scheduler
from broker.runtime.time_slices import TimeSlices
from broker.runtime.timing_wheel import TimingWheel
from broker.runtime.worker_thread import MakeThread, MakeWorker, WorkerThread
from storage.files import FileSystem


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
    ) -> None:
        """An argument that is None stands for the system's own; ``worker`` makes all worker threads."""
        self.loop = loop
        self.clock = clock or LoopClock(loop, time.time)
        self.files = files or FileSystem()
        self.ids = ids or SystemIds(os.urandom)
        self.wheel = TimingWheel(self.clock)
        self.scheduler = Scheduler(self.wheel)
        self.slices = TimeSlices(loop.call_soon)
        self.make_worker: MakeWorker = lambda name: worker(name, loop, self.clock)
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
