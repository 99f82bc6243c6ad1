"""Runs fetches: reads what is there, waits for the disk in a thread, and for more bytes in the purgatory."""

from collections.abc import Callable, Sequence

from broker.fetch.delayed_fetch import DelayedFetch
from broker.fetch.read_rules import FetchRequirements, count_fetches
from broker.fetch.round import Fetch, FetchResult, FetchRound, concluded
from broker.runtime.purgatory import Purgatory
from broker.runtime.worker_thread import WorkerThread
from storage.read_ahead import ReadAhead


class FetchExecutor:
    """Reads for the fetches of consumers and followers."""

    def __init__(self, purgatory: Purgatory, read_ahead: WorkerThread) -> None:
        """``purgatory``: where fetches wait for records; ``read_ahead``: the thread that waits for the disk."""
        self._purgatory = purgatory
        self._read_ahead = read_ahead

    def fetch(self, fetch: Fetch, requirements: FetchRequirements, then: Callable[[FetchResult], None]) -> None:
        """Call ``then`` with what can be read: now if that is enough or cannot become more, else when there is enough
        or the time is up.

        This thread never waits for the disk: another one does (`storage.read_ahead`).
        """
        partitions = fetch.partitions()
        for one in partitions:
            if one.partition is not None:
                count_fetches(one.partition, 1)
        found = FetchRound(partitions, requirements, in_memory_only=True)
        if found.ahead:
            waiting = DelayedFetch(fetch, requirements, then)
            max_wait_ms = 0 if found.must_answer else requirements.max_wait_ms
            self._when_in_memory(found.ahead, lambda: self._purgatory.watch(waiting, fetch.wakers(), max_wait_ms))
            return
        if requirements.is_enough(found.size) or found.must_answer or not (wakers := fetch.wakers()):
            then(concluded(fetch, requirements, partitions, found.reads))
            return
        self._purgatory.watch(DelayedFetch(fetch, requirements, then), wakers, requirements.max_wait_ms)

    def _when_in_memory(self, ahead: Sequence[ReadAhead], then: Callable[[], object]) -> None:
        """Call ``then`` when ``ahead`` has been read into memory. Also if that fails: the next read finds the error."""

        def done(_: None) -> None:
            for one in ahead:
                one.done()
            then()

        def failed(_: Exception) -> None:
            then()

        self._read_ahead.submit(lambda: ReadAhead.perform_all(ahead), done, failed)
