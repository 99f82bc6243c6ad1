"""Memory of a virtual machine: what is free goes back to the host, and costs five times its price when next written.

Whoever is measured first would pay for it, or both at random.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from bench.processes import MEGABYTE_OF_MEMORY, memory_available_mb

FREE_MB: Final = 6_000
"""What is left for two brokers, one of them a JVM, for clients, and for what a sample writes."""
TOUCHED_TIMES: Final = 4
"""Of what is free the system does not take first what came back last: more must be warm than is written."""
MOST: Final = 0.8
"""Of the memory that is there."""
COLD_MB_S: Final = 300.0
"""At which the host gives back what it has taken."""


def leave_warm(megabytes: float) -> None:
    """Touch and free memory, so that a sample which will write so many finds it warm."""
    touched = _touched(min(TOUCHED_TIMES * megabytes, MOST * memory_available_mb()))
    if touched is not None:
        touched.close()


@contextmanager
def little_free() -> Iterator[None]:
    """Hold all memory but `FREE_MB`: of so little, a part that is touched before each sample is most of it."""
    held = _touched(memory_available_mb() - FREE_MB)
    try:
        yield
    finally:
        if held is not None:
            held.close()


def until_held_s() -> float:
    """Seconds that `little_free` takes, at most."""
    return max(0.0, memory_available_mb() - FREE_MB) / COLD_MB_S


def _touched(megabytes: float) -> mmap.mmap | None:
    size = int(megabytes * MEGABYTE_OF_MEMORY)
    if size <= 0:
        return None
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)  # a quarter of the time
    view = (ctypes.c_char * size).from_buffer(memory)
    try:
        ctypes.memset(view, 1, size)
    finally:
        del view  # while it is there, the memory can't be given back
    return memory
