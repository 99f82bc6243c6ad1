"""Requests that wait in the purgatory: a produce and a deletion for the replicas, a fetch for enough bytes."""

import logging
from collections.abc import Callable, Collection
from typing import NamedTuple

from broker.purgatory import DelayedOperation
from broker.replication.append import Publication
from broker.replication.fetch import Fetch, FetchRequirements, FetchRound, PartitionRead, Told, visible_end
from broker.replication.partition import Partition
from storage.errors import StorageError

log = logging.getLogger(__name__)


class DelayedProduce(DelayedOperation):
    """A produce that is written but not acknowledged yet.

    It waits for the high watermark (acks=all) and for the flushes that its topics' ``flush.messages`` demand. For a
    partition that is gone nobody waits.
    """

    __slots__ = ("_by_all", "_pending", "_then")

    def __init__(
        self, publications: Collection[Publication], *, by_all: bool, then: Callable[[Collection[Publication]], None]
    ) -> None:
        super().__init__()
        self._pending = publications
        self._by_all = by_all
        self._then = then

    def try_complete(self) -> bool:
        """Complete once every partition has what was asked."""
        self._pending = [one for one in self._pending if not one.is_acknowledged(by_all=self._by_all)]
        return all(one.partition.is_gone for one in self._pending) and self.complete()

    def on_complete(self) -> None:
        """Answer; partitions still pending are late, or gone."""
        self._then(self._pending)

    def on_failure(self, error: Exception) -> None:
        """What nobody can say is acknowledged counts as late."""
        log.error("a waiting produce failed: %s", error, exc_info=error)
        self._then(self._pending)


class RecordDeletion(NamedTuple):
    """A partition whose records before an offset are deleted here, and perhaps not yet on all replicas."""

    partition: Partition
    to_offset: int

    @property
    def is_everywhere(self) -> bool:
        """Whether there is nothing left to wait for."""
        return self.partition.is_gone or self.partition.low_watermark >= self.to_offset


class DelayedDeleteRecords(DelayedOperation):
    """A deletion that waits until no replica has the records any more."""

    __slots__ = ("_pending", "_then")

    def __init__(
        self, deletions: Collection[RecordDeletion], then: Callable[[Collection[RecordDeletion]], None]
    ) -> None:
        super().__init__()
        self._pending = deletions
        self._then = then

    def try_complete(self) -> bool:
        """Complete once it has come to pass everywhere."""
        self._pending = [one for one in self._pending if not one.is_everywhere]
        return not self._pending and self.complete()

    def on_complete(self) -> None:
        """Answer; partitions still pending are late."""
        self._then(self._pending)


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
