"""LocalMarkers: writes the markers of ended transactions into the partitions of this node, until they are there."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.coordinators.marker_appender import MarkerAppender
from broker.coordinators.partitioning import partition_of
from broker.metadata.cache import MetadataCache
from broker.metadata.topic_rules import TRANSACTION_STATE
from broker.replication.replica_manager import ReplicaManager
from broker.replication.transaction_marker import TransactionMarker
from protocol.errors import ErrorCode
from storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from broker.coordinators.transaction.transaction import Transaction

log = logging.getLogger(__name__)

RETRY_MS: Final = 500
"""How long a marker that could not be written waits for its next attempt: its directory may be full, or its
coordinator may be loading."""

_OVERTAKEN: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""A later marker has ended the transaction in this partition, as an administrator may have asked for."""


class _Sending:
    """The markers of one transaction that are not acknowledged yet."""

    __slots__ = ("done", "is_cancelled", "is_logged", "marker", "partitions", "transactional_id", "waiting")

    def __init__(self, transaction: Transaction, marker: TransactionMarker, done: Callable[[], None]) -> None:
        self.transactional_id = transaction.transactional_id
        self.marker = marker
        self.partitions = set(transaction.partitions)
        self.done = done
        self.is_cancelled = False
        self.is_logged = False
        """A line of the log has said that a marker could not be written."""
        self.waiting = 0
        """How many markers wait for their next attempt."""


class LocalMarkers:
    """The `MarkerSender` of a node that leads every partition itself."""

    def __init__(
        self,
        appender: MarkerAppender,
        *,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        later: Callable[[int, Callable[[], None]], object],
    ) -> None:
        """``later`` calls after so many milliseconds."""
        self._appender = appender
        self._replicas = replicas
        self._metadata = metadata
        self._later = later
        self._sending: dict[str, _Sending] = {}

    def __len__(self) -> int:
        """How many transactions have markers that are not acknowledged yet."""
        return len(self._sending)

    @property
    def waiting(self) -> int:
        """How many markers could not be written now, and wait for their next attempt."""
        return sum(sending.waiting for sending in self._sending.values())

    def send(self, transaction: Transaction, done: Callable[[], None]) -> None:
        """Write a marker into each partition of ``transaction``; see `MarkerSender.send`."""
        marker = TransactionMarker(
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            is_commit=transaction.is_commit,
            coordinator_epoch=self._coordinator_epoch(transaction.transactional_id),
            transaction_version=transaction.client_version,
        )
        sending = self._sending[transaction.transactional_id] = _Sending(transaction, marker, done)
        for partition in sorted(transaction.partitions):
            self._append(sending, partition)
        if not transaction.partitions:
            self._finish(sending)

    def cancel(self, transactional_id: str) -> None:
        """Send no more markers for this id."""
        sending = self._sending.pop(transactional_id, None)
        if sending is not None:
            sending.is_cancelled = True

    def _coordinator_epoch(self, transactional_id: str) -> int:
        """The leader epoch of the partition that keeps the id: it fences the markers of coordinators before."""
        topic = self._metadata.image.topics.by_name[TRANSACTION_STATE]
        index = partition_of(transactional_id, len(topic.partitions))
        return self._replicas.partition(TRANSACTION_STATE, index).leader_epoch

    def _append(self, sending: _Sending, partition: TopicPartition) -> None:
        if not sending.is_cancelled:
            self._appender.append(*partition, sending.marker, partial(self._appended, sending, partition))

    def _append_again(self, sending: _Sending, partition: TopicPartition) -> None:
        sending.waiting -= 1
        self._append(sending, partition)

    def _appended(self, sending: _Sending, partition: TopicPartition, code: ErrorCode) -> None:
        if sending.is_cancelled:
            return
        if code in _OVERTAKEN:
            log.warning(
                "%s needs no marker of %r any more, producer %d of epoch %d: %s",
                partition,
                sending.transactional_id,
                sending.marker.producer_id,
                sending.marker.producer_epoch,
                code.name,
            )
        elif code is not ErrorCode.NONE and self._exists(partition):
            if not sending.is_logged:
                sending.is_logged = True
                log.warning(
                    "the marker of %r could not be written into %s, and is written again every %d ms until it is: %s",
                    sending.transactional_id,
                    partition,
                    RETRY_MS,
                    code.name,
                )
            sending.waiting += 1
            self._later(RETRY_MS, lambda: self._append_again(sending, partition))
            return
        sending.partitions.discard(partition)
        if not sending.partitions:
            self._finish(sending)

    def _exists(self, partition: TopicPartition) -> bool:
        topic = self._metadata.image.topics.by_name.get(partition.topic)
        return topic is not None and topic.partition(partition.partition) is not None

    def _finish(self, sending: _Sending) -> None:
        if self._sending.get(sending.transactional_id) is sending:
            del self._sending[sending.transactional_id]
        sending.is_cancelled = True
        sending.done()
