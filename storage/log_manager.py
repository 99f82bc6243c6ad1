"""All logs of a broker: found and opened at start, made and deleted with their topics, swept, checkpointed, closed.

Everything happens in the caller's thread; what takes long is handed out to be performed elsewhere (`PendingRemoval`,
`CheckpointWrite`, `FlushTarget`) or is a generator that can be left and taken up again.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from config.log_config import LogConfig
from storage.checkpoints import (
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    format_id,
    read_topic_id,
    write_topic_id,
)
from storage.errors import CorruptCheckpoint, LogDirFailed, StorageError, WrongDirectory
from storage.files import FileSystem
from storage.flushing import FlushTarget
from storage.loading import PRODUCER_ID_EXPIRATION_MS, LoadReport, bytes_from, load_log, no_chance, open_log
from storage.log import Log
from storage.log_dir import CheckpointWrite, LogDir
from storage.open_files import DEFAULT_LIMIT, OpenFiles
from storage.recovery_order import RecoveredLog, RecoveryOrder
from storage.removal import PendingRemoval
from storage.topic_partition import TopicPartition

DELETE: Final = "delete"
STRAY: Final = "stray"

# `ottla.recovery`: which logs are checked when they are opened.
AFTER_UNCLEAN_STOP: Final = "unclean"
ALWAYS: Final = "always"
NEVER: Final = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLog:
    """A log that stands in a data directory and is to be opened."""

    directory: LogDir
    path: str
    topic_partition: TopicPartition
    topic_id: bytes | None
    config: LogConfig
    recovery_point: int
    checked_from: int
    """Where checking begins; below the recovery point it cuts nothing."""
    log_start_offset: int
    high_watermark: int
    """From the checkpoints; 0 where they say nothing."""
    is_trusted: bool
    """It was closed in order, so that nothing in it need be checked."""
    bytes_to_check: int
    """Of the segments from the recovery point on; 0 for a log that is trusted."""

    def recovery_order(self, now_ms: int, producer_id_expiration_ms: int) -> RecoveryOrder:
        """What another process must know to recover it."""
        return RecoveryOrder(
            directory=self.path,
            topic_partition=self.topic_partition,
            config=self.config,
            now_ms=now_ms,
            recovery_point=self.recovery_point,
            checked_from=self.checked_from,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
            producer_id_expiration_ms=producer_id_expiration_ms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosingLog:
    """A log that is being closed: once ``target`` is performed everything of it is on disk."""

    log: Log
    directory: LogDir
    target: FlushTarget | None

    def perform(self) -> None:
        """Sync what is left. May run in another thread. Raises LogDirFailed."""
        if self.target is not None:
            self.target.perform()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedLog:
    """A log that had to be recovered or repaired, for the lines about it."""

    topic_partition: TopicPartition
    report: LoadReport


class LogManager:
    """The logs in the data directories of one broker, but for the metadata log."""

    __slots__ = ("_chance", "_directories", "_files", "_log_dirs", "_logs", "_open_files", "_pending_removals",
                 "_walk_all_records", "failures", "findings", "producer_id_expiration_ms", "repaired")  # fmt: skip

    def __init__(
        self,
        files: FileSystem,
        directories: Sequence[LogDir],
        *,
        producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
        most_open_files: int = DEFAULT_LIMIT,
        walk_all_records: bool = False,
        chance: Callable[[], int] = no_chance,
    ) -> None:
        self._files = files
        self._directories = tuple(directories)
        self.producer_id_expiration_ms = producer_id_expiration_ms
        """How long a producer may be silent before it is forgotten; it may be set anew at any time."""
        self._open_files = OpenFiles(most_open_files)
        self._walk_all_records = walk_all_records
        self._chance = chance
        self._logs: dict[TopicPartition, Log] = {}
        self._log_dirs: dict[TopicPartition, LogDir] = {}
        self._pending_removals: list[PendingRemoval] = []
        self.failures: list[StorageError] = []
        """Why directories went offline while loading."""
        self.repaired: list[LoadedLog] = []
        """Logs that were recovered, or had something damaged."""
        self.findings: list[str] = []
        """What was damaged beside the logs themselves, or out of place, and what has been done: a sentence each."""

    def get(self, topic_partition: TopicPartition) -> Log | None:
        """The log of a partition; None if there is none."""
        return self._logs.get(topic_partition)

    def all(self) -> list[Log]:
        """All logs."""
        return list(self._logs.values())

    def directory_of(self, topic_partition: TopicPartition) -> LogDir | None:
        """The data directory that a partition's log stands in; None if there is no such log."""
        return self._log_dirs.get(topic_partition)

    @property
    def directories(self) -> tuple[LogDir, ...]:
        """The data directories, failed ones included."""
        return self._directories

    # Loading ----------------------------------------------------------------------------------------------------------

    def find(
        self,
        *,
        config_of: Callable[[str], LogConfig],
        is_ours: Callable[[TopicPartition, bytes | None], bool],
        new_id: Callable[[], str],
        recovery: str = AFTER_UNCLEAN_STOP,
    ) -> Iterator[FoundLog]:
        """The logs in all directories, to be opened with `open`; from here on a crash is unclean.

        A partition that the metadata does not know, or knows under another topic id, is set aside as stray. What was
        being deleted when the last process ended goes on being deleted: `take_pending_removals`. A directory that
        cannot be read goes offline, and `failures` says why.

        Args:
            config_of: A topic's settings.
            is_ours: Whether the metadata knows a partition with this topic id (None: the directory names none).
            new_id: 32 hex digits, new each time.
            recovery: `ottla.recovery`: whose segments are to be checked.

        Raises:
            WrongDirectory: A directory that is no partition's, or a partition in two data directories.
        """
        places: dict[TopicPartition, LogDir] = {}
        for directory in self._directories:
            try:
                for found in self._find_in(directory, config_of, is_ours, new_id, recovery):
                    other = places.setdefault(found.topic_partition, directory)
                    if other is not directory:
                        raise WrongDirectory(f"{found.topic_partition} stands in {other.path} and in {directory.path}")
                    yield found
            except LogDirFailed as error:
                self.fail(directory, error)

    def _find_in(
        self,
        directory: LogDir,
        config_of: Callable[[str], LogConfig],
        is_ours: Callable[[TopicPartition, bytes | None], bool],
        new_id: Callable[[], str],
        recovery: str,
    ) -> Iterator[FoundLog]:
        directory.begin_loading()
        is_trusted = recovery == NEVER or (recovery == AFTER_UNCLEAN_STOP and directory.was_clean)
        recovery_points = directory.recovery_points()
        log_starts = directory.log_start_offsets()
        high_watermarks = directory.high_watermarks()
        self.findings += directory.findings
        for name, (topic_partition, fate) in directory.partition_directories():
            path = f"{directory.path}/{name}"
            if fate == DELETE:
                delay_ms = config_of(topic_partition.topic).file_delete_delay_ms
                self._pending_removals.append(PendingRemoval(self._files, (path,), delay_ms))
            elif not fate:
                topic_id, problem = self._topic_id_in(path)
                if is_ours(topic_partition, topic_id):
                    if problem:
                        self.findings.append(f"{problem}: the topic id is the one that the metadata has")
                    recovery_point = recovery_points.get(topic_partition, 0)
                    checked_from = 0 if recovery == ALWAYS else recovery_point
                    yield FoundLog(
                        directory=directory,
                        path=path,
                        topic_partition=topic_partition,
                        topic_id=topic_id,
                        config=config_of(topic_partition.topic),
                        recovery_point=recovery_point,
                        checked_from=checked_from,
                        log_start_offset=log_starts.get(topic_partition, 0),
                        high_watermark=high_watermarks.get(topic_partition, 0),
                        is_trusted=is_trusted,
                        bytes_to_check=0 if is_trusted else bytes_from(self._files, path, checked_from),
                    )
                else:
                    stray_name = topic_partition.suffixed_dir_name(new_id(), STRAY)
                    self._files.rename(path, f"{directory.path}/{stray_name}")
                    named = f"{path} has the topic id {format_id(topic_id)}" if topic_id is not None else problem
                    self.findings.append(
                        f"{named}, and the metadata knows no such partition: set aside as {stray_name}"
                    )

    def open(
        self, found: FoundLog, now_ms: int, recovered: RecoveredLog | None = None
    ) -> Generator[int, None, Log | None]:
        """Open a log, step by step; each step yields the bytes it has read.

        ``recovered`` is what another process says that has just recovered it; without that it is recovered here, if it
        is not trusted. None if its directory has failed: `failures` says why. Raises DiskFull, TooManyOpenFiles.
        """
        if found.directory.has_failed:
            return None
        report = LoadReport() if recovered is None else recovered.report
        try:
            log = yield from load_log(
                self._files,
                found.path,
                topic_partition=found.topic_partition,
                config=found.config,
                now_ms=now_ms,
                recovery_point=found.recovery_point,
                checked_from=found.checked_from,
                log_start_offset=found.log_start_offset,
                high_watermark=found.high_watermark,
                was_clean=found.is_trusted,
                recovered_producers=None if recovered is None else recovered.producers,
                topic_id=found.topic_id,
                open_files=self._open_files,
                producer_id_expiration_ms=self.producer_id_expiration_ms,
                chance=self._chance,
                walk_all_records=self._walk_all_records,
                report=report,
            )
        except LogDirFailed as error:
            self.fail(found.directory, error)
            return None
        self._add(log, found.directory)
        if report.segments_rebuilt or report.findings:
            self.repaired.append(LoadedLog(topic_partition=found.topic_partition, report=report))
        return log

    def fail(self, directory: LogDir, error: StorageError) -> None:
        """A directory cannot be read, or written to: it goes offline, and `failures` says why."""
        self.failures.append(error)
        self.directory_failed(directory)

    def loaded(self) -> None:
        """Everything that `find` has found is open."""
        for directory in self._directories:
            directory.is_loaded = not directory.has_failed

    def _topic_id_in(self, path: str) -> tuple[bytes | None, str]:
        """The topic id that a partition's directory names, or why it names none."""
        metadata_path = f"{path}/{PARTITION_METADATA}"
        try:
            topic_id = read_topic_id(self._files, metadata_path)
        except CorruptCheckpoint as error:
            # It is not synced when it is written: the metadata log has the id, and `create` writes it again.
            return None, str(error)
        return topic_id, "" if topic_id is not None else f"{metadata_path} is missing"

    def _add(self, log: Log, directory: LogDir) -> None:
        self._logs[log.topic_partition] = log
        self._log_dirs[log.topic_partition] = directory

    def take_pending_removals(self) -> list[PendingRemoval]:
        """What loading has found half deleted, once."""
        removals, self._pending_removals = self._pending_removals, []
        return removals

    # Making and deleting ----------------------------------------------------------------------------------------------

    def create(
        self,
        topic_partition: TopicPartition,
        topic_id: bytes,
        config: LogConfig,
        now_ms: int,
        directory: LogDir | None = None,
    ) -> Log:
        """The log of a partition, made if there is none yet: in ``directory``, or the one that has fewest.

        Raises DiskFull, TooManyOpenFiles, LogDirFailed (also if no directory is left).
        """
        log = self._logs.get(topic_partition)
        if log is not None:
            if log.topic_id is None:
                write_topic_id(self._files, f"{log.directory}/{PARTITION_METADATA}", topic_id)
                log.topic_id = topic_id
            return log
        if directory is None or directory.has_failed:
            directory = self._emptiest()
        self._forget_checkpoints_of(topic_partition, directory)
        path = f"{directory.path}/{topic_partition.dir_name}"
        self._files.make_directory(path)
        write_topic_id(self._files, f"{path}/{PARTITION_METADATA}", topic_id)
        log = open_log(
            self._files,
            path,
            topic_partition=topic_partition,
            config=config,
            now_ms=now_ms,
            topic_id=topic_id,
            open_files=self._open_files,
            producer_id_expiration_ms=self.producer_id_expiration_ms,
            chance=self._chance,
            walk_all_records=self._walk_all_records,
        )
        self._add(log, directory)
        return log

    def _emptiest(self) -> LogDir:
        alive = [directory for directory in self._directories if not directory.has_failed]
        if not alive:
            raise LogDirFailed("no data directory is left that can be written to")
        if len(alive) == 1:
            return alive[0]
        in_use = list(self._log_dirs.values())
        return min(alive, key=in_use.count)

    def _forget_checkpoints_of(self, topic_partition: TopicPartition, directory: LogDir) -> None:
        """A deleted namesake's offsets must not be taken for the new log's after a crash."""
        for name, offsets in directory.checkpoints_naming(topic_partition).items():
            write = directory.checkpoint(name, {tp: at for tp, at in offsets.items() if tp != topic_partition})
            if write is not None:
                write.perform()

    def delete(self, topic_partition: TopicPartition, unique_id: str) -> PendingRemoval | None:
        """Take a partition's log out of use; its directory, renamed, is to be removed later. None if there is no log.

        ``unique_id`` is 32 hex digits. Regions under way stay readable. Raises LogDirFailed.
        """
        log = self._logs.pop(topic_partition, None)
        if log is None:
            return None
        directory = self._log_dirs.pop(topic_partition)
        log.abandon()
        path = f"{directory.path}/{topic_partition.suffixed_dir_name(unique_id, DELETE)}"
        self._files.rename(log.directory, path)
        return PendingRemoval(self._files, (path,), log.config.file_delete_delay_ms)

    def directory_failed(self, directory: LogDir) -> list[Log]:
        """A directory cannot be trusted any more: its logs are let go as they are. The logs that are gone."""
        directory.has_failed = True
        gone = [log for tp, log in self._logs.items() if self._log_dirs[tp] is directory]
        for log in gone:
            del self._logs[log.topic_partition], self._log_dirs[log.topic_partition]
            log.abandon()
        return gone

    # In passing -------------------------------------------------------------------------------------------------------

    def apply_retention(self, now_ms: int) -> Iterator[tuple[Log, list[PendingRemoval]]]:
        """Sweep log by log; each step gives what one log has put out of use."""
        for log in self.all():
            if log.topic_partition in self._logs:
                yield log, log.apply_retention(now_ms)

    def remove_expired_producers(self, now_ms: int) -> int:
        """Forget producers that have been silent for `producer.id.expiration.ms`; how many."""
        return sum(log.remove_expired_producers(now_ms, self.producer_id_expiration_ms) for log in self.all())

    def recovery_point_checkpoints(self) -> list[CheckpointWrite]:
        """What is to be written so that the next start knows up to where logs are on disk."""
        return self._checkpoints(RECOVERY_POINTS, lambda log: log.recovery_point)

    def log_start_checkpoints(self) -> list[CheckpointWrite]:
        """What is to be written so that the next start knows where logs begin."""
        return self._checkpoints(
            LOG_START_OFFSETS,
            lambda log: log.log_start_offset if log.log_start_offset > log.segments[0].base_offset else None,
        )

    def high_watermark_checkpoints(self) -> list[CheckpointWrite]:
        """What is to be written so that the next start knows the high watermarks."""
        return self._checkpoints(HIGH_WATERMARKS, lambda log: log.high_watermark)

    def _checkpoints(self, name: str, offset_of: Callable[[Log], int | None]) -> list[CheckpointWrite]:
        by_directory: dict[str, dict[TopicPartition, int]] = {directory.path: {} for directory in self._directories}
        for topic_partition, log in self._logs.items():
            offset = offset_of(log)
            if offset is not None:
                by_directory[self._log_dirs[topic_partition].path][topic_partition] = offset
        writes = (
            directory.checkpoint(name, by_directory[directory.path])
            for directory in self._directories
            # Of logs that have not been opened yet, the file on disk knows more.
            if directory.is_loaded
        )
        return [write for write in writes if write is not None]

    # The end ----------------------------------------------------------------------------------------------------------

    def begin_close(self, now_ms: int) -> Iterator[ClosingLog]:
        """Bring all logs to their end, one by one. What each gives is to be performed, in any thread, then
        `complete_close`. A directory that fails over it counts as failed."""
        for log in self.all():
            directory = self._log_dirs.get(log.topic_partition)
            if directory is None or directory.has_failed:
                continue
            try:
                yield ClosingLog(log=log, directory=directory, target=log.begin_close(now_ms))
            except StorageError as error:
                self.fail(directory, error)

    def complete_close(self, closing: ClosingLog) -> None:
        """Everything of a log is on disk."""
        closing.log.complete_close(closing.target)

    def write_checkpoints(self) -> None:
        """Write down where logs begin and end, when all of them are closed."""
        for write in (
            *self.recovery_point_checkpoints(), *self.log_start_checkpoints(), *self.high_watermark_checkpoints(),
        ):  # fmt: skip
            try:
                write.perform()
            except StorageError as error:
                self.failures.append(error)
                next(d for d in self._directories if write.path.startswith(d.path + "/")).has_failed = True
        self._logs.clear()
        self._log_dirs.clear()

    def leave(self, broker_epoch: int = -1) -> None:
        """After `close`, and after the metadata log's: leave the clean-shutdown markers and give the directories back.

        Where logs were never all opened, the marker is left only if it was there before.
        """
        for directory in self._directories:
            directory.leave(clean=directory.is_loaded or directory.was_clean, broker_epoch=broker_epoch)
