"""How far long work has come, on the terminal that watches it."""

import sys
from typing import Any


class Progress:
    """A bar on stderr, if that is a terminal: how much is done of how much. Nothing anywhere else, and nothing for what
    is done within a second."""

    def __init__(self, what: str, total: int | None, *, unit: str = "B") -> None:
        """``total`` is None where nobody knows; ``unit`` is B for bytes, or what is counted."""
        self._bar: Any = None
        if sys.stderr.isatty():
            from tqdm import tqdm

            self._bar = tqdm(
                desc=what, total=total, unit=unit, unit_scale=True, unit_divisor=1024 if unit == "B" else 1000,
                file=sys.stderr, leave=False, delay=1,
            )  # fmt: skip

    def advance(self, by: int) -> None:
        """So much more is done."""
        if self._bar is not None:
            self._bar.update(by)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()
