"""A fetch that waits in the purgatory until its partitions have enough bytes, or its time is up."""

from collections.abc import Callable

from broker.fetch.round import Fetch, FetchRequirements, FetchRound, PartitionRead, Told
from broker.replication.isolation import visible_end
from broker.runtime.purgatory import DelayedOperation
from storage.errors import StorageError


class DelayedFetch(DelayedOperation):
    """A fetch that found too little."""

    __slots__ = ("_fetch", "_requirements", "_then")

    def __init__(self, fetch: Fetch, requirements: FetchRequirements, then: Callable[[Told], None]) -> None:
        super().__init__()
        self._fetch = fetch
        self._requirements = requirements
        self._then = then

    def try_complete(self) -> bool:
        """Complete once the partitions together have enough, or one of them has news that can't wait."""
        if self._fetch.is_superseded:
            return self.complete()
        available = 0
        for one in self._fetch.partitions():
            partition = one.partition
            if partition is None:
                continue
            if not partition.is_readable_at(one.fetch_offset, one.current_leader_epoch):
                return self.complete()
            try:
                available += partition.log.readable_bytes(
                    one.fetch_offset, visible_end(partition, self._requirements.isolation), one.max_bytes
                )
            except StorageError:
                return self.complete()  # reading it again tells what is wrong with this partition alone
            if available >= self._requirements.min_bytes:
                return self.complete()
        return False

    def on_complete(self) -> None:
        """Read everything anew, within the same limits, and answer with what there is."""
        partitions = self._fetch.partitions()
        self._then(self._fetch.conclude(partitions, FetchRound(partitions, self._requirements).reads))
        self._let_go()

    def on_failure(self, error: Exception) -> None:
        """Answer with the error: whoever appended what it waited for must not suffer."""
        partitions = self._fetch.partitions()
        self._then(self._fetch.conclude(partitions, [PartitionRead(error) for _ in partitions]))
        self._let_go()

    def _let_go(self) -> None:
        """A client without a session names a thousand partitions in each request."""
        del self._fetch, self._then
