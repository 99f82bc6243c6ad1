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
    """The name of the system's own."""
    return IN_FORCE.read_text().strip()


def available() -> list[str]:
    """Names of those that there are."""
    return AVAILABLE.read_text().split()


def can_be_changed() -> bool:
    """Whether this process may."""
    return os.access(IN_FORCE, os.W_OK)


@contextmanager
def system_uses(name: str) -> Iterator[None]:
    """New connections of this machine use ``name``; afterwards, come what may, what they used before."""
    before = in_force()
    if name == before:
        yield
        return
    try:
        IN_FORCE.write_text(name)
        yield
    finally:
        IN_FORCE.write_text(before)
