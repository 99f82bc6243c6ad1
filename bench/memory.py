"""Warming the memory of a virtual machine: freed memory goes back to the host, and costs five times more to write to.

That would slow down the broker that is measured first, or both at random. But only whole blocks go back (free page
reporting of Linux: 2 MB), so a page of each block is held while the others stay free.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from bench.processes import MEGABYTE_OF_MEMORY, memory_available_mb

LEFT_MB: Final = 300
"""Memory that is not touched: the system itself needs it."""
BLOCK_BYTES: Final = 2 * MEGABYTE_OF_MEMORY
"""The size of the blocks that go back to the host. No page of a smaller block is held: where no memory is contiguous,
writing to a file costs four times as much."""
TOUCHED_MB_S: Final = 1_000.0
"""The assumed speed of touching memory. It is a third of that where the host has to give the memory back first."""


@contextmanager
def kept_warm() -> Iterator[None]:
    """A context in which all free memory has been touched and freed again, but for one page in 512, which are held.

    A tenth of the blocks escape, and other blocks become free as processes end: renew the context from time to time.
    """
    size = int(max(0.0, memory_available_mb() - LEFT_MB) * MEGABYTE_OF_MEMORY) // BLOCK_BYTES * BLOCK_BYTES
    if not size:
        yield
        return
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        with suppress(OSError):  # a kernel without huge pages; of one, nothing is freed before all of it is
            memory.madvise(mmap.MADV_NOHUGEPAGE)
        touched = (ctypes.c_char * size).from_buffer(memory)
        try:
            ctypes.memset(touched, 1, size)
        finally:
            del touched  # while it is there, the memory can't be given back
        for block in range(0, size, BLOCK_BYTES):
            memory.madvise(mmap.MADV_DONTNEED, block + mmap.PAGESIZE, BLOCK_BYTES - mmap.PAGESIZE)
        yield


def until_warm_s() -> float:
    """About how many seconds `kept_warm` takes."""
    return memory_available_mb() / TOUCHED_MB_S
