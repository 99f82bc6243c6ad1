"""Progress: a bar on stderr that shows how far a long check has come."""

import sys
from typing import Any


class Progress:
    """A progress bar on stderr, if that is a terminal: bytes done of all bytes. There is no bar for work that takes
    less than a second."""

    def __init__(self, total_bytes: int) -> None:
        self._bar: Any = None
        if sys.stderr.isatty():
            # Imported only for a terminal, and never by the broker.
            from tqdm import tqdm

            self._bar = tqdm(
                total=total_bytes, unit="B", unit_scale=True, unit_divisor=1024, file=sys.stderr, leave=False, delay=1
            )

    def advance(self, by_bytes: int) -> None:
        """Count ``by_bytes`` more bytes as done."""
        if self._bar is not None:
            self._bar.update(by_bytes)

    def print(self, line: str) -> None:
        """Print a line to stdout, clear of the bar. Raises BrokenPipeError."""
        if self._bar is None:
            print(line)
        else:
            self._bar.write(line, file=sys.stdout)

    def close(self) -> None:
        """Remove the bar from the terminal."""
        if self._bar is not None:
            self._bar.close()
