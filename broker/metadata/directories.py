"""The ids of log directories that stand for no directory (KIP-858), and which replicas are in a usable directory."""

from collections.abc import Collection
from typing import Final

RESERVED_IDS: Final = 100
"""Ids below this number are no directories."""

MIGRATING: Final = (0).to_bytes(16, "big")
"""The replica's directory is not in the metadata: its broker does not register directories."""

UNASSIGNED: Final = (1).to_bytes(16, "big")
"""The replica's broker has not said yet in which of its directories the replica is."""

LOST: Final = (2).to_bytes(16, "big")
"""The directory failed before the metadata had the replica's directory."""


def is_reserved(directory: bytes) -> bool:
    """Whether the id is kept for such meanings: no directory may have it."""
    return int.from_bytes(directory, "big") < RESERVED_IDS


def is_online(directory: bytes, online: Collection[bytes]) -> bool:
    """Whether a replica in this log directory can be used. A replica without a directory yet can."""
    return directory in online or (is_reserved(directory) and directory != LOST)
