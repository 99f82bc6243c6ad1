"""SimulatedWorker: a worker thread without a thread. A job happens as a whole, at a later time that the seed chooses.

What has not happened when its process dies never happens: a flush that was under way has synced nothing.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from broker.runtime.clock import Clock
from broker.runtime.worker_thread import Failed, MakeThread, WorkerThread
from tests.simulation.trace import Trace

Job = tuple[Callable[[], Any], Callable[[Any], None], Failed]

_USUAL_S: Final = (0.000_05, 0.003)
_SLOW_S: Final = (0.02, 0.4)


@dataclass(slots=True)
class Pace:
    """How fast a machine's disk is."""

    slow_share: float = 0.03
    """The share of jobs that are slow, as on a disk that is busy with something else."""


class SimulatedWorker(WorkerThread):
    """Runs jobs in order, one at a time."""

    def __init__(
        self, name: str, loop: asyncio.AbstractEventLoop, clock: Clock, random: Random, trace: Trace, pace: Pace
    ) -> None:
        super().__init__(name, loop, clock)
        self._pace = pace
        self._random = random
        self._trace = trace
        self._queue: deque[Job] = deque()
        self._stopping: asyncio.Future[None] | None = None

    def submit(self, job: Callable[[], Any], done: Callable[[Any], None], failed: Failed) -> None:
        assert self._stopping is None, f"the {self._name} thread has been stopped"
        self._queue.append((job, done, failed))
        if len(self._queue) == 1:
            self._next()

    def do_without_thread(self) -> None:
        """Every thread can start."""

    async def stop(self) -> None:
        if self._stopping is None:
            self._stopping = self._loop.create_future()
            if not self._queue:
                self._loop.call_soon(self._stopping.set_result, None)
        await asyncio.shield(self._stopping)

    def _next(self) -> None:
        shortest_s, longest_s = _SLOW_S if self._random.random() < self._pace.slow_share else _USUAL_S
        self._loop.call_later(self._random.uniform(shortest_s, longest_s), self._happen)

    def _happen(self) -> None:
        job, done, failed = self._queue[0]
        self._trace.add(self._name)
        # The loop hears of it at once: a thread's call to the loop takes no time that matters here.
        self._perform(job, done, failed)
        self._queue.popleft()
        if self._queue:
            self._next()
        elif self._stopping is not None:
            # Behind the callbacks of the last job.
            self._loop.call_soon(self._stopping.set_result, None)


def simulated_workers(random: Random, trace: Trace, pace: Pace) -> MakeThread:
    """What makes the worker threads of one broker."""

    def make(name: str, loop: asyncio.AbstractEventLoop, clock: Clock) -> WorkerThread:
        return SimulatedWorker(name, loop, clock, random, trace, pace)

    return make
