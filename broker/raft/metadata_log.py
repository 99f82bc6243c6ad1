"""``__cluster_metadata-0``: what happens to the cluster, in order, on disk before anybody hears of it (KIP-500).

The directory is Kafka's own: a log like any other, snapshots and ``quorum-state``. This node is the only voter, so it
leads from the moment it starts, and what is on its disk is committed.

    open_metadata_log   newest snapshot, then the batches behind it -> image; epoch + 1 into quorum-state;
                        LEADER_CHANGE opens the epoch (in the first one ever, the voters follow it)
    append              one batch for each change, written at once; the flusher syncs, one fsync for all before it;
                        then the published image replays the records, subscribers hear of them, the change is answered
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import Final, NamedTuple

from broker.metadata.image import InconsistentMetadata, MetadataImage, Record
from broker.metadata.publisher import Publisher
from broker.metadata.registration import METADATA_VERSIONS
from broker.metadata.stats import MetadataStats
from broker.metadata.topic_rules import CLUSTER_METADATA
from broker.raft.batches import MetadataBatch, decode_batch, decode_batches, encode_control_records, encode_records
from broker.raft.quorum import (
    QUORUM_STATE,
    Quorum,
    leader_change,
    read_leader_epoch,
    write_quorum_state,
)
from broker.raft.snapshots import READ_ONLY, SnapshotId, encode_snapshot, list_snapshots
from broker.runtime.clock import Clock
from broker.runtime.worker_thread import Flusher, WorkerThread
from config.broker_settings import BrokerSettings
from config.log_config import LogConfig
from protocol.records.control_records import ControlRecord
from storage.batch.checksum import crc32c
from storage.batch.record_batch import ATTRIBUTES_POSITION
from storage.checkpoints import (
    PARTITION_METADATA,
    RECOVERY_POINTS,
    read_offset_checkpoint,
    write_offset_checkpoint,
    write_topic_id,
)
from storage.errors import CorruptCheckpoint, DiskFull, LogDirFailed, TooManyOpenFiles
from storage.files import FileSystem
from storage.flushing import FlushTarget
from storage.loading import open_log
from storage.log import Log
from storage.topic_partition import TopicPartition

log = logging.getLogger(__name__)

METADATA_PARTITION: Final = TopicPartition(CLUSTER_METADATA, 0)
METADATA_TOPIC_ID: Final = bytes(15) + b"\x01"

RETRY_MS: Final = 1_000
"""How long a flush waits that found no descriptor."""

RECOVERY_POINT_AFTER_MS: Final = 1_000
"""How long after a flush it is written down that there was one."""

_KEPT_SNAPSHOTS: Final = 2
"""The newest, and the one before it: a disk that loses a new file still has a way back."""


class _Append(NamedTuple):
    """Records on their way to the disk, and who is told once they are there."""

    end_offset: int
    records: Sequence[Record]
    then: Callable[[], None]
    written_ms: int
    """On the clock that never goes back."""


class MetadataLog:
    """The one writer of the metadata log. All methods belong to the loop's thread."""

    def __init__(
        self,
        *,
        files: FileSystem,
        log: Log,
        publisher: Publisher,
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
        """``once`` calls back after so many milliseconds, unless the daemon stops before; see `open_metadata_log`."""
        self._files = files
        self._log = log
        self.publisher = publisher
        self.quorum = quorum
        self.leader_epoch = leader_epoch
        """The raft epoch in which this node leads."""
        self._clock = clock
        self._flusher = flusher
        self._worker = worker
        self._on_fatal = on_fatal
        self._once = once
        self._snapshot_after_bytes = settings.metadata_log_max_record_bytes_between_snapshots
        self._snapshot_after_ms = settings.metadata_log_max_snapshot_interval_ms
        self._most_bytes_kept = settings.metadata_max_retention_bytes
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
        self._finds_no_room = False
        """It has been said that nothing can be written."""

    @property
    def log(self) -> Log:
        """The log itself, to be looked at."""
        return self._log

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._log.log_end_offset

    @property
    def high_watermark(self) -> int:
        """Everything below is on disk, and so committed."""
        return self._log.high_watermark

    @property
    def directory(self) -> str:
        """Where the log stands."""
        return self._log.directory

    def append(self, records: Sequence[tuple[Record, int]], then: Callable[[], None]) -> int:
        """Write ``records``, each with its version, as one batch; they take effect together or not at all.

        ``then`` is called once they are on disk and published.

        Returns: the offset of the first one.

        Raises:
            DiskFull, TooManyOpenFiles: they could not be written now, and nothing has changed; later they may.
            StorageError: they could not be written. Nothing will be from now on: `on_fatal` has been told.
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

    def when_durable(self, then: Callable[[], None]) -> None:
        """Call ``then`` once everything appended so far is on disk and published; now, if it is.

        An answer that says no may rest on a change that could still be lost.

        Raises:
            StorageError: the log can't be written any more.
        """
        if self._failure is not None:
            raise self._failure
        if self._under_way:
            self._under_way.append(_Append(self._log.log_end_offset, (), then, self._clock.monotonic_ms()))
        else:
            then()

    def close(self) -> None:
        """Write everything down and close the files. Nothing may be under way, in the worker neither."""
        self._log.close(self._clock.now_ms())

    def _write(self, batch: bytearray, records: Sequence[Record], then: Callable[[], None]) -> None:
        if self._failure is not None:
            raise self._failure
        now_ms = self._clock.now_ms()
        try:
            self._log.stage_trusted(batch, leader_epoch=self.leader_epoch)
            self._log.append_all(now_ms)
        except LogDirFailed as error:
            self._fail(error)
            raise
        except (DiskFull, TooManyOpenFiles) as error:
            # The log has taken the batch back, in memory and in its file.
            if not self._finds_no_room:
                self._finds_no_room = True
                log.error("the metadata log has no room, changes are refused until it has: %s", error)
            raise
        if self._finds_no_room:
            self._finds_no_room = False
            log.info("the metadata log has room again")
        self._bytes_behind_snapshot += len(batch)
        self.last_append_ms = now_ms
        self.stats.appends += 1
        self.stats.records += len(records)
        self._under_way.append(_Append(self._log.log_end_offset, records, then, self._clock.monotonic_ms()))
        self._flush()

    def _flush(self) -> None:
        self._flusher.flush(self, self._flushed, self._flush_failed)

    def _flush_failed(self, error: Exception) -> None:
        if isinstance(error, TooManyOpenFiles):
            # No sync has failed, only a file could not be opened for it.
            log.warning("the metadata log is flushed again in %d ms: %s", RETRY_MS, error)
            self._clock.call_at(self._clock.monotonic_ms() + RETRY_MS, self._flush)
        else:
            self._fail(error)

    # The flusher's two questions (`broker.runtime.worker_thread.Flushable`).

    def begin_flush(self) -> FlushTarget | None:
        """Everything written so far; or what is still owed, where that could not be opened. Raises StorageError."""
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
        self._log.advance_high_watermark(end_offset)
        while self._under_way and self._under_way[0].end_offset <= end_offset and self._failure is None:
            change = self._under_way.popleft()
            if change.end_offset > self.publisher.offset:
                self._publish(change)
            change.then()
        if self._under_way and self._failure is None:
            self._flush()  # what was owed was less than all there is
        if not self._will_write_recovery_point:
            self._will_write_recovery_point = True
            self._once(RECOVERY_POINT_AFTER_MS, self._write_recovery_point)
        self._snapshot_if_due()

    def _publish(self, change: _Append) -> None:
        stats = self.stats
        stats.commits.record((self._clock.monotonic_ms() - change.written_ms) * 1000)
        began_ns = monotonic_ns()
        self.publisher.publish(change.records, change.end_offset)
        stats.publications.record((monotonic_ns() - began_ns) // 1000)
        stats.published.record(len(change.records))

    def _write_recovery_point(self) -> None:
        """Write down up to where the log is on disk, in the worker thread.

        Kafka has no recovery point for it. Ours tells a start after a kill what it must not cut off: a damaged batch
        below was on disk, and to go on without it would be to lose topics.
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
        # Looked at after an append only: while nothing is appended, there is nothing that a snapshot would save.
        age_ms = self._clock.now_ms() - self._last_snapshot_ms
        is_due = self._bytes_behind_snapshot >= self._snapshot_after_bytes or 0 < self._snapshot_after_ms <= age_ms
        if (
            is_due
            and not self._is_writing_snapshot
            and not self._under_way
            and not self.publisher.image.is_in_transaction
        ):
            self.write_snapshot()

    def write_snapshot(self) -> None:
        """Write a snapshot, in the worker thread. Everything appended must have been published."""
        assert not self._under_way, f"a snapshot below {len(self._under_way)} changes under way"
        image = self.publisher.image.copy()
        snapshot = SnapshotId(self._log.log_end_offset, self.leader_epoch)
        now_ms = self._clock.now_ms()
        last_append_ms = self.last_append_ms
        self._is_writing_snapshot = True
        self._bytes_behind_snapshot = 0
        self._last_snapshot_ms = now_ms

        def perform() -> int:
            content = encode_snapshot(
                ((record, image.version_of(record)) for record in image.records()),
                quorum=self.quorum,
                epoch=snapshot.epoch,
                last_contained_timestamp_ms=last_append_ms,
                now_ms=now_ms,
            )
            path = f"{self._log.directory}/{snapshot.file_name}"
            self._files.replace_atomically(path, content, fsync=True, mode=READ_ONLY)
            for old in list_snapshots(self._files, self._log.directory)[:-_KEPT_SNAPSHOTS]:
                self._files.remove(f"{self._log.directory}/{old.file_name}")
            return len(content)

        def done(size: int) -> None:
            self._is_writing_snapshot = False
            self.stats.snapshot_bytes = size
            self.stats.snapshot_ms = now_ms
            log.info("wrote metadata snapshot %s: %d bytes", snapshot.file_name, size)
            self._drop_old_segments(snapshot.end_offset)

        def failed(error: Exception) -> None:
            self._is_writing_snapshot = False
            if isinstance(error, DiskFull | TooManyOpenFiles):
                # The log has everything; the next snapshot is tried when this one would have been due again.
                log.warning("could not write metadata snapshot %s: %s", snapshot.file_name, error)
            else:
                self._fail(error)

        self._worker.submit(perform, done, failed)

    def _drop_old_segments(self, snapshot_offset: int) -> None:
        """Let go of segments that the snapshot at ``snapshot_offset`` makes superfluous, if the log is too large."""
        if not 0 <= self._most_bytes_kept < self._log.size or not self._log.start_offset_to(snapshot_offset):
            return
        for removal in self._log.apply_retention(self._clock.now_ms()):
            self._worker.submit(removal.perform, _done, self._fail)


def open_metadata_log(
    files: FileSystem,
    settings: BrokerSettings,
    *,
    was_clean: bool,
    clock: Clock,
    flusher: Flusher,
    worker: WorkerThread,
    on_fatal: Callable[[Exception], None],
    once: Callable[[int, Callable[[], None]], None],
) -> MetadataLog:
    """Replay the metadata log of a formatted ``metadata.log.dir`` and begin a new epoch in it.

    Args:
        files: where the directory is.
        settings: say which directory, and which node this is, which the voters must name.
        was_clean: the directory had its clean-shutdown marker; otherwise the log is scanned and a torn end is cut.
        clock: gives the records their time stamps.
        flusher: syncs the log.
        worker: writes snapshots and removes segments.
        on_fatal: told once, when the log can't be written any more: the node must stop.
        once: calls back after so many milliseconds, unless the daemon stops before.

    Raises:
        StorageError: the files can't be read or written.
        Malformed: a record can't be read.
        InconsistentMetadata: the records make no sense, or are another node's, or of a Kafka too new; or the disk has
            lost some that it had.
    """
    directory = f"{settings.metadata_directory}/{METADATA_PARTITION.dir_name}"
    image, quorum = MetadataImage(), Quorum()
    snapshot = SnapshotId(0, 0)
    snapshots = list_snapshots(files, directory)
    if snapshots:
        snapshot = snapshots[-1]
        path = f"{directory}/{snapshot.file_name}"
        for batch in decode_batches(memoryview(files.read_file(path))):
            _replay(batch, image, quorum, path)
    stored = open_log(
        files,
        directory,
        topic_partition=METADATA_PARTITION,
        config=LogConfig(
            # Nothing but a snapshot makes old records superfluous.
            retention_ms=-1,
            retention_bytes=-1,
            segment_bytes=settings.metadata_log_segment_bytes,
            segment_ms=settings.metadata_log_segment_ms,
        ),
        now_ms=clock.now_ms(),
        recovery_point=_recovery_point(files, directory),
        was_clean=was_clean,
        topic_id=METADATA_TOPIC_ID,
    )
    topic_id_path = f"{directory}/{PARTITION_METADATA}"
    if not files.exists(topic_id_path):
        write_topic_id(files, topic_id_path, METADATA_TOPIC_ID)
    if not stored.log_start_offset <= snapshot.end_offset <= stored.log_end_offset:
        raise InconsistentMetadata(
            f"{directory} has offsets {stored.log_start_offset} to {stored.log_end_offset}, "
            f"which its newest snapshot, at {snapshot.end_offset}, does not fit"
        )
    bytes_behind_snapshot = 0
    next_offset = snapshot.end_offset
    for header, data in stored.batches(snapshot.end_offset):
        if header.base_offset > next_offset:
            raise InconsistentMetadata(
                f"{directory} has lost the records from offset {next_offset} to {header.base_offset - 1}"
            )
        if (crc := crc32c(data[ATTRIBUTES_POSITION:])) != header.crc:
            raise InconsistentMetadata(
                f"{directory}: the batch at offset {header.base_offset} names the CRC {header.crc:08x}, "
                f"and its bytes have {crc:08x}"
            )
        next_offset = header.next_offset
        batch = decode_batch(header, data)
        _replay(batch, image, quorum, directory)
        bytes_behind_snapshot += batch.size
    if next_offset != stored.log_end_offset:
        raise InconsistentMetadata(
            f"{directory} has lost the records from offset {next_offset} to {stored.log_end_offset - 1}"
        )
    _check_adoptable(image, quorum, settings.node_id, directory)

    state_path = f"{directory}/{QUORUM_STATE}"
    leader_epoch = max(read_leader_epoch(files, state_path), stored.leader_epochs.latest, 0) + 1
    write_quorum_state(
        files, state_path, node_id=settings.node_id, leader_epoch=leader_epoch, kraft_version=quorum.kraft_version
    )
    publisher = Publisher(image, stored.log_end_offset)
    metadata_log = MetadataLog(
        files=files,
        log=stored,
        publisher=publisher,
        quorum=quorum,
        leader_epoch=leader_epoch,
        clock=clock,
        flusher=flusher,
        worker=worker,
        on_fatal=on_fatal,
        once=once,
        settings=settings,
        bytes_behind_snapshot=bytes_behind_snapshot,
    )
    metadata_log.stats.snapshots_loaded = min(len(snapshots), 1)
    opening: list[ControlRecord] = [leader_change(settings.node_id)]
    if stored.log_end_offset == 0:
        # Formatting put the voters into a snapshot that stands before the log; from here on the log has them.
        opening += quorum.records()
    metadata_log.append_control(opening)
    log.info(
        "replayed %s up to offset %d: %d topics, metadata.version %d; epoch %d begins",
        METADATA_PARTITION.dir_name,
        publisher.offset,
        len(image.topics_by_name),
        image.metadata_version,
        leader_epoch,
    )
    return metadata_log


def _recovery_point(files: FileSystem, directory: str) -> int:
    try:
        return read_offset_checkpoint(files, f"{directory}/{RECOVERY_POINTS}").get(METADATA_PARTITION, 0)
    except CorruptCheckpoint as error:
        log.warning("%s: all of the metadata log is checked", error)
        return 0


def _replay(batch: MetadataBatch, image: MetadataImage, quorum: Quorum, where: str) -> None:
    for control_record in batch.control_records:
        quorum.replay(control_record)
    for record in batch.records:
        try:
            image.replay(record)
        except InconsistentMetadata as error:
            raise InconsistentMetadata(f"{where}, batch at offset {batch.base_offset}: {error}") from None


def _check_adoptable(image: MetadataImage, quorum: Quorum, node_id: int, directory: str) -> None:
    newest = METADATA_VERSIONS[1]
    if image.metadata_version > newest:
        raise InconsistentMetadata(
            f"{directory} has metadata.version {image.metadata_version}; up to {newest} can be read here"
        )
    if quorum.voters is not None:
        voters = [voter.voter_id for voter in quorum.voters.voters]
        if node_id not in voters:
            raise InconsistentMetadata(
                f"{directory} belongs to the voters {', '.join(map(str, voters))}; this is node {node_id}"
            )


def _nothing() -> None:
    pass


def _done(_: object) -> None:
    pass
