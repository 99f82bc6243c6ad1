"""Finding the logs in a data directory at start, and dealing with the directories that are no partition's.

<topic>-<partition>                 a log to open; a stray log, if the metadata does not know it or knows it under
                                    another topic id; or if it names no topic, and a former topic had its name; or if
                                    the metadata has it in another data directory, where it stands as well
<topic>-<partition>.<id>-delete     it was being deleted when the last process ended, and goes on being deleted
<topic>-<partition>.<id>-future     the copy of a log that was being moved: it is opened, too
<topic>-<partition>.<id>-stray      a stray log that was set aside: it stays where it is
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from config.log_config import LogConfig
from storage.checkpoints import PARTITION_METADATA, format_id, read_topic_id
from storage.errors import CorruptCheckpoint, WrongDirectory
from storage.files import FileSystem
from storage.loading import bytes_from, offset_to_check_from
from storage.log_dir import LogDir
from storage.removal import PendingRemoval
from storage.topic_partition import DELETE, FUTURE, MISNAMED, STRAY, TopicPartition

if TYPE_CHECKING:
    from storage.recovery_order import RecoveryOrder


class FoundLog(NamedTuple):
    """A log that stands in a data directory and is to be opened."""

    directory: LogDir
    path: str
    topic_partition: TopicPartition
    topic_id: bytes | None
    config: LogConfig
    recovery_point: int
    log_start_offset: int
    high_watermark: int
    """From the checkpoints; 0 where they say nothing."""
    cleaned_to: int | None
    """From the cleaner's checkpoint; None where it says nothing."""
    was_clean: bool
    """Whether the log was closed in order."""
    recovery: str
    """When logs are checked: see `storage.loading`."""
    check_from: int | None
    """The offset where recovery begins; None without recovery. Nothing below the recovery point is cut."""
    bytes_to_check: int
    is_future: bool = False
    """Whether it is the copy of a log that was being moved."""

    def recovery_order(self, now_ms: int, producer_id_expiration_ms: int) -> "RecoveryOrder":
        """The order for another process to recover this log."""
        from storage.recovery_order import RecoveryOrder  # not at a start behind a clean stop

        return RecoveryOrder(
            directory=self.path,
            topic_partition=self.topic_partition,
            config=self.config,
            now_ms=now_ms,
            recovery_point=self.recovery_point,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
            cleaned_to=self.cleaned_to,
            was_clean=self.was_clean,
            recovery=self.recovery,
            producer_id_expiration_ms=producer_id_expiration_ms,
        )


