"""Waiting until a condition holds, for tests."""

import time
from collections.abc import Callable
from typing import Final

PATIENCE_S: Final = 90.0
"""How long a condition is waited for. Only a condition that never holds takes so long, even on a busy machine."""

_BETWEEN_LOOKS_S: Final = 0.01


def until(condition: Callable[[], bool], what: str = "it") -> None:
    """Check ``condition`` again and again until it holds; fails with ``what`` after `PATIENCE_S`."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} has not come to pass"
        time.sleep(_BETWEEN_LOOKS_S)
