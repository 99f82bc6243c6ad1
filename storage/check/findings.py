"""What a check has found: damage, and what the next start will put in order by itself."""

from collections.abc import Callable
from typing import NamedTuple

from storage.batch.walk import CHUNK_BYTES


class Finding(NamedTuple):
    """One thing that is not as it should be."""

    kind: str
    """`damage`, or `note`: a broker that starts here recovers from it without losing what had been flushed."""
    path: str
    position: int | None
    """Where in the file, in bytes; None where that says nothing."""
    found: str
    expected: str
    offset: int | None = None
    """The first offset that it keeps from being read; None where records are not at stake."""

    def __str__(self) -> str:
        at = "" if self.position is None else f" at {self.position}"
        return f"{self.kind}  {self.path}{at}: found {self.found}, expected {self.expected}"


class Findings:
    """Collects nothing: each finding goes out at once, and is counted."""

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

    def damage(
        self, path: str, found: str, expected: str, position: int | None = None, offset: int | None = None
    ) -> None:
        """Something is broken, and no start mends it without loss."""
        self.damages += 1
        self._put_out(Finding("damage", path, position, found, expected, offset))

    def note(
        self, path: str, found: str, expected: str, position: int | None = None, offset: int | None = None
    ) -> None:
        """The process was killed in the middle of something; the next start finishes it or takes it back."""
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
        """Damage after a clean stop, a note where the process was killed."""
        (self.damage if is_damage else self.note)(path, found, expected, position, offset)

    def read(self, size: int) -> None:
        """So many more bytes have been looked at."""
        self.bytes += size
        self._unread += size
        if self._unread >= CHUNK_BYTES:
            self._advance(self._unread)
            self._unread = 0

    @property
    def counts(self) -> dict[str, int]:
        """How much was found, and in how much."""
        return {
            "damage": self.damages,
            "notes": self.notes,
            "logs": self.logs,
            "segments": self.segments,
            "batches": self.batches,
            "bytes": self.bytes,
        }

    def __str__(self) -> str:
        result = f"{self.damages} damaged" if self.damages else "whole"
        notes = f", {self.notes} to be recovered by the next start" if self.notes else ""
        return (
            f"{result}{notes}: {self.logs} logs, {self.segments} segments, {self.batches} batches, {self.bytes} bytes"
        )
