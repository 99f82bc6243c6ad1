"""The leader epochs of a log and the offsets where they begin: the file `leader-epoch-checkpoint`.

A line (epoch, start offset) is added when the partition becomes leader, with the log's end as its start, or when a
batch of a newer epoch is appended. Epochs and start offsets both rise. A consumer that kept the epoch of the last
record it saw finds out from this whether that record is still in the log (KIP-101, KIP-320). The file's format is drawn
in `storage.checkpoints`.

The file is written by the log's flushes, and synced before it replaces the old one: then all epochs that begin below
the recovery point are in it, whenever the power is cut. The others come back with the batches that recovery reads.
"""

from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from storage.checkpoints import encode_leader_epochs
from storage.errors import DiskFull, TooManyOpenFiles
from storage.files import File, FileSystem
from storage.sentinels import NO_EPOCH, NO_OFFSET

NOWHERE: Final = 2**63 - 1


class EpochEndOffset(NamedTuple):
    """A leader epoch and its end offset; (-1, -1) if the end is not known."""

    epoch: int
    end_offset: int


class EpochsWrite:
    """The new file of leader epochs, written beside the old one, to be synced by a flush."""

    __slots__ = ("_file", "_files", "_path")

    def __init__(self, files: FileSystem, file: File, path: str) -> None:
        self._files = files
        self._file = file
        self._path = path

    def perform(self) -> None:
        """Sync the new file and rename it over the old one; the directory is still to be synced.

        May run in another thread. Raises LogDirFailed.
        """
        self._file.fsync()
        with suppress(FileNotFoundError):  # the log has been deleted meanwhile
            self._files.rename(self._file.path, self._path)


class LeaderEpochs:
    """The epochs of one log, in memory and in its file."""

    __slots__ = ("_epochs", "_files", "_saved", "_starts", "_writes", "latest", "path")

    def __init__(self, files: FileSystem, path: str, epochs: list[tuple[int, int]]) -> None:
        self._files = files
        self._writes = 0
        self.path = path
        self._epochs = [epoch for epoch, _ in epochs]
        self._starts = [start for _, start in epochs]
        self._saved: list[tuple[int, int]] | None = list(epochs)
        """The entries of the file once the flushes under way are done; None if the file cannot be read."""
        self.latest = self._epochs[-1] if epochs else NO_EPOCH
        """The newest leader epoch; -1 without any."""

    @property
    def entries(self) -> list[tuple[int, int]]:
        """The (epoch, start offset) lines, oldest first."""
        return list(zip(self._epochs, self._starts, strict=True))

    def moved_to(self, directory: str) -> None:
        """Note that the log's directory was renamed."""
        self.path = f"{directory}/{self.path.rpartition('/')[2]}"

    def replace(self, entries: Sequence[tuple[int, int]]) -> None:
        """Hold exactly these (epoch, start offset) lines, oldest first."""
        self._epochs = [epoch for epoch, _ in entries]
        self._starts = [start for _, start in entries]
        self._changed()

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that ``epoch`` begins at ``start_offset``. False if nothing is new.

        Epochs that were never used, having begun at the same offset or behind it, give way.
        """
        if epoch <= self.latest:
            return False
        while self._starts and self._starts[-1] >= start_offset:
            self._starts.pop()
            self._epochs.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self._changed()
        return True

    def cut_from(self, end_offset: int) -> None:
        """Forget the epochs that begin at or behind ``end_offset``: the log ends there now."""
        kept = len(self._starts)
        while kept and self._starts[kept - 1] >= end_offset:
            kept -= 1
        if kept < len(self._starts):
            del self._starts[kept:], self._epochs[kept:]
            self._changed()

    def cut_before(self, start_offset: int) -> None:
        """Forget the epochs that end at or before ``start_offset``: the log begins there now."""
        current = bisect_right(self._starts, start_offset) - 1
        if current < 0 or (current == 0 and self._starts[0] == start_offset):
            return
        del self._starts[:current], self._epochs[:current]
        self._starts[0] = start_offset
        self._changed()

    def clear(self) -> None:
        """Forget all epochs and remove the file."""
        self._epochs.clear()
        self._starts.clear()
        self._files.remove(self.path)
        # A flush under way may bring back the old epochs.
        self._saved = None
        self._changed()

    def _changed(self) -> None:
        self.latest = self._epochs[-1] if self._epochs else NO_EPOCH

    def must_be_saved(self) -> None:
        """Note that the file is out of date, whatever it holds."""
        self._saved = None

    @property
    def is_saved(self) -> bool:
        """Whether the file holds all epochs, or will once the flushes under way are done."""
        return self._saved == self.entries

    @property
    def first_unsaved(self) -> int:
        """The start offset of the first epoch that the file lacks."""
        saved = {epoch for epoch, _ in self._saved or ()}
        return next((start for epoch, start in self.entries if epoch not in saved), NOWHERE)

    def save(self) -> None:
        """Write and sync the file, if it lacks an epoch. Raises DiskFull, LogDirFailed, TooManyOpenFiles."""
        if not self.is_saved:
            entries = self.entries
            self._files.replace_atomically(self.path, encode_leader_epochs(entries), fsync=True)
            self._saved = entries

    def begin_save(self) -> EpochsWrite | None:
        """Begin to save: returns what a flush must sync; None if the file is up to date (`is_saved`) or disk full.

        Raises LogDirFailed.
        """
        if self.is_saved:
            return None
        # Each of several flushes under way has a file of its own.
        self._writes += 1
        temporary = f"{self.path}.{self._writes}.tmp"
        try:
            file = self._files.open_log(temporary, create=True)
            file.pwrite(encode_leader_epochs(self.entries), 0)
        except (DiskFull, TooManyOpenFiles):
            self._files.remove(temporary)
            return None
        self._saved = self.entries
        return EpochsWrite(self._files, file, self.path)

    def epoch_at(self, offset: int) -> int:
        """The leader epoch of the record at ``offset``; -1 if it is not known."""
        current = bisect_right(self._starts, offset) - 1
        return self._epochs[current] if current >= 0 else NO_EPOCH

    def end_offset(self, epoch: int, log_end_offset: int) -> EpochEndOffset:
        """Where ``epoch``, or the last known one before it, ends; the log itself ends at ``log_end_offset``.

        (-1, -1) for an epoch newer than all; an epoch older than all ends where the oldest known one begins.
        """
        if epoch == NO_EPOCH or epoch > self.latest:
            return EpochEndOffset(NO_EPOCH, NO_OFFSET)
        if epoch == self.latest:
            return EpochEndOffset(epoch, log_end_offset)
        following = bisect_right(self._epochs, epoch)
        if following == 0:
            return EpochEndOffset(epoch, self._starts[0])
        return EpochEndOffset(self._epochs[following - 1], self._starts[following])
