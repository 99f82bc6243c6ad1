"""Opening of the metadata log: read the newest intact snapshot and the batches behind it, then begin a new epoch.

    <metadata.log.dir>/__cluster_metadata-0/    a log like any other, snapshots, and quorum-state: Kafka's own files

The voters must name this node. LEADER_CHANGE opens the epoch; in the first epoch ever, the voters follow it.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from broker.metadata.image.records import InconsistentMetadata, Record
from broker.metadata.registration import METADATA_VERSIONS
from broker.raft.batches import MetadataBatch, decode_batch, decode_batches
from broker.raft.client import RaftListener
from broker.raft.formatting import first_levels
from broker.raft.quorum import QUORUM_STATE, Quorum, leader_change, read_leader_epoch, write_quorum_state
from broker.raft.single_voter_log import METADATA_PARTITION, METADATA_TOPIC_ID, SingleVoterLog
from broker.raft.snapshots import DAMAGED_SUFFIX, SnapshotId, check_snapshot, list_snapshots
from broker.runtime.clock import Clock
from broker.runtime.counted import counted
from broker.runtime.worker_thread import Flusher, WorkerThread
from config.broker_settings import BrokerSettings
from config.log_config import LogConfig
from config.release_versions import KEY as RELEASE_VERSION
from config.release_versions import ReleaseVersion
from protocol.records.control_records import ControlRecord
from protocol.schema import NO_UUID
from storage.batch.checksum import crc32c
from storage.batch.record_batch import ATTRIBUTES_POSITION
from storage.checkpoints import (
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    format_id,
    read_offset_checkpoint,
    write_topic_id,
)
from storage.errors import CorruptBatch, CorruptCheckpoint
from storage.files import FileSystem
from storage.loading import open_log
from storage.log import Log

log = logging.getLogger(__name__)

_BEFORE_ALL: Final = SnapshotId(0, 0)
"""The id that is used where there is no snapshot: the log has every record."""


def open_metadata_log(
    files: FileSystem,
    settings: BrokerSettings,
    *,
    directory_id: bytes | None,
    was_clean: bool,
    clock: Clock,
    flusher: Flusher,
    worker: WorkerThread,
    on_fatal: Callable[[Exception], None],
    once: Callable[[int, Callable[[], None]], None],
    listener: RaftListener,
    begin: Callable[[], None] = lambda: None,
) -> SingleVoterLog:
    """Open the metadata log of a formatted ``metadata.log.dir``, hand all of it over, and begin a new epoch in it.

    Args:
        files: the file system of the directory.
        settings: have the directory and the id of this node, which the voters must name.
        directory_id: the id in the `meta.properties` of the directory, which the voter of this node must have.
        was_clean: the directory had its clean-shutdown marker; otherwise the log is scanned and a torn end is cut.
        clock: gives the records their time stamps.
        flusher: syncs the log.
        worker: writes snapshots and removes segments.
        on_fatal: called once, when the log can't be written any more: the node must stop.
        once: calls back after so many milliseconds, unless the broker stops before.
        listener: gets the newest snapshot and the batches behind it before this returns, and what is committed later.
        begin: called once nothing refuses the start any more, before anything is written.

    Raises:
        StorageError: the files can't be read or written.
        Malformed: a record can't be read.
        InconsistentMetadata: the records contradict each other, or are another node's, or of a Kafka too new; or the
            disk has lost records.
    """
    directory = f"{settings.metadata_directory}/{METADATA_PARTITION.dir_name}"
    quorum = Quorum()
    snapshots = _Snapshots(files, directory)
    snapshot = snapshots.newest_intact
    if snapshots.content:
        _handing_over(
            f"{directory}/{snapshot.file_name}",
            lambda: listener.handle_snapshot(snapshots.records(quorum), snapshot.end_offset),
        )
    stored = _open_log(files, directory, settings, was_clean=was_clean, now_ms=clock.now_ms())
    if not stored.log_start_offset <= snapshot.end_offset <= snapshots.end_offset <= stored.log_end_offset:
        raise InconsistentMetadata(
            f"{directory} has offsets {stored.log_start_offset} to {stored.log_end_offset}, "
            f"which its newest snapshot, at {snapshot.end_offset}, does not fit{snapshots.damage}"
        )
    batches = _Batches(stored, snapshot.end_offset, quorum)
    _handing_over(directory, lambda: listener.handle_commit(batches))
    _check_adoptable(listener.image.features.metadata_version, quorum, settings, directory_id)
    if settings.ottla_release_version is not None:
        levels = listener.image.features.levels or first_levels(files, settings.metadata_directory)
        _check_levels(settings.metadata_directory, levels, settings.ottla_release_version)
    begin()
    snapshots.set_damaged_aside()
    state_path = f"{directory}/{QUORUM_STATE}"
    leader_epoch = max(read_leader_epoch(files, state_path), stored.leader_epochs.latest, 0) + 1
    write_quorum_state(
        files, state_path, node_id=settings.node_id, leader_epoch=leader_epoch, kraft_version=quorum.kraft_version
    )
    metadata_log = SingleVoterLog(
        files=files,
        log=stored,
        listener=listener,
        quorum=quorum,
        leader_epoch=leader_epoch,
        clock=clock,
        flusher=flusher,
        worker=worker,
        on_fatal=on_fatal,
        once=once,
        settings=settings,
        bytes_behind_snapshot=batches.bytes,
    )
    metadata_log.stats.snapshots_loaded = int(bool(snapshots.content))
    beginning: list[ControlRecord] = [leader_change(settings.node_id)]
    if stored.log_end_offset == 0:
        # Formatting wrote the voters into a snapshot before the log's first offset; from here on the log has them.
        beginning += quorum.records()
    metadata_log.append_control(beginning)
    log.info(
        "replayed %s up to offset %d: %s, metadata.version %d; epoch %d begins",
        METADATA_PARTITION.dir_name,
        listener.image.end_offset,
        counted(len(listener.image.topics.by_name), "topic"),
        listener.image.features.metadata_version,
        leader_epoch,
    )
    return metadata_log


def _open_log(files: FileSystem, directory: str, settings: BrokerSettings, *, was_clean: bool, now_ms: int) -> Log:
    stored = open_log(
        files,
        directory,
        topic_partition=METADATA_PARTITION,
        config=LogConfig(
            # Old records may be deleted only if a snapshot has them.
            retention_ms=-1,
            retention_bytes=-1,
            segment_bytes=settings.metadata_log_segment_bytes,
            segment_ms=settings.metadata_log_segment_ms,
        ),
        now_ms=now_ms,
        recovery_point=_recovery_point(files, directory),
        was_clean=was_clean,
        topic_id=METADATA_TOPIC_ID,
    )
    topic_id_path = f"{directory}/{PARTITION_METADATA}"
    if not files.exists(topic_id_path):
        write_topic_id(files, topic_id_path, METADATA_TOPIC_ID)
    return stored


def _recovery_point(files: FileSystem, directory: str) -> int:
    try:
        return read_offset_checkpoint(files, f"{directory}/{RECOVERY_POINTS}").get(METADATA_PARTITION, 0)
    except CorruptCheckpoint as error:
        log.warning("%s: all of the metadata log is checked", error)
        return 0


class _Snapshots:
    """The newest snapshot that is intact, and the damaged snapshots that are newer."""

    def __init__(self, files: FileSystem, directory: str) -> None:
        """Raises InconsistentMetadata if there are snapshots and none is intact."""
        self._files = files
        self._directory = directory
        self._damaged: list[tuple[SnapshotId, CorruptBatch]] = []
        self.newest_intact = _BEFORE_ALL
        self.content = memoryview(b"")
        """Of the newest intact snapshot; empty where there is no snapshot at all."""
        for snapshot in reversed(list_snapshots(files, directory)):
            content = memoryview(files.read_file(f"{directory}/{snapshot.file_name}"))
            try:
                check_snapshot(content, snapshot.epoch)
            except CorruptBatch as error:
                self._damaged.append((snapshot, error))
            else:
                self.newest_intact, self.content = snapshot, content
                return
        if self._damaged:
            raise InconsistentMetadata(f"{directory} has no snapshot that is intact{self.damage}")

    @property
    def end_offset(self) -> int:
        """Of the newest snapshot, damaged or not: the log must reach so far."""
        return max((snapshot.end_offset for snapshot, _ in self._damaged), default=self.newest_intact.end_offset)

    @property
    def damage(self) -> str:
        """What is damaged, to be put behind a sentence."""
        return "".join(f"; {snapshot.file_name} is damaged: {error}" for snapshot, error in self._damaged)

    def records(self, quorum: Quorum) -> Iterator[Record]:
        """The records of the newest intact snapshot. Its control records are replayed into ``quorum`` on the way.

        A snapshot before the first offset replaces no records. Kafka 4.4 formats it with the records that the first
        controller writes into the log (`broker.raft.formatting.read_bootstrap`).
        """
        for batch in decode_batches(self.content):
            _replay_control(batch, quorum)
            if self.newest_intact != _BEFORE_ALL:
                yield from batch.records

    def set_damaged_aside(self) -> None:
        """Rename the damaged snapshots, once the log has made up for them.

        Kafka would open a damaged snapshot as the newest; and it would count among the snapshots that are kept.
        """
        for snapshot, error in self._damaged:
            name = f"{snapshot.file_name}{DAMAGED_SUFFIX}"
            self._files.rename(f"{self._directory}/{snapshot.file_name}", f"{self._directory}/{name}")
            log.error(
                "%s/%s is damaged: %s; read instead: %s and the log behind it; the damaged file is now %s",
                self._directory, snapshot.file_name, error, self.newest_intact.file_name, name,
            )  # fmt: skip


class _Batches:
    """The checked batches of the log from an offset on. Control records are replayed into the quorum on the way."""

    def __init__(self, stored: Log, start_offset: int, quorum: Quorum) -> None:
        self._stored = stored
        self._start_offset = start_offset
        self._quorum = quorum
        self.bytes = 0
        """Bytes of all batches that were handed over."""

    def __iter__(self) -> Iterator[MetadataBatch]:
        """Raises InconsistentMetadata where records are missing or damaged."""
        next_offset = self._start_offset
        for header, data in self._stored.batches(next_offset):
            if header.base_offset > next_offset:
                raise InconsistentMetadata(f"records from offset {next_offset} to {header.base_offset - 1} are lost")
            if (crc := crc32c(data[ATTRIBUTES_POSITION:])) != header.crc:
                raise InconsistentMetadata(
                    f"the batch at offset {header.base_offset} names the CRC {header.crc:08x}, "
                    f"and its bytes have {crc:08x}"
                )
            next_offset = header.next_offset
            batch = decode_batch(header, data)
            _replay_control(batch, self._quorum)
            self.bytes += batch.size
            yield batch
        if next_offset != self._stored.log_end_offset:
            end_offset = self._stored.log_end_offset
            raise InconsistentMetadata(f"records from offset {next_offset} to {end_offset - 1} are lost")


def _replay_control(batch: MetadataBatch, quorum: Quorum) -> None:
    for control_record in batch.control_records:
        quorum.replay(control_record)


def _handing_over(where: str, hand_over: Callable[[], None]) -> None:
    """Call ``hand_over``. An error of the records gets the place of the records in its message."""
    try:
        hand_over()
    except InconsistentMetadata as error:
        raise InconsistentMetadata(f"{where}: {error}") from None


def _check_adoptable(
    metadata_version: int, quorum: Quorum, settings: BrokerSettings, directory_id: bytes | None
) -> None:
    directory = f"{settings.metadata_directory}/{METADATA_PARTITION.dir_name}"
    newest = METADATA_VERSIONS[1]
    if metadata_version > newest:
        raise InconsistentMetadata(
            f"{directory} has metadata.version {metadata_version}; up to {newest} can be read here"
        )
    if quorum.voters is None:
        return
    voters = {voter.voter_id: voter.voter_directory_id for voter in quorum.voters.voters}
    if settings.node_id not in voters:
        raise InconsistentMetadata(
            f"{directory} belongs to the voters {', '.join(map(str, voters))}; this is node {settings.node_id}"
        )
    expected = voters[settings.node_id]
    if expected not in (NO_UUID, directory_id):
        found = "no directory.id" if directory_id is None else f"the directory.id {format_id(directory_id)}"
        raise InconsistentMetadata(
            f"{settings.metadata_directory}/{META_PROPERTIES} has {found}, expected {format_id(expected)}, "
            f"which the voter {settings.node_id} of {directory} has"
        )


def _check_levels(directory: str, levels: Mapping[str, int], wanted: ReleaseVersion) -> None:
    """Refuse a directory whose features have other levels than the release version that is wanted."""
    differences = [
        f"{name} {levels.get(name, 0)} instead of {wanted.levels.get(name, 0)}"
        for name in dict.fromkeys((*levels, *wanted.levels))
        if levels.get(name, 0) != wanted.levels.get(name, 0)
    ]
    if differences:
        raise InconsistentMetadata(
            f"{directory} has other feature levels than {RELEASE_VERSION} {wanted.name}: {', '.join(differences)}; "
            "the setting is for new directories, and `ottla features` is for those of a running node"
        )
