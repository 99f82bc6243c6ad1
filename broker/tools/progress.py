"""How far a long check has come, on the terminal that watches it."""

import sys
from typing import Any


class Progress:
    """A bar on stderr, if that is a terminal: bytes done of how many. Nothing anywhere else, and nothing for what is
    done within a second."""

    def __init__(self, total_bytes: int) -> None:
        self._bar: Any = None
        if sys.stderr.isatty():
            # Only who watches needs it, and the daemon never does.
            from tqdm import tqdm

            self._bar = tqdm(
                total=total_bytes, unit="B", unit_scale=True, unit_divisor=1024, file=sys.stderr, leave=False, delay=1
            )

    def advance(self, by_bytes: int) -> None:
        """So many more bytes are done."""
        if self._bar is not None:
            self._bar.update(by_bytes)

    def print(self, line: str) -> None:
        """Print a line to stdout, clear of the bar. Raises BrokenPipeError."""
        if self._bar is None:
            print(line)
        else:
            self._bar.write(line, file=sys.stdout)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()
