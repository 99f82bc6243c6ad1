"""The group coordinator: the runtime of ``__consumer_offsets``, expiry of offsets, offsets of deleted topics."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from broker.coordinators.group.stats import GroupStats
from broker.coordinators.group_trace import GroupTrace
from broker.coordinators.runtime import CoordinatorRuntime, RuntimeSettings
from broker.coordinators.shard import ShardType, Submit
from broker.metadata.cache import MetadataCache
from broker.metadata.configs import ConfigView
from broker.metadata.image.metadata_image import MetadataDelta, MetadataImage
from broker.metadata.topic_rules import CONSUMER_OFFSETS
from broker.replication.replica_manager import ReplicaManager
from broker.runtime.clock import Clock, Ids
from broker.runtime.scheduler import Scheduler
from broker.runtime.time_slices import TimeSlices
from broker.runtime.timing_wheel import TimingWheel
from broker.runtime.worker_thread import WorkerThread
from config.broker_settings import BrokerSettings
from storage.batch.record_batch import Codec

if TYPE_CHECKING:
    from broker.coordinators.group.modern.topics import TopicHashes
    from broker.coordinators.group.records import GroupResult
    from broker.coordinators.group.shard import GroupShard
    from broker.coordinators.share.persister import SharePersister

Groups: TypeAlias = "CoordinatorRuntime[GroupShard]"
"""Handlers ask it for the coordinator of a group."""


class GroupCoordinator:
    """Makes the shards, lets offsets expire, and deletes those of deleted topics."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        metadata: MetadataCache,
        configs: ConfigView,
        replicas: ReplicaManager,
        clock: Clock,
        wheel: TimingWheel,
        ids: Ids,
        slices: TimeSlices,
        reader: WorkerThread,
        housekeeper: WorkerThread,
        scheduler: Scheduler,
        persister: Callable[[], SharePersister],
    ) -> None:
        """``reader`` reads the log, ``housekeeper`` matches regular expressions, ``persister`` gives what keeps the
        states of share groups."""

        def is_archived_by(topic: str, group_id: str) -> bool:
            return configs.archive_group(topic) == group_id

        self._hashes: TopicHashes | None = None
        """None before the first group."""
        self._check_interval_ms = settings.offsets_retention_check_interval_ms
        self._scheduler = scheduler
        self.trace = GroupTrace()
        self.stats = GroupStats()

        def shard_type() -> ShardType[GroupShard]:
            # Imported with the first group: what the broker imports before it is ready has a budget of 150 ms.
            from broker.coordinators.group.modern.topics import TopicHashes
            from broker.coordinators.group.settings import GroupSettings
            from broker.coordinators.group.shard import GroupShard
            from broker.coordinators.group_configs import GroupConfigValues
            from broker.coordinators.group_regexes import RegexWorker
            from broker.coordinators.group_topics import GroupTopics
            from protocol.records.group_metadata import decode_group_record, encode_group_record

            group_settings = GroupSettings(
                initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
                min_session_timeout_ms=settings.group_min_session_timeout_ms,
                max_session_timeout_ms=settings.group_max_session_timeout_ms,
                max_size=settings.group_max_size,
                consumer_max_size=settings.group_consumer_max_size,
                consumer_assignors=settings.group_consumer_assignors,
                consumer_upgrades=settings.group_consumer_migration_policy.lower() in ("upgrade", "bidirectional"),
                consumer_downgrades=settings.group_consumer_migration_policy.lower() in ("downgrade", "bidirectional"),
                consumer_regex_refresh_interval_ms=settings.group_consumer_regex_refresh_interval_ms,
                offset_metadata_max_bytes=settings.offset_metadata_max_bytes,
                offsets_retention_ms=settings.offsets_retention_minutes * 60_000,
                share_max_size=settings.group_share_max_size,
                streams_max_size=settings.group_streams_max_size,
                streams_assignors=settings.group_streams_assignors,
                share_initialize_retry_ms=settings.group_share_initialize_retry_interval_ms,
            )

            topics = GroupTopics(metadata)
            self._hashes = hashes = TopicHashes(topics)
            group_configs = GroupConfigValues(metadata, configs)
            resolve = RegexWorker(housekeeper)

            def make_shard(submit: Submit) -> GroupShard:
                return GroupShard(
                    settings=group_settings,
                    clock=clock,
                    wheel=wheel,
                    ids=ids,
                    events=self.trace,
                    stats=self.stats,
                    submit=submit,
                    is_archived_by=is_archived_by,
                    topics=topics,
                    hashes=hashes,
                    configs=group_configs,
                    persister=persister,
                    resolve=resolve,
                )

            return ShardType(make_shard, decode_group_record, encode_group_record)

        self.groups: Groups = CoordinatorRuntime(
            CONSUMER_OFFSETS,
            settings=RuntimeSettings(
                partitions=settings.offsets_topic_num_partitions,
                codec=Codec(settings.offsets_topic_compression_codec),
                base_sequence=0,  # with and without a producer
                write_timeout_ms=settings.offsets_commit_timeout_ms,
                load_buffer_bytes=settings.offsets_load_buffer_size,
            ),
            metadata=metadata,
            replicas=replicas,
            clock=clock,
            slices=slices,
            reader=reader,
            later=scheduler.once,
            shard_type=shard_type,
        )
        self._deleted_topics: deque[tuple[str, bytes]] = deque()
        """Name and id of each deleted topic whose offsets are still to be deleted."""
        self._is_forgetting = False

    def start(self) -> None:
        """Load the groups; from now on offsets expire."""
        self.groups.start()
        self._scheduler.every(self._check_interval_ms, self.groups.sweeping(lambda shard: shard.expire_offsets()))

    def stop(self) -> None:
        """Unload all groups. Waiting requests are answered with NOT_COORDINATOR."""
        self.groups.stop()

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Delete the offsets of deleted topics at once, since a new topic may get the same name. Let groups look at
        topics that have changed."""
        self._tell_of_topics(delta)
        self._deleted_topics.extend((topic.name, topic.topic_id) for topic in delta.topics.deleted.values())
        if not self._is_forgetting:
            self._forget_deleted_topics()

    def _tell_of_topics(self, delta: MetadataDelta) -> None:
        if self._hashes is None or delta.topics.is_empty:
            return
        new = delta.topics.created.keys()
        changed = {topic.name for topic in delta.topics.deleted.values()}
        changed |= {partition.topic for partition in delta.topics.changed_partitions}
        self._hashes.forget(new | changed)
        for names, are_new in ((new, True), (changed - new, False)):
            if names:
                for coordinator in self.groups.active:
                    coordinator.shard.topics_changed(names, are_new=are_new)

    def _forget_deleted_topics(self) -> None:
        """Sweep once for all topics deleted meanwhile: a sweep goes through all offsets."""
        topics: dict[str, bytes] = {}
        while self._deleted_topics and self._deleted_topics[0][0] not in topics:
            name, topic_id = self._deleted_topics.popleft()
            topics[name] = topic_id
        self._is_forgetting = bool(topics)
        if topics:
            self.groups.sweep(_forgetting(topics), self._forget_deleted_topics)


def _forgetting(topics: dict[str, bytes]) -> Callable[[GroupShard], Iterator[GroupResult | None]]:
    return lambda shard: shard.forget_topics(topics)
