"""One data directory: its lock, whose it is, checkpoints, clean-shutdown marker, and which partitions stand in it.

.lock                              while a broker works in it
meta.properties                    whose it is
.kafka_cleanshutdown               while no broker works in it, if the last one left in order
recovery-point-offset-checkpoint   up to where each log is on disk
log-start-offset-checkpoint        where each log begins, if not with its first segment
replication-offset-checkpoint      high watermarks
<topic>-<partition>/               a log; other directories are not allowed, for Apache Kafka refuses them
__cluster_metadata-0/              the metadata log, in one of a broker's directories; not looked at here
"""

from collections.abc import Mapping
from typing import Final

from storage.checkpoints import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    META_PROPERTIES,
    RECOVERY_POINTS,
    MetaProperties,
    read_meta_properties,
    read_offset_checkpoint,
    take_clean_shutdown,
    write_clean_shutdown,
    write_meta_properties,
    write_offset_checkpoint,
)
from storage.errors import CorruptCheckpoint, LogDirFailed
from storage.files import DiskSpace, FileSystem, Lock
from storage.topic_partition import PartitionDirectory, TopicPartition, parse_dir_name

METADATA_DIR_NAME: Final = "__cluster_metadata-0"

_LOCK: Final = ".lock"
_NOT_OURS: Final = frozenset({METADATA_DIR_NAME, "remote-log-index-cache", "lost+found"})


class _Checkpoint:
    """One checkpoint file of a data directory."""

    __slots__ = ("asked", "on_disk", "writes")

    def __init__(self, on_disk: dict[TopicPartition, int]) -> None:
        self.on_disk = on_disk
        """What it holds on disk."""
        self.asked = on_disk
        """What it is to hold, by the last that was asked for."""
        self.writes = 0


class CheckpointWrite:
    """A checkpoint file to be replaced."""

    __slots__ = ("_checkpoint", "_files", "_number", "path")

    def __init__(self, files: FileSystem, path: str, checkpoint: _Checkpoint) -> None:
        self._files = files
        self.path = path
        self._checkpoint = checkpoint
        checkpoint.writes += 1
        self._number = checkpoint.writes

    def perform(self) -> None:
        """Write what it is to hold by now, and sync. Raises DiskFull, LogDirFailed.

        May run in another thread, and while another one for the same path does: the last that was asked for stays.
        """
        checkpoint = self._checkpoint
        while True:
            asked = checkpoint.asked
            temporary = f"{self.path}.{self._number}.tmp"
            write_offset_checkpoint(self._files, self.path, asked, temporary=temporary)
            checkpoint.on_disk = asked
            if checkpoint.asked is asked:
                return


class LogDir:
    """A data directory that this process has locked."""

    __slots__ = (
        "_broker_epoch",
        "_checkpoints",
        "_files",
        "_has_begun",
        "_lock",
        "has_failed",
        "is_loaded",
        "path",
        "was_clean",
    )

    def __init__(self, files: FileSystem, path: str, lock: Lock) -> None:
        self._files = files
        self._lock = lock
        self._has_begun = False
        self._broker_epoch: int | None = None
        self.path = path
        self.was_clean = False
        """Whether the last broker left in order; known once loading has begun."""
        self.is_loaded = False
        """Whether all of its logs have been opened."""
        self.has_failed = False
        """It cannot be trusted any more: nothing is written to it until the process is started anew."""
        self._checkpoints: dict[str, _Checkpoint] = {}
        """By name; those that have been read or written."""

    @classmethod
    def lock(cls, files: FileSystem, path: str) -> "LogDir":
        """Take a directory, making it if it is missing. Raises DirectoryLocked, LogDirFailed."""
        files.make_directory(path)
        return cls(files, path, files.lock(f"{path}/{_LOCK}"))

    def __repr__(self) -> str:
        return f"<LogDir {self.path}>"

    @property
    def absolute_path(self) -> str:
        """Where it is, for people elsewhere."""
        return self._files.absolute(self.path)

    def space(self) -> DiskSpace:
        """The size of its file system. Raises LogDirFailed, also for a directory that has failed before."""
        if self.has_failed:
            raise LogDirFailed(f"{self.path} has failed")
        return self._files.space(self.path)

    def read_properties(self) -> MetaProperties | None:
        """Whose directory it is; None if it is new. Raises WrongDirectory."""
        return read_meta_properties(self._files, f"{self.path}/{META_PROPERTIES}")

    def write_properties(self, properties: MetaProperties, date: str) -> None:
        """Say whose directory it is, on disk, its own name included. ``date`` is text for people."""
        write_meta_properties(self._files, f"{self.path}/{META_PROPERTIES}", properties, date)
        self._files.fsync_directory(self.path.rpartition("/")[0])

    def begin_loading(self) -> int | None:
        """Take the clean-shutdown marker away: from here on a crash is unclean.

        Returns the broker epoch of a clean shutdown, -1 if the marker names none, None if there was no marker.
        """
        if not self._has_begun:
            self._has_begun = True
            self._broker_epoch = take_clean_shutdown(self._files, f"{self.path}/{CLEAN_SHUTDOWN}")
            for entry in self._files.list_directory(self.path):
                if entry.name.endswith(".tmp") and not entry.is_directory:
                    # The last process died over it.
                    self._files.remove(f"{self.path}/{entry.name}")
            self.was_clean = self._broker_epoch is not None
        return self._broker_epoch

    def partition_directories(self) -> list[tuple[str, PartitionDirectory]]:
        """The name of every partition's directory, and what it says. Raises WrongDirectory for any other directory."""
        return [
            (entry.name, parse_dir_name(entry.name))
            for entry in self._files.list_directory(self.path)
            if entry.is_directory and entry.name not in _NOT_OURS
        ]

    def recovery_points(self) -> dict[TopicPartition, int]:
        """Up to where each log is on disk. None if the file is damaged: then everything is recovered."""
        return self._read(RECOVERY_POINTS)

    def log_start_offsets(self) -> dict[TopicPartition, int]:
        """Where logs begin that do not begin with their first segment. None if the file is damaged."""
        return self._read(LOG_START_OFFSETS)

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """The high watermarks. None if the file is damaged: they are found again."""
        return self._read(HIGH_WATERMARKS)

    def _read(self, name: str) -> dict[TopicPartition, int]:
        try:
            offsets = read_offset_checkpoint(self._files, f"{self.path}/{name}")
        except CorruptCheckpoint:
            return {}
        self._checkpoints[name] = _Checkpoint(offsets)
        return offsets

    def checkpoint(self, name: str, offsets: dict[TopicPartition, int]) -> CheckpointWrite | None:
        """Replace the checkpoint ``name``; None if it holds just that already."""
        known = self._checkpoints.get(name)
        if self.has_failed or (known is not None and known.on_disk == known.asked == offsets):
            return None
        if known is None:
            known = self._checkpoints[name] = _Checkpoint({})
        known.asked = offsets
        return CheckpointWrite(self._files, f"{self.path}/{name}", known)

    def checkpoints_naming(self, topic_partition: TopicPartition) -> Mapping[str, dict[TopicPartition, int]]:
        """What the checkpoints hold, or are to hold soon, that know this partition, by their names."""
        return {
            name: known.asked
            for name, known in self._checkpoints.items()
            if topic_partition in known.asked or topic_partition in known.on_disk
        }

    def leave(self, *, clean: bool, broker_epoch: int) -> None:
        """Give the directory back; if everything is in order, say so with the very last write."""
        if clean and not self.has_failed:
            write_clean_shutdown(self._files, f"{self.path}/{CLEAN_SHUTDOWN}", broker_epoch)
        self._lock.release()
