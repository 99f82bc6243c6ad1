"""Which leader epoch each stretch of a log was written under: `leader-epoch-checkpoint`.

A line (epoch, start offset) is added when a leader takes office, with the log's end as its start, or when a batch of a
newer epoch is appended. Epochs and start offsets both rise. A consumer that kept the epoch of the last record it saw
finds out from this whether that record is still in the log (KIP-101, KIP-320). The file's format is drawn in
`storage.checkpoints`.
"""

from bisect import bisect_right
from typing import Final, NamedTuple

from storage.checkpoints import write_leader_epochs
from storage.errors import DiskFull, TooManyOpenFiles
from storage.files import FileSystem

UNDEFINED_EPOCH: Final = -1
UNDEFINED_OFFSET: Final = -1


class EpochEndOffset(NamedTuple):
    """Where an epoch ends; (-1, -1) if that is not known."""

    epoch: int
    end_offset: int


class LeaderEpochs:
    """The epochs of one log, in memory and in its file."""

    __slots__ = ("_epochs", "_files", "_is_saved", "_starts", "is_flushed", "latest", "path")

    def __init__(self, files: FileSystem, path: str, epochs: list[tuple[int, int]]) -> None:
        self._files = files
        self.path = path
        self._epochs = [epoch for epoch, _ in epochs]
        self._starts = [start for _, start in epochs]
        self.is_flushed = True
        """Whether the file is on disk as it is; a flush of the log sets it."""
        self._is_saved = True
        self.latest = self._epochs[-1] if epochs else UNDEFINED_EPOCH
        """The newest epoch; -1 if there is none."""

    @property
    def entries(self) -> list[tuple[int, int]]:
        """The (epoch, start offset) lines, oldest first."""
        return list(zip(self._epochs, self._starts, strict=True))

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
        self._save()
        return True

    def cut_from(self, end_offset: int) -> None:
        """Forget the epochs that begin at or behind ``end_offset``: the log ends there now."""
        kept = len(self._starts)
        while kept and self._starts[kept - 1] >= end_offset:
            kept -= 1
        if kept < len(self._starts):
            del self._starts[kept:], self._epochs[kept:]
            self._save()

    def cut_before(self, start_offset: int) -> None:
        """Forget the epochs that end at or before ``start_offset``: the log begins there now."""
        current = bisect_right(self._starts, start_offset) - 1
        if current < 0 or (current == 0 and self._starts[0] == start_offset):
            return
        del self._starts[:current], self._epochs[:current]
        self._starts[0] = start_offset
        self._save()

    def clear(self) -> None:
        """Forget all epochs."""
        if self._epochs:
            self._epochs.clear()
            self._starts.clear()
            self._save()

    def _save(self) -> None:
        self.latest = self._epochs[-1] if self._epochs else UNDEFINED_EPOCH
        self.is_flushed = False
        self.save()

    def save(self) -> None:
        """Write the file, if it is not as it should be. A full disk puts it off: the log's next flush comes here."""
        if self._is_saved and self.is_flushed:
            return
        try:
            write_leader_epochs(self._files, self.path, self.entries)
            self._is_saved = True
        except (DiskFull, TooManyOpenFiles):
            self._is_saved = False

    def epoch_at(self, offset: int) -> int:
        """The epoch that ``offset`` was written under; -1 if that is not known."""
        current = bisect_right(self._starts, offset) - 1
        return self._epochs[current] if current >= 0 else UNDEFINED_EPOCH

    def end_offset(self, epoch: int, log_end_offset: int) -> EpochEndOffset:
        """Where ``epoch``, or the last known one before it, ends; the log itself ends at ``log_end_offset``.

        (-1, -1) for an epoch newer than all; an epoch older than all ends where the oldest known one begins.
        """
        if epoch == UNDEFINED_EPOCH or epoch > self.latest:
            return EpochEndOffset(UNDEFINED_EPOCH, UNDEFINED_OFFSET)
        if epoch == self.latest:
            return EpochEndOffset(epoch, log_end_offset)
        following = bisect_right(self._epochs, epoch)
        if following == 0:
            return EpochEndOffset(epoch, self._starts[0])
        return EpochEndOffset(self._epochs[following - 1], self._starts[following])
