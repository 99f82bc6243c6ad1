"""DelayedProduce and DelayedDeleteRecords: requests that wait in the purgatory for replicas or flushes."""

import logging
from collections.abc import Callable, Collection, Hashable, Iterable
from itertools import chain
from typing import NamedTuple, Protocol, TypeVar

from broker.replication.append import Publication
from broker.replication.partition import Partition
from broker.runtime.purgatory import DelayedOperation

log = logging.getLogger(__name__)


class _OfPartition(Protocol):
    @property
    def partition(self) -> Partition: ...


T = TypeVar("T", bound=_OfPartition)


def _by_partition(ones: Iterable[T]) -> dict[Hashable, list[T]]:
    """By the key whose events they wait for: an event of a partition is no reason to look at the others."""
    found: dict[Hashable, list[T]] = {}
    for one in ones:
        found.setdefault(one.partition, []).append(one)
    return found


class DelayedProduce(DelayedOperation):
    """A produce request whose batches are written but not acknowledged yet.

    It waits for the high watermark (acks=all) and for the flushes that its topics' ``flush.messages`` demand. A
    partition that is gone, or led by another node, is not waited for.
    """

    __slots__ = ("_by_all", "_lost", "_pending", "_then")

    def __init__(
        self, publications: Collection[Publication], *, by_all: bool, then: Callable[[Collection[Publication]], None]
    ) -> None:
        super().__init__()
        self._pending = _by_partition(publications)
        self._lost: list[Publication] = []
        self._by_all = by_all
        self._then = then

    def try_complete(self) -> bool:
        """Complete once every partition has acknowledged its batch, or is lost."""
        return self._try_complete(tuple(self._pending))

    def try_complete_after(self, key: Hashable) -> bool:
        """The same after an event of the partition ``key``."""
        return self._try_complete((key,))

    def _try_complete(self, partitions: Iterable[Hashable]) -> bool:
        by_all, pending = self._by_all, self._pending
        for partition in partitions:
            late = [one for one in pending.get(partition, ()) if not one.is_acknowledged(by_all=by_all)]
            self._lost += [one for one in late if one.is_lost]
            waiting = [one for one in late if not one.is_lost]
            if waiting:
                pending[partition] = waiting
            else:
                pending.pop(partition, None)
        return not pending and self.complete()

    def on_complete(self) -> None:
        """Answer the request; partitions still pending are late, or lost."""
        self._then([*self._lost, *chain.from_iterable(self._pending.values())])

    def on_failure(self, error: Exception) -> None:
        """Answer with all pending partitions as late: whether they are acknowledged is not known."""
        log.error("a waiting produce failed: %s", error, exc_info=error)
        self.on_complete()


class RecordDeletion(NamedTuple):
    """A partition whose records before an offset are deleted on this node, and perhaps not yet on all replicas."""

    partition: Partition
    to_offset: int

    @property
    def is_everywhere(self) -> bool:
        """Whether all replicas have deleted the records."""
        return not self.partition.is_leader or self.partition.low_watermark >= self.to_offset


class DelayedDeleteRecords(DelayedOperation):
    """A deletion that waits until no replica has the records any more."""

    __slots__ = ("_pending", "_then")

    def __init__(
        self, deletions: Collection[RecordDeletion], then: Callable[[Collection[RecordDeletion]], None]
    ) -> None:
        super().__init__()
        self._pending = _by_partition(deletions)
        self._then = then

    def try_complete(self) -> bool:
        """Complete once all replicas of all partitions have deleted the records."""
        return self._try_complete(tuple(self._pending))

    def try_complete_after(self, key: Hashable) -> bool:
        """The same after an event of the partition ``key``."""
        return self._try_complete((key,))

    def _try_complete(self, partitions: Iterable[Hashable]) -> bool:
        for partition in partitions:
            late = [one for one in self._pending.get(partition, ()) if not one.is_everywhere]
            if late:
                self._pending[partition] = late
            else:
                self._pending.pop(partition, None)
        return not self._pending and self.complete()

    def on_complete(self) -> None:
        """Answer the request; partitions still pending are late."""
        self._then(list(chain.from_iterable(self._pending.values())))
