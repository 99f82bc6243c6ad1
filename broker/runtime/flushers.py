"""Flushers: one flusher thread for each data directory."""

from broker.runtime.worker_thread import Flusher, FlusherStats, MakeWorker, WorkerThread


class Flushers:
    """Makes a flusher with its own thread for each directory on request. Threads start with their first sync."""

    def __init__(self, make_worker: MakeWorker) -> None:
        self._make_worker = make_worker
        self._by_path: dict[str, tuple[Flusher, WorkerThread]] = {}

    def of(self, path: str) -> Flusher:
        """The one flusher of the directory at ``path``."""
        known = self._by_path.get(path)
        if known is None:
            thread = self._make_worker(f"flusher {path}")
            known = self._by_path[path] = Flusher(thread), thread
        return known[0]

    @property
    def stats(self) -> list[FlusherStats]:
        """The counters of each flusher."""
        return [flusher.stats for flusher, _ in self._by_path.values()]

    def rotate(self) -> None:
        """A period is over: forget recent values of the period before it."""
        for stats in self.stats:
            stats.durations.rotate()

    def do_without_threads(self) -> None:
        """The broker stops: where the system has refused a thread, the loop syncs."""
        for _, thread in self._by_path.values():
            thread.do_without_thread()

    async def finish(self) -> None:
        """Return when all requested flushes are done, or have failed."""
        for flusher, _ in self._by_path.values():
            await flusher.stop()

    async def stop(self) -> None:
        """Return when the threads have ended. No flush may be requested from now on."""
        for _, thread in self._by_path.values():
            await thread.stop()
