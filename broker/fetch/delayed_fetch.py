"""A fetch that waits in the purgatory until its partitions have enough bytes, or its time is up."""

from collections.abc import Callable, Hashable, Iterable

from broker.fetch.read_rules import FetchRequirements
from broker.fetch.round import Fetch, FetchResult, FetchRound, PartitionFetch, PartitionRead, concluded
from broker.runtime.purgatory import DelayedOperation
from storage.errors import StorageError


class DelayedFetch(DelayedOperation):
    """A fetch that found too little.

    It adds up what its partitions have, and looks at an event only at the partition that has changed: a broker that is
    fenced, or a change of settings, changes thousands of them one after the other.
    """

    __slots__ = ("_available", "_fetch", "_requirements", "_sizes", "_then")

    def __init__(self, fetch: Fetch, requirements: FetchRequirements, then: Callable[[FetchResult], None]) -> None:
        super().__init__()
        self._fetch = fetch
        self._requirements = requirements
        self._then = then
        self._sizes: dict[PartitionFetch, int] = {}
        """Bytes that the partitions had when they were looked at last; those that had none are left out."""
        self._available = 0
        """The sum of these."""

    def try_complete(self) -> bool:
        """Complete once the partitions together have enough, or one of them has an error that must be answered."""
        return self._try_complete(self._fetch.partitions())

    def try_complete_after(self, key: Hashable) -> bool:
        """The same after an event of ``key``."""
        return self._try_complete(self._fetch.changed_by(key))

    def _try_complete(self, changed: Iterable[PartitionFetch]) -> bool:
        if self._fetch.is_superseded:
            return self.complete()
        for one in changed:
            size = self._readable_bytes(one)
            if size is None:
                return self.complete()
            self._available += size - self._sizes.pop(one, 0)
            if size:
                self._sizes[one] = size
            if self._requirements.is_enough(self._available):
                return self.complete()
        return False

    def _readable_bytes(self, one: PartitionFetch) -> int | None:
        """What a partition has for the answer; None if the partition must be read again, and has an error then."""
        partition, requirements = one.partition, self._requirements
        if partition is None:
            return 0
        if not partition.is_readable_at(one.fetch_offset, one.current_leader_epoch, requirements.only_leader):
            return None
        if requirements.follower is not None and requirements.follower.is_withheld(partition):
            return 0
        try:
            end = partition.visible_end(requirements.isolation)
            return partition.log.readable_bytes(one.fetch_offset, end, one.max_bytes)
        except StorageError:
            return None

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
        del self._fetch, self._then, self._sizes
