"""ReplicaAssignment: a metadata subscriber that makes and removes the logs and partitions assigned to this broker."""

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from broker.logs.cleaner import LogCleaner
from broker.logs.removals import LogRemovals
from broker.logs.replica_moves import ReplicaMoves
from broker.metadata.cache import MetadataCache
from broker.metadata.configs import ConfigView
from broker.metadata.directories import MIGRATING, UNASSIGNED
from broker.metadata.image.metadata_image import MetadataDelta, MetadataImage
from broker.metadata.image.topics import PartitionImage, TopicImage
from broker.metadata.registration import known_directories
from broker.replication.disk_reserve import DiskReserve
from broker.replication.other_brokers import OtherBrokers
from broker.replication.partition import ALONE, LeaderAndIsr, Partition
from broker.replication.replica_manager import ReplicaManager
from broker.runtime.clock import Clock, Ids
from broker.runtime.counted import counted
from broker.runtime.scheduler import Scheduler
from broker.runtime.worker_thread import WorkerThread
from config.resources import ConfigResource
from protocol.records.cluster_metadata import NO_LEADER
from storage.deleted_partitions import ForgetDeleted
from storage.errors import DiskFull, LogDirFailed, StorageError, TooManyOpenFiles
from storage.log_dir import LogDir
from storage.log_manager import LogManager
from storage.topic_partition import TopicPartition

log = logging.getLogger(__name__)

MOST_AT_ONCE: Final = 50
"""Logs made before the loop turns: a request may ask for ten thousand (bench: partitions)."""

AssignDirectory = Callable[[bytes, int, bytes], None]
"""Called with a topic id, a partition and the id of a log directory."""

MOST_NAMED: Final = 10
"""How many partitions one line of the log names."""

RETRY_MS: Final = 1_000
"""After how long the log of a partition is tried again when the disk was full or no descriptor was left."""


