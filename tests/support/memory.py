"""Where tests whose disk is simulated have their files: in memory, since such a test makes thousands of them."""

from __future__ import annotations

import os
import shutil
from typing import Final

_SHARED_MEMORY: Final = "/dev/shm"
_ROOM_BYTES: Final = 1 << 30
"""More than all tests at once take."""


def directory_in_memory() -> str | None:
    """A directory whose files are in memory; None, which stands for any temporary directory, where there is none, or it
    has too little room."""
    if os.access(_SHARED_MEMORY, os.W_OK) and shutil.disk_usage(_SHARED_MEMORY).free >= _ROOM_BYTES:
        return _SHARED_MEMORY
    return None
