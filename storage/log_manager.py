"""All logs of a broker: found and opened at start, made and deleted with their topics, swept, checkpointed, closed.

Everything happens in the caller's thread; long work is handed out to be performed in other threads (`PendingRemoval`,
`CheckpointWrite`, `FlushTarget`) or is a generator that the caller can pause.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from config.log_config import LogConfig
from storage.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    write_topic_id,
)
from storage.deleted_partitions import DeletedPartitions, ForgetDeleted
from storage.errors import DiskFull, FilesRemoved, LogDirFailed, StorageError, TooManyOpenFiles, WrongDirectory
from storage.files import FileSystem
from storage.flushing import FlushTarget
from storage.future_logs import FutureLog, FutureLogs, LogExchange
from storage.loading import (
    AFTER_UNCLEAN_STOP,
    NEVER,
    PRODUCER_ID_EXPIRATION_MS,
    LoadReport,
    load_log,
    no_chance,
    open_log,
)
from storage.log import Log
from storage.log_dir import CheckpointWrite, LogDir
from storage.log_finder import FoundLog, LogFinder
from storage.open_files import DEFAULT_LIMIT, OpenFiles
from storage.removal import PendingRemoval
from storage.retention import apply_retention
from storage.topic_partition import DELETE, TopicPartition

if TYPE_CHECKING:
    from storage.recovery_order import RecoveredLog


class ClosingLog(NamedTuple):
    """A log that is being closed: once ``target`` is performed the whole log is on disk."""

    log: Log
    directory: LogDir
    target: FlushTarget | None

    def perform(self) -> None:
        """Sync the rest of the log. May run in another thread. Raises LogDirFailed."""
        if self.target is not None:
            self.target.perform()


class LoadedLog(NamedTuple):
    """A log that had to be recovered or repaired, for the startup log's lines about it."""

    topic_partition: TopicPartition
    report: LoadReport


NO_OFFSETS: Final[Mapping[TopicPartition, int]] = {}
NO_COPIES: Final[Mapping[str, Mapping[TopicPartition, int]]] = {}


def _not_held(_: Log) -> None:
    """The retention hold of a broker without an archive group: no record waits to be archived."""


