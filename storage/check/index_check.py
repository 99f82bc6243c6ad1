"""Checks of one segment's indexes against its batches, which are handed over in order.

The first entry that is wrong is reported and ends the check of that index: those behind it would be wrong with it.
"""

from typing import Final

from storage.batch.markers import Marker
from storage.check.findings import Findings
from storage.check.index_entries import (
    TRANSACTION_INDEX_VERSION,
    ends_with_zeros,
    offset_entries,
    offset_entries_before_zeros,
    time_entries,
    time_entries_before_zeros,
    transaction_entries,
)
from storage.files import FileSystem
from storage.index import offset_index, time_index, transaction_index
from storage.index.transaction_index import AbortedTransaction

NOWHERE: Final = 1 << 63
"""A position and an offset above all others."""


class OffsetIndexCheck:
    """Checks that every entry names the last offset of the batch at its position, and that both rise."""

    def __init__(
        self, files: FileSystem, path: str, base_offset: int, findings: Findings, *, may_be_preallocated: bool
    ) -> None:
        file = files.open_read(path)
        self._path = path
        self._findings = findings
        self._entries = (offset_entries_before_zeros if may_be_preallocated else offset_entries)(file, base_offset)
        self._number = -1
        self._next = next(self._entries, None)
        _check_size(findings, path, file.size, offset_index.ENTRY.size)

    @property
    def next_position(self) -> int:
        """Batches that begin before this position need not be handed to `batch`."""
        return NOWHERE if self._next is None else self._next.position

    def batch(self, last_offset: int, position: int) -> None:
        """The segment's next batch."""
        entry = self._next
        if entry is None or entry.position > position:
            return
        self._number += 1
        if entry.position < position:
            self._wrong(f"position {entry.position}", "one where a batch begins, behind that of the entry before")
        elif entry.offset != last_offset:
            self._wrong(f"offset {entry.offset} for position {position}", f"{last_offset}, its batch's last")
        else:
            self._next = next(self._entries, None)

    def finish(self, end_position: int) -> None:
        """There are no more batches."""
        if self._next is not None:
            self._number += 1
            self._wrong(f"position {self._next.position}", f"one below {end_position}, where the batches end")

    def _wrong(self, found: str, expected: str) -> None:
        self._next = None
        self._findings.damage(self._path, found, expected, self._number * offset_index.ENTRY.size)


class TimeIndexCheck:
    """Checks that every entry holds the largest timestamp so far and the last offset of the batch that has it.

    The last entry covers the whole segment."""

    def __init__(
        self, files: FileSystem, path: str, base_offset: int, findings: Findings, *, may_be_preallocated: bool
    ) -> None:
        file = files.open_read(path)
        self._path = path
        self._findings = findings
        self._entries = (time_entries_before_zeros if may_be_preallocated else time_entries)(file, base_offset)
        # The last entry is added where the file is cut to its entries.
        self._is_complete = not (may_be_preallocated and ends_with_zeros(file, time_index.ENTRY.size))
        self._number = 0
        self._next = next(self._entries, None)
        self._is_wrong = False
        self._last_timestamp = -1
        self.largest = -1
        """The largest timestamp of the segment's batches so far."""
        _check_size(findings, path, file.size, time_index.ENTRY.size)

    @property
    def next_offset(self) -> int:
        """Batches that end before this offset need not be handed over, but `largest` must include them."""
        return NOWHERE if self._next is None else self._next.offset

    def batch(self, last_offset: int, max_timestamp: int) -> None:
        """The segment's next batch."""
        rises = max_timestamp > self.largest
        if rises:
            self.largest = max_timestamp
        entry = self._next
        if entry is None or entry.offset > last_offset:
            return
        if not rises or entry.offset < last_offset:
            self._wrong(f"offset {entry.offset}", "the last offset of a batch whose timestamp is the largest so far")
        elif entry.timestamp != self.largest:
            self._wrong(f"timestamp {entry.timestamp} for offset {entry.offset}", f"{self.largest}, the largest so far")
        else:
            self._last_timestamp = entry.timestamp
            self._number += 1
            self._next = next(self._entries, None)

    def finish(self, end_offset: int) -> None:
        """There are no more batches."""
        if self._next is not None:
            self._wrong(f"offset {self._next.offset}", f"one below {end_offset}, where the batches end")
        elif self._is_complete and not self._is_wrong and self._last_timestamp < self.largest:
            found = f"a last entry for {self._last_timestamp}" if self._number else "no entry"
            self._wrong(found, f"one for {self.largest}, the largest timestamp of the segment")

    def _wrong(self, found: str, expected: str) -> None:
        self._next = None
        self._is_wrong = True
        self._findings.damage(self._path, found, expected, self._number * time_index.ENTRY.size)


