"""Which thread syncs which data directory: one flusher each."""

import asyncio

from broker.runtime.clock import Clock
from broker.runtime.worker_thread import Flusher, FlusherStats, WorkerThread


class Flushers:
    """A flusher, with a thread of its own, for each directory that anybody asks for. Threads start with their first
    sync."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._by_path: dict[str, tuple[Flusher, WorkerThread]] = {}

    def of(self, path: str) -> Flusher:
        """The one flusher of the directory at ``path``."""
        known = self._by_path.get(path)
        if known is None:
            thread = WorkerThread(f"flusher {path}", self._loop, self._clock)
            known = self._by_path[path] = Flusher(thread), thread
        return known[0]

    @property
    def stats(self) -> list[FlusherStats]:
        """What each of them has counted."""
        return [flusher.stats for flusher, _ in self._by_path.values()]

    def rotate(self) -> None:
        """A period is over: what is recent begins anew."""
        for stats in self.stats:
            stats.durations.rotate()

    async def finish(self) -> None:
        """Return when all that was asked for is on disk, or has failed."""
        for flusher, _ in self._by_path.values():
            await flusher.stop()

    async def stop(self) -> None:
        """Return when the threads have ended; nothing may be asked for any more."""
        for _, thread in self._by_path.values():
            await thread.stop()
