"""Requests that wait in the purgatory: a produce and a deletion for the replicas, a fetch for enough bytes."""

import logging
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from broker.purgatory import DelayedOperation
from broker.replication.append import Publication
from broker.replication.fetch import FetchRequirements, FetchRound, PartitionFetch, PartitionRead, visible_end
from broker.replication.partition import Partition

log = logging.getLogger(__name__)


class DelayedProduce(DelayedOperation):
    """A produce that is written but not acknowledged yet.

    It waits for the high watermark (acks=all) and for the flushes that its topics' ``flush.messages`` demand.
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
        return not self._pending and self.complete()

    def on_complete(self) -> None:
        """Answer; partitions still pending are late."""
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
        return self.partition.is_removed or self.partition.low_watermark >= self.to_offset


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

    __slots__ = ("_fetches", "_requirements", "_then")

    def __init__(
        self,
        fetches: Sequence[PartitionFetch],
        requirements: FetchRequirements,
        then: Callable[[Sequence[PartitionRead]], None],
    ) -> None:
        super().__init__()
        self._fetches = fetches
        self._requirements = requirements
        self._then = then

    def try_complete(self) -> bool:
        """Complete once the partitions together have enough, or one of them has news that can't wait."""
        available = 0
        for fetch in self._fetches:
            partition = fetch.partition
            if partition is None or not partition.is_readable_at(fetch.fetch_offset, fetch.current_leader_epoch):
                return self.complete()
            available += partition.log.readable_bytes(
                fetch.fetch_offset, visible_end(partition, self._requirements.isolation), fetch.max_bytes
            )
            if available >= self._requirements.min_bytes:
                return self.complete()
        return False

    def on_complete(self) -> None:
        """Read everything anew, within the same limits, and answer with what there is."""
        self._then(FetchRound(self._fetches, self._requirements).reads)

    def on_failure(self, error: Exception) -> None:
        """Answer with the error: whoever appended what it waited for must not suffer."""
        self._then([PartitionRead(error) for _ in self._fetches])
