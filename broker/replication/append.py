"""Appending as a leader: stage in the handler's turn, write at its end, publish, answer the producers.

All batches that the requests of one turn have for one partition are written in one `writev`. Very large writes go to
the writer thread, where `write` overlaps with receiving; batches that arrive meanwhile for the same log wait behind it.
"""

from collections.abc import Callable

from broker.replication.partition import Partition
from broker.replication.transaction_marker import TransactionMarker
from broker.request.faults import Fault, NotLeaderOrFollower
from broker.runtime.clock import Clock
from broker.runtime.worker_thread import WorkerThread
from storage.appending import LogWrite, StagedAppend
from storage.batch.markers import encode_marker
from storage.batch.validation import validate_produced
from storage.errors import LogDirFailed, StorageError

LARGE_WRITE_BYTES = 4 << 20
"""From this size on a write would hold the loop for a millisecond. Below it, the two hops to the thread and back cost
clients on the same processors more than they gain (docs/performance.md, "What profiles show")."""


class Publication:
    """A write that is in the log, with the offsets that its acknowledgement may still wait for."""

    __slots__ = ("end_offset", "flush_offset", "is_complete", "leader_epoch", "partition")

    def __init__(self, partition: Partition) -> None:
        log = partition.log
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.end_offset = log.log_end_offset
        """The high watermark that acks=all waits for."""
        self.flush_offset = log.due_flush_offset
        """Up to where the log must be on disk before any acknowledgement; 0 unless ``flush.messages`` is reached."""
        self.is_complete = not self.flush_offset and log.high_watermark >= self.end_offset
        """Whether no acknowledgement has to wait, whatever the acks: on a single node almost always."""

    @property
    def is_lost(self) -> bool:
        """Whether this node can no longer acknowledge the write: the partition is gone, or another node leads it, or
        has led it since, so that the write may have been removed."""
        partition = self.partition
        return partition.leader != partition.node_id or partition.led_since_epoch > self.leader_epoch

    @property
    def has_too_few_replicas(self) -> bool:
        """Whether fewer replicas are in sync by now than ``min.insync.replicas`` demands."""
        return not self.partition.has_enough_in_sync

    def why_lost(self) -> Exception:
        """The error for the producer of a lost write."""
        partition = self.partition
        if partition.is_gone:
            return partition.why_gone()
        return NotLeaderOrFollower(
            f"{partition.topic_partition} is led by node {partition.leader} in epoch {partition.leader_epoch} now"
        )

    def is_acknowledged(self, *, by_all: bool) -> bool:
        """Whether the write is acknowledged: flushed if a flush is due, and with ``by_all`` on all replicas in sync.

        A lost write is not, however far the log has come by now: other records may have its offsets."""
        if self.is_lost:
            return False
        log = self.partition.log
        return log.recovery_point >= self.flush_offset and (not by_all or log.high_watermark >= self.end_offset)


Done = Callable[[StagedAppend, Publication | StorageError | Fault], None]


class AppendStats:
    """Counts of batches and of writes to files since the start."""

    __slots__ = ("batches", "failed_writes", "large_writes", "writes")

    def __init__(self) -> None:
        self.batches = 0
        self.writes = 0
        self.large_writes = 0
        self.failed_writes = 0


