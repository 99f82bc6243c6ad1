"""The transaction coordinator: the runtime of ``__transaction_state``, time limits of transactions and of idle ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from broker.coordinators.result import ProducerIdAndEpoch
from broker.coordinators.runtime import CoordinatorRuntime, RuntimeSettings
from broker.coordinators.shard import ShardType, Submit
from broker.coordinators.transaction.requests import (
    BUMPS_EPOCH_SINCE,
    NO_PRODUCER,
    AddPartitions,
    EndTransaction,
    IdentityReply,
    InitProducer,
    PartitionsReply,
)
from broker.coordinators.transaction.stats import TransactionStats
from broker.coordinators.transaction.verification import Verified
from broker.metadata.cache import MetadataCache
from broker.metadata.image.features import TRANSACTION_VERSION
from broker.metadata.producer_ids import ProducerIds
from broker.metadata.topic_rules import TRANSACTION_STATE
from broker.replication.replica_manager import ReplicaManager
from broker.request.faults import Fault, InvalidRequest, error_code_of
from broker.runtime.clock import Clock
from broker.runtime.scheduler import Scheduler
from broker.runtime.time_slices import TimeSlices
from broker.runtime.worker_thread import WorkerThread
from config.broker_settings import BrokerSettings
from protocol.errors import ErrorCode
from storage.batch.record_batch import Codec
from storage.sentinels import NO_SEQUENCE
from storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from broker.coordinators.transaction.markers import MarkerSender
    from broker.coordinators.transaction.shard import TransactionShard

Transactions: TypeAlias = "CoordinatorRuntime[TransactionShard]"
"""Handlers ask it for the coordinator of a transactional id."""

WRITE_TIMEOUT_MS = 5_000
"""How long a producer waits for its record to be acknowledged (Kafka: `request.timeout.ms` of its state manager)."""


class TransactionCoordinator:
    """Makes the shards, ends transactions that take too long, and forgets ids that nobody uses.

    It is the `PartitionVerifier` of the transactions that this node coordinates.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        metadata: MetadataCache,
        replicas: ReplicaManager,
        producer_ids: ProducerIds,
        markers: MarkerSender,
        clock: Clock,
        slices: TimeSlices,
        reader: WorkerThread,
        scheduler: Scheduler,
    ) -> None:
        self._settings = settings
        self._producer_ids = producer_ids
        self._scheduler = scheduler
        self._clock = clock
        self.markers = markers
        self.stats = TransactionStats()

        def shard_type() -> ShardType[TransactionShard]:
            # Imported with the first transaction: what the broker imports before it is ready has a budget of 150 ms.
            from broker.coordinators.transaction.records import decode, encode
            from broker.coordinators.transaction.settings import TransactionSettings
            from broker.coordinators.transaction.shard import TransactionShard

            transaction_settings = TransactionSettings(
                max_timeout_ms=settings.transaction_max_timeout_ms,
                settles_within_ms=settings.add_partitions_to_txn_retry_backoff_max_ms,
                id_expiration_ms=settings.transactional_id_expiration_ms,
            )

            def make_shard(submit: Submit) -> TransactionShard:
                return TransactionShard(
                    settings=transaction_settings,
                    clock=clock,
                    markers=markers,
                    stats=self.stats,
                    submit=submit,
                    later=scheduler.once,
                    take_id=producer_ids.take,
                    level=lambda: metadata.image.features.levels.get(TRANSACTION_VERSION, 0),
                )

            return ShardType(make_shard, decode, encode)

        self.transactions: Transactions = CoordinatorRuntime(
            TRANSACTION_STATE,
            settings=RuntimeSettings(
                partitions=settings.transaction_state_log_num_partitions,
                codec=Codec.NONE,
                base_sequence=NO_SEQUENCE,
                write_timeout_ms=WRITE_TIMEOUT_MS,
                load_buffer_bytes=settings.transaction_state_log_load_buffer_size,
            ),
            metadata=metadata,
            replicas=replicas,
            clock=clock,
            slices=slices,
            reader=reader,
            later=scheduler.once,
            shard_type=shard_type,
        )

    def start(self) -> None:
        """Load the transactions, and end those that were being ended; from now on transactions and ids expire."""
        self.transactions.start()
        self._scheduler.every(
            self._settings.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            self.transactions.sweeping(lambda shard: shard.abort_timed_out()),
        )
        self._scheduler.every(
            self._settings.transaction_remove_expired_transaction_cleanup_interval_ms,
            self.transactions.sweeping(lambda shard: shard.forget_expired()),
        )

    def stop(self) -> None:
        """Unload all transactions. Requests under way are answered with NOT_COORDINATOR."""
        self.transactions.stop()

    # Requests of producers

    def init_producer(self, request: InitProducer, reply: IdentityReply) -> None:
        """Give a producer its identity. Raises Fault where this node does not coordinate the transactional id."""
        coordinator = self.transactions.of(request.transactional_id)
        if not coordinator.shard.needs_producer_id(request):
            coordinator.write(coordinator.shard.init_producer(request, reply))
            return

        def go_on(new_id: int) -> None:
            coordinator = self.transactions.of(request.transactional_id)
            coordinator.write(coordinator.shard.init_producer(request, reply, new_id=new_id))

        self._with_producer_id(go_on, reply)

    def end(self, request: EndTransaction, reply: IdentityReply) -> None:
        """End a producer's transaction. Raises Fault where this node does not coordinate the transactional id."""
        coordinator = self.transactions.of(request.transactional_id)
        if not coordinator.shard.needs_producer_id(request):
            coordinator.write(coordinator.shard.end(request, reply))
            return

        def go_on(new_id: int) -> None:
            coordinator = self.transactions.of(request.transactional_id)
            coordinator.write(coordinator.shard.end(request, reply, new_id=new_id))

        self._with_producer_id(go_on, reply)

    def _with_producer_id(self, go_on: Callable[[int], None], reply: IdentityReply) -> None:
        def assigned(new_id: int) -> None:
            try:
                go_on(new_id)
            except Fault as fault:  # the transactional id is coordinated elsewhere by now
                reply(fault.code, NO_PRODUCER)

        self._producer_ids.assign(assigned, lambda error: reply(error_code_of(error), NO_PRODUCER))

    def add_partitions(self, request: AddPartitions, reply: PartitionsReply) -> None:
        """Add partitions to a producer's transaction. Raises Fault where this node does not coordinate it."""
        coordinator = self.transactions.of(request.transactional_id)
        coordinator.write(coordinator.shard.add_partitions(request, reply))

    # The partition verifier

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        then: Verified,
    ) -> None:
        """Say of each partition whether it is in the producer's open transaction; see `PartitionVerifier.verify`."""
        request = AddPartitions(transactional_id, ProducerIdAndEpoch(producer_id, producer_epoch), partitions)
        answer = self._counted(then)
        try:
            shard = self._shard_for_leader(transactional_id)
        except Fault as fault:
            answer([fault.code] * len(partitions))
        else:
            answer(_for_leaders(shard.verify_partitions(request)))

    def add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        then: Verified,
    ) -> None:
        """Add partitions to the producer's transaction; see `PartitionVerifier.add`."""
        identity = ProducerIdAndEpoch(producer_id, producer_epoch)
        request = AddPartitions(transactional_id, identity, partitions, BUMPS_EPOCH_SINCE)
        answer = self._counted(then)
        try:
            shard = self._shard_for_leader(transactional_id)
        except Fault as fault:
            answer([fault.code] * len(partitions))
        else:
            shard.add_when_settled(request, lambda codes: answer(_for_leaders(codes)))

    def _counted(self, then: Verified) -> Verified:
        """``then``, called once the answer is counted with the time that it took from now on."""
        asked_ms = self._clock.monotonic_ms()

        def answer(codes: Sequence[ErrorCode]) -> None:
            self.stats.verification.count(codes, self._clock.monotonic_ms() - asked_ms)
            then(codes)

        return answer

    def _shard_for_leader(self, transactional_id: str) -> TransactionShard:
        if not transactional_id:
            raise InvalidRequest("a transactional id is not empty")
        return self.transactions.of(transactional_id).shard


def _for_leaders(codes: Sequence[ErrorCode]) -> Sequence[ErrorCode]:
    """The codes as a partition's leader passes them on to producers: a fenced producer has an epoch of the past."""
    return [ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code for code in codes]
