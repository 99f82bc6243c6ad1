"""Flushing a log to the disk: which files are synced, and up to which offset.

The recovery point is the offset below which everything is on disk: batches, indexes, leader epochs, producer snapshots
and the names of the files in their directory. It moves only when all of these have been synced, so that after a power
cut nothing below it need be looked at again.
"""

from collections.abc import Sequence
from contextlib import suppress

from config.log_config import LogConfig
from storage.checkpoints import PARTITION_METADATA
from storage.files import File, FileSystem
from storage.leader_epochs import EpochsWrite, LeaderEpochs
from storage.producer_snapshots import ProducerSnapshots
from storage.segments import Segments


class FlushTarget:
    """One flush: the files to sync, which it holds open, and the recovery point once they are synced."""

    __slots__ = ("_epochs", "_files", "_opened", "_paths", "directories", "is_done", "offset")

    def __init__(
        self,
        files: FileSystem,
        *,
        offset: int,
        opened: Sequence[File],
        paths: Sequence[str],
        epochs: EpochsWrite | None,
        directories: Sequence[str],
    ) -> None:
        self._files = files
        self._opened = opened
        self._paths = paths
        self._epochs = epochs
        self.directories = directories
        """The directories whose names of files are synced."""
        self.offset = offset
        """The recovery point once this is done."""
        self.is_done = False

    def perform(self) -> None:
        """Sync the files. May run in another thread. Raises LogDirFailed: the directory is lost then."""
        for file in self._opened:
            file.fsync()
        for path in self._paths:
            try:
                self._files.open_read(path).fsync()
            except FileNotFoundError:
                # Retention has removed the file first; removed records need not be on disk.
                continue
        if self._epochs is not None:
            self._epochs.perform()
        for directory in self.directories:
            with suppress(FileNotFoundError):  # the log has been deleted meanwhile
                self._files.fsync_directory(directory)


class Flushing:
    """How far one log is on disk, and how far it will be once the flushes under way are done."""

    __slots__ = ("_directory", "_files", "_last_ms", "_names_to_flush", "_under_way", "recovery_point",
                 "under_way_to")  # fmt: skip

    def __init__(
        self, files: FileSystem, directory: str, *, recovery_point: int, now_ms: int, names_are_flushed: bool
    ) -> None:
        self._files = files
        self._directory = directory
        self._names_to_flush: tuple[str, ...] = ()
        if not names_are_flushed:
            # The log's directory may be new: its own name stands in the one above.
            self._names_to_flush = (directory, directory.rpartition("/")[0] or ".")
        self._under_way: list[FlushTarget] = []  # a few; an empty deque takes eleven times as much memory
        self._last_ms = now_ms
        self.recovery_point = recovery_point
        self.under_way_to = recovery_point

    def directory_changed(self) -> None:
        """Note that files have been made, renamed or removed: the next flush syncs the directory too."""
        if not self._names_to_flush:
            self._names_to_flush = (self._directory,)

    @property
    def is_under_way(self) -> bool:
        """Whether a flush has begun and is not done."""
        return bool(self._under_way)

    def moved_to(self, directory: str) -> None:
        """Note that the log's directory was renamed, and that the new name is on disk."""
        assert not self._under_way, f"{self._directory} was renamed during a flush"
        self._directory = directory
        if self._names_to_flush:
            self._names_to_flush = (directory,)

    @property
    def has_names_to_flush(self) -> bool:
        """Whether files have been made, renamed or removed that no flush has been begun for."""
        return bool(self._names_to_flush)

    @property
    def names_are_on_disk(self) -> bool:
        """Whether the names in the log's directory are on disk."""
        return not self._names_to_flush and not any(target.directories for target in self._under_way)

    def covers_active_segment(self, log_end_offset: int, config: LogConfig, now_ms: int) -> bool:
        """Whether `flush.messages` or `flush.ms` asks for a flush to the log's very end."""
        unflushed = log_end_offset - self.under_way_to
        return unflushed > 0 and (unflushed >= config.flush_messages or now_ms - self._last_ms >= config.flush_ms)

    def is_due(self, segments: Segments, log_end_offset: int, config: LogConfig, now_ms: int) -> bool:
        """Whether a segment behind the active one is not on disk, or the active one must be."""
        return self.under_way_to < segments.active.base_offset or self.covers_active_segment(
            log_end_offset, config, now_ms
        )

    def begin(
        self, segments: Segments, leader_epochs: LeaderEpochs, snapshots: ProducerSnapshots, offset: int, now_ms: int
    ) -> FlushTarget | None:
        """Begin a flush of everything below ``offset``; None if there is nothing left to sync."""
        if (
            offset <= self.under_way_to
            and leader_epochs.is_saved
            and snapshots.are_flushed
            and not self._names_to_flush
        ):
            return None
        opened = [
            file
            for segment in segments.from_offset(self.under_way_to)
            if segment.base_offset < offset or not segment.is_active
            for file in segment.open_for_flush()
        ]
        paths = snapshots.take_unflushed()
        if (epochs := leader_epochs.begin_save()) is not None:
            self.directory_changed()
        elif not leader_epochs.is_saved:
            # Without disk space for the file the recovery point stays below the first epoch that it lacks.
            offset = min(offset, leader_epochs.first_unsaved)
        if self._names_to_flush:
            paths.append(f"{self._directory}/{PARTITION_METADATA}")
        target = FlushTarget(
            self._files, offset=offset, opened=opened, paths=paths, epochs=epochs, directories=self._names_to_flush
        )  # fmt: skip
        self._under_way.append(target)
        self.under_way_to = max(self.under_way_to, offset)
        self._last_ms = now_ms
        self._names_to_flush = ()
        return target

    def complete(self, target: FlushTarget) -> bool:
        """Note that ``target`` is synced. False if the recovery point stays: an earlier flush runs, or a cut came."""
        target.is_done = True
        before = self.recovery_point
        while self._under_way and self._under_way[0].is_done:
            self.recovery_point = max(self.recovery_point, self._under_way.pop(0).offset)
        return self.recovery_point > before

    def truncated_to(self, end_offset: int) -> None:
        """Note that the log was cut to ``end_offset``; flushes under way no longer count, their files may be gone."""
        self._under_way.clear()
        self.directory_changed()
        self.recovery_point = min(self.recovery_point, end_offset)
        self.under_way_to = self.recovery_point