class LogFinder:
    """Finds the logs in data directories.

    Args:
        config_of: A topic's settings.
        is_ours: Whether the metadata knows a partition with this topic id (None: the directory names none).
        assigned: The data directory in which the metadata has the log; None if it does not say.
        new_id: 32 hex digits, new each time.
        recovery: When logs are checked: see `storage.loading`.
        found: Called with a sentence for each file or directory that was damaged or out of place, and its repair.
    """

    __slots__ = ("_assigned", "_config_of", "_files", "_found", "_is_ours", "_new_id", "_recovery")

    def __init__(
        self,
        files: FileSystem,
        *,
        config_of: Callable[[str], LogConfig],
        is_ours: Callable[[TopicPartition, bytes | None], bool],
        assigned: Callable[[TopicPartition], LogDir | None],
        new_id: Callable[[], str],
        recovery: str,
        found: Callable[[str], None],
    ) -> None:
        self._files = files
        self._config_of = config_of
        self._is_ours = is_ours
        self._assigned = assigned
        self._new_id = new_id
        self._recovery = recovery
        self._found = found

    def search(self, directory: LogDir) -> Iterator[FoundLog | PendingRemoval]:
        """The logs in ``directory``, and the removals of those that were being deleted; stray logs are set aside.

        The clean-shutdown marker goes first: from here on a crash is unclean. Raises LogDirFailed, WrongDirectory.
        """
        directory.begin_loading()
        recovery_points = directory.recovery_points()
        log_starts = directory.log_start_offsets()
        high_watermarks = directory.high_watermarks()
        cleaner_offsets = directory.cleaner_offsets()
        for finding in directory.findings:
            self._found(finding)
        for name, (topic_partition, fate) in directory.partition_directories(lambda one: self._is_ours(one, None)):
            path = f"{directory.path}/{name}"
            if fate == DELETE:
                delay_ms = self._config_of(topic_partition.topic).file_delete_delay_ms
                yield PendingRemoval(self._files, (path,), delay_ms)
            elif fate in ("", MISNAMED, FUTURE):
                topic_id, problem = self._topic_id_in(path)
                is_known = self._is_ours(topic_partition, topic_id)
                is_future = fate == FUTURE
                if (fate and not is_future) or not is_known:
                    self._set_aside(directory, name, topic_partition, topic_id, problem, is_known)
                    continue
                if not fate and (elsewhere := self._elsewhere(topic_partition, directory)) is not None:
                    # A directory that had failed is back, and the replica was made anew in another one meanwhile.
                    why = f"{path} is a second log of {topic_partition}, which the metadata has in {elsewhere.path}"
                    self._make_stray(directory, topic_partition, path, why)
                    continue
                if problem:
                    self._found(f"{problem}: the topic id is the one that the metadata has")
                # The checkpoint may speak of an earlier log of the partition in this directory.
                recovery_point = 0 if is_future else recovery_points.get(topic_partition, 0)
                check_from = offset_to_check_from(self._recovery, recovery_point, was_clean=directory.was_clean)
                yield FoundLog(
                    directory=directory,
                    path=path,
                    topic_partition=topic_partition,
                    topic_id=topic_id,
                    config=self._config_of(topic_partition.topic),
                    recovery_point=recovery_point,
                    log_start_offset=log_starts.get(topic_partition, 0),
                    high_watermark=0 if is_future else high_watermarks.get(topic_partition, 0),
                    cleaned_to=None if is_future else cleaner_offsets.get(topic_partition),
                    was_clean=directory.was_clean,
                    recovery=self._recovery,
                    check_from=check_from,
                    bytes_to_check=0 if check_from is None else bytes_from(self._files, path, check_from),
                    is_future=is_future,
                )

    def _topic_id_in(self, path: str) -> tuple[bytes | None, str]:
        """The topic id that a partition's directory names, or why it names none."""
        metadata_path = f"{path}/{PARTITION_METADATA}"
        try:
            topic_id = read_topic_id(self._files, metadata_path)
        except CorruptCheckpoint as error:
            # It is not synced when it is written: the metadata log has the id, and `LogManager.create` writes it again.
            return None, str(error)
        return topic_id, "" if topic_id is not None else f"{metadata_path} is missing"

    def _set_aside(
        self,
        directory: LogDir,
        name: str,
        topic_partition: TopicPartition,
        topic_id: bytes | None,
        problem: str,
        is_known: bool,
    ) -> None:
        """Rename a directory that is no partition's to `-stray`. Raises WrongDirectory if only its name is wrong."""
        path = f"{directory.path}/{name}"
        named = problem if topic_id is None else f"{path} has the topic id {format_id(topic_id)}"
        reason = "the metadata knows no such partition"
        if is_known:
            reason = f"the directory of {topic_partition} is called {topic_partition.dir_name}"
            if topic_id is not None:
                raise WrongDirectory(f"{named}, and {reason}")
        self._make_stray(directory, topic_partition, path, f"{named}, and {reason}")

    def _make_stray(self, directory: LogDir, topic_partition: TopicPartition, path: str, why: str) -> None:
        stray_name = topic_partition.suffixed_dir_name(self._new_id(), STRAY)
        self._files.rename(path, f"{directory.path}/{stray_name}")
        self._found(f"{why}: set aside as {stray_name}")

    def _elsewhere(self, topic_partition: TopicPartition, directory: LogDir) -> LogDir | None:
        """The other data directory in which the metadata has the log, if the log stands there."""
        assigned = self._assigned(topic_partition)
        if assigned is None or assigned is directory or assigned.has_failed:
            return None
        return assigned if self._files.exists(f"{assigned.path}/{topic_partition.dir_name}") else None
