"""Case: the cost of reading a file from the disk into the page cache, without a broker."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from bench.disturbers import forget
from bench.limits import MEGABYTE
from storage.files import FileSystem
from storage.read_ahead import ReadAhead

FILE_BYTES = 256 << 20
STRETCH_BYTES = 1 << 20
"""Bytes that a consumer requests in one fetch."""


def cold_file(directory: Path, scale: float) -> dict[str, float]:
    """MB/s and CPU seconds a gigabyte of a file that is not in the page cache, read by the megabyte: with read-ahead as
    the broker does it (docs/decisions/cold-reads.md), and by `sendfile` to /dev/null, which waits for each read."""
    directory.mkdir(parents=True)
    path = directory / "log"
    size = max(1, int(FILE_BYTES * scale) // STRETCH_BYTES) * STRETCH_BYTES
    path.write_bytes(os.urandom(STRETCH_BYTES) * (size // STRETCH_BYTES))
    file = FileSystem().open_log(str(path), create=False)
    with open(os.devnull, "wb") as nowhere:

        def as_the_broker(position: int) -> None:
            ReadAhead(file, position, STRETCH_BYTES).perform()

        def by_sendfile(position: int) -> None:
            end = position + STRETCH_BYTES
            while position < end:
                position += os.sendfile(nowhere.fileno(), file.fileno(), position, end - position)

        figures = {}
        for name, read in (("", as_the_broker), ("sendfile_", by_sendfile)):
            forget(str(path))
            mb_s, cpu_s_gb = _read_through(size, read)
            figures |= {f"{name}mb_s": mb_s, f"{name}cpu_s_gb": cpu_s_gb}
    return figures


def _read_through(size: int, read: Callable[[int], None]) -> tuple[float, float]:
    cpu, started = time.process_time(), time.perf_counter()
    for position in range(0, size, STRETCH_BYTES):
        read(position)
    cpu, seconds = time.process_time() - cpu, time.perf_counter() - started
    return size / seconds / MEGABYTE, cpu / size * 1e9
