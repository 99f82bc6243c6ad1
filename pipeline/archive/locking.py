"""The locks that keep two processes from changing an archive at once. A lock ends with its process."""

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.archive.durable import make_directory, writing
from pipeline.archive.places import ARCHIVER, LOCK
from pipeline.errors import PipelineError


@contextmanager
def as_archiver(dest: Path) -> Iterator[None]:
    """A context in which this process is the archive's only archiver, waiting times included. Raises PipelineError if
    another process is."""
    with _open(dest / ARCHIVER) as descriptor:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 64, 0).decode(errors="replace").strip()
            raise PipelineError(f"another process archives to {dest} (process id {holder or 'unknown'})") from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield


@contextmanager
def changing(dest: Path) -> Iterator[None]:
    """A context in which only this process may change the archive. Waits for another process that changes it."""
    with _open(dest / LOCK) as descriptor:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.stderr.write(f"waiting for another process that changes {dest}\n")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


@contextmanager
def _open(path: Path) -> Iterator[int]:
    make_directory(path.parent)
    with writing(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