class Appender:
    """The three steps of an append, over all partitions of this node."""

    def __init__(
        self,
        clock: Clock,
        writer: WorkerThread,
        *,
        call_soon: Callable[[Callable[[], None]], object],
        on_published: Callable[[Partition, bool], None],
        on_failed: Callable[[Partition, StorageError], None],
    ) -> None:
        """``on_published`` is called with each partition that has new records, and whether its high watermark may have
        moved with them; ``on_failed`` where they could not be written."""
        self._clock = clock
        self._writer = writer
        self._call_soon = call_soon
        self._on_published = on_published
        self._on_failed = on_failed
        self._staged_in_turn: dict[Partition, None] = {}  # a set that keeps its order
        self._turn_ms = 0
        self._writes_soon = False
        """Whether a call of `write_staged` is scheduled on the loop."""
        self.stats = AppendStats()

    def append(self, partition: Partition, records: memoryview | None, done: Done) -> None:
        """Check one batch and stage it; ``done`` is called once the batch is written, or the write has failed.

        Raises a `StorageError` if the batch itself is refused; ``done`` is not called then.
        """
        log = partition.log
        # The wall clock is read once a turn.
        now_ms = self._turn_ms = self._turn_ms or self._clock.now_ms()
        staged = log.stage(validate_produced(records, log.rules, now_ms), leader_epoch=partition.leader_epoch)
        staged.tag = done  # called with the staged batch and the outcome once it is written
        self._staged_in_turn[partition] = None

    def append_own(self, partition: Partition, batch: bytearray, done: Done) -> None:
        """Stage a batch that the broker itself made. Outside of a handler's turn, it is written in the next turn of the
        loop.

        Raises BatchLargerThanSegment; ``done`` is not called then.
        """
        staged = partition.log.stage_trusted(batch, leader_epoch=partition.leader_epoch)
        staged.tag = done
        self._staged_in_turn[partition] = None
        self.write_soon()

    def append_marker(self, partition: Partition, marker: TransactionMarker, done: Done) -> None:
        """Stage the marker that ends a transaction; outside of a handler's turn, it is written in the next turn of the
        loop.

        Raises InvalidProducerEpoch, TransactionCoordinatorFenced, BatchLargerThanSegment; ``done`` is not called then.
        """
        batch = encode_marker(
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            is_commit=marker.is_commit,
            timestamp=self._clock.now_ms(),
        )
        staged = partition.log.stage_marker(
            batch, transaction_version=marker.transaction_version, leader_epoch=partition.leader_epoch
        )
        staged.tag = done
        self._staged_in_turn[partition] = None
        self.write_soon()

    def write_soon(self) -> None:
        """Write what is staged in the next turn of the loop, if no handler's turn ends before."""
        if not self._writes_soon:
            self._writes_soon = True
            self._call_soon(self._write_soon)

    def go_on(self, partition: Partition) -> None:
        """Write what was staged while the log of a partition was held."""
        if partition.owes_epoch_start and not partition.log.staged:
            partition.begin_epoch()
        self._write(partition)

    def _write_soon(self) -> None:
        self._writes_soon = False
        self.write_staged()

    def take_back(self, partition: Partition) -> None:
        """The leadership of a partition changes: refuse staged batches of the old epoch that are not being written."""
        refused = partition.log.take_back_unwritten()
        if refused:
            fault = NotLeaderOrFollower(f"{partition.topic_partition} has a new leader epoch, {partition.leader_epoch}")
            partition.stats.refused_batches += len(refused)
            for staged in refused:
                staged.tag(staged, fault)

    def write_staged(self) -> None:
        """Write the batches that this turn has staged; called at the end of each turn of a handler.

        What the publications stage is written, too, before any answer of this turn is sent. So the markers of a
        transaction and its end are in the log when its producer learns of the commit, and the next transaction can
        begin at once.
        """
        while self._staged_in_turn:
            self._write_all()
        self._turn_ms = 0

    def _write_all(self) -> None:
        partitions, self._staged_in_turn = self._staged_in_turn, {}
        self._turn_ms = 0
        # First all writes, then all publications: a large write evicts our code from the processor's caches.
        written = [(partition, write) for partition in partitions if (write := self._write_once(partition)) is not None]
        for partition, write in written:
            self._publish(partition, write)
            if partition.log.staged:
                self._write(partition)

    def _write(self, partition: Partition) -> None:
        """Write and publish all staged batches of a partition."""
        while (write := self._write_once(partition)) is not None:
            self._publish(partition, write)

    def _write_once(self, partition: Partition) -> LogWrite | None:
        """Write the staged batches that fit into one segment, and return the write for publishing. None where there is
        nothing to publish: no batch is staged, the write has failed or the disk is full, or the writer thread has the
        log, which then goes on with the remaining batches."""
        write: LogWrite | None = None
        try:
            now_ms = self._clock.now_ms()
            write = partition.log.begin_write(now_ms)
            if write is None:
                return None
            if partition.is_gone:  # since it was staged
                raise partition.why_gone()
            if partition.disk_reserve is not None:
                partition.disk_reserve.take(write.size, now_ms)
            if write.size >= LARGE_WRITE_BYTES:
                self._write_in_thread(partition, write)
                return None
            write.perform()
        except StorageError as error:
            self._fail(partition, write, error)
            return None
        return write

    def _write_in_thread(self, partition: Partition, write: LogWrite) -> None:
        def written(_: None) -> None:
            self._publish(partition, write)
            self._write(partition)

        def failed(error: Exception) -> None:
            if not isinstance(error, StorageError):
                raise error
            self._fail(partition, write, error)

        self.stats.large_writes += 1
        self._writer.submit(write.perform, written, failed)

    def _publish(self, partition: Partition, write: LogWrite) -> None:
        log = partition.log
        if partition.is_gone:  # since the write began
            self._fail(partition, write, partition.why_gone())
            return
        self.stats.writes += 1
        self.stats.batches += len(write.staged)
        try:
            log.complete_write(write)
        except LogDirFailed as error:
            # The batches are in the log, but their directory is lost: they must not be acknowledged.
            for staged in write.staged:
                staged.tag(staged, error)
            self._on_failed(partition, error)
            return
        has_moved = True
        if partition.owes_epoch_start:
            partition.begin_epoch()
        else:
            has_moved = partition.advance_high_watermark()
        publication = Publication(partition)
        for staged in write.staged:
            staged.tag(staged, publication)
        self._on_published(partition, has_moved)

    def _fail(self, partition: Partition, write: LogWrite | None, error: StorageError) -> None:
        """The write failed: the batches staged with it and behind it are rolled back, and their producers answered."""
        self.stats.failed_writes += 1
        for staged in partition.log.fail_write(write, error):
            partition.stats.refused_batches += 1
            staged.tag(staged, error)
        if partition.owes_epoch_start:
            partition.begin_epoch()
        self._on_failed(partition, error)
