"""VerificationRouter: asks the coordinator of a transaction, here or elsewhere, for the leader of a partition."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from broker.coordinators.partitioning import partition_of
from broker.coordinators.remote_verification import RemoteVerification
from broker.coordinators.result import ProducerIdAndEpoch
from broker.coordinators.transaction.requests import AddPartitions
from broker.coordinators.transaction.stats import VerificationStats
from broker.coordinators.transaction.verification import PartitionVerifier, Verified
from broker.metadata.cache import MetadataCache
from broker.metadata.topic_rules import TRANSACTION_STATE
from broker.runtime.clock import Clock
from protocol.errors import ErrorCode
from protocol.records.cluster_metadata import NO_LEADER
from storage.topic_partition import TopicPartition

RETRY_BACKOFF_MS: Final = 20
"""Kafka's default for `add.partitions.to.txn.retry.backoff.ms`."""


class VerificationRouter:
    """The `PartitionVerifier` of a broker among others."""

    def __init__(
        self,
        local: PartitionVerifier,
        remote: RemoteVerification,
        *,
        node_id: int,
        metadata: MetadataCache,
        clock: Clock,
        later: Callable[[int, Callable[[], None]], object],
        stats: VerificationStats,
        retry_max_ms: int,
        retry_backoff_ms: int = RETRY_BACKOFF_MS,
    ) -> None:
        """
        Args:
            local: the coordinator on this broker, which counts its answers itself.
            remote: asks the coordinators on other brokers.
            node_id: this broker.
            metadata: says who leads the partitions of ``__transaction_state``.
            clock: the time.
            later: calls after so many milliseconds.
            stats: counts the answers of the other coordinators.
            retry_max_ms: `add.partitions.to.txn.retry.backoff.max.ms`: for how long partitions are tried to be added
                while the coordinator answers CONCURRENT_TRANSACTIONS.
            retry_backoff_ms: `add.partitions.to.txn.retry.backoff.ms`, the pause between two tries.
        """
        self._local = local
        self._remote = remote
        self._node_id = node_id
        self._metadata = metadata
        self._clock = clock
        self._later = later
        self._stats = stats
        self._retry_max_ms = retry_max_ms
        self._retry_backoff_ms = retry_backoff_ms

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        then: Verified,
    ) -> None:
        """Say of each partition whether it is in the producer's open transaction; see `PartitionVerifier.verify`."""
        coordinator = self._coordinator_of(transactional_id)
        if coordinator == self._node_id:
            self._local.verify(transactional_id, producer_id, producer_epoch, partitions, then)
            return
        about = AddPartitions(transactional_id, ProducerIdAndEpoch(producer_id, producer_epoch), partitions)
        self._ask(coordinator, about, self._counted(then), is_verified_only=True)

    def add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        then: Verified,
    ) -> None:
        """Add partitions to the producer's transaction; see `PartitionVerifier.add`.

        As in Kafka the coordinator is asked again while it answers CONCURRENT_TRANSACTIONS: the markers of the
        producer's last transaction may still be on their way.
        """
        coordinator = self._coordinator_of(transactional_id)
        if coordinator == self._node_id:
            self._local.add(transactional_id, producer_id, producer_epoch, partitions, then)
            return
        about = AddPartitions(transactional_id, ProducerIdAndEpoch(producer_id, producer_epoch), partitions)
        until_ms = self._clock.monotonic_ms() + self._retry_max_ms
        self._add(coordinator, about, until_ms, self._counted(then))

    def _add(self, coordinator: int, about: AddPartitions, until_ms: int, then: Verified) -> None:
        def answered(codes: Sequence[ErrorCode]) -> None:
            if ErrorCode.CONCURRENT_TRANSACTIONS in codes and self._clock.monotonic_ms() < until_ms:
                self._later(self._retry_backoff_ms, partial(self._add_again, about, until_ms, then))
            else:
                then(codes)

        self._ask(coordinator, about, answered, is_verified_only=False)

    def _add_again(self, about: AddPartitions, until_ms: int, then: Verified) -> None:
        coordinator = self._coordinator_of(about.transactional_id)
        if coordinator == self._node_id:  # since the last try
            self._local.add(about.transactional_id, *about.producer, about.partitions, then)
        else:
            self._add(coordinator, about, until_ms, then)

    def _ask(self, coordinator: int, about: AddPartitions, then: Verified, *, is_verified_only: bool) -> None:
        if coordinator == NO_LEADER:
            then([ErrorCode.COORDINATOR_NOT_AVAILABLE] * len(about.partitions))
        else:
            self._remote.ask(coordinator, about, then, is_verified_only=is_verified_only)

    def _coordinator_of(self, transactional_id: str) -> int:
        """The broker that leads the partition of a transactional id; `NO_LEADER` if there is none."""
        topic = self._metadata.image.topics.by_name.get(TRANSACTION_STATE)
        if topic is None or not topic.partitions:
            return NO_LEADER
        found = topic.partition(partition_of(transactional_id, len(topic.partitions)))
        return NO_LEADER if found is None else found.leader

    def _counted(self, then: Verified) -> Verified:
        """``then``, called once the answer is counted with the time that it took from now on."""
        asked_ms = self._clock.monotonic_ms()

        def answer(codes: Sequence[ErrorCode]) -> None:
            self._stats.count(codes, self._clock.monotonic_ms() - asked_ms)
            then(codes)

        return answer