class ReplicaAssignment:
    """Keeps logs and partitions as the metadata assigns them.

    Until its log is made, a new partition answers NOT_LEADER_OR_FOLLOWER, at which clients ask again.
    """

    def __init__(
        self,
        *,
        node_id: int,
        clock: Clock,
        ids: Ids,
        logs: LogManager,
        directories: Mapping[bytes, LogDir],
        replicas: ReplicaManager,
        metadata: MetadataCache,
        configs: ConfigView,
        scheduler: Scheduler,
        worker: WorkerThread,
        removals: LogRemovals,
        log_cleaner: LogCleaner,
        replica_moves: ReplicaMoves,
        disk_reserves: Mapping[LogDir, DiskReserve],
        view: OtherBrokers = ALONE,
        lag_max_ms: int,
        assign_directory: AssignDirectory,
        is_member: bool,
    ) -> None:
        """``lag_max_ms`` is `replica.lag.time.max.ms`. ``assign_directory`` tells controllers where a replica is.
        ``is_member``: the controllers are other nodes, which may assign replicas while this node is away."""
        self._node_id = node_id
        self._view = view
        self._lag_max_ms = lag_max_ms
        self._assign_directory = assign_directory
        self._is_member = is_member
        self._clock = clock
        self._ids = ids
        self._logs = logs
        self._directories = directories
        self._disk_reserves = disk_reserves
        self._replica_moves = replica_moves
        self._replicas = replicas
        self._metadata = metadata
        self._configs = configs
        self._scheduler = scheduler
        self._worker = worker
        self._removals = removals
        self._log_cleaner = log_cleaner
        self._log_defaults = configs.log_defaults()
        self._to_host: deque[tuple[bytes, int]] = deque()
        """Partitions whose logs are still to be made: topic id and index."""
        self._too_early: list[tuple[bytes, int]] = []
        """New partitions with the name of a deleted partition that is still in the checkpoints."""
        self._withheld: set[TopicPartition] = set()
        """Offline replicas whose log directory is gone: each change of the partition decides anew whether they are
        made."""
        self._goes_on = False
        self._are_directories_known = False
        """Whether the metadata has the log directories of this broker, so that replicas can be in one of them."""
        self._is_lack_logged = False
        """Whether it has been logged that logs cannot be made."""

    def host_all(self) -> None:
        """Host every partition that this node has a replica of; called once, when the logs are loaded."""
        image = self._metadata.image
        self._are_directories_known = bool(known_directories(image, self._node_id))
        self._drop_strays()
        begun: list[TopicPartition] = []
        for topic in image.topics.by_name.values():
            for partition in topic.partitions:
                topic_partition = TopicPartition(topic.name, partition.index)
                if not self._logs.may_be_made(topic_partition):
                    self._too_early.append((topic.topic_id, partition.index))
                    continue
                was_there = self._logs.get(topic_partition) is not None
                try:
                    self._host(topic, partition, is_start=True)
                except (DiskFull, TooManyOpenFiles) as error:
                    self._host_later(topic, partition, error)
                if not was_there and not self._is_member and self._logs.get(topic_partition) is not None:
                    begun.append(topic_partition)
        if begun:
            log.warning("partitions without a directory begin without records: %s", _named(begun))
        if self._withheld:
            log.warning(
                "%s without log directory, whose records no other broker is known to have: %s. Each is offline until "
                "its directory is there at a start, or another broker leads",
                counted(len(self._withheld), "replica"), _named(sorted(self._withheld)),
            )  # fmt: skip
        self._forget_deleted()

    def _drop_strays(self) -> None:
        """Remove the logs of partitions that were deleted, or taken from this node, before their logs were loaded.

        A new topic may have the name of a deleted topic by now: its logs are made when the deleted logs are forgotten.
        """
        topics = self._metadata.image.topics.by_name
        for found in self._logs.all():
            topic, index = found.topic_partition
            known = topics.get(topic)
            partition = None if known is None or not known.owns(found.topic_id) else known.partition(index)
            if partition is None or self._node_id not in partition.replicas:
                self._drop(topic, index)

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply a metadata change, deletions first: a name may be both deleted and new."""
        for topic in delta.topics.deleted.values():
            for gone in topic.partitions:
                self._drop(topic.name, gone.index)
        self._forget_deleted()
        for topic in delta.topics.created.values():
            self._to_host.extend((topic.topic_id, new.index) for new in topic.partitions)
        for topic_partition, changed in delta.topics.changed_partitions.items():
            hosted = self._replicas.find(*topic_partition)
            if self._node_id not in changed.replicas:
                self._drop(*topic_partition, has_moved=True)
            elif hosted is None:
                self._to_host.append((image.topics.by_name[topic_partition.topic].topic_id, changed.index))
            else:
                self._lead(hosted, changed)
                if self._logs.futures.get(topic_partition) is None:  # else the move tells of the directory
                    self._tell_directory(image.topics.by_name[topic_partition.topic], changed, hosted.log_dir)
        if self._to_host and not self._goes_on:
            self._host_some()
        if self._configs.log_defaults() != self._log_defaults:
            self._log_defaults = self._configs.log_defaults()
            for topic in image.topics.by_name.values():
                self._configure(topic.name)
        for resource_type, name in delta.configs.changed:
            if resource_type == ConfigResource.TOPIC:
                self._configure(name)
        were_known = self._are_directories_known
        self._are_directories_known = bool(known_directories(image, self._node_id))
        if self._are_directories_known and not were_known:
            # The cluster has reached the level that has log directories, and this broker has registered again.
            self._tell_all_directories(image)

    def _lead(self, hosted: Partition, image: PartitionImage) -> None:
        try:
            self._replicas.apply(hosted, _leader_and_isr(image))
        except StorageError as error:
            if not isinstance(error, LogDirFailed):
                log.error("%s", error)
            hosted.disk_failed(error)

    def _forget_deleted(self) -> None:
        """Remove deleted partitions from the checkpoints; new partitions of the same names wait for it."""
        for forgetting in self._logs.forget_deleted():
            self._forget(forgetting)

    def _forget(self, forgetting: ForgetDeleted) -> None:
        def forgotten(_: None) -> None:
            self._logs.have_forgotten(forgetting)
            self._to_host.extend(self._too_early)
            self._too_early.clear()
            if self._to_host and not self._goes_on:
                self._host_some()

        def failed(error: Exception) -> None:
            self._replicas.work_failed(forgetting.directory, error)
            # A full disk may have space later; in a failed directory there is nothing to remove.
            self._scheduler.once(RETRY_MS, lambda: self._forget(forgetting))

        self._worker.submit(forgetting.perform, forgotten, failed)

    def _host_some(self) -> None:
        """Make the next logs; the remaining logs are made in later turns."""
        self._goes_on = False
        topics = self._metadata.image.topics
        made = 0
        while self._to_host and made < MOST_AT_ONCE:
            topic_id, index = self._to_host.popleft()
            topic = topics.by_id.get(topic_id)
            partition = topic.partition(index) if topic is not None else None
            if topic is None or partition is None or self._replicas.find(topic.name, index) is not None:
                continue  # deleted meanwhile, or it was queued twice
            if not self._logs.may_be_made(TopicPartition(topic.name, index)):
                self._too_early.append((topic_id, index))
                continue
            try:
                self._host(topic, partition)
            except (DiskFull, TooManyOpenFiles) as error:
                self._host_later(topic, partition, error)
                return
            made += 1
        if made and self._is_lack_logged:
            self._is_lack_logged = False
            log.info("logs can be created again, %d are still missing", len(self._to_host))
        if self._to_host:
            self._go_on(after_ms=1)

    def _host_later(self, topic: TopicImage, partition: PartitionImage, error: StorageError) -> None:
        if not self._is_lack_logged:
            self._is_lack_logged = True
            log.error(
                "%s-%d has no log yet, trying again every %d ms: %s", topic.name, partition.index, RETRY_MS, error
            )
        self._to_host.append((topic.topic_id, partition.index))
        if not self._goes_on:
            self._go_on(after_ms=RETRY_MS)

    def _go_on(self, *, after_ms: int) -> None:
        self._goes_on = True
        self._scheduler.once(after_ms, self._host_some)

    def _host(self, topic: TopicImage, image: PartitionImage, *, is_start: bool = False) -> None:
        """Make the log of a partition, unless it was found at the start, and host it.

        Raises DiskFull and TooManyOpenFiles, which may pass.
        """
        topic_partition = TopicPartition(topic.name, image.index)
        is_withheld = topic_partition in self._withheld
        if self._node_id not in image.replicas or (self._replicas.is_offline(*topic_partition) and not is_withheld):
            return
        directory = self._logs.directory_of(topic_partition) or self._place(topic_partition, image, is_start=is_start)
        if directory is None:
            self._replicas.take_offline([topic_partition])
            return
        config = self._configs.topic_config(topic.name)
        try:
            found = self._logs.create(
                topic_partition,
                topic.topic_id,
                config,
                self._clock.now_ms(),
                directory,
                is_renewed=topic.is_renewed,
            )
            assert found.topic_id == topic.topic_id, f"{found} is the log of another topic than {topic.topic_id.hex()}"
            found.config = config  # a log that was found has the config of the time when it was found
            partition = Partition(
                clock=self._clock,
                log=found,
                log_dir=directory,
                topic_id=topic.topic_id,
                node_id=self._node_id,
                state=_leader_and_isr(image),
                is_internal=topic.is_internal,
                disk_reserve=None if topic.is_internal else self._disk_reserves[directory],
                on_disk_failure=self._replicas.partition_failed,
                view=self._view,
                lag_max_ms=self._lag_max_ms,
            )
        except (DiskFull, TooManyOpenFiles):
            raise
        except StorageError as error:
            self._replicas.work_failed(directory, error)
            if directory.has_failed and image.directory_of(self._node_id) not in self._directories:
                self._host(topic, image, is_start=is_start)  # this node has chosen the directory: there are others
            else:
                self._replicas.take_offline([topic_partition])
            return
        if is_withheld:
            self._withheld.remove(topic_partition)
            log.info("%s begins without records in %s, since another broker has them", topic_partition, directory.path)
        self._replicas.host(partition)
        self._tell_directory(topic, image, directory)

    def _tell_all_directories(self, image: MetadataImage) -> None:
        for hosted in self._replicas.partitions():
            name, index = hosted.topic_partition
            topic = image.topics.by_name.get(name)
            partition = None if topic is None else topic.partition(index)
            if topic is not None and partition is not None:
                self._tell_directory(topic, partition, hosted.log_dir)

    def _tell_directory(self, topic: TopicImage, image: PartitionImage, directory: LogDir) -> None:
        """Tell the controllers in which log directory a replica is, unless the metadata has it so."""
        if not self._are_directories_known:
            return
        actual = next((known for known, each in self._directories.items() if each is directory), None)
        if actual is not None and actual != image.directory_of(self._node_id):
            self._assign_directory(topic.topic_id, image.index, actual)

    def _place(self, topic_partition: TopicPartition, image: PartitionImage, *, is_start: bool) -> LogDir | None:
        """The log directory for a log that no directory has; None: it is not made now.

        A log may exist in a directory that cannot be used or is gone. An empty log elsewhere would hide its records.
        """
        directory_id = image.directory_of(self._node_id)
        directory = self._directories.get(directory_id)
        has_failures = any(known.has_failed for known in self._logs.directories)
        if topic_partition in self._logs.withheld or (directory is not None and directory.has_failed):
            return None
        if directory is not None:
            return directory
        if directory_id == UNASSIGNED or (directory_id == MIGRATING and not (is_start and has_failures)):
            return self._logs.emptiest()
        if has_failures:
            return None  # the failed directory may be the missing one, and be back at the next start
        if _is_kept_by_others(image, self._node_id):
            return self._logs.emptiest()
        self._withheld.add(topic_partition)
        return None

    def _drop(self, topic: str, index: int, *, has_moved: bool = False) -> None:
        self._replicas.drop(topic, index, has_moved=has_moved)
        topic_partition = TopicPartition(topic, index)
        self._withheld.discard(topic_partition)
        is_later = topic_partition in self._logs.exchanged

        def ended() -> None:
            self._delete_log(topic_partition)
            if is_later:
                self._forget_deleted()

        self._replica_moves.leave(topic_partition, ended)

    def _delete_log(self, topic_partition: TopicPartition) -> None:
        directory = self._logs.directory_of(topic_partition)
        if directory is None:
            # It has no log yet, or its directory has failed: the next start sets the log of a deleted partition aside.
            return
        self._log_cleaner.abort(topic_partition)
        try:
            removal = self._logs.delete(topic_partition, self._ids.uuid().hex())
        except StorageError as error:
            self._replicas.work_failed(directory, error)
            return
        if removal is not None:
            self._removals.remove_later(removal, directory)

    def _configure(self, topic: str) -> None:
        known = self._metadata.image.topics.by_name.get(topic)
        if known is None:
            return
        config = self._configs.topic_config(topic)
        for partition in known.partitions:
            hosted = self._replicas.find(topic, partition.index)
            if hosted is not None:
                if hosted.log.config.is_compacted and not config.is_compacted:
                    self._log_cleaner.abort(hosted.log.topic_partition)
                hosted.log.config = config
                self._replicas.changed(hosted)


def _leader_and_isr(image: PartitionImage) -> LeaderAndIsr:
    return LeaderAndIsr(
        image.leader,
        image.leader_epoch,
        image.replicas,
        frozenset(image.isr),
        image.partition_epoch,
        adding_replicas=frozenset(image.adding_replicas),
        is_recovering=image.leader_recovery_state != 0,
    )


def _is_kept_by_others(image: PartitionImage, node_id: int) -> bool:
    """Whether a replica of ``node_id`` without records loses none: another broker leads, or has to lead before."""
    if image.leader != NO_LEADER:
        return image.leader != node_id
    return node_id not in (*image.isr, *image.eligible_leader_replicas, *image.last_known_elr)


def _named(partitions: Sequence[TopicPartition]) -> str:
    """The first partitions, and how many there are beside them."""
    more = len(partitions) - MOST_NAMED
    return ", ".join(map(str, partitions[:MOST_NAMED])) + (f" and {more} more" if more > 0 else "")
