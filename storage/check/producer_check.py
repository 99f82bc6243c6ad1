"""The check of a log's producer snapshots against a replay of its batches."""

from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from storage.batch.walk import StoredBatch
from storage.check.findings import Findings
from storage.check.index_check import NOWHERE
from storage.check.log_files import LogFiles
from storage.errors import CorruptSnapshot
from storage.file_names import SNAPSHOT_SUFFIX
from storage.files import FileSystem
from storage.index.transaction_index import AbortedTransaction
from storage.producer_state import ProducerEntry, Producers, decode_snapshot, is_expired


class OpenTransaction(NamedTuple):
    """A transaction in a log that no marker has ended."""

    producer_id: int
    producer_epoch: int
    """The epoch of the producer's last batch."""
    first_offset: int


class ProducerCheck:
    """Replays the batches of one log and compares the state with each snapshot."""

    def __init__(
        self,
        files: FileSystem,
        log: LogFiles,
        findings: Findings,
        *,
        base_offset: int,
        snapshots: Iterable[int],
        expiration_ms: int,
        is_continued: bool = False,
    ) -> None:
        """``base_offset`` is where the log's files begin, ``snapshots`` are the offsets of those that count.

        If it ``is_continued``, another check replays the batches before and compares the first snapshot.
        """
        self._files = files
        self._log = log
        self._findings = findings
        self._expiration_ms = expiration_ms
        self._producers = Producers()
        self.left = sorted(snapshots)
        """The snapshots that the replay has not reached yet."""
        self.knows_everything = base_offset == 0
        """Whether replay began at the first batch ever, or with a snapshot of all that was before it."""
        if self.left and self.left[0] == base_offset:
            # There is nothing to compare it with.
            entries = self._read(self.left.pop(0), is_known=is_continued)
            if entries is not None:
                self._producers.replace(entries.values())
                self.knows_everything = True

    @property
    def next_snapshot(self) -> int:
        """The offset of the next snapshot to compare; above all offsets if there is none."""
        return self.left[0] if self.left else NOWHERE

    @property
    def open_transactions(self) -> tuple[OpenTransaction, ...]:
        """The transactions that no marker has ended, by their first offsets."""
        unended = [
            OpenTransaction(entry.producer_id, entry.producer_epoch, entry.transaction_first_offset)
            for entry in self._producers
            if entry.transaction_first_offset >= 0
        ]
        return tuple(sorted(unended, key=attrgetter("first_offset")))

    def replay_all(self, chunk: bytes, produced: Iterable[tuple[int, int, int]]) -> None:
        """Replay the next batches, none a marker: (producer id, attributes, where in ``chunk`` the batch begins)."""
        self._producers.replay(chunk, produced)

    def replay(self, batch: StoredBatch) -> AbortedTransaction | None:
        """Replay the log's next batch; the transaction that it aborts. Raises UndecodableRecords for a marker."""
        return self._producers.apply(batch.header, batch.data)

    def come_to(self, offset: int, *, has_all_batches: bool) -> None:
        """Compare with the snapshots up to ``offset``: all batches below it have been replayed.

        Without ``has_all_batches`` some were cleaned away, or are damaged, so that only the snapshot itself is checked.
        """
        while self.left and self.left[0] <= offset:
            self._compare(self.left.pop(0), has_all_batches)

    def _compare(self, offset: int, has_all_batches: bool) -> None:
        saved = self._read(offset)
        if saved is None:
            return
        path = self._log.path(offset, SNAPSHOT_SUFFIX)
        for entry in saved.values():
            if entry.batches and entry.batches[-1].last_offset >= offset:
                self._findings.damage(path, _text(entry), f"offsets below {offset}")
                return
        if not has_all_batches:
            return
        taken_ms = self._files.mtime_ms(path)
        replayed = self._producers.entries
        for producer_id in sorted(saved.keys() | replayed.keys()):
            found, expected = saved.get(producer_id), replayed.get(producer_id)
            if found is None:
                if expected is not None and not is_expired(expected, taken_ms, self._expiration_ms):
                    self._findings.damage(path, f"no producer {producer_id}", _text(expected))
            elif expected is None:
                if self.knows_everything:
                    self._findings.damage(path, _text(found), f"no producer {producer_id}")
            elif _saved(found) != _saved(expected):
                self._findings.damage(path, _text(found), _text(expected))

    def _read(self, offset: int, *, is_known: bool = False) -> dict[int, ProducerEntry] | None:
        path = self._log.path(offset, SNAPSHOT_SUFFIX)
        try:
            return {entry.producer_id: entry for entry in decode_snapshot(self._files.read_file(path), path)}
        except CorruptSnapshot as error:
            if not is_known:
                self._findings.damage(path, str(error), "a producer snapshot")
            return None


def _saved(entry: ProducerEntry) -> tuple[object, ...]:
    """The fields of an entry that a snapshot keeps."""
    last = entry.batches[-1] if entry.batches else None
    return (
        entry.producer_epoch,
        None if last is None else (last.last_sequence, last.last_offset, last.offset_delta),
        entry.last_timestamp,
        entry.coordinator_epoch,
        entry.transaction_first_offset,
    )


def _text(entry: ProducerEntry) -> str:
    last_offset = entry.batches[-1].last_offset if entry.batches else -1
    return (
        f"producer {entry.producer_id} of epoch {entry.producer_epoch} with sequence {entry.last_sequence} at offset "
        f"{last_offset}, timestamp {entry.last_timestamp}, coordinator epoch {entry.coordinator_epoch}, "
        f"transaction from {entry.transaction_first_offset}"
    )
