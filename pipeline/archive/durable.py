"""Durable files that appear whole or not at all: written aside, synced, renamed."""

import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pipeline.errors import PipelineError

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class Unwritable(PipelineError):
    """The destination cannot be written to, or is full."""


@contextmanager
def writing(path: Path | str) -> Iterator[None]:
    """A context that turns an OSError of the file system at ``path`` into Unwritable."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise Unwritable(f"there is no room left for {error.filename or path}; nothing of it counts") from error
        # Arrow's errors have no `strerror`, and have the whole message in their text.
        what = f"{error.filename or path}: {error.strerror}" if error.strerror else f"{path}: {error}"
        raise Unwritable(f"cannot write {what}") from error


def make_directory(path: Path) -> None:
    """Make a directory and its missing parents. Each directory is on disk before the next one is made in it. Raises
    Unwritable."""
    if path.is_dir():
        return
    make_directory(path.parent)
    with writing(path):
        path.mkdir(exist_ok=True)
        sync_directory(path.parent)


def sync(path: Path) -> None:
    """Wait until a file is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Wait until the names in a directory are on disk."""
    sync(path)


def put(data: bytes, path: Path, *, aside: Path, written: Callable[[], None] = lambda: None) -> None:
    """Replace a file atomically: its new content is written to ``aside``, on the same file system, and renamed.
    ``written`` is called before the rename. Raises Unwritable."""
    with writing(path):
        with aside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        written()
        aside.replace(path)
        sync_directory(path.parent)


def remove(path: Path) -> None:
    """Remove a file, if it is there. Raises Unwritable."""
    with writing(path):
        path.unlink(missing_ok=True)
        sync_directory(path.parent)


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
