"""Exchanging two directories in one step, so that a reader always finds exactly one of them in its place."""

import ctypes
import errno
import os
import sys
from pathlib import Path
from typing import Final

from pipeline.archive.durable import Unwritable, sync_directory

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
_NOT_HERE: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EXDEV, errno.EOPNOTSUPP})


class NoExchange(Unwritable):
    """The file system, or the operating system, cannot exchange two directories."""


def exchange(one: Path, other: Path) -> None:
    """Exchange two directories; on disk when this returns. Raises NoExchange, Unwritable."""
    libc = ctypes.CDLL(None, use_errno=True)
    if sys.platform != "linux" or not hasattr(libc, "renameat2"):
        raise NoExchange("this system cannot exchange two directories in one step (Linux's renameat2 can)")
    if libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE):
        code = ctypes.get_errno()
        if code in _NOT_HERE:
            raise NoExchange(
                f"the file system of {one} and {other} cannot exchange two directories in one step: {os.strerror(code)}"
            )
        raise Unwritable(f"cannot exchange {one} and {other}: {os.strerror(code)}")
    sync_directory(one.parent)
    sync_directory(other.parent)


def require_exchange(one: Path, other: Path) -> None:
    """Check that directories in ``one`` and ``other`` can be exchanged, with two empty ones. Raises NoExchange,
    Unwritable."""
    probes = [place / f"probe-{os.getpid()}" for place in (one, other)]
    try:
        for probe in probes:
            probe.mkdir()
        exchange(*probes)
    finally:
        for probe in probes:
            if probe.is_dir():
                probe.rmdir()
