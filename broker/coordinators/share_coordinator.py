"""The share coordinator: the runtime of ``__share_group_state``, its pruning, states of deleted topics (KIP-932)."""

from __future__ import annotations

import logging
from base64 import urlsafe_b64encode
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

from broker.coordinators.runtime import Coordinator, CoordinatorRuntime, RuntimeSettings
from broker.coordinators.shard import ShardType, Submit
from broker.coordinators.share.persister import SharePartitionKey
from broker.coordinators.share.requests import StateAnswer, StateReply, StateRequest, Write
from broker.coordinators.share.stats import ShareStats
from broker.metadata.cache import MetadataCache
from broker.metadata.image.metadata_image import MetadataDelta, MetadataImage
from broker.metadata.topic_rules import SHARE_GROUP_STATE
from broker.replication.delayed import RecordDeletion
from broker.replication.replica_manager import ReplicaManager
from broker.request.faults import Fault
from broker.runtime.clock import Clock
from broker.runtime.scheduler import Scheduler
from broker.runtime.time_slices import TimeSlices
from broker.runtime.worker_thread import WorkerThread
from config.broker_settings import BrokerSettings
from storage.batch.record_batch import Codec
from storage.errors import StorageError

if TYPE_CHECKING:
    from broker.coordinators.share.records import ShareResult
    from broker.coordinators.share.shard import ShareShard

log = logging.getLogger(__name__)

Shares: TypeAlias = "CoordinatorRuntime[ShareShard]"

PRUNE_TIMEOUT_MS: Final = 30_000
"""How long all replicas may take to delete what is pruned."""

_US_PER_MS: Final = 1_000


def coordinator_key(key: SharePartitionKey) -> str:
    """The text whose hash decides which partition of ``__share_group_state`` a share partition belongs to."""
    topic_id = urlsafe_b64encode(key.topic_id).decode().rstrip("=")
    return f"{key.group_id}:{topic_id}:{key.partition}"


class ShareCoordinator:
    """Makes the shards, asks them, prunes their topic, and deletes the states of deleted topics."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        metadata: MetadataCache,
        replicas: ReplicaManager,
        clock: Clock,
        slices: TimeSlices,
        reader: WorkerThread,
        scheduler: Scheduler,
    ) -> None:
        self._settings = settings
        self._replicas = replicas
        self._clock = clock
        self._scheduler = scheduler
        self.stats = ShareStats()

        def has_partition(topic_id: bytes, index: int) -> bool:
            topic = metadata.image.topics.by_id.get(topic_id)
            return topic is not None and index < len(topic.partitions)

        def shard_type() -> ShardType[ShareShard]:
            # Imported with the first share group: what the broker imports before it is ready has a budget of 150 ms.
            from broker.coordinators.share.records import decode, encode
            from broker.coordinators.share.settings import ShareSettings
            from broker.coordinators.share.shard import ShareShard

            share_settings = ShareSettings(
                updates_per_snapshot=settings.share_coordinator_snapshot_update_records_per_snapshot,
                cold_snapshot_interval_ms=settings.share_coordinator_cold_partition_snapshot_interval_ms,
            )

            def make_shard(submit: Submit) -> ShareShard:
                return ShareShard(
                    settings=share_settings,
                    clock=clock,
                    stats=self.stats,
                    submit=submit,
                    has_partition=has_partition,
                )

            return ShardType(make_shard, decode, encode, is_compacted=False)

        self.shares: Shares = CoordinatorRuntime(
            SHARE_GROUP_STATE,
            settings=RuntimeSettings(
                partitions=settings.share_coordinator_state_topic_num_partitions,
                codec=Codec(settings.share_coordinator_state_topic_compression_codec),
                base_sequence=0,
                write_timeout_ms=settings.share_coordinator_write_timeout_ms,
                load_buffer_bytes=settings.share_coordinator_load_buffer_size,
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
        """Load the states; from now on their topic is pruned."""
        self.shares.start()
        self._scheduler.every(self._settings.share_coordinator_state_topic_prune_interval_ms, self.prune)
        self._scheduler.every(
            self._settings.share_coordinator_cold_partition_snapshot_interval_ms,
            # Snapshots that would hold the log's start are written anew.
            self.shares.sweeping(lambda shard: shard.snapshot_cold()),
        )

    def stop(self) -> None:
        """Unload all states. Requests under way are answered with NOT_COORDINATOR."""
        self.shares.stop()

    def ask(self, request: StateRequest, reply: StateReply) -> None:
        """Have a request decided; ``reply`` is called once, perhaps before this returns."""
        if isinstance(request, Write):
            reply = self._timed(reply)
        try:
            coordinator = self.shares.of(coordinator_key(request.key))
        except Fault as fault:
            reply(StateAnswer(fault.code, str(fault)))
        else:
            coordinator.shard.ask(request, reply)

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Part of `MetadataSubscriber`: delete the states of deleted topics."""
        deleted = frozenset(topic.topic_id for topic in delta.topics.deleted.values())
        if deleted:
            self.shares.sweep(_forgetting(deleted), _nothing_more)

    # Background work

    def prune(self) -> None:
        """Delete the records that are superseded in the partitions of the topic that this node leads."""
        active = self.shares.active
        leads = {coordinator.partition.topic_partition.partition for coordinator in active}
        for index in [one for one in self.stats.pruned_offsets if one not in leads]:
            del self.stats.pruned_offsets[index]
        deletions = []
        for coordinator in active:
            try:
                deletion = self._begin_pruning(coordinator)
            except (Fault, StorageError) as error:
                log.warning("%s cannot be pruned: %s", coordinator.partition.topic_partition, error)
            else:
                deletions += [] if deletion is None else [deletion]
        if deletions:
            self._replicas.delete_records(
                deletions, timeout_ms=PRUNE_TIMEOUT_MS, then=lambda late, failures: self._pruned(deletions, late)
            )

    def _begin_pruning(self, coordinator: Coordinator[ShareShard]) -> RecordDeletion | None:
        partition, offset = coordinator.partition, coordinator.shard.image.needed_since
        if offset <= partition.log.log_start_offset:
            return None
        return RecordDeletion(partition, partition.delete_records_before(offset, by_coordinator=True))

    def _pruned(self, deletions: Collection[RecordDeletion], late: Collection[RecordDeletion]) -> None:
        for deletion in deletions:
            if deletion not in late:
                self.stats.pruned_offsets[deletion.partition.topic_partition.partition] = deletion.to_offset

    def _timed(self, reply: StateReply) -> StateReply:
        asked_ms = self._clock.monotonic_ms()

        def answer(outcome: StateAnswer) -> None:
            self.stats.write_times.record((self._clock.monotonic_ms() - asked_ms) * _US_PER_MS)
            reply(outcome)

        return answer


def _forgetting(topic_ids: Collection[bytes]) -> Callable[[ShareShard], Iterator[ShareResult | None]]:
    return lambda shard: shard.forget_topics(topic_ids)


def _nothing_more() -> None:
    """The results of the sweep may still be being written."""
