"""A fetch that waits in the purgatory until its partitions have enough bytes, or its time is up."""

from collections.abc import Callable

from broker.fetch.read_rules import FetchRequirements
from broker.fetch.round import Fetch, FetchResult, FetchRound, PartitionRead, concluded
from broker.runtime.purgatory import DelayedOperation
from storage.errors import StorageError


class DelayedFetch(DelayedOperation):
    """A fetch that found too little."""

    __slots__ = ("_fetch", "_requirements", "_then")

    def __init__(self, fetch: Fetch, requirements: FetchRequirements, then: Callable[[FetchResult], None]) -> None:
        super().__init__()
        self._fetch = fetch
        self._requirements = requirements
        self._then = then

    def try_complete(self) -> bool:
        """Complete once the partitions together have enough, or one of them has an error that must be answered."""
        if self._fetch.is_superseded:
            return self.complete()
        available = 0
        only_leader = self._requirements.only_leader
        for one in self._fetch.partitions():
            partition = one.partition
            if partition is None:
                continue
            if not partition.is_readable_at(one.fetch_offset, one.current_leader_epoch, only_leader):
                return self.complete()
            follower = self._requirements.follower
            if follower is not None and follower.is_withheld(partition):
                continue
            try:
                end = partition.visible_end(self._requirements.isolation)
                available += partition.log.readable_bytes(one.fetch_offset, end, one.max_bytes)
            except StorageError:
                return self.complete()  # reading this partition again finds the error, which is then answered
            if self._requirements.is_enough(available):
                return self.complete()
        return False

    def on_complete(self) -> None:
        """Read all partitions again, within the same limits, and answer with what there is."""
        partitions = self._fetch.partitions()
        reads = FetchRound(partitions, self._requirements).reads
        self._then(concluded(self._fetch, self._requirements, partitions, reads))
        self._let_go()

    def on_expiration(self) -> None:
        """Count a follower's fetch; the purgatory counts all."""
        if self._requirements.follower is not None:
            self._requirements.follower.has_waited_in_vain()

    def on_failure(self, error: Exception) -> None:
        """Answer with the error: raised again, it would reach the append that the fetch has waited for."""
        partitions = self._fetch.partitions()
        self._then(self._fetch.conclude(partitions, [PartitionRead(error) for _ in partitions]))
        self._let_go()

    def _let_go(self) -> None:
        """Free what is large: a client without a session may name a thousand partitions in each request."""
        del self._fetch, self._then
