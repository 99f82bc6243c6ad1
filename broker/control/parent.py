"""How a process learns that its parent has ended, however that was: a test that is killed must leave no broker."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Final

LOOK_S: Final = 0.5
"""How often the parent is looked for where the system does not tell, in seconds."""


def when_parent_ends(loop: asyncio.AbstractEventLoop, parent: int, call: Callable[[], None]) -> None:
    """Let ``loop`` call ``call`` once ``parent``, the process that has started this one, has ended. A process without a
    parent that could end, such as the first of a container, goes on."""
    if parent <= 1:
        return
    if os.getppid() != parent:
        loop.call_soon(call)  # it has ended before this was called
        return
    descriptor = open_parent()
    if descriptor is None:
        _look(loop, parent, call)
        return

    def ended() -> None:
        loop.remove_reader(descriptor)
        os.close(descriptor)
        call()

    loop.add_reader(descriptor, ended)


def open_parent() -> int | None:
    """A descriptor that can be read from once the parent has ended; None where the system has none."""
    try:
        return os.pidfd_open(os.getppid())
    except (AttributeError, OSError):  # not Linux, or a sandbox
        return None


def _look(loop: asyncio.AbstractEventLoop, parent: int, call: Callable[[], None]) -> None:
    if os.getppid() != parent:
        call()
    else:
        loop.call_later(LOOK_S, _look, loop, parent, call)
