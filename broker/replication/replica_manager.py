"""ReplicaManager: all partitions of this node, the appender, and the requests that wait for partitions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from broker.replication.append import Appender, Publication
from broker.replication.delayed import DelayedDeleteRecords, DelayedProduce, RecordDeletion
from broker.replication.log_start_checkpoints import Failures, LogStartCheckpoints
from broker.replication.partition import LeaderAndIsr, Partition, offline
from broker.replication.traffic import ReplicaStats, Traffic, count_refused
from broker.request.faults import UnknownTopicOrPartition
from broker.runtime.clock import Clock
from broker.runtime.purgatory import Purgatory
from broker.runtime.worker_thread import Flusher, WorkerThread
from storage.errors import DiskFull, FilesRemoved, FileTooLarge, LogDirFailed, StorageError
from storage.log_dir import LogDir
from storage.log_manager import LogManager
from storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from broker.replication.replication import Replication

log = logging.getLogger(__name__)

DirectoryFailed = Callable[[LogDir, StorageError, Collection[TopicPartition]], None]
"""Called when a data directory cannot be used any more, with its partitions."""

PartitionRemoved = Callable[[TopicPartition, StorageError], None]
"""Called when a partition cannot be used any more, since another process has removed its files."""


class ReplicaManager:
    """The partitions of this node, the appender that writes to them, and the requests that wait for them."""

    def __init__(
        self,
        clock: Clock,
        *,
        logs: LogManager,
        log_starts: LogStartCheckpoints,
        writer: WorkerThread,
        call_soon: Callable[[Callable[[], None]], object],
        flusher_of: Callable[[Partition], Flusher],
        produce_purgatory: Purgatory,
        fetch_purgatory: Purgatory,
        delete_records_purgatory: Purgatory,
        on_directory_failed: DirectoryFailed,
        on_partition_removed: PartitionRemoved,
    ) -> None:
        self._clock = clock
        self._call_soon = call_soon
        self._replication: Replication | None = None
        self._moved: dict[Partition, None] = {}
        """Partitions whose high or low watermark a follower's fetch has moved in this turn, a set that keeps its
        order."""
        self._logs = logs
        self._log_starts = log_starts
        self._flusher_of = flusher_of
        self._on_directory_failed = on_directory_failed
        self._on_partition_removed = on_partition_removed
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._offline: set[tuple[str, int]] = set()
        """Partitions of this node that failed, or their data directory, in this run of the process."""
        self._leadership_watchers: dict[str, Callable[[Partition], None]] = {}
        self.stats = ReplicaStats()
        self.gone = Traffic()
        """The traffic of partitions that are no longer here, since the counters of all topics must not shrink."""
        self.appender = Appender(
            clock, writer, call_soon=call_soon, on_published=self._published, on_failed=self._write_failed
        )
        self.produce_purgatory = produce_purgatory
        self.fetch_purgatory = fetch_purgatory
        self.delete_records_purgatory = delete_records_purgatory

    def end_waiting(self) -> None:
        """Answer every waiting request as if its time were over. No request waits from now on."""
        for purgatory in (self.produce_purgatory, self.fetch_purgatory, self.delete_records_purgatory):
            purgatory.close()

    def watch_leadership(self, topic: str, notify: Callable[[Partition], None]) -> None:
        """Call ``notify`` with the partitions of ``topic`` on this node: with each at once, and later with each that is
        hosted, gets another leader or epoch, is deleted or goes offline. A topic has one ``notify``."""
        self._leadership_watchers[topic] = notify
        for partition in [one for one in self._partitions.values() if one.topic_partition.topic == topic]:
            notify(partition)

    def replicate_with(self, replication: Replication) -> None:
        """There are other brokers: partitions are followed, and followers of this broker's partitions taken note of."""
        self._replication = replication
        for partition in self._partitions.values():
            replication.leadership_changed(partition, is_new_epoch=True)

    @property
    def replication(self) -> Replication | None:
        """What this broker does with other brokers, None if there are none."""
        return self._replication

    def host(self, partition: Partition) -> None:
        """Add a partition to this node."""
        self._offline.discard(partition.topic_partition)
        self._partitions[partition.topic_partition] = partition
        if self._replication is not None:
            self._replication.leadership_changed(partition, is_new_epoch=True)
        self._notify_leadership_watcher(partition)

    def drop(self, topic: str, index: int, *, has_moved: bool = False) -> None:
        """Remove a partition whose topic is deleted, or whose replica has moved to another node; requests that wait for
        it are answered at once."""
        self._offline.discard((topic, index))
        partition = self._partitions.pop((topic, index), None)
        if partition is not None:
            self._retire(partition, has_moved=has_moved)

    def take_offline(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """The files of these partitions, or their data directory, cannot be used: requests for them, waiting ones too,
        get KAFKA_STORAGE_ERROR.

        Partitions that were never hosted may be among them.
        """
        gone: list[Partition] = []
        for topic_partition in topic_partitions:
            self._offline.add(topic_partition)
            partition = self._partitions.pop(topic_partition, None)
            if partition is not None:
                gone.append(partition)
        for partition in gone:
            self._retire(partition)

    def _retire(self, partition: Partition, *, has_moved: bool = False) -> None:
        partition.go(has_moved=has_moved)
        if self._replication is not None:
            self._replication.left(partition)
        self.gone.add(partition)
        self.leadership_changed(partition)

    def leadership_changed(self, partition: Partition) -> None:
        """The leader of a partition has changed: to this node, to another, or to none."""
        self.changed(partition)
        # Coordinators first: then they no longer wait for appends to the partition.
        self._notify_leadership_watcher(partition)
        self._check_writes(partition)

    def _check_writes(self, partition: Partition) -> None:
        self.produce_purgatory.check(partition)
        self.delete_records_purgatory.check(partition)

    def _notify_leadership_watcher(self, partition: Partition) -> None:
        notify = self._leadership_watchers.get(partition.topic_partition.topic)
        if notify is not None:
            notify(partition)

    def partition(self, topic: str, index: int) -> Partition:
        """The partition. Raises `UnknownTopicOrPartition`, and LogDirFailed for a partition that is offline."""
        partition = self._partitions.get((topic, index))
        if partition is not None:
            return partition
        if (topic, index) in self._offline:
            raise offline(TopicPartition(topic, index))
        raise UnknownTopicOrPartition(f"this node has no partition {index} of topic {topic!r}")

    def is_offline(self, topic: str, index: int) -> bool:
        """Whether the data directory of a partition of this node cannot be used."""
        return (topic, index) in self._offline

    def find(self, topic: str, index: int) -> Partition | None:
        """The partition; None if this node does not have it, or it is offline."""
        return self._partitions.get((topic, index))

    def partitions(self) -> Iterable[Partition]:
        """All partitions of this node."""
        return self._partitions.values()

    def refused(self, partition: Partition, batch_bytes: int, error: Exception) -> None:
        """Count a client's batch that was not appended, by its error."""
        count_refused(partition, batch_bytes, error, self.stats)

    def apply(self, partition: Partition, state: LeaderAndIsr) -> None:
        """Change leader, epoch or in-sync replicas of a partition, and notify requests and coordinators that depend on
        them.

        Raises StorageError; then nothing is notified.
        """
        pending = None if partition.followers is None else partition.followers.pending
        if pending is not None and state.in_sync_replicas == frozenset(pending.isr):
            # This leader has asked for the ISR, and the metadata is here before the controller's answer.
            self.stats.isr_shrinks += bool(partition.in_sync_replicas - state.in_sync_replicas)
            self.stats.isr_expands += bool(state.in_sync_replicas - partition.in_sync_replicas)
        is_new_epoch = state.leader_epoch != partition.leader_epoch
        is_new_leader = state.leader != partition.leader
        high_watermark = partition.log.high_watermark
        partition.apply(state)
        if is_new_epoch:
            self.appender.take_back(partition)
        if self._replication is not None:
            self._replication.leadership_changed(partition, is_new_epoch=is_new_epoch)
        if is_new_epoch or is_new_leader or partition.log.high_watermark != high_watermark:
            self.leadership_changed(partition)
        else:
            # Other replicas, or others in sync: readers and coordinators see no difference.
            self._check_writes(partition)

    def watermark_moved(self, partition: Partition) -> None:
        """A follower's fetch, or another ISR, has moved the high or the low watermark: what waits for it is woken after
        the turn, since a fetch may be reading partitions now."""
        if not self._moved:
            self._call_soon(self._wake_moved)
        self._moved[partition] = None

    def _wake_moved(self) -> None:
        moved, self._moved = self._moved, {}
        for partition in moved:
            self.changed(partition)
            self._check_writes(partition)

    def followed(self, partition: Partition) -> None:
        """A followed partition has new records, or another high watermark or log start."""
        self.changed(partition)
        self.flush_if_due(partition)

    def follower_failed(self, partition: Partition, error: StorageError) -> None:
        """The log of a followed partition could not be changed. What is no disk's fault is its fetcher's to log."""
        if isinstance(error, (DiskFull, LogDirFailed)):
            self._write_failed(partition, error)

    def acknowledge(
        self,
        publications: Collection[Publication],
        *,
        by_all: bool,
        timeout_ms: int,
        then: Callable[[Collection[Publication]], None],
    ) -> None:
        """Call ``then`` once all writes are acknowledged, or after ``timeout_ms`` with those that are not."""
        waiting = DelayedProduce(publications, by_all=by_all, then=then)
        self.produce_purgatory.watch(waiting, {one.partition for one in publications}, timeout_ms)

    def partition_failed(self, partition: Partition, error: StorageError) -> None:
        """A read from, or a write to, a partition's log has failed.

        Where another process has removed files of the partition, and nothing else of the data directory, the partition
        goes offline alone until the next start. Otherwise see `disk_failed`. Among other brokers the directory fails:
        controllers let another broker lead the partitions of a directory, not of less.
        """
        topic_partition = partition.topic_partition
        if isinstance(error, FilesRemoved) and self._replication is not None:
            self.disk_failed(partition.log_dir, LogDirFailed(str(error)))
        elif isinstance(error, FilesRemoved) and self._logs.let_go_removed(topic_partition):
            self.take_offline([topic_partition])
            self._on_partition_removed(topic_partition, error)
        else:
            self.disk_failed(partition.log_dir, error)

    def disk_failed(self, directory: LogDir, error: StorageError) -> None:
        """A read from, or a write to, a data directory has failed.

        A directory that has failed goes offline with its partitions until the next start: a failed disk is not used
        again. A full disk and a lack of descriptors may pass, so the directory stays online.
        """
        if not isinstance(error, LogDirFailed) or directory.has_failed:
            return
        partitions = {log.topic_partition for log in self._logs.directory_failed(directory)}
        self.take_offline(partitions)
        self._on_directory_failed(directory, error, partitions)

    def work_failed(self, directory: LogDir, error: Exception) -> None:
        """Background work in a directory has failed. Raises errors that are no StorageError."""
        if not isinstance(error, StorageError):
            raise error
        if not isinstance(error, LogDirFailed):
            log.error("%s", error)
        self.disk_failed(directory, error)

    def changed(self, partition: Partition) -> None:
        """Notify fetch sessions and waiting fetches of new records, high watermark, log start, leadership or config."""
        partition.notify_watchers()
        self.fetch_purgatory.check(partition)

    def delete_records(
        self,
        deletions: Collection[RecordDeletion],
        *,
        timeout_ms: int,
        then: Callable[[Collection[RecordDeletion], Failures], None],
    ) -> None:
        """Call ``then`` once the deletions are in the checkpoints and on all replicas: with the deletions that are not
        after ``timeout_ms``, and with the error of each directory whose checkpoint could not be written.

        The deletions themselves are done already (`Partition.delete_records_before`). Kafka writes log start offsets
        once a minute, so that deleted records may be back after a crash; here an answered deletion is final.
        """

        def saved(failures: Failures) -> None:
            for directory, error in failures.items():
                self.disk_failed(directory, error)
            written = [one for one in deletions if one.partition.log_dir not in failures]
            waiting = DelayedDeleteRecords(written, lambda late: then(late, failures))
            self.delete_records_purgatory.watch(waiting, {one.partition for one in written}, timeout_ms)

        for one in deletions:
            self.changed(one.partition)
        self._log_starts.save(saved)

    def flush_what_is_due(self) -> None:
        """Flush logs whose ``flush.ms`` has passed, rolled segments, and late flushes; a background task calls it."""
        now_ms = self._clock.now_ms()
        for partition in list(self._partitions.values()):  # a failed flush takes partitions offline
            if not partition.is_gone and (partition.is_flush_late or partition.log.needs_flush(now_ms)):
                self.flush(partition)

    def _published(self, partition: Partition, has_moved: bool) -> None:
        """New records can be read: wake waiting requests, and flush if a flush is due.

        ``has_moved``: the high watermark may have moved. With followers it most often has not, and there may be as many
        waiting producers as requests under way: none of them is asked (bench: replication-produce).
        """
        if partition.watchers:
            partition.notify_watchers()
        self.fetch_purgatory.check(partition)
        if has_moved:
            self.produce_purgatory.check(partition)
        self.flush_if_due(partition)

    def flush_if_due(self, partition: Partition) -> None:
        """Begin a flush if one is due."""
        if partition.log.needs_flush(self._clock.now_ms()):
            self.flush(partition)

    def go_on(self, partition: Partition) -> None:
        """The log of a partition was held, and is released: write what has waited, and flush what is due."""
        self.appender.go_on(partition)
        if not partition.is_gone:
            self.changed(partition)
            self.flush_if_due(partition)

    def flush(self, partition: Partition, done: Callable[[], None] | None = None) -> None:
        """Do the flush that is due; ``done`` is called when it is done or has failed."""

        def flushed() -> None:
            self.produce_purgatory.check(partition)
            if done is not None:
                done()

        def failed(error: Exception) -> None:
            if not partition.is_gone:  # else the files have been renamed or removed
                self._flush_failed(partition, error)
            if done is not None:
                done()

        self._flusher_of(partition).flush(partition, flushed, failed)

    def _flush_failed(self, partition: Partition, error: Exception) -> None:
        if not isinstance(error, StorageError):
            raise error
        if not partition.is_flush_late and not isinstance(error, LogDirFailed):
            log.error("flushing %s failed: %s", partition.topic_partition, error)
        partition.is_flush_late = True
        partition.disk_failed(error)

    def _write_failed(self, partition: Partition, error: StorageError) -> None:
        if partition.is_gone:
            return
        if isinstance(error, FileTooLarge):
            log.warning("%s goes on in a new segment: %s", partition.topic_partition, error)
            return
        if isinstance(error, DiskFull) and partition.disk_reserve is not None:
            partition.disk_reserve.found_full(error)  # logs once
            return
        if not isinstance(error, LogDirFailed):
            log.error("writing to %s failed: %s", partition.topic_partition, error)
        partition.disk_failed(error)
