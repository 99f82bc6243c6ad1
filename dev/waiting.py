"""Waiting until another process has done something."""

import time
from collections.abc import Callable
from typing import Final

PATIENCE_S: Final = 90.0
"""Long enough for a machine that is busy with other things: only what never comes to pass is waited for so long."""

_BETWEEN_LOOKS_S: Final = 0.01


def until(condition: Callable[[], bool], what: str = "it") -> None:
    """Look again and again; fails if ``what`` has not come to pass within `PATIENCE_S`."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} has not come to pass"
        time.sleep(_BETWEEN_LOOKS_S)
