"""DelayedProduce and DelayedDeleteRecords: requests that wait in the purgatory for replicas or flushes."""

import logging
from collections.abc import Callable, Collection
from typing import NamedTuple

from broker.replication.append import Publication
from broker.replication.partition import Partition
from broker.runtime.purgatory import DelayedOperation

log = logging.getLogger(__name__)


class DelayedProduce(DelayedOperation):
    """A produce request whose batches are written but not acknowledged yet.

    It waits for the high watermark (acks=all) and for the flushes that its topics' ``flush.messages`` demand. A
    partition that is gone, or led by another node, is not waited for.
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
        """Complete once every partition has acknowledged its batch, or is lost."""
        by_all = self._by_all
        self._pending = [one for one in self._pending if not one.is_acknowledged(by_all=by_all)]
        for one in self._pending:
            if not one.is_lost:
                return False
        return self.complete()

    def on_complete(self) -> None:
        """Answer the request; partitions still pending are late, or lost."""
        self._then(self._pending)

    def on_failure(self, error: Exception) -> None:
        """Answer with all pending partitions as late: whether they are acknowledged is not known."""
        log.error("a waiting produce failed: %s", error, exc_info=error)
        self._then(self._pending)


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
        self._pending = deletions
        self._then = then

    def try_complete(self) -> bool:
        """Complete once all replicas of all partitions have deleted the records."""
        self._pending = [one for one in self._pending if not one.is_everywhere]
        return not self._pending and self.complete()

    def on_complete(self) -> None:
        """Answer the request; partitions still pending are late."""
        self._then(self._pending)
