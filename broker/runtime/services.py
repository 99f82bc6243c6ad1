"""What all rooms work with: time and chance, files, threads, recurring jobs. Made first, stopped last."""

import asyncio
import os
import time

from broker.runtime.clock import Clock, Ids, LoopClock, SystemIds
from broker.runtime.flushers import Flushers
from broker.runtime.scheduler import Scheduler
from broker.runtime.time_slices import TimeSlices
from broker.runtime.timing_wheel import TimingWheel
from broker.runtime.worker_thread import WorkerThread
from storage.files import FileSystem


class Services:
    """A broker's own; nothing in it is global. No thread runs before it is given work."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, clock: Clock | None, files: FileSystem | None, ids: Ids | None
    ) -> None:
        """What is None is the system's."""
        self.loop = loop
        self.clock = clock or LoopClock(loop, time.time)
        self.files = files or FileSystem()
        self.ids = ids or SystemIds(os.urandom)
        self.wheel = TimingWheel(self.clock)
        self.scheduler = Scheduler(self.wheel)
        self.slices = TimeSlices(loop.call_soon)
        self.writer = WorkerThread("writer", loop, self.clock)
        """Writes what is too large for the loop."""
        self.housekeeper = WorkerThread("housekeeper", loop, self.clock)
        """Checkpoints, snapshots, removals, pages of metrics."""
        self.reader = WorkerThread("reader", loop, self.clock)
        """Reads the coordinators' partitions."""
        self.read_ahead = WorkerThread("read-ahead", loop, self.clock)
        """Waits for the disk where a fetch wants what the page cache has lost."""
        self.flushers = Flushers(loop, self.clock)
