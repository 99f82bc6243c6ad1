"""The check of what the cleaner has promised of a compacted log: where it has been, each key occurs once."""

from typing import Final, NamedTuple

from storage.batch.records import MOST_BYTES_READ, open_records, read_bytes, walk
from storage.batch.walk import StoredBatch
from storage.check.findings import Findings
from storage.check.index_entries import TRANSACTION_INDEX_VERSION, transaction_entries
from storage.check.log_files import LogFiles
from storage.cleaning.offset_map import SLOT_BYTES, OffsetMap
from storage.cleaning.transactions import CleanedTransactions
from storage.errors import UndecodableRecords
from storage.file_names import TRANSACTION_INDEX_SUFFIX
from storage.files import FileSystem
from storage.index.transaction_index import AbortedTransaction

MOST_MAP_BYTES: Final = 128 << 20
"""Memory for the keys of one log, at most: what a cleaner takes by default (``log.cleaner.dedupe.buffer.size``)."""

_LOAD_FACTOR: Final = 0.9
_LEAST_SLOTS: Final = 64


class _Repeated(NamedTuple):
    """A record with the key of an earlier record."""

    path: str
    position: int
    """Where its batch begins."""
    offset: int
    earlier_offset: int


class KeyCheck:
    """Compares the keys of the records that a log's cleaner has left. Records of aborted transactions do not count."""

    def __init__(
        self,
        files: FileSystem,
        log: LogFiles,
        findings: Findings,
        *,
        from_offset: int,
        cleaned_to: int,
        most_map_bytes: int = MOST_MAP_BYTES,
    ) -> None:
        """``from_offset`` is where the log begins, ``cleaned_to`` the offset in the cleaner's checkpoint.

        When ``most_map_bytes`` are full, later keys are only compared with those that are noted.
        """
        self._findings = findings
        self._from_offset = from_offset
        self._end_offset = min(cleaned_to, log.segment_bases[-1])
        """Records from here on may repeat keys; the cleaner leaves the active segment alone."""
        offsets = max(self._end_offset - log.segment_bases[0], 0)
        wanted = int(offsets / _LOAD_FACTOR) + _LEAST_SLOTS
        self._offsets = OffsetMap(min(most_map_bytes // SLOT_BYTES, wanted), _LOAD_FACTOR)
        self._transactions = CleanedTransactions(_aborted_transactions(files, log))
        self._repeated = 0
        self._first: _Repeated | None = None

    def batch(self, path: str, batch: StoredBatch) -> None:
        """Compare the keys of the log's next batch, which is whole; ``path`` is that of its segment."""
        header = batch.header
        if header.base_offset >= self._end_offset:
            return
        try:
            if header.is_control:
                self._transactions.is_marker_superfluous(header, batch.data)
                self._transactions.kept.clear()
            elif not self._transactions.is_aborted(header) and header.last_offset >= self._from_offset:
                self._compare(path, batch)
        except UndecodableRecords:
            pass  # the check of the batch itself says so

    def finish(self) -> None:
        """Report repeated keys; the log has no more batches."""
        if self._first is None:
            return
        path, position, offset, earlier_offset = self._first
        self._findings.damage(
            path,
            f"{self._repeated} records with the key of an earlier record, the first at offset {offset} with that of "
            f"offset {earlier_offset}",
            f"each key once below offset {self._end_offset}, up to where the log was cleaned",
            position,
        )

    def _compare(self, path: str, batch: StoredBatch) -> None:
        header, offsets = batch.header, self._offsets
        if not header.record_count:
            return
        section = open_records(batch.data, header, MOST_BYTES_READ)
        for _, delta, _, fields, _ in walk(section, header.record_count, len(section)):
            offset = header.base_offset + delta
            key, _ = read_bytes(section, fields)
            if key is None or not self._from_offset <= offset < self._end_offset:
                continue
            earlier_offset = offsets.get(key)
            if earlier_offset >= 0:
                self._repeated += 1
                self._first = self._first or _Repeated(path, batch.position, offset, earlier_offset)
            if not offsets.put(key, offset) and earlier_offset < 0:
                self._findings.keys_left_out += 1


def _aborted_transactions(files: FileSystem, log: LogFiles) -> list[AbortedTransaction]:
    """All transactions that the log's transaction indexes name."""
    found: list[AbortedTransaction] = []
    for base_offset in log.segment_bases:
        try:
            file = files.open_read(log.path(base_offset, TRANSACTION_INDEX_SUFFIX))
        except FileNotFoundError:
            continue
        found += [entry for version, entry in transaction_entries(file) if version == TRANSACTION_INDEX_VERSION]
    return found
