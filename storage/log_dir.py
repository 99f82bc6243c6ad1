"""One data directory: its lock, `meta.properties`, checkpoints, clean-shutdown marker and partition directories.

.lock                              while a broker works in it
meta.properties                    whose it is
.kafka_cleanshutdown               while no broker works in it, if the last one left in order
recovery-point-offset-checkpoint   up to where each log is on disk
log-start-offset-checkpoint        where each log begins, if not with its first segment
replication-offset-checkpoint      high watermarks
cleaner-offset-checkpoint          up to where each compacted log has been cleaned
<topic>-<partition>/               a log; other directories are not allowed, for Apache Kafka refuses them
__cluster_metadata-0/              the metadata log, in one of a broker's directories; not looked at here
"""

from collections.abc import Callable, Collection
from typing import Final

from storage.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    META_PROPERTIES,
    RECOVERY_POINTS,
    MetaProperties,
    read_clean_shutdown,
    read_meta_properties,
    read_offset_checkpoint,
    take_clean_shutdown,
    write_clean_shutdown,
    write_meta_properties,
    write_offset_checkpoint,
)
from storage.errors import CorruptCheckpoint, LogDirFailed, WrongDirectory
from storage.file_info import DiskSpace
from storage.file_names import as_text
from storage.files import File, FileSystem, Lock
from storage.topic_partition import MISNAMED, PartitionDirectory, TopicPartition, parse_dir_name

METADATA_DIR_NAME: Final = "__cluster_metadata-0"

MEMBERSHIP_MARKER: Final = ".ottla_member"
"""The file in the metadata directory of a node that is, or was, a member of a cluster."""

_LOCK: Final = ".lock"
NOT_LOGS: Final = frozenset({METADATA_DIR_NAME, "remote-log-index-cache", "lost+found"})
"""Directories that may be among the logs and are not opened with them."""


def lock_for_reading(files: FileSystem, path: str) -> File | None:
    """Lock a data directory against brokers while it is read; see `FileSystem.lock_for_reading`."""
    return files.lock_for_reading(f"{path}/{_LOCK}")


class CheckpointWrite:
    """A checkpoint file to be replaced, with what it is to hold."""

    __slots__ = ("_files", "_name", "_offsets", "_written", "directory")

    def __init__(
        self,
        files: FileSystem,
        directory: "LogDir",
        name: str,
        offsets: dict[TopicPartition, int],
        written: dict[str, dict[TopicPartition, int]],
    ) -> None:
        self._files = files
        self._name = name
        self._offsets = offsets
        self._written = written
        self.directory = directory

    @property
    def path(self) -> str:
        """The path of the checkpoint file."""
        return f"{self.directory.path}/{self._name}"

    def perform(self) -> None:
        """Write and sync the file. Raises DiskFull, TooManyOpenFiles, LogDirFailed; the old file stays then.

        Does nothing once the directory has failed. May run in another thread, but two for one path not at once.
        """
        if self.directory.has_failed:
            return
        write_offset_checkpoint(self._files, self.path, self._offsets)
        self._written[self._name] = self._offsets


def _make_durably(files: FileSystem, path: str) -> None:
    """Make a data directory and those above it, where they are missing, with names that a power cut leaves."""
    if files.exists(path):
        files.make_directory(path)  # says so if it is a file
        return
    above = path.rpartition("/")[0] or "/"
    _make_durably(files, above)
    files.make_directory(path)
    files.fsync_directory(above)


