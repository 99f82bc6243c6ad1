"""stderr of the daemon: a pipe that no process reads, or a full disk, neither holds nor ends the broker.

A write to a full pipe waits for its reader. A container engine that hangs, or a supervisor that reads nothing, would
stop the event loop with it. So a reader has `PATIENCE_S` to make room. What stderr does not take is dropped, and the
number of lost lines is said when it takes bytes again.
"""

import io
import os
import select
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

STDERR: Final = 2

PATIENCE_S: Final = 0.1
"""How long a write waits for the reader of a full pipe, in seconds; no write waits any more until the pipe has room."""


def never_wait_for_stderr() -> None:
    """Let everything that Python writes to stderr go through `StderrWriter`."""
    sys.stderr = io.TextIOWrapper(
        StderrWriter(),
        encoding="utf-8",
        errors="backslashreplace",
        write_through=True,
    )


class StderrWriter(io.RawIOBase):
    """Writes to a descriptor; a write neither waits for long nor fails.

    Of a pipe that has room, POSIX promises that it takes `select.PIPE_BUF` bytes without waiting. Another process that
    fills the same pipe in that moment could still hold the write.
    """

    def __init__(self, descriptor: int = STDERR) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._lost_lines = 0
        self._is_within_line = False
        """Whether only the beginning of a line was taken."""

    def writable(self) -> bool:
        """Always true."""
        return True

    def fileno(self) -> int:
        """The descriptor."""
        return self._descriptor

    def isatty(self) -> bool:
        """Whether the descriptor is a terminal."""
        return os.isatty(self._descriptor)

    def write(self, data: "ReadableBuffer") -> int:
        """Write what is taken, and drop the rest. Returns the size of all of ``data``."""
        content = bytes(data)
        notice = b"\n" * self._is_within_line
        if self._lost_lines:
            notice += b"lines missing here, since stderr could not be written: %d\n" % self._lost_lines
        text = notice + content
        written = self._write_what_is_taken(text)
        if written >= len(notice):
            self._lost_lines = 0
        self._lost_lines += text.count(b"\n", max(written, len(notice)))
        if written:
            self._is_within_line = written < len(text) and text[written - 1] != ord("\n")
        return len(content)

    def _write_what_is_taken(self, text: bytes) -> int:
        """How many bytes were taken."""
        written = 0
        patience_s = 0.0 if self._lost_lines else PATIENCE_S
        try:
            while written < len(text) and select.select((), (self._descriptor,), (), patience_s)[1]:
                written += os.write(self._descriptor, text[written : written + select.PIPE_BUF])
        except (OSError, ValueError):
            pass  # full, closed, or a pipe without a reader: there is no other place to say so
        return written
