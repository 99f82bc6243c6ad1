"""All partitions of this node: who appends to them, who reads them, who waits for them."""

import logging
from collections.abc import Callable, Collection, Iterable

from broker.replication.append import Appender, Publication
from broker.replication.delayed import DelayedDeleteRecords, DelayedProduce, RecordDeletion
from broker.replication.log_start_checkpoints import Failures, LogStartCheckpoints
from broker.replication.partition import LeaderAndIsr, Partition, offline
from broker.replication.traffic import ReplicaStats, Traffic, count_refused
from broker.request.faults import UnknownTopicOrPartition
from broker.runtime.clock import Clock
from broker.runtime.purgatory import Purgatory
from broker.runtime.worker_thread import Flusher, WorkerThread
from storage.errors import DiskFull, LogDirFailed, StorageError
from storage.log_dir import LogDir
from storage.log_manager import LogManager
from storage.topic_partition import TopicPartition

log = logging.getLogger(__name__)

DirectoryFailed = Callable[[LogDir, StorageError, Collection[TopicPartition]], None]
"""A data directory cannot be used any more, and these partitions of it."""


class ReplicaManager:
    """The partitions that this node holds, who appends to them, and the requests that wait for them."""

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
    ) -> None:
        self._clock = clock
        self._logs = logs
        self._log_starts = log_starts
        self._flusher_of = flusher_of
        self._on_directory_failed = on_directory_failed
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._offline: set[tuple[str, int]] = set()
        """Partitions of this node whose data directory cannot be used, in this run of the process."""
        self._leadership_watchers: dict[str, Callable[[Partition], None]] = {}
        self.stats = ReplicaStats()
        self.gone = Traffic()
        """Of partitions that are no longer here: what all topics have had together only grows."""
        self.appender = Appender(
            clock, writer, call_soon=call_soon, on_published=self._published, on_failed=self._write_failed
        )
        self.produce_purgatory = produce_purgatory
        self.fetch_purgatory = fetch_purgatory
        self.delete_records_purgatory = delete_records_purgatory

    def end_waiting(self) -> None:
        """Answer every request that waits as if its time were over. No request waits from now on."""
        for purgatory in (self.produce_purgatory, self.fetch_purgatory, self.delete_records_purgatory):
            purgatory.close()

    def watch_leadership(self, topic: str, told: Callable[[Partition], None]) -> None:
        """Call ``told`` with each partition of ``topic`` that this node comes to lead, or leads no more: those that it
        hosts already at once, and from then on whoever is hosted, led by another, deleted or offline."""
        self._leadership_watchers[topic] = told
        for partition in [one for one in self._partitions.values() if one.topic_partition.topic == topic]:
            told(partition)

    def host(self, partition: Partition) -> None:
        """Take a partition in."""
        self._offline.discard(partition.topic_partition)
        self._partitions[partition.topic_partition] = partition
        self._tell_leadership(partition)

    def drop(self, topic: str, index: int) -> None:
        """Let go of a partition whose topic is deleted; whoever waits for it is told at once."""
        self._offline.discard((topic, index))
        partition = self._partitions.pop((topic, index), None)
        if partition is not None:
            self._tell_gone(partition)

    def take_offline(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Their data directory cannot be used: from now on they answer so, and whoever waits for them is told at once.

        Partitions that were never hosted may be among them.
        """
        gone: list[Partition] = []
        for topic_partition in topic_partitions:
            self._offline.add(topic_partition)
            partition = self._partitions.pop(topic_partition, None)
            if partition is not None:
                gone.append(partition)
        for partition in gone:
            self._tell_gone(partition)

    def _tell_gone(self, partition: Partition) -> None:
        partition.go()
        self.gone.add(partition)
        self.leadership_changed(partition)

    def leadership_changed(self, partition: Partition) -> None:
        """Another node leads it now, or this one, or nobody."""
        self.changed(partition)
        # Coordinators first: what they wait for they then wait for no more.
        self._tell_leadership(partition)
        self.produce_purgatory.check(partition)
        self.delete_records_purgatory.check(partition)

    def _tell_leadership(self, partition: Partition) -> None:
        told = self._leadership_watchers.get(partition.topic_partition.topic)
        if told is not None:
            told(partition)

    def partition(self, topic: str, index: int) -> Partition:
        """The partition. Raises `UnknownTopicOrPartition`, and LogDirFailed for one that is offline."""
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
        """The partition, or None."""
        return self._partitions.get((topic, index))

    def partitions(self) -> Iterable[Partition]:
        """All partitions of this node."""
        return self._partitions.values()

    def refused(self, partition: Partition, batch_bytes: int, error: Exception) -> None:
        """A client's batch for a partition was not appended."""
        count_refused(partition, batch_bytes, error, self.stats)

    def apply(self, partition: Partition, state: LeaderAndIsr) -> None:
        """A partition is led in another way from now on: every request and coordinator that depends on it is told.

        Raises StorageError; nobody is told then.
        """
        if partition.is_leader and state.leader == partition.node_id:
            self.stats.isr_shrinks += bool(partition.in_sync_replicas - state.in_sync_replicas)
            self.stats.isr_expands += bool(state.in_sync_replicas - partition.in_sync_replicas)
        is_new_epoch = state.leader_epoch != partition.leader_epoch
        partition.apply(state)
        if is_new_epoch:
            self.appender.take_back(partition)
        self.leadership_changed(partition)

    def acknowledge(
        self,
        publications: Collection[Publication],
        *,
        by_all: bool,
        timeout_ms: int,
        then: Callable[[Collection[Publication]], None],
    ) -> None:
        """Call ``then`` once all of it is acknowledged, or with what is not after ``timeout_ms``."""
        waiting = DelayedProduce(publications, by_all=by_all, then=then)
        self.produce_purgatory.watch(waiting, {one.partition for one in publications}, timeout_ms)

    def disk_failed(self, directory: LogDir, error: StorageError) -> None:
        """Something could not be written to a data directory, or read from it.

        A directory that has failed goes offline with its partitions, for as long as the process lives: what a disk said
        once is not asked again. A full disk may have room again, and descriptors come back.
        """
        if not isinstance(error, LogDirFailed) or directory.has_failed:
            return
        partitions = {log.topic_partition for log in self._logs.directory_failed(directory)}
        self.take_offline(partitions)
        self._on_directory_failed(directory, error, partitions)

    def work_failed(self, directory: LogDir, error: Exception) -> None:
        """Work beside the requests could not be done in a directory. Raises what is no StorageError."""
        if not isinstance(error, StorageError):
            raise error
        if not isinstance(error, LogDirFailed):
            log.error("%s", error)
        self.disk_failed(directory, error)

    def changed(self, partition: Partition) -> None:
        """Something that a fetch can see has changed: records, high watermark, log start, leadership, config."""
        partition.tell_watchers()
        self.fetch_purgatory.check(partition)

    def delete_records(
        self,
        deletions: Collection[RecordDeletion],
        *,
        timeout_ms: int,
        then: Callable[[Collection[RecordDeletion], Failures], None],
    ) -> None:
        """Call ``then`` once the deletions are written down and have reached all replicas: with those that have not
        after ``timeout_ms``, and with what keeps them from being written down, directory by directory.

        They are made already (`Partition.delete_records_before`). Kafka writes down once a minute where logs begin, so
        that there, what was deleted may be back after a crash; here it stays away, as an answer lets one think.
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
        """Flush the logs whose ``flush.ms`` has passed, rolled segments, and what is late; called by the upkeep."""
        now_ms = self._clock.now_ms()
        for partition in list(self._partitions.values()):  # one may go offline over it, and others with it
            if not partition.is_gone and (partition.is_flush_late or partition.log.needs_flush(now_ms)):
                self._flush(partition)

    def _published(self, partition: Partition) -> None:
        """New records can be read: wake who waits for them, and flush if that is due."""
        if partition.watchers:
            partition.tell_watchers()
        self.fetch_purgatory.check(partition)
        self.produce_purgatory.check(partition)
        if partition.log.needs_flush(self._clock.now_ms()):
            self._flush(partition)

    def _flush(self, partition: Partition) -> None:
        def flushed() -> None:
            self.produce_purgatory.check(partition)

        def failed(error: Exception) -> None:
            if partition.is_gone:
                return  # its files have other names by now, or none
            if not isinstance(error, StorageError):
                raise error
            if not partition.is_flush_late and not isinstance(error, LogDirFailed):
                log.error("flushing %s failed: %s", partition.topic_partition, error)
            partition.is_flush_late = True
            partition.disk_failed(error)

        self._flusher_of(partition).flush(partition, flushed, failed)

    def _write_failed(self, partition: Partition, error: StorageError) -> None:
        if partition.is_gone:
            return
        if isinstance(error, DiskFull) and partition.disk_reserve is not None:
            partition.disk_reserve.found_full(error)  # says so once
            return
        if not isinstance(error, LogDirFailed):
            log.error("writing to %s failed: %s", partition.topic_partition, error)
        partition.disk_failed(error)