class LogDir:
    """A data directory that this process has locked, or could not use from the start."""

    __slots__ = (
        "_broker_epoch",
        "_files",
        "_has_begun",
        "_lock",
        "_written",
        "findings",
        "has_failed",
        "is_cordoned",
        "is_in_order",
        "is_loaded",
        "path",
        "was_clean",
    )

    def __init__(self, files: FileSystem, path: str, lock: Lock | None) -> None:
        """A directory without a lock has failed already."""
        self._files = files
        self._lock = lock
        self._has_begun = False
        self._broker_epoch: int | None = None
        self.path = path
        self.was_clean = False
        """Whether the last broker was shut down cleanly; known once loading has begun."""
        self.is_loaded = False
        """Whether all of its logs have been opened."""
        self.has_failed = lock is None
        """Whether the directory has failed: then nothing is written to it until the next start."""
        self.is_cordoned = False
        """Whether the directory takes no new logs; those that it has stay (KIP-1066)."""
        self.is_in_order = True
        """Whether closing has written everything; otherwise the next start must recover."""
        self.findings: list[str] = []
        """One sentence for each damaged checkpoint, with what follows from it."""
        self._written: dict[str, dict[TopicPartition, int]] = {}
        """The offsets that each checkpoint holds on disk, by its name."""

    @classmethod
    def lock(cls, files: FileSystem, path: str) -> "LogDir":
        """Lock a directory, making it if it is missing. Raises DirectoryLocked, LogDirFailed."""
        _make_durably(files, files.absolute(path))
        return cls(files, path, files.lock(f"{path}/{_LOCK}"))

    @classmethod
    def unusable(cls, files: FileSystem, path: str) -> "LogDir":
        """A directory that could not be made or locked: it has failed before anything could be read in it."""
        return cls(files, path, None)

    def __repr__(self) -> str:
        return f"<LogDir {self.path}>"

    @property
    def absolute_path(self) -> str:
        """The directory's absolute path, for logs and answers."""
        return as_text(self._files.absolute(self.path))

    @property
    def label(self) -> str:
        """The directory's path as the settings name it, for metrics."""
        return as_text(self.path)

    def space(self) -> DiskSpace:
        """The size of the directory's file system. Raises LogDirFailed, also for a directory that has failed before."""
        if self.has_failed:
            raise LogDirFailed(f"{self.path} has failed")
        return self._files.space(self.path)

    @property
    def is_there(self) -> bool:
        """Whether the directory still has its `meta.properties`: it was not removed, and its disk is mounted."""
        try:
            return self._files.exists(f"{self.path}/{META_PROPERTIES}")
        except LogDirFailed:
            return False

    def read_properties(self) -> MetaProperties | None:
        """Read `meta.properties`; None in a new directory. Raises WrongDirectory."""
        return read_meta_properties(self._files, f"{self.path}/{META_PROPERTIES}")

    def write_properties(self, properties: MetaProperties, date: str) -> None:
        """Write and sync `meta.properties`, and the directory's own name. ``date`` is text for people."""
        write_meta_properties(self._files, f"{self.path}/{META_PROPERTIES}", properties, date)
        self._files.fsync_directory(self.path.rpartition("/")[0])

    @property
    def last_broker_epoch(self) -> int | None:
        """The broker epoch of a clean shutdown, -1 if the marker names none; None without a marker.

        Asked before `begin_loading`, which removes the marker. Raises LogDirFailed.
        """
        return read_clean_shutdown(self._files, f"{self.path}/{CLEAN_SHUTDOWN}")

    def begin_loading(self) -> int | None:
        """Remove the clean-shutdown marker: from here on a crash is unclean.

        Returns the broker epoch of a clean shutdown, -1 if the marker names none, None if there was no marker.
        """
        if not self._has_begun:
            self._has_begun = True
            self._broker_epoch = take_clean_shutdown(self._files, f"{self.path}/{CLEAN_SHUTDOWN}")
            self.was_clean = self._broker_epoch is not None
        return self._broker_epoch

    def partition_directories(
        self, is_hosted: Callable[[TopicPartition], bool]
    ) -> list[tuple[str, PartitionDirectory]]:
        """The name of every partition's directory, and the name's parts.

        Raises WrongDirectory for any other directory; LogDirFailed where a partition that this node hosts has something
        else in the place of its directory, such as a link to a disk that is not there.
        """
        found = []
        for entry in self._files.list_directory(self.path):
            if entry.is_directory:
                if entry.name not in NOT_LOGS:
                    found.append((entry.name, parse_dir_name(entry.name)))
                continue
            try:
                topic_partition, fate = parse_dir_name(entry.name)
            except WrongDirectory:
                continue
            if not fate and is_hosted(topic_partition):
                raise LogDirFailed(
                    f"{self.path}/{entry.name} is {entry.kind}, expected the directory of partition {topic_partition}"
                )
        return found

    def partitions_in_use(self) -> list[str]:
        """The names of the directories of partitions, but for those that are being deleted or were set aside.

        Raises WrongDirectory for a directory that is no partition's.
        """
        return [name for name, (_, fate) in self.partition_directories(lambda _: False) if fate in ("", MISNAMED)]

    def recovery_points(self) -> dict[TopicPartition, int]:
        """Up to where each log is on disk. None if the file is damaged: then everything is recovered."""
        return self._read(RECOVERY_POINTS, "after an unclean stop all of each log is checked")

    def log_start_offsets(self) -> dict[TopicPartition, int]:
        """Where logs begin that do not begin with their first segment. None if the file is damaged."""
        return self._read(LOG_START_OFFSETS, "logs begin with their first segment")

    def saved_log_start(self, topic_partition: TopicPartition) -> int:
        """Where a log begins by the checkpoint that is on disk; 0 if that does not name the log."""
        return self._written.get(LOG_START_OFFSETS, {}).get(topic_partition, 0)

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """The high watermarks. None if the file is damaged: they are found again."""
        return self._read(HIGH_WATERMARKS, "high watermarks begin at the start of their logs")

    def cleaner_offsets(self) -> dict[TopicPartition, int]:
        """Up to where the cleaner has come in each log. None if the file is damaged."""
        return self._read(CLEANER_OFFSETS, "compacted logs are cleaned from their start")

    def _read(self, name: str, without_it: str) -> dict[TopicPartition, int]:
        try:
            offsets = read_offset_checkpoint(self._files, f"{self.path}/{name}")
        except CorruptCheckpoint as error:
            self.findings.append(f"{error}: it counts as empty, {without_it}")
            return {}
        self._written[name] = offsets
        return offsets

    def checkpoint(self, name: str, offsets: dict[TopicPartition, int]) -> CheckpointWrite | None:
        """Replace the checkpoint ``name``; None if it holds just that already."""
        if self.has_failed or self._written.get(name) == offsets:
            return None
        return CheckpointWrite(self._files, self, name, offsets, self._written)

    @property
    def named(self) -> set[TopicPartition]:
        """The partitions that the checkpoints name."""
        return set().union(*self._written.values())

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Take the offsets of these deleted partitions out of every checkpoint.

        Their renamed directories are on the disk then, too: an old one that comes back with a power cut would give the
        records of a deleted topic to the next topic of its name.

        Runs in the thread that writes checkpoints, and raises what `CheckpointWrite.perform` raises.
        """
        for name, offsets in tuple(self._written.items()):
            kept = {one: offset for one, offset in offsets.items() if one not in partitions}
            if len(kept) < len(offsets) and (write := self.checkpoint(name, kept)) is not None:
                write.perform()
        self._files.fsync_directory(self.path)

    def leave(self, *, clean: bool, broker_epoch: int) -> None:
        """Release the directory; if everything is in order, write the clean-shutdown marker last.

        Raises DiskFull, TooManyOpenFiles, LogDirFailed where the marker cannot be written or the lock's file stays.
        """
        lock, self._lock = self._lock, None
        if lock is None:
            return
        try:
            if clean and self.is_in_order and not self.has_failed:
                write_clean_shutdown(self._files, f"{self.path}/{CLEAN_SHUTDOWN}", broker_epoch)
        finally:
            lock.release()
