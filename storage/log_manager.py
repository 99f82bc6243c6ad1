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
    read_topic_id,
    write_topic_id,
)
from storage.errors import (
    CorruptCheckpoint,
    DiskFull,
    LogDirFailed,
    StorageError,
    TooManyOpenFiles,
    WrongDirectory,
)
from storage.files import FileSystem
from storage.loading import PRODUCER_ID_EXPIRATION_MS, LoadReport, load_log, no_chance, open_log
from storage.log import Log
from storage.log_dir import CheckpointWrite, LogDir
from storage.open_files import DEFAULT_LIMIT, OpenFiles
from storage.removal import PendingRemoval
from storage.topic_partition import TopicPartition

DELETE: Final = "delete"
STRAY: Final = "stray"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadProgress:
    """How far loading has come."""

    directory: str
    topic_partition: TopicPartition
    """The log being opened."""
    bytes_read: int
    """Of this log, so far."""
    logs_loaded: int
    logs_total: int
    """Of this directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedLog:
    """A log that had to be repaired, for the one line about it."""

    topic_partition: TopicPartition
    report: LoadReport


class LogManager:
    """The logs in the data directories of one broker, but for the metadata log."""

    __slots__ = ("_chance", "_directories", "_files", "_log_dirs", "_logs", "_open_files", "_pending_removals",
                 "_walk_all_records", "failures", "producer_id_expiration_ms", "repaired")  # fmt: skip

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
        """Logs that were recovered, or had indexes rebuilt."""

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

    def load(
        self,
        *,
        config_of: Callable[[str], LogConfig],
        is_ours: Callable[[TopicPartition, bytes | None], bool],
        new_id: Callable[[], str],
        now_ms: int,
    ) -> Iterator[LoadProgress]:
        """Open every log in every directory, a step at a time.

        A partition that the metadata does not know, or knows under another topic id, is set aside as stray. What was
        being deleted when the last process ended goes on being deleted: `take_pending_removals`. A directory that
        cannot be read goes offline, and `failures` says why.

        Args:
            config_of: A topic's settings.
            is_ours: Whether the metadata knows a partition with this topic id (None: the directory names none).
            new_id: 32 hex digits, new each time.

        Raises:
            WrongDirectory: A directory that is no partition's, or a partition in two data directories.
        """
        for directory in self._directories:
            try:
                yield from self._load_directory(directory, config_of, is_ours, new_id, now_ms)
                directory.is_loaded = True
            except LogDirFailed as error:
                self.failures.append(error)
                self.directory_failed(directory)

    def _load_directory(
        self,
        directory: LogDir,
        config_of: Callable[[str], LogConfig],
        is_ours: Callable[[TopicPartition, bytes | None], bool],
        new_id: Callable[[], str],
        now_ms: int,
    ) -> Generator[LoadProgress, None, None]:
        directory.begin_loading()
        recovery_points = directory.recovery_points()
        log_starts = directory.log_start_offsets()
        high_watermarks = directory.high_watermarks()
        found: list[tuple[str, TopicPartition, bytes | None]] = []
        for name, (topic_partition, fate) in directory.partition_directories():
            path = f"{directory.path}/{name}"
            if fate == DELETE:
                delay_ms = config_of(topic_partition.topic).file_delete_delay_ms
                self._pending_removals.append(PendingRemoval(self._files, (path,), delay_ms))
            elif not fate:
                topic_id = self._topic_id_in(path)
                if is_ours(topic_partition, topic_id):
                    found.append((path, topic_partition, topic_id))
                else:
                    stray_name = topic_partition.suffixed_dir_name(new_id(), STRAY)
                    self._files.rename(path, f"{directory.path}/{stray_name}")
        for loaded, (path, topic_partition, topic_id) in enumerate(found):
            if (other := self._log_dirs.get(topic_partition)) is not None:
                raise WrongDirectory(f"{topic_partition} stands in {other.path} and in {directory.path}")
            report = LoadReport()
            steps = load_log(
                self._files,
                path,
                topic_partition=topic_partition,
                config=config_of(topic_partition.topic),
                now_ms=now_ms,
                recovery_point=recovery_points.get(topic_partition, 0),
                log_start_offset=log_starts.get(topic_partition, 0),
                high_watermark=high_watermarks.get(topic_partition, 0),
                was_clean=directory.was_clean,
                topic_id=topic_id,
                open_files=self._open_files,
                producer_id_expiration_ms=self.producer_id_expiration_ms,
                chance=self._chance,
                walk_all_records=self._walk_all_records,
                report=report,
            )
            bytes_read = 0
            while True:
                try:
                    bytes_read += next(steps)
                except StopIteration as stop:
                    self._add(stop.value, directory)
                    break
                yield self._progress(directory, topic_partition, bytes_read, loaded, len(found))
            if report.segments_rebuilt:
                self.repaired.append(LoadedLog(topic_partition=topic_partition, report=report))
            yield self._progress(directory, topic_partition, bytes_read, loaded + 1, len(found))

    def _progress(
        self, directory: LogDir, topic_partition: TopicPartition, bytes_read: int, loaded: int, total: int
    ) -> LoadProgress:
        return LoadProgress(
            directory=directory.path,
            topic_partition=topic_partition,
            bytes_read=bytes_read,
            logs_loaded=loaded,
            logs_total=total,
        )

    def _topic_id_in(self, path: str) -> bytes | None:
        try:
            return read_topic_id(self._files, f"{path}/{PARTITION_METADATA}")
        except CorruptCheckpoint:
            # It is not synced when it is written: the metadata log has the id, and `create` writes it again.
            return None

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
                log.assign_topic_id(topic_id)
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

    # Truncating -------------------------------------------------------------------------------------------------------

    def truncate_to(self, topic_partition: TopicPartition, offset: int, now_ms: int) -> None:
        """Cut a log as `Log.truncate_to` does, and its checkpoints with it. Raises DiskFull, LogDirFailed.

        The recovery point comes first: it must not stand above anything that is appended from now on.
        """
        log = self._logs[topic_partition]
        if offset < log.log_start_offset:
            self.truncate_fully_to(topic_partition, offset, now_ms)
        elif offset < log.log_end_offset:
            self._lower_checkpoint(RECOVERY_POINTS, topic_partition, log.segments.at(offset).base_offset)
            log.truncate_to(offset, now_ms)

    def truncate_fully_to(self, topic_partition: TopicPartition, offset: int, now_ms: int) -> None:
        """Let a log begin anew as `Log.truncate_fully_to` does, its checkpoints with it. Raises DiskFull, LogDirFailed.

        The start comes last: until the old log is gone it must not begin earlier. A start that stayed behind on disk
        would drop what is appended from now on, so without room for it the directory has failed.
        """
        self._lower_checkpoint(RECOVERY_POINTS, topic_partition, offset)
        self._logs[topic_partition].truncate_fully_to(offset, now_ms)
        try:
            self._lower_checkpoint(LOG_START_OFFSETS, topic_partition, offset)
        except (DiskFull, TooManyOpenFiles) as error:
            raise LogDirFailed(f"{topic_partition} begins at {offset}, which could not be written: {error}") from error

    def _lower_checkpoint(self, name: str, topic_partition: TopicPartition, most: int) -> None:
        directory = self._log_dirs[topic_partition]
        offsets = directory.checkpoints_naming(topic_partition).get(name)
        if offsets is not None and offsets.get(topic_partition, most + 1) > most:
            write = directory.checkpoint(name, {**offsets, topic_partition: most})
            if write is not None:
                write.perform()

    # Failing ----------------------------------------------------------------------------------------------------------

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
        return self._checkpoints(LOG_START_OFFSETS, lambda log: log.start_to_checkpoint)

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

    def close(self, now_ms: int) -> None:
        """Close all logs and write the checkpoints. A directory that fails over it counts as failed."""
        for log in self.all():
            directory = self._log_dirs.get(log.topic_partition)
            if directory is None or directory.has_failed:
                continue
            try:
                log.close(now_ms)
            except StorageError as error:
                self.failures.append(error)
                self.directory_failed(directory)
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
