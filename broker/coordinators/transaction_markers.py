"""TransactionMarkers: has the leaders of the partitions of an ended transaction write its markers, until all are."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from broker.coordinators.marker_appender import MarkerAppender
from broker.coordinators.partitioning import partition_of
from broker.metadata.cache import MetadataCache
from broker.metadata.image.metadata_image import MetadataDelta, MetadataImage
from broker.metadata.topic_rules import TRANSACTION_STATE
from broker.replication.replica_manager import ReplicaManager
from broker.replication.transaction_marker import TransactionMarker
from protocol.errors import ErrorCode
from protocol.records.cluster_metadata import NO_LEADER
from storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from broker.coordinators.remote_markers import RemoteMarkers
    from broker.coordinators.transaction.transaction import Transaction

log = logging.getLogger(__name__)

RETRY_MS: Final = 500
"""How long a marker that could not be written waits for its next attempt, unless the partition gets another leader
before: a directory may be full, a coordinator may be loading, a broker may not answer."""

_OVERTAKEN: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""A later marker has ended the transaction in this partition: an administrator's, or that of the coordinator that has
taken this coordinator's place. It had the same outcome, since a coordinator sends markers once the outcome is in the
committed log. Whether this coordinator may record the end, its own log decides."""

_CANNOT_BE_WRITTEN: Final = frozenset({ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION})
"""The partition's log has a format without transactions; as in Kafka there is nothing to end."""


class _Leadership(NamedTuple):
    """Which broker leads a partition, and since which epoch."""

    leader: int
    leader_epoch: int


class _Sending:
    """The markers of one transaction that are not acknowledged yet."""

    __slots__ = (
        "done", "is_alarmed", "is_cancelled", "is_logged", "marker", "partitions", "transactional_id", "waiting",
    )  # fmt: skip

    def __init__(self, transaction: Transaction, marker: TransactionMarker, done: Callable[[], None]) -> None:
        self.transactional_id = transaction.transactional_id
        self.marker = marker
        self.partitions = set(transaction.partitions)
        self.done = done
        self.is_cancelled = False
        self.is_logged = False
        """A line of the log has said that a marker could not be written."""
        self.waiting: dict[TopicPartition, _Leadership | None] = {}
        """The partitions that wait for their next attempt, with the leadership at the last one."""
        self.is_alarmed = False
        """Whether the next attempt has a time already."""


class TransactionMarkers:
    """The `MarkerSender` of a broker: markers go to the partitions that it leads itself, and to the other leaders.

    The markers for partitions of this broker are staged in the turn of `send`.
    """

    def __init__(
        self,
        appender: MarkerAppender,
        *,
        node_id: int,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        later: Callable[[int, Callable[[], None]], object],
        remote: RemoteMarkers | None = None,
    ) -> None:
        """``later`` calls after so many milliseconds; without ``remote`` this broker leads all partitions."""
        self._appender = appender
        self._node_id = node_id
        self._replicas = replicas
        self._metadata = metadata
        self._later = later
        self._remote = remote
        self._sending: dict[str, _Sending] = {}
        self._delayed: dict[_Sending, None] = {}
        """Transactions with partitions that wait for their next attempt, a set that keeps its order."""

    def __len__(self) -> int:
        """How many transactions have markers that are not acknowledged yet."""
        return len(self._sending)

    @property
    def waiting(self) -> int:
        """How many markers could not be written now, and wait for their next attempt."""
        return sum(len(sending.waiting) for sending in self._delayed)

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
            self._delayed.pop(sending, None)
            if self._remote is not None:
                self._remote.withdraw(sending.marker)

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Try those partitions again that have another leader or epoch than at their last attempt, or that are deleted.
        A metadata subscriber, behind what makes this broker a leader."""
        if delta.topics.is_empty:
            return
        if self._remote is not None:
            self._remote.leaders_changed(self._leader_of)
        for sending in list(self._delayed):
            for partition, tried in list(sending.waiting.items()):
                if self._leadership_of(partition) != tried:
                    self._append_again(sending, partition)

    def _coordinator_epoch(self, transactional_id: str) -> int:
        """The leader epoch of the partition that keeps the id: it fences the markers of coordinators before."""
        topic = self._metadata.image.topics.by_name[TRANSACTION_STATE]
        index = partition_of(transactional_id, len(topic.partitions))
        return self._replicas.partition(TRANSACTION_STATE, index).leader_epoch

    def _leadership_of(self, partition: TopicPartition) -> _Leadership | None:
        """Which broker leads the partition; None if there is no such partition."""
        found = self._metadata.image.topics.partition(*partition)
        return None if found is None else _Leadership(found.leader, found.leader_epoch)

    def _leader_of(self, partition: TopicPartition) -> int | None:
        found = self._leadership_of(partition)
        return None if found is None else found.leader

    def _append(self, sending: _Sending, partition: TopicPartition) -> None:
        if sending.is_cancelled:
            return
        found = self._leadership_of(partition)
        then = partial(self._appended, sending, partition, found)
        if self._remote is None or found is None or found.leader == self._node_id:
            self._appender.append(*partition, sending.marker, then)
        elif found.leader == NO_LEADER:
            then(ErrorCode.LEADER_NOT_AVAILABLE)
        else:
            self._remote.append(found.leader, partition, sending.marker, then)

    def _append_again(self, sending: _Sending, partition: TopicPartition) -> None:
        sending.waiting.pop(partition, None)
        if not sending.waiting:
            self._delayed.pop(sending, None)
        self._append(sending, partition)

    def _appended(
        self, sending: _Sending, partition: TopicPartition, tried: _Leadership | None, code: ErrorCode
    ) -> None:
        if sending.is_cancelled:
            return
        if code in _OVERTAKEN or code in _CANNOT_BE_WRITTEN:
            log.warning(
                "%s needs no marker of %r any more, producer %d of epoch %d: %s",
                partition,
                sending.transactional_id,
                sending.marker.producer_id,
                sending.marker.producer_epoch,
                code.name,
            )
        elif code is not ErrorCode.NONE and (found := self._leadership_of(partition)) is not None:
            if found != tried:
                self._append(sending, partition)  # the metadata has changed since it was sent
            else:
                self._delay(sending, partition, found, code)
            return
        sending.partitions.discard(partition)
        if not sending.partitions:
            self._finish(sending)

    def _delay(self, sending: _Sending, partition: TopicPartition, tried: _Leadership, code: ErrorCode) -> None:
        if not sending.is_logged:
            sending.is_logged = True
            log.warning(
                "the marker of %r could not be written into %s, and is written again every %d ms until it is: %s",
                sending.transactional_id,
                partition,
                RETRY_MS,
                code.name,
            )
        sending.waiting[partition] = tried
        self._delayed[sending] = None
        if not sending.is_alarmed:
            sending.is_alarmed = True
            self._later(RETRY_MS, partial(self._retry, sending))

    def _retry(self, sending: _Sending) -> None:
        sending.is_alarmed = False
        for partition in list(sending.waiting):
            self._append_again(sending, partition)

    def _finish(self, sending: _Sending) -> None:
        if self._sending.get(sending.transactional_id) is sending:
            del self._sending[sending.transactional_id]
        sending.is_cancelled = True
        sending.done()
