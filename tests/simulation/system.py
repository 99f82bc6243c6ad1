"""The two calls of the system that parts of a broker make for themselves, replaced in a process that simulates.

Statistics and time slices read `time.monotonic_ns`, which modules import by name. So `install` is called before any
module of the broker is imported: a process that simulates does nothing else.
"""

import os
import sys
import time
from collections.abc import Callable

_now_ns: Callable[[], int] = time.monotonic_ns
_random_bytes: Callable[[int], bytes] = os.urandom
_is_installed = False


def install() -> None:
    """Let the present simulation say what time it is and what chance gives. Call it before importing the broker."""
    global _is_installed
    if _is_installed:
        return
    early = [name for name in sys.modules if name.startswith("broker.")]
    assert not early, f"{early[0]} is imported already, and has the system's own time"
    time.monotonic_ns = lambda: _now_ns()
    os.urandom = lambda size: _random_bytes(size)
    _is_installed = True


def use(now_ns: Callable[[], int], random_bytes: Callable[[int], bytes]) -> None:
    """The simulation that runs from now on."""
    global _now_ns, _random_bytes
    _now_ns, _random_bytes = now_ns, random_bytes
