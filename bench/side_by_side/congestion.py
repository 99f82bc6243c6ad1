"""Changing the system's congestion control for a while and restoring it, which needs root."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

IN_FORCE: Final = Path("/proc/sys/net/ipv4/tcp_congestion_control")
AVAILABLE: Final = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")


def in_force() -> str:
    """The name of the system's congestion control."""
    return IN_FORCE.read_text().strip()


def available() -> list[str]:
    """The names of the available congestion controls."""
    return AVAILABLE.read_text().split()


def can_be_changed() -> bool:
    """Whether this process may change the congestion control."""
    return os.access(IN_FORCE, os.W_OK)


@contextmanager
def system_uses(name: str) -> Iterator[None]:
    """A context in which new connections of this machine use ``name``; afterwards the congestion control is as
    before."""
    before = in_force()
    if name == before:
        yield
        return
    try:
        IN_FORCE.write_text(name)
        yield
    finally:
        IN_FORCE.write_text(before)
