"""All partitions of this node: who appends to them, who reads them, who waits for them."""

import logging
from collections.abc import Callable, Collection, Iterable

from broker.clock import Clock
from broker.offload import Flusher, WorkerThread
from broker.purgatory import Purgatory
from broker.replication.append import Appender, Publication
from broker.replication.delayed import DelayedDeleteRecords, DelayedFetch, DelayedProduce, RecordDeletion
from broker.replication.fetch import Fetch, FetchRequirements, FetchRound, Told
from broker.replication.partition import Partition
from broker.request.faults import UnknownTopicOrPartition
from storage.errors import LogDirFailed, StorageError

log = logging.getLogger(__name__)

SaveLogStarts = Callable[[Callable[[], None], Callable[[Exception], None]], None]
"""Write down where logs begin, in another thread, and call the first when it is done, the second with an error."""


class ReplicaManager:
    """The partitions that this node holds, who appends to them, and the requests that wait for them."""

    def __init__(
        self,
        clock: Clock,
        *,
        writer: WorkerThread,
        flusher_of: Callable[[Partition], Flusher],
        produce_purgatory: Purgatory,
        fetch_purgatory: Purgatory,
        delete_records_purgatory: Purgatory,
        save_log_starts: SaveLogStarts,
        on_disk_failure: Callable[[StorageError], None],
    ) -> None:
        self._clock = clock
        self._save_log_starts = save_log_starts
        self._flusher_of = flusher_of
        self._on_disk_failure = on_disk_failure
        self._partitions: dict[tuple[str, int], Partition] = {}
        self.appender = Appender(clock, writer, on_published=self._published, on_failed=self._write_failed)
        self.produce_purgatory = produce_purgatory
        self.fetch_purgatory = fetch_purgatory
        self.delete_records_purgatory = delete_records_purgatory

    def host(self, partition: Partition) -> None:
        """Take a partition in."""
        self._partitions[partition.topic_partition] = partition

    def drop(self, partition: Partition) -> None:
        """Let go of a partition whose topic is deleted; whoever waits for it is told at once."""
        del self._partitions[partition.topic_partition]
        partition.is_removed = True
        self.changed(partition)
        self.produce_purgatory.check(partition)
        self.delete_records_purgatory.check(partition)

    def partition(self, topic: str, index: int) -> Partition:
        """The partition, or `UnknownTopicOrPartition`."""
        try:
            return self._partitions[topic, index]
        except KeyError:
            raise UnknownTopicOrPartition(f"this node has no partition {index} of topic {topic!r}") from None

    def find(self, topic: str, index: int) -> Partition | None:
        """The partition, or None."""
        return self._partitions.get((topic, index))

    def partitions(self) -> Iterable[Partition]:
        """All partitions of this node."""
        return self._partitions.values()

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

    def fetch(self, fetch: Fetch, requirements: FetchRequirements, then: Callable[[Told], None]) -> None:
        """Call ``then`` with what can be read: now if it is enough or can't get more, else when it is or time is up."""
        partitions = fetch.partitions()
        found = FetchRound(partitions, requirements)
        if (
            found.size >= requirements.min_bytes
            or found.has_news
            or requirements.max_wait_ms <= 0
            or not (wakers := fetch.wakers())
        ):
            then(fetch.conclude(partitions, found.reads))
            return
        self.fetch_purgatory.watch(DelayedFetch(fetch, requirements, then), wakers, requirements.max_wait_ms)

    def changed(self, partition: Partition) -> None:
        """Something that a fetch can see has changed: records, high watermark, log start, leadership, config."""
        partition.tell_watchers()
        self.fetch_purgatory.check(partition)

    def delete_records(
        self,
        deletions: Collection[RecordDeletion],
        *,
        timeout_ms: int,
        then: Callable[[Collection[RecordDeletion], StorageError | None], None],
    ) -> None:
        """Call ``then`` once the deletions are written down and have reached all replicas: with those that have not
        after ``timeout_ms``, or with the error that keeps them from being written down.

        They are made already (`Partition.delete_records_before`). Kafka writes down once a minute where logs begin, so
        that there, what was deleted may be back after a crash; here it stays away, as an answer lets one think.
        """

        def saved() -> None:
            waiting = DelayedDeleteRecords(deletions, lambda late: then(late, None))
            self.delete_records_purgatory.watch(waiting, {one.partition for one in deletions}, timeout_ms)

        def failed(error: Exception) -> None:
            if not isinstance(error, StorageError):
                raise error
            then((), error)
            self._on_disk_failure(error)

        for one in deletions:
            self.changed(one.partition)
        self._save_log_starts(saved, failed)

    def flush_what_is_due(self) -> None:
        """Flush the logs whose ``flush.ms`` has passed, and segments rolled since; called by the upkeep."""
        now_ms = self._clock.now_ms()
        for partition in self._partitions.values():
            if partition.log.needs_flush(now_ms):
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
            if not isinstance(error, StorageError):
                raise error
            self._on_disk_failure(error)

        self._flusher_of(partition).flush(partition, flushed, failed)

    def _write_failed(self, partition: Partition, error: StorageError) -> None:
        log.error("writing to %s failed: %s", partition.topic_partition, error)
        if isinstance(error, LogDirFailed):
            self._on_disk_failure(error)
