"""The findings of a check: damage, and notes about what the next start repairs by itself."""

from collections.abc import Callable
from typing import NamedTuple

from storage.batch.walk import CHUNK_BYTES


class Finding(NamedTuple):
    """One fault that a check has found."""

    kind: str
    """`damage`, or `note`: a broker that starts here recovers from it without losing what had been flushed."""
    path: str
    position: int | None
    """Position of the fault in the file, in bytes; None where a position says nothing."""
    found: str
    expected: str
    offset: int | None = None
    """The first offset that cannot be read because of the fault; None where no records are lost."""

    def __str__(self) -> str:
        at = "" if self.position is None else f" at {self.position}"
        return f"{self.kind}  {self.path}{at}: found {self.found}, expected {self.expected}"


class Findings:
    """Reports each finding at once and counts it; keeps none."""

    def __init__(self, put_out: Callable[[Finding], None], advance: Callable[[int], None]) -> None:
        self._put_out = put_out
        self._advance = advance
        self._unread = 0
        self.damages = 0
        self.notes = 0
        self.logs = 0
        self.segments = 0
        self.batches = 0
        self.bytes = 0
        self.keys_left_out = 0
        """Records of cleaned logs whose keys have not been compared with those behind them, to bound the memory."""

    def damage(
        self, path: str, found: str, expected: str, position: int | None = None, offset: int | None = None
    ) -> None:
        """Report damage: no start repairs it without losing records."""
        self.damages += 1
        self._put_out(Finding("damage", path, position, found, expected, offset))

    def note(
        self, path: str, found: str, expected: str, position: int | None = None, offset: int | None = None
    ) -> None:
        """Report work that a killed process left unfinished; the next start finishes it or takes it back."""
        self.notes += 1
        self._put_out(Finding("note", path, position, found, expected, offset))

    def either(
        self,
        path: str,
        found: str,
        expected: str,
        position: int | None = None,
        offset: int | None = None,
        *,
        is_damage: bool,
    ) -> None:
        """Report damage after a clean stop, a note where the process was killed."""
        (self.damage if is_damage else self.note)(path, found, expected, position, offset)

    def read(self, size: int) -> None:
        """Count bytes that have been checked."""
        self.bytes += size
        self._unread += size
        if self._unread >= CHUNK_BYTES:
            self._advance(self._unread)
            self._unread = 0

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of findings, of what was checked, and of keys that were not."""
        return {
            "damage": self.damages,
            "notes": self.notes,
            "logs": self.logs,
            "segments": self.segments,
            "batches": self.batches,
            "bytes": self.bytes,
            "keys_left_out": self.keys_left_out,
        }

    def __str__(self) -> str:
        result = f"{self.damages} damaged" if self.damages else "whole"
        notes = f", {self.notes} to be recovered by the next start" if self.notes else ""
        left_out = f"; the keys of {self.keys_left_out} records were not all compared" if self.keys_left_out else ""
        return (
            f"{result}{notes}: {self.logs} logs, {self.segments} segments, {self.batches} batches, {self.bytes} bytes"
            f"{left_out}"
        )
