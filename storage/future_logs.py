"""Future logs: the logs that replicas get in other data directories while they are moved (KIP-113).

    <old directory>/<topic>-<partition>                   the log of the partition, written and read
    <new directory>/<topic>-<partition>.<id>-future       the copy, until it has everything
    <old directory>/<topic>-<partition>.<id>-delete       first the log is renamed,
    <new directory>/<topic>-<partition>                   then the copy takes its place

A start that finds a future log without the log has been preceded by a crash between the two renames.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from config.log_config import LogConfig
from storage.errors import FilesRemoved, StorageError
from storage.files import FileSystem
from storage.log import Log
from storage.log_dir import LogDir
from storage.removal import PendingRemoval
from storage.topic_partition import DELETE, FUTURE, TopicPartition


class FutureLog:
    """The copy of one log in another data directory."""

    __slots__ = ("cut_to", "directory", "log")

    def __init__(self, log: Log, directory: LogDir) -> None:
        self.log = log
        self.directory = directory
        self.cut_to: int | None = None
        """The offset that the partition's log was cut to since the copy was last looked at; None if it was not cut."""

    def __repr__(self) -> str:
        return f"<FutureLog {self.log}>"

    def was_cut(self, offset: int) -> None:
        """Note that the partition's log was cut to ``offset``: what the copy has behind it may differ."""
        self.cut_to = offset if self.cut_to is None else min(self.cut_to, offset)

    def fit(self, log: Log, now_ms: int) -> None:
        """Remove what ``log``, the partition's, does not have, and take its settings. Raises DiskFull, LogDirFailed."""
        copy = self.log
        if copy.config is not log.config:
            copy.config = log.config
        end_offset = min(log.log_end_offset, copy.log_end_offset if self.cut_to is None else self.cut_to)
        if end_offset < copy.log_end_offset:
            copy.truncate_to(end_offset, now_ms)
        self.cut_to = None
        if copy.log_end_offset < log.log_start_offset:
            copy.truncate_fully_to(log.log_start_offset, now_ms)

    def ends_with(self, log: Log) -> bool:
        """Whether the copy ends where ``log``, the partition's, does, and that was not cut since `fit`."""
        return self.cut_to is None and self.log.log_end_offset == log.log_end_offset

    def missing(self, log: Log) -> int:
        """How many offsets of ``log``, the partition's, the copy does not have."""
        return max(log.log_end_offset - self.log.log_end_offset, 0)


class LogExchange:
    """The two renames with which a future log takes the place of its partition's log."""

    __slots__ = ("_files", "current", "deleted", "final", "future", "is_leaving")

    def __init__(self, files: FileSystem, *, current: str, deleted: str, future: str, final: str) -> None:
        self._files = files
        self.current = current
        self.deleted = deleted
        self.future = future
        self.final = final
        self.is_leaving = True
        """Whether it is the log's directory that is renamed, not yet the copy's: an error is of that data directory."""

    def perform(self) -> None:
        """Rename both directories, durably and in this order. May run in another thread.

        The first name is on disk before the second rename: no power cut leaves the partition in two directories.
        Raises StorageError; both directories have their old names then.
        """
        try:
            self._files.rename(self.current, self.deleted)
            self._files.fsync_directory(_above(self.current))
            self.is_leaving = False
            self._files.rename(self.future, self.final)
            self._files.fsync_directory(_above(self.future))
        except FileNotFoundError as error:
            self.undo()
            raise FilesRemoved(f"{error.filename} is gone: another process has removed it") from error
        except StorageError:
            self.undo()
            raise

    def undo(self) -> None:
        """Give both directories their old names again, as far as that is possible."""
        for now, before in ((self.final, self.future), (self.deleted, self.current)):
            with suppress(StorageError, FileNotFoundError):
                self._files.rename(now, before)
                self._files.fsync_directory(_above(before))


MakeLog = Callable[[str, TopicPartition, bytes | None, LogConfig, int], Log]
"""Makes a new log, given the path of its directory, the partition, the topic id, the settings and the time in ms."""


class FutureLogs:
    """The future logs of one broker, by partition."""

    __slots__ = ("_by_partition", "_files", "_make")

    def __init__(self, files: FileSystem, make: MakeLog) -> None:
        self._files = files
        self._make = make
        self._by_partition: dict[TopicPartition, FutureLog] = {}

    def __contains__(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self._by_partition

    def get(self, topic_partition: TopicPartition) -> FutureLog | None:
        """The future log of a partition; None if its replica is not moved."""
        return self._by_partition.get(topic_partition)

    def all(self) -> list[FutureLog]:
        """All future logs."""
        return list(self._by_partition.values())

    def add(self, future: FutureLog) -> None:
        """Add the future log of a partition, which has none."""
        assert future.log.topic_partition not in self._by_partition, f"{future} is the second one"
        self._by_partition[future.log.topic_partition] = future

    def pop(self, topic_partition: TopicPartition) -> FutureLog | None:
        """Take the future log of a partition out; None if there is none."""
        return self._by_partition.pop(topic_partition, None)

    def create(self, log: Log, directory: LogDir, unique_id: str, now_ms: int) -> FutureLog:
        """Begin the copy of a partition's log in another directory. ``unique_id`` is 32 hex digits.

        Raises DiskFull, TooManyOpenFiles, LogDirFailed.
        """
        topic_partition = log.topic_partition
        path = f"{directory.path}/{topic_partition.suffixed_dir_name(unique_id, FUTURE)}"
        future = FutureLog(self._make(path, topic_partition, log.topic_id, log.config, now_ms), directory)
        self.add(future)
        return future

    def delete(self, topic_partition: TopicPartition, unique_id: str) -> tuple[PendingRemoval, LogDir] | None:
        """Give the copy of a log up; its directory, renamed, is to be removed. None if there is none.

        ``unique_id`` is 32 hex digits. Raises LogDirFailed.
        """
        future = self.pop(topic_partition)
        if future is None:
            return None
        future.log.abandon()
        path = f"{future.directory.path}/{topic_partition.suffixed_dir_name(unique_id, DELETE)}"
        try:
            self._files.rename(future.log.directory, path)
        except FileNotFoundError:
            return None  # another process has removed it
        return PendingRemoval(self._files, (path,), future.log.config.file_delete_delay_ms), future.directory

    def begin_exchange(self, log: Log, future: FutureLog, unique_id: str) -> LogExchange:
        """The renames with which a copy takes the place of its log, which is held. ``unique_id`` is 32 hex digits."""
        name = log.topic_partition.suffixed_dir_name(unique_id, DELETE)
        return LogExchange(
            self._files,
            current=log.directory,
            deleted=f"{_above(log.directory)}/{name}",
            future=future.log.directory,
            final=f"{future.directory.path}/{log.topic_partition.dir_name}",
        )

    def log_starts(self, logs: Mapping[TopicPartition, Log]) -> dict[str, dict[TopicPartition, int]]:
        """Where the copies of ``logs`` have to begin, by the path of the data directory; those at 0 are left out."""
        starts: dict[str, dict[TopicPartition, int]] = {}
        for topic_partition, future in self._by_partition.items():
            log = logs.get(topic_partition)
            if log is not None and log.log_start_offset:
                starts.setdefault(future.directory.path, {})[topic_partition] = log.log_start_offset
        return starts

    def abandon(self, futures: Iterable[FutureLog]) -> None:
        """Take future logs out and close their files without a write."""
        for future in futures:
            self._by_partition.pop(future.log.topic_partition, None)
            future.log.abandon()


def _above(path: str) -> str:
    return path.rpartition("/")[0] or "."