class TransactionIndexCheck:
    """Checks that every entry belongs to an ABORT marker in the segment that ended a transaction, and every aborted
    transaction has an entry. A marker without an open transaction is no fault, and has no entry."""

    def __init__(self, files: FileSystem, path: str, findings: Findings) -> None:
        self._path = path
        self._findings = findings
        self._by_marker: dict[int, AbortedTransaction] = {}
        self._numbers: dict[int, int] = {}
        self._is_wrong = False
        try:
            file = files.open_read(path)
        except FileNotFoundError:
            return
        size = transaction_index.ENTRY.size
        _check_size(findings, path, file.size, size)
        previous = -1
        for number, (version, entry) in enumerate(transaction_entries(file)):
            fault = _fault_by_itself(version, entry, previous)
            if fault is not None:
                self._is_wrong = True
                findings.damage(path, *fault, number * size)
                return
            previous = entry.last_offset
            self._by_marker[entry.last_offset] = entry
            self._numbers[entry.last_offset] = number * size

    def marker(self, marker: Marker, replayed: AbortedTransaction | None, *, sees_beginnings: bool) -> None:
        """Compare the segment's next marker; ``replayed`` is the entry that replaying the log makes of it.

        Where records are missing, replay does not see where transactions began: without ``sees_beginnings``.
        """
        if self._is_wrong:
            return
        entry = self._by_marker.pop(marker.offset, None)
        if entry is None:
            if replayed is not None:
                self._findings.damage(self._path, f"no entry for the marker at offset {marker.offset}", _text(replayed))
            return
        position = self._numbers[marker.offset]
        if marker.is_commit or marker.producer_id != entry.producer_id:
            kind = "COMMIT" if marker.is_commit else "ABORT"
            is_there = f"a {kind} of producer {marker.producer_id} at offset {marker.offset}"
            self._findings.damage(self._path, _text(entry), f"an ABORT of producer {entry.producer_id}, not {is_there}",
                                  position)  # fmt: skip
        elif sees_beginnings and entry != replayed:
            expected = (
                f"no entry: producer {marker.producer_id} had no transaction for the marker at offset {marker.offset}"
                if replayed is None
                else _text(replayed)
            )
            self._findings.damage(self._path, _text(entry), expected, position)

    def finish(self) -> None:
        """Check the entries that no marker has claimed; the segment has no more markers."""
        if self._is_wrong:
            return
        for entry in self._by_marker.values():
            self._findings.damage(
                self._path,
                _text(entry),
                f"an ABORT marker of producer {entry.producer_id} at offset {entry.last_offset} in its segment",
                self._numbers[entry.last_offset],
            )


def _fault_by_itself(version: int, entry: AbortedTransaction, previous: int) -> tuple[str, str] | None:
    """The fault of an entry that no log can have behind an entry for the marker at offset ``previous``."""
    _, first_offset, last_offset, last_stable_offset = entry
    if version != TRANSACTION_INDEX_VERSION:
        return f"version {version}", f"{TRANSACTION_INDEX_VERSION}"
    if last_offset <= previous:
        return f"last offset {last_offset}", f"one above {previous}"
    if not 0 <= first_offset < last_offset:
        return f"first offset {first_offset}", f"0 to {last_offset - 1}, in front of the marker"
    if not 0 <= last_stable_offset <= last_offset + 1:
        return f"last stable offset {last_stable_offset}", f"0 to {last_offset + 1}, behind the marker"
    return None


def _text(entry: AbortedTransaction) -> str:
    return (
        f"producer {entry.producer_id} aborted from {entry.first_offset} to {entry.last_offset}, "
        f"last stable offset {entry.last_stable_offset}"
    )


def _check_size(findings: Findings, path: str, size: int, entry_size: int) -> None:
    if left := size % entry_size:
        findings.damage(path, f"{left} bytes", f"an entry of {entry_size}", size - left)
