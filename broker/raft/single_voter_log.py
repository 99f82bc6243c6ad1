"""``__cluster_metadata-0`` with this node as its only voter: a `RaftClient` (KIP-500).

This node leads from its start on, and records that are on its disk are committed.

append   one batch for each change, written at once; the flusher syncs, one fsync for all batches before it;
         then the listener gets the committed batches, and each change is answered
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import Final, NamedTuple

from broker.metadata.image.records import Record
from broker.metadata.record_versions import version_of
from broker.metadata.stats import MetadataStats
from broker.metadata.topic_rules import CLUSTER_METADATA
from broker.raft.batches import encode_control_records, encode_records
from broker.raft.client import RaftListener
from broker.raft.quorum import Quorum, only_voter
from broker.raft.snapshots import READ_ONLY, SnapshotId, encode_snapshot, list_snapshots
from broker.runtime.clock import Clock
from broker.runtime.worker_thread import Flusher, WorkerThread
from config.broker_settings import BrokerSettings
from config.listeners import Listener
from protocol.records.control_records import ControlRecord, KRaftVersion
from storage.checkpoints import RECOVERY_POINTS, write_offset_checkpoint
from storage.errors import DiskFull, LogDirFailed, TooManyOpenFiles
from storage.files import FileSystem
from storage.flushing import FlushTarget
from storage.log import Log
from storage.retention import apply_retention
from storage.topic_partition import TopicPartition

log = logging.getLogger(__name__)

METADATA_PARTITION: Final = TopicPartition(CLUSTER_METADATA, 0)
METADATA_TOPIC_ID: Final = bytes(15) + b"\x01"

RETRY_MS: Final = 1_000
"""How long a flush that could not open a file (no descriptor) waits until it is tried again."""

RECOVERY_POINT_AFTER_MS: Final = 1_000
"""How long after a flush the recovery point is written."""

_KEPT_SNAPSHOTS: Final = 2
"""The newest snapshot, and the snapshot before it in case the disk loses the new file. The log is kept from the older
snapshot on, as Kafka keeps it."""


class _Append(NamedTuple):
    """Records on their way to the disk, and the callback for when they are on disk."""

    base_offset: int
    next_offset: int
    records: Sequence[Record]
    """Empty where an answer waits for earlier records, and in a control batch."""
    then: Callable[[], None]
    written_ms: int
    """When the records were written, in milliseconds of the monotonic clock."""


class SingleVoterLog:
    """The one writer of the metadata log. All methods belong to the loop's thread."""

    def __init__(
        self,
        *,
        files: FileSystem,
        log: Log,
        listener: RaftListener,
        quorum: Quorum,
        leader_epoch: int,
        clock: Clock,
        flusher: Flusher,
        worker: WorkerThread,
        on_fatal: Callable[[Exception], None],
        once: Callable[[int, Callable[[], None]], None],
        settings: BrokerSettings,
        bytes_behind_snapshot: int,
    ) -> None:
        """``once`` calls back after so many milliseconds, unless the broker stops before; see `broker.raft.opening`."""
        self._files = files
        self._log = log
        self._listener = listener
        self.quorum = quorum
        self.leader_epoch = leader_epoch
        """The raft epoch in which this node leads."""
        self._clock = clock
        self._flusher = flusher
        self._worker = worker
        self._on_fatal = on_fatal
        self._once = once
        self._node_id = settings.node_id
        self._snapshot_after_bytes = settings.metadata_log_max_record_bytes_between_snapshots
        self._snapshot_after_ms = settings.metadata_log_max_snapshot_interval_ms
        self._most_bytes_kept = settings.metadata_max_retention_bytes
        self._kept_ms = settings.metadata_max_retention_ms
        self._bytes_behind_snapshot = bytes_behind_snapshot
        self._last_snapshot_ms = clock.now_ms()
        self.last_append_ms = self._last_snapshot_ms
        """When the last records were written (wall clock)."""
        self.stats = MetadataStats(self._last_snapshot_ms)
        self._is_writing_snapshot = False
        self._under_way: deque[_Append] = deque()
        self._flush_owed: FlushTarget | None = None
        self._will_write_recovery_point = False
        self._failure: Exception | None = None
        self.on_committed: Callable[[], None] = _nothing
        """Called when the high watermark has risen and the changes below it are answered."""
        self._is_lack_logged = False
        """Whether it has been logged that no record can be written."""

    @property
    def leader_id(self) -> int:
        """The id of this node, which always leads."""
        return self._node_id

    @property
    def log(self) -> Log:
        """The log itself, for reading."""
        return self._log

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._log.log_end_offset

    @property
    def high_watermark(self) -> int:
        """Every record below this offset is on disk, and so committed."""
        return self._log.high_watermark

    @property
    def directory(self) -> str:
        """The path of the log's directory."""
        return self._log.directory

    def append(self, records: Sequence[tuple[Record, int]], then: Callable[[], None]) -> int:
        """Write ``records``, each with its version, as one batch; they take effect together or not at all.

        ``then`` is called once they are on disk and published.

        Returns: the offset of the first record.

        Raises:
            DiskFull, TooManyOpenFiles: the records could not be written now and nothing has changed; try again later.
            StorageError: the records could not be written, and no others can be: `on_fatal` has been called.
        """
        first_offset = self._log.log_end_offset
        batch = encode_records(
            records, base_offset=first_offset, leader_epoch=self.leader_epoch, now_ms=self._clock.now_ms()
        )
        self._write(batch, [record for record, _ in records], then)
        return first_offset

    def append_control(self, records: Sequence[ControlRecord]) -> None:
        """Write control records as one batch. It becomes durable with the next append, if not before.

        Raises StorageError, like `append`.
        """
        first_offset = self._log.log_end_offset
        batch = encode_control_records(
            records, base_offset=first_offset, leader_epoch=self.leader_epoch, now_ms=self._clock.now_ms()
        )
        self._write(batch, (), _nothing)
        for record in records:
            self.quorum.replay(record)

    def upgrade_kraft_version(self, directory_id: bytes, endpoint: Listener) -> None:
        """Raise kraft.version from 0 to 1: the log gets this node as its only voter (KIP-853), with the id of the log's
        directory, at ``endpoint``.

        Raises StorageError, like `append`.
        """
        voters = only_voter(self._node_id, directory_id, endpoint)
        self.append_control([KRaftVersion(kraft_version=1), voters])

    def when_durable(self, then: Callable[[], None]) -> None:
        """Call ``then`` once all records appended so far are on disk and published; at once, if they are.

        A refusal, too, may rest on a change that could still be lost, so it waits here.

        Raises:
            StorageError: the log can't be written any more.
        """
        if self._failure is not None:
            raise self._failure
        if self._under_way:
            end_offset = self._log.log_end_offset
            self._under_way.append(_Append(end_offset, end_offset, (), then, self._clock.monotonic_ms()))
        else:
            then()

    def close(self) -> None:
        """Write the recovery point and close the files. No append and no job of the worker may be running."""
        self._log.close(self._clock.now_ms())

    def _write(self, batch: bytearray, records: Sequence[Record], then: Callable[[], None]) -> None:
        if self._failure is not None:
            raise self._failure
        now_ms = self._clock.now_ms()
        base_offset = self._log.log_end_offset
        try:
            self._log.stage_trusted(batch, leader_epoch=self.leader_epoch)
            self._log.append_all(now_ms)
        except LogDirFailed as error:
            self._fail(error)
            raise
        except (DiskFull, TooManyOpenFiles) as error:
            # The log has taken the batch back, in memory and in its file.
            if not self._is_lack_logged:
                self._is_lack_logged = True
                log.error("the metadata log cannot be written now, changes are refused until it can: %s", error)
            raise
        if self._is_lack_logged:
            self._is_lack_logged = False
            log.info("the metadata log can be written again")
        self._bytes_behind_snapshot += len(batch)
        self.last_append_ms = now_ms
        self.stats.appends += 1
        self.stats.records += len(records)
        written_ms = self._clock.monotonic_ms()
        self._under_way.append(_Append(base_offset, self._log.log_end_offset, records, then, written_ms))
        self._flush()

    def _flush(self) -> None:
        self._flusher.flush(self, self._flushed, self._flush_failed)

    def _flush_failed(self, error: Exception) -> None:
        if isinstance(error, TooManyOpenFiles):
            # No sync has failed: a file could not be opened for it.
            log.warning("the metadata log is flushed again in %d ms: %s", RETRY_MS, error)
            self._clock.call_at(self._clock.monotonic_ms() + RETRY_MS, self._flush)
        else:
            self._fail(error)

    # What the flusher calls (`broker.runtime.worker_thread.Flushable`).

    def begin_flush(self) -> FlushTarget | None:
        """The flush of all records written so far, or of the last flush again if that could not open its files. Raises
        StorageError."""
        if self._failure is not None:
            raise self._failure
        if self._flush_owed is None:
            self._flush_owed = self._log.begin_flush(self._clock.now_ms(), everything=True)
        return self._flush_owed

    def complete_flush(self, target: FlushTarget) -> None:
        """``target`` is on disk."""
        self._flush_owed = None
        self._log.complete_flush(target)

    def _flushed(self) -> None:
        end_offset = self._log.recovery_point
        has_risen = self._log.advance_high_watermark(end_offset)
        committed: list[_Append] = []
        while self._under_way and self._under_way[0].next_offset <= end_offset:
            committed.append(self._under_way.popleft())
        self._hand_over(committed)
        for change in committed:
            if self._failure is None:
                change.then()
        if has_risen:
            self.on_committed()
        if self._under_way and self._failure is None:
            self._flush()  # the repeated flush did not cover the newest records
        if not self._will_write_recovery_point:
            self._will_write_recovery_point = True
            self._once(RECOVERY_POINT_AFTER_MS, self._write_recovery_point)
        self._snapshot_if_due()

    def _hand_over(self, committed: Sequence[_Append]) -> None:
        batches = [change for change in committed if change.next_offset > change.base_offset]
        if not batches:
            return
        stats = self.stats
        now_ms = self._clock.monotonic_ms()
        for change in batches:
            stats.commits.record((now_ms - change.written_ms) * 1000)
        began_ns = monotonic_ns()
        self._listener.handle_commit(batches)
        stats.publications.record((monotonic_ns() - began_ns) // 1000)
        stats.published.record(sum(len(change.records) for change in batches))

    def _write_recovery_point(self) -> None:
        """Write the recovery point, up to which the log is on disk, in the worker thread.

        Kafka has no recovery point for this log. A start after a kill must not cut off records below it: a damaged
        batch there was on disk, and to go on without it would be to lose topics.
        """
        path, offset = f"{self._log.directory}/{RECOVERY_POINTS}", self._log.recovery_point

        def failed(error: Exception) -> None:
            if isinstance(error, DiskFull | TooManyOpenFiles):
                log.warning("%s stays as it is: %s", path, error)
            else:
                self._fail(error)

        self._will_write_recovery_point = False
        self._worker.submit(
            lambda: write_offset_checkpoint(self._files, path, {METADATA_PARTITION: offset}), _done, failed
        )

    def _fail(self, error: Exception) -> None:
        if self._failure is None:
            self._failure = error
            log.error("the metadata log can't be written any more: %s", error)
            self._on_fatal(error)

    # Snapshots

    def _snapshot_if_due(self) -> None:
        # Checked after an append only: without an append, a snapshot would have nothing new.
        age_ms = self._clock.now_ms() - self._last_snapshot_ms
        is_due = self._bytes_behind_snapshot >= self._snapshot_after_bytes or 0 < self._snapshot_after_ms <= age_ms
        if is_due and not self._is_writing_snapshot and not self._under_way:
            self.write_snapshot()

    def write_snapshot(self) -> None:
        """Write a snapshot, in the worker thread, unless a metadata transaction is open.

        All appended batches must have been handed to the listener.
        """
        assert not self._under_way, f"a snapshot below {len(self._under_way)} changes under way"
        if self._listener.is_in_transaction:
            return
        image = self._listener.image
        metadata_version = image.features.metadata_version
        snapshot = SnapshotId(self._log.log_end_offset, self.leader_epoch)
        now_ms = self._clock.now_ms()
        last_append_ms = self.last_append_ms
        self._is_writing_snapshot = True
        self._bytes_behind_snapshot = 0
        self._last_snapshot_ms = now_ms

        def perform() -> tuple[int, SnapshotId]:
            content = encode_snapshot(
                ((record, version_of(record, metadata_version)) for record in image.records()),
                quorum=self.quorum,
                epoch=snapshot.epoch,
                last_contained_timestamp_ms=last_append_ms,
                now_ms=now_ms,
            )
            path = f"{self._log.directory}/{snapshot.file_name}"
            self._files.replace_atomically(path, content, fsync=True, mode=READ_ONLY)
            snapshots = list_snapshots(self._files, self._log.directory)
            for old in snapshots[:-_KEPT_SNAPSHOTS]:
                self._files.remove(f"{self._log.directory}/{old.file_name}")
            return len(content), snapshots[-_KEPT_SNAPSHOTS:][0]

        def done(written: tuple[int, SnapshotId]) -> None:
            size, oldest = written
            self._is_writing_snapshot = False
            self.stats.snapshot_bytes = size
            self.stats.snapshot_ms = now_ms
            log.info("wrote metadata snapshot %s: %d bytes", snapshot.file_name, size)
            self._drop_old_segments(oldest.end_offset)

        def failed(error: Exception) -> None:
            self._is_writing_snapshot = False
            if isinstance(error, DiskFull | TooManyOpenFiles):
                # The log still has all records. The next snapshot is due after as many bytes, or as long, once more.
                log.warning("could not write metadata snapshot %s: %s", snapshot.file_name, error)
            else:
                self._fail(error)

        self._worker.submit(perform, done, failed)

    def _drop_old_segments(self, snapshot_offset: int) -> None:
        """Delete segments below the snapshot at ``snapshot_offset``: all of them if the log is too large, else those
        whose records are too old."""
        is_too_large = 0 <= self._most_bytes_kept < self._log.size
        start_offset = snapshot_offset if is_too_large else min(snapshot_offset, self._end_of_too_old())
        if not self._log.start_offset_to(start_offset):
            return
        for removal in apply_retention(self._log, self._clock.now_ms()):
            self._worker.submit(removal.perform, _done, self._fail)

    def _end_of_too_old(self) -> int:
        """The offset behind the oldest segments whose records are older than `metadata.max.retention.ms`."""
        now_ms = self._clock.now_ms()
        for segment in self._log.segments:
            if self._kept_ms < 0 or now_ms - segment.largest.timestamp <= self._kept_ms:
                return segment.base_offset
        return self._log.log_end_offset


def _nothing() -> None:
    pass


def _done(_: object) -> None:
    pass