class LogManager:
    """The logs in the data directories of one broker, but for the metadata log."""

    __slots__ = (
        "_chance", "_counts", "_deleted", "_directories", "_files", "_log_dirs", "_logs", "_open_files",
        "_pending_removals", "_walk_all_records", "exchanged", "failures", "findings", "futures",
        "producer_id_expiration_ms", "repaired", "withheld",
    )  # fmt: skip

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
        """`producer.id.expiration.ms`: how long a producer may be silent. It may change at any time."""
        self._open_files = OpenFiles(most_open_files)
        self._walk_all_records = walk_all_records
        self._chance = chance
        self._logs: dict[TopicPartition, Log] = {}
        self._log_dirs: dict[TopicPartition, LogDir] = {}
        self._counts: Counter[LogDir] = Counter()
        """How many of these logs stand in each directory."""
        self._pending_removals: list[tuple[PendingRemoval, LogDir]] = []
        self._deleted = DeletedPartitions()
        self.futures = FutureLogs(files, self._make)
        """The logs that replicas get in other directories while they are moved."""
        self.withheld: set[TopicPartition] = set()
        """Partitions of which a copy was found and not the log, which may stand in a directory that cannot be read."""
        self.exchanged: set[TopicPartition] = set()
        """Partitions whose logs are held while their directories are renamed: nobody else may touch these."""
        self.failures: list[tuple[LogDir, StorageError]] = []
        """Why directories went offline while loading, or could not be closed in order."""
        self.repaired: list[LoadedLog] = []
        """Logs that were recovered, or had something damaged."""
        self.findings: list[str] = []
        """One sentence for each file or directory beside the logs that was damaged or out of place, and its repair."""

    def get(self, topic_partition: TopicPartition) -> Log | None:
        """The log of a partition; None if there is none."""
        return self._logs.get(topic_partition)

    def all(self) -> list[Log]:
        """All logs."""
        return list(self._logs.values())

    def directory_of(self, topic_partition: TopicPartition) -> LogDir | None:
        """The data directory that a partition's log stands in; None if there is no such log."""
        return self._log_dirs.get(topic_partition)

    def in_directory(self, directory: LogDir) -> list[Log]:
        """The logs that stand in a data directory."""
        return [log for topic_partition, log in self._logs.items() if self._log_dirs[topic_partition] is directory]

    def count_in(self, directory: LogDir) -> int:
        """How many logs stand in a data directory, copies of logs that are moved to it included."""
        copies = sum(future.directory is directory for future in self.futures.all())
        return self._counts[directory] + copies

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
        assigned: Callable[[TopicPartition], LogDir | None],
        new_id: Callable[[], str],
        recovery: str = AFTER_UNCLEAN_STOP,
    ) -> Iterator[FoundLog]:
        """The logs in all directories, to be opened with `open`; from here on a crash is unclean.

        A partition that the metadata does not know, or knows under another topic id, or has in another directory where
        it stands as well, is set aside as stray. What was being deleted when the last process ended goes on being
        deleted: `take_pending_removals`. A directory that cannot be read goes offline, and `failures` says why.

        Args:
            config_of: A topic's settings.
            is_ours: Whether the metadata knows a partition with this topic id (None: the directory names none).
            assigned: The data directory in which the metadata has a log; None if it does not say.
            new_id: 32 hex digits, new each time.
            recovery: `ottla.recovery`: whose segments are to be checked.

        Raises:
            WrongDirectory: A directory that is no partition's; a partition in two data directories, of which the
                metadata names neither; a partition in a directory whose name spells its number in another way.
        """
        finder = LogFinder(
            self._files, config_of=config_of, is_ours=is_ours, assigned=assigned, new_id=new_id,
            recovery=recovery, found=self.findings.append,
        )  # fmt: skip
        places: dict[TopicPartition, LogDir] = {}
        for directory in self._directories:
            if directory.has_failed:
                continue
            hosted: set[TopicPartition] = set()
            try:
                for found in finder.search(directory):
                    if isinstance(found, PendingRemoval):
                        self._pending_removals.append((found, directory))
                        continue
                    hosted.add(found.topic_partition)
                    if found.is_future:
                        yield found
                        continue
                    other = places.setdefault(found.topic_partition, directory)
                    if other is not directory:
                        raise WrongDirectory(f"{found.topic_partition} stands in {other.path} and in {directory.path}")
                    yield found
                self._forget_all_but(hosted, directory)
            except LogDirFailed as error:
                self.fail(directory, error)

    def _forget_all_but(self, hosted: Set[TopicPartition], directory: LogDir) -> None:
        """Forget what was deleted shortly before the last process ended: the checkpoints may still name it."""
        deleted = directory.named - hosted
        try:
            directory.forget(deleted)
        except (DiskFull, TooManyOpenFiles):
            self._deleted.add(directory, deleted)

    def open(
        self, found: FoundLog, now_ms: int, recovered: "RecoveredLog | None" = None
    ) -> Generator[int, None, Log | None]:
        """Open a log, step by step; each step yields the bytes it has read.

        ``recovered`` is the result of a process that has just recovered the log; without it the log is checked here,
        if need be. None if its directory has failed: `failures` says why. Raises DiskFull, TooManyOpenFiles.
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
                log_start_offset=found.log_start_offset,
                high_watermark=found.high_watermark,
                cleaned_to=found.cleaned_to,
                was_clean=found.was_clean,
                recovery=found.recovery if recovered is None else NEVER,
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
        if recovered is not None:
            log.producers.replace(recovered.producers)
        if not found.is_future:
            self._add(log, found.directory)
        elif found.topic_partition in self.futures:
            log.abandon()
            self.findings.append(f"{found.path} is the second copy of {found.topic_partition} that was being made")
        else:
            self.futures.add(FutureLog(log, found.directory))
        if report.segments_rebuilt or report.findings:
            self.repaired.append(LoadedLog(topic_partition=found.topic_partition, report=report))
        return log

    def fail(self, directory: LogDir, error: StorageError) -> None:
        """Add an error of a directory to `failures`; the failed read or write is not tried again.

        The directory goes offline, unless the error was a full disk."""
        directory.is_in_order = False
        self.failures.append((directory, error))
        if isinstance(error, LogDirFailed):
            self.directory_failed(directory)

    def take_failures(self) -> list[tuple[LogDir, StorageError]]:
        """Return `failures` and empty the list; the caller handles them."""
        failures, self.failures = self.failures, []
        return failures

    def loaded(self) -> None:
        """Note that all logs that `find` has found are open.

        A copy without its log was about to take the log's place when the last process ended, and takes it now.
        """
        for future in self.futures.all():
            if future.log.topic_partition not in self._logs:
                self._put_in_place(future)
        for directory in self._directories:
            directory.is_loaded = not directory.has_failed

    def _put_in_place(self, future: FutureLog) -> None:
        log, directory = future.log, future.directory
        self.futures.pop(log.topic_partition)
        if any(one.has_failed for one in self._directories):
            log.abandon()
            self.withheld.add(log.topic_partition)
            return
        path = f"{directory.path}/{log.topic_partition.dir_name}"
        try:
            self._files.rename(log.directory, path)
            self._files.fsync_directory(directory.path)
        except StorageError as error:
            self.fail(directory, error)
            log.abandon()
            return
        self.findings.append(f"{log.directory} has everything of its log and takes its place")
        log.moved_to(path)
        self._add(log, directory)

    def _add(self, log: Log, directory: LogDir) -> None:
        self._logs[log.topic_partition] = log
        self._log_dirs[log.topic_partition] = directory
        self._counts[directory] += 1

    def take_pending_removals(self) -> list[tuple[PendingRemoval, LogDir]]:
        """The removals of what loading has found half deleted; returned once."""
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
        *,
        is_renewed: bool = False,
    ) -> Log:
        """The log of a partition, made if it does not exist: in ``directory``, or the directory with fewest logs.

        ``is_renewed``: a topic of this name was deleted before. Then the new topic's id is on the disk before its first
        record: a directory without an id that is found after a power cut is the former topic's.

        Raises DiskFull, TooManyOpenFiles, LogDirFailed (also if no directory is left).
        """
        log = self._logs.get(topic_partition)
        if log is not None:
            if log.topic_id is None:
                log.assign_topic_id(topic_id)
            return log
        if directory is None or directory.has_failed:
            directory = self.emptiest()
        assert topic_partition not in self._deleted, f"checkpoints may still name the deleted {topic_partition}"
        path = f"{directory.path}/{topic_partition.dir_name}"
        log = self._make(path, topic_partition, topic_id, config, now_ms, durably=is_renewed)
        self._add(log, directory)
        return log

    def _make(
        self,
        path: str,
        topic_partition: TopicPartition,
        topic_id: bytes | None,
        config: LogConfig,
        now_ms: int,
        *,
        durably: bool = False,
    ) -> Log:
        """A new log in the directory ``path``; ``durably``: which is on the disk then, with the topic id."""
        is_new = not self._files.exists(path)
        try:
            self._files.make_directory(path)
            if topic_id is not None:
                write_topic_id(self._files, f"{path}/{PARTITION_METADATA}", topic_id, fsync=durably)
            if durably:
                self._files.fsync_directory(path.rpartition("/")[0])
            return open_log(
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
        except (DiskFull, TooManyOpenFiles):
            if is_new:  # the next attempt may be in another data directory, and the log must not stand in both
                with suppress(StorageError):
                    self._files.remove_tree(path)
            raise

    def emptiest(self) -> LogDir:
        """The directory with the fewest logs of those that can be used and are not cordoned. Raises LogDirFailed.

        Where all are cordoned it is the first one, as in Kafka: the controller had decided before.
        """
        alive = [directory for directory in self._directories if not directory.has_failed]
        if not alive:
            raise LogDirFailed("no data directory is left that can be written to")
        candidates = [directory for directory in alive if not directory.is_cordoned] or alive[:1]
        return min(candidates, key=self._counts.__getitem__)

    def may_be_made(self, topic_partition: TopicPartition) -> bool:
        """Whether a new log may have this name: not before its deleted namesake is forgotten."""
        return topic_partition not in self._deleted and topic_partition not in self.exchanged

    def forget_deleted(self) -> list[ForgetDeleted]:
        """The checkpoint writes due after deletions; perform them once, then hand them to `have_forgotten`."""
        return self._deleted.begin_to_forget()

    def have_forgotten(self, forgotten: ForgetDeleted) -> None:
        """Note that no checkpoint names the partitions of ``forgotten`` any more."""
        self._deleted.forgotten(forgotten)

    def delete(self, topic_partition: TopicPartition, unique_id: str) -> PendingRemoval | None:
        """Take a partition's log out of use; its directory, renamed, is to be removed later. None if there is no log.

        ``unique_id`` is 32 hex digits. Regions under way stay readable. Raises LogDirFailed.
        """
        log = self._logs.pop(topic_partition, None)
        if log is None:
            return None
        directory = self._log_dirs.pop(topic_partition)
        self._counts[directory] -= 1
        self._deleted.add(directory, {topic_partition})
        log.abandon()
        path = f"{directory.path}/{topic_partition.suffixed_dir_name(unique_id, DELETE)}"
        try:
            self._files.rename(log.directory, path)
        except FileNotFoundError:
            return None  # another process has removed it
        return PendingRemoval(self._files, (path,), log.config.file_delete_delay_ms)

    # Moving to another directory --------------------------------------------------------------------------------------

    def complete_exchange(self, future: FutureLog, exchange: LogExchange) -> tuple[PendingRemoval, LogDir]:
        """Let the log go on in the renamed directory of its copy. Returns the removal of its old directory."""
        log = self._logs[future.log.topic_partition]
        before = self._log_dirs[log.topic_partition]
        self.futures.pop(log.topic_partition)
        log.go_on_in(future.log, exchange.final)
        self._log_dirs[log.topic_partition] = future.directory
        self._counts[before] -= 1
        self._counts[future.directory] += 1
        return PendingRemoval(self._files, (exchange.deleted,), log.config.file_delete_delay_ms), before

    # Truncating: what a follower does ---------------------------------------------------------------------------------

    def begin_truncation(self, topic_partition: TopicPartition, offset: int) -> CheckpointWrite | None:
        """Lower the recovery point of a log that will be cut to ``offset``; returns the checkpoint writes for that.

        Perform them behind all `CheckpointWrite`s made earlier, and only then `truncate_to` or `truncate_fully_to`.

        Otherwise after a crash the checkpoint might vouch for records that have been appended since.
        """
        self._logs[topic_partition].expect_truncation_to(offset)
        return next(
            (w for w in self.recovery_point_checkpoints() if w.directory is self._log_dirs[topic_partition]), None
        )

    def truncate_to(self, topic_partition: TopicPartition, offset: int, now_ms: int) -> list[CheckpointWrite]:
        """Cut a log, see `Log.truncate_to`. Returns the log-start checkpoints to write before the next append.

        Raises DiskFull, LogDirFailed.
        """
        log = self._logs[topic_partition]
        log.truncate_to(offset, now_ms)
        if (future := self.futures.get(topic_partition)) is not None:
            future.was_cut(log.log_end_offset)
        return self.log_start_checkpoints()

    def truncate_fully_to(self, topic_partition: TopicPartition, offset: int, now_ms: int) -> list[CheckpointWrite]:
        """Empty a log, see `Log.truncate_fully_to`. Returns the log-start checkpoints to write before the next append.

        Without them the next start would drop records below the old log start.

        Raises DiskFull, LogDirFailed.
        """
        self._logs[topic_partition].truncate_fully_to(offset, now_ms)
        if (future := self.futures.get(topic_partition)) is not None:
            future.was_cut(0)
        return self.log_start_checkpoints()

    # Failing ----------------------------------------------------------------------------------------------------------

    def directory_failed(self, directory: LogDir) -> list[Log]:
        """Take a failed directory out of use: its logs are closed without a write, and returned."""
        directory.has_failed = True
        self.futures.abandon([one for one in self.futures.all() if one.directory is directory])
        gone = self.in_directory(directory)
        for log in gone:
            del self._logs[log.topic_partition], self._log_dirs[log.topic_partition]
            log.abandon()
        self._counts[directory] = 0
        return gone

    def let_go_removed(self, topic_partition: TopicPartition) -> bool:
        """Take a partition's log, files of which another process has removed, out of use without a write.

        False if the data directory itself is gone: then `directory_failed` is called for."""
        if not self._log_dirs[topic_partition].is_there:
            return False
        self._counts[self._log_dirs.pop(topic_partition)] -= 1
        self._logs.pop(topic_partition).abandon()
        return True

    # In passing -------------------------------------------------------------------------------------------------------

    def apply_retention(
        self, now_ms: int, held_from: Callable[[Log], int | None] = _not_held
    ) -> Iterator[tuple[Log, list[PendingRemoval] | StorageError]]:
        """Apply retention log by log; each step gives the removals of one log, or the error that kept it from any.

        ``held_from`` gives the offset from which on a log waits to be archived: see `storage.retention`.
        """
        for log in self.all():
            if self._logs.get(log.topic_partition) is not log or log.is_being_cleaned:
                continue  # the log was deleted since the sweep began, or waits for its cleaner
            try:
                removals = apply_retention(log, now_ms, held_from(log))
            except StorageError as error:
                yield log, error
            except FileNotFoundError as error:
                yield log, FilesRemoved(f"{error.filename} is gone: another process has removed it")
            else:
                yield log, removals

    def remove_expired_producers(self, now_ms: int) -> int:
        """Forget producers that have been silent for `producer.id.expiration.ms`; returns how many."""
        return sum(log.remove_expired_producers(now_ms, self.producer_id_expiration_ms) for log in self.all())

    def recovery_point_checkpoints(self) -> list[CheckpointWrite]:
        """The due writes of the recovery point checkpoints: up to where each log is on disk."""
        return self._checkpoints(RECOVERY_POINTS, lambda log: log.recovery_point)

    def log_start_checkpoints(self) -> list[CheckpointWrite]:
        """The due writes of the log start checkpoints: where each log begins, and where its copy will."""
        of_copies = self.futures.log_starts(self._logs)
        return self._checkpoints(LOG_START_OFFSETS, lambda log: log.start_to_checkpoint, of_copies)

    def high_watermark_checkpoints(self) -> list[CheckpointWrite]:
        """The due writes of the high watermark checkpoints."""
        return self._checkpoints(HIGH_WATERMARKS, lambda log: log.high_watermark)

    def cleaner_checkpoints(self) -> list[CheckpointWrite]:
        """The due writes of the cleaner's checkpoints: up to where compacted logs are clean."""
        return self._checkpoints(CLEANER_OFFSETS, lambda log: log.cleaned_to)

    def _checkpoints(
        self,
        name: str,
        offset_of: Callable[[Log], int | None],
        of_copies: Mapping[str, Mapping[TopicPartition, int]] = NO_COPIES,
    ) -> list[CheckpointWrite]:
        """``of_copies`` are offsets of logs that do not stand in a directory yet, by its path."""
        by_directory = {one.path: dict(of_copies.get(one.path, NO_OFFSETS)) for one in self._directories}
        for topic_partition, log in self._logs.items():
            offset = offset_of(log)
            if offset is not None:
                by_directory[self._log_dirs[topic_partition].path][topic_partition] = offset
        writes = (
            directory.checkpoint(name, by_directory[directory.path])
            for directory in self._directories
            # For logs that have not been opened yet, the file on disk has the offsets.
            if directory.is_loaded
        )
        return [write for write in writes if write is not None]

    # The end ----------------------------------------------------------------------------------------------------------

    def begin_close(self, now_ms: int) -> Iterator[ClosingLog]:
        """Close all logs, one by one. Perform each `ClosingLog`, in any thread, then call `complete_close`.

        A log that cannot be closed is passed over: `failures` says why.

        A directory without space for a write gets no clean-shutdown marker; a directory that fails goes offline.
        """
        closed = [(log, self._log_dirs.get(log.topic_partition)) for log in self.all()]
        closed += [(future.log, future.directory) for future in self.futures.all()]
        for log, directory in closed:
            if directory is None or directory.has_failed:
                continue
            try:
                log.settle()
            except StorageError as error:
                self.fail(directory, error)
                if isinstance(error, LogDirFailed):
                    continue
            try:
                # Where closing found the disk full too: synced records need not be recovered at the next start.
                target = log.begin_flush(now_ms, everything=True)
                if not log.leader_epochs.is_saved:
                    self.fail(directory, DiskFull(f"{log.directory} has no space for its leader epochs"))
            except StorageError as error:
                self.fail(directory, error)
                log.abandon()
            else:
                yield ClosingLog(log=log, directory=directory, target=target)

    def complete_close(self, closing: ClosingLog) -> None:
        """Note that a closed log is on disk."""
        if closing.target is not None:
            closing.log.complete_flush(closing.target)
        closing.log.abandon()

    def write_checkpoints(self) -> None:
        """Write all checkpoints once all logs are closed."""
        for write in (
            *self.recovery_point_checkpoints(), *self.log_start_checkpoints(), *self.high_watermark_checkpoints(),
            *self.cleaner_checkpoints(),
        ):  # fmt: skip
            try:
                write.perform()
            except StorageError as error:
                self.fail(write.directory, error)
        self._logs.clear()
        self._log_dirs.clear()
        self._counts.clear()

    def leave(self, broker_epoch: int = -1) -> None:
        """After `close`, and after the metadata log's: write the clean-shutdown markers and release the directories.

        Where logs were never all opened, the marker is left only if it was there before.
        """
        for directory in self._directories:
            directory.leave(clean=directory.is_loaded or directory.was_clean, broker_epoch=broker_epoch)
